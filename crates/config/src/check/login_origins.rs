//! Checks where a login is: its origins, the domain whose hosts share a session, the sites that may
//! show it in a frame. Parses origins for other tables too.

use auth::request::{Canonical, RawRequest, Scheme};
use http_engine::url::Url;
use login::config::{Origin, SharedSession, WildcardOrigin};

use super::super::fault::KeyPath;
use super::super::raw;
use super::Context;

/// What an attacker on the network can do where users log in over plain http.
const LOGIN_RISK: &str = "over plain http, an attacker on the network can read and set cookies";
/// What such an attacker can do where a page may show the services.
const FRAME_RISK: &str = "over plain http, an attacker on the network can be that page";
/// How an origin is written.
const HINT: &str = "write only scheme, host and port, such as \"https://app.example\"";

/// Where a login is.
pub(super) struct LoginOrigins {
    pub(super) exact: Vec<Origin>,
    pub(super) wildcards: Vec<WildcardOrigin>,
    pub(super) shared: Option<SharedSession>,
    /// The sources of `frame-ancestors`.
    pub(super) frame_ancestors: Option<Box<str>>,
}

/// An origin, or all hosts below a domain.
enum ParsedOrigin {
    Exact(Origin),
    /// The origin of the domain itself.
    Below(Origin),
}

impl LoginOrigins {
    /// Whether some origin is a host of a route's pattern: a host, or `*` and a suffix.
    pub(super) fn serve(&self, pattern: &str) -> bool {
        let pattern = pattern.to_ascii_lowercase();
        let exact = self.exact.iter().map(|origin| host_of(&origin.authority));
        let domains = self.wildcards.iter().map(|wildcard| host_of(&wildcard.suffix));
        match pattern.strip_prefix('*') {
            Some(suffix) => {
                { exact }.any(|host| host.ends_with(suffix)) || { domains }
                    .any(|domain| domain.ends_with(suffix) || suffix.ends_with(domain))
            }
            None => {
                { exact }.any(|host| host == pattern) || { domains }.any(|domain| pattern.ends_with(domain))
            }
        }
    }
}

/// Checks the origins of the login and what depends on them. `None` when a fault was noted.
pub(super) fn check(raw: &raw::Login, path: &KeyPath, context: &mut Context<'_>) -> Option<LoginOrigins> {
    let origins = origins(raw, path, context);
    let domain = match &raw.cookie_domain {
        Some(text) => cookie_domain(text, &path.key("cookie_domain"), context).map(Some),
        None => Some(None),
    };
    let frame_ancestors = frame_ancestors(raw, path, context);
    let callback = callback_origin(raw, origins.as_ref().map(|(exact, _)| &**exact), path, context);
    let hosts = domain.iter().flatten().all(|domain| check_hosts(domain, raw, path, context));
    let (exact, wildcards) = origins?;
    let (domain, frame_ancestors, callback) = (domain?, frame_ancestors.ok()?, callback.ok()?);
    let shared = domain.map(|domain| SharedSession { domain: domain.into(), callback });
    hosts.then_some(LoginOrigins { exact, wildcards, shared, frame_ancestors })
}

fn origins(
    raw: &raw::Login,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<(Vec<Origin>, Vec<WildcardOrigin>)> {
    let path = path.key("origins");
    let (mut origins, mut wildcards) = (Vec::<Origin>::new(), Vec::<WildcardOrigin>::new());
    let mut sound = true;
    for (at, text) in raw.origins.iter().enumerate() {
        let at = path.index(at);
        let fault = match origin(text, LOGIN_RISK) {
            Ok(ParsedOrigin::Exact(origin))
                if origins.iter().any(|other| other.authority == origin.authority) =>
            {
                (format!("{:?} occurs twice", origin.authority), "keep one")
            }
            Ok(ParsedOrigin::Exact(origin)) => {
                if let Some(other) =
                    origins.iter().find(|other| host_of(&other.authority) == host_of(&origin.authority))
                {
                    let message = format!("{} and {} share cookies", other.text, origin.text);
                    let hint =
                        "browsers ignore ports for cookies; a login at one ends the session at the other";
                    // One session for both is what a domain is for.
                    if raw.cookie_domain.is_none() {
                        context.faults.warn(&at, message, hint);
                    }
                }
                origins.push(origin);
                continue;
            }
            Ok(ParsedOrigin::Below(_)) if raw.cookie_domain.is_none() => (
                "the hosts below a domain have no session in common without `cookie_domain`".to_owned(),
                "write `cookie_domain` and `callback_origin`, or list each origin",
            ),
            Ok(ParsedOrigin::Below(domain)) => {
                let wildcard = WildcardOrigin { suffix: format!(".{}", domain.authority).into() };
                if wildcards.contains(&wildcard) {
                    (format!("{text:?} occurs twice"), "keep one")
                } else {
                    wildcards.push(wildcard);
                    continue;
                }
            }
            Err(fault) => fault,
        };
        context.faults.add(&at, fault.0, fault.1);
        sound = false;
    }
    if raw.origins.is_empty() {
        context.faults.add(
            &path,
            "there is no origin, so no user could log in",
            "such as \"https://app.example\"",
        );
        return None;
    }
    sound.then_some((origins, wildcards))
}

/// Checks the domain of the session cookie, and returns it as browsers spell it.
fn cookie_domain(text: &str, path: &KeyPath, context: &mut Context<'_>) -> Option<String> {
    const HINT: &str = "write the domain that the hosts are below, such as \"example.com\"";
    let mut refuse = |message: String, hint: &str| {
        context.faults.add(path, message, hint);
        None
    };
    if let Some(rest) = text.strip_prefix('.') {
        return refuse(format!("{text:?} begins with a dot"), &format!("write {rest:?}"));
    }
    let domain = match parse_origin(&format!("https://{text}")) {
        Ok(origin) if !origin.authority.contains([':', '[']) && !origin.authority.contains('_') => {
            origin.authority.into_string()
        }
        _ => return refuse(format!("{text:?} is not a domain"), HINT),
    };
    if domain.parse::<std::net::IpAddr>().is_ok() || !domain.contains('.') {
        return refuse(format!("{text:?} has no hosts below it that could share a cookie"), HINT);
    }
    // Browsers refuse a cookie for a domain below which others register theirs.
    if psl::domain(domain.as_bytes()).is_none() {
        return refuse(
            format!("{text:?} is a public suffix, for which browsers keep no cookies"),
            &format!("write your own domain, such as \"example.{domain}\""),
        );
    }
    Some(domain)
}

/// Checks that each origin receives the cookie of a domain. False when a fault was noted.
fn check_hosts(domain: &str, raw: &raw::Login, path: &KeyPath, context: &mut Context<'_>) -> bool {
    let path = path.key("origins");
    let mut sound = true;
    for (at, text) in raw.origins.iter().enumerate() {
        let Ok(ParsedOrigin::Exact(origin) | ParsedOrigin::Below(origin)) = origin(text, LOGIN_RISK) else {
            continue;
        };
        let host = host_of(&origin.authority);
        let is_below = host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        if !is_below {
            let message = format!("{text:?} does not receive the session cookie of {domain:?}");
            context.faults.add(&path.index(at), message, "remove it, or write a `cookie_domain` of both");
            sound = false;
        } else if origin.scheme == Scheme::Http {
            let hint = "use https, or remove `cookie_domain`";
            context.faults.add(&path.index(at), "hosts share a session over https only", hint);
            sound = false;
        }
    }
    sound
}

/// Index of the origin at which logins take place; `exact`: the origins, if they are sound. `Err` when
/// a fault was noted.
fn callback_origin(
    raw: &raw::Login,
    exact: Option<&[Origin]>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Option<usize>, ()> {
    let at = path.key("callback_origin");
    let Some(text) = &raw.callback_origin else {
        let has_wildcards = raw.origins.iter().any(|text| parse_wildcard_origin(text).is_some());
        if has_wildcards && raw.cookie_domain.is_some() {
            let message = "providers return to registered addresses only, and `*` stands for many";
            context.faults.add(&at, message, "name the one of `origins`, without `*`, to which they return");
            return Err(());
        }
        return Ok(None);
    };
    let (message, hint) = match parse_origin(text) {
        _ if raw.cookie_domain.is_none() => (
            "without `cookie_domain` the session stays at that origin".to_owned(),
            "add `cookie_domain`, or remove it",
        ),
        Ok(origin) => match exact.map(|exact| exact.iter().position(|other| *other == origin)) {
            None => return Ok(None),
            Some(Some(index)) => return Ok(Some(index)),
            Some(None) => (format!("{text:?} is none of `origins`"), "add it there; `*` does not count"),
        },
        Err(message) => (message, HINT),
    };
    context.faults.add(&at, message, hint);
    Err(())
}

/// The sources of `frame-ancestors`; `None` without any. `Err` when a fault was noted.
fn frame_ancestors(
    raw: &raw::Login,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Option<Box<str>>, ()> {
    if raw.frame_ancestors.is_empty() {
        return Ok(None);
    }
    // Frames within the services' own pages stay possible.
    let mut sources = vec!["'self'".to_owned()];
    let mut sound = true;
    for (at, text) in raw.frame_ancestors.iter().enumerate() {
        let source = origin(text, FRAME_RISK).map(|origin| match origin {
            ParsedOrigin::Exact(origin) => origin.text.into_string(),
            ParsedOrigin::Below(domain) => domain.text.replacen("://", "://*.", 1),
        });
        let fault = match source {
            Ok(source) if sources.contains(&source) => (format!("{source:?} occurs twice"), "keep one"),
            Ok(source) => {
                sources.push(source);
                continue;
            }
            Err(fault) => fault,
        };
        context.faults.add(&path.key("frame_ancestors").index(at), fault.0, fault.1);
        sound = false;
    }
    for (at, text) in raw.origins.iter().enumerate() {
        if let Ok(ParsedOrigin::Exact(Origin { scheme: Scheme::Http, .. })) = origin(text, LOGIN_RISK) {
            let message = "browsers keep cookies in frames of other sites over https only";
            let hint = "use https, or remove `frame_ancestors`";
            context.faults.add(&path.key("origins").index(at), message, hint);
            sound = false;
        }
    }
    sound.then(|| Some(sources.join(" ").into())).ok_or(())
}

/// An origin whose pages are protected on the network, or whose hosts are; `plain_risk` says what happens
/// to others.
fn origin(text: &str, plain_risk: &str) -> Result<ParsedOrigin, (String, &'static str)> {
    if let Some(domain) = parse_wildcard_origin(text) {
        let domain = domain.map_err(|message| (message, HINT))?;
        return match domain.scheme {
            Scheme::Https => Ok(ParsedOrigin::Below(domain)),
            Scheme::Http => Err((plain_risk.to_owned(), "use https")),
        };
    }
    let url = Url::parse(text).map_err(|fault| (fault.to_string(), HINT))?;
    let origin = parse_origin(text).map_err(|message| (message, HINT))?;
    if !url.is_https() && !url.is_loopback() {
        return Err((plain_risk.to_owned(), "use https; plain http is only for this machine"));
    }
    Ok(ParsedOrigin::Exact(origin))
}

/// Parses the origins of all hosts below a domain, such as `https://*.example.com`: the origin of the
/// domain. `None`: the text is not of this form.
pub(super) fn parse_wildcard_origin(text: &str) -> Option<Result<Origin, String>> {
    let (scheme, domain) = text.split_once("://*.")?;
    Some(parse_origin(&format!("{scheme}://{domain}")))
}

/// Parses an origin (RFC 6454).
///
/// # Errors
///
/// Returns what is wrong with the text.
pub(super) fn parse_origin(text: &str) -> Result<Origin, String> {
    let url = Url::parse(text).map_err(|fault| fault.to_string())?;
    if url.target() != "/" || text.ends_with('/') {
        return Err(format!("{text:?} is more than an origin"));
    }
    let scheme = if url.is_https() { Scheme::Https } else { Scheme::Http };
    let host = url.authority().as_bytes();
    let raw = RawRequest { method: "GET", scheme, authority: None, host: Some(host), target: b"/" };
    // Use the authority in the form that requests will have.
    let canonical = Canonical::parse(&raw).map_err(|fault| format!("{text:?}: {fault}"))?;
    let authority: Box<str> = canonical.authority().into();
    Ok(Origin { scheme, text: format!("{}://{authority}", scheme.as_str()).into(), authority })
}

/// The host of an authority.
fn host_of(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}
