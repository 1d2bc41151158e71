//! The bytes of an attribute: in its record, in clusters, or in clusters and compressed.

use super::error::{damaged, unsupported};
use super::lznt1;
use super::record::{Attribute, Body, Mapped, RecordNo};
use super::runs::{self, Lcn, Run, Vcn};
use super::volume::Volume;
use crate::error::Result;
use crate::tree::extents::{self, Extent, Place};
use parking_lot::Mutex;
use std::sync::Arc;

const COMPRESSION: u16 = 0x00ff;
const LZNT1: u16 = 0x0001;
const ENCRYPTED: u16 = 0x4000;

/// A unit of compression is decompressed in memory whole.
const UNIT_BYTES_MAX: u64 = 4 << 20;

/// An attribute, put together from its parts.
pub(super) struct Stream {
    record: RecordNo,
    /// Its bytes.
    pub size: u64,
    /// Where they are on the volume, in the order of the stream.
    pub extents: Vec<Extent>,
    content: Content,
}

enum Content {
    Resident(Vec<u8>),
    Mapped,
    Compressed(Compressed),
}

struct Compressed {
    runs: Vec<Run>,
    unit: Unit,
    /// The unit that was decompressed last, and its bytes.
    last: Mutex<Option<(u64, Arc<[u8]>)>>,
}

/// The size of a unit of compression.
#[derive(Clone, Copy)]
struct Unit {
    clusters: u64,
    bytes: u64,
}

impl Stream {
    /// Puts the parts of an attribute of a record together; `None` if there are none.
    pub fn assemble(volume: &Volume, record: RecordNo, parts: &[&Attribute]) -> Result<Option<Stream>> {
        if parts.first().is_some_and(|first| first.flags & ENCRYPTED != 0) {
            return Err(unsupported(record, "an encrypted file"));
        }
        Stream::assemble_stored(volume, record, parts)
    }

    /// The same; the bytes of an encrypted attribute are those that are stored.
    pub fn assemble_stored(
        volume: &Volume,
        record: RecordNo,
        parts: &[&Attribute],
    ) -> Result<Option<Stream>> {
        let Some(first) = parts.first() else { return Ok(None) };
        let mut mapped = Vec::with_capacity(parts.len());
        for part in parts {
            match &part.body {
                Body::Resident(bytes) if parts.len() == 1 => {
                    return Ok(Some(Stream::resident(record, bytes)))
                }
                Body::Resident(_) => {
                    return Err(damaged(record, format!("an attribute {:#x} is there twice", part.kind)))
                }
                Body::Mapped(part) => mapped.push(part),
            }
        }
        mapped.sort_by_key(|part| part.first);
        let (runs, covered) = map(volume, record, &mapped)?;
        let head = mapped[0];
        if covered < head.size {
            let why = format!("its clusters hold {covered:#x} bytes of {:#x}", head.size);
            return Err(damaged(record, why));
        }
        Stream::mapped(volume, record, first.flags, head, runs).map(Some)
    }

    /// The front of a stream whose later parts are not yet known, and the first cluster that is missing.
    pub fn front(volume: &Volume, record: RecordNo, parts: &[Mapped]) -> Result<(Stream, Vcn)> {
        let (runs, covered) = map(volume, record, &parts.iter().collect::<Vec<_>>())?;
        let next = Vcn(covered / volume.geometry.cluster_bytes);
        let Some(head) = parts.first() else { return Err(damaged(record, "it has no data")) };
        let initialized = head.initialized.min(covered);
        let head = Mapped { size: head.size.min(covered), initialized, ..head.clone() };
        Ok((Stream::mapped(volume, record, 0, &head, runs)?, next))
    }

    fn resident(record: RecordNo, bytes: &[u8]) -> Stream {
        let size = bytes.len() as u64;
        let extents =
            if size == 0 { vec![] } else { vec![Extent { offset: 0, len: size, place: Place::Encoded }] };
        Stream { record, size, extents, content: Content::Resident(bytes.to_vec()) }
    }

    fn mapped(
        volume: &Volume,
        record: RecordNo,
        flags: u16,
        head: &Mapped,
        runs: Vec<Run>,
    ) -> Result<Stream> {
        let cluster = volume.geometry.cluster_bytes;
        if head.size > i64::MAX as u64 {
            return Err(damaged(record, format!("a size of {:#x} bytes", head.size)));
        }
        let mut places = Places { size: head.size, initialized: head.initialized, extents: Vec::new() };
        let content = match flags & COMPRESSION {
            0 => {
                for run in &runs {
                    let place = run.place.map(|lcn| Place::Volume(lcn.0 * cluster));
                    places.push(run.first.0 * cluster, run.clusters * cluster, place);
                }
                Content::Mapped
            }
            LZNT1 => {
                let unit = Unit::new(head.unit_bits, cluster)
                    .ok_or_else(|| damaged(record, format!("units of 2^{} clusters", head.unit_bits)))?;
                places.push_units(&runs, unit, cluster);
                Content::Compressed(Compressed { runs, unit, last: Mutex::new(None) })
            }
            other => return Err(unsupported(record, format!("a file compressed by method {other}"))),
        };
        Ok(Stream { record, size: head.size, extents: places.extents, content })
    }

    /// How much memory this takes.
    pub fn weight(&self) -> usize {
        let content = match &self.content {
            Content::Resident(bytes) => bytes.len(),
            Content::Mapped => 0,
            Content::Compressed(c) => c.runs.len() * size_of::<Run>() + c.unit.bytes as usize,
        };
        self.extents.len() * size_of::<Extent>() + content + size_of::<Stream>()
    }

    /// Reads; less than all only at the end.
    pub fn read_at(&self, volume: &Volume, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let done = extents::read(&*volume.disk, &self.extents, self.size, offset, buf)?;
        let buf = &mut buf[..done];
        match &self.content {
            Content::Mapped => {}
            Content::Resident(bytes) => {
                let from = offset.min(self.size) as usize;
                buf.copy_from_slice(&bytes[from..from + done]);
            }
            Content::Compressed(compressed) => {
                let end = offset.saturating_add(done as u64);
                let from = self.extents.partition_point(|e| e.offset + e.len <= offset);
                for e in self.extents[from..].iter().take_while(|e| e.offset < end) {
                    if e.place == Place::Encoded {
                        let (first, last) = (e.offset.max(offset), (e.offset + e.len).min(end));
                        let into = &mut buf[(first - offset) as usize..(last - offset) as usize];
                        compressed.read_at(volume, self.record, first, into)?;
                    }
                }
            }
        }
        Ok(done)
    }

    /// Reads the whole of a stream that may have so many bytes.
    pub fn read_all(&self, volume: &Volume, bytes_max: u64) -> Result<Vec<u8>> {
        if self.size > bytes_max {
            let why = format!("an attribute of {:#x} bytes; {bytes_max:#x} are possible", self.size);
            return Err(damaged(self.record, why));
        }
        let mut all = vec![0; self.size as usize];
        self.read_at(volume, 0, &mut all)?;
        Ok(all)
    }
}

/// The runs of all parts, in order, and how many bytes they cover.
fn map(volume: &Volume, record: RecordNo, parts: &[&Mapped]) -> Result<(Vec<Run>, u64)> {
    let mut runs: Vec<Run> = Vec::new();
    let clusters = volume.clusters();
    for part in parts {
        let next = runs.last().map_or(0, Run::end);
        if part.first.0 != next {
            let why = format!(
                "its clusters from {next:#x} on are missing; the next part begins at {:#x}",
                part.first.0
            );
            return Err(damaged(record, why));
        }
        runs::decode(&part.pairs, part.first, clusters, &mut runs).map_err(|why| damaged(record, why))?;
    }
    let allocated =
        runs.iter().filter(|r| r.place.is_some()).fold(0u64, |sum, r| sum.saturating_add(r.clusters));
    if allocated > clusters {
        return Err(damaged(record, format!("{allocated:#x} clusters of a volume of {clusters:#x}")));
    }
    let covered = runs.last().map_or(0, Run::end);
    let bytes = covered.checked_mul(volume.geometry.cluster_bytes).filter(|n| i64::try_from(*n).is_ok());
    let bytes = bytes.ok_or_else(|| damaged(record, format!("a stream of {covered:#x} clusters")))?;
    Ok((runs, bytes))
}

/// Extents of a stream, as they are found.
struct Places {
    size: u64,
    initialized: u64,
    extents: Vec<Extent>,
}

impl Places {
    /// What lies behind the size is left out, and what was never written is zeros. No place is a hole.
    fn push(&mut self, offset: u64, len: u64, place: Option<Place>) {
        let Some(place) = place else { return };
        let end = (offset + len).min(self.size);
        let written = end.min(self.initialized).max(offset);
        if offset < written {
            self.merge(Extent { offset, len: written - offset, place });
        }
        if written < end {
            self.merge(Extent { offset: written, len: end - written, place: Place::Zeros });
        }
    }

    fn merge(&mut self, e: Extent) {
        if let Some(last) = self.extents.last_mut().filter(|last| last.offset + last.len == e.offset) {
            let goes_on = match (last.place, e.place) {
                (Place::Volume(a), Place::Volume(b)) => a + last.len == b,
                (a, b) => a == b,
            };
            if goes_on {
                last.len += e.len;
                return;
            }
        }
        self.extents.push(e);
    }

    /// Of a compressed stream, a unit without clusters is a hole, one with all of them is as it is, and the others
    /// are compressed.
    fn push_units(&mut self, runs: &[Run], unit: Unit, cluster: u64) {
        let mut at = 0;
        let end = runs.last().map_or(0, Run::end);
        let mut next = 0;
        while at < end {
            while runs[next].end() <= at {
                next += 1;
            }
            let run = &runs[next];
            let whole = (run.end() - at) / unit.clusters * unit.clusters;
            let within = at - run.first.0;
            if whole > 0 || run.end() == end && run.place.is_none() {
                let clusters = if whole > 0 { whole } else { end - at };
                let place = run.place.map(|lcn| Place::Volume((lcn.0 + within) * cluster));
                self.push(at * cluster, clusters * cluster, place);
                at += clusters;
                continue;
            }
            let last = (at + unit.clusters).min(end);
            let parts = || {
                let runs = runs[next..].iter().take_while(|r| r.first.0 < last);
                runs.map(|r| (r.first.0.max(at), r.end().min(last), r))
            };
            if last - at == unit.clusters && parts().all(|(_, _, r)| r.place.is_some()) {
                for (first, end, r) in parts() {
                    let place = r.place.map(|lcn| Place::Volume((lcn.0 + first - r.first.0) * cluster));
                    self.push(first * cluster, (end - first) * cluster, place);
                }
            } else {
                self.push(at * cluster, (last - at) * cluster, Some(Place::Encoded));
            }
            at = last;
        }
    }
}

impl Unit {
    fn new(bits: u8, cluster: u64) -> Option<Unit> {
        let clusters = 1u64.checked_shl(u32::from(bits)).filter(|_| bits > 0)?;
        let bytes = clusters.checked_mul(cluster).filter(|bytes| *bytes <= UNIT_BYTES_MAX)?;
        Some(Unit { clusters, bytes })
    }
}

impl Compressed {
    /// Reads what is compressed from end to end.
    fn read_at(&self, volume: &Volume, record: RecordNo, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let (unit, within) = (at / self.unit.bytes, at % self.unit.bytes);
            let (into, after) = rest.split_at_mut(rest.len().min((self.unit.bytes - within) as usize));
            if within == 0 && into.len() as u64 == self.unit.bytes {
                self.decode(volume, record, unit, into)?;
            } else {
                let bytes = self.unit(volume, record, unit)?;
                into.copy_from_slice(&bytes[within as usize..within as usize + into.len()]);
            }
            at += into.len() as u64;
            rest = after;
        }
        Ok(())
    }

    /// A unit's bytes, from the last reading or decompressed now.
    fn unit(&self, volume: &Volume, record: RecordNo, unit: u64) -> Result<Arc<[u8]>> {
        let mut last = self.last.lock();
        if let Some((_, bytes)) = last.as_ref().filter(|(held, _)| *held == unit) {
            return Ok(bytes.clone());
        }
        let mut bytes = vec![0; self.unit.bytes as usize];
        self.decode(volume, record, unit, &mut bytes)?;
        let bytes: Arc<[u8]> = bytes.into();
        *last = Some((unit, bytes.clone()));
        Ok(bytes)
    }

    fn decode(&self, volume: &Volume, record: RecordNo, unit: u64, out: &mut [u8]) -> Result<()> {
        let cluster = volume.geometry.cluster_bytes;
        let first = unit * self.unit.clusters;
        let last = first + self.unit.clusters;
        let mut packed = Vec::new();
        let from = self.runs.partition_point(|r| r.end() <= first);
        for run in self.runs[from..].iter().take_while(|r| r.first.0 < last) {
            let Some(Lcn(lcn)) = run.place else { break };
            let begin = run.first.0.max(first);
            let len = (run.end().min(last) - begin) * cluster;
            let done = packed.len();
            packed.resize(done + len as usize, 0);
            volume.read(record, (lcn + begin - run.first.0) * cluster, &mut packed[done..])?;
        }
        lznt1::decode(&packed, out)
            .map_err(|why| damaged(record, format!("unit {unit:#x} of compression: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The extents of a compressed stream in units of 4 clusters of 512 bytes, counted in clusters.
    fn units(runs: &[(u64, Option<u64>)], size: u64, initialized: u64) -> Vec<(u64, u64, &'static str)> {
        let mut next = 0;
        let place = |(clusters, lcn): &(u64, Option<u64>)| {
            next += clusters;
            Run { first: Vcn(next - clusters), clusters: *clusters, place: lcn.map(Lcn) }
        };
        let runs: Vec<Run> = runs.iter().map(place).collect();
        let mut places = Places { size: size * 512, initialized: initialized * 512, extents: Vec::new() };
        places.push_units(&runs, Unit { clusters: 4, bytes: 2048 }, 512);
        let kind = |place| match place {
            Place::Volume(_) => "volume",
            Place::Encoded => "encoded",
            Place::Zeros => "zeros",
        };
        places.extents.iter().map(|e| (e.offset / 512, e.len / 512, kind(e.place))).collect()
    }

    #[test]
    fn units_of_compression_are_told_apart() {
        assert_eq!(
            units(&[(2, Some(9)), (2, None), (4, Some(20))], 8, 8),
            [(0, 4, "encoded"), (4, 4, "volume")]
        );
        assert_eq!(
            units(&[(3, Some(9)), (1, Some(20)), (1000, None)], 1004, 1004),
            [(0, 3, "volume"), (3, 1, "volume")]
        );
        assert_eq!(
            units(&[(1, Some(9)), (7, None), (5, Some(20)), (3, None)], 15, 15),
            [(0, 4, "encoded"), (8, 4, "volume"), (12, 3, "encoded")]
        );
        assert_eq!(units(&[(4, Some(9)), (3, Some(20))], 7, 7), [(0, 4, "volume"), (4, 3, "encoded")]);
        assert_eq!(
            units(&[(8, Some(9)), (1, Some(20)), (3, None)], 12, 6),
            [(0, 6, "volume"), (6, 6, "zeros")]
        );
        assert_eq!(units(&[(1, Some(20)), (3, None)], 4, 2), [(0, 2, "encoded"), (2, 2, "zeros")]);
        assert_eq!(units(&[(9, None)], 9, 9), []);
    }
}
