//! `sapwood init`

use super::store_url;
use crate::args::Args;
use crate::output::print_json;
use anyhow::Result;
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;
use vault::{Policy, Vault};

pub fn run(args: &Args, policy: &str) -> Result<ExitCode> {
    let policy = Policy::by_name(policy)?;
    let store = store::open(store_url(args)?, true)?;
    let vault = Vault::init(Arc::from(store), &policy)?;
    if args.json {
        print_json(
            &json!({ "vault": vault.id().to_string(), "store": vault.location(), "policy": policy.name }),
        );
    } else {
        println!("made a vault at {}, policy {}", vault.location(), policy.name);
    }
    Ok(ExitCode::SUCCESS)
}
