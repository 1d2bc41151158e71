//! Data that is kept long, made small (Lin 2015).
//!
//! [`mtar`]: tar archives whose headers stand apart from their data, so that deduplication finds the data (chapter 3).

pub mod mtar;
