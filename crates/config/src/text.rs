//! The file as text: its grammar, and where in it a key stands.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::fault::{Aim, Faults, KeyPath, Step};

/// A file that obeys the grammar of TOML.
#[derive(Clone)]
pub(super) struct Document<'t> {
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Reads the text; every breach of the grammar becomes a fault.
    pub(super) fn parse(text: &'t str, faults: &mut Faults) -> Option<Self> {
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            faults.add_at(error.span(), error.message().trim_end_matches('.').replace('\n', ", "));
        }
        errors.is_empty().then_some(Self { root })
    }

    /// The top table.
    pub(super) fn root(&self) -> &DeTable<'t> {
        self.root.get_ref()
    }

    /// The bytes a path stands for: a plain value itself, else the key that leads to it; when the path leads
    /// further than the file does, the last part that exists. Empty for the file as a whole.
    pub(super) fn locate(&self, path: &KeyPath, aim: Aim) -> Range<usize> {
        let (mut span, mut value) = (0..0, None::<&Spanned<DeValue<'t>>>);
        for step in path.steps() {
            let next = match (step, value.map(Spanned::get_ref)) {
                (Step::Key(key), None) => entry(self.root(), key),
                (Step::Key(key), Some(DeValue::Table(table))) => entry(table, key),
                (Step::Index(index), Some(DeValue::Array(array))) => array.get(*index).map(|v| (v.span(), v)),
                _ => None,
            };
            match next {
                Some((at, inner)) => (span, value) = (at, Some(inner)),
                None => return span,
            }
        }
        match value {
            Some(value) if aim == Aim::Value && is_plain(value.get_ref()) => value.span(),
            _ => span,
        }
    }

    /// Takes out what is not fit to be read: unknown keys, and whatever `unfit` paths lead to.
    pub(super) fn prune(&mut self, unfit: &[KeyPath]) {
        // from the back, so that positions in arrays stay true until they are used
        let mut unfit: Vec<&KeyPath> = unfit.iter().collect();
        unfit.sort();
        for path in unfit.into_iter().rev() {
            if let Some((Step::Key(first), rest)) = path.steps().split_first() {
                remove(self.root.get_mut(), first, rest);
            }
        }
    }

    /// Reads the whole into its type. Any error left is a fault like others.
    pub(super) fn read<T: DeserializeOwned>(self, faults: &mut Faults) -> Option<T> {
        match T::deserialize(Deserializer::from(self.root)) {
            Ok(value) => Some(value),
            Err(error) => {
                faults.add_at(error.span(), error.message().trim_end().replace('\n', ", "));
                None
            }
        }
    }
}

fn is_plain(value: &DeValue<'_>) -> bool {
    !value.is_table() && !value.is_array()
}

fn entry<'a, 't>(table: &'a DeTable<'t>, key: &str) -> Option<(Range<usize>, &'a Spanned<DeValue<'t>>)> {
    table.get_key_value(key).map(|(k, v)| (k.span(), v))
}

fn remove(table: &mut DeTable<'_>, key: &str, rest: &[Step]) {
    if rest.is_empty() {
        table.remove(key);
    } else if let Some(value) = table.get_mut(key) {
        remove_within(value.get_mut(), rest);
    }
}

fn remove_within(value: &mut DeValue<'_>, path: &[Step]) {
    match (path.split_first(), value) {
        (Some((Step::Key(key), rest)), DeValue::Table(table)) => remove(table, key, rest),
        (Some((Step::Index(index), [])), DeValue::Array(array)) if *index < array.len() => {
            let mut kept = DeArray::new();
            for (at, value) in array.iter().enumerate() {
                if at != *index {
                    kept.push(value.clone());
                }
            }
            *array = kept;
        }
        (Some((Step::Index(index), rest)), DeValue::Array(array)) => {
            if let Some(value) = array.get_mut(*index) {
                remove_within(value.get_mut(), rest);
            }
        }
        _ => {}
    }
}
