//! Finds the users of QEMU's block nodes: devices of the guest, and writable exports.
//!
//! A node may have no user any more: after a block job has moved a disk to another image, the old image's node keeps
//! its name but receives no writes.

use super::qmp::Qmp;
use anyhow::Result;
use serde_json::{json, Value};
use std::collections::HashMap;

/// Drivers that pass all that is written on to one child, and have the same content.
const FILTERS: [&str; 9] = [
    "throttle",
    "copy-on-read",
    "compress",
    "preallocate",
    "blkdebug",
    "blklogwrites",
    "copy-before-write",
    "mirror_top",
    "commit_top",
];

/// A device or an export, and the disk that it uses.
pub struct User {
    /// What it can be called, the best name first: id of a device or an export, name of a drive, QOM path.
    pub names: Vec<String>,
    /// Id or QOM path, where it is a device.
    pub device: Option<String>,
    /// Whether it never writes.
    pub read_only: bool,
    /// The node that it uses.
    pub node: String,
    /// That node, and those below it that have the same content: all that is written goes through each of them.
    pub nodes: Vec<String>,
}

impl User {
    /// The name for people.
    pub fn name(&self) -> &str {
        &self.names[0]
    }

    fn of_device(device: &Value, graph: &Graph) -> Option<User> {
        // A drive without a device is not in use.
        let path = device["qdev"].as_str().filter(|path| !path.is_empty())?;
        let node = device["inserted"]["node-name"].as_str()?;
        // An id, or the QOM path of a device or of a part of it.
        let by_path = path.strip_prefix("/machine/peripheral/").and_then(|rest| rest.split('/').next());
        let by_drive = device["device"].as_str().filter(|drive| !drive.is_empty());
        let by_id = Some(path).filter(|path| !path.contains('/'));
        let names = [by_path, by_id, by_drive, Some(path)].into_iter().flatten();
        Some(User {
            names: names.map(str::to_owned).collect(),
            device: Some(path.to_owned()),
            read_only: device["inserted"]["ro"] == true,
            node: node.to_owned(),
            nodes: graph.same_disk(node),
        })
    }

    fn of_export(export: &Value, graph: &Graph) -> Option<User> {
        let (id, node) = (export["id"].as_str()?, export["node-name"].as_str()?);
        graph.is_written_by_export(node).then(|| User {
            names: vec![id.to_owned()],
            device: None,
            read_only: false,
            node: node.to_owned(),
            nodes: graph.same_disk(node),
        })
    }
}

/// All devices with a disk, and all writable exports.
pub fn users(qmp: &mut Qmp) -> Result<Vec<User>> {
    let graph = Graph::of(qmp)?;
    let devices = qmp.execute("query-block", json!({}))?;
    let exports = qmp.execute("query-block-exports", json!({}))?;
    let devices = list(&devices).filter_map(|device| User::of_device(device, &graph));
    Ok(devices.chain(list(&exports).filter_map(|export| User::of_export(export, &graph))).collect())
}

/// Who uses what, for people.
pub fn told(users: &[User]) -> String {
    let all: Vec<String> = users.iter().map(|user| format!("{} uses {}", user.name(), user.node)).collect();
    if all.is_empty() {
        "QEMU has no device and no writable export with a disk".into()
    } else {
        format!("{}; name the device instead of a node", all.join(", "))
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// QEMU's block nodes and their children.
struct Graph {
    /// Driver and size by name.
    nodes: HashMap<String, (String, u64)>,
    edges: Vec<Edge>,
}

struct Edge {
    /// Name of a node; nothing where it is the back-end of an export or a job.
    parent: String,
    parent_is_node: bool,
    child: String,
    /// What the child is to its parent: `file`, `backing`, `root`.
    role: String,
    writes: bool,
}

impl Graph {
    fn of(qmp: &mut Qmp) -> Result<Self> {
        let described = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
        let nodes = list(&described).filter_map(|node| {
            let (name, driver) = (node["node-name"].as_str()?, node["drv"].as_str()?);
            Some((name.to_owned(), (driver.to_owned(), node["image"]["virtual-size"].as_u64()?)))
        });
        // Without a stable form in QEMU before 10.1.
        let graph = qmp.execute("x-debug-query-block-graph", json!({}))?;
        let by_id: HashMap<u64, &Value> =
            list(&graph["nodes"]).filter_map(|node| Some((node["id"].as_u64()?, node))).collect();
        let edges = list(&graph["edges"]).filter_map(|edge| {
            let [parent, child] = ["parent", "child"].map(|end| by_id.get(&edge[end].as_u64()?).copied());
            let (parent, child) = (parent?, child?);
            Some(Edge {
                parent: parent["name"].as_str()?.to_owned(),
                parent_is_node: parent["type"] == "block-driver",
                child: child["name"].as_str()?.to_owned(),
                role: edge["name"].as_str()?.to_owned(),
                writes: list(&edge["perm"]).any(|permission| permission == "write"),
            })
        });
        Ok(Graph { nodes: nodes.collect(), edges: edges.collect() })
    }

    /// A node, and those below it that have the same content.
    fn same_disk(&self, root: &str) -> Vec<String> {
        let mut found = vec![root.to_owned()];
        // Each node has one such child at most, and QEMU allows no circles.
        while let Some(child) = found.last().and_then(|node| self.passes_on_to(node)) {
            found.push(child.to_owned());
        }
        found
    }

    /// The child to which a node passes all that is written to it, unchanged.
    fn passes_on_to(&self, node: &str) -> Option<&str> {
        let (driver, size) = self.nodes.get(node)?;
        let mut children = self.edges.iter().filter(|e| e.parent_is_node && e.parent == node);
        // Some of the filters of block jobs call their child `backing`.
        let child = &children.find(|e| matches!(e.role.as_str(), "file" | "backing"))?.child;
        let is_filter = FILTERS.contains(&driver.as_str());
        // A raw disk may be a part of its file.
        let is_whole = driver == "raw" && self.nodes.get(child).is_some_and(|(_, of_child)| of_child == size);
        (is_filter || is_whole).then_some(child)
    }

    /// Whether a back-end that belongs to no device may write to a node.
    fn is_written_by_export(&self, node: &str) -> bool {
        let of_export = |e: &Edge| !e.parent_is_node && e.parent.is_empty() && e.child == node;
        self.edges.iter().any(|e| of_export(e) && e.writes)
    }
}
