//! Options of `sapwood snapshots`.

use super::values::parse_name;
use crate::times;

#[derive(clap::Args)]
pub struct Snapshots {
    /// vm/disk; vm for all its disks; or a pattern with * and ?, such as 'web*/vda' [default: all]
    #[arg(value_name = "DISK|PATTERN", value_parser = parse_name)]
    pub names: Vec<String>,
    /// Only those with this tag, and with this value if one is given; may be repeated: then all must match
    #[arg(long, value_name = "K[=V]")]
    pub tag: Vec<String>,
    /// Only those that are held
    #[arg(long)]
    pub held: bool,
    /// Only those of this time and later: 2026-11-21T22:00, in UTC, or with an offset; a day alone is its beginning
    #[arg(long, value_name = "T", value_parser = times::beginning)]
    pub from: Option<i64>,
    /// Only those of this time and earlier; a day alone is its end
    #[arg(long, value_name = "T", value_parser = times::end)]
    pub until: Option<i64>,
    /// Only the N newest of each disk, after the other options have applied
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
}
