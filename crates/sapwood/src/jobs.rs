//! Jobs: what a configuration file says, when a job is due, and what is kept of its runs. Nothing here runs a
//! job.

pub mod config;
pub mod due;
pub mod schedule;
pub mod settings;
pub mod shell_command;
pub mod sizes;
pub mod source;
pub mod state;
pub mod values;
