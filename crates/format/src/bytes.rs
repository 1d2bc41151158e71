//! Reading and writing little-endian fields and variable-length integers, with bounds checked.

/// The result of decoding.
pub type Result<T> = std::result::Result<T, Malformed>;

/// Bytes that are not what they should be. The caller adds which object they came from.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Malformed {
    /// What is wrong, with the values seen.
    pub why: String,
    /// Not damage: written by a newer program.
    pub newer: bool,
}

impl Malformed {
    /// A complaint.
    pub fn new(why: impl Into<String>) -> Self {
        Malformed { why: why.into(), newer: false }
    }

    /// Something of a version or with a feature that this program does not know.
    pub fn newer(why: impl Into<String>) -> Self {
        Malformed { why: why.into(), newer: true }
    }
}

/// Memory that a text takes beside its bytes: what the allocator adds.
pub(crate) const STRING_BYTES: usize = 32;

/// Appends fields to a buffer.
#[derive(Default)]
pub(crate) struct Out(pub Vec<u8>);

impl Out {
    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.0.push(v);
    }
    /// Two bytes, little endian.
    pub fn u16(&mut self, v: u16) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// Four bytes, little endian.
    pub fn u32(&mut self, v: u32) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// Eight bytes, little endian.
    pub fn u64(&mut self, v: u64) {
        self.0.extend_from_slice(&v.to_le_bytes());
    }
    /// Bytes as they are, without their number.
    pub fn bytes(&mut self, v: &[u8]) {
        self.0.extend_from_slice(v);
    }
    /// LEB128: seven bits a byte, low bits first, the high bit set on all but the last.
    pub fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }
    /// Zigzag, then [`Out::varint`].
    pub fn signed(&mut self, v: i64) {
        self.varint(((v << 1) ^ (v >> 63)) as u64);
    }
    /// The length in bytes as a varint, then the UTF-8.
    pub fn string(&mut self, v: &str) {
        self.varint(v.len() as u64);
        self.bytes(v.as_bytes());
    }
}

/// Takes fields from a buffer.
///
/// A few bytes may announce what takes many times as much in memory: whatever grows with what was read is charged to a
/// budget before memory is asked for.
pub(crate) struct In<'a> {
    rest: &'a [u8],
    budget: usize,
    budget_left: usize,
}

impl<'a> In<'a> {
    /// Fields of fixed lengths, which take no memory.
    pub fn new(rest: &'a [u8]) -> Self {
        Self::within(rest, 0)
    }
    /// Fields that may take so many bytes of memory.
    pub fn within(rest: &'a [u8], budget: usize) -> Self {
        In { rest, budget, budget_left: budget }
    }
    /// Takes memory for `n` items out of the budget.
    pub fn charge(&mut self, n: usize, item_bytes: usize) -> Result<()> {
        let left = n.checked_mul(item_bytes).and_then(|bytes| self.budget_left.checked_sub(bytes));
        self.budget_left =
            left.ok_or_else(|| Malformed::new(format!("takes more than {} bytes of memory", self.budget)))?;
        Ok(())
    }
    /// The number of items of a list that take at least `item_bytes` each as stored, and room for them.
    pub fn list<T>(&mut self, item_bytes: usize) -> Result<(usize, Vec<T>)> {
        let n = self.count(item_bytes)?;
        self.charge(n, size_of::<T>())?;
        Ok((n, Vec::with_capacity(n)))
    }
    /// Bytes that were not yet read.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }
    /// The next `n` bytes; an error where fewer are left.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let Some((head, tail)) = self.rest.split_at_checked(n) else {
            return Err(self.too_short(n));
        };
        self.rest = tail;
        Ok(head)
    }
    /// The next `N` bytes. No `copy_from_slice`, which calls `memcpy` for a single byte where it is not inlined.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some((head, tail)) = self.rest.split_first_chunk() else {
            return Err(self.too_short(N));
        };
        self.rest = tail;
        Ok(*head)
    }
    #[cold]
    fn too_short(&self, n: usize) -> Malformed {
        Malformed::new(format!("{n} bytes expected, {} left", self.rest.len()))
    }
    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }
    /// Two bytes, little endian.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes, little endian.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes, little endian.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// What [`Out::varint`] wrote; an error where it does not fit 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        // Most have one byte.
        if let [b @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*b));
        }
        self.long_varint()
    }
    fn long_varint(&mut self) -> Result<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            let low = u64::from(b & 0x7f);
            if shift == 63 && low > 1 {
                break;
            }
            v |= low << shift;
            if b & 0x80 == 0 {
                return Ok(v);
            }
        }
        Err(Malformed::new("an integer of more than 64 bits"))
    }
    /// What [`Out::varint`] wrote; an error where it does not fit 32 bits.
    pub fn varint32(&mut self) -> Result<u32> {
        let v = self.varint()?;
        u32::try_from(v).map_err(|_| Malformed::new(format!("{v} does not fit 32 bits")))
    }
    /// What [`Out::signed`] wrote.
    pub fn signed(&mut self) -> Result<i64> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }
    /// A number of items that take at least `item_bytes` each: never more than the bytes left can hold.
    pub fn count(&mut self, item_bytes: usize) -> Result<usize> {
        let v = self.varint()?;
        let most = self.rest.len() / item_bytes.max(1);
        match usize::try_from(v) {
            Ok(n) if n <= most => Ok(n),
            _ => Err(Malformed::new(format!("{v} items announced, room for {most}"))),
        }
    }
    /// What [`Out::string`] wrote; an error where it is not UTF-8.
    pub fn string(&mut self) -> Result<String> {
        let n = self.count(1)?;
        self.charge(1, STRING_BYTES)?;
        self.charge(n, 1)?;
        String::from_utf8(self.bytes(n)?.to_vec()).map_err(|_| Malformed::new("a text that is not UTF-8"))
    }
    /// An error where bytes are left.
    pub fn end(&self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new(format!("{} bytes too many", self.rest.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_come_back(v: u64, s: i64) {
            let mut o = Out::default();
            o.varint(v);
            o.signed(s);
            let mut i = In::new(&o.0);
            prop_assert_eq!(i.varint().unwrap(), v);
            prop_assert_eq!(i.signed().unwrap(), s);
            i.end().unwrap();
        }

        #[test]
        fn garbage_never_panics(b in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut i = In::new(&b);
            let _ = (i.varint(), i.signed(), i.count(3), i.string(), i.u64(), i.end());
        }

        #[test]
        fn lists_stay_within_their_budget(n in 0u64..200, budget in 0usize..2000) {
            let mut o = Out::default();
            o.varint(n);
            o.0.resize(o.0.len() + n as usize, 0);
            let list = In::within(&o.0, budget).list::<u64>(1);
            prop_assert_eq!(list.is_ok(), n as usize * 8 <= budget);
        }
    }

    #[test]
    fn an_integer_of_more_than_64_bits_is_refused() {
        let b = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(In::new(&b).varint().is_err());
    }
}
