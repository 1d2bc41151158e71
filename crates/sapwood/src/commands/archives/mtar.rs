//! `sapwood mtar`

use super::each::usage;
use super::input::Input;
use super::stop::end_soon;
use crate::args::{Args, MtarWhat};
use crate::progress::{catch_signals, is_stopped, show_while};
use crate::system::new_file::{Existing, NewFile};
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{check_out, note_done, toldln, Out};
use anyhow::Result;
use archive::mtar::{migrate, restore, MtarError};
use archive::mzip::MzipError;
use serde_json::json;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

pub fn run(args: &Args, what: &MtarWhat) -> Result<ExitCode> {
    let start = Instant::now();
    let (tar_bytes, mtar_bytes, headers) = match what {
        MtarWhat::Migrate { input, output, align, force } => {
            let align = u32::try_from(*align).unwrap_or(u32::MAX);
            let done =
                through(args.quiet, input, (output, true), *force, |from, to| Ok(migrate(from, to, align)?))?;
            (done.tar_bytes, done.mtar_bytes, Some(done.headers))
        }
        MtarWhat::Restore { input, output, force } => {
            let done =
                through(args.quiet, input, (output, false), *force, |from, to| Ok(restore(from, to)?))?;
            (done.tar_bytes, done.mtar_bytes, None)
        }
    };
    if args.prints_data() {
        return Ok(ExitCode::SUCCESS);
    }
    let output = what.output().display();
    note_done(format!("{output} is written"));
    let seconds = start.elapsed().as_secs_f64();
    if args.json {
        print_json(&json!({
            "output": output.to_string(), "tar_bytes": tar_bytes, "mtar_bytes": mtar_bytes, "headers": headers,
            "seconds": seconds,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let (tar, mtar) = (size(tar_bytes), size(mtar_bytes));
    match headers {
        Some(0) => toldln!(
            args.quiet,
            "{output}: {tar} without tar headers, kept as it is, {mtar} now; what is compressed is to be decompressed first"
        ),
        Some(n) => toldln!(args.quiet, "{output}: {tar} with {n} headers, {mtar} now, {seconds:.1} s"),
        None => toldln!(args.quiet, "{output}: {tar} of {mtar}, {seconds:.1} s"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens both ends, shows how far the work is, and gives the output its name when it is done.
fn through<T>(
    quiet: bool,
    input: &Path,
    (output, is_binary): (&Path, bool),
    force: bool,
    work: impl FnOnce(&mut dyn Read, &mut dyn Write) -> Result<T>,
) -> Result<T> {
    let input = Input::open(Some(input).filter(|path| path.as_os_str() != "-"))?;
    input.claim(false)?;
    let (name, total) = (input.name(), input.at().map_or(0, |(_, len)| len));
    let at = AtomicU64::new(0);
    let mut from = Counted { input: input.stream(), at: &at };
    let far = || {
        if is_stopped() {
            end_soon();
        }
        (at.load(Ordering::Relaxed), total)
    };
    let watched = |to: &mut dyn Write| {
        catch_signals();
        let work = || work(&mut from, &mut BufWriter::with_capacity(WRITE_BYTES, to));
        show_while(quiet, &name, far, work).map_err(|e| match e.downcast_ref::<MtarError>() {
            Some(MtarError::Read(_)) if is_stopped() => MzipError::Stopped.into(),
            Some(MtarError::Write(_) | MtarError::Alignment(_)) => e,
            _ => e.context(name.clone()),
        })
    };
    if output.as_os_str() == "-" {
        check_out()?;
        if is_binary && std::io::stdout().is_terminal() {
            return Err(usage("a migrated archive is not written to a terminal; name a file".into()));
        }
        return watched(&mut Out);
    }
    let like = input.regular();
    let create = if like.is_some() { NewFile::create_private } else { NewFile::create };
    input.differs_from(output)?;
    let mut to = create(output, Existing::of(force))?;
    let done = watched(&mut to).map_err(|e| match e.downcast_ref::<MtarError>() {
        Some(MtarError::Write(_)) => e.context(output.display().to_string()),
        _ => e,
    })?;
    to.finish(like)?;
    Ok(done)
}

/// The input, which says how much of it was read, and ends when the command is told to stop.
struct Counted<'a, R> {
    input: R,
    at: &'a AtomicU64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if is_stopped() {
            return Err(io::Error::other(MzipError::Stopped));
        }
        let len = self.input.read(buf)?;
        self.at.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
