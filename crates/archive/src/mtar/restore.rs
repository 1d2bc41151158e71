//! A stream of sections becomes the tar archive again. A section is checked before anything of it is written.

use super::error::{MtarError, Result};
use format::mtar::{Head, Records, SectionHead, HEAD_BYTES, SECTION_HEAD_BYTES};
use format::Malformed;
use std::io::{ErrorKind, Read, Write};
use xxhash_rust::xxh3::xxh3_64;

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of the archive.
    pub tar_bytes: u64,
    /// Bytes of the stream.
    pub mtar_bytes: u64,
}

/// Writes the archive of a stream.
///
/// # Errors
/// If the stream is damaged, truncated, followed by something, or of a newer version; if the input cannot be read or the
/// output cannot be written. What was written until then is the beginning of the archive, as it was.
pub fn restore(input: &mut dyn Read, output: &mut dyn Write) -> Result<Restored> {
    let mut from = Stream { input, offset: 0, align: 1 };
    let mut bytes = [0; HEAD_BYTES];
    from.read(&mut bytes, "its head")?;
    let head = Head::decode(&bytes).map_err(|e| from.damaged(0, e))?;
    from.align = u64::from(head.align);
    from.zeros()?;
    let (mut records, mut data) = (Vec::new(), Vec::new());
    let mut tar_bytes = 0;
    for number in 0.. {
        let at = from.offset;
        let mut bytes = [0; SECTION_HEAD_BYTES];
        from.read(&mut bytes, "the head of a section")?;
        let head = SectionHead::decode(&bytes).map_err(|e| from.damaged(at, e))?;
        if head.number != number {
            return Err(damaged(at, format!("section {} is where section {number} should be", head.number)));
        }
        let records_at = from.offset;
        records.resize(head.records_bytes as usize, 0);
        from.read(&mut records, "the records of a section")?;
        check(&records, head.records_checksum, records_at, "records")?;
        from.zeros()?;
        let data_at = from.offset;
        data.resize(head.data_bytes as usize, 0);
        from.read(&mut data, "the data of a section")?;
        check(&data, head.data_checksum, data_at, "data")?;
        from.zeros()?;
        let pieces = Pieces { records: &records, data: &data, align: from.align as usize };
        let len = pieces.each(|_| Ok(())).map_err(|e| or_damaged(e, records_at))?;
        if len != head.tar_bytes {
            let why =
                format!("the records give {len} bytes of the archive, the section has {}", head.tar_bytes);
            return Err(damaged(records_at, why));
        }
        pieces
            .each(|part| output.write_all(part).map_err(MtarError::Write))
            .map_err(|e| or_damaged(e, records_at))?;
        tar_bytes += len;
        if head.last {
            break;
        }
    }
    from.end()?;
    output.flush().map_err(MtarError::Write)?;
    Ok(Restored { tar_bytes, mtar_bytes: from.offset })
}

/// What went wrong with a section.
enum Wrong {
    Malformed(Malformed),
    Other(MtarError),
}

fn or_damaged(wrong: Wrong, offset: u64) -> MtarError {
    match wrong {
        Wrong::Malformed(e) => damaged(offset, e.why),
        Wrong::Other(e) => e,
    }
}

fn damaged(offset: u64, why: String) -> MtarError {
    MtarError::Damaged { offset, why }
}

fn check(bytes: &[u8], expected: u64, offset: u64, what: &str) -> Result<()> {
    let got = xxh3_64(bytes);
    if got == expected {
        return Ok(());
    }
    Err(damaged(
        offset,
        format!("the checksum of a section's {what} is {got:016x}, expected {expected:016x}"),
    ))
}

/// The archive's parts in a section.
struct Pieces<'a> {
    records: &'a [u8],
    data: &'a [u8],
    align: usize,
}

impl Pieces<'_> {
    /// Calls a function with each part, in order. Returns how many bytes all have.
    fn each(&self, mut part: impl FnMut(&[u8]) -> Result<()>) -> std::result::Result<u64, Wrong> {
        let malformed = |why: String| Wrong::Malformed(Malformed::new(why));
        let (mut at, mut len) = (0usize, 0u64);
        for record in Records::new(self.records) {
            let record = record.map_err(Wrong::Malformed)?;
            part(record.headers).map_err(Wrong::Other)?;
            if record.is_aligned {
                at = at.next_multiple_of(self.align);
            }
            let end = at + record.data_bytes as usize;
            let piece = self.data.get(at..end);
            let piece = piece.ok_or_else(|| malformed("the records name more data than there is".into()))?;
            part(piece).map_err(Wrong::Other)?;
            len += (record.headers.len() + piece.len()) as u64;
            at = end;
        }
        at = at.next_multiple_of(self.align);
        if at != self.data.len() {
            return Err(malformed(format!(
                "the records name {at} bytes of data, there are {}",
                self.data.len()
            )));
        }
        Ok(len)
    }
}

/// The stream, read in order.
struct Stream<'a> {
    input: &'a mut dyn Read,
    offset: u64,
    align: u64,
}

impl Stream<'_> {
    fn read(&mut self, bytes: &mut [u8], what: &str) -> Result<()> {
        let begin = self.offset;
        let mut len = 0;
        while len < bytes.len() {
            match self.input.read(&mut bytes[len..]) {
                Ok(0) => {
                    let why = format!("the stream ends at byte {}, within {what}", begin + len as u64);
                    return Err(damaged(begin, why));
                }
                Ok(n) => len += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(MtarError::Read(e)),
            }
        }
        self.offset += len as u64;
        Ok(())
    }

    /// Passes over zeros up to the next multiple of the alignment.
    fn zeros(&mut self) -> Result<()> {
        let at = self.offset;
        let mut zeros = vec![0; (at.next_multiple_of(self.align) - at) as usize];
        self.read(&mut zeros, "the zeros behind a part")?;
        match zeros.iter().position(|b| *b != 0) {
            None => Ok(()),
            Some(n) => Err(damaged(at + n as u64, "there is no zero where parts are aligned".into())),
        }
    }

    /// Nothing may follow.
    fn end(&mut self) -> Result<()> {
        let mut one = [0];
        loop {
            match self.input.read(&mut one) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(damaged(self.offset, "something follows the last section".into())),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(MtarError::Read(e)),
            }
        }
    }

    fn damaged(&self, offset: u64, e: Malformed) -> MtarError {
        if e.newer {
            MtarError::Newer(e.why)
        } else {
            damaged(offset, e.why)
        }
    }
}
