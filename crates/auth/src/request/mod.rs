//! Canonical request: the one normal form of a request.
//!
//! Owns: which requests are equal. [`Canonical::parse`] turns the received method, authority and
//! target into the one value that is matched, authorized, logged and forwarded, or refuses it with
//! a [`Malformed`]. No later code reads the received bytes again, so an attacker cannot cause a
//! second, different reading.
//!
//! Does not own: message framing and field syntax (the codecs), what a host or a path means
//! (`policy`).
//!
//! Flow: `RawRequest → method token → authority and Host agree → path segments → query escapes →
//! Canonical`.
//!
//! A request that is canonical already, as nearly all are, is borrowed. That takes one pass over
//! the path, one over the query, one over the host, and no allocation.

mod bytes;
mod escape;
mod host;
mod malformed;
mod path;
mod query;
mod readings;

use std::borrow::Cow;

pub use malformed::Malformed;
pub use query::form_pairs;
pub(crate) use query::pairs;

/// Longest accepted target (path and query) in bytes. RFC 9112 §3 asks for at least 8000.
pub const MAX_TARGET: usize = 64 * 1024;
/// Longest accepted method in bytes; the longest registered one has 17.
pub const MAX_METHOD: usize = 32;
/// Longest accepted host in bytes, without port: the longest DNS name (RFC 1035 §2.3.4).
pub const MAX_HOST: usize = 253;

/// One header field, as it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field name, in the case in which it arrived.
    pub name: &'a str,
    /// The field value without the optional white space around it (RFC 9110 §5.5).
    pub value: &'a [u8],
}

/// The scheme of the effective request URI, from the connection of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Unencrypted (`http`).
    Http,
    /// Over TLS (`https`).
    Https,
}

impl Scheme {
    /// `http` or `https`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port that an authority without a port means (RFC 9110 §4.2.1, §4.2.2).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The parts of a request head that identify the target, as the codec received them.
#[derive(Debug, Clone, Copy)]
pub struct RawRequest<'a> {
    /// The method; a codec has checked at most that it is UTF-8.
    pub method: &'a str,
    /// The scheme of the connection on which the request came.
    pub scheme: Scheme,
    /// `:authority`, or the authority of an absolute-form target.
    pub authority: Option<&'a [u8]>,
    /// The value of the one `Host` field; a codec has refused a second one (RFC 9112 §3.2).
    pub host: Option<&'a [u8]>,
    /// Path and query in origin form, or `*` (RFC 9112 §3.2).
    pub target: &'a [u8],
}

/// A request in its normal form: equal requests have equal bytes. Where servers read one path in
/// several ways, routing checks all of them
/// ([`RouteTable::find`](crate::policy::route::RouteTable::find)), and the path is forwarded as it
/// was received.
///
/// * The host is a lower-case A-label name without trailing dot, or an IP literal in its RFC 5952
///   spelling. The port is absent when it is the scheme's default.
/// * The path is absolute. Unreserved characters are never escaped; all others that need it are, in
///   upper-case hexadecimal (RFC 3986 §6.2.2).
/// * The query is as received. Whether it can be read as a form is checked where something reads it
///   ([`Canonical::query_fault`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canonical<'a> {
    method: &'a str,
    scheme: Scheme,
    authority: host::Authority<'a>,
    path: path::Path<'a>,
    query: Option<&'a str>,
}

/// The authority that a `Host` field stands for, in normal form.
#[derive(Debug, Clone)]
pub struct KnownHost {
    authority: host::Authority<'static>,
    /// The port may be the default of the scheme.
    scheme: Scheme,
}

impl<'a> Canonical<'a> {
    /// Parses a request as it was received.
    ///
    /// # Errors
    /// [`Malformed`] when the request has no single reading. It must be answered with that error's
    /// status, and reach no upstream.
    pub fn parse(raw: &RawRequest<'a>) -> Result<Self, Malformed> {
        Self::parse_for(raw, || host::request_authority(raw.authority, raw.host, raw.scheme))
    }

    /// [`Canonical::parse`] for a request that need not name a host, as in HTTP/1.0. Without one, its
    /// host is empty: routes for any host match it, and no others.
    ///
    /// # Errors
    /// As [`Canonical::parse`], but never [`Malformed::HostMissing`].
    pub fn parse_with_optional_host(raw: &RawRequest<'a>) -> Result<Self, Malformed> {
        if raw.authority.is_none() && raw.host.is_none() {
            Self::parse_for(raw, || Ok(host::Authority::absent()))
        } else {
            Self::parse(raw)
        }
    }

    /// [`Canonical::parse`] for a request whose `Host` field has the same bytes as the request that
    /// `known` is of: they are not checked again. What also has an authority in its target, or another
    /// scheme, is parsed as any other.
    ///
    /// # Errors
    /// As [`Canonical::parse`].
    pub fn parse_with_known_host(raw: &RawRequest<'a>, known: &'a KnownHost) -> Result<Self, Malformed> {
        if raw.authority.is_some() || raw.host.is_none() || raw.scheme != known.scheme {
            return Self::parse(raw);
        }
        Self::parse_for(raw, || Ok(known.authority.borrowed()))
    }

    /// The authority of this request, for later ones with the same `Host` field.
    pub fn known_host(&self) -> KnownHost {
        KnownHost { authority: self.authority.borrowed().into_owned(), scheme: self.scheme }
    }

    fn parse_for(
        raw: &RawRequest<'a>,
        authority: impl FnOnce() -> Result<host::Authority<'a>, Malformed>,
    ) -> Result<Self, Malformed> {
        let method = check_method(raw.method)?;
        let authority = authority()?;
        if raw.target.len() > MAX_TARGET {
            return Err(Malformed::TargetTooLong);
        }
        let target = str::from_utf8(raw.target).map_err(|_| Malformed::NonAscii)?;
        let (path, query) = if target == "*" {
            // Only OPTIONS may be about the server as a whole (RFC 9112 §3.2.4).
            if method != "OPTIONS" {
                return Err(Malformed::AsteriskMethod);
            }
            (path::Path::asterisk(), None)
        } else {
            let (path, end) = path::canonical(target)?;
            let query = target.get(end + 1..);
            query.map_or(Ok(()), query::check_bytes)?;
            (path, query)
        };
        Ok(Self { method, scheme: raw.scheme, authority, path, query })
    }

    /// The method, a token; its case is significant (RFC 9110 §9.1). Never `CONNECT` or `TRACE`.
    pub fn method(&self) -> &str {
        self.method
    }

    /// The method whose permission is needed: `GET` for `HEAD`, which discloses what `GET` would
    /// (RFC 9110 §9.3.2); otherwise the method itself.
    pub fn required_method(&self) -> &str {
        if self.method == "HEAD" { "GET" } else { self.method }
    }

    /// The scheme of the client's connection.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host without port: a lower-case name, an IPv4 address, or an IPv6 address in brackets.
    /// Empty for a request without one ([`Canonical::parse_with_optional_host`]).
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    /// The port, when it is not the scheme's default.
    pub fn port(&self) -> Option<u16> {
        self.authority.port()
    }

    /// `host[:port]`, for the upstream's `Host` or `:authority` when the client's host is passed
    /// on.
    pub fn authority(&self) -> &str {
        self.authority.as_str()
    }

    /// The normal path, beginning with `/`; `*` for `OPTIONS *`.
    pub fn path(&self) -> &str {
        self.path.as_str()
    }

    /// The query as received, without its `?`; `Some("")` when nothing follows the `?`.
    pub fn query(&self) -> Option<&str> {
        self.query
    }

    /// The path to forward and to log: as it was received where servers may read it in several
    /// ways, otherwise the normal path.
    pub fn forwarded_path(&self) -> &str {
        self.path.forwarded()
    }

    /// Paths in normal form that some servers read instead of this one. Empty for most paths.
    pub fn other_readings(&self) -> &[Box<str>] {
        self.path.ambiguity().map_or(&[], |ambiguity| &ambiguity.readings.others)
    }

    /// The request in each of [`Canonical::other_readings`].
    pub fn other_requests(&self) -> impl Iterator<Item = Canonical<'_>> {
        self.other_readings().iter().map(|reading| self.with_path(path::Path::of_reading(reading)))
    }

    /// Why the request is refused where a path must have one reading; `None` when it has.
    pub fn strict_fault(&self) -> Option<Malformed> {
        self.path.ambiguity().and_then(|ambiguity| ambiguity.strict)
    }

    /// Why the query cannot be read as a form: a percent sign without two hexadecimal digits,
    /// escapes that do not decode to UTF-8, or NUL; or [`Canonical::query_start_fault`]. It matters
    /// only to those who read parameters.
    pub fn query_fault(&self) -> Option<Malformed> {
        let form = || self.query.and_then(|query| query::validate(query).err());
        self.query_start_fault().or_else(form)
    }

    /// Why servers disagree on where the query begins: the path has an escaped `?`.
    pub fn query_start_fault(&self) -> Option<Malformed> {
        let hidden = self.path.ambiguity().is_some_and(|ambiguity| ambiguity.readings.hide_query);
        hidden.then_some(Malformed::ForbiddenEscape)
    }

    /// Appends path and query in the form that is forwarded and logged.
    pub fn write_target(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.forwarded_path().as_bytes());
        if let Some(query) = self.query {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
    }

    /// The decoded values of every query parameter of this name, in order, read as a form
    /// (`application/x-www-form-urlencoded`: `+` is a space, and without `=` the value is empty).
    pub fn query_values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = Cow<'s, str>> {
        pairs(self.query).filter(move |(key, _)| key.decodes_to(name)).map(|(_, value)| value.decode())
    }

    /// The path after a prefix that ends on a segment boundary. `/` when nothing is left, `None`
    /// when the path is not below the prefix. A trailing `/` of the prefix has no meaning.
    pub fn path_below(&self, prefix: &str) -> Option<&str> {
        below(self.path(), prefix)
    }

    /// [`Canonical::path_below`] of the path that is forwarded, for prefix stripping.
    ///
    /// # Errors
    /// [`Malformed::PrefixReadings`] when servers disagree whether the path is below the prefix, or
    /// on where the prefix ends.
    pub fn forwarded_below(&self, prefix: &str) -> Result<Option<&str>, Malformed> {
        let rest = self.path_below(prefix);
        let Some(ambiguity) = self.path.ambiguity() else { return Ok(rest) };
        let mut others = ambiguity.readings.others.iter();
        if others.any(|reading| below(reading, prefix).is_some() != rest.is_some()) {
            return Err(Malformed::PrefixReadings);
        }
        if rest.is_none() {
            return Ok(None);
        }
        // The prefix ends before the same slash as in the normal path, or the path itself does.
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let slashes = prefix.bytes().filter(|&byte| byte == b'/').count();
        let received = &*ambiguity.received;
        let end = received.match_indices('/').nth(slashes).map_or(received.len(), |(at, _)| at);
        let same =
            prefix.is_empty() || canonical_path(&received[..end]).is_ok_and(|(path, _)| path == prefix);
        if !same {
            return Err(Malformed::PrefixReadings);
        }
        Ok(Some(received.get(end..).filter(|rest| !rest.is_empty()).unwrap_or("/")))
    }

    /// The same request with another path, which is normalised again; the query stays.
    ///
    /// # Errors
    /// As [`Canonical::parse`] for the path, and [`Malformed::TargetForm`] when it holds a `?` or
    /// this request is `OPTIONS *`.
    pub fn rewritten(&self, new_path: &str) -> Result<Canonical<'_>, Malformed> {
        Ok(self.with_path(self.new_path(new_path)?))
    }

    /// The same request with another method.
    ///
    /// # Errors
    /// As [`Canonical::parse`] for the method, and [`Malformed::AsteriskMethod`] when this request is
    /// `OPTIONS *`.
    pub fn with_method<'s>(&'s self, method: &'s str) -> Result<Canonical<'s>, Malformed> {
        if self.path() == "*" {
            return Err(Malformed::AsteriskMethod);
        }
        let Self { scheme, query, .. } = *self;
        let (authority, path) = (self.authority.borrowed(), self.path.clone());
        Ok(Canonical { method: check_method(method)?, scheme, authority, path, query })
    }

    fn with_path<'s>(&'s self, path: path::Path<'s>) -> Canonical<'s> {
        let Self { method, scheme, query, .. } = *self;
        Canonical { method, scheme, authority: self.authority.borrowed(), path, query }
    }

    /// [`Canonical::rewritten`] for a request that is not needed any more.
    ///
    /// # Errors
    /// As [`Canonical::rewritten`].
    pub fn into_rewritten(self, new_path: &str) -> Result<Self, Malformed> {
        let path = self.new_path(new_path)?;
        Ok(Self { path, ..self })
    }

    fn new_path(&self, new_path: &str) -> Result<path::Path<'static>, Malformed> {
        if new_path.len() > MAX_TARGET {
            return Err(Malformed::TargetTooLong);
        }
        let (path, end) = path::canonical(new_path)?;
        if end != new_path.len() || self.path() == "*" {
            return Err(Malformed::TargetForm);
        }
        Ok(path.into_owned())
    }
}

/// What is left of a path behind a prefix that ends on a segment boundary.
fn below<'p>(path: &'p str, prefix: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(prefix.strip_suffix('/').unwrap_or(prefix))?;
    match rest.as_bytes() {
        [] => Some("/"),
        [b'/', ..] => Some(rest),
        _ => None,
    }
}

/// The normal form of a configured path, and whether servers could read it in another way too. So
/// patterns and requests are compared in the same spelling.
pub(crate) fn canonical_path(path: &str) -> Result<(Cow<'_, str>, bool), Malformed> {
    let (normal, end) = path::canonical(path)?;
    if let Some(fault) = normal.ambiguity().and_then(|ambiguity| ambiguity.strict) {
        return Err(fault);
    }
    let several = normal.ambiguity().is_some();
    if end == path.len() { Ok((normal.into_text(), several)) } else { Err(Malformed::TargetForm) }
}

/// The normal form of a configured host without port.
pub(crate) fn canonical_host(host: &str) -> Result<Cow<'_, str>, Malformed> {
    host::normalize_host(host)
}

/// Whether `text` is a token (RFC 9110 §5.6.2).
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// Checks a method. `CONNECT` would open a tunnel past every rule, and `TRACE` reflects
/// credentials. Both are refused in any letter case, since some upstreams ignore the case.
fn check_method(method: &str) -> Result<&str, Malformed> {
    if matches!(method, "GET" | "POST" | "PUT" | "HEAD" | "PATCH" | "DELETE" | "OPTIONS") {
        return Ok(method);
    }
    if method.len() > MAX_METHOD || !is_token(method) {
        return Err(Malformed::Method);
    }
    if is_refused_method(method) {
        return Err(Malformed::MethodRefused);
    }
    if has_lower_case(method) {
        return Err(Malformed::MethodCase);
    }
    Ok(method)
}

/// Whether a method has a lower-case letter, unlike all registered ones.
pub(crate) fn has_lower_case(method: &str) -> bool {
    method.bytes().any(|b| b.is_ascii_lowercase())
}

/// Whether a method is never served: `CONNECT` and `TRACE`.
pub(crate) fn is_refused_method(method: &str) -> bool {
    method.eq_ignore_ascii_case("CONNECT") || method.eq_ignore_ascii_case("TRACE")
}
