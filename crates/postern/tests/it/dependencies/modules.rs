//! Module dependencies: siblings under one parent never import each other in a circle.
//!
//! The test reads the source: `use` declarations, and paths in code and macro arguments. A parent
//! and its child do not count, and neither does code that is compiled for tests only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A module, by its path from the crate root.
type Module = Vec<String>;

/// Imports between siblings, with an example of each, under each parent.
type Arrows = BTreeMap<Module, BTreeMap<(String, String), String>>;

/// All modules of a crate, and the paths that each one names, from the crate root.
#[derive(Default)]
struct Crate {
    modules: BTreeSet<Module>,
    named: Vec<(Module, Module)>,
    /// Paths that begin outside the crate, and those that begin with a type.
    outside: Vec<(Module, Module)>,
}

impl Crate {
    fn read(root: &Path) -> Self {
        let mut this = Self::default();
        this.read_file(&root.join("lib.rs"), root, &[]);
        this
    }

    /// `folder` contains the files of the module's children.
    fn read_file(&mut self, file: &Path, folder: &Path, module: &[String]) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut names =
            Names { module: module.to_vec(), named: Vec::new(), outside: Vec::new(), children: Vec::new() };
        names.visit_file(&parsed);
        self.modules.insert(module.to_vec());
        self.named.extend(names.named);
        self.outside.extend(names.outside);
        for child in names.children {
            let path: PathBuf = folder.join(child.last().unwrap());
            let (own, inner) = (path.with_extension("rs"), path.join("mod.rs"));
            self.read_file(if own.exists() { &own } else { &inner }, &path, &child);
        }
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (from, to) in &self.named {
            let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            let (Some(a), Some(b)) = (from.get(common), to.get(common)) else { continue };
            if !self.modules.contains(&to[..=common]) {
                continue; // an item of the parent
            }
            let example = format!("{} names {}", from.join("::"), to.join("::"));
            let siblings = arrows.entry(from[..common].to_vec()).or_default();
            siblings.entry((a.clone(), b.clone())).or_insert(example);
        }
        arrows
    }
}

/// Collects the paths in one file.
struct Names {
    /// The file's module, or the inline module inside it.
    module: Module,
    named: Vec<(Module, Module)>,
    outside: Vec<(Module, Module)>,
    children: Vec<Module>,
}

impl Names {
    fn name(&mut self, path: &[String]) {
        let (start, rest) = match path.first().map(String::as_str) {
            Some("crate") => (Vec::new(), &path[1..]),
            Some("self") => (self.module.clone(), &path[1..]),
            Some("super") => {
                let ups = path.iter().take_while(|word| *word == "super").count();
                (self.module[..self.module.len().saturating_sub(ups)].to_vec(), &path[ups..])
            }
            Some(_) if path.len() > 1 => return self.outside.push((self.module.clone(), path.to_vec())),
            _ => return,
        };
        self.named.push((self.module.clone(), [&start, rest].concat()));
    }

    fn use_tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        match tree {
            syn::UseTree::Path(path) => {
                self.use_tree(&path.tree, &[before, &[path.ident.to_string()]].concat());
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, before)),
            syn::UseTree::Name(name) => self.name(&[before, &[name.ident.to_string()]].concat()),
            syn::UseTree::Rename(name) => self.name(&[before, &[name.ident.to_string()]].concat()),
            syn::UseTree::Glob(_) => self.name(before),
        }
    }

    /// Collects paths in the arguments of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::<String>::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name(&std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.name(&std::mem::take(&mut path));
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.name(&std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.name(&path);
    }
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition =
            attribute.path().is_ident("cfg").then(|| attribute.meta.require_list().ok()).flatten();
        condition.is_some_and(|list| {
            let first = list.tokens.to_string();
            first == "test" || first.starts_with("any (test") || first.contains("\"test_support\"")
        })
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.module.push(item.ident.to_string());
        if item.content.is_some() {
            visit::visit_item_mod(self, item);
        } else {
            self.children.push(self.module.clone());
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.name(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

/// Paths in a crate that begin outside it, with the module of each. Code that is compiled for tests
/// only is left out.
pub(super) fn outside(root: &Path) -> Vec<(String, Vec<String>)> {
    let outside = Crate::read(root).outside;
    outside.into_iter().map(|(module, path)| (module.join("::"), path)).collect()
}

/// A circle among the siblings, if there is one: each imports the next, and the last imports the
/// first.
fn circle(arrows: &BTreeMap<(String, String), String>) -> Option<Vec<&str>> {
    fn go<'a>(
        at: &'a str,
        arrows: &'a BTreeMap<(String, String), String>,
        way: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<Vec<&'a str>> {
        if let Some(start) = way.iter().position(|seen| *seen == at) {
            return Some(way[start..].to_vec());
        }
        if !done.insert(at) {
            return None;
        }
        way.push(at);
        let found =
            arrows.keys().filter(|(from, _)| from == at).find_map(|(_, to)| go(to, arrows, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    arrows.keys().find_map(|(from, _)| go(from, arrows, &mut Vec::new(), &mut done))
}

/// Faults of a crate, one line for each circle.
fn circles(name: &str, root: &Path) -> Vec<String> {
    let arrows = Crate::read(root).arrows();
    let of = |(parent, siblings): (&Module, &BTreeMap<(String, String), String>)| {
        let circle = circle(siblings)?;
        let next = circle.iter().cycle().skip(1);
        let examples = circle.iter().zip(next).map(|(a, b)| &*siblings[&((*a).to_owned(), (*b).to_owned())]);
        let examples: Vec<_> = examples.collect();
        Some(format!("{name}::{}: {} ({})", parent.join("::"), circle.join(" -> "), examples.join("; ")))
    };
    arrows.iter().filter_map(of).collect()
}

#[test]
fn siblings_import_each_other_in_no_circle() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut read = 0;
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.join("src/lib.rs").exists() {
            read += 1;
            found.extend(circles(&name, &path.join("src")));
        }
    }
    assert!(read > 10, "the crates were not found");
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_circle_is_found_however_it_is_spelt() {
    for (a, b, expected) in [
        ("use crate::b::Thing;", "use crate::a::Thing;", true),
        ("use super::b::Thing;", "use super::a::{Other, self as it};", true),
        ("fn f() { crate::b::g(); }", "fn g() { println!(\"{}\", crate::a::f()); }", true),
        ("impl crate::b::Trait for X {}", "pub trait Trait { fn f(x: super::a::X); }", true),
        ("use crate::b::Thing;", "pub struct Thing;", false),
        ("use crate::b::Thing;", "#[cfg(test)] mod tests { use crate::a::Thing; }", false),
        ("use crate::b::Thing;", "use crate::Parent;", false),
        ("use crate::b::Thing;", "use self::c::Thing; pub mod c { use super::super::a::Thing; }", true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lib.rs"), "pub mod a; pub mod b; pub struct Parent;").unwrap();
        fs::write(folder.path().join("a.rs"), a).unwrap();
        fs::write(folder.path().join("b.rs"), b).unwrap();
        assert_eq!(!circles("x", folder.path()).is_empty(), expected, "{a} {b}");
    }
}
