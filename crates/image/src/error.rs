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
    /// A list of changes cannot be understood.
    #[error("{path}: no list of changes: {why}")]
    Changes {
        /// The file.
        path: String,
        /// What is wrong with it.
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
    /// The address of an export is not written as one is.
    #[error("{uri}: {why}")]
    Address {
        /// What was given.
        uri: String,
        /// What is wrong, and how it is written.
        why: String,
    },
    /// Another process has the file open, and does not share it.
    #[error("{path}: is in use by {by}; {hint}")]
    InUse {
        /// The file.
        path: String,
        /// The process.
        by: String,
        /// What to do.
        hint: &'static str,
    },
    /// The file became shorter while it was read.
    #[error("{path}: became shorter while it was read; take a snapshot of it, or stop what writes to it, and try again")]
    Shrunk {
        /// The file.
        path: String,
    },
    /// There is no room for the disk.
    #[error("{path}: the file system is full: {} MiB are needed and {} MiB are free", needed.div_ceil(1 << 20), free >> 20)]
    Full {
        /// The file being written.
        path: String,
        /// Bytes that the disk needs.
        needed: u64,
        /// Bytes that were free.
        free: u64,
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

impl ImageError {
    /// The structures of the image at `path` are wrong.
    pub(crate) fn corrupt(path: &str, format: &'static str, why: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), format, why: why.into() }
    }

    /// The image at `path` has a feature that is not supported; `hint` says what to do instead.
    pub(crate) fn unsupported(path: &str, what: impl Into<String>, hint: Option<&'static str>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into(), hint }
    }

    /// `path` cannot serve as what it was given for.
    pub(crate) fn refused(path: &str, why: impl Into<String>) -> Self {
        Self::Refused { path: path.to_owned(), why: why.into() }
    }

    /// `uri` is not the address of an export.
    pub(crate) fn address(uri: &str, why: impl Into<String>) -> Self {
        Self::Address { uri: uri.to_owned(), why: why.into() }
    }

    /// The system failed to `op` (a verb) `path`.
    pub(crate) fn io(path: &str, op: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), op, source }
    }

    /// An error of a [`ReadAt`](crate::ReadAt), which calls a file that became shorter `UnexpectedEof`.
    pub(crate) fn read(path: &str, op: &'static str, source: std::io::Error) -> Self {
        if source.kind() == std::io::ErrorKind::UnexpectedEof {
            return Self::Shrunk { path: path.to_owned() };
        }
        Self::io(path, op, source)
    }
}

/// The image that an error found deep inside it is about.
#[derive(Debug, Clone)]
pub(crate) struct Blame {
    /// What errors call the file.
    pub path: String,
    /// The format that it claims.
    pub format: &'static str,
}

impl Blame {
    /// The structures of the image are wrong.
    pub fn corrupt(&self, why: impl Into<String>) -> ImageError {
        ImageError::corrupt(&self.path, self.format, why)
    }

    /// The image has a feature that is not supported; `hint` says what to do instead.
    pub fn unsupported(&self, what: impl Into<String>, hint: Option<&'static str>) -> ImageError {
        ImageError::unsupported(&self.path, what, hint)
    }

    /// An error of a [`ReadAt`](crate::ReadAt).
    pub fn read(&self, source: std::io::Error) -> ImageError {
        ImageError::read(&self.path, "read", source)
    }
}
