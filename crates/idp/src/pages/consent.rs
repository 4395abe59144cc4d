//! Consent page, and descriptions of scopes.
//!
//! Owns: their view models. Does not own: consents.

use askama::Template;

use ::pages::{Filled, FormTarget};

use super::messages::Words;
use super::{Form, View};

/// A scope as shown to a user.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Name of the scope.
    pub name: &'a str,
    /// Description by the operator in the page's language, if there is one.
    pub meaning: Option<&'a str>,
    /// Whether the user has not granted it before.
    pub new: bool,
}

impl Scope<'_> {
    pub(super) fn description<'w>(&self, w: &'w Words) -> Filled<'w> {
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

/// View model of the consent page (field `decision`: `allow` or `deny`).
#[derive(Debug, Clone, Copy)]
pub struct Consent<'a> {
    /// Target and hidden fields of the form.
    pub form: Form<'a>,
    /// Display name of the client.
    pub client: &'a str,
    /// Login name of the user.
    pub user: &'a str,
    /// The requested scopes.
    pub scopes: &'a [Scope<'a>],
    /// Host of the redirect URI: where the browser is sent afterwards.
    pub returns_to: &'a str,
    /// Targets to which the response to the form may redirect.
    pub form_targets: &'a [FormTarget],
}

#[derive(Template)]
#[template(path = "pages/consent.html")]
struct Markup<'a> {
    w: &'a Words,
    v: &'a Consent<'a>,
    fresh: Vec<Filled<'a>>,
    had: Vec<Filled<'a>>,
}

impl Consent<'_> {
    pub(super) fn view<'w>(&self, w: &'w Words) -> View<'w> {
        let descriptions =
            |new| self.scopes.iter().filter(|s| s.new == new).map(|s| s.description(w)).collect();
        let (fresh, had) = (descriptions(true), descriptions(false));
        View::new(&w.consent.title, &Markup { w, v: self, fresh, had })
    }
}
