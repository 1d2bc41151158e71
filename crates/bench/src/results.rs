//! Results: tables, bars to meet, JSON files, figures.

pub mod plot;
pub mod report;
