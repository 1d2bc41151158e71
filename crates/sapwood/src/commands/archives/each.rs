//! Several files on one command line: what is asked for is done with each.

use crate::args::{Args, Manners};
use crate::progress::is_stopped;
use crate::terminal::exit_code::INTERRUPTED;
use crate::terminal::outcome::{exit_code, one_line};
use crate::terminal::output::print_json;
use crate::terminal::streams::errln;
use anyhow::Result;
use serde_json::{json, Value};
use std::path::Path;
use std::process::ExitCode;
use vault::VaultError;

/// Does the same with each file, or with standard input. `one` returns the object of `--json`. Of several files, one that fails
/// keeps no other from its turn; the exit code is that of the first that did.
pub fn each(
    args: &Args,
    manners: &Manners,
    one: impl Fn(Option<&Path>) -> Result<Option<Value>>,
) -> Result<ExitCode> {
    let inputs = manners.inputs();
    if let [input] = inputs[..] {
        if let Some(object) = one(input)? {
            print_json(&object);
        }
        return Ok(ExitCode::SUCCESS);
    }
    if manners.output.is_some() {
        return Err(usage("-o names one result: name one file".into()));
    }
    if inputs.contains(&None) {
        return Err(usage("-: standard input stands alone".into()));
    }
    let (mut all, mut code) = (Vec::new(), None);
    for input in inputs.into_iter().flatten() {
        if is_stopped() {
            errln!("sapwood: interrupted; from {} on nothing was done", input.display());
            code = Some(ExitCode::from(INTERRUPTED));
            break;
        }
        match one(Some(input)) {
            Ok(object) => all.extend(object),
            Err(e) => {
                let why = one_line(&e);
                errln!("sapwood: {why}");
                all.push(json!({ "file": input.display().to_string(), "error": why }));
                code.get_or_insert(exit_code(&e));
            }
        }
    }
    if args.json && !args.prints_data() {
        print_json(&json!({ "files": all }));
    }
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

/// An error of the command line.
pub fn usage(why: String) -> anyhow::Error {
    VaultError::Usage(why).into()
}
