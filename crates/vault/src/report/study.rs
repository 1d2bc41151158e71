//! Estimates what deduplication would save, without storing anything (Paulo 2009, chapter 3).

use crate::base::error::{Result, VaultError};
use crate::base::progress::Progress;
use crate::base::threads::{cores, Failure};
use chunk::{Census, CensusReport, ChunkSpec, DuplicateClass, Fingerprint, MetadataCost, Piece};
use crossbeam_channel::{bounded, Sender};
use image::{Format, Source, SourceOptions};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Bytes read at once, and the distance at which chunkers restart: a whole number of the study's fixed chunks.
const SEGMENT_BYTES: usize = 170 * (24 << 10);
/// Memory of each census.
const CENSUS_BYTES: usize = 64 << 20;

/// One way of cutting.
pub struct StudyRow {
    /// `whole file`, or the chunker.
    pub cut: String,
    /// What was counted.
    pub report: CensusReport,
    /// Bytes of tables that sharing needs (Paulo 2009, tables 3.2 and 3.3).
    pub metadata_bytes: u64,
}

/// What was studied.
pub struct Study {
    /// Files and disks read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that could not be read, and why.
    pub skipped: Vec<String>,
    /// Whole files first.
    pub rows: Vec<StudyRow>,
}

struct Segment {
    file: usize,
    /// Counts the segments of a file that are read.
    seq: u64,
    /// Where it stands in the file, in segments.
    no: u64,
    data: Vec<u8>,
    /// Bytes of whole segments before this one that are a hole.
    hole: u64,
    last: bool,
}

struct Counted {
    segment: Segment,
    /// What its bytes are known by; `None` where all are zero.
    whole: Option<Fingerprint>,
    cuts: Vec<(Vec<Piece>, Vec<Fingerprint>)>,
}

/// Whole files, each counted when its last segment has come.
#[derive(Default)]
struct Files {
    open: HashMap<usize, OpenFile>,
    /// Length and occurrences by content.
    seen: HashMap<Fingerprint, (u64, u64)>,
    files: u64,
    bytes: u64,
}

#[derive(Default)]
struct OpenFile {
    bytes: u64,
    come: u64,
    segments: Option<u64>,
    data: BTreeMap<u64, Fingerprint>,
}

/// Studies files, disk images, and directories of them; all as `format`, or each by its content.
pub fn study(
    paths: &[PathBuf],
    cuts: &[ChunkSpec],
    format: Option<Format>,
    progress: &Progress,
) -> Result<Study> {
    for c in cuts {
        c.check().map_err(|e| VaultError::Refused(format!("{c}: {e}")))?;
    }
    let (mut paths_found, mut skipped) = (Vec::new(), Vec::new());
    for p in paths {
        find_files(p, &mut paths_found, &mut skipped).map_err(|e| VaultError::Refused(unreadable(p, &e)))?;
    }
    progress.set_total(paths_found.iter().map(|f| f.metadata().map_or(0, |m| m.len())).sum());
    let failure = Failure::default();
    let (segment_tx, segment_rx) = bounded::<Segment>(cores() * 2);
    let (counted_tx, counted_rx) = bounded::<Counted>(cores() * 2);
    let mut censuses: Vec<Census> = cuts.iter().map(|_| Census::with_capacity_bytes(CENSUS_BYTES)).collect();
    let mut files = Files::default();
    let unread = std::thread::scope(|scope| {
        let (failure, paths) = (&failure, &paths_found);
        let reader = failure
            .spawn(scope, "read", move || failure.guard(|| read(paths, format, &segment_tx, progress)));
        for _ in 0..cores() {
            let (rx, tx) = (segment_rx.clone(), counted_tx.clone());
            failure.spawn(scope, "analyse", move || {
                for segment in rx {
                    if tx.send(analyse(segment, cuts)).is_err() {
                        return;
                    }
                }
            });
        }
        drop((segment_rx, counted_tx));
        for c in counted_rx {
            for (census, (pieces, fingerprints)) in censuses.iter_mut().zip(&c.cuts) {
                census.add_null(c.segment.hole);
                census.add_pieces(pieces, fingerprints);
            }
            files.add(&c);
        }
        reader.and_then(|r| r.join().ok()).flatten()
    });
    failure.into_result()?;
    skipped.extend(unread.unwrap_or_default());
    let mut rows = vec![row("whole file".into(), files.report())];
    rows.extend(cuts.iter().zip(&censuses).map(|(c, census)| row(c.to_string(), census.report(10))));
    Ok(Study { files: files.files, bytes: files.bytes, skipped, rows })
}

fn row(cut: String, report: CensusReport) -> StudyRow {
    let metadata_bytes = report.metadata_bytes(MetadataCost::PAULO);
    StudyRow { cut, report, metadata_bytes }
}

fn unreadable(path: &Path, e: &std::io::Error) -> String {
    format!("{}: cannot be read: {e}", path.display())
}

/// Regular files and block devices; symbolic links are followed only where the user names them.
fn find_files(path: &Path, files: &mut Vec<PathBuf>, skipped: &mut Vec<String>) -> std::io::Result<()> {
    if !std::fs::metadata(path)?.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let mut entries: Vec<_> = std::fs::read_dir(path)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(|e| e.file_name());
    for e in entries {
        match e.file_type() {
            Ok(t) if t.is_dir() => {
                if let Err(error) = find_files(&e.path(), files, skipped) {
                    skipped.push(unreadable(&e.path(), &error));
                }
            }
            Ok(t) if t.is_file() => files.push(e.path()),
            _ => {}
        }
    }
    Ok(())
}

/// Reads all files; what cannot be read is reported.
fn read(
    files: &[PathBuf],
    format: Option<Format>,
    out: &Sender<Segment>,
    progress: &Progress,
) -> Result<Vec<String>> {
    // Backing files are followed: nothing of what is read can be seen in what is counted. Images in use are read, too: what
    // a running machine changes meanwhile makes the numbers a little wrong, and its start must not fail because of us.
    let how = SourceOptions { format, follow_names: true, allow_in_use: true, ..SourceOptions::default() };
    let mut skipped = Vec::new();
    for (file, path) in files.iter().enumerate() {
        let mut source = match image::open(path, &how) {
            Ok(s) => s,
            Err(e) => {
                skipped.push(e.to_string());
                continue;
            }
        };
        if let Err(e) = read_file(&mut *source, file, out, progress) {
            match e {
                VaultError::Image(e) => skipped.push(e.to_string()),
                e => return Err(e),
            }
        }
    }
    Ok(skipped)
}

/// Reads one file or disk; its holes are passed over.
fn read_file(source: &mut dyn Source, file: usize, out: &Sender<Segment>, progress: &Progress) -> Result<()> {
    const STEP: u64 = SEGMENT_BYTES as u64;
    let (mut seq, mut no, mut known) = (0, 0, 0);
    let end = source.size();
    loop {
        progress.check()?;
        let next = match source.next_data(no * STEP)? {
            Some(range) => range.start.max(no * STEP) / STEP,
            None => end.unwrap_or(no * STEP).div_ceil(STEP),
        };
        let start = (next * STEP).min(end.unwrap_or(u64::MAX));
        let hole = start - known;
        let want = end.map_or(STEP, |e| STEP.min(e - start)) as usize;
        let mut data = vec![0; want];
        let n = source.read_at(start, &mut data)?;
        data.truncate(n);
        known = start + n as u64;
        progress.add(hole + n as u64);
        let last = n < SEGMENT_BYTES;
        if out.send(Segment { file, seq, no: next, data, hole, last }).is_err() || last {
            return Ok(());
        }
        (seq, no) = (seq + 1, next + 1);
    }
}

fn analyse(segment: Segment, cuts: &[ChunkSpec]) -> Counted {
    let cut = |spec: &ChunkSpec| {
        let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
        chunk::cut(&segment.data, *spec, &mut pieces);
        chunk::fingerprint_pieces(&segment.data, &pieces, &mut fingerprints);
        (pieces, fingerprints)
    };
    let cuts: Vec<_> = cuts.iter().map(cut).collect();
    let whole = match cuts.first() {
        _ if chunk::is_null(&segment.data) => None,
        Some((pieces, fingerprints)) => Some(chunk::segment_fingerprint(pieces, fingerprints)),
        None => Some(Fingerprint::of(&segment.data)),
    };
    Counted { segment, whole, cuts }
}

impl Files {
    fn add(&mut self, c: &Counted) {
        let s = &c.segment;
        let file = self.open.entry(s.file).or_default();
        file.bytes += s.hole + s.data.len() as u64;
        file.come += 1;
        file.data.extend(c.whole.map(|f| (s.no, f)));
        if s.last {
            file.segments = Some(s.seq + 1);
        }
        if file.segments == Some(file.come) {
            self.close(s.file);
        }
    }

    /// A file is known by its length and by its segments that are not zero.
    fn close(&mut self, file: usize) {
        let Some(file) = self.open.remove(&file) else { return };
        let mut content = file.bytes.to_le_bytes().to_vec();
        for (no, f) in &file.data {
            content.extend_from_slice(&no.to_le_bytes());
            content.extend_from_slice(&f.0);
        }
        self.files += 1;
        self.bytes += file.bytes;
        self.seen.entry(Fingerprint::of(&content)).or_insert((file.bytes, 0)).1 += 1;
    }

    fn report(&self) -> CensusReport {
        let mut r = CensusReport::default();
        for &(bytes, copies) in self.seen.values() {
            let class = copies.next_power_of_two().trailing_zeros() as usize;
            if r.classes.len() <= class {
                r.classes.resize(class + 1, DuplicateClass::default());
            }
            let c = &mut r.classes[class];
            c.unique_chunks += 1;
            c.chunks += copies;
            c.unique_bytes += bytes;
            c.bytes += bytes * copies;
        }
        for (no, c) in r.classes.iter_mut().enumerate() {
            c.copies_max = 1 << no;
            c.copies_min = (c.copies_max / 2 + 1).min(c.copies_max);
            r.chunks += c.chunks;
            r.bytes += c.bytes;
            r.unique_chunks += c.unique_chunks;
            r.unique_bytes += c.unique_bytes;
        }
        r.single_chunks = r.classes.first().map_or(0, |c| c.unique_chunks);
        r
    }
}
