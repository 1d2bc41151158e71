//! `vault.json`: id, format version and default policy. The only object that is text.

use crate::bytes::{Malformed, Result};
use crate::ids::VaultId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The newest version that this program writes and the only one it reads.
pub const FORMAT_VERSION: u32 = 5;

/// What the vault is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultFile {
    /// Its id.
    pub id: VaultId,
    /// The policy of backups that do not name one.
    pub policy: String,
    /// Whether these backups take nothing from other disks but the popular set.
    pub isolated: bool,
    /// When it was made, seconds since 1970.
    pub created: i64,
}

#[derive(Serialize, Deserialize)]
struct Text {
    sapwood_vault: String,
    format_version: u32,
    /// Features that a program must know to read the vault.
    incompatible_features: Vec<String>,
    policy: String,
    #[serde(default)]
    isolated: bool,
    created: i64,
    checksum: String,
}

impl Text {
    fn sum(&self) -> String {
        let fields = format!(
            "{}\n{}\n{}\n{}\n{}\n{}",
            self.sapwood_vault,
            self.format_version,
            self.incompatible_features.join(","),
            self.policy,
            self.isolated,
            self.created
        );
        format!("{:016x}", xxh3_64(fields.as_bytes()))
    }
}

impl VaultFile {
    /// As JSON.
    pub fn encode(&self) -> Vec<u8> {
        let mut t = Text {
            sapwood_vault: self.id.to_string(),
            format_version: FORMAT_VERSION,
            incompatible_features: Vec::new(),
            policy: self.policy.clone(),
            isolated: self.isolated,
            created: self.created,
            checksum: String::new(),
        };
        t.checksum = t.sum();
        let mut text = serde_json::to_vec_pretty(&t).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// From JSON. Versions and features are looked at before the checksum: a newer program's file is no damage.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let t: Text = serde_json::from_slice(bytes)
            .map_err(|e| Malformed::new(format!("not a vault's description: {e}")))?;
        if t.format_version < FORMAT_VERSION {
            return Err(Malformed::newer(format!(
                "the vault has format version {}, which was never released; this program knows {FORMAT_VERSION}: restore \
                 with the program that wrote it, and back up into a new vault",
                t.format_version
            )));
        }
        if t.format_version != FORMAT_VERSION {
            return Err(Malformed::newer(format!(
                "the vault has format version {}, this program knows {FORMAT_VERSION}; use a newer one",
                t.format_version
            )));
        }
        if let Some(f) = t.incompatible_features.first() {
            return Err(Malformed::newer(format!(
                "the vault needs the feature {f:?}, which this program does not know; use a newer one"
            )));
        }
        if t.checksum != t.sum() {
            return Err(Malformed::new("checksum does not match"));
        }
        Ok(VaultFile {
            id: t.sapwood_vault.parse()?,
            policy: t.policy,
            isolated: t.isolated,
            created: t.created,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vaults_file_comes_back_and_shows_damage() {
        let v = VaultFile { id: VaultId([3; 16]), policy: "balanced".into(), isolated: false, created: 7 };
        let text = v.encode();
        assert_eq!(VaultFile::decode(&text), Ok(v.clone()));
        for bit in 0..text.len() * 8 {
            let mut t = text.clone();
            t[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = VaultFile::decode(&t) {
                assert_eq!(other, v, "bit {bit} changed the meaning unseen");
            }
        }
    }
}
