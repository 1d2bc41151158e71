//! What commands say: their messages, and what `--json` prints.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod json;
mod messages;
