//! Mails: a test of the mail server.

use std::time::{Duration, SystemTime};

use mail::OutgoingMail;
use serde::Serialize;

use super::{Admin, AdminFault};
use crate::mailer::Mailer;

/// Result of a test of the mail server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TestMail {
    /// Host and port of the server.
    pub server: String,
    /// Its reply after the message.
    pub reply: String,
}

impl<'p> Admin<'p> {
    /// The mail server.
    pub(super) fn mailer(&self) -> Result<&'p Mailer, AdminFault> {
        let missing = || AdminFault::Conflict("no mail server is configured: add [provider.mail]".into());
        self.provider.mailer().ok_or_else(missing)
    }

    /// Sends a mail to an address, at once, and returns what the server answered.
    ///
    /// # Errors
    /// [`AdminFault`] when there is no mail server, or it does not accept the mail.
    pub async fn send_test_mail(&self, address: &str) -> Result<TestMail, AdminFault> {
        let mailer = self.mailer()?;
        let (subject, text) = self.provider.pages().test_mail();
        let id = self.provider.draw_id()?;
        let date = SystemTime::UNIX_EPOCH + Duration::from_millis(self.now().as_millis());
        let mail = OutgoingMail { to: address, subject: &subject, text: &text, id: &id, date };
        let server = mailer.server.name();
        match mailer.server.send(&mail).await {
            Ok(reply) => Ok(TestMail { server, reply }),
            Err(why) => Err(AdminFault::Conflict(format!("mail server {server}: {why}"))),
        }
    }
}
