//! Our dirty bitmaps in QEMU: finding the one to use, and removing the others.

use super::qmp::Qmp;
use anyhow::Result;
use serde_json::{json, Value};
use vault::{SnapId, VaultError, VaultId};

/// What changed since a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    pub name: String,
}

/// How the changes since the newest snapshot are known.
pub enum State {
    /// A bitmap that has recorded all writes since the newest snapshot, and still records.
    Usable(Bitmap),
    /// There is no such bitmap, for this reason.
    FullScan(String),
}

impl Bitmap {
    pub fn of(vault: VaultId, snapshot: SnapId) -> Self {
        Bitmap { name: format!("sapwood-{vault}-{snapshot}") }
    }

    pub fn remove(&self, qmp: &mut Qmp, node: &str) -> Result<()> {
        qmp.execute("block-dirty-bitmap-remove", self.on(node)).map(drop)
    }

    fn on(&self, node: &str) -> Value {
        json!({ "node": node, "name": self.name })
    }
}

/// A bitmap as QEMU describes it.
struct BitmapInfo {
    bitmap: Bitmap,
    recording: bool,
    /// QEMU was not ended in order while it recorded.
    inconsistent: bool,
    /// An export or a job uses it.
    busy: bool,
}

/// Leaves at most one bitmap of this vault: that of the newest snapshot, with all that was recorded since. Bitmaps of
/// backups that were killed are merged into it.
pub fn settle(qmp: &mut Qmp, node: &str, vault: VaultId, newest: Option<SnapId>) -> Result<State> {
    let found = bitmaps(qmp, node, vault)?;
    if let Some(busy) = found.iter().find(|f| f.busy) {
        let why = format!(
            "QEMU's bitmap {} of {node} is in use; end the job or the export that uses it",
            busy.bitmap.name
        );
        return Err(VaultError::Refused(why).into());
    }
    let Some(newest) = newest else {
        found.iter().try_for_each(|f| f.bitmap.remove(qmp, node))?;
        return Ok(State::FullScan("there is no snapshot yet".into()));
    };
    let wanted = Bitmap::of(vault, newest);
    let Some(current) = found.iter().find(|f| f.bitmap == wanted) else {
        let why = match found.len() {
            0 => format!(
                "QEMU has no bitmap since snapshot {newest}: it began later, or without keeping bitmaps"
            ),
            _ => format!("the bitmap that there is does not begin at the newest snapshot, {newest}"),
        };
        found.iter().try_for_each(|f| f.bitmap.remove(qmp, node))?;
        return Ok(State::FullScan(why));
    };
    // Of a backup that was killed: it went on recording where this one stopped.
    let later: Vec<&BitmapInfo> =
        found.iter().filter(|f| f.bitmap != wanted && f.recording && !f.inconsistent).collect();
    let is_whole = !current.inconsistent && (current.recording || !later.is_empty());
    if !is_whole {
        found.iter().try_for_each(|f| f.bitmap.remove(qmp, node))?;
        return Ok(State::FullScan(format!("the bitmap since snapshot {newest} is not whole")));
    }
    if !current.recording {
        let names: Vec<&str> = later.iter().map(|f| f.bitmap.name.as_str()).collect();
        resume(qmp, node, &wanted, &names)?;
    }
    let others = found.iter().filter(|f| f.bitmap != wanted);
    others.map(|f| &f.bitmap).try_for_each(|b| b.remove(qmp, node))?;
    Ok(State::Usable(wanted))
}

/// Merges other bitmaps into one and lets it record again, in one transaction.
fn resume(qmp: &mut Qmp, node: &str, bitmap: &Bitmap, others: &[&str]) -> Result<()> {
    let merge = json!({ "node": node, "target": bitmap.name, "bitmaps": others });
    let actions = json!([
        { "type": "block-dirty-bitmap-enable", "data": bitmap.on(node) },
        { "type": "block-dirty-bitmap-merge", "data": merge },
    ]);
    qmp.execute("transaction", json!({ "actions": actions })).map(drop)
}

fn bitmaps(qmp: &mut Qmp, node: &str, vault: VaultId) -> Result<Vec<BitmapInfo>> {
    let prefix = format!("sapwood-{vault}-");
    let nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
    let of_node = nodes.as_array().into_iter().flatten().filter(|n| n["node-name"] == node);
    let all = of_node.flat_map(|n| n["dirty-bitmaps"].as_array().cloned().unwrap_or_default());
    Ok(all
        .filter_map(|b| {
            let name = b["name"].as_str().filter(|name| name.starts_with(&prefix))?.to_owned();
            let recording = b["recording"] == true;
            let (inconsistent, busy) = (b["inconsistent"] == true, b["busy"] == true);
            Some(BitmapInfo { bitmap: Bitmap { name }, recording, inconsistent, busy })
        })
        .collect())
}
