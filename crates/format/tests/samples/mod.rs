// One of everything that is written, for golden tests and as what fuzzing starts from.
//
// A change here changes the golden files: the bytes of a format version never change.

use format::{
    BlockAt, Bloom, ChunkNo, ClaimRecord, Codec, ContainerEntry, ContainerId, ContainerPage, Context,
    DataHeader, DataName, DeadLog, DiskId, Group, Hook, HooksFooter, HooksSum, IndexRef, Indexed, Manifest,
    NameRecord, Ordinal, OwnerNo, PageAt, PageRef, PopularSet, ReaderRecord, RecipeName, RecipePage,
    RecipePageRef, RecipeRoot, Reference, ReferenceBlock, ReferenceEntry, ReferenceFooter, Release, Released,
    RetiringRecord, Reverse, RunSet, SegmentNo, SegmentRecipe, Sequence, SessionRecord, SnapId,
    SnapshotEntry, SnapshotPage, SnapshotPageRef, SnapshotState, Table, TableIndex, Token, VaultFile,
    VaultId, Verification, Verifications, Writer, WriterKind, WriterNo,
};

pub fn container(owner: OwnerNo, number: u32) -> ContainerId {
    ContainerId::new(owner, WriterNo(3), number)
}

pub fn data_name(number: u32) -> DataName {
    DataName { container: container(OwnerNo::OWN, number), generation: WriterNo(5) }
}

fn recipe_name(snap: u64) -> RecipeName {
    RecipeName { snap: SnapId(snap), generation: WriterNo(4) }
}

fn snapshot(id: u64, parent: Option<SnapId>) -> SnapshotEntry {
    SnapshotEntry {
        id: SnapId(id),
        time: 1_795_298_401,
        size: 1 << 30,
        state: if id == 1 { SnapshotState::Deleted } else { SnapshotState::Live },
        reverse: Reverse::Pending,
        made_by: WriterNo(id as u32),
        held: id == 2,
        isolated: id == 3,
        indexed: [Indexed::No, Indexed::LeftOut, Indexed::Yes][id as usize % 3],
        generation: WriterNo(4),
        depends: vec![recipe_name(id), recipe_name(1)],
        parent,
        data_bytes: 500 << 20,
        changed_bytes: 30 << 20,
        new_bytes: 9 << 20,
        stored_bytes: 4 << 20,
        policy: "balanced".into(),
        tags: vec![("what".into(), "before the upgrade".into())],
    }
}

pub fn snapshot_page() -> SnapshotPage {
    SnapshotPage { entries: vec![snapshot(4, None), snapshot(5, Some(SnapId(4)))] }
}

pub fn manifests() -> Vec<Manifest> {
    let empty = Manifest::new(DiskId([2; 16]), "web01/vda");
    let writer =
        |no, kind, parent| Writer { no: WriterNo(no), token: Token(7), kind, parent, since: Sequence(12) };
    let full = Manifest {
        sequence: Sequence(19),
        other_names: vec!["web1/vda".into()],
        next_writer: WriterNo(9),
        writers: vec![
            writer(7, WriterKind::Backup, Some(SnapId(2))),
            writer(8, WriterKind::Maintenance, None),
        ],
        recent: vec![snapshot(1, None), snapshot(2, Some(SnapId(1)))],
        older: vec![
            SnapshotPageRef {
                writer: WriterNo(2),
                number: 7,
                entries: 900,
                bytes: 250_000,
                latest: 1_795_000_000,
                depends_to: WriterNo(700),
                has_pending: true,
                has_unindexed: true,
            },
            SnapshotPageRef::of(&snapshot_page(), WriterNo(3), 300),
        ],
        changed: vec![snapshot(4, None)],
        gone: vec![SnapId(5)],
        pages: vec![PageRef { first: container(OwnerNo::OWN, 0), writer: WriterNo(3), number: 0 }],
        released: vec![
            Released {
                sequence: Sequence(11),
                what: Release::Object("disks/x/recipes/00000002.1.root".into()),
            },
            Released {
                sequence: Sequence(12),
                what: Release::Punch { container: container(OwnerNo::OWN, 0), dead: WriterNo(8) },
            },
            Released { sequence: Sequence(13), what: Release::Foreign(container(OwnerNo(1), 2)) },
        ],
        owners: vec![DiskId([4; 16]), DiskId::POPULAR],
        damaged: vec![container(OwnerNo::OWN, 4)],
        unswept: vec![container(OwnerNo(2), 5)],
        unswept_chunks: 70_000,
        references: vec![IndexRef { writer: WriterNo(6), number: 1, blocks_len: 70_000, footer_len: 321 }],
        ..empty.clone()
    };
    let by_filter = Manifest { by_filter: 300, ..empty.clone() };
    vec![empty, full, by_filter]
}

pub fn container_page() -> ContainerPage {
    let entry = |number| ContainerEntry {
        id: container(OwnerNo::OWN, number),
        table: WriterNo(5),
        data: data_name(0),
        dead: (number == 1).then_some(WriterNo(1)),
        chunks: 8192,
        dead_chunks: 17 * number,
        stored_bytes: 20 << 20,
        level: number as u8,
    };
    ContainerPage { entries: (0..3).map(entry).collect() }
}

/// A filter with three chunks.
pub fn reference_block() -> ReferenceBlock {
    let entry = |owner, number, recipe| ReferenceEntry {
        container: container(owner, number),
        recipe,
        chunks: RunSet::from_unsorted(vec![(3, 5), (100, 1)]),
    };
    ReferenceBlock {
        entries: vec![entry(OwnerNo::OWN, 0, 0), entry(OwnerNo::OWN, 0, 300), entry(OwnerNo(2), 5, 1)],
    }
}

pub fn reference_footer() -> ReferenceFooter {
    let block = |number, offset, len| BlockAt { first: container(OwnerNo::OWN, number), offset, len };
    ReferenceFooter {
        recipes: vec![recipe_name(1), recipe_name(2)],
        blocks: vec![block(0, 0, 100), block(7, 100, 65_000)],
    }
}

pub fn bloom() -> Bloom {
    let mut filter = Bloom::with_room(3);
    (1..4).for_each(|n| filter.insert(container(OwnerNo::OWN, n), ChunkNo(n * 100)));
    filter
}

/// A set of three chunks in two containers.
pub fn popular_set() -> PopularSet {
    let chunk = |prefix, number, chunk| (prefix, container(OwnerNo(1), number), ChunkNo(chunk));
    PopularSet::new(vec![chunk(u64::MAX, 1, 900), chunk(0x0102_0304_0506_0708, 4, 70_000), chunk(5, 1, 3)])
}

pub fn recipe_root() -> RecipeRoot {
    let page = |n: u64| {
        let at = RecipePageRef { recipe: recipe_name(n), offset: n << 16, page_len: 900, summary_len: 70 };
        match n {
            1 => PageAt::Null,
            2 => PageAt::Newer,
            _ => PageAt::Page(at),
        }
    };
    RecipeRoot {
        size: (12 << 30) + 512,
        segment_bytes: 4 << 20,
        chunking: "4k".into(),
        pages: (0..4).map(page).collect(),
    }
}

pub fn recipe_page() -> RecipePage {
    let direct = |owner, number, first, count| Reference::Direct {
        container: container(owner, number),
        first: ChunkNo(first),
        count,
    };
    let segment = |references| SegmentRecipe { fingerprint: [9; 32], signature: 77, references };
    let first = vec![
        direct(OwnerNo::OWN, 0, 0, 100),
        Reference::Null { bytes: 1 << 20 },
        direct(OwnerNo::OWN, 0, 100, 20),
        direct(OwnerNo(1), 1, 5, 4),
    ];
    let second = vec![
        Reference::Indirect { segment: SegmentNo(3), ordinal: Ordinal(7), count: 900 },
        direct(OwnerNo(2), 2, 4000, 1),
        direct(OwnerNo(2), 2, 3, 1),
    ];
    RecipePage { segments: vec![(0, segment(first)), (7, segment(second)), (1023, segment(Vec::new()))] }
}

/// A table of equal chunks without holes, and one of chunks of any length with holes in the numbering.
pub fn tables() -> Vec<Table> {
    let table = |numbers: Vec<(u32, u32)>, lengths: Vec<u32>| {
        let half = lengths.len() as u32 / 2;
        let group = |first: u32, count: u32, offset, codec| Group {
            first: TableIndex(first),
            count,
            offset,
            stored_len: 300,
            raw_len: lengths[first as usize..(first + count) as usize].iter().sum(),
            codec,
            cipher: 0,
            key: 0,
            checksum: 0x1234_5678_9abc_def0,
        };
        Table {
            container: container(OwnerNo::OWN, 0),
            data: data_name(0),
            numbers: RunSet::from_unsorted(numbers),
            groups: vec![
                group(0, half, 64, Codec::Zstd),
                group(half, lengths.len() as u32 - half, 364, Codec::Lz4),
            ],
            fingerprints: vec![[5; 32]; lengths.len()],
            lengths,
        }
    };
    vec![
        table(vec![(0, 8)], vec![4096; 8]),
        table(vec![(2, 2), (9, 1), (20, 2)], vec![1000, 4096, 64, 70_000, 512]),
    ]
}

pub fn dead_log() -> DeadLog {
    let dead = RunSet::from_unsorted(vec![(0, 1), (7, 200), (1 << 20, 3)]);
    DeadLog { container: container(OwnerNo::OWN, 1), dead }
}

pub fn data_header() -> DataHeader {
    DataHeader { vault: VaultId([7; 16]), disk: DiskId([2; 16]), name: data_name(6) }
}

pub fn vault_file() -> VaultFile {
    VaultFile { id: VaultId([0xa1; 16]), policy: "balanced".into(), isolated: true, created: 1_795_298_401 }
}

pub fn session() -> SessionRecord {
    SessionRecord { work: "backup".into(), host: "hyper-1".into(), process: 70_123, since: 1_795_298_401 }
}

pub fn verifications() -> Verifications {
    let whole = Verification {
        disk: DiskId([0x31; 16]),
        began: 1_795_298_401,
        read_chunks: true,
        unlisted: false,
        next_writer: WriterNo(70_000),
        damaged_objects: 0,
        damaged_snapshots: Vec::new(),
    };
    let damaged = Verification {
        began: -1,
        read_chunks: false,
        unlisted: false,
        damaged_objects: 300,
        damaged_snapshots: vec![SnapId(1), SnapId(u64::MAX)],
        ..whole.clone()
    };
    Verifications { all: vec![whole, damaged] }
}

pub fn name_record() -> NameRecord {
    NameRecord { disk: DiskId([0x31; 16]), name: "web-1/vd\u{e4}".into() }
}

pub fn reader_record() -> ReaderRecord {
    ReaderRecord { since: Sequence(0x0102_0304_0506) }
}

/// Three hooks of two owners as an object has them, the footer behind them.
pub fn hooks(context: Context<'_>) -> Vec<u8> {
    let hook = |n: u32| Hook {
        prefix: u64::from(n) << 60,
        owner: n % 2,
        container: ContainerId::new(OwnerNo::OWN, WriterNo(n + 3), n),
    };
    let mut footer = HooksFooter::for_hooks(3, vec![DiskId([2; 16]), DiskId::POPULAR]);
    let (mut bytes, mut sum) = (Vec::new(), HooksSum::default());
    for n in [1, 2, 9] {
        bytes.extend(hook(n).encode());
        footer.count(hook(n).prefix);
    }
    sum.feed(&bytes);
    bytes.extend(footer.encode(context, Some(&sum)));
    bytes
}

pub fn claim() -> ClaimRecord {
    ClaimRecord { disk: DiskId([2; 16]), writer: WriterNo(70_000) }
}

pub fn retiring() -> RetiringRecord {
    RetiringRecord { session: Token(0x0123_4567_89ab_cdef), writers: vec![WriterNo(3), WriterNo(70_000)] }
}
