//! The exit codes of the program.

/// An operation failed.
pub const FAILED: u8 = 1;
/// The command line is wrong.
pub const USAGE: u8 = 2;
/// Damage was found.
pub const DAMAGED: u8 = 3;
/// Another process holds what is needed, or the operation is not allowed.
pub const REFUSED: u8 = 4;
/// The user stopped it: 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;
