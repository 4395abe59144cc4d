//! Names: former names that mean nothing outside this project are gone from the crates that had
//! them. No public type name occurs in more than two crates.
//!
//! The test checks the names of modules, types and functions only, so an ordinary word stays usable
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// Renamed modules, types and functions: their crates, and the former names.
const FORMER: [(&[&str], &[&str]); 8] = [
    (
        &["http_engine", "telemetry", "credentials", "login", "gateway"],
        &[
            "leg",
            "Leg",
            "passage",
            "Sieve",
            "vouch",
            "Voucher",
            "stay",
            "Stay",
            "followed",
            "asked",
            "under_way",
            "answer_self",
            "fault",
            "inbound",
            "Inbound",
            "outbound",
            "Outbound",
            "collect",
            "Running",
            "bench",
            "Bench",
            "Court",
            "Barred",
            "give_way",
            "share",
            "board",
            "Board",
            "hold",
            "Hold",
            "flight",
            "graves",
            "Graves",
            "recognise",
            "attempt",
            "lasting",
            "Lasting",
            "ended",
            "meaning",
        ],
    ),
    (
        &["coherence"],
        &[
            "words",
            "end",
            "drive",
            "roster",
            "Roster",
            "statement",
            "Statement",
            "confirm",
            "Confirm",
            "denials",
            "Denials",
            "tries",
            "Tries",
            "trouble",
        ],
    ),
    (&["store"], &["told", "storing", "standing", "Standing", "seen", "loan", "Loan", "copy", "sweep"]),
    (&["idp"], &["believed", "ending", "tend", "ambient", "visit", "flow", "words", "pushed", "documents"]),
    (
        &["lab", "lab_load", "lab_analysis"],
        &["desk", "analyse", "hold", "feed", "flow", "beside", "place", "live", "own_use"],
    ),
    (&["config"], &["sound", "Sound", "start"]),
    (
        &["postern"],
        &[
            "following",
            "Following",
            "facts",
            "desk",
            "Desk",
            "copies",
            "story",
            "Story",
            "town",
            "Town",
            "tour",
            "Tour",
            "scenes",
        ],
    ),
    (&["auth"], &["Court"]),
];

/// Public type names in more than two crates, and why.
const SHARED: [(&str, &str); 1] = [("Limits", "bounds of what each crate holds")];

/// Former names of modules that are the field's name of a function, and why.
const FUNCTIONS: [(&str, &str); 1] = [("collect", "Prometheus collects its sources of metrics")];

#[derive(Default)]
struct Items {
    /// Modules, types and functions, public or not, with their files.
    all: BTreeSet<(String, String)>,
    public: BTreeSet<String>,
}

impl Items {
    fn of(root: &Path) -> Self {
        let mut items = Self::default();
        items.read(root, root);
        items
    }

    fn read(&mut self, folder: &Path, root: &Path) {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let stem = entry.file_stem().unwrap().to_string_lossy().into_owned();
            let place = entry.strip_prefix(root).unwrap().display().to_string();
            if entry.is_dir() {
                self.all.insert((stem, place));
                self.read(&entry, root);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                if !["lib", "main", "mod"].contains(&&*stem) {
                    self.all.insert((stem, place.clone()));
                }
                let parsed = syn::parse_file(&fs::read_to_string(&entry).unwrap()).unwrap();
                let mut types = Types { names: Vec::new(), public: Vec::new() };
                types.visit_file(&parsed);
                self.all.extend(types.names.into_iter().map(|name| (name, place.clone())));
                // Raw types of the configuration have the names of its keys.
                if !root.join(&place).starts_with(root.join("raw")) || !root.ends_with("config/src") {
                    self.public.extend(types.public);
                }
            }
        }
    }
}

struct Types {
    names: Vec<String>,
    public: Vec<String>,
}

impl<'ast> Visit<'ast> for Types {
    fn visit_signature(&mut self, function: &'ast syn::Signature) {
        let name = function.ident.to_string();
        if !FUNCTIONS.iter().any(|(allowed, _)| *allowed == name) {
            self.names.push(name);
        }
        visit::visit_signature(self, function);
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (name, visibility) = match item {
            syn::Item::Struct(item) => (&item.ident, &item.vis),
            syn::Item::Enum(item) => (&item.ident, &item.vis),
            syn::Item::Trait(item) => (&item.ident, &item.vis),
            syn::Item::Type(item) => (&item.ident, &item.vis),
            _ => return visit::visit_item(self, item),
        };
        self.names.push(name.to_string());
        if matches!(visibility, syn::Visibility::Public(_)) {
            self.public.push(name.to_string());
        }
        visit::visit_item(self, item);
    }
}

fn sources() -> Vec<(String, PathBuf)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path());
    let sources = folders
        .map(|folder| (folder.file_name().unwrap().to_string_lossy().into_owned(), folder.join("src")));
    sources.filter(|(_, source)| source.join("lib.rs").exists()).collect()
}

#[test]
fn former_names_are_gone() {
    let mut found = Vec::new();
    for (name, source) in sources() {
        let items = Items::of(&source);
        for (_, former) in FORMER.iter().filter(|(rooms, _)| rooms.contains(&&*name)) {
            let old = items.all.iter().filter(|(item, _)| former.contains(&&**item));
            found.extend(old.map(|(item, place)| format!("{name}/{place}: {item}")));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let mut crates = BTreeMap::<String, BTreeSet<String>>::new();
    for (name, source) in sources() {
        for public in Items::of(&source).public {
            crates.entry(public).or_default().insert(name.clone());
        }
    }
    assert!(crates.len() > 500, "the types were not found");
    let many =
        crates.iter().filter(|(name, at)| at.len() > 2 && !SHARED.iter().any(|(shared, _)| shared == name));
    let many: Vec<_> = many.map(|(name, at)| format!("{name}: {at:?}")).collect();
    assert!(many.is_empty(), "\n{}", many.join("\n"));
    for (shared, why) in SHARED {
        assert!(
            crates.get(shared).is_some_and(|at| at.len() > 2),
            "{shared} ({why}) need not be on the list"
        );
    }
}
