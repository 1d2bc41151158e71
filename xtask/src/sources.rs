//! Files of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Texts by path, with `/` between its parts: the source files of a crate below `src`, for example.
pub type Files = BTreeMap<String, String>;

/// Reads every `.rs` file below the `src` folder of a crate. The error is one line.
pub fn read(crate_folder: &Path) -> Result<Files, String> {
    let source = crate_folder.join("src");
    let mut files = Files::new();
    for path in paths(&source)?.into_iter().filter(|p| p.ends_with(".rs")) {
        let text = text(&source.join(&path))?;
        files.insert(path, text);
    }
    Ok(files)
}

/// The text of a file.
pub fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

/// Every file and folder below `root`, but build output and what is hidden.
pub fn paths(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut paths = BTreeSet::new();
    add(root, "", &mut paths)?;
    Ok(paths)
}

fn add(folder: &Path, below: &str, paths: &mut BTreeSet<String>) -> Result<(), String> {
    let failed = |e| format!("cannot read {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path: PathBuf = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        let name = format!("{below}{name}");
        if is_left_out(&path) {
            continue;
        }
        if path.is_dir() {
            add(&path, &format!("{name}/"), paths)?;
        }
        paths.insert(name);
    }
    Ok(())
}

/// Cargo marks its output folders with a `CACHEDIR.TAG`.
fn is_left_out(path: &Path) -> bool {
    let hidden = path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
    hidden || path.join("CACHEDIR.TAG").exists()
}
