//! What every store offers.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Result, StoreError};

/// What [`ObjectStore::load`] returned the bytes with, and [`ObjectStore::swap`] compares.
///
/// Two loads of the same bytes give the same tag; different bytes give different tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub [u8; 16]);

/// What a change may use of the space that a store keeps for the day when nothing else is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reserve {
    /// Nothing: the change fails with [`StoreError::Full`].
    #[default]
    None,
    /// A part: for readers, which can do without.
    Part,
    /// All of it: for what gives space back.
    Whole,
}

/// Bytes of an object that does not change.
pub type Mapped = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// One object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The object's full name.
    pub name: String,
    /// Its length in bytes.
    pub len: u64,
    /// Bytes that it takes on the device, holes not counted.
    pub allocated: u64,
}

/// Named objects. Names are `/`-separated, each part made of `[A-Za-z0-9._-]`, none starting with a dot.
/// A name and names below it (`a`, `a/b`) cannot both be objects.
pub trait ObjectStore: Send + Sync {
    /// Where the store is, for messages.
    fn location(&self) -> String;

    /// Creates an object from `parts`, one after the other. Returns when it is durable.
    ///
    /// Fails with [`StoreError::AlreadyExists`] where the name is taken: objects are never overwritten.
    fn put(&self, name: &str, parts: &[&[u8]]) -> Result<()>;

    /// Starts a new object that is written piece by piece and appears with [`ObjectWriter::finish`].
    fn writer(&self, name: &str) -> Result<Box<dyn ObjectWriter>>;

    /// Length of an object in bytes; [`StoreError::NotFound`] where there is none.
    fn len(&self, name: &str) -> Result<u64>;

    /// Fills `buf` from `offset`; [`StoreError::OutOfRange`] where the object ends before.
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Reads a whole object, refusing ([`StoreError::TooLong`]) more than `max` bytes.
    fn read(&self, name: &str, max: u64) -> Result<Vec<u8>>;

    /// The same, mapped into memory where the store can do that: it then takes no memory that cannot be given back.
    fn map(&self, name: &str, max: u64) -> Result<Mapped> {
        Ok(Arc::new(self.read(name, max)?))
    }

    /// Tells that a range will be read soon. Never fails; may do nothing.
    fn will_read(&self, name: &str, offset: u64, len: u64);

    /// Reads a replaceable object and its tag; `None` where there is none.
    fn load(&self, name: &str) -> Result<Option<(Vec<u8>, Tag)>>;

    /// Replaces a small object in one step, durably, if its tag is still `expected` (`None`: there is
    /// no such object yet). Fails with [`StoreError::Conflict`] where somebody else was faster.
    fn swap(&self, name: &str, expected: Option<Tag>, data: &[u8]) -> Result<Tag>;

    /// Gives the space of byte ranges (offset, length) back; reads of them give zeros from then on (whole
    /// blocks are freed, partial ones are zeroed). The length of the object stays. After a crash any part of
    /// them may have gone.
    fn punch(&self, name: &str, holes: &[(u64, u64)]) -> Result<()>;

    /// The same. Returns the bytes that the object takes less than before. One request, where the store can do that.
    fn punch_measured(&self, name: &str, holes: &[(u64, u64)]) -> Result<u64> {
        let before = self.allocated(name)?;
        self.punch(name, holes)?;
        Ok(before.saturating_sub(self.allocated(name)?))
    }

    /// Removes an object, durably. Returns whether there was one.
    fn delete(&self, name: &str) -> Result<bool>;

    /// The same. Returns the bytes that it took ([`ObjectStore::allocated`]), 0 where there was none or where that cannot be
    /// told. One request, where the store can do that.
    fn delete_measured(&self, name: &str) -> Result<u64> {
        let bytes = match self.allocated(name) {
            Err(StoreError::NotFound { .. } | StoreError::Unreadable { .. }) => 0,
            other => other?,
        };
        self.delete(name)?;
        Ok(bytes)
    }

    /// Calls `each` for every object whose name starts with `prefix` (`prefix` ends with `/` or is empty),
    /// in no order. An object made or removed meanwhile may be seen or not.
    fn list(&self, prefix: &str, each: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()>;

    /// The names that [`ObjectStore::list`] gives. Costs no look at each object, where the store can do that.
    fn list_names(&self, prefix: &str, each: &mut dyn FnMut(String) -> Result<()>) -> Result<()> {
        self.list(prefix, &mut |entry| each(entry.name))
    }

    /// The same of names that do not come before `from`. Costs no more than there are such names, where the store can do that.
    fn list_names_from(
        &self,
        prefix: &str,
        from: &str,
        each: &mut dyn FnMut(String) -> Result<()>,
    ) -> Result<()> {
        self.list_names(prefix, &mut |name| if name.as_str() >= from { each(name) } else { Ok(()) })
    }

    /// Calls `each` once for every part that stands between `prefix` and another `/` in the names of objects, in no
    /// order: `a/` and the objects `a/b/c`, `a/b/d` and `a/e` give `b`. Costs no more than there are such parts, where
    /// the store can do that. A part may be told though its last object has been removed.
    fn list_folders(&self, prefix: &str, each: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
        let mut folders = BTreeSet::new();
        self.list(prefix, &mut |entry| {
            let below = entry.name.strip_prefix(prefix).and_then(|rest| rest.split_once('/'));
            folders.extend(below.map(|(folder, _)| folder.to_owned()));
            Ok(())
        })?;
        folders.iter().try_for_each(|folder| each(folder))
    }

    /// Creates an object on which this process has a lease until the [`Lease`] is dropped.
    ///
    /// It is never visible without a lease. It is NOT removed by a crash of the process:
    /// the object stays, and [`ObjectStore::is_leased`] says `false` from then on.
    fn lease(&self, name: &str, data: &[u8]) -> Result<Box<dyn Lease>>;

    /// Whether an object is there and a living process has a lease on it.
    fn is_leased(&self, name: &str) -> Result<bool>;

    /// Bytes that an object takes on the device, holes not counted.
    fn allocated(&self, name: &str) -> Result<u64>;

    /// Bytes that can still be written; `None` where the store has no limit it knows of.
    fn free(&self) -> Result<Option<u64>>;

    /// The same store for work that must be possible where no space is left: its changes may use so much of a reserve of
    /// space. `None` where the store keeps none.
    fn with_reserve(&self, _reserve: Reserve) -> Option<Arc<dyn ObjectStore>> {
        None
    }

    /// Makes what was used of the reserve again, as far as there is space.
    fn fill_reserve(&self) -> Result<()> {
        Ok(())
    }

    /// Removes what writers that no longer live left half written. Returns the bytes freed.
    fn sweep(&self) -> Result<u64> {
        Ok(0)
    }
}

/// An object being written. Dropped without [`ObjectWriter::finish`], it leaves nothing behind.
pub trait ObjectWriter: Send {
    /// Appends bytes. After an error the writer refuses everything else ([`StoreError::Poisoned`]).
    fn append(&mut self, data: &[u8]) -> Result<()>;

    /// Makes the object durable, then visible. Fails like [`ObjectStore::put`].
    fn finish(self: Box<Self>) -> Result<()>;
}

/// A lease on an object: the process that has it is at work. Dropping it removes the object, as far as that is possible.
pub trait Lease: Send + Sync {
    /// The object's name.
    fn name(&self) -> &str;

    /// Replaces what the object says, without a moment in which there is no lease on it.
    fn replace(&mut self, data: &[u8]) -> Result<()>;

    /// Whether it has not lapsed.
    fn is_valid(&self) -> bool;
}
