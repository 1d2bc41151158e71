//! Restores to targets that take bytes only in order, such as pipes: one window of the disk after the other is
//! assembled in memory.
//!
//! A group that several windows need would be read again for each of them. The plan says when each group is needed
//! next, so the groups needed soonest are kept as stored, within a budget (Belady 1966).

use crate::base::error::Result;
use crate::container::tables::{TableName, Tables, TablesAhead};
use crate::recipe::chain::RecipeReader;
use crate::restore::plan::{plan, Plan};
use format::{Codec, GroupNo};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Bytes of the disk in a window.
const WINDOW_BYTES: u64 = 48 << 20;
/// Bytes of groups that are kept. While a window is put together, those of the window before are there as well.
const KEPT_BYTES: u64 = 32 << 20;

/// Calls `each` with what to keep and with the plan of every window that `whole` reaches over.
pub(crate) fn for_windows(
    recipe: &mut RecipeReader,
    tables: &Tables,
    whole: &mut Plan,
    each: &mut dyn FnMut(&KeptGroups, &Plan) -> Result<()>,
) -> Result<()> {
    let segment_bytes = u64::from(recipe.root.segment_bytes);
    let mut kept = KeptGroups::new(tables, whole)?;
    // They are planned again, window by window.
    whole.parts = Vec::new();
    let mut at = whole.from;
    while at < whole.end {
        let end = (at + WINDOW_BYTES).next_multiple_of(segment_bytes).min(whole.end);
        let of_window = plan(recipe, tables, at, end)?;
        recipe.forget_large();
        kept.begin_window(&of_window);
        each(&kept, &of_window)?;
        kept.end_window();
        at = of_window.end;
    }
    Ok(())
}

/// A group of a table.
pub(crate) type TableGroup = (TableName, GroupNo);

/// A group, and where on the disk it is wanted, the last place first.
struct WantedGroup {
    places: Vec<u64>,
    stored_bytes: u64,
}

/// The groups that are kept from window to window.
#[derive(Default)]
pub(crate) struct KeptGroups {
    /// Groups that may be wanted in more than one window.
    wanted: HashMap<TableGroup, WantedGroup>,
    /// Those to keep after this window.
    keep: HashSet<TableGroup>,
    /// Groups kept from earlier windows.
    there: HashSet<TableGroup>,
    stored: Mutex<HashMap<TableGroup, Arc<Vec<u8>>>>,
}

impl KeptGroups {
    /// What a plan that reaches over many windows says.
    fn new(tables: &Tables, plan: &Plan) -> Result<Self> {
        let mut wanted: HashMap<TableGroup, WantedGroup> = HashMap::new();
        let mut tables = TablesAhead::new(tables, plan.containers.iter().copied());
        for of_group in plan.parts.chunk_by(|a, b| (a.container, a.group) == (b.container, b.group)) {
            let key = (plan.containers[of_group[0].container as usize], of_group[0].group);
            let mut places: Vec<u64> = of_group.iter().map(|p| p.target).collect();
            places.sort_unstable_by(|a, b| b.cmp(a));
            let (_, table) = tables.get(key.0)?;
            let group = table.group(key.1);
            // Of a raw group only what is wanted is read.
            if group.codec != Codec::Raw && places.len() > 1 {
                wanted.insert(key, WantedGroup { places, stored_bytes: u64::from(group.stored_len) });
            }
        }
        Ok(KeptGroups { wanted, ..KeptGroups::default() })
    }

    /// Decides what is kept of what a window wants, and of what has been kept.
    fn begin_window(&mut self, plan: &Plan) {
        self.there = std::mem::take(&mut self.keep);
        let mut here: HashSet<TableGroup> = HashSet::new();
        for of_container in plan.parts.chunk_by(|a, b| a.container == b.container) {
            let name = plan.containers[of_container[0].container as usize];
            here.extend(
                of_container.iter().map(|p| (name, p.group)).filter(|key| self.wanted.contains_key(key)),
            );
        }
        let mut again: Vec<(u64, TableGroup, u64)> = Vec::new();
        for key in here.union(&self.there) {
            let Some(w) = self.wanted.get_mut(key) else { continue };
            while w.places.last().is_some_and(|place| *place < plan.end) {
                w.places.pop();
            }
            again.extend(w.places.last().map(|next| (*next, *key, w.stored_bytes)));
        }
        again.sort_unstable();
        let mut left = KEPT_BYTES;
        for (_, key, bytes) in again {
            if bytes <= left {
                left -= bytes;
                self.keep.insert(key);
            }
        }
        let keep = &self.keep;
        let stored = self.stored.get_mut();
        stored.retain(|key, _| keep.contains(key) || here.contains(key));
    }

    /// Forgets what is not kept any longer.
    fn end_window(&mut self) {
        let keep = &self.keep;
        self.stored.get_mut().retain(|key, _| keep.contains(key));
    }

    /// Whether a group need not be read.
    pub fn has(&self, key: TableGroup) -> bool {
        self.there.contains(&key)
    }

    /// A group as it is stored, if it is here.
    pub fn get(&self, key: TableGroup) -> Option<Arc<Vec<u8>>> {
        self.stored.lock().get(&key).cloned()
    }

    /// Keeps a group that was read, if it is to be kept.
    pub fn put(&self, key: TableGroup, stored: &[u8]) {
        if self.keep.contains(&key) {
            let stored = Arc::new(stored.to_vec());
            self.stored.lock().insert(key, stored);
        }
    }
}
