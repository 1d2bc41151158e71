//! The random numbers that tell one map, and one run of the system, from all others.

use std::io;

/// The random number of a map, which its target has as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapId(pub [u8; 16]);

impl MapId {
    /// A new one.
    pub fn random() -> io::Result<MapId> {
        let mut id = MapId([0; 16]);
        getrandom::fill(&mut id.0).map_err(io::Error::other)?;
        Ok(id)
    }
}

/// Which run of the system it is: what was written in this one is in its cache, if not on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// That of the system as it runs; all zeros, which equals none, where it does not say.
    pub fn current() -> BootId {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        BootId(u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes())
    }

    /// A run of the system for tests.
    #[cfg(test)]
    pub fn of_test(n: u8) -> BootId {
        BootId([n; 16])
    }

    /// Whether both are known and equal.
    pub fn is_same(&self, other: &BootId) -> bool {
        self == other && self.0 != [0; 16]
    }
}
