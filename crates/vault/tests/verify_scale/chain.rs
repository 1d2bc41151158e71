//! A disk with any number of snapshots, as backups and reverse passes of the default policy leave it: each snapshot
//! changed one chunk of some, the newest one has direct references only, and each older one leads through the next newer one.

use crate::memory_store::MemoryStore;
use chunk::{segment_fingerprint, Fingerprint, Piece};
use format::{
    encode_frame, group_checksum, names, ChunkNo, Codec, ContainerEntry, ContainerId, ContainerPage, Context,
    DataFooter, DataHeader, DataName, DiskId, Group, Indexed, Kind, Manifest, OwnerNo, PageAt, PageRef,
    RecipeName, RecipePage, RecipePageRef, RecipeRoot, Reference, Reverse, RunSet, SegmentRecipe, SnapId,
    SnapshotEntry, SnapshotState, Summary, Table, TableIndex, VaultId, WriterNo, CONTAINERS_PER_PAGE,
};
use format::{Ordinal, SegmentNo};
use store::ObjectStore;

pub const DISK: &str = "vm/disk";
const ID: DiskId = DiskId([7; 16]);
const CHUNK_BYTES: u32 = 4096;
pub const CHUNKS: usize = 16;
const SEGMENT_BYTES: u32 = CHUNK_BYTES * CHUNKS as u32;

/// Writes the disk into a vault: the first `changing` chunks change, one after the other. Returns the bytes of its newest
/// snapshot.
pub fn create(store: &MemoryStore, vault: VaultId, snapshots: u32, changing: usize) -> Vec<u8> {
    let folder = names::folder(ID);
    let writer = Builder { store, vault, folder: &folder };
    let mut manifest = Manifest::new(ID, DISK);
    manifest.next_writer = WriterNo(snapshots + 1);
    let mut entries = Vec::new();
    // Where each chunk of the disk stands, and its bytes.
    let mut disk: Vec<(ContainerId, u32, Vec<u8>)> = Vec::new();
    for n in 0..snapshots {
        let id = ContainerId::new(OwnerNo::OWN, WriterNo(n + 1), 0);
        let before = disk.clone();
        let chunk = |k: usize| content(n, k);
        if n == 0 {
            disk = (0..CHUNKS).map(|k| (id, k as u32, chunk(k))).collect();
            entries.push(writer.container(id, &disk.iter().map(|c| c.2.clone()).collect::<Vec<_>>()));
        } else {
            let k = n as usize % changing;
            disk[k] = (id, 0, chunk(k));
            entries.push(writer.container(id, &[chunk(k)]));
            let old = SnapId(u64::from(n));
            writer.recipe(old, WriterNo(n), &before, Some(&disk));
        }
        manifest.recent.push(entry(SnapId(u64::from(n) + 1), WriterNo(n + 1), n + 1 < snapshots));
    }
    writer.recipe(SnapId(u64::from(snapshots)), WriterNo(snapshots), &disk, None);
    for (number, of_page) in entries.chunks(CONTAINERS_PER_PAGE).enumerate() {
        let page = PageRef { first: of_page[0].id, writer: WriterNo(snapshots), number: number as u32 };
        let name = names::page(&folder, page.writer, page.number);
        writer.put(&name, &ContainerPage { entries: of_page.to_vec() }.encode(writer.at(&name)));
        manifest.pages.push(page);
    }
    let name = names::manifest(&folder);
    writer.put(&name, &manifest.encode(writer.at(&name)));
    let name = names::name(DISK);
    let body = [&ID.0[..], DISK.as_bytes()].concat();
    writer.put(&name, &encode_frame(Kind::Name, writer.at(&name), &body));
    disk.into_iter().flat_map(|c| c.2).collect()
}

/// The bytes of the oldest snapshot.
pub fn oldest() -> Vec<u8> {
    (0..CHUNKS).flat_map(|k| content(0, k)).collect()
}

/// The bytes that snapshot `n` wrote as chunk `k`.
fn content(n: u32, k: usize) -> Vec<u8> {
    [n.to_le_bytes(), (k as u32).to_le_bytes()].concat().repeat(CHUNK_BYTES as usize / 8)
}

fn entry(id: SnapId, writer: WriterNo, has_newer: bool) -> SnapshotEntry {
    SnapshotEntry {
        id,
        time: i64::from(writer.0),
        size: u64::from(SEGMENT_BYTES),
        state: SnapshotState::Live,
        held: false,
        isolated: false,
        indexed: Indexed::No,
        reverse: if has_newer { Reverse::Done } else { Reverse::No },
        made_by: writer,
        generation: writer,
        depends: vec![RecipeName { snap: id, generation: writer }],
        parent: None,
        data_bytes: u64::from(SEGMENT_BYTES),
        changed_bytes: 0,
        new_bytes: 0,
        stored_bytes: 0,
        policy: "balanced".into(),
        tags: Vec::new(),
    }
}

struct Builder<'a> {
    store: &'a MemoryStore,
    vault: VaultId,
    folder: &'a str,
}

impl Builder<'_> {
    fn at<'a>(&self, place: &'a str) -> Context<'a> {
        Context { vault: self.vault, place }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        self.store.put(name, &[bytes]).unwrap();
    }

    fn container(&self, id: ContainerId, chunks: &[Vec<u8>]) -> ContainerEntry {
        let data = DataName { container: id, generation: id.writer() };
        let stored = chunks.concat();
        let group = Group {
            first: TableIndex(0),
            count: chunks.len() as u32,
            offset: 4096,
            stored_len: stored.len() as u32,
            raw_len: stored.len() as u32,
            codec: Codec::Raw,
            cipher: 0,
            key: 0,
            checksum: group_checksum(id, ChunkNo(0), &stored),
        };
        let table = Table {
            container: id,
            data,
            numbers: RunSet::from_unsorted(vec![(0, chunks.len() as u32)]),
            groups: vec![group],
            lengths: vec![CHUNK_BYTES; chunks.len()],
            fingerprints: chunks.iter().map(|c| Fingerprint::of(c).0).collect(),
        };
        let name = names::data(self.folder, data);
        let mut object = DataHeader { vault: self.vault, disk: ID, name: data }.encode();
        object.resize(4096, 0);
        object.extend_from_slice(&stored);
        let at = object.len() as u64;
        let directory = table.encode_directory(self.at(&format!("{name}#{at}")));
        object.extend_from_slice(&directory);
        let footer = DataFooter { directory_offset: at, directory_len: directory.len() as u64 };
        object.extend_from_slice(&footer.encode());
        self.put(&name, &object);
        let name = names::table(self.folder, id, id.writer());
        self.put(&name, &table.encode(self.at(&name)));
        ContainerEntry {
            id,
            table: id.writer(),
            data,
            dead: None,
            chunks: chunks.len() as u32,
            dead_chunks: 0,
            stored_bytes: stored.len() as u64,
            level: 0,
        }
    }

    /// A recipe: what the next newer snapshot has at the same place leads there.
    fn recipe(
        &self,
        snap: SnapId,
        writer: WriterNo,
        disk: &[(ContainerId, u32, Vec<u8>)],
        newer: Option<&[(ContainerId, u32, Vec<u8>)]>,
    ) {
        let mut references: Vec<Reference> = Vec::new();
        for (k, (container, first, _)) in disk.iter().enumerate() {
            let shared = newer.is_some_and(|n| (n[k].0, n[k].1) == (*container, *first));
            match (references.last_mut(), shared) {
                (Some(Reference::Indirect { count, .. }), true) => *count += 1,
                (_, true) => references.push(Reference::Indirect {
                    segment: SegmentNo(0),
                    ordinal: Ordinal(k as u32),
                    count: 1,
                }),
                (_, false) => {
                    let first = ChunkNo(*first);
                    references.push(Reference::Direct { container: *container, first, count: 1 });
                }
            }
        }
        let pieces = [Piece::Data { bytes: CHUNK_BYTES }; CHUNKS];
        let fingerprints: Vec<Fingerprint> = disk.iter().map(|c| Fingerprint::of(&c.2)).collect();
        let fingerprint = segment_fingerprint(&pieces, &fingerprints).0;
        let page =
            RecipePage { segments: vec![(0, SegmentRecipe { fingerprint, signature: 0, references })] };
        let recipe = RecipeName { snap, generation: writer };
        let name = names::recipe_pages(self.folder, recipe);
        let frame = page.encode(self.at(&format!("{name}#0")));
        let summary = Summary::of(&page).encode(self.at(&format!("{name}#{}", frame.len())));
        self.put(&name, &[&frame[..], &summary].concat());
        let (page_len, summary_len) = (frame.len() as u32, summary.len() as u32);
        let root = RecipeRoot {
            size: u64::from(SEGMENT_BYTES),
            segment_bytes: SEGMENT_BYTES,
            chunking: "4k".into(),
            pages: vec![PageAt::Page(RecipePageRef { recipe, offset: 0, page_len, summary_len })],
        };
        let name = names::recipe_root(self.folder, recipe);
        self.put(&name, &root.encode(self.at(&name)));
    }
}
