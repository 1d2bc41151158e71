//! Writes tar archives in pax format, with sparse files (GNU sparse format 1.0), extended attributes and names of any
//! bytes (<https://www.gnu.org/software/tar/manual/html_section/Sparse-Formats.html>).

use std::io::{self, Write};
use std::ops::Range;

const BLOCK: usize = 512;
/// The largest number that fits eleven octal digits.
const OCTAL_11_MAX: u64 = (1 << 33) - 1;
const OCTAL_7_MAX: u64 = (1 << 21) - 1;

/// The kind of a member.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    File,
    Directory,
    /// The target of the link.
    SymbolicLink(&'a [u8]),
    /// The path of an earlier member.
    HardLink(&'a [u8]),
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
}

/// The header of a member.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Without a leading `/`.
    pub path: &'a [u8],
    pub kind: Kind<'a>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    /// Seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    pub attributes: &'a [(Vec<u8>, Vec<u8>)],
}

/// An archive being written.
pub struct Tar<W: Write> {
    out: W,
}

impl<W: Write> Tar<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Tar { out }
    }

    /// Adds a member without data.
    pub fn add(&mut self, member: &Member) -> io::Result<()> {
        self.head(member, member.path, 0, Vec::new())
    }

    /// Adds a file of `size` bytes. It is zeros except for the ranges `data`, which are sorted and within the file.
    /// `read` is called for each range in order, and must write all of it.
    pub fn add_file(
        &mut self,
        member: &Member,
        size: u64,
        data: &[Range<u64>],
        mut read: impl FnMut(Range<u64>, &mut W) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let bytes: u64 = data.iter().map(|r| r.end - r.start).sum();
        let map = (bytes < size).then(|| sparse_map(size, data));
        let stored = bytes + map.as_ref().map_or(0, |m| m.len() as u64);
        match &map {
            None => self.head(member, member.path, size, Vec::new())?,
            Some(_) => {
                let mut pax = Vec::new();
                record(&mut pax, b"GNU.sparse.major", b"1");
                record(&mut pax, b"GNU.sparse.minor", b"0");
                record(&mut pax, b"GNU.sparse.name", member.path);
                record(&mut pax, b"GNU.sparse.realsize", size.to_string().as_bytes());
                let name = [b"GNUSparseFile.0/", member.path].concat();
                self.head(member, &name, stored, pax)?;
            }
        }
        self.out.write_all(&map.unwrap_or_default())?;
        data.iter().try_for_each(|range| read(range.clone(), &mut self.out))?;
        Ok(self.pad(stored)?)
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }

    /// Writes a header. A pax header before it has the values that do not fit.
    fn head(&mut self, m: &Member, name: &[u8], size: u64, mut pax: Vec<u8>) -> io::Result<()> {
        let is_sparse = !pax.is_empty();
        let is_text = |b: &[u8]| std::str::from_utf8(b).is_ok();
        let link = match m.kind {
            Kind::SymbolicLink(to) | Kind::HardLink(to) => to,
            _ => &[],
        };
        let slash: &[u8] = if matches!(m.kind, Kind::Directory) { b"/" } else { b"" };
        let name = [name, slash].concat();
        if !is_text(&name) || !is_text(link) || m.attributes.iter().any(|(name, _)| !is_text(name)) {
            let mut first = Vec::new();
            record(&mut first, b"hdrcharset", b"BINARY");
            pax.splice(0..0, first);
        }
        if !is_sparse && (name.len() > 100 || !name.is_ascii()) {
            record(&mut pax, b"path", &name);
        }
        if link.len() > 100 || !link.is_ascii() {
            record(&mut pax, b"linkpath", link);
        }
        if size > OCTAL_11_MAX {
            record(&mut pax, b"size", size.to_string().as_bytes());
        }
        for (key, id) in [(&b"uid"[..], m.uid), (b"gid", m.gid)] {
            if u64::from(id) > OCTAL_7_MAX {
                record(&mut pax, key, id.to_string().as_bytes());
            }
        }
        let (seconds, nanos) = m.modified;
        if nanos != 0 || !(0..=OCTAL_11_MAX as i64).contains(&seconds) {
            record(&mut pax, b"mtime", time(seconds, nanos).as_bytes());
        }
        for (name, value) in m.attributes {
            record(&mut pax, &attribute_key(name), value);
        }
        if !pax.is_empty() {
            let head = header(m, b"PaxHeaders/0", b"", b'x', pax.len() as u64);
            self.out.write_all(&head)?;
            self.out.write_all(&pax)?;
            self.pad(pax.len() as u64)?;
        }
        let kind = match m.kind {
            Kind::File => b'0',
            Kind::HardLink(_) => b'1',
            Kind::SymbolicLink(_) => b'2',
            Kind::CharDevice(..) => b'3',
            Kind::BlockDevice(..) => b'4',
            Kind::Directory => b'5',
            Kind::Fifo => b'6',
        };
        self.out.write_all(&header(m, &name, link, kind, size))
    }

    fn pad(&mut self, len: u64) -> io::Result<()> {
        let rest = (len.next_multiple_of(BLOCK as u64) - len) as usize;
        self.out.write_all(&[0; BLOCK][..rest])
    }
}

/// Adds a record `len key=value\n`; `len` is the length of the whole record, with its own digits.
fn record(pax: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let digits = |n: usize| n.to_string().len();
    let mut len = rest + digits(rest);
    if digits(len) > digits(rest) {
        len = rest + digits(len);
    }
    pax.extend(len.to_string().as_bytes());
    for part in [b" ", key, b"=", value, b"\n"] {
        pax.extend_from_slice(part);
    }
}

/// The key of an extended attribute. `=` in its name is escaped because it would end the key, and so is `%`.
fn attribute_key(name: &[u8]) -> Vec<u8> {
    let mut key = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            byte => key.push(*byte),
        }
    }
    key
}

fn time(seconds: i64, nanos: u32) -> String {
    match (seconds, nanos) {
        // -1.25 comes as -2 seconds and 750,000,000 nanoseconds.
        (s, n) if s < 0 && n > 0 => format!("-{}.{:09}", -(s + 1), 1_000_000_000 - n),
        (s, 0) => s.to_string(),
        (s, n) => format!("{s}.{n:09}"),
    }
}

/// The map before the data of a sparse file: decimal numbers, one a line, padded to whole blocks.
fn sparse_map(size: u64, data: &[Range<u64>]) -> Vec<u8> {
    let end = (data.last().is_none_or(|r| r.end < size)).then_some(size..size);
    let ranges: Vec<&Range<u64>> = data.iter().chain(&end).collect();
    let mut map = format!("{}\n", ranges.len());
    ranges.iter().for_each(|r| map.push_str(&format!("{}\n{}\n", r.start, r.end - r.start)));
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// A ustar header. Values that do not fit are in the pax header before it.
fn header(m: &Member, name: &[u8], link: &[u8], kind: u8, size: u64) -> [u8; BLOCK] {
    let mut h = [0; BLOCK];
    let mut text = |at: usize, max: usize, bytes: &[u8]| {
        let len = bytes.len().min(max);
        h[at..at + len].copy_from_slice(&bytes[..len]);
    };
    text(0, 100, name);
    text(157, 100, link);
    text(257, 8, b"ustar\x0000");
    let mut octal = |at: usize, digits: usize, n: u64, max: u64| {
        let text = format!("{:0digits$o}", if n > max { 0 } else { n });
        h[at..at + digits].copy_from_slice(text.as_bytes());
    };
    octal(100, 7, u64::from(m.mode), OCTAL_7_MAX);
    octal(108, 7, u64::from(m.uid), OCTAL_7_MAX);
    octal(116, 7, u64::from(m.gid), OCTAL_7_MAX);
    octal(124, 11, size, OCTAL_11_MAX);
    octal(136, 11, m.modified.0.max(0) as u64, OCTAL_11_MAX);
    if let Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) = m.kind {
        octal(329, 7, u64::from(major), OCTAL_7_MAX);
        octal(337, 7, u64::from(minor), OCTAL_7_MAX);
    }
    h[156] = kind;
    h[148..156].fill(b' ');
    let sum: u32 = h.iter().map(|b| u32::from(*b)).sum();
    h[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    h[154] = 0;
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        for value in [0, 1, 87, 88, 89, 90, 91, 980, 985, 990, 9970, 9985] {
            let mut pax = Vec::new();
            record(&mut pax, b"path", &vec![b'x'; value]);
            let text = String::from_utf8(pax).expect("text");
            let (len, _) = text.split_once(' ').expect("a length");
            assert_eq!(len.parse(), Ok(text.len()), "{value}");
        }
    }

    fn headers(kind: Kind, name: &str, size: u64, attributes: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
        let member = Member {
            path: name.as_bytes(),
            kind,
            mode: 0o644,
            uid: 1 << 21,
            gid: 7,
            modified: (1, 0),
            attributes,
        };
        let mut tar = Tar::new(Vec::new());
        tar.head(&member, member.path, size, Vec::new()).expect("in memory");
        tar.out
    }

    #[test]
    fn what_does_not_fit_a_header_stands_before_it() {
        let has = |all: &[u8], text: &str| all.windows(text.len()).any(|w| w == text.as_bytes());
        let large = headers(Kind::File, "large", 1 << 33, &[]);
        assert!(has(&large, " size=8589934592\n") && has(&large, " uid=2097152\n") && !has(&large, " gid="));
        assert!(!has(&headers(Kind::File, "small", (1 << 33) - 1, &[]), " size="));
        let names = [99, 100, 101].map(|len| "n".repeat(len));
        let path = |kind, n: usize| has(&headers(kind, &names[n], 0, &[]), " path=");
        assert_eq!([0, 1, 2].map(|n| path(Kind::File, n)), [false, false, true]);
        // The path of a directory ends in `/`.
        assert_eq!([0, 1, 2].map(|n| path(Kind::Directory, n)), [false, true, true]);
        let link =
            |n: usize| has(&headers(Kind::SymbolicLink(names[n].as_bytes()), "l", 0, &[]), " linkpath=");
        assert_eq!([0, 1, 2].map(link), [false, false, true]);
    }

    /// If the name of an attribute had a `=`, readers took what came after it for the value.
    #[test]
    fn names_of_attributes_do_not_end_early() {
        let all = headers(Kind::File, "f", 0, &[(b"user.a=b%".to_vec(), b"c=d".to_vec())]);
        let key = b"SCHILY.xattr.user.a%3Db%25=c=d\n";
        assert!(all.windows(key.len()).any(|w| w == key));
    }

    #[test]
    fn times_before_1970_count_down() {
        assert_eq!(time(-2, 750_000_000), "-1.250000000");
        assert_eq!(time(-1, 500_000_000), "-0.500000000");
        assert_eq!(time(-5, 0), "-5");
        assert_eq!(time(5, 1), "5.000000001");
    }
}
