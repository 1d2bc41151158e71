//! The master file table, and files: a record, and those it goes on in.

use super::error::{damaged, NAME};
use super::record::{self, kind, Attribute, Body, Mapped, Record, RecordNo, Reference};
use super::stream::Stream;
use super::volume::Volume;
use crate::cache::Cache;
use crate::error::{FsError, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

const MFT: RecordNo = RecordNo(0);
/// Windows keeps attribute lists below 256 KiB.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// Records are read so much at a time: neighbours are mostly wanted next.
const WINDOW_BYTES: u64 = 64 << 10;
const WINDOWS_KEPT_BYTES: usize = 4 << 20;

/// The master file table.
pub(super) struct Mft {
    /// The volume that it describes.
    pub volume: Volume,
    records: Stream,
    windows: Cache<u64, Arc<[u8]>>,
    /// Its first record was read from the copy.
    pub from_mirror: bool,
}

/// A file or directory with all its attributes.
pub(super) struct File {
    /// Its first record.
    pub number: RecordNo,
    /// The number with the sequence of that record.
    pub reference: Reference,
    /// Whether its record says that it is a directory.
    pub is_directory: bool,
    attributes: Vec<Attribute>,
}

impl Mft {
    /// Finds the table by its first record, which describes it, or by the copy of that.
    pub fn open(volume: Volume) -> Result<Mft> {
        let read = |offset| {
            let mut bytes = vec![0; volume.geometry.record_bytes as usize];
            volume.read(NAME, offset, &mut bytes)?;
            let record = Record::parse(bytes, MFT)?;
            locate(&volume, &record)
        };
        let (records, from_mirror) = match read(volume.geometry.mft) {
            Ok(records) => (records, false),
            Err(FsError::Read(why)) => return Err(FsError::Read(why)),
            Err(first) => (read(volume.geometry.mirror).map_err(|_| first)?, true),
        };
        Ok(Mft { volume, records, windows: Cache::new(WINDOWS_KEPT_BYTES), from_mirror })
    }

    /// A file by its number; its sequence is checked where the reference has one.
    pub fn file(&self, reference: Reference) -> Result<File> {
        let number = reference.record();
        let base = self.record(number)?;
        if base.base.record() != RecordNo(0) {
            let why = format!("it belongs to record {}", base.base.record());
            return Err(damaged(number, why));
        }
        if ![0, base.sequence].contains(&reference.sequence()) {
            let why =
                format!("it is in use for the time {}, and not {}", base.sequence, reference.sequence());
            return Err(damaged(number, why));
        }
        let reference = Reference::new(number, base.sequence);
        let is_directory = base.is_directory;
        let mut file = File { number, reference, is_directory, attributes: base.attributes };
        self.gather(&mut file)?;
        Ok(file)
    }

    /// Adds the attributes of the records that a file goes on in.
    fn gather(&self, file: &mut File) -> Result<()> {
        let Some(list) = file.stream(&self.volume, kind::ATTRIBUTE_LIST, &[])? else { return Ok(()) };
        let list = list.read_all(&self.volume, LIST_BYTES_MAX)?;
        let list = record::attribute_list(&list).map_err(|why| damaged(file.number, why))?;
        let numbers: BTreeSet<RecordNo> = list.iter().map(|l| l.place.record()).collect();
        for number in numbers.into_iter().filter(|n| *n != file.number) {
            let more = self.record(number)?;
            if more.base.record() != file.number {
                let why =
                    format!("it goes on in record {number}, which belongs to record {}", more.base.record());
                return Err(damaged(file.number, why));
            }
            file.attributes.extend(more.attributes);
        }
        Ok(())
    }

    fn record(&self, number: RecordNo) -> Result<Record> {
        Record::parse(self.record_bytes(number)?, number)
    }

    fn record_bytes(&self, number: RecordNo) -> Result<Vec<u8>> {
        let bytes = self.volume.geometry.record_bytes;
        let at = number.0.checked_mul(bytes).filter(|at| at.saturating_add(bytes) <= self.records.size);
        let at = at
            .ok_or_else(|| damaged(number, format!("the table has {} records", self.records.size / bytes)))?;
        let window = at / WINDOW_BYTES;
        let held = match self.windows.get(window) {
            Some(held) => held,
            None => {
                let mut read = vec![0; WINDOW_BYTES as usize];
                let len = self.records.read_at(&self.volume, window * WINDOW_BYTES, &mut read)?;
                let read: Arc<[u8]> = read[..len].into();
                self.windows.put(window, read.clone(), WINDOW_BYTES as usize);
                read
            }
        };
        let within = (at % WINDOW_BYTES) as usize;
        Ok(held[within..within + bytes as usize].to_vec())
    }
}

/// Where the table lies. Its later parts are described in records of its own, each of which lies in an earlier part.
fn locate(volume: &Volume, base: &Record) -> Result<Stream> {
    let mut parts = Vec::new();
    data_parts(base, &mut parts);
    let (mut records, mut next) = Stream::front(volume, MFT, &parts)?;
    let lists: Vec<&Attribute> = base.attributes.iter().filter(|a| a.kind == kind::ATTRIBUTE_LIST).collect();
    let Some(list) = Stream::assemble(volume, MFT, &lists)? else { return Ok(records) };
    let list = list.read_all(volume, LIST_BYTES_MAX)?;
    let mut list = record::attribute_list(&list).map_err(|why| damaged(MFT, why))?;
    list.retain(|l| l.kind == kind::DATA && !l.is_named && l.place.record() != MFT);
    list.sort_by_key(|l| l.first);
    for listed in list {
        let number = listed.place.record();
        if listed.first != next {
            return Err(damaged(MFT, format!("its part from cluster {:#x} on is missing", next.0)));
        }
        let mut bytes = vec![0; volume.geometry.record_bytes as usize];
        let at = number.0.checked_mul(volume.geometry.record_bytes).filter(|at| *at < records.size);
        let at = at.ok_or_else(|| damaged(MFT, format!("it goes on in record {number}, not yet known")))?;
        records.read_at(volume, at, &mut bytes)?;
        data_parts(&Record::parse(bytes, number)?, &mut parts);
        (records, next) = Stream::front(volume, MFT, &parts)?;
    }
    Ok(records)
}

fn data_parts(record: &Record, parts: &mut Vec<Mapped>) {
    parts.extend(record.attributes.iter().filter(|a| a.kind == kind::DATA && a.name.is_empty()).filter_map(
        |a| match &a.body {
            Body::Mapped(part) => Some(part.clone()),
            Body::Resident(_) => None,
        },
    ));
}

impl File {
    /// The attributes of a kind.
    pub fn all(&self, kind: u32) -> impl Iterator<Item = &Attribute> {
        self.attributes.iter().filter(move |a| a.kind == kind)
    }

    /// The value of an attribute that stands in the record itself.
    pub fn resident(&self, kind: u32) -> Option<&[u8]> {
        self.all(kind).find_map(|a| match &a.body {
            Body::Resident(bytes) => Some(bytes.as_slice()),
            Body::Mapped(_) => None,
        })
    }

    /// An attribute put together; `None` if there is no such one.
    pub fn stream(&self, volume: &Volume, kind: u32, name: &[u16]) -> Result<Option<Stream>> {
        let parts: Vec<&Attribute> = self.all(kind).filter(|a| a.name == name).collect();
        Stream::assemble(volume, self.number, &parts)
    }
}
