//! What a verified credential says about its holder.
//!
//! [`Facts`] is what the decision cache holds: never "this route said yes", always the fact, so that rules
//! are evaluated again on every hit. [`Identity`] is the part rules and upstream headers read.

use crate::time::Timestamp;

/// The kind of credential an identity was proven with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CredentialKind {
    /// A signed JWT (RFC 7519), an RFC 9068 access token among them.
    Jwt,
    /// A token that an authority was asked about.
    Opaque,
    /// A TLS client certificate.
    Certificate,
    /// A session of a browser, begun at a provider.
    Session,
}

impl CredentialKind {
    /// The lower-case word used in logs, metrics and `check`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jwt => "jwt",
            Self::Opaque => "opaque",
            Self::Certificate => "certificate",
            Self::Session => "session",
        }
    }
}

/// Who the caller is. All strings are UTF-8 without control characters (refused at mapping time), so that
/// they can be written into a header or a log line as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// How it was proven.
    pub kind: CredentialKind,
    /// The configured name of the issuer (or certificate authority entry) that vouches; what rules and
    /// metrics name. Not the issuer URL.
    pub issuer: Box<str>,
    /// Stable identifier within the issuer: `sub`, or the mapped part of a certificate.
    pub subject: Box<str>,
    /// Human-readable user name, where the mapping found one.
    pub user: Option<Box<str>>,
    /// E-mail address, only when the mapping's verification demand was met; exactly one `@`.
    pub email: Option<Box<str>>,
    /// OAuth client the token was issued to (`client_id` or `azp`).
    pub client: Option<Box<str>>,
    /// Groups and roles, in token order, without duplicates.
    pub groups: Vec<Box<str>>,
    /// OAuth scopes (RFC 8693 `scope` string or array).
    pub scopes: Vec<Box<str>>,
    /// Further claims the configuration asked to keep: path as written in the configuration → its values as
    /// text (an array gives one value each; numbers and booleans in their JSON spelling). Sorted by path.
    pub claims: Vec<(Box<str>, Vec<Box<str>>)>,
}

impl Identity {
    /// The values kept under a configured claim path; empty when the token did not carry it.
    pub fn claim(&self, path: &str) -> &[Box<str>] {
        match self.claims.binary_search_by(|(p, _)| p.as_ref().cmp(path)) {
            Ok(i) => &self.claims[i].1,
            Err(_) => &[],
        }
    }

    /// The user name where there is one, else the subject: what a log line or header calls the caller.
    pub fn display_name(&self) -> &str {
        self.user.as_deref().unwrap_or(&self.subject)
    }

    /// Approximate heap bytes held, for the byte bound of the decision cache.
    pub fn weight(&self) -> usize {
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

/// A verified credential: the identity and how long it may be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Who.
    pub identity: Identity,
    /// The credential is expired when `now >= expires` (clock skew already added).
    pub expires: Timestamp,
    /// The credential is not yet valid while `now < not_before` (clock skew already subtracted).
    pub not_before: Timestamp,
}

impl Facts {
    /// Whether the credential's own validity interval contains `now`. Expired means `now >= expires`.
    pub fn valid_at(&self, now: Timestamp) -> bool {
        now >= self.not_before && now < self.expires
    }
}
