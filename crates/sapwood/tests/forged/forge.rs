//! A small vault whose objects can be replaced by others with valid checksums.

use crate::common::{files_below, random, sapwood, Bench};
use format::{
    decode_frame, encode_frame, names, Context, DiskId, Kind, Manifest, PageAt, RecipeName, RecipePage,
    RecipePageRef, RecipeRoot, SnapshotEntry, Summary, VaultFile, VaultId, FRAME_HEADER_BYTES,
};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use xxhash_rust::xxh3::Xxh3;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, InBuffer, OutBuffer};

pub const POLICIES: [&str; 4] = ["balanced", "reverse", "conventional", "vm-centric-bloom"];
/// An empty vault beside it.
const OTHER: &str = "other";
/// An empty pool beside it.
const POOL: &str = "a.pool";
/// A configuration file, with one job that does all that jobs can.
const JOBS: &str = "jobs.toml";
/// Three segments of `balanced`, the last one cut short.
const DISK_BYTES: usize = 9 << 20;
/// Bytes of it that are no zeros.
const DATA_BYTES: usize = 3 << 20;

/// A vault, and what its snapshots hold.
pub struct Original {
    bench: Bench,
    /// Of `vm/a@latest~2`, `latest~1` and `latest`: files, because a command starts with the memory of the one that starts it.
    versions: Vec<PathBuf>,
}

impl Original {
    pub fn new(policy: &str) -> Self {
        let bench = Bench::new_in(&testing::memory_dir(), policy);
        assert!(sapwood(&bench.path(OTHER), &["init", "--policy", policy]).status().unwrap().success());
        let mut bytes = vec![0; DISK_BYTES];
        bytes[..DATA_BYTES].copy_from_slice(&random(DATA_BYTES, 1));
        let mut versions = Vec::new();
        for n in 0..4u64 {
            // Some of it changes, and some moves.
            let at = (n as usize + 1) * 400_000;
            bytes[at..at + 100_000].copy_from_slice(&random(100_000, n + 2));
            bytes.copy_within(4096..40_960, (5 << 20) + at / 4096 * 4096);
            let source = bench.file(&format!("version-{n}"), &bytes);
            bench.backup("vm/a", &source);
            bench.backup("vm/b", &source);
            versions.push(source.into());
        }
        // Deletion leaves lists of dead chunks.
        bench.done(&["delete", "vm/a@latest~2"]);
        versions.remove(1);
        bench.done(&["-q", "popular", "build", "--fraction", "20"]);
        bytes[..100_000].copy_from_slice(&random(100_000, 9));
        bench.file("next", &bytes);
        bench.verify();
        Original { bench, versions }
    }

    /// Where the vault stands.
    pub fn store(&self) -> &Path {
        &self.bench.store
    }

    /// What `vm/a@latest~{2 - n}` holds.
    pub fn version(&self, n: usize) -> Vec<u8> {
        std::fs::read(&self.versions[n]).unwrap()
    }

    pub fn copy(&self) -> Vault {
        let vault = Vault::copy_of(&self.bench.store, "vault", &|_| false);
        copy_dir(&self.bench.path(OTHER), &vault.dir().join(OTHER), &|_| false);
        for to in ["next", "older"] {
            std::fs::copy(self.bench.path("next"), vault.dir().join(to)).unwrap();
        }
        let pool = vault.dir().join(POOL);
        let mut create = sapwood(&self.bench.store, &["-q", "pool", "create", "--size", "256MiB"]);
        assert!(create.arg(pool).status().unwrap().success());
        std::fs::create_dir(vault.dir().join("mountpoint")).unwrap();
        vault
    }
}

/// Copies what is in a directory; most of the time goes into this. The files of a reserve are only ever removed, so links
/// to them will do; what `leave_out` says is not copied.
fn copy_dir(from: &Path, to: &Path, leave_out: &dyn Fn(&OsStr) -> bool) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (name, kind) = (entry.file_name(), entry.file_type().unwrap());
        if leave_out(&name) {
            continue;
        }
        let (at, copy) = (entry.path(), to.join(&name));
        let of = entry.metadata().unwrap();
        if kind.is_dir() {
            copy_dir(&at, &copy, &|_| false);
        } else if from.ends_with("reserve") {
            std::fs::hard_link(at, copy).unwrap();
        } else if kind.is_file() && of.blocks() * 512 >= of.len() {
            std::fs::copy(at, copy).unwrap();
        } else {
            // Holes stay.
            let mut cp = Command::new("cp");
            cp.args(["-P", "--sparse=always", "-T"]).arg(at).arg(copy);
            assert!(cp.status().unwrap().success());
        }
    }
}

/// A vault that may be damaged, with files beside it.
pub struct Vault {
    dir: PathBuf,
    id: VaultId,
    disk: DiskId,
    _temporary: Option<TempDir>,
}

impl Vault {
    fn copy_of(from: &Path, to: &str, leave_out: &dyn Fn(&OsStr) -> bool) -> Vault {
        let temporary = tempfile::tempdir_in(testing::memory_dir()).unwrap();
        let dir = temporary.path().to_path_buf();
        copy_dir(from, &dir.join(to), leave_out);
        Vault { _temporary: Some(temporary), ..Vault::at(&dir) }
    }

    /// The one in a directory.
    pub fn at(dir: &Path) -> Vault {
        let (id, disk) = (VaultId([0; 16]), DiskId([0; 16]));
        let mut vault = Vault { dir: dir.into(), id, disk, _temporary: None };
        let Ok(file) = VaultFile::decode(&vault.read(names::VAULT)) else { return vault };
        vault.id = file.id;
        vault.of_disk("vm/a")
    }

    /// The same vault, but another disk in it.
    pub fn of_disk(&self, disk: &str) -> Vault {
        let mut vault = Vault { dir: self.dir.clone(), id: self.id, disk: self.disk, _temporary: None };
        let name = names::name(disk);
        if let Ok(body) = decode_frame(Kind::Name, vault.context(&name), &vault.read(&name)) {
            vault.disk = DiskId(body[..16].try_into().unwrap());
        }
        vault
    }

    /// A copy with what a command works on.
    pub fn copy_for(&self, args: &[&str]) -> Vault {
        let is_job = args.contains(&JOBS);
        let is_used = |part: &str| {
            let in_job = is_job && [OTHER, "next"].contains(&part);
            in_job || args.iter().any(|arg| arg.split(' ').any(|word| word == part))
        };
        let is_unused =
            |name: &OsStr| [OTHER, "next", "older", POOL].iter().any(|part| name == *part && !is_used(part));
        let vault = Vault::copy_of(&self.dir, "", &is_unused);
        if is_job {
            let dir = vault.dir.to_str().unwrap();
            let job = format!(
                "state_dir = '{dir}/state'\n[jobs.all]\ncopy_to = '{dir}/{OTHER}'\nretain = {{ last = 2 }}\n\
                 verify = 'data'\ngc = true\ndisks = {{ 'vm/a' = '{dir}/next' }}\n"
            );
            std::fs::write(vault.dir.join(JOBS), job).unwrap();
        }
        vault
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn folder(&self) -> String {
        names::folder(self.disk)
    }

    pub fn context<'a>(&self, place: &'a str) -> Context<'a> {
        Context { vault: self.id, place }
    }

    pub fn path(&self, object: &str) -> PathBuf {
        self.dir.join("vault/objects").join(object)
    }

    pub fn read(&self, object: &str) -> Vec<u8> {
        // One that was made huge is not read.
        let path = self.path(object);
        match std::fs::metadata(&path) {
            Ok(m) if m.len() < 1 << 30 => std::fs::read(path).unwrap(),
            _ => Vec::new(),
        }
    }

    pub fn write(&self, object: &str, bytes: &[u8]) {
        let path = self.path(object);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // The stored file cannot be written to.
        let _ = std::fs::remove_file(&path);
        std::fs::write(path, bytes).unwrap();
    }

    /// Takes an object away.
    pub fn remove(&self, object: &str) {
        std::fs::remove_file(self.path(object)).unwrap();
    }

    /// The names of objects that end in this, in order.
    pub fn objects(&self, suffix: &str) -> Vec<String> {
        let root = self.path("");
        let name = |p: PathBuf| p.strip_prefix(&root).unwrap().to_str().unwrap().to_string();
        let mut all: Vec<String> = files_below(&root).into_iter().map(name).collect();
        all.retain(|n| n.ends_with(suffix));
        all.sort();
        all
    }

    pub fn manifest(&self) -> Manifest {
        let name = names::manifest(&self.folder());
        Manifest::decode(self.context(&name), &self.read(&name)).unwrap()
    }

    pub fn put_manifest(&self, change: impl FnOnce(&mut Manifest)) {
        let mut m = self.manifest();
        change(&mut m);
        m.check_limits().unwrap();
        let name = names::manifest(&self.folder());
        self.write(&name, &m.encode(self.context(&name)));
    }

    pub fn root(&self, s: &SnapshotEntry) -> RecipeRoot {
        let name = names::recipe_root(&self.folder(), recipe_of(s));
        RecipeRoot::decode(self.context(&name), &self.read(&name)).unwrap()
    }

    /// Replaces the root of a snapshot's recipe; its manifest says the size that it has.
    pub fn put_root(&self, s: &SnapshotEntry, root: &RecipeRoot) {
        let name = names::recipe_root(&self.folder(), recipe_of(s));
        self.write(&name, &root.encode(self.context(&name)));
        self.put_manifest(|m| {
            let s = m.recent.iter_mut().find(|e| e.id == s.id).unwrap();
            s.size = root.size;
        });
    }

    /// Replaces the recipe of a snapshot by one of these pages.
    pub fn put_recipe(&self, s: &SnapshotEntry, pages: &[RecipePage]) {
        let body = |page: &RecipePage| {
            let at = self.context("x");
            let of = |kind, frame: Vec<u8>| decode_frame(kind, at, &frame).unwrap().into_owned();
            (of(Kind::RecipePage, page.encode(at)), of(Kind::Summary, Summary::of(page).encode(at)))
        };
        let bodies: Vec<_> = pages.iter().map(body).collect();
        let frames = bodies.iter().map(|(page, summary)| (Body::Of(page), Body::Of(summary)));
        self.put_recipe_of(s, &frames.collect::<Vec<_>>());
    }

    /// The same with bodies of pages and summaries.
    pub fn put_recipe_of(&self, s: &SnapshotEntry, pages: &[(Body<'_>, Body<'_>)]) {
        let recipe = recipe_of(s);
        let name = names::recipe_pages(&self.folder(), recipe);
        let mut object = Vec::new();
        let mut root = self.root(s);
        root.size = u64::from(root.segment_bytes) * format::SEGMENTS_PER_PAGE * pages.len() as u64;
        root.pages.clear();
        for (page, summary) in pages {
            let offset = object.len() as u64;
            let page = self.frame(Kind::RecipePage, &format!("{name}#{offset}"), page);
            object.extend_from_slice(&page);
            let summary = self.frame(Kind::Summary, &format!("{name}#{}", object.len()), summary);
            object.extend_from_slice(&summary);
            let (page_len, summary_len) = (page.len() as u32, summary.len() as u32);
            root.pages.push(PageAt::Page(RecipePageRef { recipe, offset, page_len, summary_len }));
        }
        self.write(&name, &object);
        self.put_root(s, &root);
        self.put_manifest(|m| {
            let s = m.recent.iter_mut().find(|e| e.id == s.id).unwrap();
            s.depends = vec![recipe];
        });
    }

    /// The disk that is forged, `vm/a` mostly.
    pub fn disk(&self) -> DiskId {
        self.disk
    }

    /// Puts hooks, as they stand, with a footer of this body behind them, after a hole where `hole` is not 0.
    pub fn put_hooks(&self, object: &str, hole: u64, hooks: &[u8], footer: &[u8]) {
        self.put_hole(object, hole);
        let frame = self.frame(Kind::Hooks, object, &Body::Of(footer));
        let tail = [&(frame.len() as u32).to_le_bytes()[..], b"HOOK"].concat();
        let mut file = std::fs::OpenOptions::new().append(true).open(self.path(object)).unwrap();
        std::io::Write::write_all(&mut file, &[hooks, &frame, &tail].concat()).unwrap();
    }

    /// Puts an object of one frame.
    pub fn put(&self, kind: Kind, object: &str, body: &Body<'_>) {
        self.write(object, &self.frame(kind, object, body));
    }

    /// A frame, as an encoder without limits would write it.
    pub fn frame(&self, kind: Kind, place: &str, body: &Body<'_>) -> Vec<u8> {
        let (stored, codec, body_len) = match body {
            Body::Of(body) if body.len() <= kind.body_max() => {
                return encode_frame(kind, self.context(place), body)
            }
            Body::Of(body) => (body.to_vec(), 0, body.len()),
            Body::Repeated { head, item, times } => {
                (compressed(head, item, *times), 1, head.len() + item.len() * times)
            }
        };
        let mut frame = b"SAPW".to_vec();
        frame.extend_from_slice(&[kind as u8, 1, codec, 0]);
        frame.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        frame.extend_from_slice(&(body_len as u32).to_le_bytes());
        let mut sum = Xxh3::new();
        sum.update(&self.id.0);
        sum.update(&(place.len() as u32).to_le_bytes());
        sum.update(place.as_bytes());
        sum.update(&frame);
        sum.update(&stored);
        frame.extend_from_slice(&sum.digest128().to_le_bytes());
        assert_eq!(frame.len(), FRAME_HEADER_BYTES);
        frame.extend_from_slice(&stored);
        frame
    }

    /// Replaces an object by a hole.
    pub fn put_hole(&self, object: &str, bytes: u64) {
        self.write(object, b"");
        std::fs::OpenOptions::new().write(true).open(self.path(object)).unwrap().set_len(bytes).unwrap();
    }
}

/// What stands in a frame.
pub enum Body<'a> {
    /// This.
    Of(&'a [u8]),
    /// Something many times.
    Repeated { head: &'a [u8], item: &'a [u8], times: usize },
}

pub fn recipe_of(s: &SnapshotEntry) -> RecipeName {
    RecipeName { snap: s.id, generation: s.generation }
}

/// One zstd frame over what need not fit into memory.
pub fn compressed(head: &[u8], item: &[u8], times: usize) -> Vec<u8> {
    let mut zstd = CCtx::create();
    let mut out = Vec::with_capacity(8 << 20);
    let mut write = |bytes: &[u8], end: ZSTD_EndDirective| {
        let mut input = InBuffer::around(bytes);
        let at = out.len();
        let mut output = OutBuffer::around_pos(&mut out, at);
        while zstd.compress_stream2(&mut output, &mut input, end).unwrap() > 0 || input.pos() < bytes.len() {}
    };
    write(head, ZSTD_EndDirective::ZSTD_e_continue);
    let at_once = (1 << 20) / item.len().max(1) + 1;
    let many = item.repeat(at_once);
    for _ in 0..times / at_once {
        write(&many, ZSTD_EndDirective::ZSTD_e_flush);
    }
    write(&item.repeat(times % at_once), ZSTD_EndDirective::ZSTD_e_end);
    out
}

/// As formats store it.
pub fn varint(mut v: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
    out
}
