//! Stores in front of other stores: a layer changes some operations, all others are passed on.

use store::{Entry, Lease, ObjectStore, ObjectWriter, Result, Tag};

/// What a layer does in place of the store behind it. Operations that it does not have are passed on.
pub trait Layer: Send + Sync {
    /// The store behind the layer.
    type Inner: ObjectStore;

    /// The store behind the layer.
    fn inner(&self) -> &Self::Inner;

    /// See [`ObjectStore::location`].
    fn location(&self) -> String {
        self.inner().location()
    }

    /// See [`ObjectStore::put`].
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.inner().put(name, parts)
    }

    /// See [`ObjectStore::writer`].
    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.inner().writer(name)
    }

    /// See [`ObjectStore::len`].
    fn len(&self, name: &str) -> Result<u64> {
        self.inner().len(name)
    }

    /// See [`ObjectStore::read_at`].
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner().read_at(name, offset, buf)
    }

    /// See [`ObjectStore::read`].
    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        self.inner().read(name, max)
    }

    /// See [`ObjectStore::load`].
    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        self.inner().load(name)
    }

    /// See [`ObjectStore::swap`].
    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        self.inner().swap(name, expected, data)
    }

    /// See [`ObjectStore::punch`].
    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        self.inner().punch(name, holes)
    }

    /// See [`ObjectStore::punch_measured`].
    fn punch_measured(&self, name: &str, holes: &[(u64, u64)]) -> Result<u64> {
        self.inner().punch_measured(name, holes)
    }

    /// See [`ObjectStore::delete`].
    fn delete(&self, name: &str) -> Result<bool> {
        self.inner().delete(name)
    }

    /// See [`ObjectStore::delete_measured`].
    fn delete_measured(&self, name: &str) -> Result<u64> {
        self.inner().delete_measured(name)
    }

    /// See [`ObjectStore::list`].
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.inner().list(prefix, each)
    }

    /// See [`ObjectStore::list_names_from`].
    fn list_names_from(
        &self,
        prefix: &str,
        from: &str,
        each: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<()> {
        self.inner().list_names_from(prefix, from, each)
    }

    /// See [`ObjectStore::list_folders`].
    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.inner().list_folders(prefix, each)
    }

    /// See [`ObjectStore::lease`].
    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        self.inner().lease(name, data)
    }

    /// See [`ObjectStore::is_leased`].
    fn is_leased(&self, name: &str) -> Result<bool> {
        self.inner().is_leased(name)
    }

    /// See [`ObjectStore::allocated`].
    fn allocated(&self, name: &str) -> Result<u64> {
        self.inner().allocated(name)
    }
}

/// A store with a layer in front.
pub struct Layered<L>(pub L);

impl<L: Layer> ObjectStore for Layered<L> {
    fn location(&self) -> String {
        self.0.location()
    }

    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()> {
        self.0.put(name, parts)
    }

    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>> {
        self.0.writer(name)
    }

    fn len(&self, name: &str) -> Result<u64> {
        self.0.len(name)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read_at(name, offset, buf)
    }

    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>> {
        self.0.read(name, max)
    }

    fn will_read(&self, name: &str, offset: u64, len: u64) {
        self.0.inner().will_read(name, offset, len);
    }

    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>> {
        self.0.load(name)
    }

    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag> {
        self.0.swap(name, expected, data)
    }

    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()> {
        self.0.punch(name, holes)
    }

    fn punch_measured(&self, name: &str, holes: &[(u64, u64)]) -> Result<u64> {
        self.0.punch_measured(name, holes)
    }

    fn delete(&self, name: &str) -> Result<bool> {
        self.0.delete(name)
    }

    fn delete_measured(&self, name: &str) -> Result<u64> {
        self.0.delete_measured(name)
    }

    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
        self.0.list(prefix, each)
    }

    fn list_names_from(
        &self,
        prefix: &str,
        from: &str,
        each: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<()> {
        self.0.list_names_from(prefix, from, each)
    }

    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        self.0.list_folders(prefix, each)
    }

    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>> {
        self.0.lease(name, data)
    }

    fn is_leased(&self, name: &str) -> Result<bool> {
        self.0.is_leased(name)
    }

    fn allocated(&self, name: &str) -> Result<u64> {
        self.0.allocated(name)
    }

    fn free(&self) -> Result<Option<u64>> {
        self.0.inner().free()
    }

    fn sweep(&self) -> Result<u64> {
        self.0.inner().sweep()
    }
}
