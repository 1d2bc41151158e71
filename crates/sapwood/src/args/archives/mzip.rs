//! Migratory compression.

use crate::sizes::parse_size;
use crate::system::memory::memory_bytes;
use archive::mzip::{levels, ChunkSpec, Compressor, Mover, SimilarityMethod, SpecError};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is used of a small machine's memory, in bytes.
const MEMORY_MIN: u64 = 1 << 30;

/// Compress a file.
#[derive(clap::Args)]
pub struct Mzip {
    #[command(flatten)]
    pub manners: Manners,
    /// Decompress, as `munzip` does
    #[arg(short, long)]
    pub decompress: bool,
    /// The compressor: gzip, bzip2, zstd, xz, or none, for a program that compresses the archive
    #[arg(long, value_name = "NAME", default_value = "zstd",
        value_parser = PossibleValuesParser::new(["gzip", "bzip2", "zstd", "xz", "none"]).map(|name| compressor(&name)),
        hide_possible_values = true)]
    pub with: Compressor,
    #[command(flatten)]
    pub level: Level,
    /// How the file is cut, 2 to 32 KiB: 8k, or cdc:8k (content-defined)
    #[arg(long, value_name = "SPEC", default_value = "cdc:8k", value_parser = parse_chunk)]
    pub chunk: ChunkSpec,
    /// How similar chunks are found: odess, finesse, which finds fewer, or rabin, which is slower
    #[arg(long, value_name = "NAME", default_value = "odess")]
    pub similarity: SimilarityMethod,
    /// Store similar chunks as deltas, each where it is, instead of moving them
    #[arg(long, conflicts_with = "mover")]
    pub delta: bool,
    /// Only compress, in blocks on all cores: what migration is measured against
    #[arg(long, hide = true, conflicts_with_all = ["delta", "mover"])]
    pub no_migration: bool,
    /// How chunks are moved: memory, chunk (each is read where it is) or multipass (the file is read several times) [default: by
    /// the memory, and by which is cheaper on the disk]
    #[arg(long, value_name = "NAME")]
    pub mover: Option<Mover>,
}

/// Decompress what `mzip` wrote.
#[derive(clap::Args)]
pub struct Munzip {
    #[command(flatten)]
    pub manners: Manners,
    /// For programs that ask every compressor to decompress
    #[arg(short, long, hide = true)]
    pub decompress: bool,
    /// Only a part of the original, to standard output if no other is named: OFFSET+LENGTH, such as 4GiB+1MiB
    #[arg(long, value_name = "RANGE", value_parser = parse_range, conflicts_with_all = ["rm", "list", "test"])]
    pub range: Option<Range<u64>>,
}

/// What compressors have in common.
#[derive(clap::Args)]
pub struct Manners {
    /// The files, each for itself; - is standard input [default: -]
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The result of one file, - for standard output [default: FILE.mz for FILE, and the other way round; - for standard input]
    #[arg(short, long, value_name = "FILE", conflicts_with = "stdout")]
    pub output: Option<PathBuf>,
    /// Write to standard output
    #[arg(short = 'c', long)]
    pub stdout: bool,
    /// Keep the file, as is done without this
    #[arg(short, long)]
    pub keep: bool,
    /// Remove the file when the result is complete and durable
    #[arg(long, conflicts_with_all = ["keep", "stdout"])]
    pub rm: bool,
    /// Replace the result if it exists
    #[arg(short, long)]
    pub force: bool,
    /// Read all of an archive, and write nothing
    #[arg(short, long, conflicts_with_all = ["output", "stdout", "rm", "list"])]
    pub test: bool,
    /// Say what is in an archive
    #[arg(short, long, conflicts_with_all = ["output", "stdout", "rm"])]
    pub list: bool,
    /// Memory to use, the compressor's with it: where it is short, fewer cores work, and then `mzip` cuts shorter blocks [default: an
    /// eighth of the machine's, at least 1GiB]
    #[arg(long, value_parser = parse_memory, value_name = "SIZE")]
    memory: Option<u64>,
}

impl Manners {
    /// The files; `None` is standard input.
    pub fn inputs(&self) -> Vec<Option<&Path>> {
        let is_file = |path: &&Path| path.as_os_str() != "-";
        match &self.files[..] {
            [] => vec![None],
            files => files.iter().map(|path| Some(path.as_path()).filter(is_file)).collect(),
        }
    }

    /// Whether results go to standard output.
    pub fn is_to_stdout(&self) -> bool {
        let to = self.output.as_deref();
        let is_stdin = || self.inputs().contains(&None);
        self.stdout || to.is_some_and(|to| to.as_os_str() == "-") || to.is_none() && is_stdin()
    }

    /// Memory to use, in bytes.
    pub fn memory(&self) -> u64 {
        self.memory.unwrap_or_else(|| (memory_bytes() / 8).max(MEMORY_MIN))
    }
}

/// The level of the compressor.
#[derive(clap::Args)]
pub struct Level {
    /// The compressor's level: 1 to 12 for gzip, 1 to 9 for bzip2, 1 to 19 for zstd, 0 to 9 for xz. -1 to -19 are short for
    /// it; with gzip -9 is its best, 12 [default: 10 for gzip, 9 for bzip2, 3 for zstd, 6 for xz]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=19), overrides_with = "short_level")]
    level: Option<u8>,
    /// What `-9` becomes: [`with_levels_spelled_out`].
    #[arg(long, hide = true, overrides_with_all = ["short_level", "level"])]
    short_level: Option<u8>,
}

impl Level {
    /// The level that is asked for, or the usual one.
    pub fn of(&self, compressor: Compressor) -> u8 {
        let short = self.short_level.map(|level| match (compressor, level) {
            (Compressor::Gzip, 9) => *levels(compressor).0.end(),
            _ => level,
        });
        self.level.or(short).unwrap_or(levels(compressor).1)
    }
}

/// The words of a command line, in which the short levels of `mzip`, which are numbers, are spelled out: `-19` is level 19, as
/// with zstd, and not `-1 -9`. The last one counts.
pub fn with_levels_spelled_out(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let (mut is_mzip, mut are_options) = (false, true);
    let spelled = words.flat_map(|word| {
        // No other command has numbers for options.
        is_mzip |= word == "mzip";
        are_options &= word != "--";
        let found = if is_mzip && are_options { level_in(&word) } else { None };
        found.map_or_else(|| vec![word], |found| found.into_iter().flatten().collect())
    });
    spelled.collect()
}

/// The level in a word of short options, and the others; `None` if there is none.
fn level_in(word: &OsStr) -> Option<[Option<OsString>; 2]> {
    let options = word.to_str()?.strip_prefix('-')?;
    // The word may end with the name of a result.
    let end = options.find('o').unwrap_or(options.len());
    let begin = options[..end].find(|c: char| c.is_ascii_digit())?;
    let digits = options[begin..end].find(|c: char| !c.is_ascii_digit()).map_or(end, |n| begin + n);
    let is_level =
        (1..=2).contains(&(digits - begin)) && options[..begin].chars().all(|c| c.is_ascii_alphabetic());
    let rest = [&options[..begin], &options[digits..]].concat();
    let others = (!rest.is_empty()).then(|| format!("-{rest}").into());
    is_level.then(|| [Some(format!("--short-level={}", &options[begin..digits]).into()), others])
}

fn compressor(name: &str) -> Compressor {
    Compressor::named(name).unwrap_or(Compressor::Zstd)
}

fn parse_chunk(text: &str) -> Result<ChunkSpec, String> {
    let spec: ChunkSpec = text.parse().map_err(|e: SpecError| e.to_string())?;
    match spec.average_bytes() {
        2048..=32_768 => Ok(spec),
        bytes => Err(format!("chunks of {bytes} bytes: 2 KiB to 32 KiB are possible")),
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0..33_554_432 => Err(format!("{text:?} is too little: 32MiB at least")),
        bytes => Ok(bytes),
    }
}

/// `OFFSET+LENGTH`.
fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text:?} is not a range: OFFSET+LENGTH, such as 4GiB+1MiB");
    let (begin, bytes) = text.split_once('+').ok_or_else(wrong)?;
    let (begin, bytes) = (parse_size(begin)?, parse_size(bytes)?);
    let end = begin.checked_add(bytes).ok_or_else(wrong)?;
    Ok(begin..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_levels_are_spelled_out() {
        let spelled = |line: &str| {
            let words = with_levels_spelled_out(line.split(' ').map(Into::into));
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        for (line, expected) in [
            ("sapwood mzip -k -19 a", "sapwood mzip -k --short-level=19 a"),
            ("sapwood mzip -9 -kf12c a", "sapwood mzip --short-level=9 --short-level=12 -kfc a"),
            ("sapwood mzip -6o7 -o7 -ko12", "sapwood mzip --short-level=6 -o7 -o7 -ko12"),
            ("sapwood mzip -123 - --with xz -- -19", "sapwood mzip -123 - --with xz -- -19"),
            ("sapwood munzip -19 -1", "sapwood munzip -19 -1"),
        ] {
            assert_eq!(spelled(line), expected);
        }
    }
}
