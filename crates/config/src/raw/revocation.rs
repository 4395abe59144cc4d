//! Table of `[revocation]`: how nodes exchange revocations.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Timespan;
use super::default::secs;

/// Revocation: how nodes exchange what is revoked. Nodes of one `[provider]` use its database and
/// need no keys here. A message broker serves gateways in other places and other clusters, and
/// makes revocation faster only. Its messages may be lost, late, repeated or forged. While it is
/// down, the database and HTTP are used. Read at start only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Revocation {
    /// Message brokers that carry the same messages, tried in this order: `nats://host:4222` for
    /// NATS, `amqp://host:5672` for AMQP 1.0 (Artemis, `ActiveMQ` Classic, `RabbitMQ`, IBM MQ).
    /// With TLS: `tls://host:4222` and `amqps://host:5671`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<String>,
    /// Syntax of topics at an AMQP broker.
    pub addressing: Addressing,
    /// User name at the broker. Needs `password_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File with the password of `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// File with a token for NATS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// File with credentials for NATS, as `nsc` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// PEM file with the certificate authorities that verify the broker's certificate. Default:
    /// those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file with a client certificate. Needs `key`. Without `user`, an AMQP broker is asked to
    /// authenticate the client by this certificate (EXTERNAL).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Lease: how long revocation state stays valid after the node sent the probe that renewed it.
    /// A revoked token is accepted for at most this time, whatever fails. From 1s to 60s.
    pub lease: Timespan,
}

impl Default for Revocation {
    fn default() -> Self {
        Self {
            brokers: Vec::new(),
            addressing: Addressing::default(),
            user: None,
            password_file: None,
            token_file: None,
            credentials_file: None,
            ca: None,
            certificate: None,
            key: None,
            lease: secs::<5>(),
        }
    }
}

/// Syntax of topics at an AMQP broker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Addressing {
    /// `NAME`: Artemis, IBM MQ.
    #[default]
    Plain,
    /// `topic://NAME`: `ActiveMQ` Classic.
    Scheme,
    /// `/topic/NAME`: `RabbitMQ`.
    Path,
}
