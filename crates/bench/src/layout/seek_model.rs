//! How long a disk with a moving head takes for reads at given places.
//!
//! The experiments of 2013 ran on such disks; on flash their effects shrink to little. The model gets the places at
//! which a file system really put the data, and adds up seeks, rotation and transfer of reads that are made one after
//! the other. There is no cache, no queue and no read-ahead in it: what it compares are layouts.

use serde::Serialize;

use crate::layout::extents::Extent;

/// A disk.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SeekModel {
    /// Bytes over which the longest seek leads.
    pub stroke_bytes: u64,
    /// Seek to the next track.
    pub seek_ms_min: f64,
    /// Seek over the whole stroke.
    pub seek_ms_max: f64,
    /// A seek over a part `d` of the stroke takes `min + (max - min) * d^exponent`.
    pub exponent: f64,
    /// Half a rotation.
    pub rotation_ms: f64,
    /// Reading in one piece.
    pub bytes_per_second: f64,
}

/// The disk of the paper: 8.5 ms for a seek on average, 7200 rpm, 156 MB/s. Of two places chosen at random the distance
/// has the density 2(1 - d), so that this exponent gives the average: 1 + 16 * 2 / (1.6253 * 2.6253) = 8.5.
pub const ST1000DM003: SeekModel = SeekModel {
    stroke_bytes: 1_000_000_000_000,
    seek_ms_min: 1.0,
    seek_ms_max: 17.0,
    exponent: 0.6253,
    rotation_ms: 4.17,
    bytes_per_second: 156e6,
};

/// What reads cost on the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Service {
    /// Seeks, rotation and transfer.
    pub seconds: f64,
    /// Times the head had to move or to wait.
    pub seeks: u64,
    /// Bytes wanted.
    pub bytes: u64,
}

impl SeekModel {
    /// A seek over so many bytes.
    pub fn seek_ms(&self, distance: u64) -> f64 {
        let part = (distance as f64 / self.stroke_bytes as f64).min(1.0);
        self.seek_ms_min + (self.seek_ms_max - self.seek_ms_min) * part.powf(self.exponent)
    }

    /// Reads in this order, by a head that comes from a random place.
    ///
    /// A gap forwards is passed over under the head where that is faster than seeking and waiting.
    pub fn serve(&self, reads: impl IntoIterator<Item = Extent>) -> Service {
        let (mut service, mut head) = (Service::default(), None);
        for read in reads {
            self.serve_next(&mut head, read.physical, read.length, &mut service);
        }
        service
    }

    /// The same for one more of them, read or written, by a head that is where the last one ended; `None`: anywhere.
    pub fn serve_next(&self, head: &mut Option<u64>, offset: u64, length: u64, service: &mut Service) {
        let transfer_seconds = |bytes: u64| bytes as f64 / self.bytes_per_second;
        let move_seconds = match *head {
            // A third of the stroke is the average distance of two random places.
            None => (self.seek_ms(self.stroke_bytes / 3) + self.rotation_ms) / 1e3,
            Some(at) => {
                let jump = (self.seek_ms(at.abs_diff(offset)) + self.rotation_ms) / 1e3;
                match offset.checked_sub(at) {
                    Some(gap) => jump.min(transfer_seconds(gap)),
                    None => jump,
                }
            }
        };
        service.seeks += u64::from(*head != Some(offset));
        service.seconds += move_seconds + transfer_seconds(length);
        service.bytes += length;
        *head = Some(offset + length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: SeekModel = ST1000DM003;

    fn read(physical: u64, length: u64) -> Extent {
        Extent { logical: 0, physical, length }
    }

    #[test]
    fn seeks_take_what_the_data_sheet_says() {
        assert!((DISK.seek_ms(0) - 1.0).abs() < 1e-9);
        assert!((DISK.seek_ms(DISK.stroke_bytes) - 17.0).abs() < 1e-9);
        assert!((DISK.seek_ms(3 * DISK.stroke_bytes) - 17.0).abs() < 1e-9, "no seek is longer");
        let steps = 100_000_u64;
        let average: f64 = (0..steps)
            .map(|i| {
                let part = (i as f64 + 0.5) / steps as f64;
                2.0 * (1.0 - part) * DISK.seek_ms((part * DISK.stroke_bytes as f64) as u64) / steps as f64
            })
            .sum();
        assert!((average - 8.5).abs() < 0.01, "{average}");
    }

    #[test]
    fn one_piece_costs_one_seek_however_it_is_cut() {
        let whole = DISK.serve([read(4096, 156_000_000)]);
        let cut = DISK.serve((0..1000).map(|i| read(4096 + i * 156_000, 156_000)));
        assert_eq!((whole.seeks, cut.seeks), (1, 1));
        assert!((whole.seconds - cut.seconds).abs() < 1e-9);
        assert!((1.0..1.02).contains(&whole.seconds), "{}", whole.seconds);
    }

    #[test]
    fn order_matters_and_small_gaps_are_passed_over() {
        let near = [read(0, 4096), read(8192, 4096)];
        let passed = DISK.serve(near).seconds - DISK.serve([read(0, 12_288)]).seconds;
        assert!(passed.abs() < 1e-9, "a gap of one block is read with the rest");
        let back = DISK.serve([read(8192, 4096), read(0, 4096)]);
        assert!(back.seconds > DISK.serve(near).seconds + 0.005, "backwards takes a seek and a rotation");
        let pieces = |order: &dyn Fn(u64) -> u64| {
            DISK.serve((0..1000).map(|i| read(order(i) * (100 << 20), 1 << 20))).seconds
        };
        let (sorted, scattered) = (pieces(&|i| i), pieces(&|i| i * 387 % 1000));
        assert!(scattered > 1.15 * sorted, "{scattered} {sorted}");
    }

    #[test]
    fn nothing_read_costs_nothing() {
        assert_eq!(DISK.serve([]), Service::default());
    }
}
