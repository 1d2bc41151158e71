//! Volume groups: where each logical volume lies on the physical ones.

use super::error::corrupt;
use super::physical::Physical;
use super::text::{self, Section, Value};
use crate::disk::{Disk, Part, Piece};
use crate::error::{FsError, Result};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const SECTOR_BYTES: u64 = 512;
/// All volumes of a disk in more pieces would take too much memory.
pub(crate) const PIECES_MAX: usize = 1 << 22;

/// A volume group.
pub(crate) struct Group {
    /// As users know it.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Counts its changes.
    pub generation: u64,
    extent_bytes: u64,
    physical: HashMap<String, Area>,
    /// Its logical volumes that users see.
    pub volumes: Vec<LogicalVolume>,
}

/// Where the extents of a physical volume begin.
struct Area {
    id: String,
    start: u64,
    extents: u64,
}

/// A logical volume.
pub(crate) struct LogicalVolume {
    /// As users know it.
    pub name: String,
    extents: u64,
    segments: std::result::Result<Vec<Segment>, Unread>,
}

/// Why a logical volume cannot be read.
#[derive(Clone, Debug)]
enum Unread {
    Damaged(String),
    Unsupported(String),
}

/// Extents that are spread over stripes; over one if it is linear.
#[derive(Clone, Debug)]
struct Segment {
    extents: u64,
    stripe_bytes: u64,
    /// The physical volume, and its first extent.
    stripes: Vec<(String, u64)>,
}

impl Group {
    /// Takes the text of a group's metadata.
    pub fn parse(metadata: &str) -> Result<Group> {
        let all = text::parse(metadata).map_err(|why| corrupt("metadata", why))?;
        let Some((name, group)) = all.sections().next() else {
            return Err(corrupt("metadata", "there is no group in it"));
        };
        Group::decode(name, group)
            .ok_or_else(|| corrupt(format!("group {name}"), "a number or a name is missing"))
    }

    fn decode(name: &str, group: &Section) -> Option<Group> {
        let mut physical = HashMap::new();
        for (name, section) in group.section("physical_volumes")?.sections() {
            physical.insert(name.to_string(), area(section)?);
        }
        let none = Section::default();
        let logical = group.section("logical_volumes").unwrap_or(&none);
        let stores: HashSet<&str> = logical.sections().flat_map(|(_, lv)| snapshot_stores(lv)).collect();
        let visible = logical.sections().filter(|(name, lv)| is_name(name) && is_visible(lv));
        is_name(name).then_some(())?;
        Some(Group {
            name: name.into(),
            id: group.text("id")?.into(),
            generation: group.number("seqno")?,
            extent_bytes: group.number("extent_size")?.checked_mul(SECTOR_BYTES).filter(|b| *b > 0)?,
            physical,
            volumes: visible.map(|(name, lv)| LogicalVolume::decode(name, lv, &stores)).collect(),
        })
    }

    /// The size of a volume in bytes.
    pub fn size(&self, volume: &LogicalVolume) -> u64 {
        volume.extents.saturating_mul(self.extent_bytes)
    }

    /// Puts a volume together from the physical volumes of `disk`, of `left` pieces at most, which it counts down.
    pub fn part(
        &self,
        volume: &LogicalVolume,
        disk: &Arc<dyn Disk>,
        physical: &[Physical],
        left: &mut usize,
    ) -> Result<Part> {
        let what = format!("{}/{}", self.name, volume.name);
        let segments = match &volume.segments {
            Ok(segments) => segments,
            Err(Unread::Damaged(why)) => return Err(corrupt(what, why.as_str())),
            Err(Unread::Unsupported(feature)) => {
                return Err(FsError::unsupported(format!("LVM {what}"), feature.as_str()))
            }
        };
        let mut pieces = Vec::new();
        for segment in segments {
            self.place(segment, physical, *left, &mut pieces).map_err(|why| corrupt(&what, why))?;
        }
        *left -= pieces.len().min(*left);
        Part::new(disk.clone(), &pieces).ok_or_else(|| corrupt(&what, "it is empty, or too long"))
    }

    /// The pieces of a segment.
    fn place(
        &self,
        segment: &Segment,
        physical: &[Physical],
        pieces_max: usize,
        pieces: &mut Vec<Piece>,
    ) -> std::result::Result<(), String> {
        let each = segment.extents / segment.stripes.len() as u64;
        let stripes: Vec<Vec<Piece>> = segment
            .stripes
            .iter()
            .map(|(name, first)| self.extents_of(name, *first, each, physical))
            .collect::<std::result::Result<_, _>>()?;
        if let [only] = &stripes[..] {
            only.iter().for_each(|piece| merge(pieces, *piece));
            return Ok(());
        }
        let len = each * self.extent_bytes;
        let rounds = len.div_ceil(segment.stripe_bytes);
        let more = rounds.saturating_mul(stripes.len() as u64);
        if more.saturating_add(pieces.len() as u64) > pieces_max as u64 {
            return Err(format!("its stripes are more than {pieces_max} pieces"));
        }
        for round in 0..rounds {
            let from = round * segment.stripe_bytes;
            let taken = segment.stripe_bytes.min(len - from);
            for stripe in &stripes {
                cut(stripe, from, taken).for_each(|piece| merge(pieces, piece));
            }
        }
        Ok(())
    }

    /// Where extents of a physical volume are on the disk.
    fn extents_of(
        &self,
        name: &str,
        first: u64,
        count: u64,
        physical: &[Physical],
    ) -> std::result::Result<Vec<Piece>, String> {
        let area =
            self.physical.get(name).ok_or_else(|| format!("the group has no physical volume {name}"))?;
        let Some(here) = physical.iter().find(|p| p.id == area.id) else {
            return Err(format!("its physical volume {name} ({}) is not on this disk", area.id));
        };
        let outside = || format!("{count} extents from {first} on are outside of the physical volume {name}");
        if first.checked_add(count).is_none_or(|end| end > area.extents) || count == 0 {
            return Err(outside());
        }
        let within = |n: u64| n.checked_mul(self.extent_bytes);
        let (offset, len) =
            within(first).and_then(|at| at.checked_add(area.start)).zip(within(count)).ok_or_else(outside)?;
        let found = here.part.locate(offset, len);
        if found.iter().map(|p| p.len).sum::<u64>() != len {
            return Err(outside());
        }
        Ok(found)
    }
}

impl LogicalVolume {
    fn decode(name: &str, section: &Section, stores: &HashSet<&str>) -> LogicalVolume {
        let extents = segments(section).filter_map(|s| s.number("extent_count"));
        let extents = extents.fold(0u64, u64::saturating_add);
        let segments = if stores.contains(name) {
            Err(Unread::Unsupported("the segment type snapshot".into()))
        } else {
            read_segments(section)
        };
        LogicalVolume { name: name.into(), extents, segments }
    }
}

fn segments(volume: &Section) -> impl Iterator<Item = &Section> {
    volume.sections().filter(|(name, _)| name.starts_with("segment")).map(|(_, section)| section)
}

/// Segments in the order of the volume, without gaps.
fn read_segments(volume: &Section) -> std::result::Result<Vec<Segment>, Unread> {
    let damaged = |why: &str| Unread::Damaged(why.into());
    let mut found = Vec::new();
    for section in segments(volume) {
        let kind = section.text("type").unwrap_or_default();
        // Flags may follow the type, such as `striped+…`.
        if kind != "striped" && kind != "linear" {
            return Err(Unread::Unsupported(format!("the segment type {kind}")));
        }
        let start = section.number("start_extent").ok_or(damaged("a segment begins nowhere"))?;
        let segment = Segment::decode(section).ok_or(damaged("a segment has no valid stripes"))?;
        found.push((start, segment));
    }
    found.sort_by_key(|(start, _)| *start);
    let mut next = 0u64;
    for (start, segment) in &found {
        if *start != next {
            return Err(Unread::Damaged(format!("a segment begins at extent {start} instead of {next}")));
        }
        next = next.checked_add(segment.extents).ok_or(damaged("it is too long"))?;
    }
    Ok(found.into_iter().map(|(_, segment)| segment).collect())
}

impl Segment {
    fn decode(section: &Section) -> Option<Segment> {
        let extents = section.number("extent_count")?;
        let count = section.number("stripe_count")?;
        let mut stripes = Vec::new();
        for pair in section.list("stripes").chunks_exact(2) {
            let [Value::Text(name), Value::Number(first)] = pair else { return None };
            stripes.push((name.clone(), u64::try_from(*first).ok()?));
        }
        let stripe_bytes = match count {
            0 => return None,
            1 => 0,
            _ => section.number("stripe_size")?.checked_mul(SECTOR_BYTES).filter(|b| *b > 0)?,
        };
        let is_whole = stripes.len() as u64 == count && extents > 0 && extents % count == 0;
        is_whole.then_some(Segment { extents, stripe_bytes, stripes })
    }
}

fn area(section: &Section) -> Option<Area> {
    Some(Area {
        id: section.text("id")?.replace('-', ""),
        start: section.number("pe_start")?.checked_mul(SECTOR_BYTES)?,
        extents: section.number("pe_count")?,
    })
}

/// Names become parts of paths.
fn is_name(name: &str) -> bool {
    !matches!(name, "." | "..")
}

fn is_visible(volume: &Section) -> bool {
    volume.list("status").iter().any(|v| matches!(v, Value::Text(flag) if flag == "VISIBLE"))
}

/// Volumes that hold what a snapshot's origin has lost. They look like others.
fn snapshot_stores(volume: &Section) -> Vec<&str> {
    segments(volume).filter_map(|s| s.text("cow_store")).collect()
}

/// A range of pieces that stand one behind the other.
fn cut(pieces: &[Piece], from: u64, len: u64) -> impl Iterator<Item = Piece> + '_ {
    let mut before = 0;
    pieces.iter().filter_map(move |piece| {
        let (start, end) = (from.max(before), (from + len).min(before + piece.len));
        let offset = piece.offset + start.saturating_sub(before);
        before += piece.len;
        (start < end).then(|| Piece { offset, len: end - start })
    })
}

/// Adds a piece, to the last one if it goes on from there.
fn merge(pieces: &mut Vec<Piece>, next: Piece) {
    match pieces.last_mut().filter(|last| last.offset + last.len == next.offset) {
        Some(last) => last.len += next.len,
        None => pieces.push(next),
    }
}

#[cfg(test)]
mod tests;
