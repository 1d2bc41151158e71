//! Names of a backup's nodes, jobs and exports in QEMU.

use vault::{SnapId, VaultId};

/// Names in QEMU that are ours alone.
pub struct Names {
    pub fleece: String,
    pub file: String,
    pub job: String,
    pub export: String,
}

impl Names {
    /// What the names of jobs, exports and bitmaps begin with.
    pub const OURS: &str = "sapwood-";
    /// And those of nodes, which have 31 characters at most.
    pub const FLEECE: &str = "sapwood-f-";
    pub const FILE: &str = "sapwood-p-";

    pub fn of(vault: VaultId, snapshot: SnapId) -> Self {
        let tag = format!("{}{vault}-{snapshot}", Self::OURS);
        Names {
            fleece: format!("{}{snapshot}", Self::FLEECE),
            file: format!("{}{snapshot}", Self::FILE),
            job: format!("{tag}-job"),
            export: format!("{tag}-export"),
        }
    }
}
