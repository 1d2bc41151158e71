//! What `cargo metadata` says of the workspace's crates.

use crate::house::{Crate, Use, When};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace.
pub struct Workspace {
    /// The folder of the repository.
    pub root: PathBuf,
    /// Its crates.
    pub crates: Vec<Crate>,
}

/// Asks cargo. The error is one line.
pub fn read() -> Result<Workspace, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .output()
        .map_err(|e| format!("cannot start cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let workspace =
        || Some(Workspace { root: metadata["workspace_root"].as_str()?.into(), crates: parse(&metadata)? });
    workspace().ok_or_else(|| "cargo metadata has another form than version 1".into())
}

/// The crates and what they use of this repository: what has a path, registry crates have none.
fn parse(metadata: &Value) -> Option<Vec<Crate>> {
    metadata["packages"].as_array()?.iter().map(parse_crate).collect()
}

fn parse_crate(package: &Value) -> Option<Crate> {
    let mut uses = Vec::new();
    for dependency in package["dependencies"].as_array()? {
        if dependency["path"].is_string() {
            let when = match dependency["kind"].as_str() {
                None => When::Always,
                Some("dev") => When::Tests,
                Some(_) => When::Building,
            };
            uses.push(Use { name: dependency["name"].as_str()?.into(), when });
        }
    }
    let folder = Path::new(package["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Crate { name: package["name"].as_str()?.into(), folder, uses })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_crates_of_the_repository_are_arrows() {
        let metadata = json!({ "packages": [{
            "name": "vault",
            "manifest_path": "/repo/crates/vault/Cargo.toml",
            "dependencies": [
                { "name": "thiserror", "kind": null, "source": "registry" },
                { "name": "store", "kind": null, "path": "/repo/crates/store", "rename": "objects" },
                { "name": "image", "kind": "dev", "path": "/repo/crates/image" },
                { "name": "format", "kind": "build", "path": "/repo/crates/format" },
            ],
        }]});
        let uses = [("store", When::Always), ("image", When::Tests), ("format", When::Building)]
            .map(|(name, when)| Use { name: name.into(), when });
        let vault = Crate { name: "vault".into(), folder: "/repo/crates/vault".into(), uses: uses.into() };
        assert_eq!(parse(&metadata), Some(vec![vault]));
        assert_eq!(parse(&json!({ "packages": 7 })), None);
    }

    #[test]
    fn this_workspace_is_read_and_stands() {
        let crates = read().unwrap().crates;
        assert!(crates.iter().any(|c| c.name == "xtask"));
        assert_eq!(crate::house::check(&crates), []);
    }
}
