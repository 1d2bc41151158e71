//! `sapwood map`

use super::stats::fragmentation_json;
use crate::args::Args;
use crate::commands::names::{open, split};
use crate::terminal::output::{percent, print_json, size};
use crate::terminal::streams::{self, outln};
use anyhow::Result;
use serde_json::json;
use std::io::IsTerminal;
use std::process::ExitCode;
use vault::{Cell, Map};

const COLUMNS: usize = 64;
const ROWS: usize = 16;

pub fn run(args: &Args, name: &str) -> Result<ExitCode> {
    let (disk, spec) = split(name);
    let map = open(args)?.map(disk, spec, COLUMNS * ROWS)?;
    if args.json {
        let ages = map.ages.iter().map(
            |a| json!({ "age": a.age, "snapshot": a.snapshot.map(|s| s.to_string()), "bytes": a.bytes }),
        );
        print_json(&json!({
            "disk": disk,
            "snapshot": map.snapshot.id.to_string(),
            "size": map.snapshot.size,
            "cell_bytes": map.cell_bytes,
            "cells": map.cells.iter().map(|c| letter(*c)).collect::<String>(),
            "ages": ages.collect::<Vec<_>>(),
            "fragmentation": fragmentation_json(map.fragmentation),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    draw(disk, &map, colours);
    Ok(ExitCode::SUCCESS)
}

/// `.` zeros; otherwise how many backups ago it was written: 0 to 9, then a to z.
fn letter(c: Cell) -> char {
    match c {
        Cell::Null => '.',
        Cell::One { age } | Cell::Mixed { age } => mark(age),
    }
}

fn mark(age: usize) -> char {
    char::from_digit(age.min(35) as u32, 36).unwrap_or('z')
}

/// From bright green, the sapwood, to brown, the heartwood.
fn colour(c: Cell) -> u8 {
    const WOOD: [u8; 8] = [46, 82, 118, 148, 178, 172, 136, 94];
    match c {
        Cell::Null => 238,
        Cell::One { age } | Cell::Mixed { age } => WOOD[age.min(WOOD.len() - 1)],
    }
}

fn draw(disk: &str, map: &Map, colours: bool) {
    outln!("{disk}@{}: {}, a cell is {}", map.snapshot.id, size(map.snapshot.size), size(map.cell_bytes));
    for (row, cells) in map.cells.chunks(COLUMNS).enumerate() {
        let mut line = String::new();
        for c in cells {
            if colours {
                line.push_str(&format!("\x1b[38;5;{}m{}", colour(*c), letter(*c)))
            } else {
                line.push(letter(*c))
            }
        }
        let end = if colours { "\x1b[0m" } else { "" };
        streams::out(&format!("{:>9} {line}{end}\n", size((row * COLUMNS) as u64 * map.cell_bytes)));
    }
    outln!("'.' zeros; a figure or letter: how many backups ago most of the cell was written");
    let f = map.fragmentation;
    for a in &map.ages {
        let by = a.snapshot.map_or("a deleted snapshot".into(), |s| s.to_string());
        outln!("  {}  {:>9}  {:>7}  {by}", mark(a.age), size(a.bytes), percent(a.bytes, f.wanted_bytes));
    }
    outln!(
        "{} runs in {} groups of {} containers; {:.2} bytes decompressed for each byte wanted",
        f.runs,
        f.groups,
        f.containers,
        f.amplification()
    );
}
