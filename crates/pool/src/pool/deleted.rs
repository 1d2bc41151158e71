//! What was deleted and still has blocks.

use std::collections::VecDeque;

use format::pool::{CatalogEntry, CatalogIndex};

/// So many volumes are freed before that is made durable, and their blocks can be used again.
const FREED_AT_ONCE: usize = 64;

/// A slot of the catalog whose volume was deleted.
pub(super) type Deleted = (CatalogIndex, CatalogEntry);

/// Deleted volumes in their turns, and the one thread that frees them.
#[derive(Default)]
pub(super) struct Reaper {
    waiting: VecDeque<Deleted>,
    /// Volumes that were freed, which is not durable yet.
    unflushed: usize,
    is_at_work: bool,
}

/// What the thread does next.
pub(super) enum Next {
    /// Some blocks of a volume are freed.
    Free(Deleted),
    /// What was freed is made durable.
    Flush,
}

impl Reaper {
    /// Takes deleted volumes. Returns whether a thread is needed: there is none, and there is work.
    pub fn needs_thread(&mut self, deleted: Vec<Deleted>) -> bool {
        self.waiting.extend(deleted);
        !self.is_at_work && !self.waiting.is_empty()
    }

    /// Whether there is something to do, or the thread is doing it.
    pub fn has_work(&self) -> bool {
        self.is_at_work || !self.waiting.is_empty()
    }

    /// Notes that the thread begins, or has ended.
    pub fn set_at_work(&mut self, is_at_work: bool) {
        self.is_at_work = is_at_work;
    }

    /// What is to be done next; `None` where nothing is: the thread ends.
    pub fn next(&mut self) -> Option<Next> {
        let waiting = if self.unflushed < FREED_AT_ONCE { self.waiting.pop_front() } else { None };
        let next = match waiting {
            Some(deleted) => Some(Next::Free(deleted)),
            None => (self.unflushed > 0).then_some(Next::Flush),
        };
        self.is_at_work = next.is_some();
        next
    }

    /// It was done. A volume that is not gone waits for its next turn: small ones do not wait for large ones.
    pub fn done(&mut self, what: Next, is_gone: bool) {
        match what {
            Next::Free(_) if is_gone => self.unflushed += 1,
            Next::Free(deleted) => self.waiting.push_back(deleted),
            Next::Flush => self.unflushed = 0,
        }
    }
}
