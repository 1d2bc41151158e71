//! What deduplication would save, before anything is stored (Paulo 2009, chapter 3).

use crate::error::{Result, VaultError};
use crate::pipeline::{cores, Failure};
use crate::progress::Progress;
use chunk::{Census, CensusReport, ChunkSpec, Fingerprint, MetadataCost, Piece};
use crossbeam_channel::{bounded, Sender};
use image::{Source, SourceOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes read at once, and the distance at which chunkers restart.
const SEGMENT_BYTES: usize = 4 << 20;
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
    no: u64,
    data: Vec<u8>,
    /// Bytes of whole segments before this one that are a hole.
    hole: u64,
}

struct Counted {
    file: usize,
    no: u64,
    bytes: u64,
    hole: u64,
    whole: Fingerprint,
    cuts: Vec<(Vec<Piece>, Vec<Fingerprint>)>,
}

/// Studies files, disk images, and directories of them.
pub fn study(paths: &[PathBuf], cuts: &[ChunkSpec], progress: &Progress) -> Result<Study> {
    for c in cuts {
        c.check().map_err(|e| VaultError::Refused(format!("{c}: {e}")))?;
    }
    let mut files = Vec::new();
    for p in paths {
        find_files(p, &mut files)?;
    }
    progress.set_total(files.iter().map(|f| f.metadata().map_or(0, |m| m.len())).sum());
    let failure = Failure::default();
    let (segment_tx, segment_rx) = bounded::<Segment>(cores() * 2);
    let (counted_tx, counted_rx) = bounded::<Counted>(cores() * 2);
    let mut censuses: Vec<Census> = cuts.iter().map(|_| Census::with_capacity_bytes(CENSUS_BYTES)).collect();
    let mut whole: BTreeMap<usize, (u64, BTreeMap<u64, Fingerprint>)> = BTreeMap::new();
    let skipped = std::thread::scope(|scope| {
        let (failure, files) = (&failure, &files);
        let reader = scope.spawn(move || failure.guard(|| read(files, &segment_tx, progress)));
        for _ in 0..cores() {
            let (rx, tx) = (segment_rx.clone(), counted_tx.clone());
            scope.spawn(move || rx.iter().try_for_each(|s| tx.send(analyse(s, cuts))));
        }
        drop((segment_rx, counted_tx));
        for c in counted_rx {
            for (census, (pieces, fingerprints)) in censuses.iter_mut().zip(&c.cuts) {
                census.add_null(c.hole);
                census.add_pieces(pieces, fingerprints);
            }
            let file = whole.entry(c.file).or_default();
            file.0 += c.bytes + c.hole;
            file.1.insert(c.no, c.whole);
        }
        reader.join().ok().flatten()
    });
    failure.into_result()?;
    let mut rows = vec![row("whole file".into(), whole_files(&whole))];
    rows.extend(cuts.iter().zip(&censuses).map(|(c, census)| row(c.to_string(), census.report(10))));
    let bytes = whole.values().map(|f| f.0).sum();
    Ok(Study { files: whole.len() as u64, bytes, skipped: skipped.unwrap_or_default(), rows })
}

fn row(cut: String, report: CensusReport) -> StudyRow {
    let metadata_bytes = report.metadata_bytes(MetadataCost::PAULO);
    StudyRow { cut, report, metadata_bytes }
}

/// Regular files and block devices; symbolic links are followed only where the user names them.
fn find_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let unreadable =
        |e: std::io::Error| VaultError::Refused(format!("{}: cannot be read: {e}", path.display()));
    let kind = std::fs::metadata(path).map_err(unreadable)?;
    if !kind.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    let mut entries: Vec<_> =
        std::fs::read_dir(path).map_err(unreadable)?.collect::<std::io::Result<_>>().map_err(unreadable)?;
    entries.sort_by_key(|e| e.file_name());
    for e in entries {
        match e.file_type() {
            Ok(t) if t.is_dir() => find_files(&e.path(), files)?,
            Ok(t) if t.is_file() => files.push(e.path()),
            _ => {}
        }
    }
    Ok(())
}

/// Reads all files; what cannot be read is said, not fatal.
fn read(files: &[PathBuf], out: &Sender<Segment>, progress: &Progress) -> Result<Vec<String>> {
    let mut skipped = Vec::new();
    for (file, path) in files.iter().enumerate() {
        let mut source = match image::open(path, &SourceOptions::default()) {
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
    let (mut no, mut known) = (0, 0);
    let end = source.size();
    loop {
        progress.check()?;
        let next = match source.next_data(no * STEP)? {
            Some(range) => range.start.max(no * STEP) / STEP,
            None => end.unwrap_or(no * STEP).div_ceil(STEP),
        };
        let start = (next * STEP).min(end.unwrap_or(u64::MAX));
        let hole = start - known;
        let mut data = vec![0; SEGMENT_BYTES];
        let n = if end.is_some_and(|e| start >= e) { 0 } else { source.read_at(start, &mut data)? };
        data.truncate(n);
        known = start + n as u64;
        progress.add(hole + n as u64);
        let sent = n == 0 && hole == 0 || out.send(Segment { file, no: next, data, hole }).is_ok();
        if !sent || n < SEGMENT_BYTES {
            return Ok(());
        }
        no = next + 1;
    }
}

fn analyse(s: Segment, cuts: &[ChunkSpec]) -> Counted {
    let cuts = cuts.iter().map(|spec| {
        let (mut pieces, mut fingerprints) = (Vec::new(), Vec::new());
        chunk::cut(&s.data, *spec, &mut pieces);
        chunk::fingerprint_pieces(&s.data, &pieces, &mut fingerprints);
        (pieces, fingerprints)
    });
    Counted {
        cuts: cuts.collect(),
        file: s.file,
        no: s.no,
        bytes: s.data.len() as u64,
        hole: s.hole,
        whole: Fingerprint::of(&s.data),
    }
}

/// Files are equal when all their segments are; their sizes follow from that.
fn whole_files(files: &BTreeMap<usize, (u64, BTreeMap<u64, Fingerprint>)>) -> CensusReport {
    let mut copies: BTreeMap<Vec<Fingerprint>, (u64, u64)> = BTreeMap::new();
    for (bytes, segments) in files.values() {
        let c = copies.entry(segments.values().copied().collect()).or_insert((*bytes, 0));
        c.1 += 1;
    }
    let mut r = CensusReport::default();
    for (bytes, n) in copies.into_values() {
        r.chunks += n;
        r.bytes += bytes * n;
        r.unique_chunks += 1;
        r.unique_bytes += bytes;
        r.single_chunks += u64::from(n == 1);
    }
    r
}
