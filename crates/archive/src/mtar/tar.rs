//! Where the headers of a tar archive are: v7, ustar, GNU and pax.
//!
//! A mistake costs deduplication and nothing else: all bytes are kept in order, whatever is said of them.

/// Bytes of a block.
pub(crate) const BLOCK: usize = 512;
/// Longest body of a pax header, or of a long name, that is read; a longer one counts as a file.
const BODY_MAX: u64 = 1 << 20;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// A header, or something that belongs to one.
    Header,
    /// Content of a file, or anything else.
    Data,
}

/// Reads an archive block after block.
#[derive(Default)]
pub(crate) struct Scanner {
    /// Blocks of content that are still to come.
    data: u64,
    /// Blocks of a pax header's or a long name's body that are still to come.
    body: u64,
    /// The body of a pax header that is being read, and how many bytes of its blocks count.
    pax: Option<(Vec<u8>, usize)>,
    /// The size that a pax header gives the next file.
    pax_size: Option<u64>,
    /// Whether a block follows that goes on with the map of a sparse file.
    more_map: bool,
    /// Blocks of a sparse file that come when its map has ended.
    after_map: u64,
    /// Headers that were found.
    pub headers: u64,
}

impl Scanner {
    /// Says what the next block is.
    pub fn next(&mut self, block: &[u8; BLOCK]) -> Block {
        if self.more_map {
            self.more_map = block[504] != 0;
            if !self.more_map {
                self.data = self.after_map;
            }
            return Block::Header;
        }
        if self.body > 0 {
            self.body -= 1;
            if let Some((body, _)) = &mut self.pax {
                body.extend_from_slice(block);
            }
            if self.body == 0 {
                self.end_of_body();
            }
            return Block::Header;
        }
        if self.data > 0 {
            self.data -= 1;
            return Block::Data;
        }
        if !is_header(block) {
            return Block::Data;
        }
        self.headers += 1;
        self.begin(block);
        Block::Header
    }

    /// Bytes of content that are to come before the next header.
    pub fn announced(&self) -> u64 {
        self.data.saturating_mul(BLOCK as u64)
    }

    /// A header has begun: what follows it?
    fn begin(&mut self, block: &[u8; BLOCK]) {
        let size = number(&block[124..136]).unwrap_or(0);
        match block[156] {
            kind @ (b'x' | b'g' | b'X' | b'L' | b'K') if size <= BODY_MAX => {
                self.body = blocks(size);
                self.pax = matches!(kind, b'x' | b'X').then(|| (Vec::new(), size as usize));
                if self.body == 0 {
                    self.end_of_body();
                }
            }
            // Links, devices, directories and pipes have no content, whatever their size says.
            b'1'..=b'6' => self.pax_size = None,
            b'S' => {
                self.after_map = blocks(self.pax_size.take().unwrap_or(size));
                self.more_map = block[482] != 0;
                if !self.more_map {
                    self.data = self.after_map;
                }
            }
            _ => self.data = blocks(self.pax_size.take().unwrap_or(size)),
        }
    }

    fn end_of_body(&mut self) {
        if let Some((body, len)) = self.pax.take() {
            self.pax_size = pax_size(&body[..len.min(body.len())]);
        }
    }
}

/// Blocks that so many bytes take.
fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64)
}

/// Whether a block has the checksum of a header: the sum of its bytes, signed or not, with blanks for the checksum.
fn is_header(block: &[u8; BLOCK]) -> bool {
    let Some(expected) = number(&block[148..156]) else { return false };
    let field = |n: usize| (148..156).contains(&n);
    let sum = |of: fn(u8) -> i64| -> i64 {
        block.iter().enumerate().map(|(n, b)| if field(n) { i64::from(b' ') } else { of(*b) }).sum()
    };
    let expected = i64::try_from(expected).unwrap_or(-1);
    // A block of zeros has no checksum: an empty field is no number.
    expected == sum(i64::from) || expected == sum(|b| i64::from(b as i8))
}

/// A number of a header: octal digits, or, with the highest bit set, 256 as its base. `None` where it is neither.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (high, low) = field.split_at(field.len() - 8);
        let is_large = high.iter().skip(1).any(|b| *b != 0) || high.first() != Some(&0x80);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(low);
        return (!is_large).then(|| u64::from_be_bytes(bytes));
    }
    let text = field.iter().skip_while(|b| **b == b' ');
    let mut digits = 0;
    let mut value = 0u64;
    for b in text {
        match b {
            b'0'..=b'7' => {
                value = value.checked_mul(8)?.checked_add(u64::from(b - b'0'))?;
                digits += 1;
            }
            b' ' | 0 => break,
            _ => return None,
        }
    }
    (digits > 0).then_some(value)
}

/// The size that a pax header gives: its last record `LENGTH size=NUMBER\n`.
fn pax_size(mut body: &[u8]) -> Option<u64> {
    let mut size = None;
    while !body.is_empty() {
        let blank = body.iter().position(|b| *b == b' ')?;
        let len: usize = std::str::from_utf8(&body[..blank]).ok()?.parse().ok()?;
        let record = body.get(blank + 1..len)?.strip_suffix(b"\n")?;
        if let Some(value) = record.strip_prefix(b"size=") {
            size = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
        }
        body = &body[len..];
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, size: &[u8]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..4].copy_from_slice(b"file");
        block[124..124 + size.len()].copy_from_slice(size);
        block[156] = kind;
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|b| u64::from(*b)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }

    fn kinds(blocks: &[[u8; BLOCK]]) -> String {
        let mut scanner = Scanner::default();
        blocks.iter().map(|b| if scanner.next(b) == Block::Header { 'h' } else { 'd' }).collect()
    }

    fn body(text: &[u8]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..text.len()].copy_from_slice(text);
        block
    }

    #[test]
    fn files_have_a_header_and_as_many_blocks_as_their_size_says() {
        let data = [7; BLOCK];
        let (file, empty) = (header(b'0', b"00000001001"), header(b'0', b"00000000000"));
        assert_eq!(kinds(&[file, data, data, empty, file, file, data]), "hddhhdd");
        // A directory has none, although it says a size; what is no header after it is data.
        assert_eq!(kinds(&[header(b'5', b"00000001001"), data, file, data, data]), "hdhdd");
        let mut large = [0; 12];
        large[0] = 0x80;
        large[10..].copy_from_slice(&[4, 1]);
        assert_eq!(kinds(&[header(b'0', &large), data, data, data, data]), "hdddd");
        large[1] = 1;
        assert_eq!(number(&large), None);
    }

    #[test]
    fn what_belongs_to_a_header_goes_with_it() {
        let data = [7; BLOCK];
        let file = header(b'0', b"00000000001");
        let pax = body(b"22 path=abcdefghijklm\n13 size=1024\n");
        assert_eq!(kinds(&[header(b'x', b"00000000043"), pax, file, data, data, file, data]), "hhhddhd");
        assert_eq!(kinds(&[header(b'L', b"00000001001"), data, data, file, data]), "hhhhd");
        let mut sparse = header(b'S', b"00000000001");
        sparse[482] = 1;
        let sum: u64 = sparse
            .iter()
            .enumerate()
            .map(|(n, b)| if (148..156).contains(&n) { 32 } else { u64::from(*b) })
            .sum();
        sparse[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let mut more = [0; BLOCK];
        more[504] = 1;
        assert_eq!(kinds(&[sparse, more, [0; BLOCK], data, file, data]), "hhhdhd");
    }

    #[test]
    fn nothing_else_is_a_header() {
        assert_eq!(kinds(&[[0; BLOCK], [1; BLOCK], [0xff; BLOCK], [b' '; BLOCK]]), "dddd");
        let mut wrong = header(b'0', b"00000000001");
        wrong[0] ^= 1;
        assert_eq!(kinds(&[wrong]), "d");
        for pax in [&b"x"[..], b"9999999999 size=1\n", b"5 a", b"11 size=-1\n", b"0 size=1\n"] {
            assert_eq!(pax_size(pax), None);
        }
    }
}
