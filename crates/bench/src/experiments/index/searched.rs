//! A backup of new data, and one of a clone, in a vault of a given size: what they ask of its index.

use std::sync::Arc;

use anyhow::Result;
use serde::Serialize;
use store::{ObjectStore, SimFs, SimStore};
use vault::Vault;

use super::options::{hooks_of, IndexOptions};
use super::world::{back_up, disk, Ground};
use crate::context::Context;
use crate::images::generate::Content;
use crate::vaults::hooks_store::HooksStore;
use crate::vaults::request_store::{RequestMeter, RequestStore, Requests};

/// What was asked of an index.
#[derive(Debug, Serialize)]
pub struct Searched {
    /// Data in the vault.
    pub terabytes: f64,
    /// Hooks in the index.
    pub hooks: u64,
    /// Objects that they are in.
    pub runs: usize,
    /// Length of these objects.
    pub index_bytes: u64,
    /// Hooks that the backup of new data looked up.
    pub lookups: u64,
    /// Requests of that backup.
    pub backup: Requests,
    /// Requests of a backup that had nothing to look up.
    pub opening: Requests,
    /// Memory of the footers of all objects, which a backup holds.
    pub footer_bytes: usize,
    /// Of a clone's data, the part that was found through the index.
    pub found: f64,
}

impl Searched {
    /// Reads for each hook looked up, over those of a backup with an empty index.
    pub fn reads_of_a_lookup(&self, none: &Searched) -> f64 {
        let searching = |s: &Searched| s.backup.reads as f64 - s.opening.reads as f64;
        (searching(self) - searching(none)) / self.lookups as f64
    }

    /// Bytes that these read.
    pub fn bytes_of_a_lookup(&self, none: &Searched) -> f64 {
        let searching = |s: &Searched| s.backup.read_bytes as f64 - s.opening.read_bytes as f64;
        (searching(self) - searching(none)) / self.lookups as f64
    }
}

/// Backs up new data and a clone in a vault of so many TB.
pub fn search(context: &Context, options: &IndexOptions, terabytes: f64) -> Result<Searched> {
    let content = Content::new(context.options.seed);
    let bytes = options.data_bytes(context.options.tiny);
    let fs = SimFs::new(context.options.seed);
    let inner: Arc<dyn ObjectStore> = Arc::new(SimStore::create_on(fs.clone())?);
    let template = disk(&content, 1, bytes);
    let ground = Ground::lay(&inner, &content, options.owners, &template)?;
    let runs = ground.runs(hooks_of(terabytes), options.runs_of_a_size);
    let meter = RequestMeter::default();
    let open = || -> Result<Vault> {
        let store = HooksStore::new(SimStore::open_on(fs.process())?, runs.clone());
        Ok(Vault::open(Arc::new(RequestStore::new(store, meter.clone())))?)
    };
    let empty = disk(&content, 2, 0);
    back_up(&open()?, "empty/vda", &empty)?;
    let opening = meter.take();
    let fresh = disk(&content, 3, bytes);
    let vault = open()?;
    meter.take();
    back_up(&vault, "fresh/vda", &fresh)?;
    let backup = meter.take();
    let lookups = ground.count_others(&*inner)?;
    let new_bytes = back_up(&open()?, "clone/vda", &template)?;
    eprintln!("{terabytes} TB: {lookups} lookups, {} reads", backup.reads);
    Ok(Searched {
        terabytes,
        hooks: runs.iter().map(|run| run.hooks()).sum(),
        runs: runs.len(),
        index_bytes: runs.iter().map(|run| run.length()).sum(),
        lookups,
        backup,
        opening,
        footer_bytes: runs.iter().map(|run| run.footer_memory_bytes()).sum(),
        found: 1.0 - new_bytes as f64 / bytes as f64,
    })
}
