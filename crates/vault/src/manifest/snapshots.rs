//! The snapshots of a disk: the newest ones in its manifest, older ones in pages (`docs/flows/snapshot-pages.md`).

mod fold;
pub(crate) mod hold;
pub(crate) mod known;
pub(crate) mod pages;
mod tags;
pub(crate) mod whole;

#[cfg(test)]
mod tests;
