//! `sapwood study`

use crate::args::Args;
use crate::commands::names::source_format;
use crate::progress::watch;
use crate::terminal::output::{percent, print_json, size, table};
use crate::terminal::streams::outln;
use anyhow::Result;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use vault::{Study, StudyRow, VaultError};

pub fn run(args: &Args, paths: &[PathBuf], cuts: &[String], format: Option<&str>) -> Result<ExitCode> {
    let format = source_format(format)?;
    let cuts = cuts
        .iter()
        .map(|c| c.parse().map_err(|e| VaultError::Refused(format!("--chunk {c}: {e}"))))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let study = watch(args.quiet, "study", |p| vault::study(paths, &cuts, format, p))?;
    if args.json {
        let rows: Vec<_> = study.rows.iter().map(row_json).collect();
        print_json(&json!({
            "file_count": study.files, "bytes": study.bytes, "skipped": study.skipped, "rows": rows,
        }));
    } else {
        show(&study);
    }
    Ok(ExitCode::SUCCESS)
}

fn row_json(r: &StudyRow) -> serde_json::Value {
    let classes = r.report.classes.iter().map(|c| {
        json!({
            "copies_min": c.copies_min, "copies_max": c.copies_max,
            "unique_chunks": c.unique_chunks, "chunks": c.chunks, "bytes": c.bytes,
        })
    });
    json!({
        "cut": r.cut,
        "chunks": r.report.chunks,
        "bytes": r.report.bytes,
        "null_bytes": r.report.null_bytes,
        "unique_chunks": r.report.unique_chunks,
        "single_chunks": r.report.single_chunks,
        "unique_bytes": r.report.unique_bytes,
        "duplicated_share": r.report.duplicated_share(),
        "duplicates_per_duplicated": r.report.duplicates_per_duplicated(),
        "saved_bytes": r.report.saved_bytes(),
        "metadata_bytes": r.metadata_bytes,
        "exact": r.report.is_exact(),
        "duplicates": classes.collect::<Vec<_>>(),
    })
}

fn show(study: &Study) {
    outln!("{} files and disks, {}", study.files, size(study.bytes));
    let rows: Vec<Vec<String>> = study
        .rows
        .iter()
        .map(|r| {
            let c = &r.report;
            vec![
                r.cut.clone(),
                c.chunks.to_string(),
                c.unique_chunks.to_string(),
                size(c.null_bytes),
                size(c.saved_bytes()),
                percent(c.saved_bytes(), c.bytes),
                percent(c.saved_bytes() + c.null_bytes, c.bytes + c.null_bytes),
                size(r.metadata_bytes),
                if c.is_exact() { "" } else { "estimated" }.into(),
            ]
        })
        .collect();
    let headings =
        ["cut", ">chunks", ">unique", ">zeros", ">saved", ">of not zero", ">with zeros", ">metadata", ""];
    table(&headings, &rows);
    for r in study.rows.iter().filter(|r| !r.report.classes.is_empty()).take(2) {
        outln!("");
        outln!("{}: how often each occurs", r.cut);
        let most = r.report.classes.iter().map(|c| c.unique_chunks).max().unwrap_or(1).max(1);
        for c in r.report.classes.iter().filter(|c| c.unique_chunks > 0) {
            let copies = match (c.copies_min, c.copies_max) {
                (a, b) if a == b => format!("{a}"),
                (a, u64::MAX) => format!("{a} or more"),
                (a, b) => format!("{a} to {b}"),
            };
            let bar = "#".repeat((c.unique_chunks * 40).div_ceil(most) as usize);
            outln!("{copies:>14} x {:>10}  {:>9}  {bar}", c.unique_chunks, size(c.bytes));
        }
    }
    study.skipped.iter().for_each(|s| outln!("skipped: {s}"));
}
