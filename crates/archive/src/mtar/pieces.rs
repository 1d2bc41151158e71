//! The section that is being filled: headers by records, and pieces of data behind each other.
//!
//! Chunks of fixed size find a file again where it begins at the same place of a chunk. To begin every file with a chunk
//! costs half a chunk each, more than that finds where files are small. So a file begins at a multiple of the alignment
//! if it is long, or if its content says so: then what a small file has shifted is in its place again some files later,
//! as with chunks that content defines.

use format::mtar::{Record, DATA_BYTES_MAX, RECORDS_BYTES_MAX};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of headers in one record, at most: a record with its lengths fits into any section.
const HEADERS_MAX: usize = RECORDS_BYTES_MAX / 4;
/// A file that is as many times as long as the alignment is aligned.
const LONG: u64 = 2;
/// Of shorter ones, one in so many is.
const ONE_IN: u64 = 16;

/// A section while it is filled.
pub(crate) struct Pieces {
    align: usize,
    /// The records that have ended.
    pub records: Vec<u8>,
    /// Pieces, with zeros in front of those that are aligned.
    pub data: Vec<u8>,
    /// Bytes of the archive that are in it.
    pub tar_bytes: u64,
    /// The headers of the record that has not ended.
    headers: Vec<u8>,
    /// Where its piece begins.
    begin: usize,
    /// Whether that is a multiple of the alignment on purpose.
    is_aligned: bool,
    /// Bytes of content that the last header announced.
    announced: u64,
}

impl Pieces {
    pub fn new(align: u32) -> Self {
        let (records, data, headers) = Default::default();
        Pieces {
            align: align as usize,
            records,
            data,
            tar_bytes: 0,
            headers,
            begin: 0,
            is_aligned: false,
            announced: 0,
        }
    }

    /// Adds a part of the archive that is a header, behind which so many bytes of content are announced. Whether there was
    /// room; if not, end the section first.
    pub fn header(&mut self, bytes: &[u8], announced: u64) -> bool {
        if self.begin < self.data.len() || self.headers.len() + bytes.len() > HEADERS_MAX {
            self.end_record();
        }
        if self.records.len() + self.headers.len() + bytes.len() + 2 * HEADERS_MAX > RECORDS_BYTES_MAX {
            return false;
        }
        self.headers.extend_from_slice(bytes);
        self.tar_bytes += bytes.len() as u64;
        self.announced = announced;
        true
    }

    /// Adds data. Returns how many bytes of it there was room for.
    pub fn data(&mut self, bytes: &[u8]) -> usize {
        if self.begin == self.data.len() && !bytes.is_empty() && self.is_to_be_aligned(bytes) {
            self.data.resize(self.data.len().next_multiple_of(self.align), 0);
            self.begin = self.data.len();
            self.is_aligned = true;
        }
        let taken = bytes.len().min(DATA_BYTES_MAX - self.data.len());
        self.data.extend_from_slice(&bytes[..taken]);
        self.tar_bytes += taken as u64;
        taken
    }

    /// Whether a file that begins like this begins at a multiple of the alignment.
    fn is_to_be_aligned(&self, beginning: &[u8]) -> bool {
        !self.headers.is_empty()
            && (self.announced >= LONG * self.align as u64 || xxh3_64(beginning) % ONE_IN == 0)
    }

    /// Ends the section.
    pub fn end(&mut self) {
        self.end_record();
        self.data.resize(self.data.len().next_multiple_of(self.align), 0);
    }

    fn end_record(&mut self) {
        if self.headers.is_empty() && self.begin == self.data.len() {
            return;
        }
        let data_bytes = (self.data.len() - self.begin) as u32;
        let is_aligned = self.is_aligned && data_bytes > 0;
        Record { headers: &self.headers, data_bytes, is_aligned }.encode_to(&mut self.records);
        self.headers.clear();
        self.begin = self.data.len();
        self.is_aligned = false;
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.records.clear();
        self.data.clear();
        self.tar_bytes = 0;
        self.begin = 0;
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.tar_bytes == 0
    }
}
