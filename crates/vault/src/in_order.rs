//! Restores to targets that take bytes in order only, such as pipes: a window of the disk after the other is put
//! together in memory.
//!
//! A group that several windows want would be read and decompressed for each of them. The plan tells when each group is
//! wanted again, so the groups that are wanted soonest are kept as stored, within a budget: no other choice would read
//! less (Belady 1966).

use crate::chain::RecipeReader;
use crate::error::Result;
use crate::plan::{plan, Plan};
use crate::tables::Tables;
use format::{Codec, ContainerId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the disk in a window.
const WINDOW_BYTES: u64 = 48 << 20;
/// Bytes of groups that are kept.
const KEPT_BYTES: u64 = 64 << 20;

/// Calls `each` with what to keep and with the plan of every window that `whole` reaches over.
pub(crate) fn for_windows(
    recipe: &mut RecipeReader,
    tables: &Tables,
    whole: &Plan,
    each: &mut dyn FnMut(&Kept, &Plan) -> Result<()>,
) -> Result<()> {
    let segment_bytes = u64::from(recipe.root.segment_bytes);
    let mut kept = Kept::new(whole);
    let mut at = whole.from;
    while at < whole.end {
        let end = (at + WINDOW_BYTES).next_multiple_of(segment_bytes).min(whole.end);
        let of_window = plan(recipe, tables, at, end)?;
        kept.begin_window(tables, &of_window)?;
        each(&kept, &of_window)?;
        kept.end_window();
        at = of_window.end;
    }
    Ok(())
}

/// A group: container, and index in its table.
pub(crate) type GroupKey = (ContainerId, u32);

/// The groups that are kept from window to window.
#[derive(Default)]
pub(crate) struct Kept {
    /// Where on the disk a group is wanted, the last place first.
    wanted: HashMap<GroupKey, Vec<u64>>,
    /// Those to keep after this window, and what is stored of them, in bytes.
    keep: HashMap<GroupKey, u64>,
    /// Those kept by the windows before.
    there: HashSet<GroupKey>,
    stored: Mutex<HashMap<GroupKey, Arc<Vec<u8>>>>,
}

impl Kept {
    /// What a plan that reaches over many windows says.
    fn new(plan: &Plan) -> Self {
        let mut wanted: HashMap<GroupKey, Vec<u64>> = HashMap::new();
        for p in &plan.parts {
            let key = (plan.containers[p.container as usize], p.group);
            wanted.entry(key).or_default().push(p.target);
        }
        wanted.retain(|_, places| places.len() > 1);
        wanted.values_mut().for_each(|places| places.sort_unstable_by(|a, b| b.cmp(a)));
        Kept { wanted, ..Kept::default() }
    }

    /// Decides what is kept of what a window wants, and of what has been kept.
    fn begin_window(&mut self, tables: &Tables, plan: &Plan) -> Result<()> {
        self.there = self.keep.keys().copied().collect();
        let mut all = std::mem::take(&mut self.keep);
        for p in &plan.parts {
            let key = (plan.containers[p.container as usize], p.group);
            if !all.contains_key(&key) && self.wanted.contains_key(&key) {
                let table = tables.get(key.0)?;
                let group = &table.groups[key.1 as usize];
                // Of a raw group only what is wanted is read.
                if group.codec != Codec::Raw {
                    all.insert(key, u64::from(group.stored_len));
                }
            }
        }
        let mut again: Vec<(u64, GroupKey, u64)> = Vec::new();
        for (key, bytes) in all {
            let Some(places) = self.wanted.get_mut(&key) else { continue };
            while places.last().is_some_and(|place| *place < plan.end) {
                places.pop();
            }
            again.extend(places.last().map(|next| (*next, key, bytes)));
        }
        again.sort_unstable();
        let mut left = KEPT_BYTES;
        for (_, key, bytes) in again {
            if bytes <= left {
                left -= bytes;
                self.keep.insert(key, bytes);
            }
        }
        Ok(())
    }

    /// Forgets what is not kept any longer.
    fn end_window(&mut self) {
        let keep = &self.keep;
        self.stored.get_mut().unwrap_or_else(PoisonError::into_inner).retain(|key, _| keep.contains_key(key));
    }

    /// Whether a group need not be read.
    pub fn has(&self, key: GroupKey) -> bool {
        self.there.contains(&key)
    }

    /// A group as it is stored, if it is here.
    pub fn get(&self, key: GroupKey) -> Option<Arc<Vec<u8>>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Keeps a group that was read, if it is to be kept.
    pub fn put(&self, key: GroupKey, stored: &[u8]) {
        if self.keep.contains_key(&key) {
            let stored = Arc::new(stored.to_vec());
            self.stored.lock().unwrap_or_else(PoisonError::into_inner).insert(key, stored);
        }
    }
}
