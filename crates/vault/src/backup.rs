//! Backup: stores a disk as a new snapshot (`docs/flows/backup.md`).
//!
//! 1. A session registers a writer and chooses the parent ([`Session::begin`]).
//! 2. Segments flow through the pipeline ([`crate::backup::pipeline`]): they are read, cut, fingerprinted, placed,
//!    packed and written.
//! 3. Containers and the recipe are durable.
//! 4. The manifest is swapped: from here on the snapshot exists.
//! 5. The previous snapshot is made to refer to the new one, if the policy has a reverse pass
//!    ([`crate::reclaim::reverse`]).
//! 6. Objects that older swaps released are deleted.

pub(crate) mod again;
mod doubts;
mod known;
pub(crate) mod pipeline;
pub(crate) mod read_bytes;
mod spot_check;
mod swapped;

use crate::base::error::{Result, VaultError};
use crate::base::policy::{CodecChoice, Policy, Rewrite, Summaries};
use crate::base::progress::Progress;
use crate::base::random::random_bytes;
use crate::base::stages::StageSeconds;
use crate::container::tables::{Tables, TABLE_CACHE_BYTES};
use crate::lookup::champions::adopted::Adopted;
use crate::lookup::other_disks::OtherDisks;
use crate::lookup::parent::Parent;
use crate::lookup::place::{Basis, Placer, SourceSample};
use crate::lookup::referrers;
use crate::lookup::since::{Scan, Since, Untouched};
use crate::manifest::container_table::{Containers, Edits};
use crate::manifest::disks;
use crate::manifest::folder::{list_unswept, Folder};
use crate::manifest::listing::list_names;
use crate::manifest::session::Session;
use crate::manifest::vault::{now, Vault};
use crate::recipe::chain::RecipeReader;
use crate::recipe::filters;
use crate::recipe::writer::{RecipeWriter, WrittenRecipe};
use crate::reclaim::released::delete_released_since;
use crate::reclaim::reverse::ReverseReport;
use doubts::Expected;
use format::{
    names, ContainerEntry, ContainerId, DiskId, Indexed, Manifest, RecipeName, Reverse, Sequence, SnapId,
    SnapshotEntry, SnapshotState, WriterKind,
};
use image::Source;
use known::KnownSegments;
use pipeline::{Input, Written};
use read_bytes::SourceBytes;
use spot_check::SpotCheck;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use swapped::Question;

/// Memory of a manifest from which on it takes no more snapshots: deleting them needs some room in it, too.
const MANIFEST_BYTES_MAX: usize = Manifest::MEMORY_MAX / 4 * 3;

/// Options of a backup.
#[derive(Clone, Debug, Default)]
pub struct BackupOptions {
    /// Instead of the vault's policy.
    pub policy: Option<Policy>,
    /// Whether nothing is taken from other disks but the popular set, whatever the policy says.
    pub isolate: bool,
    /// Instead of the policy's codec.
    pub codec: Option<CodecChoice>,
    /// Point in time, seconds since 1970; where it is not given, the moment at which reading begins.
    pub time: Option<i64>,
    /// What to remember with the snapshot.
    pub tags: Vec<(String, String)>,
    /// What changed since the newest snapshot, if that is known: only that is read.
    pub since: Option<Since>,
    /// How many bytes the disk must have, if that is known.
    pub expected_bytes: Option<u64>,
    /// Whether a source is refused that is empty or probably another disk.
    pub refuse_doubtful: bool,
}

/// What a backup did.
#[derive(Clone, Debug)]
pub struct BackupReport {
    /// The new snapshot.
    pub snapshot: SnapshotEntry,
    /// How much of the disk was looked at.
    pub scan: Scan,
    /// Bytes written again although they were known.
    pub rewritten_bytes: u64,
    /// The reverse pass after it.
    pub reverse: ReverseReport,
    /// How long that took.
    pub reverse_seconds: f64,
    /// How long the stages before it worked.
    pub stages: StageSeconds,
    /// How much of the source was read and hashed.
    pub source: SourceBytes,
}

/// How often a backup begins anew because its disk was taken away meanwhile.
const BEGIN_TRIES: usize = 100;

/// A backup that has begun: nobody else backs the disk up until it has run or is dropped.
pub struct OpenBackup<'a> {
    vault: &'a Vault,
    disk: String,
    snapshot: Identity,
    session: Session,
    /// Whether what it has stored stays if it fails, for the next one to go on with.
    resumes: bool,
}

/// Id and hold of a snapshot, fixed before anything is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub id: SnapId,
    pub held: bool,
}

impl OpenBackup<'_> {
    /// The newest snapshot, which the new one is compared with.
    pub fn newest(&self) -> Option<&SnapshotEntry> {
        self.session.parent.as_ref()
    }

    /// The disk, whatever it is called.
    pub fn disk(&self) -> DiskId {
        self.session.folder.disk
    }

    /// Whether the disk has a snapshot of this id, be it deleted.
    pub(crate) fn has(&self, id: SnapId) -> Result<bool> {
        let all = self.session.folder.whole(Arc::new(self.session.manifest.clone()))?;
        Ok(all.snapshots.iter().any(|s| s.id == id))
    }

    /// The snapshot that it makes.
    pub fn snapshot(&self) -> SnapId {
        self.snapshot.id
    }

    /// Makes a snapshot of what the source holds.
    pub fn run(
        self,
        source: Box<dyn Source>,
        options: &BackupOptions,
        progress: &Progress,
    ) -> Result<BackupReport> {
        self.run_input(Input::Disk(source), options, progress)
    }

    /// Makes a snapshot of any input.
    pub(crate) fn run_input(
        self,
        input: Input,
        options: &BackupOptions,
        progress: &Progress,
    ) -> Result<BackupReport> {
        let folder = self.session.folder.clone();
        self.make(input, options, progress).inspect_err(|e| folder.damage_met.note(folder.disk, e))
    }

    fn make(self, input: Input, options: &BackupOptions, progress: &Progress) -> Result<BackupReport> {
        let OpenBackup { vault, disk, snapshot: snap, session, resumes } = self;
        check_room_for_entry(&session, &disk)?;
        // A source that others write to is as it was when reading began, or newer.
        let time = options.time.unwrap_or_else(now);
        let policy = choose_policy(vault, options)?;
        let mut input = with_known(input, &policy);
        let folder = session.folder.clone();
        let tables = Tables::new(&folder, &session.manifest, false, TABLE_CACHE_BYTES);
        let (mut parent, parent_recipe) = open_parent(&session, &policy)?;
        let untouched = match &options.since {
            None => Err(Scan::Whole),
            Some(since) => {
                let size = input.size();
                Untouched::new(since, &session, parent.as_mut(), &tables, &policy, &disk, size)?
                    .map_err(Scan::WholeAlthough)
            }
        };
        let mut spot_checked = 0;
        let untouched = match (untouched, &mut parent) {
            (Ok(untouched), Some(parent)) => {
                let SpotCheck { bytes, difference } =
                    spot_check::compare(&mut input, &untouched, parent, &policy, progress)?;
                spot_checked = bytes;
                difference.map_or(Ok(untouched), |at| Err(Scan::WholeAlthough(left_out(&disk, &at))))
            }
            (untouched, _) => untouched,
        };

        let expected = Expected {
            bytes: options.expected_bytes,
            is_sure: !options.refuse_doubtful,
            is_comparable: parent.is_some()
                && input.size().is_some()
                // What is in damaged containers is written anew.
                && session.manifest.damaged.is_empty(),
            keeps_known: !matches!(policy.rewrite_at, Rewrite::Whole { .. }),
        };
        let name = RecipeName { snap: snap.id, generation: session.writer };
        let others = OtherDisks::load(vault, &policy, &session)?;
        let (input, scan) = match &untouched {
            Ok(untouched) => (input.narrow(untouched), Scan::Changed { bytes: untouched.touched_bytes() }),
            Err(scan) => (input, scan.clone()),
        };
        let changed_parent = session.parent.as_ref().filter(|p| p.changed_bytes > 0);
        let placer = Placer::new(Basis {
            policy,
            tables: &tables,
            writer: session.writer,
            parent,
            parents_new_bytes: changed_parent.map(|p| p.new_bytes),
            // Where only changes are read, the rest is the parent's.
            source: (expected.is_asked() && untouched.is_err()).then(SourceSample::default),
            untouched: untouched.ok(),
            adopted: Adopted::new(adopted_by(&session)?),
            others,
        })?;
        let recipe = RecipeWriter::new(&folder, name, parent_recipe);
        let run = pipeline::run(&session, input, placer, recipe, &policy, progress);
        let mut run = match run.and_then(|run| progress.check().map(|()| run)) {
            Err(e) => {
                // What fails for want of space must not leave less of it.
                if resumes && !e.is_full() {
                    session.leave();
                }
                return Err(e);
            }
            Ok(run) => run,
        };
        let segment_bytes = policy.segment_bytes;
        let question =
            Question { vault, folder: &folder, name: &disk, segment_bytes, tables: &tables, progress };
        doubts::check(&disk, &run, session.parent.as_ref(), &expected, &question)?;
        let start = std::time::Instant::now();
        let (snapshot, manifest, recorded) =
            commit(session, &tables, &mut run, snap, &policy, time, &options.tags)?;
        run.stages.sync.add(start.elapsed());
        let stages = run.stages.seconds();
        run.others.tidy();
        drop(run.others);
        // The snapshot is safe: what fails from here on is for the next session to do.
        let start = std::time::Instant::now();
        let reverse = vault.reverse(&folder, &manifest, &policy, tables.into_cache()).unwrap_or_else(|e| {
            folder.damage_met.note(folder.disk, &e);
            ReverseReport { held_up: Some(e.to_string()), ..ReverseReport::default() }
        });
        if reverse.snapshots == 0 {
            // The pass does this, too.
            let _ = delete_released_since(&folder, recorded);
        }
        let reverse_seconds = start.elapsed().as_secs_f64();
        vault.fill_reserve();
        let rewritten_bytes = run.counts.rewritten_bytes;
        let SourceBytes { read, hashed, known } = run.source_bytes;
        let source = SourceBytes { read: read + spot_checked, hashed: hashed + spot_checked, known };
        Ok(BackupReport { snapshot, scan, rewritten_bytes, reverse, reverse_seconds, stages, source })
    }
}

impl Vault {
    /// Begins a backup, where there is something to do between this and reading the disk.
    pub fn begin_backup(&self, disk: &str) -> Result<OpenBackup<'_>> {
        let id = SnapId(u64::from_le_bytes(random_bytes()?));
        self.begin_snapshot(disk, Identity { id, held: false }, false)
    }

    /// Begins a backup that makes a certain snapshot. With `resumes` it goes on with what killed ones have stored.
    pub(crate) fn begin_snapshot(
        &self,
        disk: &str,
        snapshot: Identity,
        resumes: bool,
    ) -> Result<OpenBackup<'_>> {
        for _ in 0..BEGIN_TRIES {
            let folder = self.disk_or_new(disk)?;
            let begun = if resumes {
                Session::begin_resuming(&folder)
            } else {
                Session::begin(&folder, WriterKind::Backup)
            };
            let session = match begun {
                // A first backup that failed has taken the disk away since its name was read.
                Err(VaultError::Missing { .. })
                    if disks::find(self, disk)?.is_none_or(|now| now.folder.disk != folder.disk) =>
                {
                    continue;
                }
                session => session?,
            };
            // Its removal may have been killed between its name and the rest of it.
            let is_new = session.manifest.recent.is_empty();
            if is_new && disks::find(self, disk)?.is_none_or(|now| now.folder.disk != folder.disk) {
                continue;
            }
            return Ok(OpenBackup { vault: self, disk: disk.to_owned(), snapshot, session, resumes });
        }
        Err(VaultError::Refused(format!("{disk}: comes and goes all the time; run it again")))
    }

    /// Backs a disk up.
    pub fn backup(
        &self,
        disk: &str,
        source: Box<dyn Source>,
        options: &BackupOptions,
        progress: &Progress,
    ) -> Result<BackupReport> {
        self.begin_backup(disk)?.run_input(Input::Disk(source), options, progress)
    }
}

/// What is said of a list of changes that does not name these bytes.
fn left_out(disk: &str, bytes: &Range<u64>) -> String {
    let Range { start, end } = bytes;
    format!(
        "the list does not name bytes {start} to {end} of {disk}, and they have changed: is it of another disk, does it begin \
         too late, or was the disk written to after it was made?"
    )
}

/// The input with the fingerprints that it has, if segments are cut into chunks like those.
fn with_known(input: Input, policy: &Policy) -> Input {
    match input {
        Input::Disk(source) => {
            match KnownSegments::of(source, policy.segment_bytes, policy.fixed_chunk_bytes()) {
                Ok(segments) => Input::Fingerprinted(Box::new(segments)),
                Err(source) => Input::Disk(source),
            }
        }
        other => other,
    }
}

/// The containers that killed backups have made durable whose writers the session has adopted.
fn adopted_by(session: &Session) -> Result<Vec<ContainerId>> {
    let mut found = Vec::new();
    if session.adopted.is_empty() {
        return Ok(found);
    }
    let folder = &session.folder;
    let listed = Containers::new(folder.clone(), &session.manifest);
    for name in list_names(&*folder.store, &names::containers_of(&folder.path))? {
        let Some((id, generation)) = names::container_of(&name).filter(|_| name.ends_with(".table")) else {
            continue;
        };
        if !session.adopted.contains(&generation) || id.writer() != generation {
            continue;
        }
        // A table is put when its data is durable.
        if listed.get(id)?.is_none() {
            found.push(id);
        }
    }
    Ok(found)
}

/// Refuses a backup whose snapshot the manifest has no room for.
fn check_room_for_entry(session: &Session, disk: &str) -> Result<()> {
    if session.manifest.memory_bytes() <= MANIFEST_BYTES_MAX {
        return Ok(());
    }
    let manifest = session.folder.manifest_name();
    let why = format!("{manifest}: has no room for another snapshot; delete snapshots of {disk}");
    Err(VaultError::Refused(why))
}

/// The vault's policy, but for what the options say.
fn choose_policy(vault: &Vault, options: &BackupOptions) -> Result<Policy> {
    let policy = options.policy.map_or_else(|| vault.policy(), Ok)?;
    let policy = if options.isolate || vault.is_isolated() { policy.isolated() } else { policy };
    Ok(Policy { codec: options.codec.unwrap_or(policy.codec), ..policy })
}

/// The parent, once to compare with and once to share pages of, where it is cut like the new snapshot.
fn open_parent(session: &Session, policy: &Policy) -> Result<(Option<Parent>, Option<RecipeReader>)> {
    let Some(entry) = &session.parent else { return Ok((None, None)) };
    let snapshots = session.folder.with_newer(&session.manifest, entry.id)?;
    let opened = session.folder.unless_damaged(RecipeReader::open(&session.folder, &snapshots, entry))?;
    let Some(recipe) = opened else { return Ok((None, None)) };
    let same_cut = recipe.root.segment_bytes == policy.segment_bytes
        && recipe.root.chunking == policy.chunking.to_string();
    if !same_cut {
        return Ok((None, None));
    }
    let shared = recipe.again();
    let parent = Parent::new(recipe, session.manifest.damaged.iter().copied().collect());
    Ok((Some(parent), Some(shared)))
}

/// Records at other owners which of their containers are referenced, and puts hooks. Returns these containers.
fn record_taken(session: &Session, tables: &Tables, others: &mut OtherDisks) -> Result<Vec<ContainerId>> {
    let mut recorded = HashSet::new();
    let mut taken = Vec::new();
    for (owner, container) in others.matched() {
        let Some(no) = tables.count_owner(owner) else { continue };
        let id = container.of(no);
        if recorded.insert((owner, id.writer())) {
            referrers::add(&session.folder.of(owner), id.writer(), session.folder.disk)?;
        }
        taken.push(id);
    }
    others.save(session)?;
    Ok(taken)
}

/// The edits of the container table for new containers, and for those of other owners that it does not list. A concurrent
/// deletion may have removed entries that the table had when the backup began.
fn edits_of(folder: &Folder, m: &Manifest, fresh: &Edits, taken: &[ContainerId]) -> Result<Edits> {
    let listed = Containers::new(folder.clone(), m);
    let mut edits = fresh.clone();
    for id in taken {
        if listed.get(*id)?.is_none() {
            edits.insert(*id, Some(ContainerEntry::foreign(*id)));
        }
    }
    Ok(edits)
}

/// Steps 3 and 4: the snapshot begins to exist.
fn commit(
    session: Session,
    tables: &Tables,
    run: &mut Written,
    Identity { id, held }: Identity,
    policy: &Policy,
    time: i64,
    tags: &[(String, String)],
) -> Result<(SnapshotEntry, Manifest, Option<Sequence>)> {
    let fresh: Edits = run.containers.iter().chain(&run.adopted).map(|e| (e.id, Some(*e))).collect();
    let adopted: Vec<ContainerId> = run.adopted.iter().map(|e| e.id).collect();
    let taken = record_taken(&session, tables, &mut run.others)?;
    let WrittenRecipe { depends, stored_bytes, pages } = &run.recipe;
    let filter_bytes = match policy.summaries {
        Summaries::Exact => 0,
        Summaries::Bloom => {
            filters::put(&session, RecipeName { snap: id, generation: session.writer }, pages)?
        }
    };
    let entry = SnapshotEntry {
        id,
        time,
        size: run.size,
        state: SnapshotState::Live,
        held,
        isolated: policy.isolated,
        indexed: Indexed::No,
        reverse: Reverse::No,
        made_by: session.writer,
        generation: session.writer,
        depends: depends.clone(),
        parent: session.parent.as_ref().map(|p| p.id),
        data_bytes: run.counts.data_bytes,
        changed_bytes: run.counts.changed_bytes,
        new_bytes: run.counts.new_bytes - run.counts.rewritten_bytes,
        stored_bytes: run.stored_bytes + stored_bytes + filter_bytes,
        policy: policy.name.into(),
        tags: tags.to_vec(),
    };
    let folder = session.folder.clone();
    let owners = tables.owners();
    let (manifest, (), is_recorded) = session.commit_on_record(|m| {
        if m.recent.iter().any(|s| s.id == id) {
            return Err(VaultError::Refused(format!(
                "{}@{id}: is there already; nothing was stored",
                m.name
            )));
        }
        // Only backups of the disk add owners, and there is one at a time.
        m.owners.clone_from(&owners);
        let edits = edits_of(&folder, m, &fresh, &taken)?;
        m.edit_containers(&edits)?;
        // They may have chunks that this snapshot does not reference.
        list_unswept(m, &adopted);
        if let Some(before) = m.recent.last_mut().filter(|s| policy.reverse && s.reverse == Reverse::No) {
            before.reverse = Reverse::Pending;
        }
        m.recent.push(entry.clone());
        Ok(())
    })?;
    let recorded = is_recorded.then_some(manifest.sequence);
    let snapshot = manifest.recent.iter().find(|s| s.id == id).cloned().ok_or_else(|| {
        VaultError::corrupt(&folder.manifest_name(), "the snapshot just committed is not there")
    })?;
    Ok((snapshot, manifest, recorded))
}
