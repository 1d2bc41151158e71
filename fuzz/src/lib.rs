//! What the fuzz targets share: frames whose checksum fits, and what must hold for whatever was decoded.

pub mod disk;
pub mod volume;

use format::{encode_frame, ChunkNo, Context, Kind, Result, Table, TableIndex, VaultId, FRAME_HEADER_BYTES};
use image::Source;
use xxhash_rust::xxh3::Xxh3;

/// The place that all fuzzed frames belong to.
pub const HERE: Context<'static> = Context { vault: VaultId([7; 16]), place: "fuzz" };

/// Every kind of frame.
pub const KINDS: [Kind; 22] = [
    Kind::Manifest,
    Kind::ContainerPage,
    Kind::RecipeRoot,
    Kind::RecipePage,
    Kind::Summary,
    Kind::Table,
    Kind::Directory,
    Kind::Dead,
    Kind::Session,
    Kind::Reader,
    Kind::Claim,
    Kind::Retiring,
    Kind::Name,
    Kind::Hooks,
    Kind::Popular,
    Kind::Bloom,
    Kind::Commit,
    Kind::Referrer,
    Kind::ReferenceBlock,
    Kind::ReferenceFooter,
    Kind::Verifications,
    Kind::SnapshotPage,
];

/// Decodes a body in a whole and valid frame. What decodes must come back from its encoding.
pub fn comes_back<T: PartialEq>(
    kind: Kind,
    body: &[u8],
    decode: impl Fn(Context<'_>, &[u8]) -> Result<T>,
    encode: impl Fn(&T, Context<'_>) -> Vec<u8>,
) -> Option<T> {
    let value = decode(HERE, &encode_frame(kind, HERE, body)).ok()?;
    match decode(HERE, &encode(&value, HERE)) {
        Ok(again) => assert!(again == value, "{kind:?}: another value comes back"),
        Err(why) => panic!("{kind:?}: its own encoding is refused: {why}"),
    }
    Some(value)
}

/// A frame with its kind, length and checksum put right. `bytes` are the 16 bytes before the checksum, then the
/// stored bytes.
pub fn seal(kind: Kind, bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, stored) = bytes.split_at_checked(FRAME_HEADER_BYTES / 2)?;
    let mut head = head.to_vec();
    head[4] = kind as u8;
    head[8..12].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    let mut sum = Xxh3::new();
    sum.update(&HERE.vault.0);
    sum.update(&(HERE.place.len() as u32).to_le_bytes());
    for part in [HERE.place.as_bytes(), &head, stored] {
        sum.update(part);
    }
    Some([&head, &sum.digest128().to_le_bytes()[..], stored].concat())
}

/// Looks chunks of a table up by number and by index.
pub fn look_up(table: &Table) {
    let chunks = table.lengths.len();
    assert_eq!(table.numbers.len(), chunks as u64);
    for index in (0..chunks.min(100)).chain(chunks.saturating_sub(2)..chunks) {
        let index = TableIndex(index as u32);
        let number = table.number_at(index);
        assert_eq!(number.and_then(|n| table.index_of(n)), Some(index));
        let group = table.group_of(index).map(|g| table.group(g).indices());
        assert!(group.is_some_and(|g| g.start <= index && index < g.end));
    }
    assert_eq!(table.number_at(TableIndex(chunks as u32)), None);
    for number in [0, 1, u32::MAX - 1, u32::MAX].map(ChunkNo) {
        assert_eq!(table.index_of(number).is_some(), table.numbers.contains(number));
    }
}

/// How many ranges of a disk are looked at.
const RANGES: usize = 40;
/// How much is read at once.
const READ_BYTES: usize = 64 << 10;

/// Reads a disk: its first ranges of data, what lies before each of them, and around its ends. Errors are fine.
pub fn read_here_and_there(disk: &mut dyn Source) {
    let Some(size) = disk.size() else { panic!("a file has a size") };
    let mut buf = vec![0xee; READ_BYTES];
    let mut at = 0;
    for _ in 0..RANGES {
        let Ok(Some(data)) = disk.next_data(at) else { break };
        assert!(
            at <= data.start && data.start < data.end && data.end <= size,
            "{data:?} after {at} of {size}"
        );
        let hole = (data.start - at).min(512) as usize;
        if let Some(n) = read(disk, size, data.start - hole as u64, &mut buf[..hole]) {
            assert!(buf[..n].iter().all(|b| *b == 0), "bytes before {data:?} that are not zero");
        }
        let whole = (data.end - data.start).min(READ_BYTES as u64) as usize;
        if let Some(n) = read(disk, size, data.start, &mut buf[..whole]) {
            let first = buf[0];
            let (middle, last) = (n / 2, buf[n / 2]);
            read(disk, size, data.start + middle as u64, &mut buf[..1]);
            assert_eq!(buf[0], last);
            read(disk, size, data.start, &mut buf[..1]);
            assert_eq!(buf[0], first);
        }
        at = data.end;
    }
    for offset in [0, size / 2, size.saturating_sub(1), size, size.saturating_add(1), u64::MAX] {
        read(disk, size, offset, &mut buf[..777]);
    }
    assert!(matches!(disk.next_data(size), Ok(None)));
}

/// Reads, and checks how much; `None`: the image is found damaged.
fn read(disk: &mut dyn Source, size: u64, offset: u64, buf: &mut [u8]) -> Option<usize> {
    let n = disk.read_at(offset, buf).ok()?;
    assert_eq!(n as u64, size.saturating_sub(offset).min(buf.len() as u64), "at {offset} of {size}");
    Some(n)
}
