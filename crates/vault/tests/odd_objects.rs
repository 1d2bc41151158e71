//! Objects that are no regular file, or that cannot be read, count as damaged like any other object.
//!
//! The story: one pipe, symbolic link or unreadable file under an object's name ended `gc` for the whole vault; in the place
//! of the manifest that all disks shared it kept every disk from being restored, in the place of an index it kept every
//! disk from being backed up.
//!
//! Disks reference chunks of each other: what is odd in one of them costs the others what it had for them, and no more.
#![allow(clippy::unwrap_used)]

mod common;

use common::{backup, image, new_vault, open_vault, restore, rng, scratch, seed};
use format::{names, Context, Manifest};
use rand::RngExt;
use rustix::fs::{mkfifoat, Mode, CWD};
use rustix::process::{Gid, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{symlink, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::time::Duration;
use vault::{
    CopyOptions, CopyReport, Global, Policy, Progress, ReadCache, RepairOptions, RetentionRules, Vault,
    VaultError, BALANCED, CONVENTIONAL, REVERSE, VM_CENTRIC_BLOOM,
};

/// Disks for each way to share chunks and to delete.
fn disks() -> [(&'static str, Policy); 7] {
    let small = |policy: Policy| Policy {
        segment_bytes: 16 << 10,
        chunking: "4k".parse().unwrap(),
        group_bytes: 64 << 10,
        container_bytes: 256 << 10,
        own_index_bytes: 1 << 20,
        index_at: 1,
        global: match policy.global {
            Global::Chunks { champions, .. } => Global::Chunks { sampled: 0, champions },
            other => other,
        },
        ..policy
    };
    [
        ("balanced/a", small(BALANCED)),
        ("conventional/a", small(CONVENTIONAL)),
        ("conventional/b", small(CONVENTIONAL)),
        ("reverse/a", small(REVERSE)),
        ("reverse/b", small(REVERSE)),
        ("bloom/a", small(VM_CENTRIC_BLOOM)),
        ("bloom/b", small(VM_CENTRIC_BLOOM)),
    ]
}

/// Nobody can read a file of this user whose mode is 000, unlike root.
const NOBODY: u32 = 65534;
/// No case takes a hundredth of this: who takes longer hangs.
const HANGS: Duration = Duration::from_secs(300);

struct Fixture {
    dir: tempfile::TempDir,
    /// By `vm/disk@id`.
    content: BTreeMap<String, Vec<u8>>,
    newest: BTreeMap<&'static str, Vec<u8>>,
}

impl Fixture {
    fn new() -> Self {
        let mut rng = rng(seed("odd_objects"));
        let dir = scratch();
        // Snapshots are in pages, but for the newest one.
        let vault = new_vault(dir.path()).with_recent_max(1);
        let (mut content, mut newest) = (BTreeMap::new(), BTreeMap::<&str, Vec<u8>>::new());
        let mut base = image(&mut rng, 400_000);
        // All have this in common.
        rng.fill(&mut base[150_000..300_000]);
        for version in 0..4_usize {
            if version == 1 {
                // Each of two disks has something of the other one's.
                for (from, to) in [("conventional/a", "conventional/b"), ("conventional/b", "conventional/a")]
                {
                    let copied = newest[from][..24_576].to_vec();
                    newest.get_mut(to).unwrap()[204_800..][..24_576].copy_from_slice(&copied);
                }
            }
            for (disk, policy) in disks() {
                // The last one comes when there is a popular set.
                if disk == "bloom/b" && version < 2 {
                    continue;
                }
                let bytes: &mut Vec<u8> = newest.entry(disk).or_insert_with(|| base.clone());
                // What the next version has, too, and what it has not: containers are dead in part.
                rng.fill(&mut bytes[version * 40_000..][..30_000]);
                rng.fill(&mut bytes[300_000..][..20_000]);
                let id = backup(&vault, disk, bytes, policy).unwrap().snapshot.id;
                if version != 2 {
                    content.insert(format!("{disk}@{id}"), bytes.clone());
                }
            }
            if version == 1 {
                vault.popular_build(1.0, &std::env::temp_dir()).unwrap();
            }
            if version == 2 {
                // A smaller set, and of the first one what a disk uses: what that gives up later is a small part.
                vault.popular_build(0.02, &std::env::temp_dir()).unwrap();
                vault.gc(false).unwrap();
            }
        }
        for (disk, _) in disks() {
            vault.delete(disk, &["latest~1"]).unwrap();
        }
        vault.gc(false).unwrap();
        // What killed processes leave.
        let referrer = objects(dir.path()).into_iter().find(|o| o.contains("/referrers/")).unwrap();
        let id = referrer.split('/').nth(1).unwrap().to_owned();
        for left in [
            "sessions/00000000000000aa".to_owned(),
            format!("readers/{id}/00000000000000bb"),
            format!("claims/{id}/1/00000000000000aa"),
            format!("retiring/{id}/00000000000000aa"),
        ] {
            let path = path(dir.path(), &left);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        assert_eq!(vault.verify(None, true, &Progress::default()).unwrap().damaged, []);
        let f = Fixture { dir, content, newest };
        let kinds = f.objects();
        let missing: Vec<&&str> = KINDS.iter().filter(|kind| !kinds.contains_key(*kind)).collect();
        assert!(missing.is_empty(), "there are none of {missing:?}: {:?}", objects(f.dir.path()));
        // They own what others reference, and reference what others own.
        let foreign = f.foreign(&vault);
        for (disk, owner) in [
            ("conventional/a", "balanced/a"),
            ("conventional/a", "conventional/b"),
            ("conventional/b", "conventional/a"),
            ("reverse/b", "reverse/a"),
            ("bloom/b", "popular"),
        ] {
            assert!(foreign[disk].contains(owner), "{disk} does not reference {owner}: {foreign:?}");
        }
        f
    }

    /// The owners of other folders whose containers each disk references.
    fn foreign(&self, vault: &Vault) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
        let folders: BTreeMap<String, &str> =
            self.newest.keys().map(|disk| (folder_of(self, disk), *disk)).collect();
        let owners_of = |disk: &str| {
            let object = names::manifest(&format!("{}/", folder_of(self, disk)));
            let bytes = fs::read(path(self.dir.path(), &object)).unwrap();
            let m = Manifest::decode(Context { vault: vault.id(), place: &object }, &bytes).unwrap();
            m.owners
                .iter()
                .map(|id| folders.get(&format!("disks/{id}")).copied().unwrap_or("popular"))
                .collect()
        };
        self.newest.keys().map(|disk| (*disk, owners_of(disk))).collect()
    }

    /// One object of each kind, of the disk that the most others reference where it has one.
    fn objects(&self) -> BTreeMap<&'static str, String> {
        let mut kinds = BTreeMap::new();
        let mut all = objects(self.dir.path());
        let owner = folder_of(self, "balanced/a");
        all.sort_by_key(|object| !object.starts_with(&owner));
        for object in all {
            kinds.entry(kind_of(&object)).or_insert(object);
        }
        kinds
    }
}

fn path(dir: &Path, object: &str) -> PathBuf {
    dir.join("objects").join(object)
}

fn objects(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut below = vec![dir.join("objects")];
    while let Some(at) = below.pop() {
        for e in fs::read_dir(at).unwrap() {
            let e = e.unwrap();
            if e.file_type().unwrap().is_dir() {
                below.push(e.path())
            } else {
                all.push(e.path().strip_prefix(dir.join("objects")).unwrap().to_str().unwrap().into())
            }
        }
    }
    all.sort();
    all
}

fn kind_of(object: &str) -> &'static str {
    let is = |suffix: &str| object.ends_with(suffix);
    let popular = object.starts_with("popular/");
    match object {
        names::VAULT => "vault.json",
        names::VAULT_COPY => "vault.copy",
        names::VERIFICATIONS => "verifications",
        _ if object.starts_with(names::NAMES) => "name",
        _ if object.starts_with(names::SESSIONS) => "session",
        _ if object.starts_with(names::READERS) => "reader",
        _ if object.starts_with(names::CLAIMS) => "claim",
        _ if object.starts_with(names::RETIRING) => "retiring",
        _ if object.starts_with(names::HOOKS) => "hooks",
        _ if object.starts_with(names::POPULAR) => "popular set",
        _ if object.contains("/referrers/") && popular => "popular referrer",
        _ if object.contains("/referrers/") => "referrer",
        _ if is("/manifest") && popular => "popular manifest",
        _ if is("/manifest") => "manifest",
        _ if object.contains("/pages/") && popular => "popular page",
        _ if object.contains("/pages/") => "page",
        _ if object.contains("/references/") => "references",
        _ if object.contains("/snapshots/") => "snapshot page",
        _ if is(".root") => "root",
        _ if is(".pages") => "recipe pages",
        _ if is(".bloom") => "filter",
        _ if is(".data") && popular => "popular data",
        _ if is(".data") => "data",
        _ if is(".table") && popular => "popular table",
        _ if is(".table") => "table",
        _ if is(".dead") && popular => "popular dead",
        _ if is(".dead") => "dead",
        _ if object.contains("/commits/") && popular => "popular commit",
        _ if object.contains("/commits/") => "commit",
        _ => panic!("{object}: of what kind?"),
    }
}

const KINDS: [&str; 29] = [
    "vault.json",
    "vault.copy",
    "verifications",
    "name",
    "session",
    "reader",
    "claim",
    "retiring",
    "hooks",
    "popular set",
    "popular referrer",
    "referrer",
    "popular manifest",
    "manifest",
    "popular page",
    "page",
    "snapshot page",
    "references",
    "root",
    "recipe pages",
    "filter",
    "popular data",
    "data",
    "popular table",
    "table",
    "popular dead",
    "dead",
    "popular commit",
    "commit",
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Odd {
    Pipe,
    Socket,
    LinkToItself,
    LinkElsewhere,
    EmptyDirectory,
    FullDirectory,
    Unreadable,
}

const ODD: [Odd; 7] = [
    Odd::Pipe,
    Odd::Socket,
    Odd::LinkToItself,
    Odd::LinkElsewhere,
    Odd::EmptyDirectory,
    Odd::FullDirectory,
    Odd::Unreadable,
];

/// Those that the commands of [`maintain`] are tried with, which take most of the time.
const MAINTAINED: [Odd; 4] = [Odd::Pipe, Odd::LinkElsewhere, Odd::FullDirectory, Odd::Unreadable];

impl Odd {
    fn put(self, at: &Path) {
        if self == Odd::Unreadable {
            return fs::set_permissions(at, fs::Permissions::from_mode(0o000)).unwrap();
        }
        let before = fs::read(at).unwrap();
        fs::remove_file(at).unwrap();
        match self {
            Odd::Pipe => mkfifoat(CWD, at, Mode::RUSR | Mode::WUSR).unwrap(),
            Odd::Socket => {
                // The paths of sockets are short.
                let dir = tempfile::tempdir_in(at.ancestors().nth(3).unwrap()).unwrap();
                let short = tempfile::tempdir().unwrap();
                symlink(dir.path(), short.path().join("s")).unwrap();
                drop(UnixListener::bind(short.path().join("s/x")).unwrap());
                fs::rename(dir.path().join("x"), at).unwrap();
            }
            Odd::LinkToItself => symlink(at.file_name().unwrap(), at).unwrap(),
            Odd::LinkElsewhere => {
                // To the right bytes: that they are followed would not be seen otherwise.
                let elsewhere = at.ancestors().find(|a| a.ends_with("objects")).unwrap();
                let elsewhere = elsewhere.with_file_name("elsewhere");
                fs::write(&elsewhere, before).unwrap();
                symlink(elsewhere, at).unwrap();
            }
            Odd::EmptyDirectory => fs::create_dir(at).unwrap(),
            Odd::FullDirectory => {
                fs::create_dir(at).unwrap();
                fs::write(at.join("file"), before).unwrap();
            }
            Odd::Unreadable => unreachable!(),
        }
    }

    fn is_directory(self) -> bool {
        matches!(self, Odd::EmptyDirectory | Odd::FullDirectory)
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for e in fs::read_dir(from).unwrap() {
        let e = e.unwrap();
        if e.file_type().unwrap().is_dir() {
            copy_tree(&e.path(), &to.join(e.file_name()))
        } else {
            fs::copy(e.path(), to.join(e.file_name())).unwrap();
        }
    }
}

/// One object of the vault made odd: every command on the vault, by a thread of a user that is not root.
fn case(f: &Fixture, kind: &str, object: &str, odd: Odd) {
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy_tree(f.dir.path(), dir.path());
    odd.put(&path(dir.path(), object));
    if rustix::process::geteuid().is_root() {
        give_away_all(dir.path());
    }
    let (ended, end) = channel();
    std::thread::scope(|scope| {
        let dir = dir.path();
        scope.spawn(move || {
            if rustix::process::geteuid().is_root() {
                let nobody = Uid::from_raw(NOBODY);
                // Of this thread alone, and of those that it starts.
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            all_commands(f, dir, kind, object, odd);
            let _ = ended.send(());
        });
        if end.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{kind} {object} {odd:?}: hangs");
            std::process::abort();
        }
    });
}

/// A symbolic link is given away itself, not what it leads to.
fn give_away_all(dir: &Path) {
    let mut below = vec![dir.to_owned()];
    while let Some(at) = below.pop() {
        let (user, group) = (Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY)));
        rustix::fs::chownat(CWD, &at, user, group, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
        if fs::symlink_metadata(&at).unwrap().is_dir() {
            below.extend(fs::read_dir(&at).unwrap().map(|e| e.unwrap().path()));
        }
    }
}

fn all_commands(f: &Fixture, dir: &Path, kind: &str, object: &str, odd: Odd) {
    let what = format!("{kind} {object} {odd:?}");
    let vault = match open_vault(dir) {
        Ok(vault) => vault.with_recent_max(1),
        Err(e) => {
            assert!(kind == "vault.json" && e.is_damage(), "{what}: {e}");
            assert!(e.to_string().contains(object), "{what}: {e}");
            return;
        }
    };
    let folder = object.split('/').take(2).collect::<Vec<_>>().join("/");
    let is_of = |disk: &str| match kind {
        "name" => object == names::name(disk),
        _ => folder_of(f, disk) == folder,
    };
    let affected = verify(&vault, kind, object, odd, &what);
    vault.snapshots(None).unwrap_or_else(|e| panic!("{what}: snapshots: {e}"));
    vault.stats(None).unwrap_or_else(|e| panic!("{what}: stats: {e}"));
    let mut restored = BTreeSet::new();
    for (name, content) in &f.content {
        let (disk, id) = name.split_once('@').unwrap();
        match restore(&vault, disk, id) {
            Ok(bytes) => {
                assert!(bytes == *content, "{what}: {name}: wrong bytes");
                restored.insert(name.clone());
            }
            Err(_) if kind == "name" && is_of(disk) => {}
            Err(e) => {
                assert!(affected.contains(name), "{what}: restore of {name}: {e}");
                assert!(e.is_damage(), "{what}: restore of {name}: {e}");
            }
        }
    }
    vault.health().unwrap_or_else(|e| panic!("{what}: status: {e}"));
    vault.last_verifications();
    let is_sampled = is_sampled(kind, odd);
    if is_sampled {
        for (name, content) in &f.content {
            let whole = restored.contains(name).then_some(content);
            let may_fail = |disk: &str| affected.contains(name) || (kind == "name" && is_of(disk));
            look_at(&vault, name, whole, may_fail, &what);
        }
        differences(&vault, f, &restored, &what);
    }
    let reindexed = vault.reindex();
    if kind != "hooks" || !odd.is_directory() {
        reindexed.unwrap_or_else(|e| panic!("{what}: reindex: {e}"));
    }
    let mut deleted = BTreeSet::new();
    for (disk, policy) in disks() {
        match backup(&vault, disk, &f.newest[disk], policy) {
            Ok(made) => {
                let bytes = restore(&vault, disk, &made.snapshot.id.to_string());
                assert!(bytes.unwrap_or_else(|e| panic!("{what}: {disk}: {e}")) == f.newest[disk]);
            }
            Err(e) => {
                assert!(is_of(disk), "{what}: backup of {disk}: {e}");
                assert!(e.is_damage() || kind == "name", "{what}: backup of {disk}: {e}");
            }
        }
        // All of the first one, whose chunks the others reference.
        let of_disk: Vec<&String> = f.content.keys().filter(|n| n.starts_with(&format!("{disk}@"))).collect();
        let to_delete = if disk == "balanced/a" { &of_disk[..] } else { &of_disk[of_disk.len() - 1..] };
        deleted.extend(to_delete.iter().map(|n| (*n).clone()));
        let ids: Vec<&str> = to_delete.iter().map(|n| n.split_once('@').unwrap().1).collect();
        if let Err(e) = vault.delete(disk, &ids) {
            let hidden = is_of(disk) && (kind == "manifest" || kind == "name");
            assert!(hidden, "{what}: deletion of {disk}: {e}");
        }
    }
    for dry_run in [true, false] {
        let report = vault.gc(dry_run).unwrap_or_else(|e| panic!("{what}: gc: {e}"));
        let told = report.skipped.iter().any(|line| line.contains(object));
        // A dry run does not look at the popular set, and one whose manifest is a directory is none.
        let must = kind == "manifest" || (kind == "popular manifest" && !dry_run && !odd.is_directory());
        assert!(told || !must, "{what}: gc: {:?}", report.skipped);
    }
    // What deletion and collection left alone is all there, in the disks that reference chunks of others, too.
    let left: BTreeMap<&String, &Vec<u8>> =
        f.content.iter().filter(|(name, _)| restored.contains(*name) && !deleted.contains(*name)).collect();
    are_there(&vault, &left, &format!("{what}: afterwards"));
    let is_hidden = |disk: &str| is_of(disk) && (kind == "manifest" || kind == "name");
    if is_sampled {
        for (disk, _) in disks() {
            if let Err((command, e)) = change(&vault, disk) {
                assert!(is_hidden(disk), "{what}: {command} {disk}: {e}");
            }
        }
        are_there(&vault, &left, &format!("{what}: changed"));
    }
    if MAINTAINED.contains(&odd) {
        maintain(&vault, &left, kind, odd, &what);
    }
    if is_sampled {
        remove_all(&vault, is_hidden, &what);
    }
}

/// Whether the commands that take the rest of the time are tried with this oddity of this kind: with every second one, in
/// turn, or with all, where `SAPWOOD_ODD=all` says so.
fn is_sampled(kind: &str, odd: Odd) -> bool {
    let all = std::env::var("SAPWOOD_ODD").is_ok_and(|said| said == "all");
    let kind = KINDS.iter().position(|k| *k == kind).unwrap();
    let odd = ODD.iter().position(|o| *o == odd).unwrap();
    all || (kind + odd) % 2 == 0
}

/// Removes one disk after the other: those beside it, which share chunks with it, stay whole.
fn remove_all(vault: &Vault, is_hidden: impl Fn(&str) -> bool, what: &str) {
    for (disk, _) in disks() {
        let rules = RetentionRules { last: 1, ..RetentionRules::default() };
        if let Err(e) = vault.retain(disk, &rules, &vault::utc, false) {
            assert!(is_hidden(disk), "{what}: retain {disk}: {e}");
        }
    }
    let mut still_there = restorable(vault);
    for (disk, _) in disks() {
        still_there.retain(|name, _| !name.starts_with(&format!("{disk}@")));
        if let Err(e) = vault.remove(disk) {
            assert!(is_hidden(disk), "{what}: remove {disk}: {e}");
        }
        if disk == "balanced/a" || disk == "conventional/a" {
            are_there(vault, &still_there.iter().collect(), &format!("{what}: {disk} was removed"));
        }
    }
}

/// Each snapshot that is listed and can be restored, with its bytes.
fn restorable(vault: &Vault) -> BTreeMap<String, Vec<u8>> {
    let listed = vault.snapshots(None).unwrap().snapshots;
    let restored = listed.iter().filter_map(|s| {
        let id = s.entry.id.to_string();
        Some((format!("{}@{id}", s.disk), restore(vault, &s.disk, &id).ok()?))
    });
    restored.collect()
}

/// Commands that read one snapshot: what can be restored can be opened (`nbd`, `mount`, `files`) and shown, too.
fn look_at(vault: &Vault, name: &str, whole: Option<&Vec<u8>>, may_fail: impl Fn(&str) -> bool, what: &str) {
    let (disk, id) = name.split_once('@').unwrap();
    let is_told = |e: &VaultError| whole.is_none() && may_fail(disk) && (e.is_damage() || is_not_found(e));
    if let Err(e) = vault.map(disk, id, 16) {
        assert!(is_told(&e) || e.is_damage(), "{what}: map of {name}: {e}");
    }
    let opened = vault.open_snapshot(disk, id, &ReadCache::new(1 << 20)).and_then(|open| {
        let mut bytes = vec![0; open.size() as usize];
        for (at, part) in bytes.chunks_mut(50_000).enumerate() {
            open.read_at(at as u64 * 50_000, part)?;
        }
        Ok(bytes)
    });
    match (opened, whole) {
        (Ok(bytes), Some(content)) => assert!(bytes == *content, "{what}: {name}: wrong bytes are read"),
        // It is damaged where nothing is read: the restore said what.
        (Ok(_), None) => {}
        (Err(e), _) => assert!(is_told(&e), "{what}: reading {name}: {e}"),
    }
}

fn is_not_found(e: &VaultError) -> bool {
    matches!(e, VaultError::NotFound { .. })
}

/// What `diff` passes over is equal.
fn differences(vault: &Vault, f: &Fixture, restored: &BTreeSet<String>, what: &str) {
    let names: Vec<(&String, &Vec<u8>)> = f.content.iter().collect();
    for pair in names.windows(2) {
        let [(old, old_bytes), (new, new_bytes)] = pair else { unreachable!() };
        let ((disk, a), (other, b)) = (old.split_once('@').unwrap(), new.split_once('@').unwrap());
        if disk != other {
            continue;
        }
        let mut differs = vec![false; old_bytes.len().max(new_bytes.len())];
        let done = vault.diff((disk, a), (disk, b), &mut |range| {
            differs[range.start as usize..(range.end as usize).min(old_bytes.len())].fill(true);
        });
        match done {
            Ok(_) => {
                let told = |at: usize| differs[at] || old_bytes[at] == new_bytes[at];
                assert!((0..old_bytes.len()).all(told), "{what}: diff of {old} and {new} is wrong");
            }
            Err(e) => {
                let both = restored.contains(*old) && restored.contains(*new);
                assert!(e.is_damage() || (!both && is_not_found(&e)), "{what}: diff of {old} and {new}: {e}");
            }
        }
    }
}

/// Commands that write a disk's manifest and leave its snapshots as they are. Returns what failed.
fn change(vault: &Vault, disk: &str) -> Result<(), (&'static str, VaultError)> {
    let failed = |command| move |e| (command, e);
    if vault.snapshots(Some(disk)).map_err(failed("snapshots"))?.snapshots.is_empty() {
        // All of it were deleted, and what is odd kept it from being backed up.
        return Ok(());
    }
    vault.set_held(disk, "latest", true).map_err(failed("hold"))?;
    match vault.remove(disk) {
        Err(VaultError::Refused(_)) => {}
        Err(e) => return Err(("removing a held snapshot of", e)),
        Ok(removed) => panic!("{disk} was removed, and its newest snapshot was held: {removed:?}"),
    }
    vault.set_held(disk, "latest", false).map_err(failed("release"))?;
    let tags = BTreeMap::from([("for".to_owned(), Some("a test".to_owned()))]);
    let tagged = vault.set_tags(disk, "latest", &tags).map_err(failed("tag"))?;
    assert!(tagged.tags.contains(&("for".into(), "a test".into())));
    vault.rename(disk, "other/name").map_err(failed("rename"))?;
    assert!(vault.find("other/name", "latest").map_err(failed("find"))?.id == tagged.id);
    vault.rename("other/name", disk).map_err(failed("rename"))
}

fn are_there(vault: &Vault, snapshots: &BTreeMap<&String, &Vec<u8>>, what: &str) {
    for (name, content) in snapshots {
        let (disk, id) = name.split_once('@').unwrap();
        let bytes = restore(vault, disk, id).unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
        assert!(bytes == **content, "{what}: {name}: wrong bytes");
    }
}

/// Commands that write a vault anew, or another one: what is odd ends none of them, and none harms what can be restored.
fn maintain(vault: &Vault, left: &BTreeMap<&String, &Vec<u8>>, kind: &str, odd: Odd, what: &str) {
    vault.compact(None, 0.01).unwrap_or_else(|e| panic!("{what}: compact: {e}"));
    if let Err(e) = vault.popular_build(1.0, &std::env::temp_dir()) {
        assert!(kind.starts_with("popular") && e.is_damage(), "{what}: popular build: {e}");
    }
    let scratch = scratch();
    let other = new_vault(scratch.path());
    for (disk, _) in disks() {
        let (options, mut report) = (CopyOptions::default(), CopyReport::default());
        // One that has damaged snapshots, or is hidden, ends with an error, after the others have been copied.
        if let Err(e) = vault.copy(disk, &other, &options, &Progress::default(), &mut report) {
            let is_hidden = matches!(e, VaultError::NotFound { .. }) && kind == "name" && odd.is_directory();
            assert!(e.is_damage() || is_hidden, "{what}: copy of {disk}: {e}");
        }
    }
    let hidden = ["name", "manifest"].contains(&kind);
    let arrived: BTreeSet<String> = other
        .snapshots(None)
        .unwrap()
        .snapshots
        .iter()
        .map(|s| format!("{}@{}", s.disk, s.entry.id))
        .collect();
    let (there, lost): (BTreeMap<_, _>, BTreeMap<_, _>) =
        left.iter().map(|(n, c)| (*n, *c)).partition(|(n, _)| arrived.contains(*n));
    assert!(lost.is_empty() || hidden, "{what}: not copied: {:?}", lost.keys());
    are_there(&other, &there, &format!("{what}: copied"));
    let options = RepairOptions { data: true, ..Default::default() };
    vault.repair(&options, &Progress::default()).unwrap_or_else(|e| panic!("{what}: repair: {e}"));
    are_there(vault, left, &format!("{what}: repaired"));
}

/// The id of a disk's folder is in its name.
fn folder_of(f: &Fixture, disk: &str) -> String {
    let name = fs::read(path(f.dir.path(), &names::name(disk))).unwrap();
    let id: String = name[32..48].iter().map(|b| format!("{b:02x}")).collect();
    format!("disks/{id}")
}

/// Names the object, where that is verified. Returns the snapshots that it affects.
fn verify(vault: &Vault, kind: &str, object: &str, odd: Odd, what: &str) -> BTreeSet<String> {
    let mut affected = BTreeSet::new();
    for data in [false, true] {
        let report = vault.verify(None, data, &Progress::default());
        let report = report.unwrap_or_else(|e| panic!("{what}: verify: {e}"));
        let named = report.damaged.iter().any(|d| d.object == object);
        let is_verified = match kind {
            "session" | "reader" | "claim" | "retiring" | "popular commit" | "commit" | "verifications" => {
                false
            }
            // That it is there is all that it says.
            "referrer" | "popular referrer" => false,
            // A missing one costs space only.
            "hooks" | "popular set" | "filter" => !odd.is_directory(),
            _ => true,
        };
        assert!(named || !is_verified, "{what}: {:?}", report.damaged);
        affected.extend(report.damaged.into_iter().flat_map(|d| d.snapshots));
    }
    affected
}

fn matrix(oddities: &[Odd]) {
    let f = Fixture::new();
    let objects = f.objects();
    for kind in KINDS {
        let object = &objects[kind];
        for odd in oddities {
            case(&f, kind, object, *odd);
        }
    }
}

#[test]
fn pipes_and_sockets() {
    matrix(&ODD[..2]);
}

#[test]
fn symbolic_links() {
    matrix(&ODD[2..4]);
}

#[test]
fn directories() {
    matrix(&ODD[4..6]);
}

#[test]
fn files_that_cannot_be_read() {
    matrix(&ODD[6..]);
}
