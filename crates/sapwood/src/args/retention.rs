//! Options of commands on many snapshots: `retain` and `copy`.

use super::values::parse_name;

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("rules").required(true).multiple(true))]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub struct Retain {
    /// vm/disk; vm for all its disks; or a pattern with * and ?, such as 'web*/vda'
    #[arg(value_name = "DISK|PATTERN", value_parser = parse_name, group = "which")]
    pub disks: Vec<String>,
    /// All disks
    #[arg(long, group = "which")]
    pub all: bool,
    /// Keep the N newest snapshots
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub last: Option<u32>,
    /// Keep the newest snapshot of each of the last N hours that have one
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub hourly: Option<u32>,
    /// The same for days
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub daily: Option<u32>,
    /// The same for weeks
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub weekly: Option<u32>,
    /// The same for months
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub monthly: Option<u32>,
    /// The same for years
    #[arg(long, value_name = "N", group = "rules", value_parser = clap::value_parser!(u32).range(1..))]
    pub yearly: Option<u32>,
    /// Keep all snapshots that are at most this much older than the newest one of the disk: 48h, 14d, 8w
    #[arg(long, value_name = "D", group = "rules", value_parser = crate::sizes::parse_duration)]
    pub within: Option<u64>,
    /// Change nothing; only show what would stay, and why
    #[arg(long)]
    pub dry_run: bool,
}

impl Retain {
    /// What stays.
    pub fn rules(&self) -> vault::RetentionRules {
        let n = Option::unwrap_or_default;
        vault::RetentionRules {
            last: n(self.last),
            hourly: n(self.hourly),
            daily: n(self.daily),
            weekly: n(self.weekly),
            monthly: n(self.monthly),
            yearly: n(self.yearly),
            within_seconds: self.within,
        }
    }
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Copy {
    /// vm/disk@SNAP; vm/disk for all its snapshots; vm for all its disks; or a pattern with * and ?, such as 'web*/vda'
    #[arg(value_name = "DISK[@SNAP]|PATTERN", value_parser = parse_name, group = "what")]
    pub names: Vec<String>,
    /// All snapshots of all disks
    #[arg(long, group = "what")]
    pub all: bool,
    /// The other vault: /path or file:///path
    #[arg(long, value_name = "URL")]
    pub to: String,
}
