//! Standard output and error, exit codes, text for people.

pub mod ask;
pub mod escape;
pub mod exit_code;
pub mod outcome;
pub mod output;
pub mod streams;
