//! The bytes of a pool, beside files in the repository that later programs must still read.
//!
//! `SAPWOOD_BLESS=1 cargo test -p format --test formats pool` writes the files anew: only before a format version is
//! released.

use std::path::PathBuf;

use format::pool::{
    BatchNo, CatalogEntry, CatalogState, DataSum, FileKind, FileRecord, FileTime, Fill, FilterEntry,
    FilterHeader, FilterPart, FingerprintEntry, Geometry, Home, JournalReader, JournalRecord, JournalTail,
    JournalWriter, MapEntry, NamesHeader, PageHeader, PageKind, PoolBlock, PoolId, Sharing, SummaryEntry,
    Superblock, VolumeBlock, VolumeId, BLOCK_BYTES,
};

const POOL: PoolId = PoolId([0x5a; 16]);

fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(&path, bytes).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn superblock() {
    let superblock = Superblock {
        pool: POOL,
        written: 12,
        geometry: Geometry::plan(1 << 21).unwrap(),
        tail: JournalTail { batch: BatchNo(77), block: 5 },
        is_clean: false,
        filter: Some((1, 4)),
        epoch: 6,
        cuts: 3,
    };
    let bytes = golden("pool-superblock", &superblock.encode());
    assert_eq!(Superblock::decode(&bytes.try_into().unwrap()), Ok(superblock));
    assert_eq!(golden("pool-superblock", &superblock.encode()), superblock.encode());
}

/// Earlier versions, which no release has written, are told from damage.
#[test]
fn superblocks_of_earlier_versions() {
    for version in [1, 2] {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/pool-superblock-{version}"));
        let bytes = std::fs::read(path).unwrap().try_into().unwrap();
        assert_eq!(Superblock::earlier_version(&bytes), Some(version));
        assert!(!Superblock::decode(&bytes).unwrap_err().newer);
    }
}

#[test]
fn pages() {
    let mut page = [0; BLOCK_BYTES];
    page[PageHeader::KIND_AT..PageHeader::KIND_AT + 2]
        .copy_from_slice(&PageHeader::kind_bytes(PageKind::Map, 1));
    let entry = MapEntry::data(PoolBlock(0x9_8765_4321), 0xabcde);
    let slot = Geometry::map_slot(PoolBlock(900), 511);
    page[slot.offset..slot.offset + MapEntry::BYTES].copy_from_slice(&entry.encode());
    let store = FingerprintEntry { count: 3, is_node: false, has_fingerprint: true };
    page[100..104].copy_from_slice(&store.encode());
    let summary = SummaryEntry { free: 32_000, in_use: true, has_unshared: true, changed: 9 };
    page[104..112].copy_from_slice(&summary.encode());
    let home = Home { volume: VolumeId(0x0506_0708), block: VolumeBlock(0x12_3456_789a) };
    page[112..144].copy_from_slice(&home.encode());
    PageHeader::seal(POOL, PoolBlock(900), BatchNo(31), &mut page);
    let bytes: [u8; BLOCK_BYTES] = golden("pool-page", &page).try_into().unwrap();
    assert_eq!(bytes, page);
    let header = PageHeader::open(POOL, PoolBlock(900), &bytes).unwrap();
    assert_eq!((header.kind, header.level, header.batch), (PageKind::Map, 1, BatchNo(31)));
    assert_eq!(MapEntry::decode(bytes[slot.offset..slot.offset + 7].try_into().unwrap()), entry);
    assert_eq!(FingerprintEntry::decode(bytes[100..104].try_into().unwrap()), store);
    assert_eq!(SummaryEntry::decode(bytes[104..112].try_into().unwrap()), summary);
    assert_eq!(Home::decode(bytes[112..144].try_into().unwrap()), home);
}

#[test]
fn catalog_slot() {
    let entry = CatalogEntry {
        state: CatalogState::Snapshot,
        sharing: Sharing::Background,
        level: 2,
        id: VolumeId(0x0102_0304),
        origin: Some(VolumeId(7)),
        size: 20 << 30,
        root: Some(PoolBlock(70_000)),
        created: 1_800_000_000,
        mapped: None,
        name: "monday".into(),
        fill: None,
    };
    let bytes = golden("pool-catalog-slot", &entry.encode());
    assert_eq!(bytes, entry.encode());
    assert_eq!(CatalogEntry::decode(&bytes.try_into().unwrap()), Ok(Some(entry.clone())));
    let fill = Fill { source: "vm/root@0123456789abcdef /srv/backup".into(), filled: 5 << 30 };
    let filling =
        CatalogEntry { state: CatalogState::Volume, origin: None, fill: Some(fill), ..entry.clone() };
    let bytes = golden("pool-catalog-filling", &filling.encode());
    assert_eq!(bytes, filling.encode());
    assert_eq!(CatalogEntry::decode(&bytes.try_into().unwrap()), Ok(Some(filling)));
    let counted = CatalogEntry { mapped: Some(4_194_304), ..entry };
    let bytes = golden("pool-catalog-slot-counted", &counted.encode());
    assert_eq!(bytes, counted.encode());
    assert_eq!(CatalogEntry::decode(&bytes.try_into().unwrap()), Ok(Some(counted)));
}

#[test]
fn journal_batch() {
    let records = [
        JournalRecord::Fresh { first: PoolBlock(66_000), count: 288 },
        JournalRecord::Set { page: PoolBlock(66_001), offset: 28, bytes: &[7; 36] },
        JournalRecord::Forget { page: PoolBlock(70_001) },
        JournalRecord::WriteBack { first: PoolBlock(66_001), count: 4 },
        JournalRecord::Data { block: PoolBlock(70_002), sum: DataSum::of(POOL, &[6; BLOCK_BYTES]) },
    ];
    let mut writer = JournalWriter::default();
    records.iter().for_each(|record| writer.push(*record));
    let batch = writer.finish(POOL, BatchNo(78));
    let bytes = golden("pool-journal-batch", &batch);
    assert_eq!(bytes, batch);
    let mut reader = JournalReader::open(POOL, &bytes).unwrap();
    for record in records {
        assert_eq!(reader.next_record(), Ok(Some(record)));
    }
    assert_eq!(reader.next_record(), Ok(None));
}

#[test]
fn filter_checkpoint() {
    let header = FilterHeader { pool: POOL, epoch: 4, entries: 2, parts: 1 };
    let entries = [
        FilterEntry { prefix: 0x0123_4567_89ab_cdef, block: PoolBlock(70_002) },
        FilterEntry { prefix: 0xfedc_ba98_0000_0000, block: PoolBlock(0xf_ffff_ffff) },
    ];
    let mut part = FilterPart::default();
    entries.iter().for_each(|entry| assert!(part.push(*entry)));
    let encoded = [header.encode().to_vec(), part.finish(4)].concat();
    let bytes = golden("pool-filter", &encoded);
    assert_eq!(bytes, encoded);
    assert_eq!(FilterHeader::decode(&bytes), Ok(header));
    let mut read = Vec::new();
    FilterPart::read(&bytes[BLOCK_BYTES..], 4, |entry| read.push(entry)).unwrap();
    assert_eq!(read, entries);
}

#[test]
fn file() {
    let time = |seconds| FileTime { seconds, nanoseconds: 999_999_999 };
    let link = FileRecord {
        kind: FileKind::Link,
        mode: 0o777,
        links: 1,
        user: 1000,
        group: 100,
        device: 0,
        volume: 0,
        size: 9,
        parent: 0,
        accessed: time(1),
        modified: time(-2),
        changed: time(3),
        created: time(4),
        target: b"../images".to_vec(),
    };
    let file =
        FileRecord { kind: FileKind::File, volume: 77, size: 1 << 40, target: Vec::new(), ..link.clone() };
    for (name, record) in [("pool-link", link), ("pool-file", file)] {
        let bytes = golden(name, &record.encode());
        assert_eq!(FileRecord::decode(&bytes), Ok(record.clone()));
        assert_eq!(bytes, record.encode());
        assert!(FileRecord::decode(&bytes[..20]).is_err());
    }
}

#[test]
fn names() {
    let header = NamesHeader { len: 1 << 20 };
    let bytes = golden("pool-names", &header.encode());
    assert_eq!(NamesHeader::decode(&bytes.clone().try_into().unwrap()), Ok(Some(header)));
    assert_eq!(NamesHeader::decode(&[0; NamesHeader::BYTES]), Ok(None));
    for at in 0..bytes.len() {
        let mut wrong: [u8; NamesHeader::BYTES] = bytes.clone().try_into().unwrap();
        wrong[at] ^= 1;
        assert!(NamesHeader::decode(&wrong).is_err(), "byte {at}");
    }
}
