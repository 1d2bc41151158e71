//! bonnie++ on a pool (Paulo 2009, sections 6.1 and 6.2): in a mount, and inside a virtual machine.

pub mod guest;
mod initramfs;
mod machine;
pub mod mount;
mod report;

use anyhow::{ensure, Result};

/// Tests, and where bonnie++ prints their rates.
const TESTS: [(&str, usize); 6] = [
    ("putc", 9),
    ("write blocks", 11),
    ("rewrite", 13),
    ("getc", 15),
    ("read blocks", 17),
    ("random seeks", 19),
];
/// The paper's own tests are of this size.
const CHUNK_BYTES: u64 = 8192;

/// What bonnie++ is given beside its directory, to write a file of `bytes`. Single characters need not be many: `chars` of them. Its
/// own check of the size against the memory is turned off.
fn arguments(bytes: u64, chars: u64) -> Vec<String> {
    let size = format!("{}:{CHUNK_BYTES}", bytes >> 20);
    ["-s", &size, "-n", "0", "-m", "x", "-q", "-r", "0", &format!("-f{chars}")].map(str::to_owned).to_vec()
}

/// Of each test its rate, in KB a second and seeks a second, from the line that bonnie++ prints. None: too fast to be measured.
fn rates(line: &str) -> Result<Vec<Option<f64>>> {
    let fields: Vec<&str> = line.split(',').collect();
    ensure!(fields.len() > 20, "bonnie++ prints another format: {line}");
    // Plus signs stand for less than half a second.
    Ok(TESTS.iter().map(|(_, field)| fields[*field].parse().ok()).collect())
}
