//! The consent page, and what scopes mean in plain words.
//!
//! Owns: their view models. Does not own: which consents there are.

use askama::Template;

use super::address::FormTarget;
use super::{Form, Frame};
use crate::pages::messages::{Filled, Words};

/// A scope as told to a user.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The scope.
    pub name: &'a str,
    /// What it means, where the operator has said so, in the page's language.
    pub meaning: Option<&'a str>,
    /// Whether the user has not allowed it before.
    pub new: bool,
}

impl Scope<'_> {
    pub(super) fn told<'w>(&self, w: &'w Words) -> Filled<'w> {
        let s = &w.scope;
        match (self.meaning, self.name) {
            (Some(meaning), _) => Filled::bare(meaning),
            (None, "openid") => s.openid.filled(),
            (None, "profile") => s.profile.filled(),
            (None, "email") => s.email.filled(),
            (None, "address") => s.address.filled(),
            (None, "phone") => s.phone.filled(),
            (None, "groups") => s.groups.filled(),
            (None, "offline_access") => s.offline_access.filled(),
            (None, name) => s.other.with("scope", name),
        }
    }
}

/// Asks whether a client may have what it wants (field `decision`: `allow` or `deny`).
#[derive(Debug, Clone, Copy)]
pub struct Consent<'a> {
    /// Where it is sent, and with what.
    pub form: Form<'a>,
    /// The client's name.
    pub client: &'a str,
    /// Who is signed in.
    pub user: &'a str,
    /// What it wants.
    pub scopes: &'a [Scope<'a>],
    /// The host of the redirect URI: where the user is sent afterwards.
    pub returns_to: &'a str,
    /// Where the answer to the form may redirect.
    pub leads_to: &'a [FormTarget],
}

#[derive(Template)]
#[template(path = "pages/consent.html")]
struct Markup<'a> {
    f: Frame<'a>,
    w: &'a Words,
    v: &'a Consent<'a>,
    fresh: Vec<Filled<'a>>,
    had: Vec<Filled<'a>>,
}

impl Consent<'_> {
    pub(super) fn render(&self, f: Frame<'_>, w: &Words) -> askama::Result<String> {
        let told = |new| self.scopes.iter().filter(|s| s.new == new).map(|s| s.told(w)).collect();
        let (fresh, had) = (told(true), told(false));
        Markup { f: f.titled(&w.consent.title), w, v: self, fresh, had }.render()
    }
}
