//! Orphans: objects that no manifest names and whose writer is not registered.

use crate::base::error::Result;
use crate::manifest::container_table::Containers;
use crate::manifest::folder::Folder;
use crate::manifest::listing::list_names;
use crate::manifest::rollback::Evidence;
use crate::manifest::session::Session;
use crate::manifest::snapshots::pages::names_of;
use crate::manifest::snapshots::whole::Whole;
use crate::recipe::stored::recipe_of;
use crate::reclaim::gc_report::GcReport;
use format::{names, Release, WriterNo};
use std::collections::HashSet;
use store::StoreError;

/// The objects of a folder, sorted; an error where its manifest was rolled back.
pub(crate) fn list_checked(folder: &Folder) -> Result<Vec<String>> {
    let objects = list_names(&*folder.store, &folder.path)?;
    let mut evidence = Evidence::default();
    objects.iter().for_each(|object| evidence.add(object));
    evidence.check(folder, &folder.load_root()?)?;
    Ok(objects)
}

/// Removes what no manifest names and no registered writer may have put, of the objects that were listed.
pub(crate) fn remove_orphans(session: &Session, listed: &[String], report: &mut GcReport) -> Result<()> {
    let store = &session.folder.store;
    for object in orphans_of(&session.folder, listed)? {
        report.freed_bytes += match store.allocated(object) {
            Err(StoreError::NotFound { .. } | StoreError::Unreadable { .. }) => 0,
            other => other?,
        };
        report.orphans += u64::from(store.delete(object)?);
    }
    Ok(())
}

/// Those of the objects, which are sorted, that nothing names. They were listed before the manifest is read: the writer of a listed object is
/// still registered, or has committed, or can never commit.
pub(crate) fn orphans_of<'a>(folder: &Folder, listed: &'a [String]) -> Result<Vec<&'a String>> {
    let m = folder.load()?;
    let registered: HashSet<WriterNo> = m.writers.iter().map(|w| w.no).collect();
    let mut objects: Vec<&String> = listed.iter().collect();
    let mut is_named = vec![false; objects.len()];
    for_each_named(folder, &m, &mut |name| {
        if let Ok(at) = objects.binary_search_by(|o| o.as_str().cmp(name)) {
            is_named[at] = true;
        }
    })?;
    let mut is_named = is_named.into_iter();
    objects.retain(|o| {
        let named = is_named.next() == Some(true);
        !named && names::writer_of(o).is_some_and(|w| !registered.contains(&w))
    });
    Ok(objects)
}

/// Calls `each` for every object below the folder that its manifest names or has yet to delete. A manifest may name any
/// number of objects that are not there: the names are not kept.
fn for_each_named(folder: &Folder, m: &Whole, each: &mut dyn FnMut(&str)) -> Result<()> {
    let path = &folder.path;
    for r in &m.released {
        if let Release::Object(name) = &r.what {
            each(name);
        }
    }
    each(&folder.manifest_name());
    m.pages.iter().for_each(|p| each(&names::page(path, p.writer, p.number)));
    m.older.iter().flat_map(|at| names_of(folder, at)).for_each(|object| each(object.as_str()));
    m.references.iter().for_each(|r| each(&names::references(path, r.writer, r.number)));
    for s in &m.snapshots {
        each(&names::recipe_root(path, recipe_of(s)));
        each(&names::bloom(path, recipe_of(s)));
        s.depends.iter().for_each(|d| each(&names::recipe_pages(path, *d)));
    }
    Containers::new(folder.clone(), m).each(|e| {
        if e.id.is_own() {
            each(&names::data(path, e.data));
            each(&names::table(path, e.id, e.table));
            if let Some(generation) = e.dead {
                each(&names::dead(path, e.id, generation));
            }
        }
        Ok(())
    })
}
