//! Grant types: the supported grants and their wire names.

use serde::{Deserialize, Serialize};

use super::error::OAuthFault;

/// Grant of the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantType {
    /// Authorization code (RFC 6749 §4.1).
    AuthorizationCode,
    /// Refresh token (RFC 6749 §6).
    RefreshToken,
    /// Client credentials (RFC 6749 §4.4).
    ClientCredentials,
    /// Device code (RFC 8628).
    DeviceCode,
    /// User name and password (RFC 6749 §4.3).
    Password,
}

impl GrantType {
    /// All supported grants.
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

    /// Parses a `grant_type`; the comparison is exact.
    ///
    /// # Errors
    /// [`OAuthFault::GrantUnsupported`] for any other text.
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
