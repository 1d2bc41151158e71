//! Writes what fuzzing starts from: `seeds DIR` fills DIR/TARGET/ with valid encodings for every target.
//!
//! Images are built by hand, with the smallest clusters there are, so that they stay a few KiB long.

// Instrumented code calls into libFuzzer, also where nothing is fuzzed.
use libfuzzer_sys as _;

use filesystem::fat::Fat;
use filesystem::ntfs::Ntfs;
use filesystem::FileSystem;
use flate2::{Compress, Compression, FlushCompress};
use format::pool::{BatchHeader, BATCH_HEADER_BYTES, BLOCK_BYTES};
use format::{decode_frame, encode_mark, DataFooter, HooksFooter, Kind, Summary, FRAME_HEADER_BYTES};
use fuzz::disk::{Sectors, DISK_BYTES};
use fuzz::volume;
use fuzz::{HERE, KINDS};
use image::Format;
use std::path::Path;
use std::sync::Arc;

#[path = "../../../crates/format/tests/samples/mod.rs"]
mod samples;
#[path = "../../../crates/filesystem/tests/common/walk.rs"]
mod walk;
use samples::{
    bloom, claim, container_page, data_header, dead_log, hooks, manifests, name_record, popular_set,
    reader_record, recipe_page, recipe_root, reference_block, reference_footer, retiring, session,
    snapshot_page, tables, vault_file, verifications,
};

fn main() {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: seeds DIR");
        std::process::exit(2);
    };
    for (target, seeds) in seeds() {
        let dir = Path::new(&dir).join(target);
        std::fs::create_dir_all(&dir).expect("cannot make the directory");
        for (n, seed) in seeds.iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{n:02}")), seed).expect("cannot write a seed");
        }
    }
}

type Seeds = Vec<Vec<u8>>;

fn seeds() -> Vec<(&'static str, Seeds)> {
    let frames: Vec<(&str, Kind, Seeds)> = vec![
        ("manifest", Kind::Manifest, manifests().iter().map(|m| m.encode(HERE)).collect()),
        ("commit_record", Kind::Commit, manifests().iter().map(|m| m.encode_record(HERE)).collect()),
        ("container_page", Kind::ContainerPage, vec![container_page().encode(HERE)]),
        ("snapshot_page", Kind::SnapshotPage, vec![snapshot_page().encode(HERE)]),
        ("recipe_root", Kind::RecipeRoot, vec![recipe_root().encode(HERE)]),
        ("recipe_page", Kind::RecipePage, vec![recipe_page().encode(HERE)]),
        ("summary", Kind::Summary, vec![Summary::of(&recipe_page()).encode(HERE)]),
        ("table", Kind::Table, tables().iter().map(|t| t.encode(HERE)).collect()),
        ("directory", Kind::Directory, tables().iter().map(|t| t.encode_directory(HERE)).collect()),
        ("dead_log", Kind::Dead, vec![dead_log().encode(HERE)]),
        ("session", Kind::Session, vec![session().encode(HERE)]),
        ("verifications", Kind::Verifications, verifications().encode(HERE).into_iter().collect()),
        ("name_record", Kind::Name, vec![name_record().encode(HERE)]),
        ("reader_record", Kind::Reader, vec![reader_record().encode(HERE)]),
        ("claim_record", Kind::Claim, vec![claim().encode(HERE)]),
        ("retiring_record", Kind::Retiring, vec![retiring().encode(HERE)]),
        ("popular_set", Kind::Popular, vec![popular_set().encode(HERE)]),
        ("bloom", Kind::Bloom, vec![bloom().encode(HERE)]),
        ("reference_block", Kind::ReferenceBlock, vec![reference_block().encode(HERE)]),
    ];
    let mut all: Vec<(&str, Seeds)> = Vec::new();
    let mut whole = Vec::new();
    for (target, kind, frames) in frames {
        let body = |f: &Vec<u8>| decode_frame(kind, HERE, f).expect("a frame just made").into_owned();
        whole.extend(frames.iter().map(|f| frame_seed(kind, f)));
        all.push((target, frames.iter().map(body).collect()));
    }
    for kind in [Kind::Commit, Kind::Referrer] {
        whole.push(frame_seed(kind, &encode_mark(kind, HERE)));
    }
    let footer = reference_footer().encode(HERE);
    let body = decode_frame(Kind::ReferenceFooter, HERE, &footer).expect("a frame just made");
    all.push(("reference_footer", vec![[&65_100u64.to_le_bytes()[..], &body].concat()]));
    whole.push(frame_seed(Kind::ReferenceFooter, &footer));
    let (hooks_seed, footer) = hooks_seed();
    whole.push(frame_seed(Kind::Hooks, &footer));
    all.push(("hooks", vec![hooks_seed]));
    all.push(("frame", whole));
    all.push(("data_header", vec![data_header().encode()]));
    all.push(("data_footer", vec![data_footer()]));
    all.push(("vault_file", vec![vault_file().encode()]));
    all.extend(images());
    all.push(("pool", pools()));
    all.push(("mtar", mtars()));
    all.push(("mzip", mzips()));
    all.push(("stream", vec![b"\x05\x00\x09\xff\x01\x02\x03\x04a disk that comes through a pipe".repeat(9)]));
    all.push(("chunk_spec", chunk_specs()));
    let lists: [&[u8]; 4] = [
        b"# dirty\n4096 8192\n0x10000 0x1000 # last\n",
        br#"[{"offset":0,"length":4194304,"exists":"true"},{"offset":8388608,"length":4096,"exists":"false"}]"#,
        br#"[{"offset":0,"length":65536,"type":0,"description":"clean"},{"offset":65536,"length":512,"type":1,"description":"dirty"}]"#,
        br#"<superblock data_block_size="128"><diff left="1" right="2"><different begin="0" length="2"/><same begin="2" length="8"/></diff></superblock>"#,
    ];
    all.push(("changes", lists.iter().map(|l| l.to_vec()).collect()));
    let names = ["web01/vda", "2026-11-21T22:00:01Z", "2024-02-29", "zstd:19", "lz4", "balanced"];
    let mut names: Seeds = names.iter().map(|n| n.as_bytes().to_vec()).collect();
    names.push(b"disks/0123456789abcdef0123456789abcdef/containers/3-5.17.table".to_vec());
    names.push(b"0123456789abcdef0123456789abcdef".to_vec());
    all.push(("names", names));
    all.push(("filesystem_ext", vec![volume::ext2()]));
    all.push(("filesystem_xfs", vec![volume::xfs_superblock()]));
    all.extend(volumes());
    all.push(("filesystem_volumes", vec![volume::ext2(), volume::partitions()]));
    all
}

/// As the target `mtar` wants them: a stream, and a stream of a stream.
fn mtars() -> Seeds {
    let stream: &[u8] = include_bytes!("../../../crates/format/tests/golden/mtar");
    (0..3).map(|what| [&[what], stream].concat()).collect()
}

/// As the target `mzip` wants them: an archive, files, bodies of blocks and of pages.
fn mzips() -> Seeds {
    let archive: &[u8] = include_bytes!("../../../crates/format/tests/golden/mzip");
    let text = b"a disk that comes through a pipe".repeat(200);
    let mut seeds: Seeds = (0..16).map(|how| [&[how * 4], &text[..]].concat()).collect();
    let deltas: &[u8] = include_bytes!("../../../crates/format/tests/golden/mzip-deltas");
    seeds.extend([archive, deltas].map(|archive| [&[1], archive].concat()));
    let far: &[u8] = include_bytes!("../../../crates/format/tests/golden/mzip-far");
    let summed: &[u8] = include_bytes!("../../../crates/format/tests/golden/mzip-sum");
    seeds.extend([far, summed].map(|archive| [&[1], archive].concat()));
    // One match: behind four literals eight bytes, four bytes back.
    seeds.push([&[2 + 128, 1, 4, 4, 16, 4][..], b"abcd"].concat());
    let mut member = flate2::write::GzEncoder::new(vec![2], Compression::default());
    std::io::Write::write_all(&mut member, &text[..1500]).expect("memory");
    seeds.push(member.finish().expect("memory"));
    // Two extents: three stored bytes, and two zeros.
    seeds.push(vec![3 + 8 * 2, 6, 0, 5, b'a', b'b', b'c']);
    // Three stored bytes, and a delta of four bytes to them.
    let extents = [12, 0, 14, 0, 4, 5, 3];
    seeds.push([&[3 + 4 + 8 * 2][..], &extents, b"abcdefg"].concat());
    seeds
}

/// As the target `pool` wants them: what stands behind the number of the decoder.
fn pools() -> Seeds {
    let batch: &[u8] = include_bytes!("../../../crates/format/tests/golden/pool-journal-batch");
    let records = BatchHeader::peek(batch).map_or(0, |header| header.length);
    let filter: &[u8] = include_bytes!("../../../crates/format/tests/golden/pool-filter");
    let seeds: [(u8, &[u8]); 8] = [
        (0, include_bytes!("../../../crates/format/tests/golden/pool-superblock")),
        (0, include_bytes!("../../../crates/format/tests/golden/pool-superblock-1")),
        (1, include_bytes!("../../../crates/format/tests/golden/pool-page")),
        (1, include_bytes!("../../../crates/format/tests/golden/pool-catalog-slot")),
        (2, &batch[BATCH_HEADER_BYTES..records]),
        (3, filter),
        (3, &filter[BLOCK_BYTES..]),
        (4, include_bytes!("../../../crates/format/tests/golden/pool-page")),
    ];
    seeds.iter().map(|(what, bytes)| [&[*what], *bytes].concat()).collect()
}

/// Volumes whose files can all be read.
fn volumes() -> Vec<(&'static str, Seeds)> {
    let check = |fs: &dyn FileSystem, nodes| {
        let walked = walk::walk(fs, DISK_BYTES);
        assert_eq!((walked.nodes, walked.errors), (nodes, 0), "nodes and errors of a seed");
    };
    let (fat, ntfs) = (volume::fat12(), volume::ntfs());
    let opened = Fat::open(Arc::new(Sectors::decode(&fat))).expect("a sound seed");
    check(&opened.expect("a seed of FAT"), 3);
    let opened = Ntfs::open(Arc::new(Sectors::decode(&ntfs))).expect("a sound seed");
    check(&opened.expect("a seed of NTFS"), 5);
    vec![("filesystem_fat", vec![fat]), ("filesystem_ntfs", vec![ntfs])]
}

/// As the target `frame` wants it: the kind, and the frame without its checksum.
fn frame_seed(kind: Kind, frame: &[u8]) -> Vec<u8> {
    let index = KINDS.iter().position(|k| *k == kind).expect("a kind that is listed");
    let (head, stored) = (&frame[..FRAME_HEADER_BYTES / 2], &frame[FRAME_HEADER_BYTES..]);
    let seed = [&[index as u8], head, stored].concat();
    let sealed = fuzz::seal(kind, &seed[1..]);
    assert_eq!(sealed.as_deref(), Some(frame), "the targets' idea of a frame is out of date");
    seed
}

/// As the target `hooks` wants it, and the frame of the footer.
fn hooks_seed() -> (Vec<u8>, Vec<u8>) {
    let object = hooks(HERE);
    let (front, tail) = object.split_last_chunk().expect("an object with a tail");
    let begins = HooksFooter::begins_at(object.len() as u64, tail).expect("hooks just made");
    let (hooks, frame) = front.split_at(begins as usize);
    let body = decode_frame(Kind::Hooks, HERE, frame).expect("a frame just made");
    let seed = [&(body.len() as u16).to_le_bytes()[..], &body, hooks].concat();
    (seed, frame.to_vec())
}

/// As the target wants it: the container's length, and the footer without its checksum.
fn data_footer() -> Vec<u8> {
    let footer = DataFooter { directory_offset: 4096, directory_len: 300 }.encode();
    [&(4096u64 + 300 + 32).to_le_bytes()[..], &footer[..16], &footer[24..]].concat()
}

fn chunk_specs() -> Seeds {
    let segment: Vec<u8> = (0..9000u32).map(|n| if n < 4096 { 0 } else { ((n * n) >> 3) as u8 }).collect();
    let seed = |spec: &str| [spec.as_bytes(), b"\n", &segment].concat();
    ["4k", "fixed:512", "cdc:256", "cdc:64,128,1K"].map(seed).into()
}

fn images() -> Vec<(&'static str, Seeds)> {
    let check = |images: Vec<Vec<u8>>, format| {
        for image in &images {
            let disk = image::open_bytes(Box::new(image.clone()), "seed", Some(format));
            let mut disk = disk.unwrap_or_else(|why| panic!("a seed is no image: {why}"));
            let mut content = vec![0xee; disk.size().unwrap_or(0) as usize];
            disk.read_at(0, &mut content).unwrap_or_else(|why| panic!("a seed cannot be read: {why}"));
        }
        images
    };
    let qcow2 = [qcow2(9, false), qcow2(9, true), qcow2_subclusters()].into();
    let vmdk = [vmdk_sparse(), vmdk_stream(), vmdk_descriptor("RW 40 ZERO")].into();
    let qcow2 = check(qcow2, Format::Qcow2);
    let vmdk = check(vmdk, Format::Vmdk);
    let mut any: Seeds = [&qcow2[0], &vmdk[0], &vmdk[2]].map(Clone::clone).into();
    any.push(b"nothing but bytes".to_vec());
    vec![("qcow2", qcow2), ("vmdk", vmdk), ("probe", any)]
}

/// Writes big-endian (qcow2) or little-endian (VMDK) fields and bytes into an image that grows with them.
#[derive(Default)]
struct Image(Vec<u8>);

impl Image {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        if self.0.len() < at + bytes.len() {
            self.0.resize(at + bytes.len(), 0);
        }
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// The header of a qcow2 image whose refcount and L1 tables both stand in its second cluster.
fn qcow2_header(cluster_bits: u32, size: u64, l1_entries: u32, features: u64) -> Image {
    let mut image = Image::default();
    image.put(0, b"QFI\xfb");
    for (at, number) in [(4, 3), (20, cluster_bits), (36, l1_entries), (56, 1), (96, 4), (100, 112)] {
        image.put(at, &number.to_be_bytes());
    }
    for (at, number) in [(24, size), (40, 1 << cluster_bits), (48, 1 << cluster_bits), (72, features)] {
        image.put(at, &number.to_be_bytes());
    }
    image.put(104, &[u8::from(features & 8 != 0)]);
    image
}

/// A qcow2 image with data, zero and compressed clusters, and L1 entries with and without a table.
fn qcow2(cluster_bits: u32, zstd: bool) -> Vec<u8> {
    let cluster = 1u64 << cluster_bits;
    let table_clusters = cluster / 8;
    let size = (2 * table_clusters + 3) * cluster;
    let mut image = qcow2_header(cluster_bits, size, 3, if zstd { 8 } else { 0 });
    let data: Vec<u8> = (0..2 * cluster).map(|n| n as u8 | 1).collect();
    let packed =
        if zstd { zstd_frame(&data[..cluster as usize]) } else { deflate(&data[..cluster as usize], false) };
    let at = |n: u64| (n * cluster) as usize;
    let copied = 1u64 << 63;
    for (n, entry) in [copied | (2 * cluster), 0, copied | (3 * cluster)].iter().enumerate() {
        image.put(at(1) + 8 * n, &entry.to_be_bytes());
    }
    let (data_at, packed_at) = (4 * cluster, 6 * cluster);
    let packed_entry = 1 << 62 | packed_at;
    for (n, entry) in [copied | data_at, copied | (data_at + cluster), 1, 0, packed_entry].iter().enumerate()
    {
        image.put(at(2) + 8 * n, &entry.to_be_bytes());
    }
    image.put(at(3), &(copied | data_at).to_be_bytes());
    image.put(at(4), &data);
    image.put(packed_at as usize, &packed);
    image.put(packed_at as usize + cluster as usize - 1, &[0]);
    image.0
}

/// A qcow2 image whose clusters are cut in 32: some have data, some are zero, some are not there.
fn qcow2_subclusters() -> Vec<u8> {
    const CLUSTER: u64 = 1 << 14;
    let mut image = qcow2_header(14, 3 * CLUSTER, 1, 16);
    image.put(CLUSTER as usize, &(1 << 63 | (2 * CLUSTER)).to_be_bytes());
    let bitmap: u64 = 0xff00 << 32 | 0x00ff;
    for (at, number) in [(0, 1 << 63 | (3 * CLUSTER)), (8, bitmap), (24, 0xffff << 32)] {
        image.put(2 * CLUSTER as usize + at, &number.to_be_bytes());
    }
    image.put(3 * CLUSTER as usize, &[0x55; 8 * 512]);
    image.put(4 * CLUSTER as usize - 1, &[0]);
    image.0
}

const SECTOR: usize = 512;

fn vmdk_header(flags: u32, capacity: u64, grain: u64, table_entries: u32, directory_at: u64) -> [u8; SECTOR] {
    let mut image = Image::default();
    image.put(0, b"KDMV");
    for (at, number) in [(4, 3), (8, flags | 1), (44, table_entries)] {
        image.put(at, &number.to_le_bytes());
    }
    for (at, number) in [(12, capacity), (20, grain), (28, 1), (36, 1), (56, directory_at)] {
        image.put(at, &number.to_le_bytes());
    }
    image.put(73, b"\n \r\n");
    image.put(77, &u16::from(flags & 1 << 16 != 0).to_le_bytes());
    let mut sector = [0; SECTOR];
    sector[..image.0.len()].copy_from_slice(&image.0);
    sector
}

fn vmdk_descriptor(extent: &str) -> Vec<u8> {
    format!("# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\n{extent}\n").into_bytes()
}

/// A sparse file with a grain of data, one of zeros, and many that are not there.
fn vmdk_sparse() -> Vec<u8> {
    const DIRECTORY: usize = 2;
    const TABLE: usize = 3;
    const DATA: usize = 4;
    let mut image = Image(vmdk_header(4, 70, 2, 16, DIRECTORY as u64).to_vec());
    image.put(SECTOR, &vmdk_descriptor("RW 70 SPARSE \"seed.vmdk\""));
    image.put(DIRECTORY * SECTOR, &(TABLE as u32).to_le_bytes());
    for (n, entry) in [DATA as u32, 0, 1].iter().enumerate() {
        image.put(TABLE * SECTOR + 4 * n, &entry.to_le_bytes());
    }
    image.put(DATA * SECTOR, &[0x77; 2 * SECTOR]);
    image.0
}

/// A stream-optimized file: compressed grains behind markers, and a footer.
fn vmdk_stream() -> Vec<u8> {
    const FLAGS: u32 = 3 << 16;
    const GRAIN: u64 = 8;
    const TABLE: usize = 6;
    const DIRECTORY: usize = 7;
    let mut image = Image(vmdk_header(FLAGS, 30, GRAIN, 16, u64::MAX).to_vec());
    image.put(SECTOR, &vmdk_descriptor("RDONLY 30 SPARSE \"seed.vmdk\""));
    for (n, sector) in [2usize, 4].into_iter().enumerate() {
        let packed = deflate(&[n as u8 + 1; GRAIN as usize * SECTOR], true);
        image.put(sector * SECTOR, &(2 * n as u64 * GRAIN).to_le_bytes());
        image.put(sector * SECTOR + 8, &(packed.len() as u32).to_le_bytes());
        image.put(sector * SECTOR + 12, &packed);
    }
    for (n, entry) in [2u32, 0, 4].iter().enumerate() {
        image.put(TABLE * SECTOR + 4 * n, &entry.to_le_bytes());
    }
    image.put(DIRECTORY * SECTOR, &(TABLE as u32).to_le_bytes());
    let end = DIRECTORY + 1;
    image.put(end * SECTOR + 12, &3u32.to_le_bytes());
    image.put((end + 1) * SECTOR, &vmdk_header(FLAGS, 30, GRAIN, 16, DIRECTORY as u64));
    image.put((end + 3) * SECTOR - 1, &[0]);
    image.0
}

fn deflate(data: &[u8], zlib: bool) -> Vec<u8> {
    let mut packed = Vec::with_capacity(data.len() + 64);
    let done =
        Compress::new(Compression::default(), zlib).compress_vec(data, &mut packed, FlushCompress::Finish);
    done.expect("deflate takes any bytes");
    packed
}

fn zstd_frame(data: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    zstd_safe::compress(&mut packed, data, 3).expect("zstd takes any bytes");
    packed
}
