//! How torn the free space of a file system is: `e2freefrag` on a small ext4 file system made for this, or, where that
//! is not possible, how torn the files of a store are.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{ensure, Context as _, Result};
use serde::Serialize;

use crate::layout::extents::extents;
use crate::run::is_installed;

/// Bytes of pieces by their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// Pieces in it are smaller than this.
    pub below_bytes: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A file system of its own in a file. Unmounted and removed when dropped.
pub struct SmallFileSystem {
    image: PathBuf,
    dir: PathBuf,
    mounted: bool,
}

impl SmallFileSystem {
    /// Makes and mounts an ext4 file system of `bytes` below `space`; `None` where that is not possible here.
    pub fn mount(space: &Path, bytes: u64) -> Result<Option<Self>> {
        let tools = ["mkfs.ext4", "mount", "umount", "e2freefrag"];
        if !rustix::process::geteuid().is_root() || !tools.into_iter().all(is_installed) {
            return Ok(None);
        }
        let mut small = Self { image: space.join("small.ext4"), dir: space.join("small"), mounted: false };
        File::create(&small.image)?.set_len(bytes)?;
        fs::create_dir_all(&small.dir)?;
        let quiet = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made =
            quiet(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0", "-b", "4096"]).arg(&small.image));
        small.mounted = made
            && quiet(Command::new("mount").args(["-o", "loop,discard"]).arg(&small.image).arg(&small.dir));
        Ok(small.mounted.then_some(small))
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts it and tells its free extents.
    pub fn free_extents(mut self) -> Result<Vec<SizeClass>> {
        self.unmount()?;
        let output = Command::new("e2freefrag").arg(&self.image).output()?;
        ensure!(output.status.success(), "e2freefrag: {}", String::from_utf8_lossy(&output.stderr).trim());
        parse(&String::from_utf8_lossy(&output.stdout))
    }

    fn unmount(&mut self) -> Result<()> {
        if std::mem::take(&mut self.mounted) {
            let output = Command::new("umount").arg(&self.dir).output()?;
            ensure!(output.status.success(), "umount: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{} stays mounted: {error}", self.dir.display());
            return;
        }
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.dir);
    }
}

/// The histogram that `e2freefrag` prints: `    4K...    8K-  :   65   65   0.01%`.
fn parse(text: &str) -> Result<Vec<SizeClass>> {
    let block_bytes = text.lines().find_map(|line| line.strip_prefix("Blocksize:"));
    let block_bytes: Option<u64> = block_bytes.and_then(|b| b.split_whitespace().next()?.parse().ok());
    let block_bytes = block_bytes.context("e2freefrag tells no block size")?;
    let mut classes = Vec::new();
    for line in text.lines() {
        let Some((range, counts)) = line.split_once(':') else { continue };
        let Some((_, below)) = range.split_once("...") else { continue };
        let below_bytes = size(below.trim().trim_end_matches('-'));
        let blocks: Option<u64> = counts.split_whitespace().nth(1).and_then(|n| n.parse().ok());
        let (Some(below_bytes), Some(blocks)) = (below_bytes, blocks) else { continue };
        classes.push(SizeClass { below_bytes, bytes: blocks * block_bytes });
    }
    ensure!(!classes.is_empty(), "e2freefrag printed no histogram: {text}");
    Ok(classes)
}

fn size(text: &str) -> Option<u64> {
    let shift = match text.chars().last()? {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => return None,
    };
    Some(text[..text.len() - 1].parse::<u64>().ok()? << shift)
}

/// The pieces in which the data of a store lies, by size; `None` where the file system does not tell.
pub fn fragments(store: &Path) -> Result<Option<Vec<SizeClass>>> {
    let mut pieces = Vec::new();
    let mut dirs = vec![store.join("objects")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "data") {
                let file = File::open(&path).with_context(|| path.display().to_string())?;
                let Some(of_file) = extents(&file)? else { return Ok(None) };
                pieces.extend(of_file.into_iter().map(|e| e.length));
            }
        }
    }
    let classes = (13..=30).map(|shift| {
        let of_class = pieces.iter().filter(|p| (1 << (shift - 1)..1_u64 << shift).contains(*p));
        SizeClass { below_bytes: 1 << shift, bytes: of_class.sum() }
    });
    Ok(Some(classes.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_is_understood() {
        let text = "Device: /dev/vda\nBlocksize: 4096 bytes\nTotal blocks: 65536\n\n\
             HISTOGRAM OF FREE EXTENT SIZES:\nExtent Size Range :  Free extents   Free Blocks  Percent\n\
             \x20   4K...    8K-  :            65            65    0.01%\n\
             \x20  64M...  128M-  :             3         50000   97.00%\n";
        let wanted = [
            SizeClass { below_bytes: 8 << 10, bytes: 65 * 4096 },
            SizeClass { below_bytes: 128 << 20, bytes: 50_000 * 4096 },
        ];
        assert_eq!(parse(text).expect("histogram"), wanted);
        assert!(parse("nothing").is_err());
    }
}
