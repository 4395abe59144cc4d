//! Forward authentication: checks that other proxies send over HTTP (Envoy's HTTP service, nginx
//! `auth_request`, Traefik's and Caddy's forward authentication).
//!
//! Owns: which original request a check is about. Does not own: the decision, the response
//! ([`crate::auth_response`]), which peers may send checks (the pipeline verifies that first).
//!
//! What the proxy reports is trusted, because the configuration lists that peer; so each item must
//! occur once. A proxy that omits the original request, or reports it twice, has passed a client's
//! field on or is misconfigured: the response is 400, and nothing passes.

use std::net::IpAddr;

use auth::headers::Repeats;
use auth::request::{Field, Scheme};
use http_engine::parsed_request::ParsedRequest;

use crate::config::QuestionSource;

/// Why the original request cannot be determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginalRequestError {
    /// The proxy does not send the field.
    #[error("the front proxy does not send the header {0}, which identifies the request to check")]
    Missing(&'static str),
    /// The field occurs twice.
    #[error("the header {0} is repeated; configure the front proxy to replace the client's value")]
    Repeated(&'static str),
    /// The field is empty or malformed.
    #[error("the header {0} of the front proxy is malformed")]
    Unreadable(&'static str),
    /// The check was sent to an address below the login's path.
    #[error(
        "checks are not accepted below the login's path; configure the front proxy to send them to another path"
    )]
    LoginPath,
    /// The check was sent to an address that proxies could read differently.
    #[error("checks must be sent to a plain path, without escapes and parameters")]
    Address,
    /// The path does not begin with the configured prefix.
    #[error("the path does not begin with the configured prefix")]
    Prefix,
    /// The message is not a check about an HTTP request.
    #[error("the message of the front proxy is not a check of an http request")]
    Message,
}

/// Whether a request is a check, as far as the request itself shows it.
pub(crate) fn is_check(source: &QuestionSource, check: &ParsedRequest<'_>) -> bool {
    let says: &[&str] = match source {
        QuestionSource::SameRequest { .. } => return true,
        QuestionSource::XOriginal => &["x-original-method", "x-original-url", "x-original-uri"],
        QuestionSource::XForwarded => &["x-forwarded-method", "x-forwarded-uri"],
    };
    check.fields.iter().any(|field| says.iter().any(|name| field.name.eq_ignore_ascii_case(name)))
}

/// Extracts the original request from a check. `client` is the field that names the address of the
/// client.
pub(crate) fn original<'a>(
    source: &QuestionSource,
    client: Option<&str>,
    check: &ParsedRequest<'a>,
) -> Result<ParsedRequest<'a>, OriginalRequestError> {
    let about = CheckFields { fields: check.fields };
    let (method, target, url) = match source {
        QuestionSource::SameRequest { prefix } => {
            let rest = check.target.strip_prefix(prefix.as_bytes()).ok_or(OriginalRequestError::Prefix)?;
            // `/checks/x` is not below `/check`.
            if !prefix.is_empty() && !rest.starts_with(b"/") {
                return Err(OriginalRequestError::Prefix);
            }
            (check.method, rest, None)
        }
        QuestionSource::XOriginal => {
            let method =
                about.text("X-Original-Method")?.ok_or(OriginalRequestError::Missing("X-Original-Method"))?;
            match (about.single("X-Original-URL")?, about.single("X-Original-URI")?) {
                (Some(url), None) => {
                    let (scheme, authority, target) =
                        split_url(url).ok_or(OriginalRequestError::Unreadable("X-Original-URL"))?;
                    (method, target, Some((scheme, authority)))
                }
                (None, Some(target)) => (method, target, None),
                (None, None) => return Err(OriginalRequestError::Missing("X-Original-URI")),
                (Some(_), Some(_)) => {
                    return Err(OriginalRequestError::Repeated("X-Original-URL or X-Original-URI"));
                }
            }
        }
        QuestionSource::XForwarded => {
            let method = about
                .text("X-Forwarded-Method")?
                .ok_or(OriginalRequestError::Missing("X-Forwarded-Method"))?;
            let target =
                about.single("X-Forwarded-Uri")?.ok_or(OriginalRequestError::Missing("X-Forwarded-Uri"))?;
            (method, target, None)
        }
    };
    // In the other modes the proxy does not set `X-Forwarded-Host`, so it would be the client's.
    let (scheme, authority, host) = match (url, source) {
        (Some((scheme, authority)), _) => (scheme, None, Some(authority)),
        (None, QuestionSource::XForwarded) => {
            let host =
                about.single("X-Forwarded-Host")?.ok_or(OriginalRequestError::Missing("X-Forwarded-Host"))?;
            (about.scheme()?.unwrap_or(check.scheme), None, Some(host))
        }
        (None, _) => (check.scheme, check.authority, check.host),
    };
    Ok(ParsedRequest {
        method,
        target,
        scheme,
        authority,
        host,
        client: about.client(client).or(check.client),
        is_original: true,
        // Envoy joins repeated fields, as over gRPC; the others pass them on as received.
        repeats: match source {
            QuestionSource::SameRequest { .. } => Repeats::Joined,
            QuestionSource::XOriginal | QuestionSource::XForwarded => Repeats::Separate,
        },
        ..*check
    })
}

/// The fields with which the proxy reports the original request.
struct CheckFields<'f, 'a> {
    fields: &'f [Field<'a>],
}

impl<'a> CheckFields<'_, 'a> {
    /// The only value of a field. Errors if it is repeated or empty.
    fn single(&self, name: &'static str) -> Result<Option<&'a [u8]>, OriginalRequestError> {
        let mut of_name = self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        match (of_name.next(), of_name.next()) {
            (Some(_), Some(_)) => Err(OriginalRequestError::Repeated(name)),
            (Some(field), None) if field.value.is_empty() => Err(OriginalRequestError::Unreadable(name)),
            (field, _) => Ok(field.map(|field| field.value)),
        }
    }

    fn text(&self, name: &'static str) -> Result<Option<&'a str>, OriginalRequestError> {
        let value = self.single(name)?;
        value
            .map(|value| std::str::from_utf8(value).map_err(|_| OriginalRequestError::Unreadable(name)))
            .transpose()
    }

    /// `X-Forwarded-Proto`. A WebSocket starts as an HTTP request, but Traefik sends its own
    /// scheme.
    fn scheme(&self) -> Result<Option<Scheme>, OriginalRequestError> {
        match self.single("X-Forwarded-Proto")? {
            None => Ok(None),
            Some(b"https" | b"wss") => Ok(Some(Scheme::Https)),
            Some(b"http" | b"ws") => Ok(Some(Scheme::Http)),
            Some(_) => Err(OriginalRequestError::Unreadable("X-Forwarded-Proto")),
        }
    }

    /// The client's address as the proxy reports it. In `X-Forwarded-For` the last address counts,
    /// because the proxy appends it there. Any other field must be one address.
    fn client(&self, named: Option<&str>) -> Option<IpAddr> {
        const LIST: &str = "x-forwarded-for";
        let name = named.unwrap_or(LIST);
        let mut fields = self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        let last = fields.next_back()?;
        let text = std::str::from_utf8(last.value).ok()?;
        let address = if name.eq_ignore_ascii_case(LIST) {
            text.rsplit(',').next()?
        } else if fields.next().is_some() {
            return None;
        } else {
            text
        };
        address.trim().parse().ok()
    }
}

/// Splits an absolute URL into scheme, authority and target.
fn split_url(url: &[u8]) -> Option<(Scheme, &[u8], &[u8])> {
    let (scheme, rest) = match url {
        [b'h', b't', b't', b'p', b's', b':', b'/', b'/', rest @ ..] => (Scheme::Https, rest),
        [b'h', b't', b't', b'p', b':', b'/', b'/', rest @ ..] => (Scheme::Http, rest),
        _ => return None,
    };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'))?;
    let (authority, target) = rest.split_at(end);
    (!authority.is_empty() && target.starts_with(b"/")).then_some((scheme, authority, target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_engine::head::Framing;

    fn query<'a>(target: &'a str, fields: &'a [Field<'a>]) -> ParsedRequest<'a> {
        ParsedRequest {
            method: "GET",
            scheme: Scheme::Http,
            authority: None,
            host: Some(b"auth.internal"),
            target: target.as_bytes(),
            fields,
            framing: Framing::Length(0),
            has_length: false,
            upgrade: None,
            nominates: false,
            via: "1.1 postern",
            client: None,
            is_original: false,
            repeats: Repeats::Separate,
            block: None,
        }
    }

    fn about(
        source: &QuestionSource,
        target: &str,
        fields: &[(&str, &str)],
    ) -> Result<String, OriginalRequestError> {
        let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
        let original = original(source, None, &query(target, &fields))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let host = text(original.host.unwrap_or_default());
        let scheme = original.scheme.as_str();
        let client = original.client.map_or(String::new(), |client| format!(" for {client}"));
        Ok(format!("{} {scheme}://{host}{}{client}", original.method, text(original.target)))
    }

    #[test]
    fn envoy_asks_with_the_request_itself() {
        let bare = QuestionSource::SameRequest { prefix: "".into() };
        assert_eq!(about(&bare, "/a?b", &[]).unwrap(), "GET http://auth.internal/a?b");
        let more = [("x-forwarded-host", "other.example"), ("x-forwarded-for", "203.0.113.9, 10.0.0.1")];
        assert_eq!(about(&bare, "/a", &more).unwrap(), "GET http://auth.internal/a for 10.0.0.1");
        let below = QuestionSource::SameRequest { prefix: "/check".into() };
        assert_eq!(about(&below, "/check/a", &[]).unwrap(), "GET http://auth.internal/a");
        for target in ["/checks", "/check", "/a", "/"] {
            assert_eq!(about(&below, target, &[]), Err(OriginalRequestError::Prefix), "{target}");
        }
    }

    #[test]
    fn the_named_field_alone_is_the_address_of_the_client() {
        let client = |named: Option<&str>, fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields.iter().map(|(name, v)| Field { name, value: v.as_bytes() }).collect();
            let source = QuestionSource::SameRequest { prefix: "".into() };
            let original = original(&source, named, &query("/", &fields)).unwrap();
            original.client.map(|client| client.to_string())
        };
        let (list, real) = (("X-Forwarded-For", "198.51.100.1, 203.0.113.9"), ("x-real-ip", "192.0.2.7"));
        assert_eq!(client(None, &[list, real]).as_deref(), Some("203.0.113.9"));
        assert_eq!(client(Some("X-Forwarded-For"), &[list, real]).as_deref(), Some("203.0.113.9"));
        assert_eq!(client(Some("X-Real-IP"), &[list, real]).as_deref(), Some("192.0.2.7"));
        assert_eq!(client(Some("X-Real-IP"), &[list]), None, "not from another field");
        assert_eq!(client(Some("X-Real-IP"), &[real, ("X-Real-IP", "10.0.0.1")]), None, "which of the two?");
        for odd in ["", "192.0.2.7, 10.0.0.1", "192.0.2.7:80", "localhost", "unknown"] {
            assert_eq!(client(Some("X-Real-IP"), &[("X-Real-IP", odd)]), None, "{odd}");
        }
    }

    #[test]
    fn nginx_names_method_and_address() {
        let source = QuestionSource::XOriginal;
        let uri = [("X-Original-Method", "POST"), ("X-Original-URI", "/a?b=c")];
        assert_eq!(about(&source, "/auth", &uri).unwrap(), "POST http://auth.internal/a?b=c");
        let from_the_client = [uri[0], uri[1], ("X-Forwarded-Host", "public.example")];
        assert_eq!(about(&source, "/auth", &from_the_client).unwrap(), "POST http://auth.internal/a?b=c");
        let url = [("x-original-method", "PUT"), ("X-Original-URL", "https://app.example:8443/a")];
        assert_eq!(about(&source, "/auth", &url).unwrap(), "PUT https://app.example:8443/a");
        let missing = about(&source, "/auth", &[("X-Original-Method", "GET")]);
        assert_eq!(missing, Err(OriginalRequestError::Missing("X-Original-URI")));
        let missing = about(&source, "/auth", &[("X-Original-URI", "/a")]);
        assert_eq!(missing, Err(OriginalRequestError::Missing("X-Original-Method")));
        for url in ["app.example/a", "https://", "https:///a", "ftp://a/b", "https://app.example?x"] {
            let fields = [("X-Original-Method", "GET"), ("X-Original-URL", url)];
            assert_eq!(
                about(&source, "/auth", &fields),
                Err(OriginalRequestError::Unreadable("X-Original-URL")),
                "{url}"
            );
        }
        let both = [
            ("X-Original-Method", "GET"),
            ("X-Original-URI", "/a"),
            ("X-Original-URL", "https://app.example/b"),
        ];
        assert!(matches!(about(&source, "/auth", &both), Err(OriginalRequestError::Repeated(_))));
    }

    #[test]
    fn traefik_and_caddy_name_every_part() {
        let source = QuestionSource::XForwarded;
        let whole = [
            ("X-Forwarded-Method", "DELETE"),
            ("X-Forwarded-Proto", "wss"),
            ("X-Forwarded-Host", "app.example"),
            ("X-Forwarded-Uri", "/a/b?c"),
            ("X-Forwarded-For", "2001:db8::7"),
        ];
        let expected = "DELETE https://app.example/a/b?c for 2001:db8::7";
        assert_eq!(about(&source, "/", &whole).unwrap(), expected);
        for missing in ["X-Forwarded-Method", "X-Forwarded-Host", "X-Forwarded-Uri"] {
            let rest: Vec<_> = whole.iter().copied().filter(|(name, _)| *name != missing).collect();
            assert_eq!(about(&source, "/", &rest), Err(OriginalRequestError::Missing(missing)));
        }
    }

    #[test]
    fn what_is_said_twice_is_not_believed() {
        let whole =
            [("X-Forwarded-Method", "GET"), ("X-Forwarded-Host", "app.example"), ("X-Forwarded-Uri", "/a")];
        for (name, value) in [
            ("x-forwarded-method", "POST"),
            ("x-forwarded-host", "other.example"),
            ("x-forwarded-uri", "/admin"),
        ] {
            let twice: Vec<_> = whole.iter().copied().chain([(name, value)]).collect();
            assert!(
                matches!(
                    about(&QuestionSource::XForwarded, "/", &twice),
                    Err(OriginalRequestError::Repeated(_))
                ),
                "{name}"
            );
        }
        let odd = [whole[0], whole[1], whole[2], ("X-Forwarded-Proto", "gopher")];
        assert_eq!(
            about(&QuestionSource::XForwarded, "/", &odd),
            Err(OriginalRequestError::Unreadable("X-Forwarded-Proto"))
        );
    }
}
