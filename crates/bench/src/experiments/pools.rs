//! Pools: live disks that share blocks, beside plain files and raw exports.

pub mod blocks;
pub mod bonnie;
mod device;
pub mod filter;
pub mod glance;
mod moving_head;
pub mod paulo;
pub mod recovery;
pub mod scale;
pub mod sequential;
pub mod served;
mod tpcc;
pub mod variants;

/// Options of the experiments with pools.
#[derive(clap::Args, Clone, Debug)]
pub struct PoolsOptions {
    /// MiB that are written
    #[arg(long, value_name = "MIB")]
    pub data: Option<u64>,
}

impl PoolsOptions {
    /// The bytes to write, a multiple of 1 MiB: `mib`, or `tiny_mib` if the experiment is tiny, or what was asked for.
    pub fn bytes(&self, context: &crate::context::Context, mib: u64, tiny_mib: u64) -> u64 {
        let usual = if context.options.tiny { tiny_mib } else { mib };
        self.data.unwrap_or(usual).max(1) << 20
    }
}
