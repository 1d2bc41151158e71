//! Waiting until all of a volume has arrived.

use super::control::{ask, open_free, PoolAtPath};
use super::filler::Filler;
use super::request::Request;
use crate::args::Args;
use crate::progress::{catch_signals, is_stopped, show_while};
use anyhow::{anyhow, bail, Result};
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

/// How often the server of a pool is asked.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Memory for decompressed data of the vault.
const CACHE_BYTES: u64 = 64 << 20;
/// How often in a row a server may say that the volume is not being filled.
const PATIENCE: u32 = 20;

/// Waits until all of a volume has arrived. Where nobody serves the pool, this process fills it.
pub fn until_filled(args: &Args, path: &Path, name: &str) -> Result<()> {
    catch_signals();
    let far = [AtomicU64::new(0), AtomicU64::new(0)];
    let read_far = || (far[0].load(Ordering::Relaxed), far[1].load(Ordering::Relaxed));
    show_while(args.quiet, name, read_far, || match open_free(path)? {
        PoolAtPath::Free(pool) => {
            let lock_wait = Duration::from_secs(args.lock_wait);
            let mut filler = Filler::new(Arc::clone(&pool), path, CACHE_BYTES, lock_wait, None);
            let filled = fill_here(&mut filler, &pool, name, &far);
            drop(filler);
            filled.and(Ok(pool.close()?))
        }
        PoolAtPath::Held(_) => wait_for_server(path, name, &far),
    })
}

fn stopped(name: &str) -> anyhow::Error {
    anyhow!("stopped; {name} is filled on while the pool is served")
}

fn fill_here(filler: &mut Filler, pool: &pool::Pool, name: &str, far: &[AtomicU64; 2]) -> Result<()> {
    let errors = filler.errors();
    loop {
        let Some(fill) = pool.fills()?.into_iter().find(|fill| fill.volume == name) else { return Ok(()) };
        far[0].store(fill.filled, Ordering::Relaxed);
        far[1].store(fill.size, Ordering::Relaxed);
        filler.turn(&is_stopped)?;
        if is_stopped() {
            return Err(stopped(name));
        }
        if let Some(why) = errors.lock().get(name) {
            bail!("{name} is not filled: {why}");
        }
    }
}

fn wait_for_server(path: &Path, name: &str, far: &[AtomicU64; 2]) -> Result<()> {
    let mut errors = 0;
    loop {
        let list = ask(path, &Request::List)?;
        let volume = list["volumes"].as_array().and_then(|all| all.iter().find(|v| v["name"] == name));
        let fill = volume.map_or(&Value::Null, |volume| &volume["fill"]);
        let (Some(volume), Some(bytes)) = (volume, fill["bytes"].as_u64()) else { return Ok(()) };
        far[0].store(bytes, Ordering::Relaxed);
        far[1].store(volume["size"].as_u64().unwrap_or(0), Ordering::Relaxed);
        if is_stopped() {
            return Err(stopped(name));
        }
        match fill["error"].as_str() {
            Some(why) if errors >= PATIENCE => bail!("{name} is not filled: {why}"),
            Some(_) => errors += 1,
            None => errors = 0,
        }
        sleep(ASK_EVERY);
    }
}
