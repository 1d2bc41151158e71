//! The check of a pool that is being served.

use anyhow::Result;
use pool::{Pool, PoolError};
use serde_json::{json, Value};
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::time::{Duration, Instant};

/// How often the client is told that the check goes on.
const SIGN_EVERY: Duration = Duration::from_secs(5);
/// The longest rest at a time: the end of the server must not wait for it.
const REST: Duration = Duration::from_millis(50);

/// Reads all of a pool that is in use, at most `limit` bytes of content in a second. An empty line tells the client now and
/// then that it goes on. Returns what `--json` prints, or nothing if the client has left or the server ends.
pub fn scrub(
    pool: &Pool,
    data: bool,
    limit: Option<u64>,
    client: impl Write,
    has_ended: &dyn Fn() -> bool,
) -> Result<Option<Value>, PoolError> {
    let (began, client, told) = (Instant::now(), RefCell::new(client), Cell::new(Instant::now()));
    let sign = || {
        if told.get().elapsed() < SIGN_EVERY {
            return true;
        }
        told.set(Instant::now());
        client.borrow_mut().write_all(b"\n").is_ok()
    };
    let report = pool.scrub(data, &|read| {
        let may_take =
            limit.map_or(Duration::ZERO, |limit| Duration::from_secs_f64(read as f64 / limit.max(1) as f64));
        while sign() && !has_ended() {
            let rest = may_take.saturating_sub(began.elapsed());
            if rest.is_zero() {
                return true;
            }
            std::thread::sleep(rest.min(REST));
        }
        false
    })?;
    Ok(report.map(|report| {
        let findings: Vec<_> = report.findings.into_iter().map(|finding| finding.what).collect();
        json!({
            "findings": findings,
            "mended": [],
            "more": report.more,
            "used_blocks": report.used_blocks,
            "counted": false,
        })
    }))
}
