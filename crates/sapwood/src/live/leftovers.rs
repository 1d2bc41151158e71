//! Removes exports, jobs and nodes that killed backups left in QEMU.

use super::names::Names;
use super::qmp::Qmp;
use super::scratch;
use anyhow::Result;
use serde_json::{json, Value};
use std::path::Path;
use vault::VaultError;

/// Removes the exports, jobs and nodes of backups whose process has died, of all vaults.
///
/// # Errors
/// Where a backup is running through another monitor of the same QEMU; nothing is touched then.
pub fn remove(qmp: &mut Qmp) -> Result<()> {
    let nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
    for node in nodes.as_array().into_iter().flatten() {
        let (Some(name), Some(image)) = (node["node-name"].as_str(), node["file"].as_str()) else { continue };
        if let (true, Some(by)) = (name.starts_with(Names::FILE), scratch::holder(Path::new(image))) {
            let why =
                format!("another backup of this virtual machine is running: {by}; try again when it is done");
            return Err(VaultError::Refused(why).into());
        }
    }
    let exports = names_in(&qmp.execute("query-block-exports", json!({}))?, "id", Names::OURS);
    for id in &exports {
        qmp.execute("block-export-del", json!({ "id": id, "mode": "hard" }))?;
        qmp.wait_until_absent("query-block-exports", "id", id)?;
    }
    let jobs = names_in(&qmp.execute("query-jobs", json!({}))?, "id", Names::OURS);
    for job in &jobs {
        qmp.execute("block-job-cancel", json!({ "device": job, "force": true }))?;
        qmp.wait_until_absent("query-jobs", "id", job)?;
    }
    let is_ours = [Names::FLEECE, Names::FILE].iter().any(|k| !names_in(&nodes, "node-name", k).is_empty());
    let others = qmp.execute("query-block-exports", json!({}))?;
    if is_ours && others.as_array().is_some_and(Vec::is_empty) {
        // It may not be running. Before the nodes go: they tell that the server is ours.
        let _ = qmp.execute("nbd-server-stop", json!({}));
    }
    // A node before the one that it stands on.
    for kind in [Names::FLEECE, Names::FILE] {
        for node in names_in(&nodes, "node-name", kind) {
            qmp.execute("blockdev-del", json!({ "node-name": node }))?;
        }
    }
    Ok(())
}

/// Values that begin with `prefix`.
fn names_in(list: &Value, key: &str, prefix: &str) -> Vec<String> {
    let all = list.as_array().into_iter().flatten().filter_map(|e| e[key].as_str());
    all.filter(|name| name.starts_with(prefix)).map(str::to_owned).collect()
}
