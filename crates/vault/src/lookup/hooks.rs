//! The hooks of a vault: an index in the store, searched where it stands (sparse indexing, Lillibridge et al., FAST 2009).
//!
//! Each backup puts an object with the hooks of the chunks that it wrote. A backup or `gc` that finds too many objects of
//! one size joins them, so that there are O(log n). All of it is a hint: an object that is gone or damaged costs space,
//! never data.

mod stale;

use crate::base::error::{Named, Result, UnlessDamaged, VaultError};
use crate::base::progress::Progress;
use crate::base::random::random_token;
use crate::base::threads::{at_once, Failure};
use crate::manifest::folder::Folder;
use crate::manifest::listing::{list_names, list_objects};
use chunk::Fingerprint;
use format::{
    names, ContainerId, DiskId, Hook, HookRange, HooksFooter, HooksSum, Kind, WriterNo, HOOK_BYTES,
};
use parking_lot::Mutex;
use stale::StaleHooks;
use std::collections::{BTreeSet, HashMap, HashSet};
use store::Entry;

/// Memory for objects that are read whole.
const WHOLE_BYTES: u64 = 16 << 20;
/// Longest object that is read whole.
const WHOLE_BYTES_MAX: u64 = 2 << 20;
/// Hooks that are read at once of an object that is searched where it stands.
const WINDOW: u64 = 256;
/// Windows that are read of an object to see how many of its hooks lead nowhere.
const SAMPLES: u64 = 4;
/// Most hooks that are read at once: prefixes that are not spread evenly are not found.
const WINDOW_MAX: u64 = 1 << 18;
/// Memory for the footers of all objects. An object whose footer does not fit is left out.
const FOOTERS_BYTES: usize = 64 << 20;
/// Memory for the footers of objects that are joined.
const JOINED_FOOTERS_BYTES: usize = 32 << 20;
/// Hooks of one prefix that are looked at.
const EQUAL_MAX: usize = 4;
/// Objects of about one size that are joined, and how much longer those of the next size are.
const FAN: usize = 8;
/// Most objects that are joined at once: a piece of each is in memory.
const JOINED_AT_ONCE: usize = 64;
/// Bytes of hooks that are read at once from each object that is joined.
const JOIN_BYTES: u64 = 256 << 10;
/// Bytes at the end of an object that say where its footer begins.
const TAIL_BYTES: usize = 8;

/// The hooks of a vault, as they were when they were opened last: when the first one is looked up, or an object was gone. A
/// backup of a few new chunks has none to look up.
pub(crate) struct Hooks {
    folder: Folder,
    objects: Option<Vec<Object>>,
}

/// Hooks that a backup or a join has put.
struct Object {
    name: String,
    hooks: u64,
    footer: HooksFooter,
    /// All of them, where they are few.
    whole: Option<Vec<u8>>,
}

impl Hooks {
    /// Those of a vault. Nothing is read yet.
    pub fn new(folder: &Folder) -> Hooks {
        Hooks { folder: folder.clone(), objects: None }
    }

    /// Opens the index. An object that cannot be read is left out.
    fn open(folder: &Folder) -> Result<Vec<Object>> {
        let mut objects = Vec::new();
        let (mut room, mut footers) = (WHOLE_BYTES, FOOTERS_BYTES);
        for Entry { name, len, .. } in list_objects(&*folder.store, names::HOOKS)? {
            let whole = len <= room.min(WHOLE_BYTES_MAX);
            let opened = if whole { Object::read_whole(folder, name) } else { Object::open(folder, name) };
            let Some(object) = opened.unless_damaged()? else { continue };
            let Some(left) = footers.checked_sub(object.footer.memory_bytes()) else { continue };
            footers = left;
            room -= object.whole.as_ref().map_or(0, |hooks| hooks.len() as u64);
            objects.push(object);
        }
        Ok(objects)
    }

    /// The containers that a chunk of this fingerprint may be in, by their owners.
    pub fn find(&mut self, fingerprint: &Fingerprint) -> Result<Vec<(DiskId, ContainerId)>> {
        Ok(self.find_all(&[*fingerprint])?.pop().unwrap_or_default())
    }

    /// The same of several fingerprints; objects that are long are read for all of them at once.
    pub fn find_all(&mut self, fingerprints: &[Fingerprint]) -> Result<Vec<Vec<(DiskId, ContainerId)>>> {
        let prefixes: Vec<u64> = fingerprints.iter().map(|f| Hook::prefix(&f.0)).collect();
        if prefixes.is_empty() {
            return Ok(Vec::new());
        }
        let mut is_last = false;
        let found = loop {
            let objects = match self.objects.take() {
                Some(objects) => objects,
                None => Hooks::open(&self.folder)?,
            };
            match self.look(&objects, &prefixes) {
                // Somebody has joined objects since: what they held is in another one.
                Err(VaultError::Missing { .. }) if !is_last => is_last = true,
                found => {
                    self.objects = Some(objects);
                    break found.unless_damaged()?;
                }
            }
        };
        Ok(found.unwrap_or_else(|| vec![Vec::new(); prefixes.len()]))
    }

    /// The same; an object that is gone is an error, and one that is damaged costs its hooks.
    fn look(&self, objects: &[Object], prefixes: &[u64]) -> Result<Vec<Vec<(DiskId, ContainerId)>>> {
        let found = Mutex::new(vec![Vec::new(); prefixes.len()]);
        let failure = Failure::default();
        let look_in = |n: usize, object: &Object| {
            let hooks = match object.find(&self.folder, prefixes[n]) {
                Err(e @ VaultError::Missing { .. }) => return Err(e),
                hooks => hooks.unless_damaged()?.unwrap_or_default(),
            };
            let owner = |hook: &Hook| object.footer.owners.get(hook.owner as usize).copied();
            found.lock()[n].extend(hooks.iter().filter_map(|h| Some((owner(h)?, h.container))));
            Ok(())
        };
        let pairs = |whole: bool| -> Vec<(usize, &Object)> {
            let objects = objects.iter().filter(|o| o.whole.is_some() == whole);
            objects.flat_map(|o| (0..prefixes.len()).map(move |n| (n, o))).collect()
        };
        pairs(true).into_iter().try_for_each(|(n, object)| look_in(n, object))?;
        at_once(&pairs(false), |(n, object)| {
            failure.guard(|| look_in(*n, object));
        });
        failure.into_result()?;
        let mut found = found.into_inner();
        found.iter_mut().for_each(|places| places.sort_unstable());
        Ok(found)
    }
}

impl Object {
    /// Opens a short one with one read.
    fn read_whole(folder: &Folder, name: String) -> Result<Object> {
        let mut bytes = folder.store.read(&name, WHOLE_BYTES_MAX).named()?;
        let len = bytes.len() as u64;
        let malformed = VaultError::malformed(&name);
        let tail = bytes.last_chunk::<TAIL_BYTES>().copied().unwrap_or_default();
        let begins = HooksFooter::begins_at(len, &tail).map_err(malformed)?;
        let hooks = begins / HOOK_BYTES as u64;
        let frame = &bytes[begins as usize..bytes.len() - TAIL_BYTES];
        let footer =
            HooksFooter::decode(folder.context(&name), frame, hooks).map_err(VaultError::malformed(&name))?;
        bytes.truncate(begins as usize);
        Ok(Object { name, hooks, footer, whole: Some(bytes) })
    }

    fn open(folder: &Folder, name: String) -> Result<Object> {
        let len = folder.store.len(&name).named()?;
        let malformed = VaultError::malformed(&name);
        let mut tail = [0; TAIL_BYTES];
        folder.store.read_at(&name, len.saturating_sub(TAIL_BYTES as u64), &mut tail).named()?;
        let begins = HooksFooter::begins_at(len, &tail).map_err(malformed)?;
        let frame_len = len - begins - TAIL_BYTES as u64;
        if frame_len > Kind::Hooks.frame_max() {
            return Err(VaultError::corrupt(&name, "has a footer that is too long"));
        }
        let mut frame = vec![0; frame_len as usize];
        folder.store.read_at(&name, begins, &mut frame).named()?;
        let hooks = begins / HOOK_BYTES as u64;
        let footer = HooksFooter::decode(folder.context(&name), &frame, hooks)
            .map_err(VaultError::malformed(&name))?;
        Ok(Object { name, hooks, footer, whole: None })
    }

    /// Hooks by their numbers, as they are stored.
    fn read(&self, folder: &Folder, hooks: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let bytes = |n: u64| n * HOOK_BYTES as u64;
        if let Some(whole) = &self.whole {
            return Ok(whole[bytes(hooks.start) as usize..bytes(hooks.end) as usize].to_vec());
        }
        let mut read = vec![0; bytes(hooks.end - hooks.start) as usize];
        folder.store.read_at(&self.name, bytes(hooks.start), &mut read).named()?;
        Ok(read)
    }

    /// The hooks of a prefix, the first few.
    fn find(&self, folder: &Folder, prefix: u64) -> Result<Vec<Hook>> {
        let HookRange { all, guess } = self.footer.find(prefix);
        if all.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(whole) = &self.whole {
            let of_bucket = &whole[all.start as usize * HOOK_BYTES..all.end as usize * HOOK_BYTES];
            return Ok(of_prefix(of_bucket, prefix));
        }
        let mut window = WINDOW;
        loop {
            let start = guess.saturating_sub(window / 2).max(all.start);
            let end = (guess + window / 2).min(all.end);
            let read = self.read(folder, start..end)?;
            let (first, last) = (prefix_at(&read, 0), prefix_at(&read, (end - start) as usize - 1));
            if (first < prefix || start == all.start) && (last > prefix || end == all.end) {
                return Ok(of_prefix(&read, prefix));
            }
            if window >= WINDOW_MAX {
                return Ok(Vec::new());
            }
            window *= 4;
        }
    }
}

fn prefix_at(hooks: &[u8], n: usize) -> u64 {
    hooks[n * HOOK_BYTES..n * HOOK_BYTES + 8].iter().fold(0, |p, b| p << 8 | u64::from(*b))
}

/// A hook from its bytes.
fn decode(bytes: &[u8]) -> Option<Hook> {
    Hook::decode(bytes.try_into().ok()?)
}

/// The first hooks of a prefix, of hooks in order.
fn of_prefix(hooks: &[u8], prefix: u64) -> Vec<Hook> {
    let (mut low, mut high) = (0, hooks.len() / HOOK_BYTES);
    while low < high {
        let middle = low + (high - low) / 2;
        if prefix_at(hooks, middle) < prefix {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let behind = hooks[low * HOOK_BYTES..].chunks_exact(HOOK_BYTES);
    behind.map_while(|h| decode(h).filter(|h| h.prefix == prefix)).take(EQUAL_MAX).collect()
}

/// Puts the hooks of one owner's containers: fingerprints and where their chunks are. Returns the object's name.
pub(crate) fn put(folder: &Folder, mut hooks: Vec<(u64, ContainerId)>) -> Result<String> {
    hooks.sort_unstable();
    hooks.dedup();
    let name = names::hooks(random_token()?);
    let mut footer = HooksFooter::for_hooks(hooks.len() as u64, vec![folder.disk]);
    let mut bytes = Vec::with_capacity(hooks.len() * HOOK_BYTES);
    for (prefix, container) in hooks {
        bytes.extend(Hook { prefix, owner: 0, container: container.local() }.encode());
        footer.count(prefix);
    }
    let mut sum = HooksSum::default();
    sum.feed(&bytes);
    let footer = footer.encode(folder.context(&name), Some(&sum));
    folder.store.put(&name, &[&bytes, &footer])?;
    Ok(name)
}

/// Joins objects of about one size where there are many, `bytes_max` bytes together at most; with `weed`, without the hooks
/// that lead nowhere. Returns how many objects there are then.
///
/// Two who join the same objects put the same hooks twice: that costs a little space until the next join.
pub(crate) fn join(folder: &Folder, bytes_max: u64, weed: bool) -> Result<usize> {
    loop {
        let mut by_size: HashMap<u32, Vec<(u64, String)>> = HashMap::new();
        let listed = list_objects(&*folder.store, names::HOOKS)?;
        let all = listed.len();
        for Entry { name, len, .. } in listed {
            by_size.entry(len.max(4096).ilog2() / FAN.ilog2()).or_default().push((len, name));
        }
        let full = |of_size: &&mut Vec<(u64, String)>| {
            of_size.len() >= FAN && of_size.iter().map(|o| o.0).sum::<u64>() <= bytes_max
        };
        let Some(of_size) = by_size.values_mut().find(full) else { return Ok(all) };
        let of_size: Vec<String> = of_size.drain(..of_size.len().min(JOINED_AT_ONCE)).map(|o| o.1).collect();
        let mut stale = weed.then(|| StaleHooks::new(folder));
        join_all(folder, &of_size, &mut |owner, id| stale.as_mut().map_or(Ok(true), |s| s.keeps(owner, id)))?;
    }
}

/// Deletes objects, but keeps the hooks of some writers. Returns how many objects it deleted.
pub(crate) fn delete_but(
    folder: &Folder,
    objects: &[String],
    writers: &HashSet<(DiskId, WriterNo)>,
) -> Result<u64> {
    if writers.is_empty() {
        return delete_all(folder, objects);
    }
    let mut keeps = |owner, id: ContainerId| Ok(writers.contains(&(owner, id.writer())));
    objects.chunks(JOINED_AT_ONCE).try_fold(0, |n, some| Ok(n + join_all(folder, some, &mut keeps)?))
}

fn delete_all(folder: &Folder, objects: &[String]) -> Result<u64> {
    objects.iter().try_fold(0, |n, name| Ok(n + u64::from(folder.store.delete(name)?)))
}

/// Puts objects anew of whose hooks a quarter or more leads nowhere, by a sample of them.
pub(crate) fn weed(folder: &Folder) -> Result<()> {
    let objects = list_names(&*folder.store, names::HOOKS)?;
    let mut stale = StaleHooks::new(folder);
    for name in objects {
        match count_stale(folder, &name, &mut stale).unless_damaged()? {
            Some((gone, looked)) if gone > 0 && 4 * gone >= looked => {
                join_all(folder, &[name], &mut |owner, id| stale.keeps(owner, id))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// How many of a sample of an object's hooks lead nowhere, and how many were looked at.
fn count_stale(folder: &Folder, name: &str, stale: &mut StaleHooks) -> Result<(u64, u64)> {
    let object = Object::open(folder, name.to_owned())?;
    let (mut gone, mut looked) = (0, 0);
    for n in 0..SAMPLES {
        let start = object.hooks / SAMPLES * n;
        let read = object.read(folder, start..(start + WINDOW).min(object.hooks))?;
        for hook in read.chunks_exact(HOOK_BYTES).filter_map(decode) {
            let Some(owner) = object.footer.owners.get(hook.owner as usize) else { continue };
            looked += 1;
            gone += u64::from(!stale.keeps(*owner, hook.container)?);
        }
    }
    Ok((gone, looked))
}

/// Puts the hooks of several objects that `keeps` wants into one, and deletes the objects. Returns how many these were.
fn join_all(
    folder: &Folder,
    of_size: &[String],
    keeps: &mut dyn FnMut(DiskId, ContainerId) -> Result<bool>,
) -> Result<u64> {
    let mut sources = Vec::new();
    let mut footers = JOINED_FOOTERS_BYTES;
    for name in of_size {
        // A damaged one goes with the others: `reindex` makes it again.
        let Some(object) = Object::open(folder, name.clone()).unless_damaged()? else { continue };
        // The same holds for one whose footer is far too long.
        let Some(left) = footers.checked_sub(object.footer.memory_bytes()) else { continue };
        footers = left;
        sources.push(Source::new(object));
    }
    let owners: BTreeSet<DiskId> = sources.iter().flat_map(|s| &s.object.footer.owners).copied().collect();
    let owners: Vec<DiskId> = owners.into_iter().take(HooksFooter::OWNERS_MAX).collect();
    for s in &mut sources {
        s.owners =
            s.object.footer.owners.iter().map(|d| owners.binary_search(d).ok().map(|n| n as u32)).collect();
    }
    let name = names::hooks(random_token()?);
    let mut footer = HooksFooter::for_hooks(sources.iter().map(|s| s.object.hooks).sum(), owners);
    let mut out = folder.store.writer(&name)?;
    let (mut ready, mut sum) = (Vec::new(), HooksSum::default());
    let mut last = None;
    loop {
        let mut least: Option<(Hook, usize)> = None;
        for (n, s) in sources.iter_mut().enumerate() {
            if let Some(hook) = s.peek(folder)? {
                if least.is_none_or(|(l, _)| hook < l) {
                    least = Some((hook, n));
                }
            }
        }
        let Some((hook, n)) = least else { break };
        sources[n].next();
        if last == Some(hook) {
            continue;
        }
        if !keeps(footer.owners[hook.owner as usize], hook.container)? {
            continue;
        }
        last = Some(hook);
        footer.count(hook.prefix);
        ready.extend(hook.encode());
        if ready.len() as u64 >= JOIN_BYTES {
            sum.feed(&ready);
            out.append(&std::mem::take(&mut ready))?;
        }
    }
    sum.feed(&ready);
    out.append(&ready)?;
    if last.is_some() {
        out.append(&footer.encode(folder.context(&name), Some(&sum)))?;
        out.finish()?;
    }
    delete_all(folder, of_size)
}

/// An object that is joined with others: a piece of it is in memory.
struct Source {
    object: Object,
    /// The new numbers of its owners; `None` of those whose hooks go.
    owners: Vec<Option<u32>>,
    /// Hooks that were read, the next one last.
    read: Vec<Hook>,
    next: u64,
}

impl Source {
    fn new(object: Object) -> Source {
        Source { object, owners: Vec::new(), read: Vec::new(), next: 0 }
    }

    /// The next hook. One that cannot be read, or is none, ends the object.
    fn peek(&mut self, folder: &Folder) -> Result<Option<Hook>> {
        while self.read.is_empty() && self.next < self.object.hooks {
            let end = (self.next + JOIN_BYTES / HOOK_BYTES as u64).min(self.object.hooks);
            let bytes = self.object.read(folder, self.next..end).unless_damaged()?;
            let hooks = bytes.and_then(|bytes| bytes.chunks_exact(HOOK_BYTES).map(decode).collect());
            let Some(hooks): Option<Vec<Hook>> = hooks else {
                self.next = self.object.hooks;
                return Ok(None);
            };
            self.next = end;
            let kept = hooks.into_iter().filter_map(|h| {
                let owner = self.owners.get(h.owner as usize).copied().flatten()?;
                Some(Hook { owner, ..h })
            });
            self.read = kept.collect();
            // Hooks that are out of order would be found nowhere.
            self.read.sort_unstable_by(|a, b| b.cmp(a));
        }
        Ok(self.read.last().copied())
    }

    fn next(&mut self) {
        self.read.pop();
    }
}

/// Opens every object, and says which cannot be. With `data`, all hooks are read, and must be those that were written.
pub(crate) fn check(folder: &Folder, data: bool, progress: &Progress) -> Result<Vec<(String, Result<()>)>> {
    let mut checked = Vec::new();
    for name in list_names(&*folder.store, names::HOOKS)? {
        progress.check()?;
        let opened = Object::open(folder, name.clone());
        match opened.and_then(|object| if data { check_hooks(folder, &object, progress) } else { Ok(()) }) {
            // Joined with others meanwhile.
            Err(VaultError::Missing { .. }) => {}
            opened => checked.push((name, opened)),
        }
    }
    Ok(checked)
}

/// Reads all hooks of an object. Holes, which may be of any length, are none.
fn check_hooks(folder: &Folder, object: &Object, progress: &Progress) -> Result<()> {
    let (mut sum, mut last, mut next) = (HooksSum::default(), 0, 0);
    while next < object.hooks {
        progress.check()?;
        let end = (next + JOIN_BYTES / HOOK_BYTES as u64).min(object.hooks);
        let bytes = object.read(folder, next..end)?;
        sum.feed(&bytes);
        for hook in bytes.chunks_exact(HOOK_BYTES).map(decode) {
            last = match hook {
                Some(hook) if hook.prefix >= last => hook.prefix,
                _ => return Err(VaultError::corrupt(&object.name, "its hooks are not in order")),
            };
        }
        next = end;
    }
    match object.footer.is_of(&sum) {
        Some(false) => Err(VaultError::corrupt(&object.name, "checksum of its hooks does not match")),
        // Objects that the first programs have written have no checksum of their hooks.
        Some(true) | None => Ok(()),
    }
}
