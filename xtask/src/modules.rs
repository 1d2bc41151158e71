//! Rooms in wings: no circle of a crate's modules, no circle of its folders, no crowded folder.
//!
//! A module is a source file. It uses another file if it names an item that is defined there; re-exports are
//! followed to the definition. What is compiled for unit tests only is left out.

mod graph;
mod names;
mod tree;
mod uses;
mod wrong;

use crate::sources::Files;
use graph::Graph;
use std::collections::BTreeMap;
use tree::Tree;
use wrong::FOLDER_FILES_MAX;

pub use wrong::Wrong;

/// The modules of a crate, and which uses which.
pub struct Modules {
    tree: Tree,
    uses: Graph<String>,
}

/// Everything that is wrong with the modules of a crate.
pub fn check(files: &Files) -> Vec<Wrong> {
    let mut wrongs = crowded(files);
    wrongs
        .extend(files.keys().filter(|f| f.ends_with("/mod.rs")).map(|f| Wrong::ModFile { file: f.clone() }));
    match Modules::of(files) {
        Ok(modules) => wrongs.extend(modules.circles()),
        Err(wrong) => wrongs.push(wrong),
    }
    wrongs
}

fn crowded(files: &Files) -> Vec<Wrong> {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files.keys() {
        *folders.entry(file.rsplit_once('/').map_or("src", |(folder, _)| folder)).or_default() += 1;
    }
    folders.retain(|_, count| *count > FOLDER_FILES_MAX);
    folders.into_iter().map(|(folder, files)| Wrong::Crowded { folder: folder.into(), files }).collect()
}

impl Modules {
    /// Reads the modules of a crate.
    pub fn of(files: &Files) -> Result<Modules, Wrong> {
        let tree = Tree::of(files)?;
        let uses = uses::between_files(&tree);
        Ok(Modules { tree, uses })
    }

    /// The files by floors, lowest first: a file uses files on lower floors only. The second list holds the files
    /// that have no floor, because they stand in a circle or use one that does.
    pub fn floors(&self) -> (Vec<Vec<&String>>, Vec<&String>) {
        self.uses.floors(self.tree.files())
    }

    fn circles(&self) -> Vec<Wrong> {
        let mut wrongs: Vec<Wrong> =
            self.uses.circles().iter().map(|files| Wrong::Circle { ties: self.uses.ties(files) }).collect();
        for parent in self.tree.modules() {
            let wings = self.between_children(parent);
            for folders in wings.circles() {
                // A circle of files that stand side by side is named already.
                if folders.iter().any(|folder| self.tree.has_folder(folder)) {
                    let ties = folders.iter().zip(folders.iter().cycle().skip(1));
                    let ties = ties.flat_map(|(from, to)| wings.names(from, to)).collect();
                    wrongs.push(Wrong::WingCircle { folders, ties });
                }
            }
        }
        wrongs
    }

    /// The arrows between the children of a module, each with everything below it.
    fn between_children(&self, parent: usize) -> Graph<String> {
        let mut wings = Graph::default();
        for (from, to, names) in self.uses.arrows() {
            let (Some(a), Some(b)) = (self.tree.child_with(parent, from), self.tree.child_with(parent, to))
            else {
                continue;
            };
            if a != b {
                wings.add(a.clone(), b.clone(), graph::tie(from, to, names));
            }
        }
        wings
    }
}

#[cfg(test)]
mod tests;
