//! Pages of the login: server-rendered, plain CSS, no script.
//!
//! Owns: their text, look and headers. Does not own: when they are shown. Every text from outside
//! is escaped. The style sheet is allowed by its hash, and nothing else is loaded.

use std::sync::LazyLock;

use askama::Template;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_engine::labels::Outcome;
use http_engine::local_reply::LocalReply;

const STYLE: &str = include_str!("../assets/login.css");

/// Content security policy of the pages.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
    format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; form-action 'none'; frame-ancestors 'none'; \
         base-uri 'none'"
    )
});

/// The action that a page offers.
enum PageAction {
    Nothing,
    /// Choose one of several links: name and address.
    Choose(Vec<(String, String)>),
    /// Follow a link.
    Link(&'static str, String),
    /// Follow a link in a new tab.
    LinkInNewTab(&'static str, String),
}

#[derive(Template)]
#[template(path = "login/page.html")]
struct Page {
    title: String,
    texts: Vec<String>,
    act: PageAction,
    note: Option<&'static str>,
    style: &'static str,
}

/// The error that a page explains to the user.
pub(super) enum PageNotice {
    /// The browser sent no login cookie.
    NoCookie,
    /// The login did not begin in this browser.
    NotStarted,
    /// There is no provider of this name.
    NoProvider,
    /// The provider refused the login.
    Refused {
        /// The provider's display name.
        title: String,
        /// The provider's error.
        error: String,
    },
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

/// The page to choose a provider.
pub(super) fn sign_in(choices: &[(String, String)]) -> LocalReply {
    let act = PageAction::Choose(choices.to_vec());
    page(200, ("sign_in", Outcome::Local), "Sign in", &["Choose where you have your account."], act, None)
}

/// The page for a form that was sent after the session ended.
pub(super) fn expired(start: &str) -> LocalReply {
    let texts = [
        "Your form was not accepted, because your session has ended. Your browser still has it.",
        "Sign in in a new tab, come back to this one, and load it again. When your browser asks whether to send the form again, \
         say yes.",
    ];
    let act = PageAction::LinkInNewTab("Sign in in a new tab", start.to_owned());
    page(401, ("login_required", Outcome::Unauthenticated), "Sign in again", &texts, act, None)
}

/// The page after a login in a separate tab.
pub(super) fn done() -> LocalReply {
    let texts = ["Close this tab, then reload the tab that you came from."];
    page(200, ("signed_in", Outcome::Local), "You are signed in", &texts, PageAction::Nothing, None)
}

/// The page that confirms a logout which another site requested. It offers a link, because a form
/// would fail: browsers apply `form-action` to redirects too, and these lead to the provider.
pub(super) fn sign_out(address: &str) -> LocalReply {
    let act = PageAction::Link("Sign out", address.to_owned());
    page(
        200,
        ("sign_out", Outcome::Local),
        "Sign out?",
        &["Another site sent you here to sign out."],
        act,
        None,
    )
}

/// The page after a logout.
pub(super) fn signed_out(start: &str) -> LocalReply {
    let act = PageAction::Link("Sign in again", start.to_owned());
    page(200, ("signed_out", Outcome::Local), "You are signed out", &[], act, None)
}

/// The page for an error; `again` is the address to start again.
pub(super) fn problem(said: &PageNotice, again: Option<&str>) -> LocalReply {
    let (status, code, outcome, title, text) = said.row();
    let act = again.map_or(PageAction::Nothing, |again| PageAction::Link("Try again", again.to_owned()));
    let remedy = said.remedy();
    let texts: Vec<&str> = [&*text].into_iter().chain(remedy).collect();
    let note = "If this persists, contact the operator of this service and quote this message.";
    let mut answer = page(status, (code, outcome), title, &texts, act, remedy.is_none().then_some(note));
    if status == 503 {
        answer.fields.push(("retry-after".into(), "5".into()));
    }
    answer
}

impl PageNotice {
    /// Instructions for operators, where users cannot help themselves.
    fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge => Some(
                "For whoever runs it: keep sessions in a database (login.database), or ask the provider for fewer scopes and claims, above all \
                 for fewer groups. The log tells how many bytes the session takes.",
            ),
            _ => None,
        }
    }

    /// The table of errors: status, code, outcome, title and text.
    fn row(&self) -> (u16, &'static str, Outcome, &'static str, String) {
        match self {
            Self::NoCookie => (
                400,
                "login_cookie_missing",
                Outcome::Malformed,
                "Your browser sent no cookie",
                "Signing in takes a cookie, and the one set a moment ago did not come back. Allow cookies for this site; or you \
                 took longer than an hour."
                    .to_owned(),
            ),
            Self::NotStarted => (
                400,
                "login_not_begun",
                Outcome::Malformed,
                "This sign-in did not begin here",
                "It was begun in another browser or at another address, or what came back is incomplete.".to_owned(),
            ),
            Self::NoProvider => (
                404,
                "login_provider_unknown",
                Outcome::NoRoute,
                "There is no such account provider",
                "The provider you were sent to is not configured here.".to_owned(),
            ),
            Self::Refused { title, error } => (
                403,
                "login_refused",
                Outcome::Forbidden,
                "You were not signed in",
                format!("{title} refused: {error}"),
            ),
            Self::InvalidAnswer { title } => (
                403,
                "login_unbelievable",
                Outcome::Forbidden,
                "You were not signed in",
                format!("The data that {title} sent about you cannot be used here. The log has the reason."),
            ),
            Self::ProviderSilent { title } => (
                503,
                "login_provider_unavailable",
                Outcome::AuthUnavailable,
                "You cannot be signed in right now",
                format!("{title} gives no usable answer."),
            ),
            Self::TooLarge => (
                403,
                "login_session_too_large",
                Outcome::Forbidden,
                "You cannot be signed in",
                "Your account has more groups and other details than this site can keep in a cookie. Signing in again does not help: \
                 show this page to whoever runs the site."
                    .to_owned(),
            ),
            Self::Unavailable => (
                503,
                "login_unavailable",
                Outcome::AuthUnavailable,
                "You cannot be signed in right now",
                "Your session cannot be kept at the moment.".to_owned(),
            ),
            Self::NotSignedOut => (
                503,
                "logout_unavailable",
                Outcome::AuthUnavailable,
                "You are still signed in",
                "Your session cannot be ended at the moment.".to_owned(),
            ),
        }
    }
}

fn page(
    status: u16,
    (code, outcome): (&'static str, Outcome),
    title: &str,
    texts: &[&str],
    act: PageAction,
    note: Option<&'static str>,
) -> LocalReply {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    let page = Page { title: title.to_owned(), texts, act, note, style: STYLE };
    let Ok(body) = page.render() else { return LocalReply::from_code(500, "page", Outcome::Malformed) };
    let mut answer = LocalReply::from_code(status, code, outcome);
    answer.fields[0].1 = "text/html; charset=utf-8".into();
    answer.fields.extend([
        ("content-security-policy".into(), POLICY.clone().into()),
        ("x-frame-options".into(), "DENY".into()),
        ("referrer-policy".into(), "no-referrer".into()),
    ]);
    answer.body = body.into_bytes().into();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(answer: &LocalReply) -> String {
        String::from_utf8(answer.body.to_vec()).unwrap()
    }

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let said = PageNotice::Refused { title: "<b>".into(), error: "\"><script>alert(1)</script>".into() };
        let answer = problem(&said, Some("https://app.example/oauth2/start?rd=\"><script>"));
        assert!(!text(&answer).contains("<script") && !text(&answer).contains("<b>"), "{}", text(&answer));
        assert_eq!(answer.status, 403);
    }

    #[test]
    fn who_has_too_many_groups_is_told_what_to_do() {
        let answer = problem(&PageNotice::TooLarge, None);
        assert_eq!(answer.status, 403);
        let text = text(&answer);
        for said in ["show this page to whoever runs the site", "login.database", "fewer groups"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        assert!(!text.contains("Try again") && !text.contains("If this goes on"), "{text}");
    }

    #[test]
    fn nothing_but_the_style_is_loaded_and_nobody_frames_a_page() {
        let answer = sign_in(&[("A".into(), "https://app.example/oauth2/start".into())]);
        let field = |name: &str| answer.fields.iter().find(|(n, _)| n == name).unwrap().1.clone();
        let hash = STANDARD.encode(digest::digest(&digest::SHA256, STYLE.as_bytes()));
        assert!(field("content-security-policy").contains(&format!("style-src 'sha256-{hash}'")));
        assert!(field("content-security-policy").contains("frame-ancestors 'none'"));
        assert!(text(&answer).contains(&format!("<style>{STYLE}</style>")), "the hash is of what is there");
        assert_eq!(field("cache-control"), "no-store");
    }
}
