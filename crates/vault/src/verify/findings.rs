//! The findings so far: damaged objects, and the chunks that cannot be read because of them.

use format::{ChunkNo, ContainerEntry, ContainerId, DiskId, RunSet, Summary, WriterNo};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Different things said of one object at most.
const WHYS_MAX: usize = 3;

/// Damaged objects in the order in which they were found.
#[derive(Default)]
pub(super) struct Findings {
    all: Vec<Finding>,
    by_object: HashMap<String, usize>,
}

struct Finding {
    object: String,
    whys: Vec<String>,
    more: u64,
    snapshots: Vec<String>,
}

impl Findings {
    /// Whether nothing is damaged.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Says something of an object. Returns the object's number here.
    pub fn add(&mut self, object: &str, why: &str) -> usize {
        let at = *self.by_object.entry(object.to_string()).or_insert(self.all.len());
        if at == self.all.len() {
            let object = object.to_string();
            self.all.push(Finding { object, whys: Vec::new(), more: 0, snapshots: Vec::new() });
        }
        let f = &mut self.all[at];
        if f.whys.iter().any(|w| w == why) {
        } else if f.whys.len() < WHYS_MAX {
            f.whys.push(why.to_string());
        } else {
            f.more += 1;
        }
        at
    }

    /// A snapshot cannot be restored because of an object. Called snapshot by snapshot.
    pub fn affects(&mut self, at: usize, snapshot: &str) {
        let list = &mut self.all[at].snapshots;
        if list.last().is_none_or(|l| l != snapshot) {
            list.push(snapshot.to_string());
        }
    }

    /// The damaged objects, each once.
    pub fn into_damage(self) -> impl Iterator<Item = Damage> {
        self.all.into_iter().map(|f| {
            let mut why = f.whys.join("; ");
            if f.more > 0 {
                why.push_str(&format!("; and {} more", f.more));
            }
            Damage { object: f.object, why, snapshots: f.snapshots }
        })
    }
}

/// Chunks that cannot be read, by container, and the object that is to blame (its number in [`Findings`]).
#[derive(Clone, Debug, Default)]
pub(crate) struct BadChunks {
    containers: HashMap<ContainerId, Vec<(usize, Extent)>>,
}

#[derive(Clone, Debug)]
enum Extent {
    All,
    Some(RunSet),
}

impl BadChunks {
    /// Whether nothing is damaged.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    fn all(&mut self, id: ContainerId, object: usize) {
        self.containers.entry(id).or_default().push((object, Extent::All));
    }

    fn some(&mut self, id: ContainerId, object: usize, chunks: &RunSet) {
        let list = self.containers.entry(id).or_default();
        match list.iter_mut().find(|(o, e)| *o == object && matches!(e, Extent::Some(_))) {
            Some((_, Extent::Some(have))) => *have = have.union(chunks),
            _ => list.push((object, Extent::Some(chunks.clone()))),
        }
    }

    /// Of chunks of a container, from `first` on, those that cannot be read.
    pub fn among(&self, id: ContainerId, first: ChunkNo, count: u32) -> RunSet {
        let asked = RunSet::from_unsorted(vec![(first.0, count)]);
        let mut bad = RunSet::default();
        for (_, extent) in self.containers.get(&id.local()).into_iter().flatten() {
            match extent {
                Extent::All => return asked,
                Extent::Some(chunks) => bad = bad.union(chunks),
            }
        }
        asked.minus(&asked.minus(&bad))
    }

    /// The objects that are to blame where what a summary references cannot be read.
    pub fn hits(&self, summary: &Summary) -> Vec<usize> {
        let mut hits = Vec::new();
        for (id, wanted) in &summary.containers {
            for (object, extent) in self.containers.get(id).into_iter().flatten() {
                let hit = match extent {
                    Extent::All => true,
                    Extent::Some(bad) => {
                        bad.runs().iter().any(|r| wanted.count_within(ChunkNo(r.0), r.1) > 0)
                    }
                };
                if hit && !hits.contains(object) {
                    hits.push(*object);
                }
            }
        }
        hits
    }
}

/// The containers whose chunks are read.
#[derive(Clone, Debug)]
pub(crate) enum Reads {
    /// None.
    None,
    /// All.
    All,
    /// Those of these owners, as they name them.
    Only(BTreeMap<DiskId, BTreeSet<ContainerId>>),
}

impl Reads {
    /// Whether any are read.
    pub fn is_any(&self) -> bool {
        !matches!(self, Reads::None)
    }

    /// Whether those of a container of an owner are read.
    pub fn include(&self, owner: DiskId, id: ContainerId) -> bool {
        match self {
            Reads::None => false,
            Reads::All => true,
            Reads::Only(some) => some.get(&owner).is_some_and(|ids| ids.contains(&id.local())),
        }
    }
}

/// Generations of a container's table and data: another one is looked at anew.
pub(super) type Generations = (WriterNo, WriterNo);

pub(super) fn generations(e: &ContainerEntry) -> Generations {
    (e.table, e.data.generation)
}

/// What was found in owners other than the disk that is looked at.
pub(super) type OtherFindings = BTreeMap<DiskId, ContainerFindings>;

/// What was found in the containers of one owner, which names them, and in the rest of its folder.
#[derive(Default)]
pub(super) struct ContainerFindings {
    pub found: Findings,
    pub bad: BadChunks,
    /// Those that were looked at.
    pub seen: HashMap<ContainerId, Generations>,
    /// Those of them whose chunks were read.
    pub read: HashSet<ContainerId>,
    /// Those whose data or table is damaged.
    pub damaged: HashMap<ContainerId, Generations>,
    /// Those whose list of dead chunks is damaged.
    pub unlisted: BTreeSet<ContainerId>,
}

impl ContainerFindings {
    /// Whether a container has not been looked at as it is now.
    pub fn begin(&mut self, e: &ContainerEntry) -> bool {
        let id = e.id.local();
        let fresh = self.seen.insert(id, generations(e)) != Some(generations(e));
        if fresh {
            self.read.remove(&id);
            self.unlisted.remove(&id);
            self.bad.containers.remove(&id);
            self.damaged.remove(&id);
        }
        fresh
    }

    /// Nothing of a container can be found because of an object that is not its own.
    pub fn lost(&mut self, id: ContainerId, object: &str, why: &str) {
        let at = self.found.add(object, why);
        self.bad.all(id.local(), at);
    }

    /// The table or data of a container is damaged: all its chunks, some, or (`None`) none that matters to restores.
    pub fn damage(
        &mut self,
        id: ContainerId,
        of: Generations,
        object: &str,
        whys: impl IntoIterator<Item = impl AsRef<str>>,
        chunks: Option<&RunSet>,
    ) {
        self.damaged.insert(id.local(), of);
        let at = whys.into_iter().map(|why| self.found.add(object, why.as_ref())).last();
        if let (Some(at), Some(chunks)) = (at, chunks) {
            self.bad.some(id.local(), at, chunks);
        }
    }

    /// The table or data of a container is damaged, and nothing of it can be read.
    pub fn ruin(&mut self, e: &ContainerEntry, object: &str, why: &str) {
        self.damaged.insert(e.id.local(), generations(e));
        self.lost(e.id, object, why);
    }
}

/// A damaged object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The object.
    pub object: String,
    /// What is wrong with it.
    pub why: String,
    /// The snapshots that cannot be restored because of it, as `vm/disk@id`.
    pub snapshots: Vec<String>,
}

/// Room for counting while several threads look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckCounts {
    pub objects: u64,
    pub containers: u64,
    pub data_bytes: u64,
    pub stored_bytes_read: u64,
}
