//! Table `[provider.mail]`: mails that the provider sends.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::scalar::Timespan;
use super::default::secs;

/// Mails that the provider sends: invitations and links to a new password. See
/// `docs/guides/provider-mail.md`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mail {
    /// Mail server (SMTP) with an optional port: `"smtp.example.com"` or `"smtp.example.com:465"`.
    /// Default port: 465 for `implicit`, 587 for `starttls`, 25 for `none`.
    pub server: String,
    /// How the connection to the server is encrypted.
    #[serde(default)]
    pub tls: MailTls,
    /// PEM file with the certificate authorities that verify the server's certificate. Default: those
    /// of the system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// User name at the server. Default: the server asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// File with the password at the server. Not readable by every user of the machine. Read again
    /// when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// Sender of the mails: `"login@example.com"` or `"Example <login@example.com>"`.
    pub from: String,
    /// Time limit of one mail, from the connection to the server's answer. From 1s to 5m.
    #[serde(default = "secs::<30>")]
    pub timeout: Timespan,
    /// Whether the sign-in page offers users who forgot their password a link by mail. It goes to
    /// verified addresses only, so whoever reads that mailbox can take over the account.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub self_service_reset: bool,
}

/// How the connection to a mail server is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MailTls {
    /// TLS from the first byte (RFC 8314 section 3.3).
    #[default]
    Implicit,
    /// Plain text, then TLS by `STARTTLS` (RFC 3207). A server that does not offer it gets no mail.
    StartTls,
    /// Plain text: only for a server on this machine.
    None,
}
