//! Provider scenarios: the kinds of transactions.
//!
//! Owns: their names. Does not own: their requests ([`super::user`]).

use std::str::FromStr;

/// Kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// One client credentials grant.
    ClientCredentials,
    /// One password grant of a random user.
    Password,
    /// A password grant, then the revocation of its access token.
    PasswordRevoke,
    /// One refresh grant. The next one uses the new refresh token.
    Refresh,
    /// One introspection of an active token.
    Introspection,
    /// Authorization code with PKCE in a new browser: sign-in, consent, code, tokens.
    CodeConsent,
}

impl Flow {
    /// All scenarios.
    pub const ALL: [Self; 6] = [
        Self::ClientCredentials,
        Self::Password,
        Self::PasswordRevoke,
        Self::Refresh,
        Self::Introspection,
        Self::CodeConsent,
    ];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientCredentials => "client_credentials",
            Self::Password => "password",
            Self::PasswordRevoke => "password_revoke",
            Self::Refresh => "refresh",
            Self::Introspection => "introspection",
            Self::CodeConsent => "code_consent",
        }
    }
}

impl FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scenario| scenario.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown scenario `{text}`; available: {names}")
        })
    }
}
