//! Snapshots: plan, backup, restore, deletion, verification.
