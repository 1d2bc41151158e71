//! `lin-3.6` (Lin 2015, figure 3.6): what deduplication finds in the headers of series of releases, in their data blocks, and in
//! their files, each kind concatenated.
//!
//! A factor is the length of all of a package's, divided by that of its distinct chunks; chunks of zeros count nothing.

use anyhow::{ensure, Result};
use chunk::ChunkSpec;
use serde::Serialize;

use crate::context::Context;
use crate::results::plot::{draw, Figure, Labels};
use crate::results::report::{bars_table, figure, Bar, Table};

use super::mtar::{Distinct, Package};

const BLOCK: usize = 512;
/// Bytes of a chunk.
const CHUNK_BYTES: u32 = 8 << 10;
/// What the columns are called.
const KINDS: [&str; 4] = ["whole archives", "headers", "data blocks", "files"];

/// What was found in a package with one way of cutting.
#[derive(Debug, Serialize)]
struct Found {
    package: String,
    /// `fixed` or `cdc`.
    cut: &'static str,
    /// Of each kind: bytes, and bytes of distinct chunks.
    kinds: [(u64, u64); 4],
}

impl Found {
    fn factor(&self, kind: usize) -> f64 {
        let (bytes, distinct) = self.kinds[kind];
        bytes as f64 / distinct.max(1) as f64
    }
}

/// Runs the experiment.
pub fn run(context: &Context) -> Result<()> {
    let mut all = Vec::new();
    for package in Package::all(context)? {
        let content_defined = ChunkSpec::content_defined(CHUNK_BYTES);
        for (cut, spec) in [("fixed", ChunkSpec::Fixed { bytes: CHUNK_BYTES }), ("cdc", content_defined)] {
            all.push(measure(&package, cut, spec)?);
        }
    }
    let bars = bars(&all);
    let text = format!("{}\n{}", table(&all), bars_table(&bars));
    #[derive(Serialize)]
    struct Parameters {
        chunk_bytes: u32,
    }
    #[derive(Serialize)]
    struct Results<'a> {
        bars: &'a [Bar],
        found: &'a [Found],
    }
    let results = Results { bars: &bars, found: &all };
    context.save(1, Parameters { chunk_bytes: CHUNK_BYTES }, results, &text)?;
    context.print(&text);
    draw_figure(context, &all)
}

fn measure(package: &Package, cut: &'static str, spec: ChunkSpec) -> Result<Found> {
    let mut distinct: [Distinct; 4] = Default::default();
    let mut kinds = [(0, 0); 4];
    for tar in &package.archives {
        let Parts { headers, data, files } = parts(tar)?;
        for (n, bytes) in [tar, &headers, &data, &files].into_iter().enumerate() {
            distinct[n].add(bytes, spec);
            kinds[n].0 += bytes.len() as u64;
        }
    }
    for (kind, distinct) in kinds.iter_mut().zip(&distinct) {
        kind.1 = distinct.bytes;
    }
    Ok(Found { package: package.name.clone(), cut, kinds })
}

/// The parts of an archive, each kind by itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    /// With the bodies of pax headers and long names.
    headers: Vec<u8>,
    /// As they are in the archive, so that files end with zeros.
    data: Vec<u8>,
    /// What the files hold.
    files: Vec<u8>,
}

/// Takes an archive apart whose sizes are octal numbers.
fn parts(tar: &[u8]) -> Result<Parts> {
    let mut parts = Parts::default();
    let mut at = 0;
    while at + BLOCK <= tar.len() {
        let header = &tar[at..at + BLOCK];
        at += BLOCK;
        // Zeros end it.
        if header.iter().all(|b| *b == 0) {
            break;
        }
        parts.headers.extend_from_slice(header);
        let digits = header[124..136].iter().filter(|b| b.is_ascii_digit());
        let size = digits.fold(0, |size, b| size * 8 + usize::from(b - b'0'));
        let end = at + size.next_multiple_of(BLOCK);
        match header[156] {
            b'1'..=b'6' => continue,
            _ => ensure!(end <= tar.len(), "an archive ends within a file"),
        }
        if matches!(header[156], b'x' | b'g' | b'L' | b'K') {
            parts.headers.extend_from_slice(&tar[at..end]);
        } else {
            parts.data.extend_from_slice(&tar[at..end]);
            parts.files.extend_from_slice(&tar[at..at + size]);
        }
        at = end;
    }
    Ok(parts)
}

fn table(all: &[Found]) -> Table {
    let mut table = Table::new(["package", "chunks", KINDS[0], "headers MB", KINDS[1], KINDS[2], KINDS[3]]);
    for found in all {
        table.row([
            found.package.clone(),
            format!("{} {} KiB", found.cut, CHUNK_BYTES >> 10),
            figure(Some(found.factor(0)), 2),
            figure(Some(found.kinds[1].0 as f64 / 1e6), 1),
            figure(Some(found.factor(1)), 2),
            figure(Some(found.factor(2)), 2),
            figure(Some(found.factor(3)), 2),
        ]);
    }
    table
}

fn bars(all: &[Found]) -> Vec<Bar> {
    let those = || all.iter().filter(|found| found.cut == "cdc");
    let least = those().map(|found| found.factor(2) / found.factor(3)).reduce(f64::min);
    vec![
        Bar::shown("most that headers give, cdc", those().map(|found| found.factor(1)).reduce(f64::max)),
        Bar::at_least("data blocks, of the factor of files concatenated, least, cdc", least, 0.9),
    ]
}

fn draw_figure(context: &Context, all: &[Found]) -> Result<()> {
    let those: Vec<&Found> = all.iter().filter(|found| found.cut == "cdc").collect();
    let bars = |kind: usize| those.iter().map(|found| Some(found.factor(kind))).collect();
    let series = KINDS.iter().enumerate().map(|(n, kind)| ((*kind).to_owned(), bars(n))).collect();
    let groups = those.iter().map(|f| f.package.trim_end_matches("-sys").to_owned()).collect();
    let title = "Kinds of blocks of releases, chunks of 8 KiB";
    let labels = Labels { title, x: "", y: "deduplication factor" };
    draw(context.out(), "lin-3.6", &labels, &Figure::Bars { groups, series })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, size: &str) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[0] = b'a';
        block[124..124 + size.len()].copy_from_slice(size.as_bytes());
        block[156] = kind;
        block
    }

    #[test]
    fn each_block_goes_to_its_kind() {
        let (file, directory, pax) =
            (header(b'0', "00000000003"), header(b'5', "00000000003"), header(b'x', "00000000002"));
        let (mut content, mut body) = (b"abc".to_vec(), b"pa".to_vec());
        content.resize(BLOCK, 0);
        body.resize(BLOCK, 0);
        let tar = [&pax[..], &body, &file, &content, &directory, &file, &content, &[0; 1024]].concat();
        let expected = Parts {
            headers: [&pax[..], &body, &file, &directory, &file].concat(),
            data: [&content[..], &content].concat(),
            files: b"abcabc".to_vec(),
        };
        assert_eq!(parts(&tar).expect("an archive"), expected);
        assert!(parts(&tar[..BLOCK * 3 + 100]).is_err());
    }
}
