//! How bad something is.

/// How bad it is, in order: what is known to be bad counts more than what is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Ok,
    Warning,
    Unknown,
    Critical,
}

impl Level {
    /// The exit code of monitoring plugins.
    pub fn code(self) -> u8 {
        match self {
            Level::Ok => 0,
            Level::Warning => 1,
            Level::Critical => 2,
            Level::Unknown => 3,
        }
    }

    /// As plugins write it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "OK",
            Level::Warning => "WARNING",
            Level::Critical => "CRITICAL",
            Level::Unknown => "UNKNOWN",
        }
    }
}

/// Something that is not as it should be.
pub struct Problem {
    pub level: Level,
    pub what: String,
}
