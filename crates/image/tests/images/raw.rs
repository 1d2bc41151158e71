//! Raw files, devices, pipes, and paths that are no disks.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::*;
use image::{Format, ImageError, Source, SourceOptions, Stream};
use tempfile::tempdir;

#[test]
fn sizes_of_any_kind() {
    let dir = tempdir().unwrap();
    for size in [0, 1, 511, 513, 4095, 4097, 1_000_003, (9 << 20) + 1] {
        let disk = random_disk(&mut rng(size as u64), size);
        let path = dir.path().join("disk.raw");
        fs::write(&path, &disk).unwrap();
        let mut source = open(&path).unwrap();
        assert_eq!((source.format(), source.size()), ("raw", Some(size as u64)));
        assert_same(&read_data(&mut *source, READ_BYTES).unwrap(), &disk, "data");
        assert_same(&read_all(&mut *source, 4096).unwrap(), &disk, "all");
        assert_eq!(source.read_at(u64::MAX, &mut [0; 10]).unwrap(), 0);
        assert_eq!(source.next_data(u64::MAX).unwrap(), None);
    }
}

#[test]
fn holes_are_passed_over() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    let file = File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap();
    file.write_all_at(&[1; 4096], 700 << 30).unwrap();
    let mut source = open(&path).unwrap();
    assert_eq!(source.next_data(0).unwrap(), Some(700 << 30..(700 << 30) + 4096));
    assert_eq!(source.next_data((700 << 30) + 10).unwrap(), Some((700 << 30) + 10..(700 << 30) + 4096));
    assert_eq!(source.next_data((700 << 30) + 4096).unwrap(), None);
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    fs::write(&path, vec![1; 100_000]).unwrap();
    let mut source = open(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(50_000).unwrap();
    let mut buf = vec![0; 100_000];
    let error = source.read_at(0, &mut buf).unwrap_err();
    assert!(matches!(error, ImageError::Shrunk { .. }), "{error}");
    let error = source.next_data(60_000).unwrap_err();
    assert!(matches!(error, ImageError::Shrunk { .. }), "{error}");
}

fn refusal(path: &Path) -> String {
    match open(path) {
        Err(e @ (ImageError::Refused { .. } | ImageError::Io { .. })) => e.to_string(),
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("{} opened", path.display()),
    }
}

#[test]
fn what_is_no_disk_is_refused() {
    let dir = tempdir().unwrap();
    assert!(refusal(dir.path()).contains("is a directory"));
    assert!(refusal(Path::new("/dev/null")).contains("character device"));
    let fifo = dir.path().join("fifo");
    run("mkfifo", &[&fifo]);
    assert!(refusal(&fifo).contains("is a pipe"));
    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(refusal(&socket).contains("is a socket"));
    let missing = dir.path().join("missing");
    assert!(refusal(&missing).contains("missing: cannot open: No such file"));
}

#[test]
fn a_block_device() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    let disk = random_disk(&mut rng(3), 3 << 20);
    fs::write(&path, &disk).unwrap();
    let Some(device) = LoopDevice::attach(&path) else {
        return;
    };
    let mut source = open(Path::new(&device.0)).unwrap();
    assert_eq!((source.format(), source.size()), ("block", Some(3 << 20)));
    assert_same(&read_data(&mut *source, READ_BYTES).unwrap(), &disk, "device");
}

/// Gives its bytes in odd pieces.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = buf.len().min(777).min(self.0.len());
        buf[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

#[test]
fn a_stream_is_read_in_order() {
    let disk = random_disk(&mut rng(4), 1_000_001);
    let mut stream = Stream::new(Dribble(&disk), "test");
    assert_eq!((stream.format(), stream.size()), ("stream", None));
    assert_eq!(stream.next_data(0).unwrap(), Some(0..u64::MAX));
    let mut buf = vec![0; 1_000_000];
    assert_eq!(stream.read_at(0, &mut buf).unwrap(), 1_000_000);
    assert!(stream.read_at(0, &mut buf).is_err());
    assert!(stream.read_at(1_000_001, &mut buf).is_err());
    assert_eq!(stream.next_data(1_000_000).unwrap(), Some(1_000_000..u64::MAX));
    assert_eq!(stream.read_at(1_000_000, &mut buf).unwrap(), 1);
    assert_eq!(stream.size(), Some(1_000_001));
    assert_eq!(stream.next_data(1_000_000).unwrap(), Some(1_000_000..1_000_001));
    assert_eq!(stream.next_data(1_000_001).unwrap(), None);
    assert_eq!(stream.read_at(1_000_001, &mut buf).unwrap(), 0);
    assert_same(&read_all(&mut Stream::new(Dribble(&disk), "test"), 4096).unwrap(), &disk, "stream");
}

/// A folder with a secret beside it and an image inside that wants it.
fn folder_with_image_naming(name: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempdir().unwrap();
    fs::write(dir.path().join("secret.raw"), vec![42; 1 << 20]).unwrap();
    fs::create_dir(dir.path().join("images")).unwrap();
    let name = name.replace("DIR", &dir.path().display().to_string());
    let (path, shown) = text(&dir, "images/top.qcow2");
    qemu_img(&format!("create -q -u -f qcow2 -b {name} -F raw {shown} 1M"));
    (dir, path)
}

#[test]
fn backing_files_outside_the_folder_are_refused_unless_allowed() {
    for name in ["../secret.raw", "DIR/secret.raw", "link.raw", "sub/../../secret.raw"] {
        let (dir, path) = folder_with_image_naming(name);
        fs::create_dir(dir.path().join("images/sub")).unwrap();
        std::os::unix::fs::symlink("../secret.raw", dir.path().join("images/link.raw")).unwrap();
        let error = open(&path).err().unwrap();
        assert!(matches!(&error, ImageError::Outside { .. }), "{error}");
        assert!(error.to_string().contains("--allow-backing-outside"), "{error}");
        let allowed =
            SourceOptions { allow_backing_outside: true, follow_names: true, ..SourceOptions::default() };
        let disk = read_data(&mut *image::open(&path, &allowed).unwrap(), READ_BYTES).unwrap();
        assert!(disk.iter().all(|b| *b == 42));
    }
}

#[test]
fn the_users_own_links_are_followed() {
    let (dir, path) = folder_with_image_naming("base.raw");
    fs::rename(dir.path().join("secret.raw"), dir.path().join("images/base.raw")).unwrap();
    let link = dir.path().join("link.qcow2");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(read_data(&mut *open(&link).unwrap(), READ_BYTES).unwrap().iter().all(|b| *b == 42));
}

#[test]
fn a_raw_disk_that_holds_an_image_is_raw_when_the_user_says_so() {
    let (dir, path) = folder_with_image_naming("../secret.raw");
    let raw = SourceOptions { format: Some(Format::Raw), ..SourceOptions::default() };
    let mut source = image::open(&path, &raw).unwrap();
    assert_eq!(source.format(), "raw");
    assert_same(&read_data(&mut *source, READ_BYTES).unwrap(), &fs::read(&path).unwrap(), "raw");
    // A backing file that the image says is raw is not looked into.
    let (_, inner) = text(&dir, "images/inner.qcow2");
    qemu_img(&format!("create -q -u -f qcow2 -b top.qcow2 -F raw {inner} 1M"));
    let disk = read_data(&mut *open(Path::new(&inner)).unwrap(), READ_BYTES).unwrap();
    assert!(disk.starts_with(b"QFI\xfb"));
}

#[test]
fn names_that_are_no_paths_are_refused() {
    for name in ["nbd://localhost/x", "json:{}", "fd:3"] {
        let (_dir, path) = folder_with_image_naming("PLACEHOLDERPLACEHOLDER");
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(22).position(|w| w == b"PLACEHOLDERPLACEHOLDER").unwrap();
        bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        fs::write(&path, bytes).unwrap();
        let error = open(&path).err().unwrap();
        assert!(matches!(&error, ImageError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("not a plain file name"), "{error}");
    }
    let (_dir, path) = folder_with_image_naming("missing.raw");
    let error = open(&path).err().unwrap().to_string();
    assert!(error.contains("missing.raw (backing file of") && error.contains("No such file"), "{error}");
}

#[test]
fn cycles_are_refused() {
    let dir = tempdir().unwrap();
    for (image, backing) in [("a", "b"), ("b", "c"), ("c", "a"), ("self", "self")] {
        let (_, shown) = text(&dir, image);
        qemu_img(&format!("create -q -u -f qcow2 -b {backing} -F qcow2 {shown} 1M"));
    }
    // A hard link is the same file under another name.
    fs::hard_link(dir.path().join("self"), dir.path().join("other")).unwrap();
    for image in ["a", "b", "self", "other"] {
        let error = open(&dir.path().join(image)).err().unwrap().to_string();
        assert!(error.contains("its own backing file"), "{error}");
    }
}
