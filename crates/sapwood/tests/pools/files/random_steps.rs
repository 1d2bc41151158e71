//! Random operations on files, in every way that programs have, against a plain model (as `fsx` does).

use super::options;
use memmap2::{Mmap, MmapMut};
use rand::rngs::StdRng;
use rand::RngExt;
use rustix::fs::{copy_file_range, fadvise, fallocate, seek, Advice, FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FILES: usize = 3;
const BLOCK: usize = 4096;
/// The longest file, beyond the place where the content of files moves to a larger map.
const LENGTH_MAX: usize = (2 << 20) + 40 * BLOCK;
/// The longest range of one operation.
const RANGE_MAX: usize = 20 * BLOCK;
/// What fits behind this is beyond the border, where one operation in four is.
const BORDER: usize = (2 << 20) - 20 * BLOCK;

/// A file, and what it should be.
struct TestFile {
    path: PathBuf,
    /// None: it is closed.
    file: Option<File>,
    model: Vec<u8>,
}

/// Files in a directory, and what they should be.
pub struct Files {
    tested: Vec<TestFile>,
    dice: StdRng,
    step: u64,
}

impl Files {
    /// Makes the files.
    pub fn new(dir: &Path, dice: StdRng) -> Self {
        let tested = |n| TestFile { path: dir.join(format!("random-{n}")), file: None, model: Vec::new() };
        let files = Files { tested: (0..FILES).map(tested).collect(), dice, step: 0 };
        files.tested.iter().for_each(|tested| drop(options().open(&tested.path).unwrap()));
        files
    }

    /// Closes all.
    pub fn close(&mut self) {
        self.tested.iter_mut().for_each(|tested| tested.file = None);
    }

    /// Makes durable what was done, of every file.
    pub fn sync(&self) {
        let open = |tested: &TestFile| File::open(&tested.path).unwrap();
        self.tested.iter().for_each(|tested| open(tested).sync_all().unwrap());
    }

    /// Compares all with the model.
    pub fn compare(&self) {
        for tested in &self.tested {
            self.is_equal(
                tested,
                "a whole file",
                &std::fs::read(&tested.path).unwrap(),
                0..tested.model.len(),
            );
        }
    }

    fn is_equal(&self, tested: &TestFile, what: &str, found: &[u8], range: Range<usize>) {
        let (step, path) = (self.step, tested.path.display());
        let expected = &tested.model[range.clone()];
        if found == expected {
            return;
        }
        assert_eq!(found.len(), expected.len(), "step {step}: {path}: {what}: length");
        let at = found.iter().zip(expected).position(|(a, b)| a != b).unwrap();
        panic!(
            "step {step}: {path}: {what}: byte {} is {}, not {}",
            range.start + at,
            found[at],
            expected[at]
        );
    }

    /// A range, often of whole blocks, that may be behind the end.
    fn range(&mut self) -> Range<usize> {
        let dice = &mut self.dice;
        let base = if dice.random_bool(0.25) { BORDER } else { 0 };
        let start: usize = base + dice.random_range(0..RANGE_MAX);
        let length = dice.random_range(1..RANGE_MAX);
        if dice.random_bool(0.4) {
            return start / BLOCK * BLOCK..start / BLOCK * BLOCK + length.div_ceil(BLOCK) * BLOCK;
        }
        start..start + length
    }

    /// Content, of which many blocks are alike.
    fn content(&mut self, length: usize) -> Vec<u8> {
        let kinds: u8 = if self.dice.random_bool(0.5) { 4 } else { 255 };
        let mut data = vec![0; length];
        for block in data.chunks_mut(BLOCK) {
            let kind = self.dice.random_range(0..kinds);
            block.iter_mut().enumerate().for_each(|(n, byte)| *byte = kind.wrapping_mul(1 + (n % 7) as u8));
        }
        data
    }

    /// One operation.
    pub fn step(&mut self) {
        self.step += 1;
        let n = self.dice.random_range(0..FILES);
        if self.tested[n].file.is_none() {
            self.tested[n].file = Some(options().open(&self.tested[n].path).unwrap());
        }
        match self.dice.random_range(0..30) {
            0..=7 => self.write(n),
            8..=11 => self.read(n),
            12..=14 => self.map(n),
            15..=16 => self.resize(n),
            17 => self.punch(n),
            18 => self.extend(n),
            19..=21 => self.direct(n),
            22..=24 => self.seek(n),
            25 => self.copy(n),
            26 => self.clone(n),
            27 => self.tested[n].file = None,
            28 => self.open(n).sync_data().unwrap(),
            _ => fadvise(self.open(n), 0, None, Advice::DontNeed).unwrap(),
        }
        if self.step % 2_000 == 0 {
            self.compare();
        }
    }

    fn open(&self, n: usize) -> &File {
        self.tested[n].file.as_ref().unwrap()
    }

    /// What the model becomes by a write.
    fn set(&mut self, n: usize, range: Range<usize>, data: &[u8]) {
        let model = &mut self.tested[n].model;
        model.resize(model.len().max(range.end), 0);
        model[range].copy_from_slice(data);
    }

    fn write(&mut self, n: usize) {
        let range = self.range();
        let data = self.content(range.len());
        if self.dice.random_bool(0.2) {
            // Where it ends, whoever says so.
            let file = options().append(true).open(&self.tested[n].path).unwrap();
            let end = self.tested[n].model.len();
            if end + data.len() <= LENGTH_MAX {
                file.write_all_at(&data, 0).unwrap();
                self.set(n, end..end + data.len(), &data);
            }
            return;
        }
        self.open(n).write_all_at(&data, range.start as u64).unwrap();
        self.set(n, range, &data);
    }

    fn read(&mut self, n: usize) {
        let range = self.range();
        let mut data = vec![1; range.len()];
        let mut done = 0;
        loop {
            match self.open(n).read_at(&mut data[done..], (range.start + done) as u64).unwrap() {
                0 => break,
                bytes => done += bytes,
            }
        }
        let end = range.end.min(self.tested[n].model.len()).max(range.start.min(self.tested[n].model.len()));
        self.is_equal(&self.tested[n], "read", &data[..done], range.start.min(end)..end);
    }

    /// Reads through memory, and changes some of it.
    fn map(&mut self, n: usize) {
        let range = self.range();
        let end = range.end.min(self.tested[n].model.len());
        if range.start >= end {
            return;
        }
        let range = range.start..end;
        let data = self.content(range.len());
        let is_read = self.dice.random_bool(0.3);
        let file = self.open(n);
        if is_read {
            // SAFETY: nobody changes the file meanwhile.
            let memory = unsafe { Mmap::map(file) }.unwrap();
            self.is_equal(&self.tested[n], "mapped", &memory[range.clone()], range);
            return;
        }
        // SAFETY: the same.
        let mut memory = unsafe { MmapMut::map_mut(file) }.unwrap();
        memory[range.clone()].copy_from_slice(&data);
        drop(memory);
        self.set(n, range, &data);
    }

    fn resize(&mut self, n: usize) {
        let length = match self.dice.random_range(0..4) {
            0 => 0,
            _ => self.range().start,
        };
        self.open(n).set_len(length as u64).unwrap();
        self.tested[n].model.resize(length, 0);
    }

    fn punch(&mut self, n: usize) {
        let range = self.range();
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.open(n), how, range.start as u64, range.len() as u64).unwrap();
        let end = range.end.min(self.tested[n].model.len());
        if range.start < end {
            self.tested[n].model[range.start..end].fill(0);
        }
    }

    /// Makes it longer, with zeros in the range or without.
    fn extend(&mut self, n: usize) {
        let range = self.range();
        let zeros = self.dice.random_bool(0.5);
        let how = if zeros { FallocateFlags::ZERO_RANGE } else { FallocateFlags::empty() };
        fallocate(self.open(n), how, range.start as u64, range.len() as u64).unwrap();
        let model = &mut self.tested[n].model;
        model.resize(model.len().max(range.end), 0);
        if zeros {
            model[range].fill(0);
        }
    }

    /// Whole blocks past the kernel's cache.
    fn direct(&mut self, n: usize) {
        let range = self.range();
        let range = range.start / BLOCK * BLOCK..range.end.div_ceil(BLOCK) * BLOCK;
        let file = options().custom_flags(OFlags::DIRECT.bits() as i32).open(&self.tested[n].path).unwrap();
        let mut space = vec![0; range.len() + BLOCK];
        let start = space.as_ptr().align_offset(BLOCK);
        let buffer = &mut space[start..start + range.len()];
        if self.dice.random_bool(0.5) {
            let data = self.content(range.len());
            buffer.copy_from_slice(&data);
            file.write_all_at(buffer, range.start as u64).unwrap();
            self.set(n, range, &data);
            return;
        }
        let bytes = file.read_at(buffer, range.start as u64).unwrap();
        let length = self.tested[n].model.len();
        let end = range.end.min(length);
        self.is_equal(&self.tested[n], "direct read", &buffer[..bytes], range.start.min(end)..end);
    }

    /// Holes are zeros, and what is no zero is found.
    fn seek(&mut self, n: usize) {
        let (start, file) = (self.range().start, self.open(n));
        let model = &self.tested[n].model;
        if start >= model.len() {
            assert_eq!(seek(file, SeekFrom::Data(start as u64)), Err(Errno::NXIO));
            return;
        }
        let hole = seek(file, SeekFrom::Hole(start as u64)).unwrap() as usize;
        assert!((start..=model.len()).contains(&hole), "step {}: hole at {hole}", self.step);
        let end = match seek(file, SeekFrom::Data(start as u64)) {
            Ok(data) => data as usize,
            Err(Errno::NXIO) => model.len(),
            Err(error) => panic!("{error}"),
        };
        assert!((start..=model.len()).contains(&end), "step {}: data at {end}", self.step);
        let lost = model[start..end].iter().position(|b| *b != 0);
        assert_eq!(
            lost,
            None,
            "step {}: data at {} is in a hole to {end}",
            self.step,
            start + lost.unwrap_or(0)
        );
    }

    /// A part of another file.
    fn copy(&mut self, n: usize) {
        let (range, to) = (self.range(), self.range().start);
        let other = (n + 1) % FILES;
        let end = range.end.min(self.tested[other].model.len());
        if range.start >= end {
            return;
        }
        let source = options().open(&self.tested[other].path).unwrap();
        let (mut read, mut written) = (range.start as u64, to as u64);
        while (read as usize) < end {
            let left = end - read as usize;
            let bytes = copy_file_range(&source, Some(&mut read), self.open(n), Some(&mut written), left);
            assert!(bytes.unwrap() > 0);
        }
        let data = self.tested[other].model[range.start..end].to_vec();
        self.set(n, to..to + data.len(), &data);
    }

    /// A file becomes the whole of another one.
    fn clone(&mut self, n: usize) {
        let other = (n + 1) % FILES;
        let source = options().open(&self.tested[other].path).unwrap();
        self.open(n).set_len(0).unwrap();
        let length = self.tested[other].model.len();
        let (mut read, mut written) = (0, 0);
        while (read as usize) < length {
            let bytes = copy_file_range(&source, Some(&mut read), self.open(n), Some(&mut written), 1 << 30);
            assert!(bytes.unwrap() > 0);
        }
        self.tested[n].model = self.tested[other].model.clone();
    }
}
