//! Names: short ones in code page 437, and long ones in pieces.

use crate::bytes::le16;
use crate::wtf8;

/// The characters of code page 437 from 0x80 on, each of them once.
const CODE_PAGE_437: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ', 'ô', 'ö',
    'ò', 'û', 'ù', 'ÿ', 'Ö', 'Ü', '¢', '£', '¥', '₧', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ', 'ª', 'º', '¿', '⌐',
    '¬', '½', '¼', '¡', '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕', '╣', '║', '╗', '╝', '╜', '╛',
    '┐', '└', '┴', '┬', '├', '─', '┼', '╞', '╟', '╚', '╔', '╩', '╦', '╠', '═', '╬', '╧', '╨', '╤', '╥', '╙',
    '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█', '▄', '▌', '▐', '▀', 'α', 'ß', 'Γ', 'π', 'Σ', 'σ', 'µ', 'τ', 'Φ',
    'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±', '≥', '≤', '⌠', '⌡', '÷', '≈', '°', '∙', '·', '√', 'ⁿ', '²',
    '■', '\u{a0}',
];

const LOWER_BASE: u8 = 0x08;
const LOWER_EXTENSION: u8 = 0x10;
/// Stands for 0xe5, which marks deleted entries.
const KANJI_E5: u8 = 0x05;

/// The last piece of a long name comes first, and has this bit.
const LAST_PIECE: u8 = 0x40;
const PIECE_UNITS: usize = 13;
const PIECES_MAX: u8 = 20;

/// A short name as text; `case` says which parts of it are in lower case.
pub(super) fn short(raw: &[u8; 11], case: u8) -> Vec<u8> {
    let mut raw = *raw;
    if raw[0] == KANJI_E5 {
        raw[0] = 0xe5;
    }
    let (base, extension) = raw.split_at(8);
    let mut name = text(base, case & LOWER_BASE != 0);
    let extension = text(extension, case & LOWER_EXTENSION != 0);
    if !extension.is_empty() {
        name.push('.');
        name.push_str(&extension);
    }
    name.into_bytes()
}

/// The text of a padded field of code page 437.
pub(super) fn text(field: &[u8], is_lower: bool) -> String {
    let len = field.iter().rposition(|b| *b != b' ').map_or(0, |last| last + 1);
    let char_of = |b: &u8| match b.checked_sub(0x80) {
        Some(n) => CODE_PAGE_437[usize::from(n)],
        None => char::from(*b),
    };
    let lower = |c: char| c.to_lowercase().next().filter(|_| is_lower).unwrap_or(c);
    field[..len].iter().map(char_of).map(lower).collect()
}

/// The pieces of a long name, as they come: the last one first.
#[derive(Default)]
pub(super) struct LongName {
    /// Of the short name that it belongs to.
    checksum: u8,
    /// The number of the piece that came before; 0: none is expected.
    piece: u8,
    units: Vec<u16>,
}

impl LongName {
    /// Takes the next piece. One that does not follow on makes the name void.
    pub fn push(&mut self, entry: &[u8; 32]) {
        let (order, checksum) = (entry[0], entry[13]);
        let piece = order & !LAST_PIECE;
        if order & LAST_PIECE != 0 {
            *self = LongName { checksum, piece: piece + 1, units: Vec::new() };
        }
        let follows =
            piece > 0 && piece + 1 == self.piece && piece <= PIECES_MAX && checksum == self.checksum;
        if !follows {
            *self = LongName::default();
            return;
        }
        self.piece = piece;
        let mut units = Vec::with_capacity(usize::from(piece) * PIECE_UNITS);
        for at in (1..11).chain(14..26).chain(28..32).step_by(2) {
            units.extend(le16(entry, at));
        }
        units.append(&mut self.units);
        self.units = units;
    }

    /// The name before an entry with this short name, if all of it was there.
    pub fn finish(&mut self, short: &[u8; 11]) -> Option<Vec<u8>> {
        let LongName { checksum, piece, units } = std::mem::take(self);
        if piece != 1 || checksum != sum(short) {
            return None;
        }
        let end = units.iter().position(|u| *u == 0).unwrap_or(units.len());
        Some(wtf8::from_units(&units[..end])).filter(|name| !name.is_empty())
    }
}

/// The checksum of a short name that its long name carries.
pub(super) fn sum(short: &[u8; 11]) -> u8 {
    short.iter().fold(0u8, |sum, b| sum.rotate_right(1).wrapping_add(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn short_names_are_text() {
        assert_eq!(short(b"README  TXT", 0), b"README.TXT");
        assert_eq!(short(b"README  TXT", 0x08), b"readme.TXT");
        assert_eq!(short(b"README  TXT", 0x18), b"readme.txt");
        assert_eq!(short(b"A B     C  ", 0), b"A B.C");
        assert_eq!(short(b"NOEXT      ", 0x10), b"NOEXT");
        assert_eq!(short(b"\x05\x80      \x81  ", 0), "σÇ.ü".as_bytes());
        assert_eq!(short(b"\x9a          ", 0x08), "ü".as_bytes());
        assert_eq!(CODE_PAGE_437.iter().collect::<HashSet<_>>().len(), 128);
    }

    fn piece(order: u8, checksum: u8, text: &[u16]) -> [u8; 32] {
        let mut entry = [0xff; 32];
        (entry[0], entry[11], entry[12], entry[13]) = (order, 0x0f, 0, checksum);
        let places: Vec<usize> = (1..11).chain(14..26).chain(28..32).step_by(2).collect();
        for (at, unit) in places.iter().zip(text.iter().chain(&[0])) {
            entry[*at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        entry
    }

    #[test]
    fn long_names_come_in_pieces() {
        let raw = b"LONGNA~1   ";
        let mut units: Vec<u16> = "a long name of 26 units ß".encode_utf16().collect();
        units.push(0xd83d);
        let (first, last) = units.split_at(13);
        let good = [piece(0x42, sum(raw), last), piece(1, sum(raw), first)];
        let name = |pieces: &[[u8; 32]]| {
            let mut long = LongName::default();
            pieces.iter().for_each(|p| long.push(p));
            long.finish(raw)
        };
        assert_eq!(
            name(&good).expect("a name"),
            [&b"a long name of 26 units \xc3\x9f"[..], b"\xed\xa0\xbd"].concat()
        );
        assert_eq!(name(&[piece(0x41, sum(raw), &[0x61])]).expect("a name"), b"a");
        assert_eq!(name(&[]), None);
        assert_eq!(name(&good[..1]), None);
        assert_eq!(name(&good[1..]), None);
        assert_eq!(name(&[good[0], piece(1, 1, first)]), None);
        assert_eq!(name(&[piece(0x43, sum(raw), last), good[1]]), None);
        assert_eq!(name(&[piece(0x41, 1, first)]), None);
        assert_eq!(name(&[piece(0x40, sum(raw), first)]), None);
        assert_eq!(name(&[piece(0x7f, sum(raw), first)]), None);
    }
}
