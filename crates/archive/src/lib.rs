//! Data that is kept long, made small (Lin 2015).
//!
//! [`mzip`]: migratory compression: similar chunks are moved beside each other, then compressed (chapter 2).
//! [`mtar`]: tar archives whose headers stand apart from their data, so that deduplication finds the data (chapter 3).

pub mod mtar;
pub mod mzip;
mod stream;
