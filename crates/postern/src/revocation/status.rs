//! Status of a followed issuer, as operators see it.

use serde::{Deserialize, Serialize};

/// Status of a followed issuer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FollowedIssuerStatus {
    /// Issuer identifier (`iss`).
    pub issuer: String,
    /// How tokens are checked now.
    pub mode: Mode,
    /// Seconds until the lease ends if nothing more arrives. Absent: there is no lease.
    pub lease_left: Option<f64>,
    /// Number of the last event that is applied together with all events before it.
    pub applied: u64,
    /// Number of known events that are not applied yet.
    pub lag: u64,
    /// Number of denied tags.
    pub denials: u64,
    /// State of the transport: `up`, `starting`, or `down` with its cause.
    #[serde(alias = "way")]
    pub transport: String,
}

/// How a token is checked for revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Nothing has arrived yet.
    Starting,
    /// By local state, while the lease lasts.
    Leased,
    /// By a query to the issuer for each token.
    #[serde(alias = "asking")]
    Querying,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Leased => "leased",
            Self::Querying => "querying",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_former_versions_are_read() {
        let former = r#"{"issuer":"https://id.example","mode":"asking","lease_left":null,"applied":7,"lag":0,
            "denials":1,"way":"up"}"#;
        let status: FollowedIssuerStatus = serde_json::from_str(former).unwrap();
        assert_eq!((status.mode, status.transport.as_str()), (Mode::Querying, "up"));
        let written = serde_json::to_value(&status).unwrap();
        assert_eq!((written["mode"].as_str(), written["transport"].as_str()), (Some("querying"), Some("up")));
    }
}
