//! Who has a lock, as far as this host can tell: for messages.

use crate::host::host_name;
use jiff::Timestamp;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A table that is longer than a page comes in several reads, and misses locks if others are given back between two of them.
const LOOKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(2);

/// The process that has the `flock` of an open file, since when it runs, and its host.
pub fn flock_holder(file: BorrowedFd<'_>) -> String {
    let look = |n| {
        if n > 0 {
            std::thread::sleep(PAUSE);
        }
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let stat = rustix::fs::fstat(file).ok()?;
        let device = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
        process_of(&locks, device, stat.st_ino)
    };
    (0..LOOKS).find_map(look).map_or_else(unknown, process)
}

/// A process of this host: its program, and since when it runs.
pub(crate) fn process(number: u32) -> String {
    format!("process {number}{} of host {}", what_it_is(number), host_name())
}

/// A process of which this one is shown nothing: another user's, or one of another container.
pub(crate) fn unknown() -> String {
    format!("a process that host {} does not show to this one", host_name())
}

/// `NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END`; `->` in front of who waits.
fn process_of(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let mut other_device = None;
    for line in locks.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = fields[..] else { continue };
        let mut place = place.split(':');
        let mut number = |radix| place.next().and_then(|n| u64::from_str_radix(n, radix).ok());
        let (Some(major), Some(minor), Some(i)) = (number(16), number(16), number(10)) else { continue };
        let Ok(process) = process.parse() else { continue };
        if i == inode && (major, minor) == (device.0.into(), device.1.into()) {
            return Some(process);
        }
        if i == inode {
            // Btrfs and overlays tell another device here than elsewhere.
            other_device = Some(process);
        }
    }
    other_device
}

/// Its program, since when it runs, and whether it is stopped.
fn what_it_is(process: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let Some(Stat { program, is_stopped, began }) = parse(&stat) else { return String::new() };
    let since = since(began).map_or(String::new(), |since| format!(", since {since}"));
    let stopped = if is_stopped { ", which is stopped" } else { "" };
    format!(" ({program}{since}{stopped})")
}

/// When a process began, in UTC.
fn since(ticks_after_boot: u64) -> Option<Timestamp> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: i64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let seconds = ticks_after_boot / rustix::param::clock_ticks_per_second().max(1);
    Timestamp::from_second(boot.checked_add_unsigned(seconds)?).ok()
}

/// What is read of a process's state.
#[derive(Debug, PartialEq)]
struct Stat<'a> {
    program: &'a str,
    is_stopped: bool,
    /// When it began, in ticks after the system's start.
    began: u64,
}

/// `PID (PROGRAM) STATE …`, the 22nd field is when it began; the program's name may hold anything.
fn parse(stat: &str) -> Option<Stat<'_>> {
    let (_, rest) = stat.split_once('(')?;
    let (program, rest) = rest.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let is_stopped = fields.first()?.starts_with(['T', 't']);
    Some(Stat { program, is_stopped, began: fields.get(19)?.parse().ok()? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_tables_are_read() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:5 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 08:11:5 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 08:01:5 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 10 08:01:5 0 EOF\n";
        assert_eq!(process_of(locks, (8, 1), 5), Some(10));
        assert_eq!(process_of(locks, (8, 0x11), 5), Some(8));
        assert_eq!(process_of(locks, (0, 40), 5), Some(10));
        assert_eq!(process_of(locks, (8, 1), 6), None);
        let rest = " 1".repeat(18) + " 777 9 9";
        let stat = |program, is_stopped| Stat { program, is_stopped, began: 777 };
        assert_eq!(parse(&format!("12 (a) b) T{rest}")), Some(stat("a) b", true)));
        assert_eq!(parse(&format!("12 (sapwood) S{rest}")), Some(stat("sapwood", false)));
        assert_eq!(parse("12 (sapwood) S 1 2"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn the_holder_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(flock_holder(file.as_file().as_fd()).contains("does not show"));
        rustix::fs::flock(file.as_file(), rustix::fs::FlockOperation::LockExclusive).unwrap();
        let who = flock_holder(file.as_file().as_fd());
        let (me, host) = (format!("process {}", std::process::id()), host_name());
        assert!(who.contains(&me) && who.contains(&host), "{who}");
        // This process began a moment ago.
        let since = who.split_once(", since ").and_then(|(_, since)| since.split_once(')')).unwrap().0;
        let age = Timestamp::now().duration_since(since.parse().unwrap()).as_secs();
        assert!((-2..3600).contains(&age), "{who}");
    }
}
