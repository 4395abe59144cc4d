//! Form post page: an authorization response that the browser posts (OAuth 2.0 Form Post Response
//! Mode).
//!
//! Owns: its view model, and the only script of the pages, which submits the form. Without scripts
//! the user presses a button.

use std::sync::LazyLock;

use askama::Template;
use aws_lc_rs::digest;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use ::pages::{FormTarget, Phrase};

use super::View;
use super::messages::Words;

/// Submits the form of the page.
const SCRIPT: &str = "document.forms[0].submit()";

/// View model of the page that posts an authorization response to a client.
#[derive(Debug, Clone, Copy)]
pub struct FormPost<'a> {
    /// The client's redirect URI.
    pub action: &'a str,
    /// Names and values, not escaped.
    pub fields: &'a [(&'static str, String)],
    /// Display name of the client.
    pub client: &'a str,
    /// Targets of the form.
    pub form_targets: &'a [FormTarget],
}

#[derive(Template)]
#[template(path = "pages/form_post.html")]
struct Markup<'a> {
    title: &'a Phrase,
    w: &'a Words,
    v: &'a FormPost<'a>,
}

impl Markup<'_> {
    const SCRIPT: &'static str = SCRIPT;
}

impl FormPost<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let title = &w.form_post.title;
        View::new(title, &Markup { title, w, v: self })
    }
}

/// Source expression that allows only this script (CSP Level 3 §2.3.1).
pub(super) fn script_source() -> &'static str {
    static SOURCE: LazyLock<String> = LazyLock::new(|| {
        let digest = digest::digest(&digest::SHA256, SCRIPT.as_bytes());
        format!("'sha256-{}'", STANDARD.encode(digest))
    });
    &SOURCE
}
