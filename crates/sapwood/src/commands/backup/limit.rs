//! The rate that `--limit` allows.

use crate::args::Backup;
use image::{LimitedSource, Source};

/// The source, read no faster than `--limit` says.
pub(super) fn limited(a: &Backup, source: Box<dyn Source>) -> Box<dyn Source> {
    match a.limit {
        Some(rate) => Box::new(LimitedSource::new(source, rate)),
        None => source,
    }
}
