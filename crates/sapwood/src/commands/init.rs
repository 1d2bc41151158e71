//! `sapwood init`

use crate::args::Args;
use crate::commands::names::{store_options, store_url};
use crate::terminal::escape::shell_word;
use crate::terminal::output::print_json;
use crate::terminal::streams::{note_done, toldln};
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use store::{ObjectStore, StoreOptions};
use vault::{Policy, Vault, VaultError};

pub fn run(args: &Args, policy: &str, isolate: bool, one_host: bool) -> Result<ExitCode> {
    let policy = Policy::by_name(policy)?;
    let policy = if isolate { policy.isolated() } else { policy };
    let options = StoreOptions { one_host, ..store_options(args) };
    let store: Arc<dyn ObjectStore> = Arc::from(store::create(&store_url(args)?, &options)?);
    let there = if one_host { there(&store)? } else { None };
    let is_new = there.is_none();
    let vault = match there {
        Some(vault) => vault,
        None => Vault::init(store, &policy)?,
    };
    let (place, policy, isolated) = (vault.location(), vault.policy()?.name, vault.is_isolated());
    note_done(format!("a vault was made at {place}"));
    if args.json {
        print_json(
            &json!({ "vault_id": vault.id().to_string(), "store": place, "policy": policy, "isolated": isolated, "is_new": is_new }),
        );
        return Ok(ExitCode::SUCCESS);
    }
    if is_new {
        let isolated = if isolated { ", disks isolated" } else { "" };
        toldln!(args.quiet, "made a vault at {place}, policy {policy}{isolated}");
        toldln!(
            args.quiet,
            "next: sapwood --store {} backup VM/DISK IMAGE, or VM libvirt:DOMAIN",
            shell_word(&place)
        );
    }
    if one_host {
        toldln!(args.quiet, "{place}: from now on this host ({}) alone writes", locks::host_name());
    }
    Ok(ExitCode::SUCCESS)
}

/// The vault that is there already: it is given another host to write.
fn there(store: &Arc<dyn ObjectStore>) -> Result<Option<Vault>> {
    match Vault::open(Arc::clone(store)) {
        Ok(vault) => Ok(Some(vault)),
        Err(VaultError::NotFound { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
