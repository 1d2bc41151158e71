//! The disks that experiments store: sets made by `tools/make-images`, or small
//! generated ones.

pub mod generate;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context as _, Result};
use serde::Deserialize;

use crate::files;
use crate::images::generate::{write_disk, Content, DiskShape};

/// A set of disks, each with at least one version.
pub struct ImageSet {
    /// What the set is called in results.
    pub name: String,
    /// The disks.
    pub disks: Vec<Disk>,
}

/// One virtual disk and its versions, oldest first.
pub struct Disk {
    /// The disk's name in a vault, `vm/disk`.
    pub name: String,
    /// The distribution it was built from.
    pub suite: String,
    /// Raw images.
    pub versions: Vec<Image>,
}

/// One raw image.
pub struct Image {
    /// Absolute path.
    pub path: PathBuf,
    /// Length of the disk.
    pub size_bytes: u64,
}

impl Image {
    /// The image at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let describe = || format!("cannot read the image {}", path.display());
        let path = path.canonicalize().with_context(describe)?;
        let size_bytes = fs::metadata(&path).with_context(describe)?.len();
        Ok(Self { path, size_bytes })
    }
}

#[derive(Deserialize)]
struct Manifest {
    setting: String,
    disks: Vec<ManifestDisk>,
}

#[derive(Deserialize)]
struct ManifestDisk {
    name: String,
    #[serde(default)]
    suite: String,
    versions: Vec<ManifestVersion>,
}

#[derive(Deserialize)]
struct ManifestVersion {
    path: PathBuf,
}

/// The directory that `tools/make-images` writes its sets into.
pub fn default_root() -> Result<PathBuf> {
    if let Some(root) = variable("SAPWOOD_IMAGES") {
        return Ok(root.into());
    }
    Ok(cache()?.join("images"))
}

/// The directory of what is made once and used by many runs.
pub fn cache() -> Result<PathBuf> {
    let cache = match variable("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(variable("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(cache.join("sapwood"))
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

impl ImageSet {
    /// The set listed by `images.json` in `dir`.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("images.json");
        let text = fs::read(&path).with_context(|| {
            format!(
                "no image set at {}; make one with tools/make-images or name it with --images DIR",
                path.display()
            )
        })?;
        let manifest: Manifest =
            serde_json::from_slice(&text).with_context(|| format!("cannot understand {}", path.display()))?;
        let mut disks = Vec::new();
        for disk in manifest.disks {
            let versions = disk
                .versions
                .iter()
                .map(|version| Image::open(&dir.join(&version.path)))
                .collect::<Result<Vec<_>>>()?;
            if versions.is_empty() {
                bail!("{}: the disk {} has no versions", path.display(), disk.name);
            }
            disks.push(Disk { name: format!("{}/vda", disk.name), suite: disk.suite, versions });
        }
        if disks.is_empty() {
            bail!("{} lists no disks", path.display());
        }
        Ok(Self { name: manifest.setting, disks })
    }

    /// Writes a generated set into `dir`: `suites` families of `disks` disks each.
    pub fn generate(dir: &Path, seed: u64, shape: GeneratedShape) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let content = Content::new(seed);
        let mut set = Self { name: "generated".into(), disks: Vec::new() };
        for suite in 0..shape.suites {
            for disk in 0..shape.disks {
                let name = format!("suite{suite}-vm{disk}");
                let mut versions = Vec::new();
                for version in 0..shape.versions {
                    files::require_free(dir, shape.size_bytes)?;
                    let path = dir.join(format!("{name}-v{version}.raw"));
                    let disk_shape = DiskShape {
                        size_bytes: shape.size_bytes,
                        family: seed ^ ((suite + 1) << 8),
                        disk: seed ^ ((suite + 1) << 8) ^ ((disk + 1) << 16),
                        version,
                    };
                    write_disk(&content, &path, disk_shape)?;
                    versions.push(Image::open(&path)?);
                }
                set.disks.push(Disk {
                    name: format!("{name}/vda"),
                    suite: format!("suite{suite}"),
                    versions,
                });
            }
        }
        Ok(set)
    }

    /// Keeps the first `disks` disks and the first `versions` versions of each.
    pub fn truncate(&mut self, disks: Option<usize>, versions: Option<usize>) {
        self.disks.truncate(disks.unwrap_or(usize::MAX).max(1));
        for disk in &mut self.disks {
            disk.versions.truncate(versions.unwrap_or(usize::MAX).max(1));
        }
    }

    /// Versions of the disk that has most.
    pub fn versions_max(&self) -> usize {
        let counts = self.disks.iter().map(|disk| disk.versions.len());
        counts.max().unwrap_or(0)
    }
}

/// How large a generated set is.
#[derive(Clone, Copy)]
pub struct GeneratedShape {
    /// Families of disks with common content.
    pub suites: u64,
    /// Disks of each family.
    pub disks: u64,
    /// Versions of each disk.
    pub versions: u64,
    /// Length of each disk.
    pub size_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_of_make_images_is_understood() {
        let dir = tempfile::tempdir().expect("dir");
        fs::create_dir(dir.path().join("web")).expect("dir");
        fs::write(dir.path().join("web/v01.raw"), [1; 4096]).expect("image");
        fs::write(
            dir.path().join("images.json"),
            r#"{"setting": "small", "disks": [{"name": "web", "suite": "bookworm",
                "virtual_bytes": 4096, "partition_offset_bytes": 0, "versions": [
                {"path": "web/v01.raw", "allocated_bytes": 4096, "what": "installed"}]}]}"#,
        )
        .expect("manifest");
        let set = ImageSet::load(dir.path()).expect("load");
        assert_eq!(set.name, "small");
        assert_eq!(set.disks[0].name, "web/vda");
        assert_eq!(set.disks[0].suite, "bookworm");
        assert_eq!(set.disks[0].versions[0].size_bytes, 4096);
    }
}
