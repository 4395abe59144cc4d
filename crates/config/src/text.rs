//! Configuration text: parses TOML, and finds the position of a key in the text.

use std::ops::Range;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue, Deserializer};

use super::fault::{Faults, HighlightTarget, KeyPath, Step};

/// A syntactically valid TOML document, with positions.
#[derive(Clone)]
pub(super) struct Document<'t> {
    root: Spanned<DeTable<'t>>,
}

impl<'t> Document<'t> {
    /// Parses the text. Each syntax error becomes a fault. `None`: there was at least one.
    pub(super) fn parse(text: &'t str, faults: &mut Faults) -> Option<Self> {
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            faults.add_at(error.span(), error.message().trim_end_matches('.').replace('\n', ", "));
        }
        errors.is_empty().then_some(Self { root })
    }

    /// Root table of the document.
    pub(super) fn root(&self) -> &DeTable<'t> {
        self.root.get_ref()
    }

    /// Byte range of a path: a scalar value itself, else the key that leads to it. When the path
    /// goes further than the file, the range of the last part that exists. Empty for the whole
    /// file.
    pub(super) fn locate(&self, path: &KeyPath, aim: HighlightTarget) -> Range<usize> {
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
            Some(value) if aim == HighlightTarget::Value && is_plain(value.get_ref()) => value.span(),
            _ => span,
        }
    }

    /// Removes all values at the `unfit` paths: unknown keys, and tables that cannot be read.
    pub(super) fn prune(&mut self, unfit: &[KeyPath]) {
        // Remove from the back, so that the remaining indices of an array stay correct.
        let mut unfit: Vec<&KeyPath> = unfit.iter().collect();
        unfit.sort();
        for path in unfit.into_iter().rev() {
            if let Some((Step::Key(first), rest)) = path.steps().split_first() {
                remove(self.root.get_mut(), first, rest);
            }
        }
    }

    /// Deserializes the whole document. An error that the checks did not find becomes a fault.
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
