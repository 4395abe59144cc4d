//! Mail by SMTP (RFC 5321): one message over one connection.
//!
//! Owns: the settings of a server ([`SmtpServer`]), the connection with its TLS and authentication,
//! the message as bytes ([`OutgoingMail`]), and what a failure means for another attempt
//! ([`SendError`]). Does not own: why a mail is sent, its text, the queue, the log lines.
//!
//! ```text
//! SmtpServer::new   settings, checked
//! SmtpServer::send  message → connect → TLS → EHLO → AUTH → MAIL, RCPT, DATA → the server's reply
//! ```
//!
//! With [`Encryption::StartTls`] and [`Encryption::Implicit`] nothing of a mail and no credential
//! leaves the process before the server's certificate is verified.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, Certificate, CertificateStore, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::transport::smtp::response::Response;
use lettre::{Address, Message};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// How long the goodbye after an accepted mail may take. It decides nothing.
const QUIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Most characters of a reply that are kept.
const MAX_REPLY: usize = 300;
/// Ways to authenticate, the preferred one first. Both send the password, so they need TLS.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// How the connection to the server is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// TLS from the first byte (RFC 8314 §3.3).
    Implicit,
    /// Plain text until `STARTTLS` (RFC 3207), which the server must offer.
    StartTls,
    /// Plain text. Only for a server on this machine.
    None,
}

impl Encryption {
    /// The port that servers use for it.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Implicit => 465,
            Self::StartTls => 587,
            Self::None => 25,
        }
    }
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Implicit => "TLS",
            Self::StartTls => "STARTTLS",
            Self::None => "plain text",
        })
    }
}

/// Settings of a server. `Debug` omits the password.
#[derive(Clone)]
pub struct SmtpSettings {
    /// Name or address of the server, also the name in its certificate.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How the connection is encrypted.
    pub encryption: Encryption,
    /// Certificates in PEM that verify the server's. `None`: those that the system trusts.
    pub ca_pem: Option<Vec<u8>>,
    /// User name and password. `None`: the server asks for none.
    pub credentials: Option<(String, Zeroizing<String>)>,
    /// Sender of all mails: `login@example.com` or `Example <login@example.com>` (RFC 5322 §3.4).
    pub from: String,
    /// Time limit of one mail, from the connection to the reply after the message.
    pub timeout: Duration,
}

impl fmt::Debug for SmtpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.credentials.as_ref().map(|(user, _)| user);
        f.debug_struct("SmtpSettings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("encryption", &self.encryption)
            .field("user", &user)
            .field("from", &self.from)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The sender is not an address; holds its text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a sender: write \"login@example.com\" or \"Example <login@example.com>\"")]
pub struct SenderInvalid(pub String);

/// Reason why a mail was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The server is not usable: unreachable, no TLS, an untrusted certificate, wrong credentials, no
    /// answer, a closed connection. Another attempt may succeed, also with another mail.
    #[error("{0}")]
    Unavailable(String),
    /// The server accepts this mail later, perhaps (replies from 400 to 499).
    #[error("{0}")]
    Deferred(String),
    /// The server never accepts this mail (replies from 500 to 599), or the address is not valid.
    #[error("{0}")]
    Refused(String),
}

/// A mail to one recipient. `Debug` omits subject and text.
#[derive(Clone, Copy)]
pub struct OutgoingMail<'a> {
    /// Address of the recipient.
    pub to: &'a str,
    /// Subject. Control characters become spaces.
    pub subject: &'a str,
    /// Text, with line feeds.
    pub text: &'a str,
    /// Unique id, the same for each attempt. A recipient recognizes a second copy by it.
    pub id: &'a str,
    /// Time for the `Date` field.
    pub date: SystemTime,
}

impl fmt::Debug for OutgoingMail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingMail").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A server, ready for use. Clones share it.
#[derive(Debug, Clone)]
pub struct SmtpServer(Arc<Inner>);

struct Inner {
    settings: SmtpSettings,
    from: Mailbox,
    /// Made at the first use, because the system's certificates are many.
    tls: OnceLock<TlsParameters>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}

/// Whether a text is an address that mail can be sent to.
pub fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}

/// Whether a text is a sender: an address, perhaps with a name.
pub fn is_sender(text: &str) -> bool {
    sender(text).is_some()
}

fn sender(text: &str) -> Option<Mailbox> {
    text.parse().ok().filter(|_| !text.contains(char::is_control))
}

impl SmtpServer {
    /// Checks the settings. Does not connect.
    ///
    /// # Errors
    /// [`SenderInvalid`] when `from` is not an address.
    pub fn new(settings: SmtpSettings) -> Result<Self, SenderInvalid> {
        let from = sender(&settings.from).ok_or_else(|| SenderInvalid(settings.from.clone()))?;
        Ok(Self(Arc::new(Inner { settings, from, tls: OnceLock::new() })))
    }

    /// Host and port, for log lines.
    pub fn name(&self) -> String {
        let SmtpSettings { host, port, .. } = &self.0.settings;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// How the connection is encrypted.
    pub fn encryption(&self) -> Encryption {
        self.0.settings.encryption
    }

    /// Time limit of one mail.
    pub fn timeout(&self) -> Duration {
        self.0.settings.timeout
    }

    /// Sends a mail, and returns the server's reply after the message.
    ///
    /// # Errors
    /// [`SendError`] when the server did not accept it. After [`SendError::Unavailable`] it may have
    /// accepted it without telling.
    pub async fn send(&self, mail: &OutgoingMail<'_>) -> Result<String, SendError> {
        let message = self.message(mail)?;
        let limit = self.timeout();
        let sent = timeout(limit, self.converse(&message)).await;
        let late = |_| SendError::Unavailable(format!("no answer within {} s", limit.as_secs_f64()));
        let (mut connection, response) = sent.map_err(late)??;
        // The mail is accepted, whatever happens now.
        let _ = timeout(QUIT_TIMEOUT, connection.quit()).await;
        Ok(reply(&response))
    }

    /// The conversation up to the reply after the message.
    async fn converse(&self, message: &Message) -> Result<(AsyncSmtpConnection, Response), SendError> {
        let unusable = |error: SmtpError| SendError::Unavailable(one_line(&error.to_string()));
        let mut connection = self.connect().await.map_err(unusable)?;
        if let Some((user, password)) = &self.0.settings.credentials {
            let credentials = Credentials::new(user.clone(), password.as_str().to_owned());
            connection.auth(&MECHANISMS, &credentials).await.map_err(unusable)?;
        }
        match connection.send(message.envelope(), &message.formatted()).await {
            Ok(response) => Ok((connection, response)),
            Err(error) => Err(classify(&error)),
        }
    }

    async fn connect(&self) -> Result<AsyncSmtpConnection, SmtpError> {
        let SmtpSettings { host, port, encryption, timeout, .. } = &self.0.settings;
        // The name of this machine says nothing to a server elsewhere.
        let hello = ClientId::Domain(self.0.from.email.domain().to_owned());
        let (server, limit) = ((host.as_str(), *port), Some(*timeout));
        match encryption {
            Encryption::Implicit => {
                let tls = Some(self.tls()?);
                AsyncSmtpConnection::connect_tokio1(server, limit, &hello, tls, None).await
            }
            Encryption::StartTls => {
                let tls = self.tls()?;
                let plain = AsyncSmtpConnection::connect_tokio1(server, limit, &hello, None, None);
                let mut connection = plain.await?;
                connection.starttls(tls, &hello).await?;
                Ok(connection)
            }
            Encryption::None => AsyncSmtpConnection::connect_tokio1(server, limit, &hello, None, None).await,
        }
    }

    fn tls(&self) -> Result<TlsParameters, SmtpError> {
        if let Some(made) = self.0.tls.get() {
            return Ok(made.clone());
        }
        let SmtpSettings { host, ca_pem, .. } = &self.0.settings;
        let builder = TlsParameters::builder(host.clone());
        let builder = match ca_pem {
            None => builder.certificate_store(CertificateStore::Default),
            Some(pem) => builder
                .certificate_store(CertificateStore::None)
                .add_root_certificate(Certificate::from_pem(pem)?),
        };
        let made = builder.build_rustls()?;
        Ok(self.0.tls.get_or_init(|| made).clone())
    }

    /// The message. All of it is ASCII, except an address that is not.
    fn message(&self, mail: &OutgoingMail<'_>) -> Result<Message, SendError> {
        let unfit = |what: &str| SendError::Refused(format!("{what} cannot be put into a message"));
        let to: Address = mail.to.parse().map_err(|_| unfit("the recipient's address"))?;
        let id = format!("<{}@{}>", mail.id, self.0.from.email.domain());
        let text = SinglePart::builder()
            .header(ContentType::TEXT_PLAIN)
            .body(mail.text.replace("\r\n", "\n").replace('\n', "\r\n"));
        let message = Message::builder()
            .from(self.0.from.clone())
            .to(Mailbox::new(None, to))
            .subject(one_line(mail.subject))
            .date(mail.date)
            .message_id(Some(id))
            .singlepart(text);
        let mut message = message.map_err(|_| unfit("the mail"))?;
        // No vacation notices in response (RFC 3834 §5).
        let name = HeaderName::new_from_ascii_str("Auto-Submitted");
        message.headers_mut().insert_raw(HeaderValue::new(name, "auto-generated".to_owned()));
        Ok(message)
    }
}

fn classify(error: &SmtpError) -> SendError {
    let text = one_line(&error.to_string());
    if error.is_permanent() || error.is_client() {
        SendError::Refused(text)
    } else if error.is_transient() {
        SendError::Deferred(text)
    } else {
        SendError::Unavailable(text)
    }
}

fn reply(response: &Response) -> String {
    let text: Vec<&str> = response.message().collect();
    one_line(&format!("{} {}", response.code(), text.join(" ")))
}

/// The text in one line without control characters, and not longer than [`MAX_REPLY`].
fn one_line(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(MAX_REPLY).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(from: &str) -> Result<SmtpServer, SenderInvalid> {
        SmtpServer::new(SmtpSettings {
            host: "smtp.example.com".into(),
            port: 465,
            encryption: Encryption::Implicit,
            ca_pem: None,
            credentials: Some(("postern".into(), Zeroizing::new("hunter2".into()))),
            from: from.into(),
            timeout: Duration::from_secs(30),
        })
    }

    fn message(mail: &OutgoingMail<'_>) -> Result<String, SendError> {
        let message = server("Exämple <login@example.com>").unwrap().message(mail)?;
        Ok(String::from_utf8(message.formatted()).unwrap())
    }

    const MAIL: OutgoingMail<'_> = OutgoingMail {
        to: "ada@example.com",
        subject: "Neues Passwort für Grüße",
        text: "Guten Tag,\n\nhttps://login.example.com/set-password?token=abc\nGrüße\n",
        id: "m1",
        date: SystemTime::UNIX_EPOCH,
    };

    #[test]
    fn a_sender_is_an_address_perhaps_with_a_name() {
        for good in ["login@example.com", "Example <login@example.com>", "\"A, B\" <a@b.example>"] {
            assert!(server(good).is_ok(), "{good}");
        }
        for bad in ["", "login", "login@", "a@b.example\r\nBcc: c@d.example", "a@b.example, c@d.example"] {
            assert_eq!(server(bad).unwrap_err(), SenderInvalid(bad.into()));
        }
    }

    #[test]
    fn the_password_is_not_printed() {
        let shown = format!("{:?} {MAIL:?}", server("a@b.example").unwrap());
        assert!(shown.contains("postern") && shown.contains("m1"), "{shown}");
        assert!(!shown.contains("hunter2") && !shown.contains("token"), "{shown}");
    }

    #[test]
    fn a_message_is_ascii_and_says_what_it_is() {
        let text = message(&MAIL).unwrap();
        assert!(text.is_ascii(), "{text}");
        for line in [
            "To: ada@example.com\r\n",
            "Message-ID: <m1@example.com>\r\n",
            "Auto-Submitted: auto-generated\r\n",
            "Content-Type: text/plain; charset=utf-8\r\n",
            "Date: Thu, 01 Jan 1970 00:00:00 +0000\r\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
        assert!(!text.replace("\r\n", "").contains(['\r', '\n']), "each line ends with CR LF");
    }

    #[test]
    fn no_text_adds_a_header() {
        let subject = "Hello\r\nBcc: eve@example.com\r\n\r\nbody";
        let text = message(&OutgoingMail { subject, ..MAIL }).unwrap();
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        assert!(head.contains("Subject: Hello"), "{head}");
        for to in ["ada@example.com\r\nBcc: eve@example.com", "ada@example.com>\r\nDATA", "a b@c.example", ""]
        {
            let refused = message(&OutgoingMail { to, ..MAIL });
            assert!(matches!(refused, Err(SendError::Refused(_))), "{to:?}: {refused:?}");
        }
    }

    #[test]
    fn replies_are_one_short_line() {
        assert_eq!(one_line("550 5.1.1\r\nno such\u{1b}[31muser "), "550 5.1.1  no such [31muser");
        assert_eq!(one_line(&"x".repeat(1000)).len(), MAX_REPLY);
    }
}
