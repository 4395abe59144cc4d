//! Navigation: whether a request is a browser's navigation to a page, which a redirect can lead to
//! log in, or a program's.
//!
//! Owns: that decision. Browsers state it themselves (`Sec-Fetch-Mode`, W3C Fetch Metadata).
//! Without that field, a client that accepts HTML and sends no field that only programs send counts
//! as a browser.

use auth::request::Field;

use crate::config::LoginRedirect;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Navigation {
    /// A navigation to a page: the browser can be redirected and return.
    Navigate,
    /// A form submission: a redirect would lose it.
    FormSubmission,
    /// A program, or a part of a page.
    Program,
}

/// Classifies a request. `redirect`: which clients count as browsers.
pub(crate) fn classify(
    method: &str,
    fields: &[Field<'_>],
    upgrades: bool,
    redirect: LoginRedirect,
) -> Navigation {
    let value =
        |name: &str| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|f| f.value);
    let leads_all = redirect == LoginRedirect::All;
    if redirect == LoginRedirect::None
        || upgrades
        || value("authorization").is_some()
        || value("x-requested-with").is_some()
    {
        return Navigation::Program;
    }
    let goes = match (value("sec-fetch-mode"), value("accept")) {
        (Some(mode), _) => mode.eq_ignore_ascii_case(b"navigate"),
        (None, Some(accept)) => wants_html(accept) || leads_all && !wants_json(accept),
        // Only a GET is led on: what a form would lose is not known here.
        (None, None) => leads_all && method != "POST",
    };
    match (goes, method) {
        (true, "GET" | "HEAD") => Navigation::Navigate,
        (true, "POST") => Navigation::FormSubmission,
        _ => Navigation::Program,
    }
}

/// Whether another site caused the request to the origin `here`: by `Sec-Fetch-Site`, or for old
/// browsers by `Origin`, which they send with forms at least.
pub(crate) fn is_cross_site(fields: &[Field<'_>], here: &str) -> bool {
    let value = |name: &str| fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    match value("sec-fetch-site") {
        Some(site) => site.value.eq_ignore_ascii_case(b"cross-site"),
        None => value("origin").is_some_and(|origin| origin.value != here.as_bytes()),
    }
}

/// Requires `text/html` by name, because programs send `*/*`.
fn wants_html(accept: &[u8]) -> bool {
    let types = accept.split(|byte| *byte == b',');
    types.filter_map(|range| range.split(|byte| *byte == b';').next()).any(|range| {
        let range = range.trim_ascii();
        range.eq_ignore_ascii_case(b"text/html") || range.eq_ignore_ascii_case(b"application/xhtml+xml")
    })
}

fn wants_json(accept: &[u8]) -> bool {
    let mut types = accept.split(|byte| *byte == b',');
    types.any(|range| range.trim_ascii().starts_with(b"application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &str, fields: &[(&str, &str)]) -> Navigation {
        let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
        classify(method, &fields, false, LoginRedirect::Browsers)
    }

    const HTML: (&str, &str) = ("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8");

    #[test]
    fn browsers_going_to_pages_are_led_on() {
        assert_eq!(judged("GET", &[("Sec-Fetch-Mode", "navigate")]), Navigation::Navigate);
        assert_eq!(judged("GET", &[HTML]), Navigation::Navigate);
        assert_eq!(judged("HEAD", &[("accept", "Text/HTML;q=0.1")]), Navigation::Navigate);
        assert_eq!(judged("POST", &[HTML]), Navigation::FormSubmission);
        let form = ("Content-Type", "multipart/form-data");
        assert_eq!(judged("POST", &[("sec-fetch-mode", "navigate"), form]), Navigation::FormSubmission);
    }

    #[test]
    fn requests_of_other_sites_are_known_by_what_browsers_send() {
        let judged = |fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
            is_cross_site(&fields, "https://app.example")
        };
        let foreign = ("Origin", "https://evil.test");
        assert!(judged(&[("Sec-Fetch-Site", "cross-site")]) && judged(&[("sec-fetch-site", "Cross-Site")]));
        assert!(judged(&[foreign]) && judged(&[("origin", "null")]));
        assert!(!judged(&[]) && !judged(&[("Origin", "https://app.example")]));
        for site in ["same-origin", "same-site", "none"] {
            assert!(!judged(&[("Sec-Fetch-Site", site), ("Origin", "null")]), "{site}");
        }
    }

    #[test]
    fn programs_are_told() {
        assert_eq!(judged("GET", &[]), Navigation::Program);
        assert_eq!(judged("GET", &[("accept", "*/*")]), Navigation::Program);
        assert_eq!(judged("GET", &[("accept", "application/json, text/plain, */*")]), Navigation::Program);
        for mode in ["cors", "no-cors", "same-origin", "websocket"] {
            assert_eq!(judged("GET", &[("sec-fetch-mode", mode), HTML]), Navigation::Program, "{mode}");
        }
        assert_eq!(judged("GET", &[HTML, ("X-Requested-With", "XMLHttpRequest")]), Navigation::Program);
        assert_eq!(judged("GET", &[HTML, ("Authorization", "Bearer x")]), Navigation::Program);
        assert_eq!(judged("PUT", &[HTML]), Navigation::Program);
        let html = [Field { name: "accept", value: b"text/html" }];
        assert_eq!(classify("GET", &html, true, LoginRedirect::Browsers), Navigation::Program);
        assert_eq!(classify("GET", &html, false, LoginRedirect::None), Navigation::Program);
    }

    #[test]
    fn clients_that_say_nothing_are_led_on_where_all_are() {
        let judged = |method: &str, fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
            classify(method, &fields, false, LoginRedirect::All)
        };
        assert_eq!(judged("GET", &[]), Navigation::Navigate);
        assert_eq!(judged("GET", &[("user-agent", "x"), ("cookie", "a=b")]), Navigation::Navigate);
        assert_eq!(judged("GET", &[("accept", "*/*")]), Navigation::Navigate);
        assert_eq!(judged("POST", &[]), Navigation::Program);
        assert_eq!(judged("GET", &[("accept", "application/json, */*")]), Navigation::Program);
        assert_eq!(judged("GET", &[("authorization", "Bearer x")]), Navigation::Program);
        assert_eq!(judged("GET", &[("sec-fetch-mode", "cors")]), Navigation::Program);
    }
}
