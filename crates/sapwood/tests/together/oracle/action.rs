//! What one process does in a round.

use super::{source_of, Name};
use crate::common::{Bench, Child, Ended, INTERRUPTED};
use rustix::process::Signal;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

/// What it is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Backup(String),
    Delete(Name),
    Restore(Name),
    RestoreLatest(String),
    Gc,
    /// From so many percent of dead chunks on.
    Compact(u8),
    Verify,
    Reindex,
}

impl Action {
    /// Its name.
    pub fn kind(&self) -> &'static str {
        match self {
            Action::Backup(_) => "backup",
            Action::Delete(_) => "delete",
            Action::Restore(_) | Action::RestoreLatest(_) => "restore",
            Action::Gc => "gc",
            Action::Compact(_) => "compact",
            Action::Verify => "verify",
            Action::Reindex => "reindex",
        }
    }
}

/// One process, and what happens to it.
pub struct Task {
    pub action: Action,
    /// Where a restore goes.
    pub target: PathBuf,
    /// When it is sent which signals.
    pub signals: Vec<(Duration, Signal)>,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.action)?;
        self.signals.iter().try_for_each(|(at, signal)| write!(f, ", {signal:?} after {at:?}"))
    }
}

impl Task {
    pub fn start(&self, bench: &Bench) -> Child {
        let full = |(disk, id): &Name| format!("{disk}@{id}");
        let target = || self.target.to_str().unwrap().to_string();
        let args: Vec<String> = match &self.action {
            Action::Backup(disk) => {
                vec!["backup".into(), disk.clone(), bench.arg(&source_of(disk)), "--force".into()]
            }
            Action::Delete(name) => vec!["delete".into(), full(name)],
            Action::Restore(name) => vec!["restore".into(), full(name), target()],
            Action::RestoreLatest(disk) => vec!["restore".into(), disk.clone(), target()],
            Action::Gc => vec!["gc".into()],
            Action::Compact(percent) => {
                let level = (1 + percent % 7).to_string();
                let again = ["--recompress".into(), level].into_iter().filter(|_| percent % 2 == 0);
                ["compact".into(), "--threshold".into(), percent.to_string()]
                    .into_iter()
                    .chain(again)
                    .collect()
            }
            Action::Verify => vec!["verify".into(), "--data".into()],
            Action::Reindex => vec!["reindex".into()],
        };
        let args: Vec<String> = ["-q".into(), "--json".into()].into_iter().chain(args).collect();
        Child::start(bench.command(&args), &args.join(" "))
    }

    pub fn restores(&self) -> bool {
        matches!(self.action, Action::Restore(_) | Action::RestoreLatest(_))
    }

    /// The signal that ends it.
    pub fn stop(&self) -> Option<Signal> {
        self.signals.iter().map(|(_, signal)| *signal).find(|s| [Signal::KILL, Signal::INT].contains(s))
    }

    /// Whether it ended as one does that was sent its signal.
    pub fn may_end_stopped(&self, e: &Ended) -> bool {
        match self.stop() {
            Some(signal) if e.status.signal() == Some(signal.as_raw()) => true,
            Some(Signal::INT) => e.code() == Some(INTERRUPTED) && e.stderr.contains("stopped"),
            _ => false,
        }
    }
}
