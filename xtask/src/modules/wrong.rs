//! What a check of modules can find.

use std::fmt;

/// So many source files a folder may hold; those in its subfolders do not count.
pub const FOLDER_FILES_MAX: usize = 14;

/// What a check of modules found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A source file that cannot be taken apart.
    Unreadable { file: String, why: String },
    /// Files that use each other in a circle; each line is one arrow of it.
    Circle { ties: Vec<String> },
    /// Folders that use each other in a circle, by files that do not.
    WingCircle { folders: Vec<String>, ties: Vec<String> },
    /// A folder with too many files.
    Crowded { folder: String, files: usize },
    /// A module's file inside its folder, not beside it.
    ModFile { file: String },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Unreadable { file, why } => write!(f, "{file}: {why}"),
            Wrong::Circle { ties } => write!(f, "circle of modules\n    {}", ties.join("\n    ")),
            Wrong::WingCircle { folders, ties } => {
                write!(f, "circle of folders: {}\n    {}", folders.join(" -> "), ties.join("\n    "))
            }
            Wrong::Crowded { folder, files } => {
                write!(f, "{folder}: {files} source files in one folder, {FOLDER_FILES_MAX} are allowed")
            }
            Wrong::ModFile { file } => {
                write!(f, "{file}: a module's file stands beside its folder (foo.rs, not foo/mod.rs)")
            }
        }
    }
}
