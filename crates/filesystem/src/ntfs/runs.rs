//! Mapping pairs: where the clusters of a stream lie.

/// A cluster of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Vcn(pub u64);

/// A cluster of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lcn(pub u64);

/// Clusters of a stream that lie one behind the other, or nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first cluster of the stream.
    pub first: Vcn,
    /// How many, never 0.
    pub clusters: u64,
    /// The first cluster on the volume; `None` for a hole.
    pub place: Option<Lcn>,
}

impl Run {
    /// One behind its last cluster of the stream.
    pub fn end(&self) -> u64 {
        self.first.0 + self.clusters
    }
}

/// Appends the runs of `pairs` to `runs`, the first of them at `first`, on a volume of `volume_clusters`.
/// Neighbours are put together. Says what is wrong with pairs that make no sense.
pub(super) fn decode(
    pairs: &[u8],
    first: Vcn,
    volume_clusters: u64,
    runs: &mut Vec<Run>,
) -> Result<(), String> {
    let mut rest = pairs;
    let mut next = first.0;
    let mut previous = 0i64;
    while let Some((&sizes, after)) = rest.split_first().filter(|(sizes, _)| **sizes != 0) {
        let (len_bytes, place_bytes) = (usize::from(sizes & 0xf), usize::from(sizes >> 4));
        let cut = || format!("the mapping pair {sizes:#x} at cluster {next:#x} of the stream is cut off");
        let (len, after) = after.split_at_checked(len_bytes).ok_or_else(cut)?;
        let (delta, after) = after.split_at_checked(place_bytes).ok_or_else(cut)?;
        let odd =
            || format!("the mapping pair {sizes:#x} {len:x?} {delta:x?} at cluster {next:#x} of the stream");
        let clusters = signed(len).and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(odd)?;
        let end = next.checked_add(clusters).filter(|end| *end <= i64::MAX as u64).ok_or_else(odd)?;
        let place = if delta.is_empty() {
            None
        } else {
            previous = signed(delta).and_then(|delta| previous.checked_add(delta)).ok_or_else(odd)?;
            let lcn = u64::try_from(previous).map_err(|_| odd())?;
            if lcn.checked_add(clusters).is_none_or(|end| end > volume_clusters) {
                return Err(format!("{clusters} clusters at {lcn:#x} of a volume of {volume_clusters:#x}"));
            }
            Some(Lcn(lcn))
        };
        push(runs, Run { first: Vcn(next), clusters, place });
        (next, rest) = (end, after);
    }
    Ok(())
}

fn push(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut() {
        let goes_on = match (last.place, run.place) {
            (Some(a), Some(b)) => a.0 + last.clusters == b.0,
            (None, None) => true,
            _ => false,
        };
        if goes_on && last.end() == run.first.0 {
            last.clusters += run.clusters;
            return;
        }
    }
    runs.push(run);
}

/// A little-endian number of up to 8 bytes; `None` if there are more, or none.
fn signed(bytes: &[u8]) -> Option<i64> {
    let last = *bytes.last()?;
    let mut whole = [if last & 0x80 == 0 { 0 } else { 0xff }; 8];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(pairs: &[u8]) -> Result<Vec<(u64, u64, Option<u64>)>, String> {
        let mut runs = Vec::new();
        decode(pairs, Vcn(0), 0x10000, &mut runs)?;
        Ok(runs.iter().map(|r| (r.first.0, r.clusters, r.place.map(|l| l.0))).collect())
    }

    #[test]
    fn places_count_from_the_one_before() {
        let pairs = [0x21, 0x18, 0x34, 0x56, 0x01, 0x08, 0x11, 0x04, 0xfc, 0x12, 0x00, 0x01, 0x7f, 0, 0xff];
        assert_eq!(
            runs(&pairs).expect("good pairs"),
            [(0, 0x18, Some(0x5634)), (0x18, 8, None), (0x20, 4, Some(0x5630)), (0x24, 0x100, Some(0x56af))]
        );
        assert_eq!(
            runs(&[0x11, 1, 10, 0x11, 2, 1, 0x01, 3, 0x01, 4]).expect("neighbours"),
            [(0, 3, Some(10)), (3, 7, None)]
        );
        assert_eq!(runs(&[]).expect("nothing"), []);
    }

    #[test]
    fn pairs_that_make_no_sense_are_refused() {
        let wrong: [&[u8]; 8] = [
            &[0x11, 1],
            &[0x11],
            &[0x10, 1],
            &[0x11, 0, 5],
            &[0x11, 0xff, 5],
            &[0x11, 1, 0xff],
            &[0x31, 1, 0, 0, 1],
            &[0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        for pairs in wrong {
            assert!(runs(pairs).is_err(), "{pairs:x?}");
        }
        let huge = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
        assert!(runs(&[&huge[..], &[0x01, 1]].concat()).is_err());
    }
}
