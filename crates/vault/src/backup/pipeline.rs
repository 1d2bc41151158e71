//! The stages of a backup: bounded channels between named threads.
//!
//! ```text
//! read -> analyse (all cores) -> place (in order) -> pack (all cores) -> write (in order) -> finish
//! ```
//! The number of segment and group buffers is limited, so a slow stage slows down the stages before it. The first error
//! of any stage stops all of them.

use crate::backup::read_bytes::{ReadBytes, SourceBytes};
use crate::base::error::{Result, VaultError};
use crate::base::policy::{CodecChoice, Policy};
use crate::base::progress::Progress;
use crate::base::stages::Stages;
use crate::base::threads::{cores, Failure};
use crate::container::codec::Packer;
use crate::container::room::check_room;
use crate::container::tables::Tables;
use crate::container::writer::{ContainerWriter, GroupJob, PackedGroup};
use crate::lookup::other_disks::OtherDisks;
use crate::lookup::place::{Analysed, Placed, PlacedBytes, Placer, SegmentData, SourceSample};
use crate::lookup::since::Untouched;
use crate::manifest::session::Session;
use crate::recipe::writer::{RecipeWriter, WrittenRecipe};
use chunk::{ChunkSpec, Piece};
use crossbeam_channel::{bounded, Receiver, Sender};
use format::{ContainerEntry, SegmentNo, RECIPE_PAGES_MAX, SEGMENTS_PER_PAGE};
use image::{Changes, Source};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of segments that are in memory at once.
const SEGMENTS_IN_FLIGHT_BYTES: usize = 32 << 20;

/// What the pipeline has made durable.
pub(crate) struct Written {
    pub size: u64,
    pub counts: PlacedBytes,
    pub containers: Vec<ContainerEntry>,
    /// Containers of killed backups that are referenced.
    pub adopted: Vec<ContainerEntry>,
    pub recipe: WrittenRecipe,
    /// Bytes of containers and tables.
    pub stored_bytes: u64,
    /// It keeps its claims until the commit.
    pub others: OtherDisks,
    pub source: Option<SourceSample>,
    /// How long each stage worked.
    pub stages: Stages,
    /// How much of the source was read and hashed.
    pub source_bytes: SourceBytes,
}

/// Where segments come from.
pub(crate) enum Input {
    /// A disk, which is read, cut and fingerprinted.
    Disk(Box<dyn Source>),
    /// Segments that have been fingerprinted before, cut like those of the backup.
    Fingerprinted(Box<dyn Fingerprinted>),
}

/// Segments that have been fingerprinted before.
pub(crate) trait Fingerprinted: Send {
    /// Size of the disk in bytes.
    fn size(&self) -> u64;

    /// Leaves out segments that none of these ranges touches.
    fn narrow(&mut self, touched: &Changes);

    /// What is counted of reading them.
    fn read_bytes(&self) -> Arc<ReadBytes> {
        Arc::default()
    }

    /// The next segment from `no` on that is not null; its `seq` is set later.
    fn next_segment(&mut self, no: SegmentNo) -> Result<Option<Analysed>>;
}

impl Input {
    /// Size of the disk in bytes, where that is known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Input::Disk(source) => source.size(),
            Input::Fingerprinted(segments) => Some(segments.size()),
        }
    }

    fn read_bytes(&self) -> Arc<ReadBytes> {
        match self {
            Input::Disk(_) => Arc::default(),
            Input::Fingerprinted(segments) => segments.read_bytes(),
        }
    }

    /// The input without what need not be read.
    pub fn narrow(self, untouched: &Untouched) -> Input {
        match self {
            Input::Disk(source) => Input::Disk(untouched.narrow(source)),
            Input::Fingerprinted(mut segments) => {
                segments.narrow(untouched.touched());
                Input::Fingerprinted(segments)
            }
        }
    }
}

/// A segment as it was read.
struct Segment {
    seq: u64,
    no: SegmentNo,
    data: Vec<u8>,
}

/// A stage that finds its neighbour gone ends without an error of its own: the neighbour has set one.
fn gone<T>(_: T) -> VaultError {
    VaultError::Cancelled
}

/// Runs a source through all stages.
pub(crate) fn run(
    session: &Session,
    input: Input,
    mut placer: Placer<'_>,
    mut recipe: RecipeWriter,
    policy: &Policy,
    progress: &Progress,
) -> Result<Written> {
    let failure = Failure::default();
    let stages = Stages::default();
    let read_bytes = input.read_bytes();
    let threads = cores();
    let segment_buffers = (SEGMENTS_IN_FLIGHT_BYTES / policy.segment_bytes as usize).clamp(threads + 3, 64);
    let group_buffers = threads + 3;

    let (free_tx, free_rx) = bounded::<Vec<u8>>(segment_buffers);
    let (segment_tx, segment_rx) = bounded::<Segment>(segment_buffers);
    let (analysed_tx, analysed_rx) = bounded::<Analysed>(segment_buffers);
    let (job_tx, job_rx) = bounded::<GroupJob>(group_buffers);
    let (packed_tx, packed_rx) = bounded::<PackedGroup>(group_buffers);
    let (permit_tx, permit_rx) = bounded::<()>(group_buffers);
    let (full_tx, full_rx) = bounded::<ContainerWriter>(2);
    for _ in 0..segment_buffers {
        let _ = free_tx.send(Vec::new());
    }
    for _ in 0..group_buffers {
        let _ = permit_tx.send(());
    }
    let (chunking, codec, segment_bytes) = (policy.chunking, policy.codec, policy.segment_bytes);

    let tables = placer.tables();
    let (size, recipe, containers) = std::thread::scope(|scope| {
        let (failure, stages, read_bytes) = (&failure, &stages, &*read_bytes);
        let known_tx = analysed_tx.clone();
        let reader = failure.spawn(scope, "read", move || {
            failure.guard(|| match input {
                Input::Disk(source) => {
                    drop(known_tx);
                    let to = ReadTo { free: &free_rx, out: &segment_tx, bytes: read_bytes };
                    read(source, segment_bytes, &to, progress, failure, stages)
                }
                Input::Fingerprinted(segments) => {
                    drop(segment_tx);
                    pass_on(segments, segment_bytes, &known_tx, progress, stages)
                }
            })
        });
        for _ in 0..threads {
            let (rx, tx) = (segment_rx.clone(), analysed_tx.clone());
            failure.spawn(scope, "analyse", move || analyse(chunking, &rx, &tx, read_bytes, stages));
            let (rx, tx) = (job_rx.clone(), packed_tx.clone());
            failure.spawn(scope, "pack", move || pack(codec, group_buffers, &rx, &tx, stages));
        }
        drop((segment_rx, analysed_tx, job_rx, packed_tx));
        failure.spawn(scope, "write", move || {
            failure.guard(|| write(session, &packed_rx, &full_tx, &permit_tx, stages))
        });
        let finisher = failure.spawn(scope, "finish", move || {
            failure.guard(|| finish(session, tables, codec, &full_rx, stages))
        });

        let placed = failure.guard(|| {
            let mut send = |job: GroupJob| {
                permit_rx.recv().map_err(gone)?;
                job_tx.send(job).map_err(gone)
            };
            place(session, &mut placer, &mut recipe, &analysed_rx, &free_tx, &mut send, stages)
        });
        drop((job_tx, free_tx, analysed_rx));
        let size = reader.and_then(|r| r.join().ok()).flatten();
        let recipe = match (placed, size, failure.is_set()) {
            (Some(()), Some(size), false) => {
                let finish = || recipe.finish(session, size, segment_bytes, chunking.to_string());
                failure.guard(|| stages.sync.time(finish))
            }
            _ => None,
        };
        (size, recipe, finisher.and_then(|f| f.join().ok()).flatten())
    });
    failure.into_result()?;
    match (size, recipe, containers) {
        (Some(size), Some(recipe), Some((containers, stored_bytes))) => {
            let Placed { others, adopted, counts, source } = placer.finish();
            let source_bytes = read_bytes.get();
            Ok(Written {
                size,
                counts,
                containers,
                adopted,
                recipe,
                stored_bytes,
                others,
                source,
                stages,
                source_bytes,
            })
        }
        _ => Err(VaultError::Refused(
            "a thread of the backup ended unexpectedly; nothing was committed".into(),
        )),
    }
}

/// Where segments go that were read.
struct ReadTo<'a> {
    /// Buffers that can be used.
    free: &'a Receiver<Vec<u8>>,
    out: &'a Sender<Segment>,
    bytes: &'a ReadBytes,
}

/// Reads the segments that may hold data. Returns the size of the disk.
fn read(
    mut source: Box<dyn Source>,
    segment_bytes: u32,
    to: &ReadTo<'_>,
    progress: &Progress,
    failure: &Failure,
    stages: &Stages,
) -> Result<u64> {
    progress.set_total(source.size().unwrap_or(0));
    let segment = u64::from(segment_bytes);
    let longest = RECIPE_PAGES_MAX * SEGMENTS_PER_PAGE * segment;
    let (mut seq, mut at, mut end) = (0, 0u64, 0u64);
    let known = source.size();
    while known.is_none_or(|size| at < size) {
        progress.check()?;
        if known.unwrap_or(end) > longest {
            let why =
                format!("the disk has more than {longest} bytes, the most in segments of {segment} bytes");
            return Err(VaultError::Refused(why));
        }
        let Some(range) = stages.read.time(|| source.next_data(at))? else { break };
        let no = SegmentNo(range.start.max(at) / segment);
        let start = no.0 * segment;
        let want = known.map_or(segment, |size| segment.min(size.saturating_sub(start))) as usize;
        if want == 0 {
            break;
        }
        let Ok(mut data) = to.free.recv() else { return Err(gone(())) };
        if failure.is_set() {
            return Err(gone(()));
        }
        data.resize(want, 0);
        let filled = stages.read.time(|| fill(&mut *source, start, &mut data, range, known))?;
        data.truncate(filled);
        end = start + filled as u64;
        at = start + segment;
        progress.set_done(end);
        if filled > 0 {
            to.bytes.add_read(filled as u64);
            to.out.send(Segment { seq, no, data }).map_err(gone)?;
            seq += 1;
        }
        if filled < want {
            break;
        }
    }
    source.finish()?;
    progress.set_done(known.unwrap_or(end));
    Ok(known.unwrap_or(end))
}

/// Hands on segments that need not be fingerprinted. Returns the size of the disk.
fn pass_on(
    mut segments: Box<dyn Fingerprinted>,
    segment_bytes: u32,
    out: &Sender<Analysed>,
    progress: &Progress,
    stages: &Stages,
) -> Result<u64> {
    let size = segments.size();
    progress.set_total(size);
    let (mut seq, mut no) = (0, SegmentNo(0));
    while let Some(segment) = stages.read.time(|| segments.next_segment(no))? {
        progress.check()?;
        no = SegmentNo(segment.no.0 + 1);
        progress.set_done((no.0 * u64::from(segment_bytes)).min(size));
        out.send(Analysed { seq, ..segment }).map_err(gone)?;
        seq += 1;
    }
    progress.set_done(size);
    Ok(size)
}

/// Fills a segment: its data ranges are read, its holes are zeros. Returns the bytes there are.
pub(super) fn fill(
    source: &mut dyn Source,
    start: u64,
    data: &mut [u8],
    first: std::ops::Range<u64>,
    known: Option<u64>,
) -> Result<usize> {
    let end = start + data.len() as u64;
    if known.is_none() || (first.start <= start && first.end >= end) {
        return Ok(source.read_at(start, data)?);
    }
    let mut done = start;
    let mut next = Some(first);
    while let Some(r) = next.filter(|r| r.start < end) {
        let (from, to) = (r.start.max(done), r.end.min(end));
        data[(done - start) as usize..(from - start) as usize].fill(0);
        let part = &mut data[(from - start) as usize..(to - start) as usize];
        let got = source.read_at(from, part)?;
        part[got..].fill(0);
        done = to;
        if done >= end {
            break;
        }
        next = source.next_data(done)?;
    }
    data[(done - start) as usize..].fill(0);
    Ok(data.len())
}

/// Cuts and fingerprints segments.
fn analyse(
    chunking: ChunkSpec,
    segments: &Receiver<Segment>,
    out: &Sender<Analysed>,
    bytes: &ReadBytes,
    stages: &Stages,
) {
    for Segment { seq, no, data } in segments {
        let start = Instant::now();
        let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
        chunk::cut(&data, chunking, &mut pieces);
        chunk::fingerprint_pieces(&data, &pieces, &mut fingerprints);
        let is_data = |piece: &&Piece| matches!(piece, Piece::Data { .. });
        bytes.add_hashed(pieces.iter().filter(is_data).map(|piece| u64::from(piece.bytes())).sum());
        let fingerprint = chunk::segment_fingerprint(&pieces, &fingerprints);
        let signature = chunk::signature(&fingerprints).unwrap_or(0);
        stages.analyse.add(start.elapsed());
        let data = SegmentData::Read(data);
        if out.send(Analysed { seq, no, data, pieces, fingerprints, fingerprint, signature }).is_err() {
            return;
        }
    }
}

/// Places segments in the order in which they were read.
fn place(
    session: &Session,
    placer: &mut Placer<'_>,
    recipe: &mut RecipeWriter,
    segments: &Receiver<Analysed>,
    free: &Sender<Vec<u8>>,
    send: &mut impl FnMut(GroupJob) -> Result<()>,
    stages: &Stages,
) -> Result<()> {
    let (mut next, mut waiting) = (0, BTreeMap::new());
    let mut sending = Duration::ZERO;
    let mut send = |job| {
        let start = Instant::now();
        let sent = send(job);
        sending += start.elapsed();
        sent
    };
    let mut looking_up = Duration::ZERO;
    for segment in segments {
        waiting.insert(segment.seq, segment);
        while let Some(segment) = waiting.remove(&next) {
            next += 1;
            let recipes = Instant::now();
            placer.take_over(segment.no, &mut |no, made| recipe.push(session, no, made))?;
            stages.place.add(recipes.elapsed());
            let start = Instant::now();
            let made = placer.place(&segment, &mut send)?;
            looking_up += start.elapsed();
            if let Some(made) = made {
                stages.place.time(|| recipe.push(session, segment.no, made))?;
            }
            if let SegmentData::Read(data) = segment.data {
                let _ = free.send(data);
            }
        }
    }
    let start = Instant::now();
    placer.take_over(SegmentNo(u64::MAX), &mut |no, made| recipe.push(session, no, made))?;
    placer.close(&mut send)?;
    stages.look_up.add(looking_up.saturating_sub(placer.placing));
    stages.place.add((placer.placing + start.elapsed()).saturating_sub(sending));
    Ok(())
}

/// Compresses groups.
fn pack(
    codec: CodecChoice,
    queue: usize,
    jobs: &Receiver<GroupJob>,
    out: &Sender<PackedGroup>,
    stages: &Stages,
) {
    let mut packer = Packer::new();
    for mut job in jobs {
        let mut stored = Vec::new();
        let busy = jobs.len() * 3 >= queue;
        let codec = stages.pack.time(|| packer.pack(codec, busy, &job.raw, &mut stored));
        job.raw = Vec::new();
        if out.send(PackedGroup { job, codec, stored }).is_err() {
            return;
        }
    }
}

/// Writes groups to containers in the order in which they were placed.
fn write(
    session: &Session,
    groups: &Receiver<PackedGroup>,
    full: &Sender<ContainerWriter>,
    permits: &Sender<()>,
    stages: &Stages,
) -> Result<()> {
    let (mut next, mut waiting, mut made) = (0, BTreeMap::new(), 0);
    let mut open: Option<ContainerWriter> = None;
    for group in groups {
        waiting.insert(group.job.seq, group);
        while let Some(group) = waiting.remove(&next) {
            next += 1;
            let mut container = match open.take() {
                Some(c) => c,
                None => ContainerWriter::create(&session.folder, session, group.job.container)?,
            };
            check_room(session, made, group.stored.len() as u64)?;
            let (start, job) = (Instant::now(), &group.job);
            container.append(
                &group.numbers(),
                &job.lengths,
                &job.fingerprints,
                group.codec,
                &group.stored,
            )?;
            stages.write.add(start.elapsed());
            let _ = permits.send(());
            if group.job.last {
                made += 1;
                full.send(container).map_err(gone)?;
            } else {
                open = Some(container);
            }
        }
    }
    Ok(())
}

/// Containers of a backup whose tables stay in memory for the reverse pass.
const TABLES_KEPT: usize = 4;

/// Makes containers durable while the next ones are being filled.
fn finish(
    session: &Session,
    tables: &Tables,
    codec: CodecChoice,
    full: &Receiver<ContainerWriter>,
    stages: &Stages,
) -> Result<(Vec<ContainerEntry>, u64)> {
    let (mut entries, mut bytes) = (Vec::new(), 0);
    for container in full {
        // The reverse pass asks for it. Where a backup writes much, the tables of its parent are worth more.
        let keep = |table| {
            if entries.len() < TABLES_KEPT {
                tables.keep(session.writer, table);
            }
        };
        let (entry, stored) = stages.sync.time(|| container.finish_with(session, keep))?;
        entries.push(ContainerEntry { level: codec.level(), ..entry });
        bytes += stored;
    }
    Ok((entries, bytes))
}
