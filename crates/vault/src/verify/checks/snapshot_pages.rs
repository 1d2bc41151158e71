//! Pages of snapshots: one of the two objects of each is enough, and both should be there.

use crate::base::error::{fault, Result};
use crate::manifest::folder::Folder;
use crate::manifest::snapshots::pages::names_of;
use crate::verify::findings::objects::Findings;
use format::Manifest;

/// Reads both objects of each page. Returns how many there are.
pub(crate) fn snapshot_pages(folder: &Folder, m: &Manifest, found: &mut Findings) -> Result<u64> {
    let mut objects = 0;
    for at in &m.older {
        let mut faults = Vec::new();
        for object in names_of(folder, at) {
            objects += 1;
            if let Err(e) = folder.read_snapshot_page(at, &object) {
                faults.push(fault(e)?);
            }
        }
        let is_healed = faults.len() == 1;
        for (object, why) in faults {
            let remedy = "; the other copy is whole, `sapwood repair` puts both again";
            found.add(&object, &format!("{why}{}", if is_healed { remedy } else { "" }));
        }
    }
    Ok(objects)
}
