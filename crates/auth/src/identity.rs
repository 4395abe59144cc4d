//! Identity: what a verified credential says about its holder.
//!
//! [`Facts`] is what the decision cache holds: the fact, never the decision of a route, so that
//! rules are evaluated again on every hit. [`Identity`] is the part that rules and upstream headers
//! read.

use crate::time::Timestamp;

/// The kind of credential that proved an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// A signed JWT (RFC 7519), such as an RFC 9068 access token.
    Jwt,
    /// A token that a token authority was queried about.
    Opaque,
    /// A TLS client certificate.
    Certificate,
    /// A browser session, begun by a login at a provider.
    Session,
    /// A user name and a password (HTTP Basic, RFC 7617).
    Basic,
}

impl CredentialKind {
    /// The lower-case identifier used in logs, metrics and `check`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jwt => "jwt",
            Self::Opaque => "opaque",
            Self::Certificate => "certificate",
            Self::Session => "session",
            Self::Basic => "basic",
        }
    }
}

/// The identity of a caller. All strings are UTF-8 without control characters (refused by the
/// mapping), so that they can be written into a header or a log line unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The kind of credential that proved it.
    pub kind: CredentialKind,
    /// The configured name of the issuer (or certificate authority entry) that authenticated the
    /// caller. Rules and metrics use it. Not the issuer URL.
    pub issuer: Box<str>,
    /// Stable identifier within the issuer: `sub`, or the mapped part of a certificate.
    pub subject: Box<str>,
    /// Human-readable user name, if the mapping found one.
    pub user: Option<Box<str>>,
    /// E-mail address, only if the mapping's verification requirement was met; exactly one `@`.
    pub email: Option<Box<str>>,
    /// OAuth client that the token was issued to (`client_id` or `azp`).
    pub client: Option<Box<str>>,
    /// Groups and roles, in token order, without duplicates.
    pub groups: Vec<Box<str>>,
    /// The groups are too many for the token: it names only where they can be queried (aggregated
    /// and distributed claims, `OpenID` Connect Core §5.6.2; Microsoft Entra ID). Rules about them do
    /// not match.
    pub groups_elsewhere: bool,
    /// OAuth scopes (RFC 8693 `scope` string or array).
    pub scopes: Vec<Box<str>>,
    /// Further claims that the configuration keeps: path as written in the configuration → its
    /// values as text. An array gives one value for each element; numbers and booleans keep their
    /// JSON spelling. Sorted by path.
    pub claims: Vec<(Box<str>, Vec<Box<str>>)>,
}

impl Identity {
    /// The values kept under a configured claim path; empty when the token did not have the claim.
    pub fn claim(&self, path: &str) -> &[Box<str>] {
        match self.claims.binary_search_by(|(p, _)| p.as_ref().cmp(path)) {
            Ok(i) => &self.claims[i].1,
            Err(_) => &[],
        }
    }

    /// The user name if there is one, otherwise the subject: the caller's name in a log line or
    /// header.
    pub fn display_name(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.subject)
    }

    /// Approximate heap size in bytes, for the byte limit of the decision cache.
    pub fn heap_size(&self) -> usize {
        let text = |s: &str| s.len() + size_of::<Box<str>>();
        let list = |l: &[Box<str>]| l.iter().map(|s| text(s)).sum::<usize>();
        size_of::<Self>()
            + self.issuer.len()
            + self.subject.len()
            + [&self.user, &self.email, &self.client]
                .iter()
                .map(|o| o.as_deref().map_or(0, str::len))
                .sum::<usize>()
            + list(&self.groups)
            + list(&self.scopes)
            + self
                .claims
                .iter()
                .map(|(p, v)| p.len() + list(v) + size_of::<(Box<str>, Vec<Box<str>>)>())
                .sum::<usize>()
    }
}

/// A verified credential: the identity, and how long the credential is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Identity of the holder.
    pub identity: Identity,
    /// The credential has expired when `now >= expires` (clock skew already added).
    pub expires: Timestamp,
    /// The credential is not yet valid while `now < not_before` (clock skew already subtracted).
    pub not_before: Timestamp,
}

impl Facts {
    /// Whether the credential's own validity interval contains `now`. It has expired when
    /// `now >= expires`.
    pub fn valid_at(&self, now: Timestamp) -> bool {
        now >= self.not_before && now < self.expires
    }
}
