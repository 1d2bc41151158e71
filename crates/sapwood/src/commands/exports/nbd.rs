//! `sapwood nbd`

use crate::args::{Args, Nbd};
use crate::commands::names::{check_is_disk, held_for, open_to_read, split};
use crate::devices::{read_cache, OverlayDevice, SnapshotDevice};
use crate::serving::{tls_of, Serving};
use crate::system::own_directory::scratch;
use crate::system::signals::EndSignal;
use crate::terminal::outcome::with_damage;
use crate::terminal::output::{print_json, size};
use crate::terminal::streams::{check_out, errln, outln};
use anyhow::Result;
use export::BlockDevice;
use export::SingleExport;
use image::qcow2::{BackingName, Overlay};
use image::ImageError;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub fn run(args: &Args, a: &Nbd) -> Result<ExitCode> {
    let end = EndSignal::new()?;
    let tls = tls_of(&a.serve)?;
    let (disk, spec) = split(&a.snapshot);
    let vault = open_to_read(args)?.served();
    let snapshot = vault.open_snapshot(disk, spec, &read_cache(a.serve.cache))?;
    let entry = snapshot.entry().clone();
    check_is_disk(disk, &entry)?;
    let name = format!("{disk}@{}", entry.id);
    let snapshot = Arc::new(SnapshotDevice::new(snapshot));
    // Before the overlay is made: without the hold it is worth nothing, and a vault that is only read takes none.
    let id = entry.id.to_string();
    let purpose = a.overlay.as_ref().map(|file| held_for("nbd --overlay", file)).transpose()?;
    let new_hold = match purpose {
        Some(purpose) => vault.hold_for(disk, &id, &purpose)?.1.then_some(purpose),
        None => None,
    };
    let overlay = match overlay(a, &snapshot, &format!("sapwood:{}/{name}", vault.id())) {
        Ok(overlay) => overlay.map(Arc::new),
        Err(e) => {
            if let Some(purpose) = &new_hold {
                vault.end_hold_for(disk, &id, purpose)?;
            }
            return Err(e);
        }
    };
    if new_hold.is_some() {
        errln!("sapwood: {name}: is held from now on, for the overlay; `sapwood release` lets it be deleted");
    }
    let device: Arc<dyn BlockDevice> = match &overlay {
        Some(overlay) => overlay.clone(),
        None => snapshot.clone(),
    };

    let description = format!("the snapshot of {}", vault::format_time(entry.time));
    let bytes = device.size();
    let export = SingleExport { name: name.clone(), description, device };
    let mut serving = Serving::start(&a.serve, tls, export)?;
    if args.json {
        print_json(&json!({
            "uri": serving.uri(),
            "disk": disk,
            "snapshot": id,
            "size": bytes,
            "writable": overlay.is_some(),
        }));
    } else if !args.quiet {
        let how = if overlay.is_some() { "to be read and written" } else { "read-only" };
        outln!("{name}: {}, {how}, at {}", size(bytes), serving.uri());
    }
    // Without its address nobody could connect.
    check_out()?;
    serving.run(&a.command)?;
    let ended = serving.wait(&end, |_| false)?;
    serving.stop();
    if let Some(overlay) = &overlay {
        overlay.close()?;
    }
    if snapshot.is_damaged() {
        Ok(with_damage(&[format!("{name}: damage was met")]))
    } else {
        Ok(ended.code())
    }
}

/// What is written to, if the disk may be written. `base` names the snapshot in the file.
fn overlay(a: &Nbd, snapshot: &Arc<SnapshotDevice>, base: &str) -> Result<Option<OverlayDevice>> {
    let device = match (&a.overlay, &a.scratch) {
        (Some(path), _) => OverlayDevice::new(snapshot.clone(), |below| kept(path, base, below)),
        (None, Some(directory)) => {
            let directory = scratch(directory.as_deref());
            let bytes = snapshot.size();
            OverlayDevice::new(snapshot.clone(), |below| Overlay::scratch(&directory, bytes, Box::new(below)))
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(device?))
}

/// Opens the overlay that is there, which must be of this snapshot, or makes one.
fn kept(path: &Path, base: &str, below: crate::devices::SnapshotBase) -> image::Result<Overlay> {
    let backing = BackingName { name: base.into(), format: Some("raw".into()) };
    if !path.exists() {
        let bytes = below.0.size();
        return Overlay::create(path, bytes, &backing, Box::new(below));
    }
    Overlay::open(path, |bytes, named| {
        let named = named.map(|n| String::from_utf8_lossy(&n.name).into_owned()).unwrap_or_default();
        // An overlay has whole sectors.
        if named != base || bytes != below.0.size().next_multiple_of(512) {
            let why = format!("lies over {named:?} ({bytes} bytes), not over {base}; name that snapshot");
            return Err(ImageError::Refused { path: path.display().to_string(), why });
        }
        Ok(Box::new(below))
    })
}
