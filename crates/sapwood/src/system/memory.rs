//! How much memory this process may take.

use std::path::Path;

/// The machine's memory, or what the control groups of this process leave of it, in bytes. 0 where it is not known.
pub fn memory_bytes() -> u64 {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = known.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let machine = total.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10);
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    limit_of(Path::new("/sys/fs/cgroup"), group).map_or(machine, |limit| limit.min(machine))
}

/// The least limit of a control group and of those above it.
fn limit_of(root: &Path, group: &str) -> Option<u64> {
    let own = root.join(group);
    let groups = own.ancestors().take_while(|group| group.starts_with(root));
    let limits = groups.filter_map(|group| std::fs::read_to_string(group.join("memory.max")).ok());
    limits.filter_map(|limit| limit.trim().parse().ok()).min()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        let set = |group: &str, limit: &str| {
            let group = dir.path().join(group);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join("memory.max"), limit).unwrap();
        };
        assert_eq!(limit_of(dir.path(), "a/b"), None);
        set("a/b", "max\n");
        assert_eq!(limit_of(dir.path(), "a/b"), None);
        set("a", "3000\n");
        assert_eq!(limit_of(dir.path(), "a/b"), Some(3000));
        set("a/b", "2000\n");
        assert_eq!((limit_of(dir.path(), "a/b"), limit_of(dir.path(), "a")), (Some(2000), Some(3000)));
        assert!(memory_bytes() > 64 << 20);
    }
}
