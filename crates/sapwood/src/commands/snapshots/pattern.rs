//! Patterns of disks' names: `web01/vda`, `web*/vda`, `web01` for all disks of a machine.

use std::collections::BTreeSet;
use vault::{Result, Vault, VaultError};

/// The disks that patterns name.
#[derive(Default)]
pub struct Named {
    /// By name, each once.
    pub disks: BTreeSet<String>,
    /// Damage that may hide others.
    pub damaged: Vec<String>,
}

/// The disks whose names fit at least one pattern, or all. Only where a pattern may fit several disks, they are listed.
///
/// # Errors
/// A pattern that fits no disk.
pub fn find(vault: &Vault, patterns: &[String], all: bool) -> Result<Named> {
    let is_plain = |p: &&String| p.contains('/') && !p.contains(['*', '?']);
    let mut named = Named { disks: patterns.iter().filter(is_plain).cloned().collect(), damaged: Vec::new() };
    let patterns: Vec<&String> = patterns.iter().filter(|p| !is_plain(p)).collect();
    if patterns.is_empty() && !all {
        return Ok(named);
    }
    let listed;
    (listed, named.damaged) = vault.disk_names()?;
    for pattern in &patterns {
        if !listed.iter().any(|name| fits_disk(pattern, name)) {
            let what = format!("{pattern}: no disk has such a name; `sapwood snapshots` lists what there is");
            return Err(VaultError::NotFound { what });
        }
    }
    let wanted = |name: &String| all || patterns.iter().any(|p| fits_disk(p, name));
    named.disks.extend(listed.into_iter().filter(wanted));
    Ok(named)
}

/// Whether a disk's name fits a pattern. One without a slash is about machines.
fn fits_disk(pattern: &str, name: &str) -> bool {
    let (vm, disk) = name.split_once('/').unwrap_or((name, ""));
    match pattern.split_once('/') {
        Some((of_vm, of_disk)) => fits(of_vm, vm) && fits(of_disk, disk),
        None => fits(pattern, vm),
    }
}

/// Whether a text fits a pattern, in which `*` stands for any characters and `?` for one.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where to go on if what follows the last star does not fit: one character later.
    let mut star: Option<(usize, usize)> = None;
    let (mut p, mut t) = (0, 0);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match &mut star {
                Some((at, from)) => {
                    *from += 1;
                    (p, t) = (*at + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names() {
        for (pattern, name, expected) in [
            ("web01/vda", "web01/vda", true),
            ("web01/vda", "web01/vdb", false),
            ("web01", "web01/vda", true),
            ("web", "web01/vda", false),
            ("web*", "web01/vda", true),
            ("*/vda", "web01/vda", true),
            ("web*/vd?", "web01/vda", true),
            ("web*/vd?", "web01/vd", false),
            ("w*0*1/*a", "web0-01/sda", true),
            ("w*0*2/*a", "web0-01/sda", false),
            ("*", "web01/vda", true),
            ("**/?*", "web01/vda", true),
            ("", "web01/vda", false),
        ] {
            assert_eq!(fits_disk(pattern, name), expected, "{pattern} {name}");
        }
    }
}
