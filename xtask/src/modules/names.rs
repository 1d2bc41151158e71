//! Which item a path names: definitions, imports and re-exports of each module, followed to the definition.

use super::tree::{is_for_tests, Tree};
use std::collections::HashMap;
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, UseTree};

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An item.
    Item { module: usize, name: String, kind: Kind },
    /// A module.
    Module(usize),
}

/// Kinds of items that differ in how they are named and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function, constant or static: a path ends here.
    Value,
    /// A type: a path may go on to a variant or an associated item.
    Type,
    /// A trait: importing it is using it, because its methods are then in scope.
    Trait,
    /// A macro.
    Macro,
}

/// One name that a `use` brings in.
#[derive(Clone, Debug)]
pub struct Import {
    /// The path, without a trailing `self`.
    pub path: Vec<String>,
    /// The name it gets here; none for a glob.
    pub name: Option<String>,
}

/// The names of all modules of a tree.
pub struct Names<'t> {
    tree: &'t Tree,
    modules: Vec<Scope>,
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, Vec<Entry>>,
    globs: Vec<Vec<String>>,
}

enum Entry {
    Target(Target),
    Import(Vec<String>),
}

impl<'t> Names<'t> {
    /// Collects the names of all modules.
    pub fn of(tree: &'t Tree) -> Names<'t> {
        let mut names = Names { tree, modules: tree.modules().map(|_| Scope::default()).collect() };
        for module in tree.modules() {
            if let Some(parent) = tree.module(module).parent {
                let name = tree.module(module).name.clone();
                names.modules[parent].add(name, Entry::Target(Target::Module(module)));
            }
            for item in &tree.module(module).items {
                names.define(module, item);
            }
        }
        names
    }

    fn define(&mut self, module: usize, item: &Item) {
        let mut imports = Imports::default();
        imports.visit_item(item);
        for import in imports.0 {
            match import.name {
                Some(name) => self.modules[module].add(name, Entry::Import(import.path)),
                None => self.modules[module].globs.push(import.path),
            }
        }
        let (name, kind) = match item {
            Item::Const(i) => (&i.ident, Kind::Value),
            Item::Static(i) => (&i.ident, Kind::Value),
            Item::Fn(i) => (&i.sig.ident, Kind::Value),
            Item::Enum(i) => (&i.ident, Kind::Type),
            Item::Struct(i) => (&i.ident, Kind::Type),
            Item::Type(i) => (&i.ident, Kind::Type),
            Item::Union(i) => (&i.ident, Kind::Type),
            Item::Trait(i) => (&i.ident, Kind::Trait),
            Item::Macro(i) => match &i.ident {
                Some(name) => (name, Kind::Macro),
                None => return,
            },
            _ => return,
        };
        let name = name.to_string();
        let target = Target::Item { module, name: name.clone(), kind };
        let exported =
            matches!(item, Item::Macro(i) if i.attrs.iter().any(|a| a.path().is_ident("macro_export")));
        let scope = if exported { self.tree.root(module) } else { module };
        self.modules[scope].add(name, Entry::Target(target));
    }

    /// Everything that a path means in a module; nothing where it leads out of the crate.
    pub fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        self.follow(module, path, &mut Vec::new())
    }

    /// `open` are the names that are being resolved, so that an import that leads to itself ends.
    fn follow(&self, module: usize, path: &[String], open: &mut Vec<(usize, String)>) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let start = match first.as_str() {
            "crate" | "$crate" => vec![Target::Module(self.tree.root(module))],
            "self" => vec![Target::Module(module)],
            "super" => self.tree.module(module).parent.map(Target::Module).into_iter().collect(),
            name => self.lookup(module, name, open),
        };
        rest.iter().fold(start, |targets, segment| {
            targets.iter().flat_map(|target| self.step(target, segment, open)).collect()
        })
    }

    fn step(&self, target: &Target, segment: &str, open: &mut Vec<(usize, String)>) -> Vec<Target> {
        match (target, segment) {
            (Target::Module(module), "self") => vec![Target::Module(*module)],
            (Target::Module(module), "super") => {
                self.tree.module(*module).parent.map(Target::Module).into_iter().collect()
            }
            (Target::Module(module), name) => self.lookup(*module, name, open),
            (Target::Item { kind: Kind::Type | Kind::Trait, .. }, _) => vec![target.clone()],
            (Target::Item { .. }, _) => Vec::new(),
        }
    }

    fn lookup(&self, module: usize, name: &str, open: &mut Vec<(usize, String)>) -> Vec<Target> {
        let entries = self.modules[module].names.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut targets = Vec::new();
        let mut imports = Vec::new();
        for entry in entries {
            match entry {
                Entry::Target(target) => targets.push(target.clone()),
                Entry::Import(path) => imports.push(path.clone()),
            }
        }
        if entries.is_empty() {
            let globs = self.modules[module].globs.iter();
            imports = globs.map(|glob| glob.iter().cloned().chain([name.to_owned()]).collect()).collect();
        }
        let this = (module, name.to_owned());
        if !open.contains(&this) {
            open.push(this);
            for path in imports {
                targets.extend(self.follow(module, &path, open));
            }
            open.pop();
        }
        targets
    }

    /// What a macro called by its bare name is. Its scope follows the text, not the modules: the name alone decides.
    pub fn resolve_macro(&self, name: &str) -> Vec<Target> {
        let entries = self.modules.iter().filter_map(|scope| scope.names.get(name)).flatten();
        let targets = entries.filter_map(|entry| match entry {
            Entry::Target(target @ Target::Item { kind: Kind::Macro, .. }) => Some(target.clone()),
            _ => None,
        });
        targets.collect()
    }
}

impl Scope {
    fn add(&mut self, name: String, entry: Entry) {
        self.names.entry(name).or_default().push(entry);
    }
}

/// Collects the imports of an item, those inside of function bodies too: they count for the whole module.
#[derive(Default)]
struct Imports(Vec<Import>);

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(super::tree::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.0.extend(imports(item));
    }
}

/// The names that a `use` brings in; none of another crate's by a leading `::`.
pub fn imports(item: &ItemUse) -> Vec<Import> {
    let mut imports = Vec::new();
    if item.leading_colon.is_none() {
        collect(&item.tree, &mut Vec::new(), &mut imports);
    }
    imports
}

fn collect(tree: &UseTree, path: &mut Vec<String>, imports: &mut Vec<Import>) {
    let mut add = |last: Option<String>, name: Option<String>| {
        let path = path.iter().cloned().chain(last.filter(|l| l != "self" || path.is_empty())).collect();
        imports.push(Import { path, name });
    };
    match tree {
        UseTree::Path(p) => {
            path.push(p.ident.to_string());
            collect(&p.tree, path, imports);
            path.pop();
        }
        UseTree::Name(n) if n.ident == "self" => add(None, path.last().cloned()),
        UseTree::Name(n) => add(Some(n.ident.to_string()), Some(n.ident.to_string())),
        UseTree::Rename(r) => add(Some(r.ident.to_string()), Some(r.rename.to_string())),
        UseTree::Glob(_) => add(None, None),
        UseTree::Group(group) => group.items.iter().for_each(|t| collect(t, path, imports)),
    }
}
