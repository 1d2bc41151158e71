//! The Rust files of a crate.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The source files of a crate: path below `src` -> text.
pub type Files = BTreeMap<String, String>;

/// Reads every `.rs` file below the `src` folder of a crate. The error is one line.
pub fn read(crate_folder: &Path) -> Result<Files, String> {
    let mut files = Files::new();
    add(&crate_folder.join("src"), "", &mut files)?;
    Ok(files)
}

fn add(folder: &Path, below: &str, files: &mut Files) -> Result<(), String> {
    let failed = |e| format!("cannot read {}: {e}", folder.display());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        if path.is_dir() {
            add(&path, &format!("{below}{name}/"), files)?;
        } else if name.ends_with(".rs") {
            let text =
                fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            files.insert(format!("{below}{name}"), text);
        }
    }
    Ok(())
}
