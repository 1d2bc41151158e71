//! Which block node of QEMU's is meant.

use super::qmp::Qmp;
use anyhow::{bail, ensure, Context as _, Result};
use serde_json::json;

/// From here on an NBD client may leave an export that an iothread serves. Before, with the patches that distributions
/// have for CVE-2024-7409, QEMU ends with `nbd_blockdev_client_closed: Assertion qemu_in_main_thread()`: seen with 7.2.22.
pub const SAFE_WITH_IOTHREADS: (u64, u64) = (9, 0);

/// A disk as QEMU sees it.
pub struct Node {
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Whether its format keeps bitmaps while the virtual machine is off.
    pub persistent: bool,
}

impl Node {
    /// Finds a node by its name, or by the id or QOM path of the device that it is in.
    pub fn find(qmp: &mut Qmp, wanted: &str) -> Result<Self> {
        let devices = qmp.execute("query-block", json!({}))?;
        let mut name = wanted;
        let (mut in_device, mut device_path) = (false, None);
        for device in devices.as_array().into_iter().flatten() {
            let path = device["qdev"].as_str().unwrap_or_default();
            let id = path.strip_prefix("/machine/peripheral/").and_then(|rest| rest.split('/').next());
            let is_it = device["device"] == wanted || path == wanted || id == Some(wanted);
            let Some(inserted) = device["inserted"]["node-name"].as_str() else { continue };
            if is_it {
                name = inserted;
            }
            if is_it || inserted == wanted {
                in_device = true;
                device_path = Some(path.to_owned());
            }
        }
        let nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
        let found = nodes.as_array().into_iter().flatten().find(|n| n["node-name"] == name);
        let node = found.with_context(|| format!("QEMU has no block node or device {wanted:?}"))?;
        if node["ro"] == true && !in_device {
            // What the guest writes goes to the image that was put before it.
            bail!(
                "{wanted:?} is a backing file of another image, to which the guest writes since a snapshot was taken in \
                 QEMU; name the device, not the node"
            );
        }
        if qmp.version < SAFE_WITH_IOTHREADS && may_have_iothread(qmp, device_path.as_deref())? {
            bail!(
                "the disk {wanted:?} has an iothread, and QEMU {}.{} dies, with the guest, when a client leaves the export of \
                 such a disk; use QEMU 9.0 or later, or take the iothread from the disk",
                qmp.version.0,
                qmp.version.1
            );
        }
        let size =
            node["image"]["virtual-size"].as_u64().context("QEMU does not tell the size of the disk")?;
        ensure!(size > 0, "the disk {wanted:?} is empty");
        let keeps_bitmaps = node["image"]["format-specific"]["data"]["compat"] == "1.1";
        let persistent = node["drv"] == "qcow2" && keeps_bitmaps && node["ro"] == false;
        Ok(Node { name: name.to_owned(), size, persistent })
    }
}

/// Ids of the devices that have disks which the guest may write to.
pub fn writable_disks(qmp: &mut Qmp) -> Result<Vec<String>> {
    let devices = qmp.execute("query-block", json!({}))?;
    let mut ids = Vec::new();
    for device in devices.as_array().into_iter().flatten() {
        let inserted = &device["inserted"];
        if inserted["node-name"].is_null() || inserted["ro"] == true {
            continue;
        }
        let path = device["qdev"].as_str().unwrap_or_default();
        let by_path = path.strip_prefix("/machine/peripheral/").and_then(|rest| rest.split('/').next());
        let by_id = Some(path).filter(|p| !p.is_empty() && !p.contains('/'));
        let by_drive = device["device"].as_str().filter(|d| !d.is_empty());
        match by_path.or(by_id).or(by_drive) {
            Some(id) => ids.push(id.to_owned()),
            None => {
                bail!("QEMU has a disk in a device without an id ({path}); name one disk (qmp:SOCKET#NODE)")
            }
        }
    }
    ensure!(!ids.is_empty(), "QEMU has no disk that the guest may write to");
    Ok(ids)
}

/// Whether an iothread may serve a disk; only what can be excluded is.
fn may_have_iothread(qmp: &mut Qmp, device: Option<&str>) -> Result<bool> {
    if qmp.execute("query-iothreads", json!({}))?.as_array().is_some_and(Vec::is_empty) {
        return Ok(false);
    }
    let Some(device) = device.filter(|path| !path.is_empty()) else { return Ok(true) };
    // SCSI disks go by their id alone.
    let device =
        &if device.starts_with('/') { device.to_owned() } else { format!("/machine/peripheral/{device}") };
    // A virtio disk has it itself, a SCSI disk's controller has it for the disk.
    let mut places = vec![device.to_owned()];
    let mut get = |path: &str, property: &str| -> Option<String> {
        let value = qmp.execute("qom-get", json!({ "path": path, "property": property })).ok()?;
        value.as_str().filter(|v| !v.is_empty()).map(str::to_owned)
    };
    places.extend(get(device, "parent_bus"));
    let above = |path: &String| {
        std::iter::successors(Some(path.clone()), |p| Some(p.rsplit_once('/')?.0.to_owned())).collect()
    };
    let all: Vec<Vec<String>> = places.iter().map(above).collect();
    Ok(all.iter().flatten().any(|path| path.len() > 1 && get(path, "iothread").is_some()))
}
