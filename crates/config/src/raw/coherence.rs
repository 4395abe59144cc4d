//! How nodes tell each other what is revoked.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Timespan;
use super::default::secs;

/// How nodes tell each other what is revoked. Nodes of one `[provider]` need nothing of this: they use its database. A broker is for
/// gateways elsewhere, and for other clusters. Nothing but speed depends on it: messages may be lost, late, repeated or forged, and
/// while it is down there is the database, and HTTP. Read at start only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Coherence {
    /// Brokers that carry the same messages, tried in this order: `nats://host:4222` for NATS, `amqp://host:5672` for AMQP 1.0 (Artemis,
    /// `ActiveMQ` Classic, `RabbitMQ`, IBM MQ); with TLS `tls://host:4222` and `amqps://host:5671`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub brokers: Vec<String>,
    /// How an AMQP broker writes topics.
    pub addressing: Addressing,
    /// Account at the broker. Needs `password_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File with its password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// File with a token for NATS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// File with credentials for NATS, as `nsc` writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// PEM file with the authorities that the broker's certificate must come from. Absent: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file with a client certificate. Needs `key`. An AMQP broker is then told to look at it (EXTERNAL), unless there is a `user`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the certificate's private key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// How long a node believes what it heard, counted from when it asked. Nothing that was revoked is admitted for longer, whatever
    /// happens. From 1s to 60s.
    pub lease: Timespan,
}

impl Default for Coherence {
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

/// How an AMQP broker writes a topic.
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
