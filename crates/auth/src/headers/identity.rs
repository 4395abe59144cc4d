//! Identity headers: an identity, written into header fields.
//!
//! A value is sent unchanged when it consists of printable ASCII other than `%`. Every other octet
//! of it (UTF-8) is percent-encoded, as are spaces at either end, which recipients remove. RFC 9110
//! §5.5 limits new fields to ASCII, and servers disagree about the rest: some read UTF-8, others
//! Latin-1. Since `%` itself is encoded, decoding is exact, and two different values never look the
//! same.
//!
//! Lists are joined by `,` (scopes by a space, RFC 6749 §3.3). A separator inside a value is
//! encoded too, and so is `"`, which a list parser could read as the start of a quoted string. A
//! group named `a,admin` arrives as `a%2Cadmin` and does not give the group `admin`. Dropping such
//! values would silently remove rights, and no recipient understands escaping by backslash.

use super::{StripSet, is_essential, is_per_hop, is_same_alias_class};
use crate::identity::Identity;
use crate::request::is_token;

/// The value that a header field gets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HeaderSource {
    /// The user name, or the subject where there is none ([`Identity::display_name`]).
    User,
    /// The user name, if there is one.
    PreferredUsername,
    /// The subject within its issuer.
    Subject,
    /// The configured name of the issuer.
    Issuer,
    /// The e-mail address, if there is one.
    Email,
    /// The OAuth client, if there is one.
    Client,
    /// Groups, joined by `,`.
    Groups,
    /// Scopes, joined by a space.
    Scopes,
    /// The values kept under this configured claim path, joined by `,`.
    Claim(Box<str>),
}

/// Why a field cannot carry an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// The name is not a token (RFC 9110 §5.1), or would stand for a family.
    #[error("{0:?} is not the name of one header: write letters, digits and -, such as X-User")]
    Name(String),
    /// HTTP or the gateway itself uses the name.
    #[error("the header {0} has a meaning of its own and cannot carry an identity: choose an x- name")]
    Reserved(String),
    /// Many servers take the two fields for one.
    #[error("many servers treat the headers {0} and {1} as the same: keep one")]
    Alias(String, String),
}

impl HeaderFault {
    /// Why the gateway cannot set a field of this name besides `others`; `None` when it can.
    pub fn check<'n>(name: &str, others: impl IntoIterator<Item = &'n str>) -> Option<Self> {
        // A `*` is a valid character of a token, but a strip set reads it as a family, and the
        // client's field would pass.
        if !is_token(name) || name.contains('*') {
            return Some(Self::Name(name.into()));
        }
        if is_per_hop(name) || is_essential(name) || is_gateway_field(name) {
            return Some(Self::Reserved(name.into()));
        }
        others
            .into_iter()
            .find(|other| is_same_alias_class(name, other))
            .map(|other| Self::Alias(other.into(), name.into()))
    }
}

/// The fields that tell the upstream who the caller is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityHeaders {
    fields: Box<[(Box<str>, HeaderSource)]>,
}

impl IdentityHeaders {
    /// No fields: the upstream is told nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// The fields `X-Forwarded-User`, `-Email`, `-Groups`, `-Preferred-Username`.
    pub fn x_forwarded() -> Self {
        Self::family("X-Forwarded-")
    }

    /// The fields `X-Auth-Request-User`, `-Email`, `-Groups`, `-Preferred-Username`.
    pub fn x_auth_request() -> Self {
        Self::family("X-Auth-Request-")
    }

    fn family(prefix: &str) -> Self {
        let fields = [
            ("User", HeaderSource::User),
            ("Email", HeaderSource::Email),
            ("Groups", HeaderSource::Groups),
            ("Preferred-Username", HeaderSource::PreferredUsername),
        ];
        Self {
            fields: fields
                .into_iter()
                .map(|(name, source)| (format!("{prefix}{name}").into(), source))
                .collect(),
        }
    }

    /// Configured fields, in this order.
    ///
    /// # Errors
    /// Every name that cannot be used.
    pub fn custom(fields: Vec<(String, HeaderSource)>) -> Result<Self, Vec<HeaderFault>> {
        let names = || fields.iter().map(|(name, _)| name.as_str());
        let faults: Vec<_> = names()
            .enumerate()
            .filter_map(|(index, name)| HeaderFault::check(name, names().take(index)))
            .collect();
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self { fields: fields.into_iter().map(|(name, source)| (name.into(), source)).collect() })
    }

    /// The names of all fields that may be set; every one belongs into the [`StripSet`].
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| &**name)
    }

    /// The strip set for these fields, and for `others` that the gateway sets itself.
    pub fn strip_set<'n>(&'n self, others: impl IntoIterator<Item = &'n str>) -> StripSet {
        StripSet::new(self.names().chain(others))
    }

    /// The fields for an identity, in configured order; attributes that the identity does not have
    /// are left out. Values consist of visible ASCII and inner spaces.
    pub fn render(&self, identity: &Identity) -> Vec<(Box<str>, Box<[u8]>)> {
        let rendered = self.fields.iter().map(|(name, source)| (name.clone(), source.render(identity)));
        rendered.filter(|(_, value)| !value.is_empty()).collect()
    }
}

/// Whether the gateway writes this field itself, for other purposes.
fn is_gateway_field(name: &str) -> bool {
    const OURS: [&str; 8] = [
        "forwarded",
        "tracestate",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-prefix",
        "x-real-ip",
    ];
    OURS.iter().any(|taken| super::is_alias(name, taken))
}

impl HeaderSource {
    pub(super) fn render(&self, identity: &Identity) -> Box<[u8]> {
        let one = |text: Option<&str>| text.map_or_else(Box::default, |text| join([text].into_iter(), None));
        let list = |list: &[Box<str>], separator| join(list.iter().map(|text| &**text), Some(separator));
        match self {
            Self::User => one(Some(identity.display_name())),
            Self::PreferredUsername => one(identity.user.as_deref()),
            Self::Subject => one(Some(&identity.subject)),
            Self::Issuer => one(Some(&identity.issuer)),
            Self::Email => one(identity.email.as_deref()),
            Self::Client => one(identity.client.as_deref()),
            Self::Groups => list(&identity.groups, b','),
            Self::Scopes => list(&identity.scopes, b' '),
            Self::Claim(path) => list(identity.claim(path), b','),
        }
    }
}

/// Encodes values and joins them; empty ones are left out.
fn join<'v>(values: impl Iterator<Item = &'v str>, separator: Option<u8>) -> Box<[u8]> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = Vec::new();
    for value in values.filter(|value| !value.is_empty()) {
        if !out.is_empty() {
            out.extend(separator);
        }
        let inner = value.len() - value.trim_start_matches(' ').len()..value.trim_end_matches(' ').len();
        for (at, byte) in value.bytes().enumerate() {
            let plain = match byte {
                b'%' => false,
                b' ' => separator != Some(b' ') && inner.contains(&at),
                b'"' => separator.is_none(),
                _ => byte.is_ascii_graphic() && separator != Some(byte),
            };
            if plain {
                out.push(byte);
            } else {
                let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
                out.extend([b'%', high, low]);
            }
        }
    }
    out.into()
}
