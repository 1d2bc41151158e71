//! What is kept long, made small (Lin 2015).

pub mod apart;
mod measured;
pub mod movers;
pub mod mtar;
pub mod mzip;
pub mod packages;
mod phases;
mod ways;

pub use measured::LinOptions;
pub use packages::PackagesOptions;
