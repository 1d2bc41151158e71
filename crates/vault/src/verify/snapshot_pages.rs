//! Pages of snapshots: one of the two objects of each is enough, and both should be there.

use super::findings::Findings;
use crate::base::error::{fault, Result};
use crate::container::view::View;
use crate::manifest::snapshots::pages::names_of;

/// Reads both objects of each page, one of which could be read for the view. Returns how many there are.
pub(super) fn snapshot_pages(view: &View, found: &mut Findings) -> Result<u64> {
    let mut objects = 0;
    for at in &view.manifest.older {
        for object in names_of(&view.folder, at) {
            objects += 1;
            let Err(e) = view.folder.read_snapshot_page(at, &object) else { continue };
            let (object, why) = fault(e)?;
            found.add(&object, &format!("{why}; its copy is whole, `sapwood repair` puts both again"));
        }
    }
    Ok(objects)
}
