//! A tar archive becomes a stream of sections.

use super::error::{MtarError, Result};
use super::pieces::Pieces;
use super::tar::{Block, Scanner, BLOCK};
use crate::stream::fill;
use format::mtar::{align_is_valid, Head, SectionHead};
use std::io::{Read, Write};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// What was migrated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Bytes of the archive.
    pub tar_bytes: u64,
    /// Bytes of the stream.
    pub mtar_bytes: u64,
    /// Headers that were found.
    pub headers: u64,
}

/// Writes a stream for an archive. In it long files, and about one in sixteen of the others, begin at a
/// multiple of `align` bytes.
///
/// # Errors
/// If the alignment is none, the input cannot be read, or the output cannot be written.
pub fn migrate(input: &mut dyn Read, output: &mut dyn Write, align: u32) -> Result<Migrated> {
    if !align_is_valid(align) {
        return Err(MtarError::Alignment(align.into()));
    }
    let mut to = Sections { output, align, number: 0, written: 0, pieces: Pieces::new(align) };
    to.put(&Head { align }.encode())?;
    let mut scanner = Scanner::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut tar_bytes = 0;
    loop {
        let len = fill(input, &mut buffer).map_err(MtarError::Read)?;
        tar_bytes += len as u64;
        let mut blocks = buffer[..len].chunks_exact(BLOCK);
        for block in blocks.by_ref() {
            let mut whole = [0; BLOCK];
            whole.copy_from_slice(block);
            match scanner.next(&whole) {
                Block::Header => to.header(block, scanner.announced())?,
                Block::Data => to.data(block)?,
            }
        }
        // The end of an archive that is cut within a block.
        to.data(blocks.remainder())?;
        if len < buffer.len() {
            break;
        }
    }
    to.section(true)?;
    to.output.flush().map_err(MtarError::Write)?;
    Ok(Migrated { tar_bytes, mtar_bytes: to.written, headers: scanner.headers })
}

/// Where sections are written.
struct Sections<'a> {
    output: &'a mut dyn Write,
    align: u32,
    /// Of the section that is being filled.
    number: u64,
    written: u64,
    pieces: Pieces,
}

impl Sections<'_> {
    fn header(&mut self, block: &[u8], announced: u64) -> Result<()> {
        if !self.pieces.header(block, announced) {
            self.section(false)?;
            // An empty section has room for a block.
            assert!(self.pieces.header(block, announced), "a block of headers fits into an empty section");
        }
        Ok(())
    }

    fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        loop {
            bytes = &bytes[self.pieces.data(bytes)..];
            if bytes.is_empty() {
                return Ok(());
            }
            self.section(false)?;
        }
    }

    /// Writes the section, and begins the next one.
    fn section(&mut self, last: bool) -> Result<()> {
        self.pieces.end();
        let Pieces { records, data, tar_bytes, .. } = &self.pieces;
        debug_assert!(last || !self.pieces.is_empty());
        let head = SectionHead {
            number: self.number,
            last,
            records_bytes: records.len() as u32,
            data_bytes: data.len() as u32,
            tar_bytes: *tar_bytes,
            records_checksum: xxh3_64(records),
            data_checksum: xxh3_64(data),
        };
        let records = [&head.encode()[..], records].concat();
        self.put(&records)?;
        let data = std::mem::take(&mut self.pieces.data);
        self.put(&data)?;
        self.pieces.data = data;
        self.pieces.clear();
        self.number += 1;
        Ok(())
    }

    /// Writes bytes, and zeros up to the next multiple of the alignment.
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let align = self.align as usize;
        let zeros = vec![0; bytes.len().next_multiple_of(align) - bytes.len()];
        self.output
            .write_all(bytes)
            .and_then(|()| self.output.write_all(&zeros))
            .map_err(MtarError::Write)?;
        self.written += (bytes.len() + zeros.len()) as u64;
        Ok(())
    }
}
