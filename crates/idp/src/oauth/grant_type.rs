//! The grants there are, by name.

use serde::{Deserialize, Serialize};

use super::error::OAuthFault;

/// A grant of the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// RFC 6749 §4.1.
    AuthorizationCode,
    /// RFC 6749 §6.
    RefreshToken,
    /// RFC 6749 §4.4.
    ClientCredentials,
    /// RFC 8628.
    DeviceCode,
    /// RFC 6749 §4.3.
    Password,
}

impl GrantType {
    /// Every grant there is.
    pub const ALL: [Self; 5] = [
        Self::AuthorizationCode,
        Self::RefreshToken,
        Self::ClientCredentials,
        Self::DeviceCode,
        Self::Password,
    ];

    /// The value of `grant_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AuthorizationCode => "authorization_code",
            Self::RefreshToken => "refresh_token",
            Self::ClientCredentials => "client_credentials",
            Self::DeviceCode => "urn:ietf:params:oauth:grant-type:device_code",
            Self::Password => "password",
        }
    }

    /// The grant of a `grant_type`, compared exactly.
    pub fn from_wire(text: &str) -> Result<Self, OAuthFault> {
        let unknown = || OAuthFault::GrantUnsupported(text.chars().take(64).collect());
        Self::ALL.into_iter().find(|g| g.as_str() == text).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_names_go_there_and_back() {
        for grant in GrantType::ALL {
            assert_eq!(GrantType::from_wire(grant.as_str()), Ok(grant));
        }
        assert_eq!(
            GrantType::from_wire(&"x".repeat(100)),
            Err(OAuthFault::GrantUnsupported("x".repeat(64).into()))
        );
    }
}
