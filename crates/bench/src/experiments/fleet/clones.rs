//! The clones of a fleet, and how their images are made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::context::Context;
use crate::files::{for_each_read, DataRanges, Space, BLOCK_BYTES, READ_BYTES};
use crate::images::generate::{Content, Random};
use crate::images::{Image, ImageSet};

/// Versions of a clone: as it was cloned, and after each upgrade.
pub const VERSIONS: usize = 3;
/// Places at which a clone has data of its own.
const OWN_PLACES: u64 = 16;

/// A clone, and how it is made.
pub struct Clone<'a> {
    pub disk: String,
    /// What the template is called.
    pub template: String,
    /// The template and its upgrades.
    pub versions: &'a [Image],
    seed: u64,
    /// Of its template.
    pub is_first: bool,
    pub is_upgraded: bool,
}

impl Clone<'_> {
    /// Number of the newest version.
    pub fn newest(&self) -> usize {
        if self.is_upgraded {
            VERSIONS - 1
        } else {
            0
        }
    }
}

/// `clones` clones of each disk with enough versions, the first of each template first. The first `upgraded` of each
/// template get the upgrades.
pub fn fleet(sets: &[ImageSet], clones: usize, upgraded: usize) -> Vec<Clone<'_>> {
    let templates: Vec<_> =
        sets.iter().flat_map(|set| &set.disks).filter(|disk| disk.versions.len() >= VERSIONS).collect();
    let mut fleet = Vec::new();
    for number in 0..clones {
        for disk in &templates {
            let template = disk.name.split('/').next().unwrap_or_default().to_owned();
            fleet.push(Clone {
                disk: format!("{template}-{number}/vda"),
                template,
                versions: &disk.versions[..VERSIONS],
                seed: 1 + fleet.len() as u64,
                is_first: number == 0,
                is_upgraded: number < upgraded,
            });
        }
    }
    fleet
}

/// So many of the clones that are upgraded, from the first to the last.
pub fn spread<'a>(fleet: &'a [Clone<'a>], count: usize) -> Vec<&'a Clone<'a>> {
    let upgraded: Vec<_> = fleet.iter().filter(|c| c.is_upgraded).collect();
    let last = upgraded.len().saturating_sub(1);
    let steps = count.saturating_sub(1).max(1);
    (0..count.min(upgraded.len())).map(|n| upgraded[last * n / steps]).collect()
}

/// Makes images of clones, one at a time.
pub struct Maker<'a> {
    pub context: &'a Context,
    pub home: PathBuf,
    pub own_bytes: u64,
    /// Images are cut to this length.
    pub length_max: u64,
}

impl Maker<'_> {
    /// Makes a version of a clone: the template's, with data of its own at places that depend on the clone. Returns the
    /// file and its length.
    pub fn make(&self, clone: &Clone<'_>, number: usize) -> Result<(PathBuf, u64)> {
        let (image, path) = (&clone.versions[number], self.home.join("clone.raw"));
        self.context.require_free(Space::of(&image.path)?.allocated_bytes + self.own_bytes)?;
        let length = image.size_bytes.min(self.length_max);
        let file = copy_beginning(&image.path, &path, length)?;
        let (content, mut random) = (Content::new(clone.seed), Random::new(clone.seed));
        let blocks = length / BLOCK_BYTES as u64;
        let of_place = (self.own_bytes / OWN_PLACES / BLOCK_BYTES as u64).max(1);
        let mut block = vec![0; BLOCK_BYTES];
        for _ in 0..OWN_PLACES {
            let first = random.below(blocks.saturating_sub(of_place).max(1));
            for n in 0..of_place {
                content.fill(random.bits(), &mut block);
                file.write_all_at(&block, (first + n) * BLOCK_BYTES as u64)?;
            }
        }
        // What a tool is charged with is its own.
        file.sync_all()?;
        Ok((path, length))
    }
}

/// Copies the first `length` bytes of an image to a new file, without null blocks.
fn copy_beginning(image: &Path, path: &Path, length: u64) -> Result<File> {
    let (source, target) = (File::open(image)?, File::create(path).context("cannot make the clone")?);
    target.set_len(length)?;
    let mut buffer = vec![0; READ_BYTES];
    for (start, end) in DataRanges::new(&source)? {
        for_each_read(&source, start, end.min(length), &mut buffer, |offset, bytes| {
            for (n, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
                if !chunk::is_null(block) {
                    target.write_all_at(block, offset + (n * BLOCK_BYTES) as u64)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::Disk;

    fn disk(name: &str, versions: usize) -> Disk {
        let image = |_| Image { path: PathBuf::new(), size_bytes: 0 };
        Disk {
            name: format!("{name}/vda"),
            suite: String::new(),
            versions: (0..versions).map(image).collect(),
        }
    }

    #[test]
    fn the_beginning_of_an_image_is_copied_without_its_holes() {
        let dir = tempfile::tempdir().expect("dir");
        let image = File::create(dir.path().join("image")).expect("image");
        image.write_all_at(&[7; 5000], 8192).expect("write");
        image.write_all_at(&[9; 5000], 1 << 20).expect("write");
        let copy = dir.path().join("copy");
        copy_beginning(&dir.path().join("image"), &copy, 64 << 10).expect("copy");
        let bytes = std::fs::read(&copy).expect("read");
        assert_eq!((bytes.len(), bytes.iter().filter(|b| **b == 7).count()), (64 << 10, 5000));
    }

    #[test]
    fn clones_of_all_templates_take_turns() {
        let set = ImageSet { name: String::new(), disks: vec![disk("a", 3), disk("b", 2), disk("c", 4)] };
        let sets = [set];
        let fleet = fleet(&sets, 3, 2);
        let names: Vec<_> = fleet.iter().map(|c| c.disk.as_str()).collect();
        assert_eq!(names, ["a-0/vda", "c-0/vda", "a-1/vda", "c-1/vda", "a-2/vda", "c-2/vda"]);
        assert_eq!(fleet.iter().filter(|c| c.is_upgraded).count(), 4);
        let spread: Vec<_> = spread(&fleet, 3).iter().map(|c| c.disk.clone()).collect();
        assert_eq!(spread, ["a-0/vda", "c-0/vda", "c-1/vda"]);
    }
}
