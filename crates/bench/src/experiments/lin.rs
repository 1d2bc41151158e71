//! What is kept long, made small (Lin 2015).

pub mod mtar;
pub mod mzip;
