//! What volumes are filled from, as a pool remembers it.

/// A snapshot in a vault, as a pool remembers it: `VM/DISK@ID`, a space, and the vault's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillSource {
    pub disk: String,
    pub id: String,
    pub store: String,
}

impl FillSource {
    /// Reads what [`FillSource::text`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let (snapshot, store) = text.split_once(' ')?;
        let (disk, id) = snapshot.split_once('@')?;
        Some(FillSource { disk: disk.into(), id: id.into(), store: store.into() })
    }

    /// What the pool remembers.
    pub fn text(&self) -> String {
        format!("{}@{} {}", self.disk, self.id, self.store)
    }

    /// `VM/DISK@ID`.
    pub fn snapshot(&self) -> String {
        format!("{}@{}", self.disk, self.id)
    }
}
