//! `[pages]`: what people see of the gateway, the login and the provider.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pages for people: errors of the gateway, the login, and the provider.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Pages {
    /// Name, logo and colour of the pages.
    pub brand: Brand,
    /// Languages of the pages in addition to English and German: `tag = "file"`. `postern check
    /// --print-messages` prints such a file in English. A file for `en` or `de` replaces the
    /// built-in texts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub languages: BTreeMap<String, PathBuf>,
    /// Folder with templates that replace built-in parts: `page.html`, `error.html`, `style.css`. A
    /// missing file means the built-in part. Read again when one of them changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub templates: Option<PathBuf>,
}

/// Name, logo and colour of the pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Brand {
    /// Name of the site that users know.
    pub name: String,
    /// A path on the host of the page (`/assets/logo.svg`), or the image itself
    /// (`data:image/svg+xml;base64,…`, also png, webp, jpeg). Default: the first letter of the
    /// name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logo: Option<String>,
    /// Colour of the main button, `#rrggbb`. Any colour is possible, because the text on it is made
    /// readable.
    pub colour: String,
}

impl Default for Brand {
    fn default() -> Self {
        Self { name: "Postern".into(), logo: None, colour: "#2f5bd0".into() }
    }
}
