//! Disks that tests read.

#![allow(dead_code, reason = "each test uses some of them")]

use filesystem::{Disk, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// A disk in a file.
pub struct FileDisk(File);

impl FileDisk {
    pub fn open(path: &Path) -> FileDisk {
        FileDisk(File::open(path).expect("cannot open the image"))
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.0.metadata().expect("cannot stat the image").len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        Ok(self.0.read_exact_at(buf, offset)?)
    }
}

/// A disk in a file that counts how often it is read.
pub struct CountingDisk {
    disk: FileDisk,
    pub reads: AtomicU64,
}

impl CountingDisk {
    pub fn open(path: &Path) -> CountingDisk {
        CountingDisk { disk: FileDisk::open(path), reads: AtomicU64::new(0) }
    }
}

impl Disk for CountingDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read_at(offset, buf)
    }
}

/// A disk in memory.
pub struct Memory(pub Vec<u8>);

impl Disk for Memory {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let Some(bytes) = self.0.get(at..).and_then(|b| b.get(..buf.len())) else {
            panic!("{} bytes at {offset} were asked for, of {}", buf.len(), self.0.len());
        };
        buf.copy_from_slice(bytes);
        Ok(())
    }
}
