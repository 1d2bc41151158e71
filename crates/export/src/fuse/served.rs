//! What is mounted, whatever it is.

use fuser::Notifier;

/// A tree or a file system that is mounted.
pub(super) trait Served: Send + Sync {
    /// The kernel is there, and can be told of changes from now on.
    fn begin(&self, _: Notifier) {}
    /// Makes the kernel send what it keeps of changes. The caller is no thread that answers requests.
    fn write_out(&self) {}
    /// Tells of an error.
    fn tell(&self, line: &str);
    /// Closes what is open, for those who do not.
    fn close_all(&self);
}
