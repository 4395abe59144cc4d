//! Partial configuration: reads the text into raw tables and keeps as much as possible in spite of
//! faults.
//!
//! A table whose shape has a fault is left out, and its name is remembered. So a reference to it
//! causes no further fault. All other tables are checked.

use std::collections::{BTreeMap, BTreeSet};

use toml::de::{DeTable, DeValue};

use super::fault::{Faults, KeyPath, Step};
use super::raw;
use super::schema::SCHEMA;
use super::shape::{self, Shape};
use super::text::Document;

/// The tables that could be read.
pub(super) struct Partial {
    pub(super) file: raw::File,
    /// Positions in the text of the elements that were read, by section.
    kept_indices: BTreeMap<String, Vec<usize>>,
    /// Elements that were left out, by section.
    unreadable: BTreeMap<String, NotUsable>,
}

/// Elements of a section that could not be read.
#[derive(Debug, Default)]
struct NotUsable {
    names: BTreeSet<String>,
    /// Whether an element without a readable name was left out. It may have any name.
    any_name: bool,
}

impl Partial {
    /// Reads the tables of a document. This consumes the document: find positions with another
    /// parse of the same text.
    pub(super) fn read(mut document: Document<'_>, faults: &mut Faults) -> Option<Self> {
        let Shape { unknown, invalid: wrong } = shape::check(&SCHEMA, document.root(), faults);
        let unfit_paths: BTreeSet<KeyPath> = wrong.iter().map(enclosing_table).collect();
        let mut unfit = BTreeMap::<String, NotUsable>::new();
        for path in &unfit_paths {
            if let [Step::Key(section), element] = path.steps() {
                let entry = unfit.entry(section.clone()).or_default();
                match name_of(document.root(), section, element) {
                    Some(name) => drop(entry.names.insert(name)),
                    None => entry.any_name = true,
                }
            } else if let [Step::Key(section), Step::Key(inner), Step::Index(_)] = path.steps() {
                unfit.entry(format!("{section}.{inner}")).or_default().any_name = true;
            } else if let [Step::Key(section)] = path.steps() {
                unfit.entry(section.clone()).or_default().any_name = true;
            }
        }
        let kept = document.root().iter().map(|(key, value)| (key.get_ref().to_string(), value.get_ref()));
        let kept = kept.filter_map(|(section, value)| {
            let count = value.as_array()?.len();
            let base = KeyPath::top_level(&section);
            let kept = (0..count).filter(|i| !unfit_paths.contains(&base.index(*i))).collect();
            Some((section, kept))
        });
        let mut kept: BTreeMap<_, _> = kept.collect();
        let clients = document.root().get("provider").and_then(|provider| provider.get_ref().get("client"));
        if let Some(clients) = clients.and_then(|clients| clients.get_ref().as_array()) {
            let base = KeyPath::top_level("provider").key("client");
            let indices = (0..clients.len()).filter(|i| !unfit_paths.contains(&base.index(*i)));
            kept.insert("provider.client".into(), indices.collect());
        }
        // The table of an unknown key may be removed as a whole. The key is then not there any
        // more.
        let inside = |p: &KeyPath| unfit_paths.contains(&enclosing_table(p));
        let mut gone: Vec<KeyPath> = unknown.into_iter().filter(|p| !inside(p)).collect();
        gone.extend(unfit_paths.iter().cloned());
        document.prune(&gone);
        let file = document.read(faults)?;
        Some(Self { file, kept_indices: kept, unreadable: unfit })
    }

    /// A file without a fault in its shape.
    pub(super) fn whole(file: raw::File) -> Self {
        let counts = [
            ("route", file.route.len()),
            ("listener", file.listener.len()),
            ("upstream", file.upstream.len()),
        ];
        let kept = counts.map(|(section, count)| (section.into(), (0..count).collect()));
        Self { file, kept_indices: kept.into(), unreadable: BTreeMap::new() }
    }

    /// Returns the raw tables.
    pub(super) fn into_file(self) -> raw::File {
        self.file
    }

    /// The elements of a section, each with its path in the text.
    pub(super) fn paths<'a, T>(&self, section: &'a str, elements: &'a [T]) -> Vec<(KeyPath, &'a T)> {
        let indices = self.kept_indices.get(section).map_or(&[][..], Vec::as_slice);
        let base = KeyPath::default().join(section);
        elements.iter().zip(indices).map(|(element, index)| (base.index(*index), element)).collect()
    }

    /// Whether an element with this name may have been left out.
    pub(super) fn may_be_unreadable(&self, section: &str, name: &str) -> bool {
        self.unreadable.get(section).is_some_and(|u| u.any_name || u.names.contains(name))
    }

    /// Names of the elements that were left out.
    pub(super) fn unreadable_names(&self, section: &str) -> impl Iterator<Item = &str> {
        self.unreadable.get(section).into_iter().flat_map(|unfit| unfit.names.iter().map(String::as_str))
    }

    /// Whether the file configures a provider only: it has neither listeners nor routes.
    pub(super) fn is_provider_only(&self) -> bool {
        let provider = self.file.provider.is_some() || self.has_unreadable("provider");
        let gateway = !self.file.listener.is_empty() || !self.file.route.is_empty();
        provider && !gateway && !self.has_unreadable("listener") && !self.has_unreadable("route")
    }

    /// Whether routes may come from a cluster too. They may use what no route of the file uses.
    pub(super) fn has_objects(&self) -> bool {
        self.file.gateway_api.is_some() || self.has_unreadable("gateway_api")
    }

    /// Whether routes may be missing here, because some could not be read or come from a cluster.
    pub(super) fn has_other_routes(&self) -> bool {
        self.has_unreadable("route") || self.has_objects()
    }

    /// Whether any element of the section was left out.
    pub(super) fn has_unreadable(&self, section: &str) -> bool {
        self.unreadable.contains_key(section)
    }
}

/// The table that a faulty value makes unreadable: the element of a section with several, else the
/// section. The parts of the provider can be checked without each other.
fn enclosing_table(path: &KeyPath) -> KeyPath {
    match path.steps() {
        [Step::Key(section), Step::Index(index), ..] => KeyPath::top_level(section).index(*index),
        [Step::Key(section), Step::Key(name), ..] if section == "policies" => {
            KeyPath::top_level(section).key(name)
        }
        [Step::Key(section), Step::Key(inner), Step::Index(index), ..]
            if section == "provider" && inner == "client" =>
        {
            KeyPath::top_level(section).key(inner).index(*index)
        }
        [Step::Key(section), Step::Key(inner), ..]
            if section == "provider" && matches!(&**inner, "lifetimes" | "passwords") =>
        {
            KeyPath::top_level(section).key(inner)
        }
        [Step::Key(section), ..] => KeyPath::top_level(section),
        _ => path.clone(),
    }
}

fn name_of(root: &DeTable<'_>, section: &str, element: &Step) -> Option<String> {
    match (element, root.get(section)?.get_ref()) {
        (Step::Key(name), _) => Some(name.clone()),
        (Step::Index(index), DeValue::Array(array)) => {
            let table = array.get(*index)?.get_ref().as_table()?;
            Some(table.get("name")?.get_ref().as_str()?.to_owned())
        }
        _ => None,
    }
}
