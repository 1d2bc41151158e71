//! Vaults inside this process, and stores that count what goes through them.

pub mod counting_store;
pub mod hooks_store;
pub mod in_process;
pub mod layer;
pub mod metered_store;
pub mod request_store;
