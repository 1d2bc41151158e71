//! What the readers of mapped formats have in common: runs, tables in memory, compressed clusters.

pub mod decode;
pub mod file;
pub mod reader;
pub mod run;
pub mod tables;
pub mod unpack;
