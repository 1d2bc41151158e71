//! Whatever is migrated comes back byte for byte; what is damaged says so, and where.
#![allow(clippy::unwrap_used)]

use archive::mtar::{migrate, restore, Migrated, MtarError, ALIGN};
use proptest::prelude::*;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

fn migrated(tar: &[u8], align: u32) -> (Vec<u8>, Migrated) {
    let mut stream = Vec::new();
    let done = migrate(&mut &*tar, &mut stream, align).unwrap();
    assert_eq!((done.tar_bytes, done.mtar_bytes), (tar.len() as u64, stream.len() as u64));
    assert_eq!(stream.len() % align as usize, 0);
    (stream, done)
}

fn restored(stream: &[u8]) -> Result<Vec<u8>, MtarError> {
    let mut tar = Vec::new();
    restore(&mut &*stream, &mut tar)?;
    Ok(tar)
}

/// Migrates and restores. Returns how many headers were found.
fn comes_back(what: &str, tar: &[u8]) -> u64 {
    let mut headers = Vec::new();
    for align in [512, ALIGN, 65_536] {
        let (stream, done) = migrated(tar, align);
        assert!(restored(&stream).unwrap() == tar, "{what}, {align}");
        headers.push(done.headers);
    }
    headers[0]
}

/// A tree with what archives hold: small and large files, long names, links, holes.
fn tree(dir: &Path) {
    std::fs::create_dir_all(dir.join("d/e")).unwrap();
    for n in 0..40 {
        let content: Vec<u8> = testing::noise(n, (n * n * 37) as usize);
        std::fs::write(dir.join(format!("d/file{n}")), content).unwrap();
    }
    std::fs::write(dir.join("d/e").join("x".repeat(180)), b"long").unwrap();
    std::fs::hard_link(dir.join("d/file7"), dir.join("d/hard")).unwrap();
    std::os::unix::fs::symlink("x".repeat(150), dir.join("d/soft")).unwrap();
    let sparse = std::fs::File::create(dir.join("d/sparse")).unwrap();
    for at in (0..60).map(|n| n * 200_000) {
        use std::os::unix::fs::FileExt;
        sparse.write_all_at(b"data", at).unwrap();
    }
    sparse.set_len(20_000_000).unwrap();
    std::fs::write(dir.join("d/large"), testing::noise(1, 17 << 20)).unwrap();
}

fn tar(dir: &Path, args: &[&str]) -> Vec<u8> {
    let out = Command::new("tar").arg("-C").arg(dir).args(args).args(["-cf", "-", "d"]).output().unwrap();
    // v7 and ustar cannot hold all names: what they hold is an archive.
    assert!(!out.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

#[test]
fn archives_of_gnu_tar_come_back_and_their_headers_are_found() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let formats = ["v7", "oldgnu", "gnu", "ustar", "pax"];
    for format in formats {
        let format = format!("--format={format}");
        let mut kinds = vec![vec![format.as_str()]];
        if !["--format=v7", "--format=ustar"].contains(&format.as_str()) {
            kinds.push(vec![format.as_str(), "--sparse"]);
        }
        if format == "--format=pax" {
            // Maps in records of their own, in one record, and in front of the data.
            let versions = ["--sparse-version=0.0", "--sparse-version=0.1", "--sparse-version=1.0"];
            kinds.extend(versions.map(|version| vec![format.as_str(), "--sparse", version]));
        }
        for args in kinds {
            let archive = tar(dir.path(), &args);
            let headers = comes_back(&format!("{args:?}"), &archive);
            // Forty files, two directories and the rest; long names have a header more each.
            assert!((44..150).contains(&headers), "{args:?}: {headers} headers");
            // Two in a row, odd bytes behind them, and all cuts within one file's end.
            let twice = [&archive[..], &archive[..], b"trailing"].concat();
            assert_eq!(comes_back("twice", &twice), 2 * headers);
            let end = archive.len().min(100_000);
            for cut in [1, 511, 512, 513, 1000, end / 2, end - 1] {
                comes_back("cut", &archive[..cut]);
            }
        }
    }
}

#[test]
fn archives_of_other_programs_come_back() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    std::fs::remove_file(dir.path().join("d/large")).unwrap();
    let program = "import sys,tarfile\n\
                   t=tarfile.open(fileobj=sys.stdout.buffer,mode='w|',format=int(sys.argv[1]))\n\
                   t.add('d')\nt.close()";
    // ustar, GNU and pax; ustar has no room for the long names.
    for format in ["1", "2", "0"] {
        if format == "0" {
            std::fs::remove_dir_all(dir.path().join("d/e")).unwrap();
            std::fs::remove_file(dir.path().join("d/soft")).unwrap();
        }
        let python = Command::new("python3").current_dir(&dir).args(["-c", program, format]).output();
        match python {
            Ok(out) => {
                assert!(out.status.success(), "{format}: {}", String::from_utf8_lossy(&out.stderr));
                assert!(comes_back(&format!("python {format}"), &out.stdout) >= 43, "python {format}");
            }
            Err(e) => testing::skip("python3", e),
        }
    }
}

/// Holes of sparse files, extended attributes, short and long records, and two archives in a row.
#[test]
fn archives_of_bsdtar_come_back() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    std::fs::remove_file(dir.path().join("d/large")).unwrap();
    let set =
        Command::new("setfattr").current_dir(&dir).args(["-n", "user.a", "-v", "value", "d/file3"]).status();
    // Where the file system has no attributes, the archive has none.
    let has_attributes = match set {
        Ok(status) => status.success(),
        Err(e) => {
            testing::skip("setfattr", e);
            false
        }
    };
    for format in ["ustar", "pax", "gnutar", "v7"] {
        for blocks in ["1", "20", "128"] {
            let bsdtar = Command::new("bsdtar")
                .current_dir(&dir)
                .args(["--format", format, "--xattrs", "-b", blocks, "-cf", "-", "d"])
                .output();
            let archive = match bsdtar {
                Ok(out) => out.stdout,
                Err(e) => return testing::skip("bsdtar", e),
            };
            if has_attributes && format == "pax" {
                let name = b"xattr.user.a";
                assert!(archive.windows(name.len()).any(|part| part == name), "the attribute is not in it");
            }
            let headers = comes_back(&format!("bsdtar {format}"), &archive);
            assert!((40..200).contains(&headers), "{format}: {headers} headers");
            assert_eq!(comes_back("twice", &[&archive[..], &archive[..]].concat()), 2 * headers);
        }
    }
}

/// What the package archive/tar of Go writes: each format and each kind of entry, PAX records of the user's own, a global
/// header, long names, an archive that is not closed. `go/write.go` has made them.
#[test]
fn archives_of_go_come_back() {
    let archives: [(&str, &[u8], u64); 3] = [
        ("ustar", include_bytes!("go/ustar.tar.gz"), 46),
        ("pax", include_bytes!("go/pax.tar.gz"), 51),
        ("gnu", include_bytes!("go/gnu.tar.gz"), 49),
    ];
    for (format, packed, least) in archives {
        let mut archive = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut archive).unwrap();
        let open = archive.len() - 1024;
        assert!(archive[open..].iter().all(|b| *b == 0), "{format} is closed");
        for archive in [&archive[..], &archive[..open]] {
            let headers = comes_back(&format!("go {format}"), archive);
            assert!((least..150).contains(&headers), "{format}: {headers} headers");
        }
    }
}

/// Headers that change leave the data where it is: only sections' beginnings differ.
#[test]
fn other_times_change_records_only() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let of = |time: &str| migrated(&tar(dir.path(), &["--format=gnu", "--sort=name", time]), ALIGN).0;
    let (a, b) = (of("--mtime=2020-01-01"), of("--mtime=2021-01-01"));
    assert_eq!(a.len(), b.len());
    let differing: Vec<usize> =
        (0..a.len() / 4096).filter(|n| a[n * 4096..][..4096] != b[n * 4096..][..4096]).collect();
    // Forty-odd headers of 512 bytes stand together, in two sections.
    assert!(!differing.is_empty() && differing.len() < 16, "{differing:?}");
}

#[test]
fn restoring_streams_through_a_small_pipe() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    let archive = tar(dir.path(), &["--format=pax"]);
    let (stream, _) = migrated(&archive, ALIGN);
    // One byte at a time is a pipe, too.
    struct Drip<'a>(&'a [u8]);
    impl std::io::Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let n = buffer.len().min(self.0.len()).min(7777);
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let mut back = Vec::new();
    restore(&mut Drip(&stream), &mut back).unwrap();
    assert!(back == archive);
    let mut again = Vec::new();
    migrate(&mut Drip(&archive), &mut again, ALIGN).unwrap();
    assert!(again == stream);
    // And what comes back is an archive that tar reads.
    let mut list =
        Command::new("tar").args(["-tf", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = list.stdin.take().unwrap();
    std::thread::scope(|s| {
        s.spawn(move || input.write_all(&back).unwrap());
        let out = list.wait_with_output().unwrap();
        assert!(out.status.success() && String::from_utf8_lossy(&out.stdout).contains("d/file39\n"));
    });
}

/// Every damaged byte of a small stream is found, and so is each truncation.
#[test]
fn damage_is_named_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    std::fs::write(dir.path().join("d/a"), b"content").unwrap();
    let archive = tar(dir.path(), &["--format=ustar"]);
    let (stream, _) = migrated(&archive, 512);
    for at in 0..stream.len() {
        let mut harmed = stream.clone();
        harmed[at] ^= 0x10;
        match restored(&harmed) {
            Err(MtarError::Damaged { offset, .. }) => assert!(offset <= at as u64, "{at}: {offset}"),
            // The version.
            Err(MtarError::Newer(_)) => assert!((8..12).contains(&at), "{at}"),
            other => panic!("byte {at}: {:?}", other.map(|t| t == archive)),
        }
    }
    for len in 0..stream.len() {
        assert!(matches!(restored(&stream[..len]), Err(MtarError::Damaged { .. })), "{len}");
    }
    let longer = [&stream[..], &[0]].concat();
    assert!(restored(&longer).unwrap_err().to_string().contains("follows the last section"));
    let error = restored(b"#!/bin/sh\n").unwrap_err().to_string();
    assert!(error.contains("ends at byte 10"), "{error}");
    let error = restored(&archive).unwrap_err().to_string();
    assert!(error.contains("damaged at byte 0") && error.contains("not an mtar stream"), "{error}");
    assert!(matches!(migrate(&mut &archive[..], &mut Vec::new(), 4095), Err(MtarError::Alignment(4095))));
}

/// More headers than a section holds, and more data.
#[test]
fn sections_follow_each_other() {
    let mut archive = Vec::new();
    let mut header = [0u8; 512];
    header[..1].copy_from_slice(b"d");
    header[156] = b'5';
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|b| u32::from(*b)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    for _ in 0..20_000 {
        archive.extend_from_slice(&header);
    }
    assert_eq!(comes_back("directories", &archive), 20_000);
    comes_back("no archive", &testing::noise(5, (40 << 20) + 77));
    comes_back("nothing", b"");
}

fn archive_like() -> impl Strategy<Value = Vec<u8>> {
    // Blocks that are headers of some kind and size, data, or zeros; then a few bytes are changed.
    let block = prop_oneof![
        3 => (any::<u8>(), 0u64..5000, prop::sample::select(&b"05xgLKSVM17\0"[..])).prop_map(|(fill, size, kind)| {
            let mut b = vec![0u8; 512];
            b[0] = fill;
            b[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
            b[156] = kind;
            b[482] = fill & 1;
            b[148..156].fill(b' ');
            let sum: u32 = b.iter().map(|b| u32::from(*b)).sum();
            b[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
            b
        }),
        2 => any::<u8>().prop_map(|b| vec![b; 512]),
        1 => Just(b"18 size=123456789\n".iter().copied().chain([0; 494]).collect()),
        1 => prop::collection::vec(any::<u8>(), 0..700),
    ];
    prop::collection::vec(block, 0..40).prop_map(|blocks| blocks.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn anything_comes_back(bytes in archive_like(), power in 9u32..17) {
        let (stream, _) = migrated(&bytes, 1 << power);
        prop_assert!(restored(&stream).unwrap() == bytes);
    }

    #[test]
    fn a_changed_stream_gives_the_archive_or_an_error(
        bytes in archive_like(), at in any::<prop::sample::Index>(), flip in 1u8..
    ) {
        let (mut stream, _) = migrated(&bytes, 512);
        let at = at.index(stream.len());
        stream[at] ^= flip;
        prop_assert!(restored(&stream).is_err(), "byte {at}");
    }
}
