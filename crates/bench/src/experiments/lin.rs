//! What is kept long, made small (Lin 2015).

mod measured;
pub mod movers;
pub mod mtar;
pub mod mzip;
mod ways;

pub use measured::LinOptions;
