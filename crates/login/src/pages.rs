//! Pages of the login.
//!
//! Owns: their views and messages. Does not own: when they are shown; the document around a view,
//! brand, languages and response headers (crate [`pages`](::pages)). Every text from outside is
//! escaped.

use std::borrow::Cow;
use std::sync::Arc;

use ::pages::text::Shown;
use ::pages::{Catalog, Content, Filled, Language, LanguageFault, Phrase, PolicySources, Shell};
use askama::Template;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

/// The built-in texts, by language tag.
pub const BUILTIN: [(&str, &str); 2] =
    [("en", include_str!("../locales/en.toml")), ("de", include_str!("../locales/de.toml"))];

::pages::words! {
    sign_in: SignInWords {
        title, lead, again_title, form_kept, form_steps, new_tab, done_title, done_text,
    }
    sign_out: SignOutWords { title, text, submit, done_title, again }
    login_problem: LoginProblemWords {
        retry, note, code, no_cookie_title, no_cookie_text, not_started_title, not_started_text, no_provider_title,
        no_provider_text, no_page_title, no_page_text, refused_title, refused_text(provider error), ended_text,
        invalid_text(provider), later_title, silent_text(provider), unavailable_text, too_large_title,
        too_large_text, too_large_remedy, not_signed_out_title, not_signed_out_text,
    }
}

/// Names of the groups of these messages.
pub const GROUPS: &[&str] = <Words as ::pages::messages::Words>::GROUPS;

/// Renderer for the pages of the login.
#[derive(Debug)]
pub struct LoginPages {
    shell: Arc<Shell>,
    messages: Catalog<Words>,
    frame_ancestors: Option<Box<str>>,
}

impl LoginPages {
    /// Creates the renderer for a shell.
    ///
    /// # Errors
    /// Every fault in the messages of a language.
    pub fn new(shell: Arc<Shell>) -> Result<Self, Vec<LanguageFault>> {
        let messages = Catalog::read(shell.languages(), &BUILTIN)?;
        Ok(Self { shell, messages, frame_ancestors: None })
    }

    /// The same, shown in frames of these sources of `frame-ancestors`.
    #[must_use]
    pub fn with_frame_ancestors(self, frame_ancestors: Option<Box<str>>) -> Self {
        Self { frame_ancestors, ..self }
    }

    /// The pages in the language that a value of `Accept-Language` prefers.
    pub(crate) fn in_language(&self, accept_language: Option<&[u8]>) -> LocalizedPages<'_> {
        let accepted = accept_language.and_then(|value| std::str::from_utf8(value).ok());
        let language = self.shell.languages().choose(None, accepted);
        LocalizedPages { pages: self, language, w: self.messages.of(language) }
    }
}

/// The pages in one language.
#[derive(Clone, Copy)]
pub(crate) struct LocalizedPages<'p> {
    pages: &'p LoginPages,
    language: &'p Language,
    w: &'p Words,
}

/// The action that a page offers.
enum PageAction<'p> {
    Nothing,
    /// Choose one of several links: name and address.
    Choose(&'p [(String, String)]),
    /// Follow a link.
    Link(&'p Phrase, &'p str),
    /// Follow a link in a new tab.
    LinkInNewTab(&'p Phrase, &'p str),
}

#[derive(Template)]
#[template(path = "login/page.html")]
struct Markup<'p> {
    title: &'p Phrase,
    texts: Vec<Filled<'p>>,
    act: PageAction<'p>,
    note: Option<&'p Phrase>,
    /// The word for it, and the code of an error.
    code: Option<(&'p Phrase, &'static str)>,
}

/// The error that a page explains to the user.
pub(super) enum PageNotice {
    /// The browser sent no login cookie.
    NoCookie,
    /// The login did not begin in this browser.
    NotStarted,
    /// There is no provider of this name.
    NoProvider,
    /// The login has no page at this address.
    NoPage,
    /// The provider refused the login.
    Refused {
        /// The provider's display name.
        title: String,
        /// The provider's error.
        error: String,
    },
    /// The session was ended while the login was in progress.
    Ended,
    /// The provider's answer is invalid.
    InvalidAnswer {
        /// The provider's display name.
        title: String,
    },
    /// The provider gives no answer.
    ProviderSilent {
        /// The provider's display name.
        title: String,
    },
    /// The session does not fit into a cookie.
    TooLarge,
    /// This gateway cannot process the login.
    Unavailable,
    /// The session could not be ended.
    NotSignedOut,
}

impl LocalizedPages<'_> {
    /// The page to choose a provider.
    pub(super) fn sign_in(self, choices: &[(String, String)]) -> LocalReply {
        let w = &self.w.sign_in;
        let view = Markup::new(&w.title, vec![w.lead.filled()], PageAction::Choose(choices));
        self.page(200, ("sign_in", Outcome::Local), &view)
    }

    /// The page for a form that was sent after the session ended.
    pub(super) fn expired(self, start: &str) -> LocalReply {
        let w = &self.w.sign_in;
        let texts = vec![w.form_kept.filled(), w.form_steps.filled()];
        let view = Markup::new(&w.again_title, texts, PageAction::LinkInNewTab(&w.new_tab, start));
        self.page(401, ("login_required", Outcome::Unauthenticated), &view)
    }

    /// The page after a login in a separate tab.
    pub(super) fn done(self) -> LocalReply {
        let w = &self.w.sign_in;
        let view = Markup::new(&w.done_title, vec![w.done_text.filled()], PageAction::Nothing);
        self.page(200, ("signed_in", Outcome::Local), &view)
    }

    /// The page that confirms a logout which another site requested. It offers a link, because a
    /// form would fail: browsers apply `form-action` to redirects too, and these lead to the
    /// provider.
    pub(super) fn sign_out(self, address: &str) -> LocalReply {
        let w = &self.w.sign_out;
        let view = Markup::new(&w.title, vec![w.text.filled()], PageAction::Link(&w.submit, address));
        self.page(200, ("sign_out", Outcome::Local), &view)
    }

    /// The page after a logout.
    pub(super) fn signed_out(self, start: &str) -> LocalReply {
        let w = &self.w.sign_out;
        let view = Markup::new(&w.done_title, Vec::new(), PageAction::Link(&w.again, start));
        self.page(200, ("signed_out", Outcome::Local), &view)
    }

    /// The page for an error; `again` is the address to start again.
    pub(super) fn problem(self, notice: &PageNotice, again: Option<&str>) -> LocalReply {
        let w = &self.w.login_problem;
        let (status, code, outcome) = notice.row();
        let (title, text) = notice.messages(w);
        let act = again.map_or(PageAction::Nothing, |again| PageAction::Link(&w.retry, again));
        // Users cannot help themselves, but operators can.
        let remedy = matches!(notice, PageNotice::TooLarge).then_some(&w.too_large_remedy);
        let texts = [text].into_iter().chain(remedy.map(Phrase::filled)).collect();
        let note = (remedy.is_none() && status != 404).then_some(&w.note);
        let view = Markup { note, code: Some((&w.code, code)), ..Markup::new(title, texts, act) };
        let mut answer = self.page(status, (code, outcome), &view);
        if status == 503 {
            answer.fields.push(("retry-after".into(), "5".into()));
        }
        answer
    }

    fn page(self, status: u16, (code, outcome): (&'static str, Outcome), view: &Markup<'_>) -> LocalReply {
        let Ok(main) = view.render() else { return LocalReply::from_code(500, "page", Outcome::Malformed) };
        let frame_ancestors = self.pages.frame_ancestors.as_deref();
        let sources = PolicySources { frame_ancestors, ..PolicySources::default() };
        let page = self
            .pages
            .shell
            .page(self.language, &Content { status, title: view.title, wide: false, main, sources });
        LocalReply {
            status: page.status,
            code,
            outcome,
            fields: page.fields.into_iter().map(|(name, value)| (Cow::Borrowed(name), value)).collect(),
            body: page.body.into_bytes().into(),
            close: false,
        }
    }
}

impl<'p> Markup<'p> {
    fn new(title: &'p Phrase, texts: Vec<Filled<'p>>, act: PageAction<'p>) -> Self {
        Self { title, texts, act, note: None, code: None }
    }
}

impl PageNotice {
    /// The table of errors: status, code and outcome.
    fn row(&self) -> (u16, &'static str, Outcome) {
        match self {
            Self::NoCookie => (400, "login_cookie_missing", Outcome::Malformed),
            Self::NotStarted => (400, "login_not_begun", Outcome::Malformed),
            Self::NoProvider => (404, "login_provider_unknown", Outcome::NoRoute),
            Self::NoPage => (404, "no_route", Outcome::NoRoute),
            Self::Refused { .. } | Self::Ended => (403, "login_refused", Outcome::Forbidden),
            Self::InvalidAnswer { .. } => (403, "login_unbelievable", Outcome::Forbidden),
            Self::ProviderSilent { .. } => (503, "login_provider_unavailable", Outcome::AuthUnavailable),
            Self::TooLarge => (403, "login_session_too_large", Outcome::Forbidden),
            Self::Unavailable => (503, "login_unavailable", Outcome::AuthUnavailable),
            Self::NotSignedOut => (503, "logout_unavailable", Outcome::AuthUnavailable),
        }
    }

    /// Title and text.
    fn messages<'p>(&self, w: &'p LoginProblemWords) -> (&'p Phrase, Filled<'p>) {
        match self {
            Self::NoCookie => (&w.no_cookie_title, w.no_cookie_text.filled()),
            Self::NotStarted => (&w.not_started_title, w.not_started_text.filled()),
            Self::NoProvider => (&w.no_provider_title, w.no_provider_text.filled()),
            Self::NoPage => (&w.no_page_title, w.no_page_text.filled()),
            Self::Refused { title, error } => {
                (&w.refused_title, w.refused_text.with("provider", title).and("error", Shown(error)))
            }
            Self::Ended => (&w.refused_title, w.ended_text.filled()),
            Self::InvalidAnswer { title } => (&w.refused_title, w.invalid_text.with("provider", title)),
            Self::ProviderSilent { title } => (&w.later_title, w.silent_text.with("provider", title)),
            Self::TooLarge => (&w.too_large_title, w.too_large_text.filled()),
            Self::Unavailable => (&w.later_title, w.unavailable_text.filled()),
            Self::NotSignedOut => (&w.not_signed_out_title, w.not_signed_out_text.filled()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: &LocalReply) -> String {
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    /// A page in a language.
    fn shown(tag: &str, page: impl FnOnce(LocalizedPages<'_>) -> LocalReply) -> LocalReply {
        page(LoginPages::new(Arc::default()).unwrap().in_language(Some(tag.as_bytes())))
    }

    #[test]
    fn english_and_german_have_the_same_keys_and_placeholders() {
        let [(_, english), (_, german)] = BUILTIN;
        assert_eq!(::pages::messages::keys(english), ::pages::messages::keys(german));
    }

    #[test]
    fn every_page_is_in_the_language_of_the_browser() {
        for (tag, titles) in [
            ("en", ["Sign in", "Sign in again", "You are signed in", "Sign out?", "You are signed out"]),
            (
                "de",
                [
                    "Anmelden",
                    "Bitte noch einmal anmelden",
                    "Sie sind angemeldet",
                    "Abmelden?",
                    "Sie sind abgemeldet",
                ],
            ),
        ] {
            let all = LoginPages::new(Arc::default()).unwrap();
            let pages = all.in_language(Some(tag.as_bytes()));
            let start = "https://app.example/";
            let pages = [
                pages.sign_in(&[]),
                pages.expired(start),
                pages.done(),
                pages.sign_out(start),
                pages.signed_out(start),
            ];
            for (page, title) in pages.iter().zip(titles) {
                let text = text(page);
                assert!(text.contains(&format!("<html lang=\"{tag}\"")), "{text}");
                assert!(text.contains(&format!("<h1>{title}</h1>")), "{text}");
            }
        }
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let notice =
            PageNotice::Refused { title: "<b>".into(), error: "\"><script>alert(1)</script>".into() };
        let again = "https://app.example/oauth2/start?rd=\"><script>";
        let answer = shown("en", |pages| pages.problem(&notice, Some(again)));
        assert!(!text(&answer).contains("<script") && !text(&answer).contains("<b>"), "{}", text(&answer));
        assert_eq!(answer.status, 403);
    }

    #[test]
    fn who_has_too_many_groups_is_told_what_to_do() {
        let answer = shown("en", |pages| pages.problem(&PageNotice::TooLarge, None));
        assert_eq!(answer.status, 403);
        let text = text(&answer);
        for phrase in ["show this page to the administrator", "login.database", "fewer groups"] {
            assert!(text.contains(phrase), "{phrase}: {text}");
        }
        assert!(!text.contains("Try again") && !text.contains("If this persists"), "{text}");
    }

    #[test]
    fn nothing_but_the_style_is_loaded_and_nobody_frames_a_page() {
        let choice = [("A".to_owned(), "https://app.example/oauth2/start".to_owned())];
        let answer = shown("en", |pages| pages.sign_in(&choice));
        let field = |name: &str| answer.fields.iter().find(|(n, _)| n == name).unwrap().1.clone();
        let policy = field("content-security-policy");
        assert!(policy.contains("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(
            policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'none'"),
            "{policy}"
        );
        assert_eq!(field("cache-control"), "no-store");
        assert_eq!(field("content-type"), "text/html; charset=utf-8");
    }
}
