//! How large the vaults are whose index is measured.

/// Data of which one chunk is a hook.
const HOOK_DATA_BYTES: f64 = 64.0 * 4096.0;

/// How large the vaults are.
#[derive(clap::Args, Clone, Debug)]
pub struct IndexOptions {
    /// Data of the vaults whose index is computed, in TB [default: 1,10,100,1000; with --tiny 0.1,1]
    #[arg(long, value_delimiter = ',')]
    pub computed_tb: Vec<f64>,
    /// Data of the vaults whose index is written to a directory, in TB; one takes 69 MB for each
    /// [default: 1,10; with --tiny 0.01]
    #[arg(long, value_delimiter = ',')]
    pub local_tb: Vec<f64>,
    /// New data of a backup, in MiB [default: 256; with --tiny 16]
    #[arg(long)]
    pub data_mib: Option<usize>,
    /// Runs of each size; eight are joined, so with more than six a backup joins its own with them
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..8))]
    pub runs_of_a_size: u64,
    /// Disks that each run names
    #[arg(long, default_value_t = 10_000)]
    pub owners: usize,
}

impl IndexOptions {
    /// New data of a backup.
    pub fn data_bytes(&self, tiny: bool) -> usize {
        self.data_mib.unwrap_or(if tiny { 16 } else { 256 }) << 20
    }
}

/// Hooks of so much data.
pub fn hooks_of(terabytes: f64) -> u64 {
    (terabytes * 1e12 / HOOK_DATA_BYTES) as u64
}
