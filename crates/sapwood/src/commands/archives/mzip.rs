//! `sapwood mzip` and `sapwood munzip`

use super::each::{each, usage};
use super::input::Input;
use super::output::{written, Destination};
use super::stop::end_soon;
use crate::args::{Args, Manners, Munzip, Mzip};
use crate::progress::{catch_signals, is_stopped, show_while};
use crate::system::allocator::keep_little;
use crate::system::own_directory::scratch;
use crate::terminal::output::{counted, percent, size};
use crate::terminal::streams::{errln, outln, toldln};
use anyhow::{Context as _, Result};
use archive::mzip::{
    compress, Archive, Compressor, Kept, MzipError, Options, Output, Progress, ReadAt, Source,
};
use serde_json::{json, Value};
use std::io::{BufWriter, IsTerminal};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// What the name of an archive ends with.
const SUFFIX: &str = ".mz";
/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

/// `mzip`: compresses, unless one of the options asks for what `munzip` does.
pub fn run(args: &Args, a: &Mzip) -> Result<ExitCode> {
    let manners = &a.manners;
    if a.decompress || manners.test || manners.list {
        return decompress(args, manners, None);
    }
    if manners.stdout && manners.files.len() > 1 {
        return Err(usage("archives cannot follow each other in one output: -c takes one file".into()));
    }
    let level = a.level.of(a.with);
    if !archive::mzip::level_is_valid(a.with, level) {
        let (name, (levels, _)) = (a.with.name(), archive::mzip::levels(a.with));
        return Err(usage(match a.with {
            Compressor::None => format!("{name} has no levels"),
            _ => format!("{name} has levels {} to {}", levels.start(), levels.end()),
        }));
    }
    each(args, manners, |input| compress_one(args, a, level, input))
}

/// Compresses one file. Returns the object of `--json`.
fn compress_one(args: &Args, a: &Mzip, level: u8, input: Option<&Path>) -> Result<Option<Value>> {
    let (manners, start) = (&a.manners, Instant::now());
    let (input, to) = ends(manners, input, |path| {
        let mut name = path.as_os_str().to_owned();
        if path.to_string_lossy().ends_with(SUFFIX) {
            return Err(usage(format!("{}: ends in {SUFFIX} already; -o names the result", path.display())));
        }
        name.push(SUFFIX);
        Ok(name.into())
    })?;
    if to.is_none() && std::io::stdout().is_terminal() {
        return Err(usage("an archive is not written to a terminal; -o names a file".into()));
    }
    let options = Options {
        compressor: a.with,
        level,
        chunk: a.chunk,
        similarity: a.similarity,
        migrate: !a.no_migration,
        delta: a.delta,
        mover: a.mover,
        disk: input.disk(),
        memory: manners.memory(),
        threads: threads(),
        scratch: scratch(None),
    };
    let name = input.name();
    let done = written(&input, to.as_deref(), manners.force, |output| {
        if manners.rm {
            input.is_removable()?;
        }
        watched(args, &name, 2, |progress| {
            let mut output = BufWriter::with_capacity(WRITE_BYTES, output);
            let done = match input.at() {
                Some(at) => compress(Source::At(&at), &mut output, &options, progress),
                None => compress(Source::Stream(&mut input.stream()), &mut output, &options, progress),
            };
            done.map_err(|e| of_end(e, &name, output.get_ref()))
        })
    })?;
    if manners.rm {
        remove(&input)?;
    }
    if done.is_memory_short && !args.quiet && !args.json {
        let (with, memory) = (a.with.name(), size(manners.memory()));
        errln!(
            "{name}: {with} at level {level} has {} of {} cores within --memory {memory}",
            done.threads,
            threads()
        );
    }
    let Some(to) = to else { return Ok(None) };
    let (seconds, output) = (start.elapsed().as_secs_f64(), to.display().to_string());
    if args.json {
        return Ok(Some(json!({
            "output": output, "original_bytes": done.original_bytes, "archive_bytes": done.archive_bytes,
            "stored_bytes": done.stored_bytes, "duplicate_bytes": done.duplicate_bytes,
            "zero_bytes": done.zero_bytes, "similar_bytes": done.similar_bytes, "chunks": done.chunks,
            "mover": done.mover.map(|mover| mover.name()), "threads": done.threads, "seconds": seconds,
        })));
    }
    let (original, archive) = (size(done.original_bytes), size(done.archive_bytes));
    let ratio = percent(done.archive_bytes, done.original_bytes);
    let found = if done.mover.is_some() {
        let (equal, similar) = (done.duplicate_bytes + done.zero_bytes, done.similar_bytes);
        format!(
            "{} equal or zero, {} {}",
            percent(equal, done.original_bytes),
            percent(similar, done.original_bytes),
            if a.delta { "similar" } else { "moved" }
        )
    } else {
        "no similar chunks".into()
    };
    toldln!(args.quiet, "{output}: {original} in {archive} ({ratio}), {found}, {seconds:.1} s");
    Ok(None)
}

/// `munzip`
pub fn unzip(args: &Args, a: &Munzip) -> Result<ExitCode> {
    decompress(args, &a.manners, a.range.clone())
}

fn decompress(args: &Args, manners: &Manners, range: Option<Range<u64>>) -> Result<ExitCode> {
    if range.is_some() && manners.files.len() > 1 {
        return Err(usage("a range is of one archive".into()));
    }
    each(args, manners, |input| {
        if manners.test || manners.list {
            look(args, manners, input)
        } else {
            decompress_one(args, manners, range.as_ref(), input)
        }
    })
}

/// Decompresses one file. Returns the object of `--json`.
fn decompress_one(
    args: &Args,
    manners: &Manners,
    range: Option<&Range<u64>>,
    input: Option<&Path>,
) -> Result<Option<Value>> {
    let start = Instant::now();
    let (input, to) = ends(manners, input, |path| {
        if range.is_some() {
            return Ok("-".into());
        }
        let name = path.to_string_lossy();
        match name.strip_suffix(SUFFIX).filter(|stem| !stem.is_empty() && !stem.ends_with('/')) {
            Some(_) => Ok(path.with_extension("")),
            None => Err(usage(format!("{name}: does not end in {SUFFIX}; -o names the result"))),
        }
    })?;
    let name = input.name();
    let (original_bytes, archive_bytes) = written(&input, to.as_deref(), manners.force, |output| {
        if manners.rm {
            input.is_removable()?;
        }
        watched(args, &name, 1, |progress| {
            with_archive(&input, manners.memory(), |archive, memory| {
                let summary = archive.summary();
                let range = range.cloned().unwrap_or(0..summary.original_bytes);
                let bytes = range.end.saturating_sub(range.start);
                let threads = threads();
                match output.as_file() {
                    Some(mut file) => {
                        archive.restore(range, Output::Places(&mut file), memory, threads, progress)?;
                        file.set_len(bytes).map_err(MzipError::Write)?;
                    }
                    None => {
                        let mut output = BufWriter::with_capacity(WRITE_BYTES, &mut *output);
                        archive.restore(range, Output::Stream(&mut output), memory, threads, progress)?;
                    }
                }
                Ok((bytes, summary.archive_bytes))
            })
            .map_err(|e| of_end(e, &name, output))
        })
    })?;
    if manners.rm {
        remove(&input)?;
    }
    let Some(to) = to else { return Ok(None) };
    let (seconds, output) = (start.elapsed().as_secs_f64(), to.display().to_string());
    if args.json {
        return Ok(Some(json!({
            "output": output, "original_bytes": original_bytes, "archive_bytes": archive_bytes, "seconds": seconds,
        })));
    }
    let (original, archive) = (size(original_bytes), size(archive_bytes));
    toldln!(args.quiet, "{output}: {original} from {archive}, {seconds:.1} s");
    Ok(None)
}

/// `-t` and `-l`
fn look(args: &Args, manners: &Manners, input: Option<&Path>) -> Result<Option<Value>> {
    let start = Instant::now();
    let input = Input::open(input)?;
    let name = input.name();
    let summary = watched(args, &name, 1, |progress| {
        with_archive(&input, manners.memory(), |archive, memory| {
            if manners.test {
                archive.test(memory, threads(), progress)?;
            }
            Ok(archive.summary())
        })
        .with_context(|| input.name())
    })?;
    if args.json {
        return Ok(Some(json!({
            "archive": name, "original_bytes": summary.original_bytes, "archive_bytes": summary.archive_bytes,
            "stored_bytes": summary.stored_bytes, "recipe_bytes": summary.recipe_bytes, "blocks": summary.blocks,
            "compressor": summary.compressor.name(), "level": summary.level, "migrated": summary.migrated, "deltas": summary.deltas,
            "tested": manners.test, "seconds": start.elapsed().as_secs_f64(),
        })));
    }
    if manners.test {
        toldln!(
            args.quiet,
            "{name}: {} in {} are sound",
            size(summary.original_bytes),
            counted(summary.blocks, "block")
        );
        return Ok(None);
    }
    let (original, archive) = (size(summary.original_bytes), size(summary.archive_bytes));
    let ratio = percent(summary.archive_bytes, summary.original_bytes);
    let recipe = if summary.migrated { size(summary.recipe_bytes) } else { "none".into() };
    let deltas = if summary.deltas { ", deltas" } else { "" };
    outln!(
        "{name}: {original} in {archive} ({ratio}), {} {}, {}, recipe {recipe}{deltas}",
        summary.compressor.name(),
        summary.level,
        counted(summary.blocks, "block")
    );
    Ok(None)
}

/// Opens the input, and says where the result goes; `None` is standard output.
fn ends(
    manners: &Manners,
    path: Option<&Path>,
    named: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<(Input, Option<PathBuf>)> {
    let input = Input::open(path)?;
    if manners.rm && input.regular().is_none() {
        return Err(usage(format!("{}: --rm removes regular files only", input.name())));
    }
    input.claim(manners.rm)?;
    let to = match (&manners.output, path) {
        _ if manners.is_to_stdout() => "-".into(),
        (Some(output), _) => output.clone(),
        (None, Some(_)) if input.regular().is_none() => {
            return Err(usage(format!("{}: is not a regular file; -o names the result", input.name())));
        }
        (None, Some(path)) => named(path)?,
        (None, None) => "-".into(),
    };
    if to.as_os_str() == "-" {
        if manners.rm {
            return Err(usage("--rm needs a result that is a file".into()));
        }
        return Ok((input, None));
    }
    Ok((input, Some(to)))
}

/// Removes the input, whose result is complete and durable.
fn remove(input: &Input) -> Result<()> {
    if is_stopped() {
        return Err(anyhow::Error::from(MzipError::Stopped).context(format!("{}: not removed", input.name())));
    }
    input.remove()
}

/// Opens the archive in the input, and says how much memory is left.
fn with_archive<T>(
    input: &Input,
    memory: u64,
    work: impl FnOnce(&Archive<'_>, u64) -> archive::mzip::Result<T>,
) -> archive::mzip::Result<T> {
    let opened = |source: &dyn ReadAt, memory| work(&Archive::open(source, memory)?, memory);
    match input.at() {
        Some(at) => opened(&at, memory),
        None => {
            let kept = Kept::new(&mut input.stream(), memory / 4, &scratch(None))?;
            opened(&kept, memory - kept.memory())
        }
    }
}

/// An error with the name of the end that it is of.
fn of_end(e: MzipError, input: &str, output: &Destination) -> anyhow::Error {
    let end = if matches!(e, MzipError::Write(_)) { output.name() } else { input.into() };
    anyhow::Error::from(e).context(end)
}

/// Runs an operation that reads so many times, shows how far it is, and stops it if a signal comes.
fn watched<T>(
    args: &Args,
    name: &str,
    readings: u64,
    operation: impl FnOnce(&Progress) -> Result<T>,
) -> Result<T> {
    let progress = Progress::default();
    keep_little();
    catch_signals();
    let far = || {
        if is_stopped() {
            progress.stop();
            end_soon();
        }
        (progress.done() / readings, progress.total() / readings)
    };
    show_while(args.quiet, name, far, || operation(&progress))
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get())
}
