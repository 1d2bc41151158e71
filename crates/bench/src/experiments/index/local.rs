//! The same index in a directory: a backup by the clock, from a cold cache, and the joining of the longest runs.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::Serialize;
use store::{LocalStore, ObjectStore};

use super::options::{hooks_of, IndexOptions};
use super::world::{disk, Ground};
use crate::context::Context;
use crate::files;
use crate::images::generate::Content;
use crate::run::{run as run_program, Cost};
use crate::workload::hook_runs::HookRun;

/// A vault whose index is in a directory.
#[derive(Debug, Serialize)]
pub struct Local {
    /// Data in the vault.
    pub terabytes: f64,
    /// Length of the index.
    pub index_bytes: u64,
    /// The backup of new data.
    pub backup: Cost,
    /// The joining of eight runs of the longest; none without an index.
    pub joining: Option<Joining>,
}

/// Runs that were joined.
#[derive(Debug, Serialize)]
pub struct Joining {
    /// Length of what was joined.
    pub bytes: u64,
    /// Of `sapwood gc`.
    pub cost: Cost,
}

/// Measures a vault of so many TB.
pub fn measure(context: &Context, options: &IndexOptions, terabytes: f64) -> Result<Local> {
    let content = Content::new(context.options.seed);
    let bytes = options.data_bytes(context.options.tiny);
    let dir = files::fresh_dir(&context.space().join("index"))?;
    let path = dir.join("vault");
    let store: Arc<dyn ObjectStore> = Arc::new(LocalStore::create(&path)?);
    let ground = Ground::lay(&store, &content, options.owners, &disk(&content, 1, 1 << 20))?;
    drop(store);
    let runs = ground.runs(hooks_of(terabytes), options.runs_of_a_size);
    let index_bytes = runs.iter().map(|run| run.length()).sum();
    // Joined runs stand beside those that they are made of.
    context.require_free(2 * index_bytes)?;
    runs.iter().try_for_each(|run| write(&path, run))?;
    let source = dir.join("source.raw");
    fs::write(&source, &*disk(&content, 3, bytes).0)?;
    context.make_cold(&path)?;
    files::make_warm(&source)?;
    let mut backup = sapwood(context, &path)?;
    backup.args(["backup", "fresh/vda"]).arg(&source);
    let backup = run_program(&mut backup, &dir)?.cost;
    let joining = match runs.first() {
        None => None,
        Some(longest) => {
            // Eight are joined.
            for number in options.runs_of_a_size..8 {
                write(&path, &ground.run(1_000_000 + number, longest.hooks()))?;
            }
            context.make_cold(&path)?;
            let cost = run_program(sapwood(context, &path)?.arg("gc"), &dir)?.cost;
            Some(Joining { bytes: 8 * longest.length(), cost })
        }
    };
    fs::remove_dir_all(dir)?;
    Ok(Local { terabytes, index_bytes, backup, joining })
}

fn sapwood(context: &Context, vault: &Path) -> Result<Command> {
    let mut command = Command::new(context.sapwood()?);
    command.arg("--json").arg("--store").arg(vault);
    Ok(command)
}

/// Writes a run into a vault in a directory.
fn write(vault: &Path, run: &HookRun) -> Result<()> {
    let path = vault.join("objects").join(&run.name);
    fs::create_dir_all(path.parent().context("no folder")?)?;
    let mut file = BufWriter::new(File::create(path)?);
    run.write(&mut file)?;
    file.flush()?;
    Ok(())
}
