//! What stands in a pool: superblocks, slots, journals, filters. The first byte chooses, checksums are made right.
#![no_main]

use format::pool::{
    BatchHeader, BatchNo, CatalogEntry, FileRecord, FilterHeader, FilterPart, FingerprintEntry, Home,
    JournalReader, JournalWriter, MapEntry, MapRoot, NamesHeader, PageHeader, PoolBlock, PoolId,
    SummaryEntry, Superblock, BATCH_HEADER_BYTES, BLOCK_BYTES,
};
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_64;

const POOL: PoolId = PoolId([0x5a; 16]);

fuzz_target!(|bytes: &[u8]| {
    let Some((what, rest)) = bytes.split_first() else { return };
    let mut block = [0; BLOCK_BYTES];
    let length = rest.len().min(BLOCK_BYTES);
    block[..length].copy_from_slice(&rest[..length]);
    match what % 6 {
        0 => superblock(block),
        1 => slots(block),
        2 => journal(rest),
        3 => filter(rest),
        4 => files(rest),
        _ => {
            let _ = PageHeader::open(POOL, PoolBlock(9), &block);
            PageHeader::seal(POOL, PoolBlock(9), BatchNo(3), &mut block);
            if let Ok(header) = PageHeader::open(POOL, PoolBlock(9), &block) {
                assert_eq!((header.block, header.batch), (PoolBlock(9), BatchNo(3)));
            }
        }
    }
});

fn files(bytes: &[u8]) {
    if let Ok(record) = FileRecord::decode(bytes) {
        assert_eq!(record.encode(), bytes);
    }
    if let Some(header) = bytes.first_chunk::<{ NamesHeader::BYTES }>() {
        if let Ok(Some(read)) = NamesHeader::decode(header) {
            assert_eq!(read.encode(), *header);
        }
    }
}

fn superblock(mut block: [u8; BLOCK_BYTES]) {
    let sum = xxh3_64(&block[..BLOCK_BYTES - 8]);
    block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    assert!(Superblock::earlier_version(&block).is_none() || Superblock::decode(&block).is_err());
    let Ok(superblock) = Superblock::decode(&block) else { return };
    assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    let geometry = superblock.geometry;
    assert!(geometry.groups_start().0 < geometry.blocks);
    let last =
        geometry.data_block(format::pool::BlockGroupNo(geometry.groups - 1), geometry.data_blocks() - 1);
    assert!(last.0 < geometry.blocks && geometry.fingerprint_slot(last).is_some());
}

fn slots(block: [u8; BLOCK_BYTES]) {
    for slot in block.as_chunks::<{ CatalogEntry::BYTES }>().0 {
        if let Ok(Some(entry)) = CatalogEntry::decode(slot) {
            assert_eq!(CatalogEntry::decode(&entry.encode()), Ok(Some(entry)));
        }
        let _ = MapRoot::read(slot);
    }
    for slot in block.as_chunks::<{ MapEntry::BYTES }>().0 {
        assert_eq!(MapEntry::decode(*slot).encode(), *slot);
    }
    for slot in block.as_chunks::<4>().0 {
        let entry = FingerprintEntry::decode(*slot);
        assert_eq!(FingerprintEntry::decode(entry.encode()), entry);
    }
    for slot in block.as_chunks::<{ Home::BYTES }>().0 {
        let home = Home::decode(slot);
        assert_eq!(Home::decode(&home.encode()), home);
    }
    for slot in block.as_chunks::<{ SummaryEntry::BYTES }>().0 {
        assert_eq!(SummaryEntry::decode(*slot).encode(), *slot);
    }
}

/// The records of a batch, in a batch that is right otherwise, and the bytes as a batch.
fn journal(bytes: &[u8]) {
    let _ = BatchHeader::peek(bytes).map(|header| header.blocks());
    let _ = JournalReader::open(POOL, bytes);
    let batch = JournalWriter::with_records(bytes).finish(POOL, BatchNo(1));
    assert!(batch.len() >= BATCH_HEADER_BYTES + bytes.len());
    let Ok(mut reader) = JournalReader::open(POOL, &batch) else { return };
    let mut again = JournalWriter::default();
    while let Ok(Some(record)) = reader.next_record() {
        again.push(record);
    }
}

fn filter(bytes: &[u8]) {
    let _ = FilterHeader::decode(bytes);
    let _ = FilterPart::stored_bytes(bytes);
    let _ = FilterPart::read(bytes, 4, |_| {});
}
