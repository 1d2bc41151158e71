//! Which file names items of which other file.

use super::graph::Graph;
use super::names::{imports, Kind, Names, Target};
use super::tree::{attributes, is_for_tests, Tree};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, ImplItemFn, Item, ItemUse, Macro, Meta, Path, Visibility};

/// The arrows between the files of a tree, with the names of the items that are used.
pub fn between_files(tree: &Tree) -> Graph<String> {
    let names = Names::of(tree);
    let mut uses = Graph::default();
    for module in tree.modules() {
        let mut visitor = Uses { tree, names: &names, module, uses: &mut uses };
        tree.module(module).items.iter().for_each(|item| visitor.visit_item(item));
    }
    uses
}

struct Uses<'t> {
    tree: &'t Tree,
    names: &'t Names<'t>,
    module: usize,
    uses: &'t mut Graph<String>,
}

impl Uses<'_> {
    fn note(&mut self, target: Target) {
        let Target::Item { module, name, .. } = target else { return };
        let (from, to) = (&self.tree.module(self.module).file, &self.tree.module(module).file);
        if from != to {
            self.uses.add(from.clone(), to.clone(), name);
        }
    }

    fn note_path(&mut self, path: &[String]) {
        for target in self.names.resolve(self.module, path) {
            self.note(target);
        }
    }

    /// Whether an import is a use of the item. A parent that only hands on what its children define does not use it,
    /// so there only the names in its code count; a trait's methods bear no name.
    fn imports_use(&self, item: &ItemUse, target: &Target) -> bool {
        let Target::Item { module, kind, .. } = target else { return false };
        let handed_on = !matches!(item.vis, Visibility::Inherited);
        !self.tree.is_within(*module, self.module) || (*kind == Kind::Trait && !handed_on)
    }

    /// Notes the paths among the tokens of a macro or an attribute, which have no syntax of their own.
    fn scan(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut after = After::Other;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if after != After::Colons {
                        self.note_path(&std::mem::take(&mut path));
                    }
                    match after {
                        After::Dot => path.clear(),
                        After::Dollar if ident == "crate" => path.push("$crate".into()),
                        _ => path.push(ident.to_string()),
                    }
                    after = After::Other;
                }
                TokenTree::Punct(punct) => {
                    after = match (punct.as_char(), &after) {
                        (':', After::Colon) => After::Colons,
                        (':', _) => After::Colon,
                        ('.', After::Dot) => After::Other,
                        ('.', _) => After::Dot,
                        ('$', _) => After::Dollar,
                        _ => After::Other,
                    };
                    if !matches!(after, After::Colon | After::Colons) {
                        self.note_path(&std::mem::take(&mut path));
                    }
                }
                TokenTree::Group(group) => {
                    self.note_path(&std::mem::take(&mut path));
                    after = After::Other;
                    self.scan(group.stream());
                }
                TokenTree::Literal(_) => after = After::Other,
            }
        }
        self.note_path(&path);
    }
}

/// What stands before a token.
#[derive(PartialEq)]
enum After {
    Colon,
    Colons,
    Dot,
    Dollar,
    Other,
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        for import in imports(item) {
            for target in self.names.resolve(self.module, &import.path) {
                if self.imports_use(item, &target) {
                    self.note(target);
                }
            }
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() {
            let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.note_path(&segments);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        if let Some(name) = call.path.get_ident() {
            for target in self.names.resolve_macro(&name.to_string()) {
                self.note(target);
            }
        }
        self.visit_path(&call.path);
        self.scan(call.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if let Meta::List(list) = &attribute.meta {
            self.scan(list.tokens.clone());
        }
    }
}
