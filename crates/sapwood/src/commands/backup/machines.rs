//! `sapwood backup '*' 'libvirt:PATTERN'`: all domains that fit, each under its own name. One that fails does not stop the
//! others.

use super::backed::Backed;
use super::machine::Machine;
use crate::args::{Args, Backup};
use crate::commands::names::open_to_change;
use crate::commands::snapshots::pattern::fits;
use crate::live::{all_domains, domain_pattern, THEIR_OWN_NAMES};
use crate::progress::is_stopped;
use crate::terminal::exit_code::INTERRUPTED;
use crate::terminal::outcome::{exit_code, one_line};
use crate::terminal::output::print_json;
use crate::terminal::streams::errln;
use anyhow::Result;
use serde_json::{json, Value};
use std::process::ExitCode;
use vault::{Vault, VaultError};

/// The pattern of domains in a source.
pub fn pattern(a: &Backup) -> Result<Option<&str>> {
    match domain_pattern(&a.source) {
        Some(pattern) if a.disk == THEIR_OWN_NAMES => Ok(Some(pattern)),
        Some(pattern) => {
            let why = format!(
                "{}: libvirt:{pattern} may be several machines, which keep their own names: write '*' instead",
                a.disk
            );
            Err(VaultError::Usage(why).into())
        }
        None => Ok(None),
    }
}

/// The domains that fit a pattern, running or not: at least one.
pub fn domains_of(pattern: &str) -> Result<Vec<String>> {
    let domains: Vec<String> = all_domains()?.into_iter().filter(|name| fits(pattern, name)).collect();
    if domains.is_empty() {
        let what = format!("libvirt:{pattern}: libvirt has no such domain; `virsh list --all` lists them");
        return Err(VaultError::NotFound { what }.into());
    }
    Ok(domains)
}

/// Backs up all domains that fit.
pub fn run(args: &Args, a: &Backup, pattern: &str) -> Result<ExitCode> {
    let vault = open_to_change(args)?;
    let domains = domains_of(pattern)?;
    let mut code = ExitCode::SUCCESS;
    let mut all = Vec::new();
    for domain in &domains {
        if is_stopped() {
            code = ExitCode::from(INTERRUPTED);
            errln!("sapwood: interrupted; from {domain} on nothing was backed up");
            break;
        }
        match one(args, a, &vault, domain) {
            Ok(made) => {
                all.push(made.json(domain));
                if !args.json {
                    made.print(args.quiet);
                }
            }
            Err(e) => {
                code = exit_code(&e);
                errln!("sapwood: {domain}: {}", one_line(&e));
                all.push(json!({ "machine": domain, "error": one_line(&e) }));
            }
        }
    }
    if args.json {
        print_json(&json!({ "machines": Value::Array(all) }));
    }
    Ok(code)
}

fn one(args: &Args, a: &Backup, vault: &Vault, domain: &str) -> Result<Machine> {
    let a = Backup { disk: domain.to_owned(), source: format!("libvirt:{domain}").into(), ..a.clone() };
    Backed::parse(&a)?.back_up(args.quiet, &a, vault)
}
