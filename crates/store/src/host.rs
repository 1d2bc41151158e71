//! What tells this host from every other one.

use std::io;
use std::path::Path;

/// Where systemd, and D-Bus before it, keep what tells hosts apart.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];

/// What tells hosts apart is derived under this name, so that a host's machine id itself is never shown to others
/// (machine-id(5)).
const CONTEXT: &str = "sapwood 2026-11 host that writes to a store";

/// 16 bytes that tell this host from every other one; `None` where it has no machine id.
pub(crate) fn machine() -> io::Result<Option<[u8; 16]>> {
    for path in MACHINE_ID {
        match std::fs::read_to_string(Path::new(path)) {
            Ok(text) => {
                let id = text.trim();
                // "uninitialized" before the first boot has ended.
                if id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Ok(Some(derived(id)));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

fn derived(id: &str) -> [u8; 16] {
    let key = blake3::derive_key(CONTEXT, id.to_ascii_lowercase().as_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(&key[..16]);
    short
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What stores have recorded must be found again by later versions.
    #[test]
    fn a_host_is_known_for_ever() {
        let known = derived("0123456789abcdef0123456789ABCDEF");
        let hex: String = known.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "9560ffc8225e2cdc890c359ff743373e");
        assert_ne!(derived("0123456789abcdef0123456789abcde0"), known);
    }
}
