//! Jobs of the configuration file: running them, checking the file, and the health of vault and jobs.

pub mod check;
mod job;
mod report;
pub mod run;
pub mod status;
mod verification;
