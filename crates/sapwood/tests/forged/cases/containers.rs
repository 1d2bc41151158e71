//! Containers: chunk tables, groups, directories, lists of dead chunks.

use super::{of, Case, B};
use crate::forge::{varint, Body, Vault};
use crate::parts::{far, first_container};
use format::{
    ChunkNo, Codec, ContainerId, DataFooter, DeadLog, Group, Kind, RunSet, Table, TableIndex,
    DATA_FOOTER_BYTES,
};

pub const CASES: &[Case] = &[
    of("equal-chunks", "vm-centric-bloom", |v| {
        // One chunk, half a million times in each container of a disk.
        with_table(v, |t| set_chunks(t, vec![(0, CHUNKS)], 4096, Codec::Raw));
    }),
    of("table-chunks", B, |v| with_table(v, |t| set_chunks(t, vec![(0, CHUNKS)], 4096, Codec::Raw))),
    of("table-runs", B, |v| {
        let runs: Vec<(u32, u32)> = (0..CHUNKS).map(|n| (n * 8000, 1)).collect();
        with_table(v, |t| set_chunks(t, runs.clone(), 4096, Codec::Raw));
    }),
    of("table-small-chunks", B, |v| with_table(v, |t| set_chunks(t, vec![(0, CHUNKS)], 1, Codec::Zstd))),
    of("table-large-chunks", B, |v| with_table(v, |t| set_chunks(t, vec![(0, 500)], 16 << 20, Codec::Raw))),
    of("groups-zstd", B, |v| with_groups(v, Codec::Zstd, 64 * 16, 1 << 20)),
    of("groups-lz4", B, |v| with_groups(v, Codec::Lz4, 64 * 16, 1 << 20)),
    of("group-longer", B, |v| {
        with_table(v, |t| {
            let g = &mut t.groups[0];
            (g.stored_len, g.codec) = (u32::MAX, Codec::Zstd);
        });
    }),
    of("directory-hole", B, |v| {
        for name in v.objects(".data") {
            let (at, len) = (1 << 20, 1 << 42);
            v.put_hole(&name, at + len);
            let path = v.path(&name);
            let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
            let footer = DataFooter { directory_offset: at, directory_len: len }.encode();
            assert_eq!(footer.len(), DATA_FOOTER_BYTES);
            std::io::Write::write_all(&mut file, &footer).unwrap();
        }
    }),
    of("directory-chunks", B, |v| {
        for name in v.objects(".data") {
            let data = v.read(&name);
            let at = data.len() as u64;
            let mut body = [far(0).raw().to_le_bytes(), far(0).raw().to_le_bytes()].concat();
            body.extend_from_slice(&[1, 0, 0, 0, 1, 0]);
            body.extend_from_slice(&[&varint(u64::from(CHUNKS))[..], &[1, 0]].concat());
            let directory = v.frame(Kind::Directory, &format!("{name}#{at}"), &Body::Of(&body));
            let footer = DataFooter { directory_offset: at, directory_len: directory.len() as u64 }.encode();
            v.write(&name, &[data, directory, footer].concat());
        }
    }),
    of("dead-runs", "reverse", |v| {
        let runs: Vec<(u32, u32)> = (0..1_000_000).map(|n| (n * 3 + 1, 1)).collect();
        with_dead(v, &|id| DeadLog { container: id, dead: RunSet::from_unsorted(runs.clone()) });
    }),
    of("dead-long-run", "reverse", |v| {
        with_dead(v, &|id| DeadLog { container: id, dead: RunSet::from_unsorted(vec![(0, u32::MAX)]) });
    }),
    of("dead-bomb", "reverse", |v| {
        for name in v.objects(".dead") {
            let times = 100 << 20;
            let head = [&first_container(v).raw().to_le_bytes()[..], &varint(times as u64)].concat();
            v.put(Kind::Dead, &name, &Body::Repeated { head: &head, item: &[1, 1], times });
        }
    }),
];

/// As many chunks as a table may have.
pub const CHUNKS: u32 = 1 << 19;

/// Other tables of all containers.
fn with_table(v: &Vault, change: impl Fn(&mut Table)) {
    for name in v.objects(".table") {
        let mut table = Table::decode(v.context(&name), &v.read(&name)).unwrap();
        change(&mut table);
        v.write(&name, &table.encode(v.context(&name)));
    }
}

fn set_chunks(t: &mut Table, runs: Vec<(u32, u32)>, bytes: u32, codec: Codec) {
    t.numbers = RunSet::from_unsorted(runs);
    let chunks = t.numbers.len() as u32;
    t.lengths = vec![bytes; chunks as usize];
    t.fingerprints = vec![[9; 32]; chunks as usize];
    // As large as groups may be.
    let of_group = ((16 << 20) / bytes).clamp(1, chunks);
    let group = |first: u32| {
        let count = of_group.min(chunks - first);
        let (first, raw_len, stored_len) = (TableIndex(first), count * bytes, count * bytes);
        Group { first, count, offset: 64, stored_len, raw_len, codec, cipher: 0, key: 0, checksum: 0 }
    };
    t.groups = (0..chunks).step_by(of_group as usize).map(group).collect();
}

/// Containers of so many chunks of so many zeros, in groups of a few bytes.
pub fn with_groups(v: &Vault, codec: Codec, chunks: u32, bytes: u32) {
    const RAW: usize = 16 << 20;
    let zeros = vec![0; RAW];
    let mut packed = vec![0; 1 << 20];
    match codec {
        Codec::Zstd => {
            let n = zstd_safe::compress(&mut packed[..], &zeros, 3).unwrap();
            packed.truncate(n);
        }
        _ => packed = lz4_of_zeros(RAW),
    }
    let fingerprint = chunk::Fingerprint::of(&zeros[..bytes as usize]).0;
    drop(zeros);
    with_table(v, |t| {
        set_chunks(t, vec![(0, chunks)], bytes, codec);
        t.fingerprints.fill(fingerprint);
        for g in &mut t.groups {
            g.stored_len = packed.len() as u32;
            g.checksum = format::group_checksum(t.container, ChunkNo(g.first.0), &packed);
        }
    });
    for name in v.objects(".data") {
        let mut data = v.read(&name);
        let end = data.len().max(64 + packed.len());
        data.resize(end, 0);
        data[64..64 + packed.len()].copy_from_slice(&packed);
        v.write(&name, &data);
    }
}

/// An lz4 block of so many zeros.
fn lz4_of_zeros(len: usize) -> Vec<u8> {
    // One literal, then a match at distance 1 of all but the last five, which are literals.
    let matched = len - 1 - 5;
    let mut out = vec![0x1f, 0, 1, 0];
    let mut left = matched - 4 - 15;
    while left >= 255 {
        out.push(255);
        left -= 255;
    }
    out.push(left as u8);
    out.extend_from_slice(&[0x50, 0, 0, 0, 0, 0]);
    out
}

fn with_dead(v: &Vault, log: &dyn Fn(ContainerId) -> DeadLog) {
    for name in v.objects(".dead") {
        let old = DeadLog::decode(v.context(&name), &v.read(&name)).unwrap();
        v.write(&name, &log(old.container).encode(v.context(&name)));
    }
}
