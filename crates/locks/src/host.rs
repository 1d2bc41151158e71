//! The name of this host.

/// This host's name, for messages.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "without a name".to_owned(),
        name => name.to_owned(),
    }
}
