//! `sapwood mtar`

use super::claim::claim_input;
use crate::args::{Args, MtarWhat};
use crate::system::new_file::{Existing, NewFile};
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{check_in, check_out, note_done, toldln, Out, Waiting};
use anyhow::{Context as _, Result};
use archive::mtar::{migrate, restore, MtarError};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;

pub fn run(args: &Args, what: &MtarWhat) -> Result<ExitCode> {
    let start = Instant::now();
    let (tar_bytes, mtar_bytes, headers) = match what {
        MtarWhat::Migrate { input, output, align, force } => {
            let align = u32::try_from(*align).unwrap_or(u32::MAX);
            let done = through(input, output, *force, |from, to| Ok(migrate(from, to, align)?))?;
            (done.tar_bytes, done.mtar_bytes, Some(done.headers))
        }
        MtarWhat::Restore { input, output, force } => {
            let named = || input.display().to_string();
            let done = through(input, output, *force, |from, to| restore(from, to).with_context(named))?;
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
        Some(n) => toldln!(args.quiet, "{output}: {tar} with {n} headers, {mtar} now, {seconds:.1} s"),
        None => toldln!(args.quiet, "{output}: {tar} of {mtar}, {seconds:.1} s"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens both ends, and gives the output its name when the work is done.
fn through<T>(
    input: &Path,
    output: &Path,
    force: bool,
    work: impl FnOnce(&mut dyn Read, &mut dyn Write) -> Result<T>,
) -> Result<T> {
    let from = if input.as_os_str() == "-" {
        check_in()?;
        File::from(std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?)
    } else {
        File::open(input).with_context(|| format!("{}: cannot open", input.display()))?
    };
    claim_input(&from, input, false)?;
    let mut from = Waiting(&from);
    if output.as_os_str() == "-" {
        check_out()?;
        return work(&mut from, &mut BufWriter::with_capacity(WRITE_BYTES, Out));
    }
    let like = Some(input).filter(|input| input.as_os_str() != "-" && input.is_file());
    let create = if like.is_some() { NewFile::create_private } else { NewFile::create };
    let mut to = create(output, Existing::of(force))?;
    let done = work(&mut from, &mut BufWriter::with_capacity(WRITE_BYTES, &mut to));
    let done = done.map_err(|e| match e.downcast_ref::<MtarError>() {
        Some(MtarError::Write(_)) => e.context(output.display().to_string()),
        _ => e,
    })?;
    to.finish(like)?;
    Ok(done)
}
