//! Reports on the popular set.

/// Chunks that occur in the same number of disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PopularClass {
    /// Disks that each of them occurs in.
    pub disks: u32,
    /// How many chunks.
    pub chunks: u64,
    /// Their bytes, each chunk once.
    pub bytes: u64,
}

/// How popular the chunks of a vault are.
#[derive(Clone, Debug, Default)]
pub struct PopularStatus {
    /// Disks that were counted.
    pub disks: u64,
    /// By the number of disks, most popular first.
    pub classes: Vec<PopularClass>,
    /// Chunks in the set that is there.
    pub set_chunks: u64,
    /// What could not be counted because of damage.
    pub damaged: Vec<String>,
}

impl PopularStatus {
    /// Unique chunks.
    pub fn chunks(&self) -> u64 {
        self.classes.iter().map(|c| c.chunks).sum()
    }

    /// Bytes of duplicates between disks: those that a perfect scheme would not store.
    pub fn duplicate_bytes(&self) -> u64 {
        self.classes.iter().map(|c| c.bytes * u64::from(c.disks - 1)).sum()
    }

    /// What of [`Self::duplicate_bytes`] falls on the most popular `fraction` of the unique chunks, and their bytes.
    /// Within a class all chunks count alike.
    pub fn of_top(&self, fraction: f64) -> (u64, u64) {
        let mut left = (self.chunks() as f64 * fraction).ceil() as u64;
        let (mut duplicates, mut bytes) = (0.0, 0.0);
        for c in self.classes.iter().filter(|c| c.disks > 1) {
            let taken = c.chunks.min(left);
            left -= taken;
            let part = taken as f64 / c.chunks as f64 * c.bytes as f64;
            duplicates += part * f64::from(c.disks - 1);
            bytes += part;
        }
        (duplicates as u64, bytes as u64)
    }
}

/// What building a set did.
#[derive(Clone, Debug, Default)]
pub struct PopularReport {
    /// Chunks in the set.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them, chunks that an older set had already.
    pub kept_chunks: u64,
    /// Disks that the least popular of them occurs in.
    pub least_disks: u32,
    /// Bytes that the new containers take.
    pub stored_bytes: u64,
    /// What is damaged and was left out.
    pub damaged: Vec<String>,
}
