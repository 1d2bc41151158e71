//! What a disk holds that stands on a snapshot.

use super::error::io_error;
use super::snapshot::SnapshotDevice;
use export::{Block, BlockDevice, Extent};
use image::Layer;
use std::io;
use std::ops::Range;

/// Takes the parts of a range, in order, until it says that it needs no more.
type EachLayer<'a> = &'a mut dyn FnMut(Range<u64>, Layer) -> bool;

/// The extents of a range: `layers` tells which of them the snapshot has.
pub fn extents(
    snapshot: &SnapshotDevice,
    layers: impl FnOnce(EachLayer<'_>) -> image::Result<()>,
    each: &mut dyn FnMut(Extent) -> bool,
) -> io::Result<()> {
    let mut below = Ok(());
    let mut goes_on = true;
    let found = layers(&mut |range, layer| {
        match layer {
            Layer::Data => goes_on = each(Extent { range, block: Block::Data }),
            Layer::Zeros => goes_on = each(Extent { range, block: Block::Hole }),
            Layer::Base => {
                let end = range.end;
                below = snapshot.extents(range, &mut |mut extent| {
                    extent.range.end = extent.range.end.min(end);
                    goes_on = each(extent);
                    goes_on
                });
            }
        }
        goes_on && below.is_ok()
    });
    found.map_err(io_error).and(below)
}
