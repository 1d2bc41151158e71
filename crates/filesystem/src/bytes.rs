//! Fields of structures in memory. All of them say `None` beyond the end.

/// Bytes `at..at + N`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Defines readers of one integer type in both orders of bytes.
macro_rules! integers {
    ($($int:ty, $little:ident, $big:ident;)*) => {$(
        /// A little-endian integer.
        #[allow(dead_code, reason = "each file system uses some of them")]
        pub(crate) fn $little(bytes: &[u8], at: usize) -> Option<$int> {
            array(bytes, at).map(<$int>::from_le_bytes)
        }

        /// A big-endian integer.
        #[allow(dead_code, reason = "each file system uses some of them")]
        pub(crate) fn $big(bytes: &[u8], at: usize) -> Option<$int> {
            array(bytes, at).map(<$int>::from_be_bytes)
        }
    )*};
}

integers! {
    u16, le16, be16;
    u32, le32, be32;
    u64, le64, be64;
}
