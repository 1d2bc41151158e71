//! Writing containers: the last stages of a backup.

use crate::base::error::Result;
use crate::manifest::folder::Folder;
use crate::manifest::session::Session;
use format::{
    group_checksum, names, ChunkNo, Codec, ContainerEntry, ContainerId, DataFooter, DataHeader, DataName,
    Group, RunSet, Table, TableIndex, DATA_HEADER_BYTES,
};
use store::ObjectWriter;

/// Groups stored raw begin at multiples of this.
const BLOCK_BYTES: u64 = 4096;

/// Chunks to be written as one unit.
pub(crate) struct GroupJob {
    /// Counts the groups of a backup.
    pub seq: u64,
    pub container: ContainerId,
    /// Its first chunk.
    pub first: ChunkNo,
    pub lengths: Vec<u32>,
    pub fingerprints: Vec<[u8; 32]>,
    pub raw: Vec<u8>,
    /// Whether the container ends with it. Only such a group may be empty.
    pub last: bool,
}

/// A group ready to be stored.
pub(crate) struct PackedGroup {
    pub job: GroupJob,
    pub codec: Codec,
    pub stored: Vec<u8>,
}

impl PackedGroup {
    /// The numbers of its chunks, as runs.
    pub fn numbers(&self) -> [(u32, u32); 1] {
        [(self.job.first.0, self.job.lengths.len() as u32)]
    }
}

/// A container being written.
pub(crate) struct ContainerWriter {
    folder: Folder,
    object: Box<dyn ObjectWriter>,
    table: Table,
    offset: u64,
}

impl ContainerWriter {
    /// Starts the container's first data object.
    pub fn create(folder: &Folder, session: &Session, container: ContainerId) -> Result<Self> {
        Self::create_as(folder, session, DataName { container, generation: session.writer })
    }

    /// Starts a data object of any generation.
    pub fn create_as(folder: &Folder, session: &Session, data: DataName) -> Result<Self> {
        let name = names::data(&folder.path, data);
        session.wrote(name.clone());
        let mut object = folder.store.writer(&name)?;
        object.append(&DataHeader { vault: folder.vault, disk: folder.disk, name: data }.encode())?;
        let table = Table {
            container: data.container,
            data,
            numbers: RunSet::default(),
            groups: Vec::new(),
            lengths: Vec::new(),
            fingerprints: Vec::new(),
        };
        let (folder, offset) = (folder.clone(), DATA_HEADER_BYTES as u64);
        Ok(ContainerWriter { folder, object, table, offset })
    }

    /// Appends a group of chunks with these numbers, in order. One without chunks is left out.
    pub fn append(
        &mut self,
        numbers: &[(u32, u32)],
        lengths: &[u32],
        fingerprints: &[[u8; 32]],
        codec: Codec,
        stored: &[u8],
    ) -> Result<()> {
        let (Some(&(first, _)), false) = (numbers.first(), lengths.is_empty()) else { return Ok(()) };
        if codec == Codec::Raw {
            self.align()?;
        }
        self.table.groups.push(Group {
            first: TableIndex(self.table.lengths.len() as u32),
            count: lengths.len() as u32,
            offset: self.offset,
            stored_len: stored.len() as u32,
            raw_len: lengths.iter().sum(),
            codec,
            cipher: 0,
            key: 0,
            checksum: group_checksum(self.table.container, ChunkNo(first), stored),
        });
        self.table.lengths.extend_from_slice(lengths);
        self.table.fingerprints.extend_from_slice(fingerprints);
        self.table.numbers = self.table.numbers.union(&RunSet::from_unsorted(numbers.to_vec()));
        self.object.append(stored)?;
        self.offset += stored.len() as u64;
        Ok(())
    }

    /// Goes on at the next block, so that blocks of a raw group are blocks of the file and can be given back.
    fn align(&mut self) -> Result<()> {
        let padding = self.offset.next_multiple_of(BLOCK_BYTES) - self.offset;
        self.object.append(&[0; BLOCK_BYTES as usize][..padding as usize])?;
        self.offset += padding;
        Ok(())
    }

    /// Makes the data and its table durable. Returns the entry and the bytes stored.
    pub fn finish(self, session: &Session) -> Result<(ContainerEntry, u64)> {
        self.finish_with(session, |_| ())
    }

    /// The same; `keep` gets the table.
    pub fn finish_with(
        mut self,
        session: &Session,
        keep: impl FnOnce(Table),
    ) -> Result<(ContainerEntry, u64)> {
        let data_name = names::data(&self.folder.path, self.table.data);
        let place = format!("{data_name}#{}", self.offset);
        let directory = self.table.encode_directory(self.folder.context(&place));
        let footer =
            DataFooter { directory_offset: self.offset, directory_len: directory.len() as u64 }.encode();
        self.object.append(&directory)?;
        self.object.append(&footer)?;
        self.object.finish()?;
        let id = self.table.container;
        let table_name = names::table(&self.folder.path, id, session.writer);
        let table = self.table.encode(self.folder.context(&table_name));
        session.wrote(table_name.clone());
        self.folder.store.put(&table_name, &[&table])?;
        let stored = self.offset + (directory.len() + footer.len() + table.len()) as u64;
        let entry = ContainerEntry {
            id,
            table: session.writer,
            data: self.table.data,
            dead: None,
            chunks: self.table.lengths.len() as u32,
            dead_chunks: 0,
            stored_bytes: self.offset - DATA_HEADER_BYTES as u64,
            level: 0,
        };
        keep(self.table);
        Ok((entry, stored))
    }
}
