//! Questions to a user at a terminal.

use super::streams::err;
use std::io::{stderr, stdin, BufRead, IsTerminal};

/// Whether somebody is there to answer.
pub fn can_ask() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks, and takes anything but a yes for a no.
pub fn is_wanted(question: &str) -> bool {
    err(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let read = stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
