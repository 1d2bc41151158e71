//! Pointers to blocks: twelve in the inode, then blocks of pointers, of pointers to these, and so on.

use super::blocks::BlockNo;
use super::extent_list::ExtentList;
use crate::bytes::le32;
use crate::error::Result;

const POINTER_BYTES: usize = 4;
/// Pointers in the inode that lead to data.
const DIRECT: usize = 12;
/// Those behind them: to a block of pointers, and to two and three levels of them.
const LEVELS: u32 = 3;

/// Reads all pointers of the inode.
pub(super) fn walk(list: &mut ExtentList) -> Result<()> {
    let map = *list.inode.map();
    add_all(list, &map[..DIRECT * POINTER_BYTES], 0)?;
    let mut first = DIRECT as u64;
    for level in 1..=LEVELS {
        let pointer = le32(&map, (DIRECT + level as usize - 1) * POINTER_BYTES).unwrap_or(0);
        visit(list, pointer, level, first)?;
        first += reach(list, level);
    }
    Ok(())
}

/// Blocks that a pointer of this level leads to.
fn reach(list: &ExtentList, level: u32) -> u64 {
    1 << ((list.blocks.bits() - 2) * level)
}

/// Reads the block of pointers at `pointer` and all below it; they map the file from block `first` on.
fn visit(list: &mut ExtentList, pointer: u32, level: u32, first: u64) -> Result<()> {
    if pointer == 0 || first >= list.file_blocks() {
        return Ok(());
    }
    let no = BlockNo(pointer.into());
    let inode = list.inode.no.0;
    list.blocks.check(no, 1, &|| format!("the pointers from block {first} of inode {inode} on"))?;
    list.spend(1)?;
    let block = list.blocks.block(no)?;
    if level == 1 {
        return add_all(list, &block, first);
    }
    let each = reach(list, level - 1);
    for (nth, pointer) in pointers(&block).enumerate() {
        visit(list, pointer, level - 1, first + nth as u64 * each)?;
    }
    Ok(())
}

fn pointers(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(POINTER_BYTES).map(|p| le32(p, 0).unwrap_or(0))
}

/// Takes pointers to data, runs of them at once.
fn add_all(list: &mut ExtentList, bytes: &[u8], first: u64) -> Result<()> {
    let wanted = list.file_blocks().saturating_sub(first).min(u32::MAX.into());
    let mut run: Option<(u64, u64, u64)> = None;
    for (nth, pointer) in pointers(bytes).take(wanted as usize).enumerate() {
        let (at, pointer) = (first + nth as u64, u64::from(pointer));
        run = match run {
            Some((from, start, len)) if pointer == start + len && pointer != 0 => {
                Some((from, start, len + 1))
            }
            before => {
                add(list, before)?;
                (pointer != 0).then_some((at, pointer, 1))
            }
        };
    }
    add(list, run)
}

/// Takes a run: where it is in the file and in the volume, and its length.
fn add(list: &mut ExtentList, run: Option<(u64, u64, u64)>) -> Result<()> {
    let Some((from, start, len)) = run else { return Ok(()) };
    list.add(from, len, Some(BlockNo(start)))
}
