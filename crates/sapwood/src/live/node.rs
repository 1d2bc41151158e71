//! Finds the block node of QEMU that the user named.

use super::qmp::Qmp;
use super::users::{told, users, User};
use anyhow::{bail, ensure, Context as _, Result};
use image::Format;
use serde_json::json;
use vault::VaultError;

/// From here on an NBD client may leave an export that an iothread serves. Before, with the patches that distributions
/// have for CVE-2024-7409, QEMU ends with `nbd_blockdev_client_closed: Assertion qemu_in_main_thread()`: seen with 7.2.22.
pub const SAFE_WITH_IOTHREADS: (u64, u64) = (9, 0);

/// A disk as QEMU sees it.
pub struct Node {
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Of its image; `None` where QEMU reads it as something that Sapwood does not.
    pub format: Option<Format>,
    /// Whether its format keeps bitmaps while the virtual machine is off.
    pub persistent: bool,
}

impl Node {
    /// Finds a node by its name, or by the id or QOM path of the device that it is in. Something must use it as its disk: a
    /// node that was a disk once holds what that was then, and no bitmap of it tells what was written since.
    pub fn find(qmp: &mut Qmp, wanted: &str) -> Result<Self> {
        let users = users(qmp)?;
        let nodes = qmp.execute("query-named-block-nodes", json!({ "flat": true }))?;
        let is_called = |user: &&User| user.device.is_some() && user.names.iter().any(|name| name == wanted);
        let by_user = users.iter().find(is_called);
        let name = by_user.map_or(wanted, |user| &user.node);
        let found = nodes.as_array().into_iter().flatten().find(|n| n["node-name"] == name);
        let node = found.with_context(|| {
            let devices = users.iter().filter(|user| user.device.is_some()).map(User::name);
            let devices = devices.collect::<Vec<_>>().join(", ");
            let there = if devices.is_empty() { "no disk".to_owned() } else { devices };
            format!("QEMU has no block node or device {wanted:?}; the machine has {there}")
        })?;
        let Some(user) = by_user.or_else(|| users.iter().find(|user| user.nodes.iter().any(|n| n == name)))
        else {
            let why = format!("nothing uses the block node {wanted:?} as its disk: {}", told(&users));
            return Err(VaultError::Refused(why).into());
        };
        let device_path = user.device.clone();
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
        // Filters before it have no format.
        let driver = |name: &String| {
            nodes.as_array().into_iter().flatten().find(|n| n["node-name"] == name.as_str())?["drv"].as_str()
        };
        let same = user.nodes.iter().skip_while(|n| *n != name).filter_map(driver);
        let format = same.filter_map(format_of_driver).next();
        Ok(Node { name: name.to_owned(), size, format, persistent })
    }

    /// Refuses a node that nothing uses as its disk any more.
    pub fn check_used(&self, qmp: &mut Qmp) -> Result<()> {
        let users = users(qmp)?;
        if users.iter().any(|user| user.nodes.contains(&self.name)) {
            return Ok(());
        }
        let why = format!(
            "nothing uses the block node {:?} as its disk any more since the backup began: {}",
            self.name,
            told(&users)
        );
        Err(VaultError::Refused(why).into())
    }
}

/// The format of the images that a block driver of QEMU reads.
fn format_of_driver(driver: &str) -> Option<Format> {
    match driver {
        // Nodes without a format of their own: what the guest sees is what is stored.
        "file" | "host_device" | "nbd" | "rbd" | "iscsi" => Some(Format::Raw),
        other => Format::by_name(other),
    }
}

/// Ids of the devices that have disks which the guest may write to.
pub fn writable_disks(qmp: &mut Qmp) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for user in users(qmp)?.iter().filter(|user| user.device.is_some() && !user.read_only) {
        match user.name() {
            path if path.starts_with('/') => {
                bail!("QEMU has a disk in a device without an id ({path}); name one disk (qmp:SOCKET#NODE)")
            }
            id => ids.push(id.to_owned()),
        }
    }
    ensure!(!ids.is_empty(), "QEMU has no disk that the guest may write to");
    Ok(ids)
}

/// Whether an iothread may serve a disk; only what can be excluded is.
fn may_have_iothread(qmp: &mut Qmp, device: Option<&str>) -> Result<bool> {
    // A storage daemon has no query-iothreads, nor /objects where none was made.
    let mut has = |path: &str, key: &str, value: &str| -> Result<bool> {
        let properties = qmp.execute("qom-list", json!({ "path": path }))?;
        Ok(properties.as_array().into_iter().flatten().any(|p| p[key] == value))
    };
    if !has("/", "name", "objects")? || !has("/objects", "type", "child<iothread>")? {
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
