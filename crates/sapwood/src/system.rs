//! Services of the operating system: directories, limits, priorities, signals, child processes.

pub mod allocator;
pub mod descriptors;
pub mod memory;
pub mod mountpoint;
pub mod new_file;
pub mod own_directory;
pub mod priority;
pub mod purpose;
pub mod signals;
pub mod trust;
