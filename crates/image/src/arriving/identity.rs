//! What tells the target of a restore from every other file and device.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Where Linux describes block devices, by their numbers.
const DEVICES: &str = "/sys/dev/block";

/// Files with names that identify a device, by its kind: SCSI, NVMe, virtio, LVM and other mappings, RAID, Ceph,
/// SD cards, loop devices.
const NAMES: [&str; 13] = [
    "dm/uuid",
    "md/uuid",
    "wwid",
    "serial",
    "device/wwid",
    "device/serial",
    "device/cid",
    "device/cluster_fsid",
    "device/pool_id",
    "device/pool_ns",
    "device/image_id",
    "loop/backing_file",
    "loop/offset",
];
/// Which part of a device it is.
const PARTS: [&str; 2] = ["partition", "start"];
/// Longer values are cut at their beginning.
const VALUE_BYTES_MAX: usize = 128;
/// Lines beyond this length in all are left out.
pub(super) const FACTS_BYTES_MAX: usize = 2048;

/// What a target is known by, for as long as it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetId {
    /// Its inode, and when that was made, in seconds since 1970; 0 where the file system does not tell.
    File { inode: u64, born: u64 },
    /// Lines of `name=value`.
    Device { facts: String },
}

/// Where a target is, in one run of the system only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    /// Number of the device, or of the file system's device.
    pub device: u64,
    /// The number of the medium among all that were attached since the system started; 0 where Linux does not count them.
    pub sequence: u64,
}

impl TargetId {
    /// The identity of an open file or device, and where it is attached.
    pub fn of(file: &File) -> io::Result<(TargetId, Attachment)> {
        let meta = file.metadata()?;
        if !meta.file_type().is_block_device() {
            let born = meta.created().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
            let id = TargetId::File { inode: meta.ino(), born: born.map_or(0, |d| d.as_secs()) };
            return Ok((id, Attachment { device: meta.dev(), sequence: 0 }));
        }
        let number = meta.rdev();
        let name = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let (facts, sequence) = device_facts(&Path::new(DEVICES).join(name));
        Ok((TargetId::Device { facts }, Attachment { device: number, sequence }))
    }

    /// The first difference to the target of before, in words; `None` where no difference is known.
    pub fn difference(&self, before: &TargetId) -> Option<String> {
        match (before, self) {
            (TargetId::File { inode: old, born: old_born }, TargetId::File { inode, born }) => {
                if old != inode {
                    return Some(format!("its inode is {inode}, and was {old}"));
                }
                let both_tell = *old_born != 0 && *born != 0;
                (both_tell && old_born != born).then(|| "it was made at another time".into())
            }
            (TargetId::Device { facts: old }, TargetId::Device { facts }) => {
                let now = parse(facts);
                let mut both = parse(old).into_iter().filter_map(|(k, v)| Some((k, v, *now.get(k)?)));
                let (name, old, new) = both.find(|(_, old, new)| old != new)?;
                Some(format!("its {name} is {new:?}, and was {old:?}"))
            }
            (TargetId::File { .. }, _) => Some("it is a device, and was a file".into()),
            (TargetId::Device { .. }, _) => Some("it is a file, and was a device".into()),
        }
    }

    /// Whether it is the same for certain: both have a name that no other has, and nothing differs.
    pub fn is_certainly(&self, before: &TargetId) -> bool {
        let names = match (before, self) {
            (TargetId::Device { facts: old }, TargetId::Device { facts }) => {
                let now = parse(facts);
                parse(old).into_iter().any(|(k, v)| is_name(k) && now.get(k) == Some(&v))
            }
            _ => true,
        };
        names && self.difference(before).is_none()
    }
}

/// Whether a fact identifies a device by itself.
fn is_name(fact: &str) -> bool {
    let fact = fact.strip_prefix("../").unwrap_or(fact);
    NAMES.contains(&fact) && !["loop/offset", "device/pool_id", "device/pool_ns"].contains(&fact)
}

fn parse(facts: &str) -> BTreeMap<&str, &str> {
    facts.lines().filter_map(|line| line.split_once('=')).collect()
}

/// What Linux tells of a device, or of the device that it is a part of; and its sequence.
fn device_facts(folder: &Path) -> (String, u64) {
    let mut facts = String::new();
    let mut sequence = 0;
    let whole =
        folder.join("partition").exists().then(|| folder.canonicalize().ok()?.parent().map(Path::to_owned));
    let folders = [(folder.to_owned(), ""), (whole.flatten().unwrap_or_default(), "../")];
    for (folder, prefix) in folders.iter().filter(|f| f.0 != Path::new("")) {
        for name in NAMES.iter().chain(PARTS.iter().chain(&["size"]).filter(|_| prefix.is_empty())) {
            let line = fact(&folder.join(name)).map(|value| format!("{prefix}{name}={value}\n"));
            facts.extend(line.filter(|line| facts.len() + line.len() <= FACTS_BYTES_MAX));
        }
        let counted = fact(&folder.join("diskseq")).and_then(|s| s.parse().ok());
        sequence = counted.unwrap_or(sequence);
    }
    (facts, sequence)
}

/// The first line of a file, if it says anything.
fn fact(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line: String = text.lines().next()?.chars().filter(|c| !c.is_control()).collect();
    let line = line.trim();
    let mut from = line.len().saturating_sub(VALUE_BYTES_MAX);
    while !line.is_char_boundary(from) {
        from += 1;
    }
    (!line.is_empty()).then(|| line[from..].to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn device(facts: &str) -> TargetId {
        TargetId::Device { facts: facts.into() }
    }

    #[test]
    fn a_device_is_described_as_linux_describes_it() {
        let long = "/x".repeat(100);
        let dir = tree(&[
            ("sda/device/wwid", "naa.5000  \n"),
            ("sda/device/serial", ""),
            ("sda/loop/backing_file", &long),
            ("sda/size", "2048\n"),
            ("sda/diskseq", "17\n"),
            ("sda/sda1/partition", "1\n"),
            ("sda/sda1/start", "64\n"),
            ("sda/sda1/size", "1024\n"),
        ]);
        let (facts, sequence) = device_facts(&dir.path().join("sda"));
        let end = &long[long.len() - VALUE_BYTES_MAX..];
        assert_eq!(facts, format!("device/wwid=naa.5000\nloop/backing_file={end}\nsize=2048\n"));
        assert_eq!(sequence, 17);
        // As below /sys/dev/block: by a link.
        symlink(dir.path().join("sda/sda1"), dir.path().join("8:1")).unwrap();
        let (facts, sequence) = device_facts(&dir.path().join("8:1"));
        let whole = format!("../device/wwid=naa.5000\n../loop/backing_file={end}\n");
        assert_eq!(facts, format!("partition=1\nstart=64\nsize=1024\n{whole}"));
        assert_eq!(sequence, 17);
        assert_eq!(device_facts(&dir.path().join("nowhere")), (String::new(), 0));

        let many: Vec<(String, String)> = NAMES.iter().map(|n| ((*n).to_owned(), "y".repeat(900))).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        let dir = tree(&many);
        let (facts, _) = device_facts(dir.path());
        assert!(facts.len() <= FACTS_BYTES_MAX && facts.ends_with('\n'), "{}", facts.len());
    }

    #[test]
    fn what_is_told_only_once_says_nothing() {
        let before = device("wwid=a\nsize=5\n");
        for (now, difference, is_certain) in [
            ("wwid=a\nsize=5\n", None, true),
            ("serial=b\nwwid=a\nsize=5\n", None, true),
            ("size=5\n", None, false),
            ("", None, false),
            ("wwid=b\nsize=5\n", Some("its wwid is \"b\", and was \"a\""), false),
            ("wwid=a\nsize=6\n", Some("its size is \"6\", and was \"5\""), false),
        ] {
            let now = device(now);
            assert_eq!(now.difference(&before).as_deref(), difference);
            assert_eq!(now.is_certainly(&before), is_certain, "{now:?}");
        }
        let file = |inode, born| TargetId::File { inode, born };
        assert_eq!(file(1, 0).difference(&file(1, 9)), None);
        assert!(file(1, 8).difference(&file(1, 9)).is_some() && file(2, 9).difference(&file(1, 9)).is_some());
        assert!(file(1, 9).difference(&before).is_some() && before.difference(&file(1, 9)).is_some());
    }
}
