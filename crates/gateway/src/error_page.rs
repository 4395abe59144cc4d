//! Error page: a refusal as a person sees it in a browser.
//!
//! Owns: whether the client of a request is a browser that wants a page ([`WantsPage`]), the
//! content of the page and its messages. Does not own: status, code and fields of the refusal
//! ([`crate::refusal`]), the document around the content (crate `pages`).
//!
//! The page shows nothing that the document for programs does not contain, besides the name of the
//! session's own user. Its texts depend on the status alone.

use std::borrow::Cow;
use std::sync::Arc;

use askama::Template;
use auth::request::Field;
use http_engine::field_edits::FieldEdits;
use http_engine::head::names_html;
use http_engine::local_reply::LocalReply;
use pages::templates::ErrorValues;
use pages::text::Shown;
use pages::{Catalog, Content, LanguageFault, Phrase, PolicySources, Shell, negotiation};

/// The built-in texts, by language tag.
pub const BUILTIN: [(&str, &str); 2] =
    [("en", include_str!("../locales/en.toml")), ("de", include_str!("../locales/de.toml"))];

/// Longest `Accept-Language` that is kept, in bytes. The languages that a person reads come first.
const MAX_LANGUAGES: usize = 40;

pages::words! {
    refusal: RefusalWords {
        bad_request_title, bad_request_text, unauthorized_title, unauthorized_text, forbidden_title,
        forbidden_text, not_found_title, not_found_text, slow_title, slow_text, too_large_title,
        too_large_text, long_address_title, long_address_text, too_many_title, too_many_text,
        head_too_large_title, head_too_large_text, failed_title, failed_text, bad_gateway_title,
        bad_gateway_text, unavailable_title, unavailable_text, late_title, late_text, groups_elsewhere,
        signed_in(user), sign_out, other_account, retry, code, request,
    }
}

/// Names of the groups of these messages.
pub const GROUPS: &[&str] = <Words as pages::messages::Words>::GROUPS;

/// A browser that wants a page. It outlives the head of the request, because an upstream may fail
/// later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantsPage {
    languages: [u8; MAX_LANGUAGES],
    length: usize,
}

impl WantsPage {
    /// Reads the fields of a request; `None`: its client is a program, or a browser that fetches
    /// something else than a page.
    pub(crate) fn read(fields: &[Field<'_>]) -> Option<Box<Self>> {
        let is = |field: &Field<'_>, name: &str| field.name.eq_ignore_ascii_case(name);
        // Browsers name HTML whenever they navigate. Programs are done here.
        if !fields.iter().any(|field| is(field, "accept") && names_html(field.value)) {
            return None;
        }
        if !negotiation::wants_page(fields.iter().map(|field| (field.name, field.value))) {
            return None;
        }
        let languages = fields.iter().find(|field| is(field, "accept-language"));
        let languages = languages.map_or(&b""[..], |field| field.value);
        // Cut between two languages, so that none becomes another one.
        let languages = match languages.get(..MAX_LANGUAGES + 1) {
            None => languages,
            Some(first) => &first[..first.iter().rposition(|byte| *byte == b',').unwrap_or(0)],
        };
        // On the heap: requests of programs, which are more, would carry its room too.
        let mut kept = Box::new(Self { languages: [0; MAX_LANGUAGES], length: languages.len() });
        kept.languages[..languages.len()].copy_from_slice(languages);
        Some(kept)
    }

    fn languages(&self) -> Option<&str> {
        std::str::from_utf8(&self.languages[..self.length]).ok()
    }
}

/// The user of the session with which a request was refused, and the addresses of the login for
/// another one.
#[derive(Debug)]
pub(crate) struct SignedInUser {
    /// Display name.
    pub(crate) user: Box<str>,
    /// Address that ends the session.
    pub(crate) sign_out: String,
    /// Address that starts a login and returns to the page.
    pub(crate) other_account: String,
}

/// What the page shows besides its texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ErrorView<'a> {
    /// Text of the route for its refusals.
    pub(crate) detail: Option<&'a str>,
    /// Whether the caller's token has more groups than it could list.
    pub(crate) groups_elsewhere: bool,
    /// Id of the request in the log.
    pub(crate) request_id: &'a str,
    /// The user of the session, where another one may have access.
    pub(crate) account: Option<&'a SignedInUser>,
    /// Edits of the route's responses: they may say who may frame its pages.
    pub(crate) edits: Option<&'a FieldEdits>,
}

/// Renderer of the error pages.
#[derive(Debug)]
pub struct ErrorPages {
    shell: Arc<Shell>,
    messages: Catalog<Words>,
}

#[derive(Template)]
#[template(path = "error_page.html")]
struct Markup<'a> {
    w: &'a RefusalWords,
    title: &'a Phrase,
    text: &'a Phrase,
    detail: Option<&'a str>,
    note: Option<&'a Phrase>,
    retry: bool,
    account: Option<UserLinks<'a>>,
    code: &'a str,
    request_id: &'a str,
}

struct UserLinks<'a> {
    user: Shown<'a>,
    sign_out: &'a str,
    other_account: &'a str,
}

impl ErrorPages {
    /// Creates the renderer for a shell.
    ///
    /// # Errors
    /// Every fault in the messages of a language.
    pub fn new(shell: Arc<Shell>) -> Result<Self, Vec<LanguageFault>> {
        let messages = Catalog::read(shell.languages(), &BUILTIN)?;
        Ok(Self { shell, messages })
    }

    /// Replaces the content of a refusal by a page. Its other fields stay, such as a challenge.
    pub(crate) fn render(&self, wants: &WantsPage, reply: &mut LocalReply, view: &ErrorView<'_>) {
        let language = self.shell.languages().choose(None, wants.languages());
        let w = &self.messages.of(language).refusal;
        let (title, text) = w.of_status(reply.status);
        let account = view.account.map(|account| UserLinks {
            user: Shown(&account.user),
            sign_out: &account.sign_out,
            other_account: &account.other_account,
        });
        let note = view.groups_elsewhere.then_some(&w.groups_elsewhere);
        let markup = Markup {
            w,
            title,
            text,
            detail: view.detail,
            note,
            retry: matches!(reply.status, 408 | 429 | 502 | 503 | 504),
            account,
            code: reply.code,
            request_id: view.request_id,
        };
        let own = self.shell.error_content(&ErrorValues {
            title: title.as_str(),
            text: text.as_str(),
            detail: view.detail,
            note: note.map(Phrase::as_str),
            status: reply.status,
            code: reply.code,
            request_id: view.request_id,
            user: view.account.map(|account| &*account.user),
            sign_out: view.account.map(|account| &*account.sign_out),
            other_account: view.account.map(|account| &*account.other_account),
            retry: markup.retry,
            language: language.tag(),
        });
        // Writing to a string does not fail; the document for programs would be kept.
        let Ok(main) = own.map_or_else(|| markup.render(), Ok) else { return };
        let frame_ancestors = view.edits.and_then(frame_ancestors);
        let sources = PolicySources { frame_ancestors, ..PolicySources::default() };
        let content = Content { status: reply.status, title, wide: false, main, sources };
        let page = self.shell.page(language, &content);
        reply.fields.retain(|(name, _)| !page.fields.iter().any(|(own, _)| own == name));
        let own = page.fields.into_iter().map(|(name, value)| (Cow::Borrowed(name), value));
        reply.fields.splice(..0, own);
        reply.body = page.body.into_bytes().into();
    }
}

impl RefusalWords {
    /// The table: title and text of a status.
    fn of_status(&self, status: u16) -> (&Phrase, &Phrase) {
        match status {
            401 => (&self.unauthorized_title, &self.unauthorized_text),
            403 => (&self.forbidden_title, &self.forbidden_text),
            404 => (&self.not_found_title, &self.not_found_text),
            408 => (&self.slow_title, &self.slow_text),
            413 => (&self.too_large_title, &self.too_large_text),
            414 => (&self.long_address_title, &self.long_address_text),
            429 => (&self.too_many_title, &self.too_many_text),
            431 => (&self.head_too_large_title, &self.head_too_large_text),
            400..=499 => (&self.bad_request_title, &self.bad_request_text),
            502 => (&self.bad_gateway_title, &self.bad_gateway_text),
            503 => (&self.unavailable_title, &self.unavailable_text),
            504 => (&self.late_title, &self.late_text),
            _ => (&self.failed_title, &self.failed_text),
        }
    }
}

/// Who may frame the pages of a route, by the fields that its responses get: the sources of
/// `frame-ancestors` (CSP Level 3 §6.4.2), otherwise `X-Frame-Options` (RFC 7034). An added policy
/// comes first: browsers apply it beside a field that was there, and the page states only one.
fn frame_ancestors(edits: &FieldEdits) -> Option<&str> {
    let value = |name: &'static str| {
        let fields = edits.added.iter().chain(&edits.set).chain(&edits.defaults);
        fields.filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    };
    let directives = value("content-security-policy").flat_map(|policy| policy.split(';'));
    let named = directives.filter_map(|text| text.trim().split_once(|c: char| c.is_ascii_whitespace()));
    let sources =
        named.filter(|(name, _)| name.eq_ignore_ascii_case("frame-ancestors")).map(|(_, s)| s.trim());
    let same_origin = |value: &&str| value.trim().eq_ignore_ascii_case("sameorigin");
    let older = || value("x-frame-options").next().filter(same_origin).map(|_| "'self'");
    { sources }.next().or_else(older)
}

#[cfg(test)]
mod tests {
    use http_engine::labels::Outcome;

    use super::*;

    const HTML: (&str, &str) = ("Accept", "text/html,application/xhtml+xml,*/*;q=0.8");

    fn wants(fields: &[(&str, &str)]) -> Option<Box<WantsPage>> {
        let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
        WantsPage::read(&fields)
    }

    fn page(status: u16, languages: &str, view: &ErrorView<'_>) -> LocalReply {
        let mut reply = LocalReply::from_code(status, "some_code", Outcome::Forbidden);
        reply.fields.push(("www-authenticate".into(), "Bearer".into()));
        let wants = wants(&[HTML, ("Accept-Language", languages)]).unwrap();
        ErrorPages::new(Arc::default()).unwrap().render(&wants, &mut reply, view);
        reply
    }

    fn text(reply: &LocalReply) -> &str {
        std::str::from_utf8(&reply.body).unwrap()
    }

    fn field<'r>(reply: &'r LocalReply, name: &str) -> Vec<&'r str> {
        reply.fields.iter().filter(|(known, _)| known == name).map(|(_, value)| &**value).collect()
    }

    const PLAIN: ErrorView<'_> =
        ErrorView { detail: None, groups_elsewhere: false, request_id: "0af7", account: None, edits: None };

    #[test]
    fn english_and_german_have_the_same_keys_and_placeholders() {
        let [(_, english), (_, german)] = BUILTIN;
        assert_eq!(pages::messages::keys(english), pages::messages::keys(german));
    }

    #[test]
    fn every_status_has_a_title_and_a_text_in_every_language() {
        let mut titles = Vec::new();
        for status in [400, 401, 403, 404, 408, 413, 414, 429, 431, 502, 503, 504, 505, 508] {
            let (english, german) = (page(status, "en", &PLAIN), page(status, "de", &PLAIN));
            assert!(text(&english).contains("<html lang=\"en\""), "{status}");
            assert!(text(&german).contains("<html lang=\"de\""), "{status}");
            let title =
                |reply| text(reply).split("<h1>").nth(1).unwrap().split('<').next().unwrap().to_owned();
            assert_ne!(title(&english), title(&german), "{status}");
            assert_eq!(english.status, status);
            titles.push(title(&english));
        }
        titles.sort_unstable();
        titles.dedup();
        assert_eq!(titles.len(), 13, "only 505 and 508 share their title: {titles:?}");
    }

    #[test]
    fn a_page_replaces_the_document_and_keeps_the_other_fields() {
        let reply = page(401, "de", &PLAIN);
        assert_eq!(field(&reply, "content-type"), ["text/html; charset=utf-8"]);
        assert_eq!(field(&reply, "cache-control"), ["no-store"]);
        assert_eq!(field(&reply, "x-content-type-options"), ["nosniff"]);
        assert_eq!(field(&reply, "www-authenticate"), ["Bearer"]);
        assert_eq!(field(&reply, "content-language"), ["de"]);
        assert!(text(&reply).contains("some_code") && text(&reply).contains("0af7"));
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let account = SignedInUser {
            user: "<script>\u{202e}".into(),
            sign_out: "https://a.example/\"><script>".into(),
            other_account: "https://a.example/'><script>".into(),
        };
        let view = ErrorView { detail: Some("<script>&"), account: Some(&account), ..PLAIN };
        let reply = page(403, "en", &view);
        assert!(!text(&reply).contains("<script") && !text(&reply).contains('\u{202e}'), "{}", text(&reply));
        assert!(text(&reply).contains("&#60;script&#62;&#38;"), "{}", text(&reply));
    }

    #[test]
    fn only_what_may_pass_by_itself_is_tried_again() {
        for (status, retry) in
            [(403, false), (404, false), (502, true), (503, true), (504, true), (429, true)]
        {
            assert_eq!(text(&page(status, "en", &PLAIN)).contains("Try again"), retry, "{status}");
        }
    }

    #[test]
    fn the_route_says_who_may_frame_its_pages() {
        let edits = |name: &str, value: &str| FieldEdits {
            set: vec![(name.into(), value.into())],
            ..FieldEdits::default()
        };
        for (name, value, ancestors) in [
            (
                "Content-Security-Policy",
                "default-src 'self'; frame-ancestors https://a.example 'self'",
                "https://a.example 'self'",
            ),
            ("content-security-policy", "default-src 'self'", "'none'"),
            ("X-Frame-Options", "SAMEORIGIN", "'self'"),
            ("x-frame-options", "DENY", "'none'"),
            ("server", "x", "'none'"),
        ] {
            let edits = edits(name, value);
            let reply = page(403, "en", &ErrorView { edits: Some(&edits), ..PLAIN });
            let policy = field(&reply, "content-security-policy");
            assert!(policy[0].contains(&format!("frame-ancestors {ancestors};")), "{name}: {policy:?}");
        }
    }

    #[test]
    fn languages_are_kept_as_far_as_they_fit() {
        let long = "de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7,fr;q=0.6,it;q=0.5";
        let kept = wants(&[HTML, ("accept-language", long)]).unwrap();
        assert_eq!(kept.languages(), Some("de-DE,de;q=0.9,en-US;q=0.8,en;q=0.7"));
        let short = wants(&[HTML, ("accept-language", "de")]).unwrap();
        assert_eq!(short.languages(), Some("de"));
        let endless = "x".repeat(500);
        assert_eq!(wants(&[HTML, ("accept-language", &endless)]).unwrap().languages(), Some(""));
        assert_eq!(wants(&[HTML]).unwrap().languages(), Some(""));
    }

    #[test]
    fn programs_and_fetches_get_no_page() {
        assert_eq!(wants(&[]), None);
        assert_eq!(wants(&[("accept", "*/*"), ("sec-fetch-mode", "navigate")]), None);
        assert_eq!(wants(&[HTML, ("sec-fetch-mode", "cors")]), None);
        assert_eq!(wants(&[("accept", "text/html;q=0.1, application/json")]), None);
        assert!(wants(&[HTML, ("Sec-Fetch-Mode", "navigate")]).is_some());
    }
}
