//! What is backed up comes back, whatever the image, the policy and the codec.

use crate::common;
use crate::common::{image, next_version, restore, rng, seed, source};
use chunk::ChunkSpec;
use image::{PipeTarget, Source, SourceOptions, Stream, TargetFormat, TargetOptions};
use rand::rngs::StdRng;
use rand::RngExt;
use std::io::{Cursor, Write};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use vault::{BackupOptions, Global, Policy, Progress, Rewrite, Vault, BALANCED, CONVENTIONAL, REVERSE};

fn policy(rng: &mut StdRng) -> Policy {
    let mut p = [BALANCED, BALANCED, REVERSE, CONVENTIONAL][rng.random_range(0..4)];
    p.segment_bytes = [4096, 12 << 10, 64 << 10, 1 << 20, p.segment_bytes][rng.random_range(0..5)];
    p.chunking = ["512", "4k", "12k", "cdc:4k", "cdc:64,256,2k", "cdc:1k,8k,16k"][rng.random_range(0..6)]
        .parse()
        .unwrap();
    p.group_bytes = [4096, 64 << 10, 256 << 10][rng.random_range(0..3)];
    p.container_bytes = [32 << 10, 1 << 20, 64 << 20][rng.random_range(0..3)];
    p.own_index_bytes = 1 << 20;
    if let Global::Chunks { sampled, champions } = &mut p.global {
        (*sampled, *champions) = (rng.random_range(0..7), rng.random_range(1..6));
    }
    p.same_offset = rng.random();
    p.similar_segments = rng.random_range(0..12);
    p.own_index_parent = rng.random();
    if rng.random_bool(0.3) {
        p.rewrite_at = Rewrite::Fragmented { read_ratio: rng.random_range(1.0..30.0) };
    }
    p
}

fn options(rng: &mut StdRng, policy: Policy) -> BackupOptions {
    let codec = ["auto", "zstd:1", "zstd:9", "zstd:-3", "lz4", "none"][rng.random_range(0..6)];
    BackupOptions { policy: Some(policy), codec: Some(codec.parse().unwrap()), ..BackupOptions::default() }
}

fn any_source(rng: &mut StdRng, bytes: &[u8]) -> Box<dyn Source> {
    match rng.random_range(0..3) {
        0 => Box::new(Stream::new(Cursor::new(bytes.to_vec()), "-")),
        n => source(bytes, n == 1),
    }
}

/// A pipe into memory.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn through_pipe(vault: &Vault, disk: &str, spec: &str) -> Vec<u8> {
    let sink = Sink::default();
    let pipe = sink.clone();
    let make = |size: u64, _: &[Range<u64>]| {
        Ok(Box::new(PipeTarget::new(pipe, "-", size)) as Box<dyn image::Target>)
    };
    vault.restore(disk, spec, make, &Progress::default()).unwrap();
    let bytes = sink.0.lock().unwrap().clone();
    bytes
}

fn through_file(vault: &Vault, disk: &str, spec: &str, format: TargetFormat) -> Vec<u8> {
    let dir = common::scratch();
    let path = dir.path().join("disk");
    let make = |size: u64, data: &[Range<u64>]| {
        image::create_target(&path, &TargetOptions { size, format, data, ..TargetOptions::default() })
    };
    vault.restore(disk, spec, make, &Progress::default()).unwrap();
    let format = Some(match format {
        TargetFormat::Raw => image::Format::Raw,
        TargetFormat::Qcow2 => image::Format::Qcow2,
    });
    let mut back = image::open(&path, &SourceOptions { format, ..SourceOptions::default() }).unwrap();
    let mut bytes = vec![0; back.size().unwrap() as usize];
    let n = back.read_at(0, &mut bytes).unwrap();
    assert_eq!(n, bytes.len());
    bytes
}

fn assert_same(got: &[u8], wanted: &[u8], what: &str) {
    assert_eq!(got.len(), wanted.len(), "{what}: length");
    if let Some(at) = got.iter().zip(wanted).position(|(a, b)| a != b) {
        panic!("{what}: differs at {at}");
    }
}

/// Two disks, a chain of versions each, every version restored in every way; and nothing looks damaged.
fn chain(seed: u64) {
    let mut rng = rng(seed);
    let dir = common::scratch();
    let vault = common::new_vault(&dir.path().join("store"));
    let len = match rng.random_range(0..4) {
        0 => rng.random_range(0..9000),
        _ => rng.random_range(0..3_000_000),
    };
    let first = image(&mut rng, len);
    let mut current = [first.clone(), next_version(&mut rng, &first)];
    let mut all = Vec::new();
    let policies = [policy(&mut rng), policy(&mut rng)];
    for version in 0..rng.random_range(2..5) {
        for (n, disk) in ["web/vda", "db/vda"].into_iter().enumerate() {
            let p = if rng.random_bool(0.9) { policies[n] } else { policy(&mut rng) };
            let options = options(&mut rng, p);
            let source = any_source(&mut rng, &current[n]);
            let report = vault.backup(disk, source, &options, &Progress::default()).unwrap();
            assert_eq!(report.snapshot.size, current[n].len() as u64, "seed {seed}, version {version}");
            all.push((disk, report.snapshot.id.to_string(), current[n].clone()));
            current[n] = next_version(&mut rng, &current[n]);
        }
    }
    for (disk, id, bytes) in &all {
        let what = format!("seed {seed}, {disk}@{id}");
        assert_same(&restore(&vault, disk, id).unwrap(), bytes, &what);
        assert_same(&through_pipe(&vault, disk, id), bytes, &what);
    }
    for data in [false, true] {
        let report = vault.verify(None, data, &Progress::default()).unwrap();
        assert_eq!(report.damaged, [], "seed {seed}");
        assert_eq!((report.disks, report.snapshots), (2, all.len() as u64));
    }
}

#[test]
fn chains_of_versions_come_back() {
    let seed = seed("chains_of_versions_come_back");
    let chains = std::env::var("SAPWOOD_TEST_CHAINS").ok().and_then(|n| n.parse().ok()).unwrap_or(24);
    for n in 0..chains {
        chain(seed.wrapping_add(n));
    }
}

#[test]
fn every_codec_and_chunker_comes_back() {
    let mut rng = rng(seed("every_codec_and_chunker_comes_back"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    for (n, codec) in ["auto", "zstd:1", "zstd:19", "zstd:-7", "lz4", "none"].into_iter().enumerate() {
        for (m, spec) in ["4k", "32k", "cdc:4k"].into_iter().enumerate() {
            let chunking: ChunkSpec = spec.parse().unwrap();
            let base = if (n + m) % 2 == 0 { BALANCED } else { CONVENTIONAL };
            let policy = Policy { chunking, own_index_bytes: 1 << 20, ..base };
            let codec = Some(codec.parse().unwrap());
            let options = BackupOptions { policy: Some(policy), codec, ..BackupOptions::default() };
            let bytes = image(&mut rng, 700_001);
            let disk = format!("vm{n}/d{m}");
            vault.backup(&disk, source(&bytes, false), &options, &Progress::default()).unwrap();
            assert_same(&restore(&vault, &disk, "latest").unwrap(), &bytes, &disk);
        }
    }
    assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
}

#[test]
fn disks_of_odd_sizes_come_back_as_raw_and_qcow2() {
    let mut rng = rng(seed("disks_of_odd_sizes_come_back_as_raw_and_qcow2"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    for (n, len) in
        [0, 1, 511, 512, 513, 4095, 4096, 4097, 65_537, 4 << 20, (4 << 20) + 1].into_iter().enumerate()
    {
        let mut bytes = image(&mut rng, len);
        if let Some(last) = bytes.last_mut() {
            *last = 7;
        }
        let disk = format!("vm/d{n}");
        let policy = if n % 2 == 0 { BALANCED } else { CONVENTIONAL };
        common::backup(&vault, &disk, &bytes, policy).unwrap();
        assert_same(&restore(&vault, &disk, "latest").unwrap(), &bytes, &disk);
        assert_same(&through_pipe(&vault, &disk, "latest"), &bytes, &disk);
        assert_same(&through_file(&vault, &disk, "latest", TargetFormat::Raw), &bytes, &disk);
        // A qcow2 file's disk is a whole number of sectors.
        let mut sectors = bytes.clone();
        sectors.resize(len.next_multiple_of(512), 0);
        let mut back = through_file(&vault, &disk, "latest", TargetFormat::Qcow2);
        back.resize(sectors.len(), 0);
        assert_same(&back, &sectors, &disk);
    }
}

#[test]
fn a_sparse_disk_of_many_pages_comes_back() {
    let mut rng = rng(seed("a_sparse_disk_of_many_pages_comes_back"));
    let dir = common::scratch();
    let vault = common::new_vault(dir.path());
    // Segments of 4 KiB: a recipe page is 4 MiB of the disk.
    let policy =
        Policy { segment_bytes: 4096, chunking: "1k".parse().unwrap(), own_index_bytes: 1 << 20, ..BALANCED };
    let mut bytes = vec![0; 40 << 20];
    let mut all = Vec::new();
    for _ in 0..4 {
        for _ in 0..5 {
            let at = rng.random_range(0..bytes.len() - 30_000);
            let part = image(&mut rng, 30_000);
            bytes[at..at + part.len()].copy_from_slice(&part);
        }
        let id = common::backup(&vault, "vm/d", &bytes, policy).unwrap().snapshot.id.to_string();
        all.push((id, bytes.clone()));
    }
    for (id, bytes) in &all {
        assert_same(&restore(&vault, "vm/d", id).unwrap(), bytes, id);
    }
    assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
}
