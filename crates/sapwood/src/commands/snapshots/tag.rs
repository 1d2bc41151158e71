//! `sapwood tag`

use crate::args::Args;
use crate::commands::names::{open, split};
use crate::tags;
use crate::terminal::output::print_json;
use crate::terminal::streams::{note_done, outln};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;
use vault::VaultError;

pub fn run(args: &Args, snapshot: &str, set: &[String], remove: &[String]) -> Result<ExitCode> {
    let (disk, spec) = split(snapshot);
    let mut changes: BTreeMap<String, Option<String>> = BTreeMap::new();
    for text in set {
        let (name, value) = tags::parse(text)?;
        changes.insert(name, Some(value));
    }
    for name in remove {
        tags::check_name(name).map_err(|why| VaultError::Usage(format!("the tag {name}: {why}")))?;
        changes.insert(name.clone(), None);
    }
    let entry = open(args)?.set_tags(disk, spec, &changes)?;
    note_done(format!("the tags of {disk}@{} were changed", entry.id));
    let all: BTreeMap<&String, &String> = entry.tags.iter().map(|(k, v)| (k, v)).collect();
    if args.json {
        print_json(&json!({ "disk": disk, "snapshot": entry.id.to_string(), "tags": all }));
    } else if !args.quiet {
        let all: Vec<String> = all.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let what = if all.is_empty() { "no tags".into() } else { all.join(" ") };
        outln!("{disk}@{} has {what}", entry.id);
    }
    Ok(ExitCode::SUCCESS)
}
