//! Packs new chunks into groups, and groups into containers, in the order in which they arrive.

use crate::base::error::Result;
use crate::base::policy::Policy;
use crate::container::tables::ChunkPlace;
use crate::container::writer::GroupJob;
use chunk::Fingerprint;
use format::{ChunkNo, ContainerId, OwnerNo, WriterNo};

/// Numbers new chunks and hands out groups that became full.
pub(crate) struct NewChunks {
    /// Who writes new containers.
    writer: WriterNo,
    /// Bytes of chunks in a container, and in a group, at most.
    container_bytes: u64,
    group_bytes: usize,
    containers: u32,
    open: Option<OpenContainer>,
    group: GroupJob,
    groups: u64,
}

struct OpenContainer {
    id: ContainerId,
    next: u32,
    raw_bytes: u64,
}

impl NewChunks {
    /// No chunks yet, of a writer.
    pub fn new(policy: &Policy, writer: WriterNo) -> Self {
        NewChunks {
            writer,
            container_bytes: policy.container_bytes.into(),
            group_bytes: policy.group_bytes as usize,
            containers: 0,
            open: None,
            group: empty_group(),
            groups: 0,
        }
    }

    /// Ends the open container where a segment of so many bytes would be torn by its end.
    pub fn make_room(&mut self, bytes: u64, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        if self.open.as_ref().is_some_and(|o| o.raw_bytes + bytes > self.container_bytes) {
            self.close(send)?;
        }
        Ok(())
    }

    /// Puts a chunk into the open group. Groups and containers that are full go to `send` first. Returns where it is.
    pub fn append(
        &mut self,
        f: &Fingerprint,
        data: &[u8],
        send: &mut impl FnMut(GroupJob) -> Result<()>,
    ) -> Result<ChunkPlace> {
        let full = |o: &OpenContainer| o.raw_bytes + data.len() as u64 > self.container_bytes;
        if self.open.as_ref().is_some_and(full) {
            self.close(send)?;
        }
        if self.group.raw.len() + data.len() > self.group_bytes && !self.group.raw.is_empty() {
            self.send_group(false, send)?;
        }
        if self.open.is_none() {
            let id = ContainerId::new(OwnerNo::OWN, self.writer, self.containers);
            self.containers += 1;
            self.open = Some(OpenContainer { id, next: 0, raw_bytes: 0 });
        }
        let Some(open) = &mut self.open else { unreachable!("opened above") };
        let chunk = ChunkNo(open.next);
        if self.group.raw.is_empty() {
            self.group.container = open.id;
            self.group.first = chunk;
        }
        open.next += 1;
        open.raw_bytes += data.len() as u64;
        self.group.lengths.push(data.len() as u32);
        self.group.fingerprints.push(f.0);
        self.group.raw.extend_from_slice(data);
        Ok((open.id, chunk))
    }

    fn send_group(&mut self, last: bool, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        let mut job = std::mem::replace(&mut self.group, empty_group());
        self.group.raw.reserve(self.group_bytes);
        if let Some(open) = &self.open {
            job.container = open.id;
        }
        job.seq = self.groups;
        job.last = last;
        self.groups += 1;
        send(job)
    }

    /// Ends the open container.
    pub fn close(&mut self, send: &mut impl FnMut(GroupJob) -> Result<()>) -> Result<()> {
        if self.open.is_some() {
            self.send_group(true, send)?;
            self.open = None;
        }
        Ok(())
    }
}

fn empty_group() -> GroupJob {
    GroupJob {
        seq: 0,
        container: ContainerId::new(OwnerNo::OWN, WriterNo::BEFORE_ALL, 0),
        first: ChunkNo(0),
        lengths: Vec::new(),
        fingerprints: Vec::new(),
        raw: Vec::new(),
        last: false,
    }
}
