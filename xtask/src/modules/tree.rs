//! The modules of a crate with their items, read from the source files.

use super::wrong::Wrong;
use crate::sources::Files;
use std::collections::BTreeSet;
use syn::{Attribute, Item, ItemMod, Meta};

/// One module: a file, or a `mod` with a body in one.
pub struct Module {
    /// The file that it stands in.
    pub file: String,
    /// Its index in the tree is that of the module above; none at a root.
    pub parent: Option<usize>,
    /// Its own name; empty at a root.
    pub name: String,
    /// Everything in it but modules and what is compiled for tests only.
    pub items: Vec<Item>,
}

/// All modules of a crate; a parent comes before its children.
pub struct Tree(Vec<Module>);

impl Tree {
    /// Reads the modules that `lib.rs`, `main.rs` and the files in `bin` lead to.
    pub fn of(files: &Files) -> Result<Tree, Wrong> {
        let mut tree = Tree(Vec::new());
        for file in files.keys() {
            if file == "lib.rs" || file == "main.rs" || file.starts_with("bin/") {
                let folder = file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
                let items = parse(files, file)?;
                tree.add(files, file, None, String::new(), folder, items)?;
            }
        }
        Ok(tree)
    }

    /// `folder` is where the files of the module's children stand, with a slash at the end.
    fn add(
        &mut self,
        files: &Files,
        file: &str,
        parent: Option<usize>,
        name: String,
        folder: String,
        items: Vec<Item>,
    ) -> Result<(), Wrong> {
        let this = self.0.len();
        let (modules, items) = items
            .into_iter()
            .filter(|item| !is_for_tests(attributes(item)))
            .partition::<Vec<_>, _>(|item| matches!(item, Item::Mod(_)));
        self.0.push(Module { file: file.into(), parent, name, items });
        for module in modules {
            let Item::Mod(ItemMod { ident, content, .. }) = module else { continue };
            let name = ident.to_string();
            let below = format!("{folder}{name}/");
            match content {
                Some((_, items)) => self.add(files, file, Some(this), name, below, items)?,
                None => {
                    let candidates = [format!("{folder}{name}.rs"), format!("{below}mod.rs")];
                    let Some(child) = candidates.into_iter().find(|c| files.contains_key(c)) else {
                        return Err(Wrong::Unreadable {
                            file: file.into(),
                            why: format!("mod {name} has no file"),
                        });
                    };
                    let items = parse(files, &child)?;
                    self.add(files, &child, Some(this), name, below, items)?;
                }
            }
        }
        Ok(())
    }

    /// One module.
    pub fn module(&self, module: usize) -> &Module {
        &self.0[module]
    }

    /// All modules.
    pub fn modules(&self) -> std::ops::Range<usize> {
        0..self.0.len()
    }

    /// The files of all modules, each once.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.0.iter().map(|m| &m.file).collect::<BTreeSet<_>>().into_iter()
    }

    /// The root that a module belongs to.
    pub fn root(&self, module: usize) -> usize {
        self.ancestors(module).last().unwrap_or(module)
    }

    /// Whether a module is another one or stands below it.
    pub fn is_within(&self, module: usize, above: usize) -> bool {
        self.ancestors(module).any(|m| m == above)
    }

    /// A module and those above it, up to the root.
    pub fn ancestors(&self, module: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(module), |&m| self.0[m].parent)
    }

    /// The file of the child of `parent` that a file is or stands below.
    pub fn child_with(&self, parent: usize, file: &str) -> Option<&String> {
        let module = self.0.iter().position(|m| m.file == file)?;
        let child = self.ancestors(module).find(|&m| self.0[m].parent == Some(parent))?;
        Some(&self.0[child].file)
    }

    /// Whether other files stand below this one.
    pub fn has_folder(&self, file: &str) -> bool {
        let below = |m: &Module| m.parent.is_some_and(|p| self.0[p].file == file && m.file != file);
        self.0.iter().any(below)
    }
}

fn parse(files: &Files, file: &str) -> Result<Vec<Item>, Wrong> {
    let text = files.get(file).map(String::as_str).unwrap_or_default();
    let parsed = syn::parse_file(text)
        .map_err(|why| Wrong::Unreadable { file: file.into(), why: format!("does not parse: {why}") })?;
    Ok(if is_for_tests(&parsed.attrs) { Vec::new() } else { parsed.items })
}

/// Whether what bears these attributes is compiled for unit tests only: `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition: String = list.tokens.to_string().split_whitespace().collect();
            condition == "test" || condition.starts_with("all(test,")
        }
        _ => false,
    })
}

/// The attributes of an item.
pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}
