//! Everything that the workspace's sources define, by name.

use crate::sources::Files;
use std::collections::{BTreeMap, HashMap};
use syn::visit::{self, Visit};
use syn::{Ident, ImplItem, Item, TraitItem, Type};

/// The paths of all definitions, by their last segment.
#[derive(Default)]
pub struct Defined(HashMap<String, Vec<Vec<String>>>);

impl Defined {
    /// Collects the definitions in the sources of crates. The error names the file that does not parse.
    pub fn of(crates: &BTreeMap<String, Files>) -> Result<Defined, String> {
        let mut defined = Defined::default();
        for (name, files) in crates {
            for (file, text) in files {
                let parsed =
                    syn::parse_file(text).map_err(|why| format!("{name}: {file} does not parse: {why}"))?;
                defined.add_file(name, file, &parsed);
            }
        }
        Ok(defined)
    }

    fn add_file(&mut self, crate_name: &str, file: &str, parsed: &syn::File) {
        let mut path = vec![crate_name.to_owned()];
        for part in file.trim_end_matches(".rs").split('/').filter(|p| !matches!(*p, "lib" | "main")) {
            path.push(part.to_owned());
            self.add(&path);
        }
        Definitions { defined: self, path }.visit_file(parsed);
    }

    fn add(&mut self, path: &[String]) {
        if let Some(last) = path.last() {
            self.0.entry(last.clone()).or_default().push(path.to_vec());
        }
    }

    /// Whether `name()` or `path::name` is defined: some definition has this last segment, and the segments before it
    /// stand in its path in this order. Others may stand between them, as re-exports leave them out.
    pub fn contains(&self, name: &str) -> bool {
        let segments: Vec<&str> = name.trim_end_matches("()").split("::").collect();
        let Some((last, before)) = segments.split_last() else { return false };
        self.0.get(*last).into_iter().flatten().any(|path| {
            let mut above = path[..path.len() - 1].iter();
            before.iter().all(|segment| above.any(|part| part == segment))
        })
    }
}

/// Visits a file; `path` is where it is.
struct Definitions<'d> {
    defined: &'d mut Defined,
    path: Vec<String>,
}

impl Definitions<'_> {
    fn add(&mut self, name: &Ident) {
        self.path.push(name.to_string());
        self.defined.add(&self.path);
        self.path.pop();
    }

    fn below(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.path.push(name);
        visit(self);
        self.path.pop();
    }
}

impl<'ast> Visit<'ast> for Definitions<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let name = match item {
            Item::Const(i) => &i.ident,
            Item::Enum(i) => &i.ident,
            Item::Fn(i) => &i.sig.ident,
            Item::Mod(i) => &i.ident,
            Item::Static(i) => &i.ident,
            Item::Struct(i) => &i.ident,
            Item::Trait(i) => &i.ident,
            Item::Type(i) => &i.ident,
            Item::Macro(i) if i.ident.is_some() => {
                i.ident.iter().for_each(|name| self.add(name));
                return;
            }
            Item::Impl(i) => {
                if let Type::Path(of) = &*i.self_ty {
                    let of = of.path.segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
                    self.below(of, |this| visit::visit_item(this, item));
                }
                return;
            }
            _ => return,
        };
        self.add(name);
        self.below(name.to_string(), |this| {
            if let Item::Enum(i) = item {
                i.variants.iter().for_each(|variant| this.add(&variant.ident));
            }
            visit::visit_item(this, item);
        });
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        match item {
            ImplItem::Fn(i) => self.add(&i.sig.ident),
            ImplItem::Const(i) => self.add(&i.ident),
            _ => {}
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        match item {
            TraitItem::Fn(i) => self.add(&i.sig.ident),
            TraitItem::Const(i) => self.add(&i.ident),
            _ => {}
        }
    }
}
