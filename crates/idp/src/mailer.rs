//! Mail server of a provider, and what happened to its mails.
//!
//! Owns: the settings, the outage of the server, and the numbers that metrics show. Does not own: the
//! queue and its delivery ([`crate::mail_delivery`]), the texts (`pages::link_mail`), SMTP (the crate
//! `mail`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mail::SmtpServer;
use outage::Outage;

/// Configuration of mails.
#[derive(Debug, Clone)]
pub struct MailConfig {
    /// Server that mails are given to.
    pub server: SmtpServer,
    /// Whether users may ask for a reset link on the sign-in page.
    pub self_service_reset: bool,
}

/// Number of mails of this process with one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MailSample {
    /// `sent`, `failed` (another attempt follows) or `given_up`.
    pub outcome: &'static str,
    /// How many.
    pub count: u64,
}

/// The server with its state.
#[derive(Debug)]
pub(crate) struct Mailer {
    pub(crate) server: SmtpServer,
    pub(crate) self_service_reset: bool,
    pub(crate) outage: Outage,
    sent: AtomicU64,
    failed: AtomicU64,
    given_up: AtomicU64,
}

impl Mailer {
    pub(crate) fn new(config: MailConfig) -> Self {
        let MailConfig { server, self_service_reset } = config;
        let outage = Outage::new(format!("mail server {}", server.name()))
            .with_effect("mails wait and are sent later");
        let zero = AtomicU64::default;
        Self { server, self_service_reset, outage, sent: zero(), failed: zero(), given_up: zero() }
    }

    pub(crate) fn count_sent(&self) {
        self.sent.fetch_add(1, Relaxed);
    }

    /// Counts an attempt that another one follows.
    pub(crate) fn count_failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_given_up(&self) {
        self.given_up.fetch_add(1, Relaxed);
    }

    pub(crate) fn samples(&self) -> Vec<MailSample> {
        [("sent", &self.sent), ("failed", &self.failed), ("given_up", &self.given_up)]
            .map(|(outcome, count)| MailSample { outcome, count: count.load(Relaxed) })
            .to_vec()
    }
}
