//! Values as Go programs write them: listen addresses, durations, URLs of servers, path patterns.

use std::net::{IpAddr, Ipv4Addr};

use crate::input_fault::InputFault;
use crate::settings::Given;

/// A listen address, and whether it stands for every address of the machine.
pub(crate) struct Listen {
    /// As it is written in a configuration.
    pub(crate) address: String,
    /// Whether the program also listens on IPv6, and the address here does not.
    pub(crate) loses_ipv6: bool,
}

/// Reads the address of a listener, `[HOST]:PORT`.
pub(crate) fn listen(given: &Given) -> Result<Listen, InputFault> {
    let fault = || given.fault("an IP address and a port, such as 0.0.0.0:8443 or :8443");
    let (host, port) = given.value.rsplit_once(':').ok_or_else(fault)?;
    let port: u16 = port.parse().map_err(|_| fault())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(match host {
        "" => Listen { address: format!("0.0.0.0:{port}"), loses_ipv6: true },
        "localhost" => Listen { address: format!("127.0.0.1:{port}"), loses_ipv6: false },
        host => match host.parse().map_err(|_| fault())? {
            // Go listens on both then.
            IpAddr::V6(any) if any.is_unspecified() => {
                Listen { address: format!("{}:{port}", Ipv4Addr::UNSPECIFIED), loses_ipv6: true }
            }
            IpAddr::V6(address) => Listen { address: format!("[{address}]:{port}"), loses_ipv6: false },
            IpAddr::V4(address) => Listen { address: format!("{address}:{port}"), loses_ipv6: false },
        },
    })
}

/// A duration as a configuration writes it; Go's may have several units (`1m30s`) and fractions.
pub(crate) fn duration(given: &Given) -> Result<String, InputFault> {
    let fault = || given.fault("a duration such as 30s or 1m30s");
    let mut millis = 0.0_f64;
    let mut rest = given.value.trim_start_matches('+');
    if rest == "0" {
        return Ok("0s".into());
    }
    if rest.is_empty() {
        return Err(fault());
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fault)?;
        let number: f64 = rest[..end].parse().map_err(|_| fault())?;
        let units = [
            ("ms", 1.0),
            ("us", 0.001),
            ("ns", 0.000_001),
            ("h", 3_600_000.0),
            ("m", 60_000.0),
            ("s", 1000.0),
        ];
        let (unit, factor) =
            units.iter().find(|(unit, _)| rest[end..].starts_with(*unit)).ok_or_else(fault)?;
        millis += number * factor;
        rest = &rest[end + unit.len()..];
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked below")]
    let whole = millis.round() as u64;
    if !(0.0..=1e15).contains(&millis) {
        return Err(fault());
    }
    Ok(match whole {
        _ if whole.is_multiple_of(3_600_000) => format!("{}h", whole / 3_600_000),
        _ if whole.is_multiple_of(60_000) => format!("{}m", whole / 60_000),
        _ if whole.is_multiple_of(1000) => format!("{}s", whole / 1000),
        _ => format!("{whole}ms"),
    })
}

/// Origin and path of a server's URL: `http://127.0.0.1:8080` and `/`.
pub(crate) fn server(given: &Given) -> Result<(String, String), InputFault> {
    let fault = || given.fault("a URL such as http://127.0.0.1:8080");
    let (scheme, rest) = given.value.split_once("://").ok_or_else(fault)?;
    if !matches!(scheme, "http" | "https") {
        return Err(fault());
    }
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    if authority.is_empty() || authority.contains(['@', '?', '#']) {
        return Err(fault());
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = match (has_port, scheme) {
        (true, _) => authority.to_owned(),
        (false, "https") => format!("{authority}:443"),
        (false, _) => format!("{authority}:80"),
    };
    Ok((format!("{scheme}://{authority}"), path.to_owned()))
}

/// Origin of a URL as browsers write it, without the default port, and its path.
pub(crate) fn origin(given: &Given) -> Result<(String, String), InputFault> {
    let (server, path) = server(given)?;
    let origin = match (server.strip_suffix(":443"), server.strip_suffix(":80")) {
        (Some(origin), _) if origin.starts_with("https:") => origin.to_owned(),
        (_, Some(origin)) if origin.starts_with("http:") => origin.to_owned(),
        _ => server,
    };
    Ok((origin, path))
}

/// The paths that a regular expression matches, if a route can say it: `^/a$` is itself, `^/a/` and
/// `^/a/.*` everything below. An expression without `^` also matches in the middle of a path.
pub(crate) fn regex_path(pattern: &str) -> Option<toml::Value> {
    let rest = pattern.strip_prefix('^')?;
    let (body, is_exact) = match rest.strip_suffix('$') {
        Some(body) => (body, true),
        None => (rest, false),
    };
    let (body, is_exact) = match body.strip_suffix(".*").or_else(|| body.strip_suffix("(.*)")) {
        Some(body) => (body, false),
        None => (body, is_exact),
    };
    let plain = body.replace("\\.", ".").replace("\\-", "-").replace("\\/", "/");
    let is_plain = |text: &str| {
        text.starts_with('/')
            && !text.contains(['*', '+', '?', '(', ')', '[', ']', '|', '\\', '{', '}', '$', '^'])
    };
    // An unescaped dot matches a dot too, and more: the route is narrower.
    if !is_plain(&plain) {
        return None;
    }
    if is_exact {
        return Some(crate::draft::inline([("exact", plain.into())]));
    }
    // `^/a` also matches `/ab`, which no prefix does.
    let prefix = plain.strip_suffix('/')?;
    // A prefix here also has `/a` itself.
    Some(crate::draft::inline([match prefix {
        "" => ("prefix", "/".into()),
        prefix => ("template", format!("{prefix}/{{rest...}}").into()),
    }]))
}

/// A pattern of Go's `path.Match` as a route's path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PathPattern {
    /// This path only.
    Exact(String),
    /// One segment for each `*`.
    Template(String),
    /// It has no equal: a wildcard within a segment.
    Other,
}

impl PathPattern {
    /// Whether a path has the pattern. One without an equal has none.
    pub(crate) fn fits(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == path,
            Self::Template(template) => {
                let pair =
                    |(own, given): (&str, &str)| own == given || (own.starts_with('{') && !given.is_empty());
                template.split('/').count() == path.split('/').count()
                    && template.split('/').zip(path.split('/')).all(pair)
            }
            Self::Other => false,
        }
    }
}

/// Translates a pattern in which `*` stands for any characters of one segment.
pub(crate) fn path_pattern(pattern: &str) -> PathPattern {
    if !pattern.starts_with('/') || pattern.contains(['?', '[', ']', '\\', '{', '}']) {
        return PathPattern::Other;
    }
    if !pattern.contains('*') {
        return PathPattern::Exact(pattern.to_owned());
    }
    let mut count = 0;
    let segments: Option<Vec<String>> = pattern
        .split('/')
        .map(|segment| match segment {
            "*" => {
                count += 1;
                Some(format!("{{s{count}}}"))
            }
            plain if plain.contains('*') => None,
            plain => Some(plain.to_owned()),
        })
        .collect();
    segments.map_or(PathPattern::Other, |segments| PathPattern::Template(segments.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: &str) -> Given {
        Given::new(value, "--x")
    }

    #[test]
    fn listen_addresses() {
        for (text, address, loses_ipv6) in [
            (":8443", "0.0.0.0:8443", true),
            ("0.0.0.0:8443", "0.0.0.0:8443", false),
            ("[::]:8443", "0.0.0.0:8443", true),
            ("[::1]:8443", "[::1]:8443", false),
            ("localhost:80", "127.0.0.1:80", false),
        ] {
            let listen = listen(&given(text)).unwrap();
            assert_eq!((&*listen.address, listen.loses_ipv6), (address, loses_ipv6), "{text}");
        }
        for odd in ["", "8443", "host:8443", ":https", ":70000"] {
            assert!(listen(&given(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn durations() {
        for (text, expected) in [
            ("30s", "30s"),
            ("1m0s", "1m"),
            ("1m30s", "90s"),
            ("168h", "168h"),
            ("1.5s", "1500ms"),
            ("0", "0s"),
            ("250ms", "250ms"),
        ] {
            assert_eq!(duration(&given(text)).unwrap(), expected, "{text}");
        }
        for odd in ["", "30", "s", "1d", "-1s", "1m30"] {
            assert!(duration(&given(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn servers() {
        for (text, origin, path) in [
            ("http://127.0.0.1:8888/", "http://127.0.0.1:8888", "/"),
            ("https://backend.ns.svc", "https://backend.ns.svc:443", "/"),
            ("http://[::1]:80/a/b", "http://[::1]:80", "/a/b"),
        ] {
            assert_eq!(server(&given(text)).unwrap(), (origin.to_owned(), path.to_owned()), "{text}");
        }
        for odd in ["", "127.0.0.1:8888", "ftp://a", "http://", "http://u:p@a"] {
            assert!(server(&given(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn path_patterns() {
        let exact = |text: &str| PathPattern::Exact(text.into());
        let template = |text: &str| PathPattern::Template(text.into());
        for (text, expected) in [
            ("/metrics", exact("/metrics")),
            ("/api/*/x/*", template("/api/{s1}/x/{s2}")),
            ("/api/v*", PathPattern::Other),
            ("/a?", PathPattern::Other),
            ("metrics", PathPattern::Other),
            ("/[ab]", PathPattern::Other),
        ] {
            assert_eq!(path_pattern(text), expected, "{text}");
        }
    }
}
