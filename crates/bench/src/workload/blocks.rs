//! What stands in the blocks of images: which are not null, and in which ones two images differ.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{ensure, Result};

use super::BlockNo;
use crate::files::{DataRanges, BLOCK_BYTES, READ_BYTES};

const READ: u64 = READ_BYTES as u64;
const BLOCKS_IN_READ: u64 = (READ_BYTES / BLOCK_BYTES) as u64;

/// The blocks of an image that are not all zero, in order.
pub(super) fn nonzero_blocks(file: &File) -> Result<Vec<BlockNo>> {
    let mut buffer = vec![0; READ_BYTES];
    let mut found = Vec::new();
    for window in windows(&[file])? {
        let bytes = read_window(file, window, &mut buffer)?;
        let blocks = bytes.chunks(BLOCK_BYTES).zip(window * BLOCKS_IN_READ..);
        found.extend(blocks.filter(|(block, _)| !chunk::is_null(block)).map(|(_, no)| BlockNo(no)));
    }
    Ok(found)
}

/// A block in which two images differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub block: BlockNo,
    pub was_null: bool,
    pub is_null: bool,
}

/// The blocks in which two images of one length differ, in order.
pub(super) fn differences(old: &File, new: &File) -> Result<Vec<Difference>> {
    ensure!(old.metadata()?.len() == new.metadata()?.len(), "versions of a disk must have one length");
    let (mut left, mut right) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let mut found = Vec::new();
    for window in windows(&[old, new])? {
        let (a, b) = (read_window(old, window, &mut left)?, read_window(new, window, &mut right)?);
        if a == b {
            continue;
        }
        let pairs = a.chunks(BLOCK_BYTES).zip(b.chunks(BLOCK_BYTES)).zip(window * BLOCKS_IN_READ..);
        for ((a, b), no) in pairs.filter(|((a, b), _)| a != b) {
            let (was_null, is_null) = (chunk::is_null(a), chunk::is_null(b));
            found.push(Difference { block: BlockNo(no), was_null, is_null });
        }
    }
    Ok(found)
}

/// The windows of one read each, counted from 0, in which any of `files` has data.
fn windows(files: &[&File]) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for file in files {
        for (start, end) in DataRanges::new(file)? {
            all.extend(start / READ..end.div_ceil(READ));
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn read_window<'a>(file: &File, window: u64, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    let length = (file.metadata()?.len() - window * READ).min(READ) as usize;
    file.read_exact_at(&mut buffer[..length], window * READ)?;
    Ok(&buffer[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(blocks: &[(u64, u8)]) -> File {
        let file = tempfile::tempfile().expect("file");
        file.set_len(3 * READ).expect("length");
        for (no, value) in blocks {
            file.write_all_at(&[*value; BLOCK_BYTES], no * BLOCK_BYTES as u64).expect("write");
        }
        file
    }

    #[test]
    fn differences_and_data_are_found_in_order() {
        let a = image(&[(0, 1), (7, 2), (8, 0), (3000, 4)]);
        let b = image(&[(7, 3), (2000, 5), (3000, 4)]);
        let numbers: Vec<u64> = nonzero_blocks(&a).expect("scan").iter().map(|b| b.0).collect();
        assert_eq!(numbers, [0, 7, 3000]);
        let difference = |block, was_null, is_null| Difference { block: BlockNo(block), was_null, is_null };
        let wanted = [difference(0, false, true), difference(7, false, false), difference(2000, true, false)];
        assert_eq!(differences(&a, &b).expect("compare"), wanted);
    }
}
