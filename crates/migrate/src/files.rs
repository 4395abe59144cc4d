//! Files that settings name, by their path in the container.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::input_fault::InputFault;
use crate::settings::Given;

/// Contents of files by their path in the container.
#[derive(Debug, Default, Clone)]
pub struct ContainerFiles(BTreeMap<String, String>);

impl ContainerFiles {
    /// Adds a file. One that is there already stays: it was given explicitly.
    pub fn add(&mut self, path: impl Into<String>, content: impl Into<String>) {
        self.0.entry(path.into()).or_insert_with(|| content.into());
    }

    /// Adds files. Those that are there already stay.
    pub fn extend(&mut self, others: Self) {
        for (path, content) in others.0 {
            self.add(path, content);
        }
    }

    /// The text of the file that a setting names.
    ///
    /// # Errors
    /// If the file was not given.
    pub fn text(&self, given: &Given) -> Result<&str, InputFault> {
        let missing = || InputFault::MissingFile { origin: given.origin.clone(), path: given.value.clone() };
        self.0.get(&given.value).map(String::as_str).ok_or_else(missing)
    }

    /// Reads the file that a setting names, as YAML or JSON.
    ///
    /// # Errors
    /// If the file was not given, or has another form.
    pub fn yaml<T: DeserializeOwned>(&self, given: &Given) -> Result<T, InputFault> {
        serde_saphyr::from_str(self.text(given)?)
            .map_err(|error| InputFault::File { name: given.value.clone(), why: first_line(&error) })
    }
}

/// The message of an error in YAML, without the lines of the file that follow it.
pub(crate) fn first_line(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}
