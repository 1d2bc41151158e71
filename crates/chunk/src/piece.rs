//! What a segment is cut into.

/// One piece of a segment, in address order. Adjacent null pieces are merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A range of zeros: one or more null chunks.
    Null {
        /// Length.
        bytes: u32,
    },
    /// One chunk.
    Data {
        /// Length.
        bytes: u32,
    },
}

impl Piece {
    /// Length of the piece.
    pub fn bytes(self) -> u32 {
        match self {
            Self::Null { bytes } | Self::Data { bytes } => bytes,
        }
    }
}
