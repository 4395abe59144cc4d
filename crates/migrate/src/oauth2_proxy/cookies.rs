//! The session cookie: for which hosts it is, to which of them people return, and whether it is for
//! frames of other sites.

use crate::draft::DraftTable;
use crate::settings::{Given, ProgramSettings};

/// Translates the domains of the cookie. `origin` is that of the callback; `origins` is set here,
/// because a domain adds to it.
pub(super) fn translate(
    settings: &mut ProgramSettings,
    table: &mut DraftTable,
    redirect_url: &Given,
    origin: &str,
) {
    let host =
        origin.strip_prefix("https://").map(|authority| authority.split(':').next().unwrap_or(authority));
    let mut domains = settings.list("cookie-domain");
    // The program too takes the longest that fits.
    domains.sort_by_key(|given| std::cmp::Reverse(given.value.len()));
    let fitting =
        domains.iter().position(|given| host.is_some_and(|host| is_below(host, domain(&given.value))));
    let fitting = fitting.map(|at| domains.remove(at));
    // A cookie of the callback's own host is for others only if people may go there.
    let is_of_host = |given: &Given| host == Some(&given.value) && !settings.has("whitelist-domain");
    let (alone, shared) = match fitting {
        Some(given) if is_of_host(&given) => (Some(given), None),
        other => (None, other),
    };
    if let Some(given) = alone {
        settings.different(&given, "the session is for this host alone, not for hosts below it");
    }
    match &shared {
        Some(given) => {
            let domain = domain(&given.value);
            let hosts = format!("https://*.{domain}{}", port(origin));
            table.set("origins", vec![origin.to_owned(), hosts], &redirect_url.shown());
            table.set("cookie_domain", domain, &given.shown());
            table.set("callback_origin", origin, &redirect_url.shown());
            settings.different(
                given,
                "one session for all hosts of the domain: trust all of them, or remove `login.cookie_domain`",
            );
        }
        None => {
            table.set("origins", vec![origin.to_owned()], &redirect_url.shown());
        }
    }
    for given in domains {
        settings.no_equal(&given, "a session is for one domain, which the callback is in, or for one host");
    }
    let shared = shared.as_ref().map(|given| domain(&given.value));
    for given in settings.list("whitelist-domain") {
        let name = domain(given.value.split(':').next().unwrap_or_default());
        if shared.is_some_and(|shared| is_below(name, shared)) {
            settings.different(&given, "people may return to any of `login.origins`");
        } else {
            let remedy = "people return to hosts that share the session: see `login.cookie_domain`";
            settings.no_equal(&given, remedy);
        }
    }
    for name in ["cookie-samesite", "cookie-csrf-samesite"] {
        let Some(given) = settings.text(name) else { continue };
        match &*given.value {
            "none" => settings.no_equal(
                &given,
                "for services in frames of other sites, write the origins of these into `login.frame_ancestors`",
            ),
            "strict" => settings.different(&given, "cookies are `SameSite=Lax`"),
            _ => settings.translated(&given),
        }
    }
}

/// A domain without the dot or the star that the program permits in front of it.
fn domain(text: &str) -> &str {
    text.trim_start_matches('*').trim_start_matches('.')
}

fn is_below(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The port of an origin, with its colon; empty if it is the default one.
fn port(origin: &str) -> &str {
    let authority = origin.strip_prefix("https://").unwrap_or(origin);
    authority.find(':').map_or("", |at| &authority[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_has_no_dot_and_no_star() {
        for text in ["example.com", ".example.com", "*.example.com"] {
            assert_eq!(domain(text), "example.com");
        }
        assert!(is_below("a.example.com", "example.com") && is_below("example.com", "example.com"));
        assert!(!is_below("badexample.com", "example.com") && !is_below("example.com", "a.example.com"));
        assert_eq!((port("https://a.example:8443"), port("https://a.example")), (":8443", ""));
    }
}
