//! What is mounted, whatever it is.

/// A tree or a file system that is mounted.
pub(super) trait Served: Send + Sync {
    /// Tells of an error.
    fn tell(&self, line: &str);
    /// Closes what is open, for those who do not.
    fn close_all(&self);
}
