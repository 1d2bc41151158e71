//! `sapwood mtar`

use super::each::usage;
use super::input::Input;
use super::output::written;
use super::stop::end_soon;
use crate::args::{Args, MtarWhat};
use crate::progress::{catch_signals, is_stopped, show_while};
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::toldln;
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
            let align = u32::try_from(*align).map_err(|_| MtarError::Alignment(*align))?;
            if output.as_os_str() == "-" && std::io::stdout().is_terminal() {
                return Err(usage("a migrated archive is not written to a terminal; name a file".into()));
            }
            let done = through(args.quiet, (input, output), *force, |from, to| migrate(from, to, align))?;
            (done.tar_bytes, done.mtar_bytes, Some(done.headers))
        }
        MtarWhat::Restore { input, output, force } => {
            let done = through(args.quiet, (input, output), *force, |from, to| restore(from, to))?;
            (done.tar_bytes, done.mtar_bytes, None)
        }
    };
    if args.prints_data() {
        return Ok(ExitCode::SUCCESS);
    }
    let output = what.output().display();
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
    (input, output): (&Path, &Path),
    force: bool,
    work: impl FnOnce(&mut dyn Read, &mut dyn Write) -> std::result::Result<T, MtarError>,
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
    let to = Some(output).filter(|path| path.as_os_str() != "-");
    written(&input, to, force, |output| {
        catch_signals();
        let mut to = BufWriter::with_capacity(WRITE_BYTES, &mut *output);
        let done = show_while(quiet, &name, far, || work(&mut from, &mut to));
        drop(to);
        done.map_err(|e| match e {
            MtarError::Read(_) if is_stopped() => MzipError::Stopped.into(),
            MtarError::Alignment(_) => e.into(),
            MtarError::Write(_) => anyhow::Error::from(e).context(output.name()),
            _ => anyhow::Error::from(e).context(name.clone()),
        })
    })
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
