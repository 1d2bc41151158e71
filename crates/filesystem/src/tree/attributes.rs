//! Extended attributes of a node.

/// What a node has beside its content, owner, mode and times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Names (`user.comment`, `security.capability`) and values, sorted.
    pub values: Vec<(Vec<u8>, Vec<u8>)>,
    /// Those that cannot be read as an extended attribute.
    pub unread: Vec<Unread>,
}

/// An attribute that is there and cannot be read as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The name that it would have.
    pub name: Vec<u8>,
    /// Its size, if it is too large, or what is wrong with it.
    pub why: String,
}

impl Attributes {
    /// Attributes of which none is left out.
    pub fn complete(values: Vec<(Vec<u8>, Vec<u8>)>) -> Attributes {
        Attributes { values, unread: Vec::new() }
    }
}
