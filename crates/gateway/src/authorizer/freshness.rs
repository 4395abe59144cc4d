//! Freshness: how long an authorizer's answer may be cached (RFC 9111).
//!
//! Owns: reading `Cache-Control`, `Vary` and `Age`. Does not own: what else may revoke an answer
//! ([`credentials::revocation`]), the cache.

use std::time::Duration;

use super::response::AuthorizerResponse;
use crate::config::AuthorizerConfig as Config;

/// How old an answer is (RFC 9111 section 5.1); `None`: the field cannot be parsed.
pub(super) fn age(response: &AuthorizerResponse) -> Option<Duration> {
    let mut ages = response.values("age");
    match (ages.next(), ages.next()) {
        (None, _) => Some(Duration::ZERO),
        (Some(age), None) => seconds(std::str::from_utf8(age).ok()?),
        (Some(_), Some(_)) => None,
    }
}

/// How long an answer is fresh (RFC 9111 section 4.2), if it may be cached at all (section 3). Only
/// explicit directives count: there is no heuristic freshness, and a repeated or unparsable
/// directive means `None`.
pub(super) fn freshness(
    response: &AuthorizerResponse,
    config: &Config,
    names_request: bool,
) -> Option<Duration> {
    if !matches!(response.status, 200..=299 | 401 | 403) || response.values("set-cookie").next().is_some() {
        return None;
    }
    let (mut max_age, mut shared_max_age) = (None, None);
    for directive in response.list("cache-control") {
        let directive = directive?;
        let (name, value) = directive.split_once('=').map_or((directive, None), |(n, v)| (n, Some(v)));
        let age = match name.trim().to_ascii_lowercase().as_str() {
            // `no-cache` and `private` may name single fields; here they always count for the whole
            // answer. A bare `private` allows only caches of one client.
            "no-store" | "no-cache" | "private" => return None,
            "max-age" => &mut max_age,
            "s-maxage" => &mut shared_max_age,
            _ => continue,
        };
        if age.replace(seconds(value?)?).is_some() {
            return None;
        }
    }
    // This cache serves many connections: `s-maxage`, for shared caches, takes precedence.
    let fresh = shared_max_age.or(max_age)?;
    let mut named = 0;
    for name in response.list("vary") {
        let name = name?;
        let shown = config.shown_fields.named().iter().find(|shown| shown.name.eq_ignore_ascii_case(name));
        let is_described = config.question.fields().iter().any(|field| field.eq_ignore_ascii_case(name));
        match shown {
            Some(shown) if shown.is_request_id && names_request => return None,
            None if !is_described => return None,
            _ => named += 1,
        }
    }
    // The answer may depend on fields that the key leaves out, and does not exclude that with
    // `Vary`.
    if names_request && named == 0 {
        return None;
    }
    fresh.checked_sub(age(response)?).filter(|left| !left.is_zero())
}

/// Parses `delta-seconds` (RFC 9111 section 1.2.2).
fn seconds(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A value that overflows exceeds any configured maximum.
    digits.then(|| Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}
