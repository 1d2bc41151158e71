//! Listings of a store: the names of objects and of folders, read whole before anything is done with them.

use crate::base::error::Result;
use store::{Entry, ObjectStore};

/// Calls `each` for the name of every object below `prefix`, in no order.
pub(crate) fn for_each_name(
    store: &dyn ObjectStore,
    prefix: &str,
    mut each: impl FnMut(String),
) -> Result<()> {
    store.list_names(prefix, &mut |name| {
        each(name);
        Ok(())
    })?;
    Ok(())
}

/// Calls `each` for every object below `prefix`, in no order. Looks at each object: those who need only the names use
/// [`for_each_name`].
pub(crate) fn for_each_object(
    store: &dyn ObjectStore,
    prefix: &str,
    mut each: impl FnMut(Entry),
) -> Result<()> {
    store.list(prefix, &mut |entry| {
        each(entry);
        Ok(())
    })?;
    Ok(())
}

/// The names of all objects below `prefix`, sorted. A name is in it once, even if the store tells it twice because the
/// object is moved meanwhile.
pub(crate) fn list_names(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for_each_name(store, prefix, |name| names.push(name))?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// All objects below `prefix` with their lengths, each once, sorted by name.
pub(crate) fn list_objects(store: &dyn ObjectStore, prefix: &str) -> Result<Vec<Entry>> {
    let mut objects = Vec::new();
    for_each_object(store, prefix, |entry| objects.push(entry))?;
    objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    objects.dedup_by(|a, b| a.name == b.name);
    Ok(objects)
}

/// What `parse` makes of the rest of each name below `prefix`. Names that it does not know are left out.
pub(crate) fn parse_names<T, C: Default + Extend<T>>(
    store: &dyn ObjectStore,
    prefix: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<C> {
    let mut parsed = C::default();
    for_each_name(store, prefix, |name| parsed.extend(name.strip_prefix(prefix).and_then(&parse)))?;
    Ok(parsed)
}

/// What `parse` makes of the names of the folders below `prefix`. Names that it does not know are left out.
pub(crate) fn parse_folders<T, C: Default + Extend<T>>(
    store: &dyn ObjectStore,
    prefix: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<C> {
    let mut parsed = C::default();
    store.list_folders(prefix, &mut |folder| {
        parsed.extend(parse(folder));
        Ok(())
    })?;
    Ok(parsed)
}

/// Whether there is any object below `prefix`.
pub(crate) fn has_objects(store: &dyn ObjectStore, prefix: &str) -> Result<bool> {
    let mut any = false;
    for_each_name(store, prefix, |_| any = true)?;
    Ok(any)
}
