//! Far matches: parts of a block that are equal to earlier parts of it, beyond the window of a compressor.

use crate::bytes::{In, Malformed, Out, Result};

/// The shortest match that an archive has.
pub const MATCH_BYTES_MIN: usize = 8;
/// The level of zstd that matches are compressed with.
const LEVEL: i32 = 9;
/// The longest varint of a distance within a block.
const DISTANCE_BYTES_MAX: usize = 4;
/// All bits of a byte of a varint but the one that says that more bytes follow.
const LOW_BITS: u8 = 0x7f;

/// The matches of a block in their order, as they are found.
#[derive(Default)]
pub struct FarMatches {
    count: u32,
    /// Twice two varints for each.
    lengths: Out,
    /// The first bytes of the varints of all distances, their second ones, and so on.
    distances: [Vec<u8>; DISTANCE_BYTES_MAX],
    last: u32,
}

/// A part of a block that is equal to an earlier part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FarMatch {
    /// Bytes between the match before it and this one: they are literals.
    pub literals: u32,
    /// How many bytes are equal, at least [`MATCH_BYTES_MIN`].
    pub bytes: u32,
    /// How far before it the other part begins. The two may overlap.
    pub distance: u32,
}

impl FarMatches {
    /// Adds a match.
    pub fn push(&mut self, FarMatch { literals, bytes, distance }: FarMatch) {
        debug_assert!(bytes as usize >= MATCH_BYTES_MIN && distance > 0 && distance < 1 << 28);
        let is_same = distance == self.last;
        self.count += 1;
        self.lengths.varint(literals.into());
        self.lengths.varint(u64::from(bytes) << 1 | u64::from(is_same));
        if is_same {
            return;
        }
        self.last = distance;
        let mut rest = distance;
        for plane in &mut self.distances {
            let low = rest as u8 & LOW_BITS;
            rest >>= 7;
            plane.push(if rest > 0 { low | !LOW_BITS } else { low });
            if rest == 0 {
                break;
            }
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The begin of a block's body: the head and the matches. Literals follow, so many before they are compressed.
    pub fn encode(&self, literal_bytes: u32) -> Vec<u8> {
        let planes = self.distances.iter().map(Vec::as_slice);
        let raw = std::iter::once(self.lengths.0.as_slice()).chain(planes).collect::<Vec<_>>().concat();
        let mut packed = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        // It has room for whatever comes of it.
        zstd_safe::compress(&mut packed, &raw, LEVEL).expect("a buffer of the bound's length");
        let mut out = Out::default();
        for field in [self.count, raw.len() as u32, packed.len() as u32, literal_bytes] {
            out.u32(field);
        }
        out.bytes(&packed);
        out.0
    }
}

/// What a block's body begins with, if it has matches.
pub struct FarBody {
    /// Literals: what is in no match, in its order.
    pub literal_bytes: u32,
    count: u32,
    raw: Vec<u8>,
}

impl FarBody {
    /// Reads the body of a block whose content has this length. Returns also the literals as they are stored.
    pub fn decode(body: &[u8], content_bytes: u32) -> Result<(FarBody, &[u8])> {
        let mut fields = In::new(body);
        let (count, raw_bytes) = (fields.u32()?, fields.u32()?);
        let (packed_bytes, literal_bytes) = (fields.u32()?, fields.u32()?);
        // A match takes no more bytes than it stands for.
        let matched = u64::from(content_bytes).checked_sub(literal_bytes.into());
        let most = u64::from(count) * MATCH_BYTES_MIN as u64;
        if matched.is_none_or(|matched| most > matched || u64::from(raw_bytes) > matched) {
            return Err(Malformed::new(format!(
                "{count} matches in {raw_bytes} bytes, and {literal_bytes} literals, of {content_bytes} bytes"
            )));
        }
        let packed = fields.bytes(packed_bytes as usize)?;
        let mut raw = Vec::with_capacity(raw_bytes as usize);
        let done = zstd_safe::decompress(&mut raw, packed);
        if done.is_err() || raw.len() != raw_bytes as usize {
            return Err(Malformed::new("the matches of a block cannot be decompressed"));
        }
        let literals = fields.bytes(fields.remaining())?;
        Ok((FarBody { literal_bytes, count, raw }, literals))
    }

    /// The matches in their order.
    pub fn matches(&self) -> Result<impl Iterator<Item = FarMatch> + '_> {
        let mut fields = In::new(&self.raw);
        let mut distances = 0;
        for _ in 0..self.count {
            fields.varint32()?;
            distances += usize::from(fields.varint32()? & 1 == 0);
        }
        let (lengths, mut rest) = self.raw.split_at(self.raw.len() - fields.remaining());
        let mut planes = [&[][..]; DISTANCE_BYTES_MAX];
        for plane in &mut planes {
            (*plane, rest) = rest
                .split_at_checked(distances)
                .ok_or_else(|| Malformed::new("distances of matches are missing"))?;
            distances = plane.iter().filter(|byte| **byte & !LOW_BITS != 0).count();
        }
        if distances > 0 || !rest.is_empty() {
            return Err(Malformed::new("distances of matches that are too long, or too many"));
        }
        Ok(Matches { fields: In::new(lengths), planes, distance: 0, left: self.count })
    }
}

/// Goes through matches whose fields are known to be there.
struct Matches<'a> {
    fields: In<'a>,
    planes: [&'a [u8]; DISTANCE_BYTES_MAX],
    distance: u32,
    left: u32,
}

impl Iterator for Matches<'_> {
    type Item = FarMatch;

    fn next(&mut self) -> Option<FarMatch> {
        self.left = self.left.checked_sub(1)?;
        let literals = self.fields.varint32().ok()?;
        let bytes = self.fields.varint32().ok()?;
        if bytes & 1 == 0 {
            self.distance = 0;
            for (n, plane) in self.planes.iter_mut().enumerate() {
                let (byte, rest) = plane.split_first()?;
                *plane = rest;
                self.distance |= u32::from(byte & LOW_BITS) << (7 * n);
                if byte & !LOW_BITS == 0 {
                    break;
                }
            }
        }
        Some(FarMatch { literals, bytes: bytes >> 1, distance: self.distance })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn matches_come_back(found in proptest::collection::vec((0u32..300, 8u32..300, 1u32..1 << 28, any::<bool>()), 0..60)) {
            let (mut matches, mut expected, mut last) = (FarMatches::default(), Vec::new(), 1);
            for (literals, bytes, distance, same) in found {
                last = if same { last } else { distance };
                expected.push(FarMatch { literals, bytes, distance: last });
                matches.push(*expected.last().unwrap());
            }
            let literal_bytes: u32 = expected.iter().map(|found| found.literals).sum();
            let content_bytes = literal_bytes + expected.iter().map(|found| found.bytes).sum::<u32>();
            let body = [&matches.encode(literal_bytes)[..], b"literals"].concat();
            let (read, literals) = FarBody::decode(&body, content_bytes).unwrap();
            prop_assert_eq!((read.literal_bytes, literals), (literal_bytes, &b"literals"[..]));
            prop_assert_eq!(read.matches().unwrap().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn garbage_never_panics(raw in proptest::collection::vec(any::<u8>(), 0..60), count in 0u32..30) {
            let mut packed = Vec::with_capacity(200);
            zstd_safe::compress(&mut packed, &raw, 1).unwrap();
            let fields = [count, raw.len() as u32, packed.len() as u32, 0].map(u32::to_le_bytes).concat();
            let body = [fields, packed].concat();
            if let Ok((body, _)) = FarBody::decode(&body, 1000) {
                if let Ok(matches) = body.matches() {
                    prop_assert_eq!(matches.count(), count as usize, "what was checked is there");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut matches = FarMatches::default();
        assert_eq!(matches.count(), 0);
        matches.push(FarMatch { literals: 10, bytes: 20, distance: 5 });
        let body = matches.encode(10);
        assert_eq!(FarBody::decode(&body, 30).unwrap().0.matches().unwrap().count(), 1);
        for wrong in [9, 12, 17] {
            assert!(FarBody::decode(&body, wrong).is_err(), "{wrong}");
        }
        for cut in 0..body.len() {
            assert!(FarBody::decode(&body[..cut], 30).is_err(), "{cut}");
        }
        // More or fewer matches than it has.
        for count in [0u32, 2] {
            let mut wrong = body.clone();
            wrong[..4].copy_from_slice(&count.to_le_bytes());
            let read = FarBody::decode(&wrong, 3000);
            assert!(read.is_err() || read.unwrap().0.matches().is_err(), "{count}");
        }
    }
}
