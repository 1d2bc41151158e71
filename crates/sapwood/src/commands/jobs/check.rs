//! `sapwood config check`

use crate::args::Args;
use crate::jobs::config::Config;
use crate::jobs::settings::Job;
use crate::terminal::output::{counted, print_json, table};
use crate::terminal::streams::outln;
use anyhow::Result;
use serde_json::{json, Value};
use std::path::Path;
use std::process::ExitCode;
use vault::now;

pub fn run(args: &Args, file: Option<&Path>) -> Result<ExitCode> {
    let config = Config::need(file.or(args.config.as_deref()))?;
    config.check_commands()?;
    let now = now();
    if args.json {
        let jobs: Vec<Value> = config.jobs.iter().map(|j| json_of(j, now)).collect();
        print_json(
            &json!({ "config": config.path.display().to_string(), "store": config.store, "jobs": jobs }),
        );
        return Ok(ExitCode::SUCCESS);
    }
    if args.quiet {
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = config.jobs.iter().map(|j| row(j, now)).collect();
    if !rows.is_empty() {
        table(&["job", ">disks", "schedule", "next due"], &rows);
    }
    outln!("{}: no errors, {}", config.path.display(), counted(config.jobs.len(), "job"));
    Ok(ExitCode::SUCCESS)
}

fn next_due(job: &Job, now: i64) -> Option<i64> {
    job.schedule.as_ref()?.next(now, job.zone.rules())
}

fn row(job: &Job, now: i64) -> Vec<String> {
    let schedule = job.schedule.as_ref().map_or("only by name", |s| s.text());
    let next = next_due(job, now).map(|t| job.zone.show(t)).unwrap_or_default();
    let disks = match (&job.store, job.disks.len()) {
        (Some(store), _) => format!("all in {store}"),
        (None, 0) => "all".to_owned(),
        (None, n) => n.to_string(),
    };
    vec![job.name.clone(), disks, schedule.to_owned(), next]
}

fn json_of(job: &Job, now: i64) -> Value {
    let disks = job
        .disks
        .iter()
        .map(|(disk, from)| json!({ "disk": disk, "source": from.source.display().to_string() }));
    json!({
        "job": job.name,
        "disks": disks.collect::<Vec<_>>(),
        "store": job.store,
        "schedule": job.schedule.as_ref().map(|s| s.text()),
        "next_due": next_due(job, now),
    })
}
