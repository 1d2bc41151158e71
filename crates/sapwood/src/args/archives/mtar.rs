//! The commands of tar archives.

use std::path::PathBuf;

use clap::Subcommand;

use crate::sizes::parse_size;

/// What is done with an archive.
#[derive(Subcommand)]
pub enum MtarWhat {
    /// Move the headers of a tar archive out of the way of its data
    ///
    /// Any archive comes back byte for byte; what is no archive counts as data. The result is a little larger: many files
    /// begin at a multiple of the alignment, so that chunks of equal size find equal files.
    Migrate {
        /// The archive, - for standard input
        input: PathBuf,
        /// The result, which must not exist; - for standard output
        output: PathBuf,
        /// Where files begin, a power of two from 512 to 64KiB: best is the size of the chunks that deduplication cuts, and 512 if it
        /// cuts by content
        #[arg(long, value_parser = parse_align, default_value = "4KiB", value_name = "SIZE")]
        align: u64,
        /// Replace the result if it exists
        #[arg(short, long)]
        force: bool,
    },
    /// Give a migrated archive back, byte for byte
    Restore {
        /// What `mtar migrate` wrote, - for standard input
        input: PathBuf,
        /// The archive, which must not exist; - for standard output
        output: PathBuf,
        /// Replace the archive if it exists
        #[arg(short, long)]
        force: bool,
    },
}

impl MtarWhat {
    /// Where the result goes.
    pub fn output(&self) -> &PathBuf {
        match self {
            MtarWhat::Migrate { output, .. } | MtarWhat::Restore { output, .. } => output,
        }
    }
}

/// A size, in which a k is 1024 bytes if it is a power of two only so.
fn parse_align(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes.is_power_of_two() => Ok(bytes),
        bytes => Ok(parse_size(&format!("{text}iB")).ok().filter(|b| b.is_power_of_two()).unwrap_or(bytes)),
    }
}
