//! Decides in which format the file of a disk is read.
//!
//! The guest of a raw disk can write the header of an image into it. So each snapshot has the format of its source in a
//! tag, and the next backup refuses another format unless the user gives it (`--source-format`). Names of other files
//! in an image are followed only if the user gave the format, now or for an earlier snapshot.

use crate::tags::SOURCE_FORMAT_TAG;
use image::Format;
use vault::{SnapshotEntry, SnapshotInfo};

/// Behind the format, `raw`, `qcow2` or `vmdk`, where the user said it.
const SAID: &str = ",said";

/// The format of a disk's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFormat {
    /// Which.
    pub format: Format,
    /// Whether the user said so, and not only the content.
    pub is_said: bool,
}

impl SourceFormat {
    /// What the newest snapshot that knows it remembers; those of exports and pipes do not.
    pub fn of_disk(snapshots: &[SnapshotInfo]) -> Option<SourceFormat> {
        snapshots.iter().rev().find_map(|s| SourceFormat::of_snapshot(&s.entry))
    }

    /// What a snapshot remembers; nothing where its source was an export or a pipe.
    pub fn of_snapshot(snapshot: &SnapshotEntry) -> Option<SourceFormat> {
        let tags = snapshot.tags.iter().filter(|(name, _)| name == SOURCE_FORMAT_TAG);
        tags.map(|(_, value)| value).find_map(|value| SourceFormat::of_tag(value))
    }

    /// What a backup remembers that was told `said`, found `before`, and read `format` ([`image::Source::format`]);
    /// `None` where that was no file.
    pub fn read(format: &str, said: Option<Format>, before: Option<SourceFormat>) -> Option<SourceFormat> {
        let format = match format {
            "block" => Format::Raw,
            other => Format::by_name(other)?,
        };
        let was_said = before.is_some_and(|b| b.is_said && b.format == format);
        Some(SourceFormat { format, is_said: said.is_some() || was_said })
    }

    fn of_tag(value: &str) -> Option<SourceFormat> {
        let said = value.strip_suffix(SAID);
        let format = Format::by_name(said.unwrap_or(value))?;
        Some(SourceFormat { format, is_said: said.is_some() })
    }

    /// The tag's value.
    pub fn tag(self) -> String {
        let said = if self.is_said { SAID } else { "" };
        format!("{}{said}", self.format.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back() {
        for format in [Format::Raw, Format::Qcow2, Format::Vmdk] {
            for is_said in [false, true] {
                let known = SourceFormat { format, is_said };
                assert_eq!(SourceFormat::of_tag(&known.tag()), Some(known));
            }
        }
        assert_eq!(SourceFormat::of_tag("vdi"), None);
        assert_eq!(SourceFormat::of_tag(""), None);
    }

    #[test]
    fn a_word_counts_for_its_format_only() {
        let said = |format| Some(SourceFormat { format, is_said: true });
        let read = |format, said, before| SourceFormat::read(format, said, before).map(SourceFormat::tag);
        assert_eq!(read("qcow2", None, said(Format::Qcow2)).as_deref(), Some("qcow2,said"));
        assert_eq!(read("qcow2", None, said(Format::Raw)).as_deref(), Some("qcow2"));
        assert_eq!(read("block", None, None).as_deref(), Some("raw"));
        assert_eq!(read("raw", Some(Format::Raw), None).as_deref(), Some("raw,said"));
        assert_eq!(read("nbd", None, said(Format::Raw)), None);
    }
}
