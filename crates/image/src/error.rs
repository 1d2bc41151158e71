//! What can go wrong with a disk image, split by what the caller can do about it.

/// The result of a call of this crate.
pub type Result<T> = std::result::Result<T, ImageError>;

/// An error of an image. Every variant names the file and carries its evidence.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The image's own structures are wrong.
    #[error("{path}: damaged or not a valid {format} image: {why}")]
    Corrupt {
        /// The file.
        path: String,
        /// The format it claims.
        format: &'static str,
        /// What is wrong, with offsets and values.
        why: String,
    },
    /// A feature that is known and not supported.
    #[error("{path}: {what} is not supported{}", .hint.map(|h| format!("; {h}")).unwrap_or_default())]
    Unsupported {
        /// The file.
        path: String,
        /// The feature.
        what: String,
        /// What to do instead.
        hint: Option<&'static str>,
    },
    /// The image names another file that it may not name.
    #[error("{path}: names {other:?} as its {role}, which is outside its own folder; allow it with --allow-backing-outside if you trust the image")]
    Outside {
        /// The image.
        path: String,
        /// The file it names.
        other: String,
        /// `backing file` or `extent`.
        role: &'static str,
    },
    /// The path cannot serve as what it was given for.
    #[error("{path}: {why}")]
    Refused {
        /// The path.
        path: String,
        /// Why, and what to do.
        why: String,
    },
    /// The operating system said no.
    #[error("{path}: cannot {op}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What was tried.
        op: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}
