//! Diagnosis: why there is no AMQP connection, in one sentence for an operator.
//!
//! Owns: the sentences. Each names the broker, the cause, and what to check. Does not own: when
//! they are logged.

use std::io;

use fe2o3_amqp::connection::{ConnectionStopReason, Error as ConnectionError, OpenError};
use fe2o3_amqp::link::{
    DetachError, LinkStateError, ReceiverAttachError, RecvError, SendError, SenderAttachError,
    SessionStopReason,
};
use fe2o3_amqp::session::BeginError;
use fe2o3_amqp::transport;
use fe2o3_amqp::types::definitions::{self, AmqpError, ErrorCondition};
use fe2o3_amqp::types::primitives::Symbol;
use fe2o3_amqp::types::sasl::SaslCode;
use rustls::CertificateError;

use super::AmqpLogin;
use super::socket::IDLE_TIMEOUT;

/// A broker, as the sentences name it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Broker<'a> {
    pub(super) address: &'a str,
    pub(super) login: &'a AmqpLogin,
}

impl Broker<'_> {
    fn sentence(self, problem: impl AsRef<str>) -> String {
        format!("the broker at {} {}", self.address, problem.as_ref())
    }

    /// The broker's name cannot be resolved.
    pub(super) fn unresolved(self, error: &io::Error) -> String {
        self.sentence(format!("cannot be resolved ({error}): check the spelling of its name, and DNS"))
    }

    /// The broker does not answer in time.
    pub(super) fn timed_out(self) -> String {
        self.sentence("does not answer in time: check the network in between, and whether the broker hangs")
    }

    /// The broker is connected and gives no credit.
    pub(super) fn no_credit(self, address: &str) -> String {
        self.sentence(format!(
            "has accepted no message for {address} for {} s: check whether its disk or memory is full, and the limits of the address",
            IDLE_TIMEOUT.as_secs()
        ))
    }

    /// The socket failed, during the connect or later.
    pub(super) fn socket(self, error: &io::Error) -> String {
        if let Some(error) = error.get_ref().and_then(|error| error.downcast_ref()) {
            return self.tls(error);
        }
        self.sentence(match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                "refuses connections: check that it runs, and that this is its port for AMQP".into()
            }
            io::ErrorKind::TimedOut => format!(
                "has been silent for {} s: check the network in between, and whether the broker hangs",
                IDLE_TIMEOUT.as_secs()
            ),
            io::ErrorKind::UnexpectedEof => {
                "has closed the connection without an error: check its log, and that this is its port for AMQP"
                    .into()
            }
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
                "has reset the connection: check that it runs, and its log".into()
            }
            _ => format!("cannot be reached: {error}: check the network in between"),
        })
    }

    fn tls(self, error: &rustls::Error) -> String {
        let cause = match error {
            rustls::Error::InvalidCertificate(error) => match error {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "presents a certificate that has expired: renew it, or check the clock here"
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "presents a certificate that is not valid yet: check the clock here"
                }
                CertificateError::UnknownIssuer => {
                    "presents a certificate of an unknown issuer: check which authorities are trusted here"
                }
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "presents a certificate for another name: check the broker's name"
                }
                _ => return self.sentence(format!("presents a certificate that is not accepted: {error}")),
            },
            rustls::Error::AlertReceived(alert) => {
                let text = format!("ends TLS with the alert {alert:?}: check the client certificate");
                return self.sentence(text);
            }
            rustls::Error::InvalidMessage(_) => "does not speak TLS: check that this is its port for TLS",
            _ => return self.sentence(format!("fails the TLS handshake: {error}")),
        };
        self.sentence(cause)
    }

    /// The connection was not opened (AMQP 1.0 parts 2.4.1 and 5.3).
    pub(super) fn opening(self, error: &OpenError) -> String {
        match error {
            OpenError::Io(error) => self.socket(error),
            OpenError::TransportError(error) => self.transport(error),
            OpenError::SaslError { code: SaslCode::Auth, .. } => self.login(),
            OpenError::SaslError { code, .. } => {
                self.sentence(format!("cannot check the login now (SASL outcome {code:?}): check its log"))
            }
            OpenError::NotImplemented(Some(feature)) if feature.contains("is not supported") => self
                .sentence(format!("does not offer {}: check which logins it allows", self.login.mechanism())),
            OpenError::ProtocolHeaderMismatch(_) | OpenError::NotImplemented(_) => self
                .sentence("does not speak AMQP 1.0, or asks for a login first: check its port, its plugins"),
            OpenError::RemoteClosedWithError(error) => self.closed(error),
            OpenError::RemoteClosed => self.sentence("has closed the connection: check its log"),
            error => self.sentence(format!("does not open a connection: {error}: check its log")),
        }
    }

    /// The connection ended (AMQP 1.0 part 2.4.3).
    pub(super) fn ended(self, outcome: &Result<(), ConnectionError>) -> String {
        match outcome {
            Err(ConnectionError::TransportError(error)) => self.transport(error),
            Err(ConnectionError::RemoteClosedWithError(error)) => self.closed(error),
            Ok(()) | Err(ConnectionError::RemoteClosed) => {
                self.sentence("has closed the connection: check that it runs, and its log")
            }
            // The engine reports an end of the stream like this.
            Err(ConnectionError::IllegalState) => self.socket(&io::ErrorKind::ConnectionReset.into()),
            Err(error) => self.sentence(format!("violates the AMQP protocol: {error}: check its log")),
        }
    }

    fn transport(self, error: &transport::Error) -> String {
        match error {
            transport::Error::Io(error) => self.socket(error),
            transport::Error::IdleTimeoutElapsed => self.socket(&io::ErrorKind::TimedOut.into()),
            error => self
                .sentence(format!("does not speak AMQP 1.0: {error}: check that this is its port for AMQP")),
        }
    }

    fn login(self) -> String {
        self.sentence(format!(
            "rejects the login {}: check user name and password there",
            self.login.description()
        ))
    }

    fn closed(self, error: &definitions::Error) -> String {
        if error.condition == ErrorCondition::AmqpError(AmqpError::UnauthorizedAccess) {
            return format!("{} ({})", self.login(), peer_error(error));
        }
        self.sentence(format!("has closed the connection ({}): check its log", peer_error(error)))
    }

    /// No session was begun. `None`: because the connection ended, and its outcome has the cause.
    pub(super) fn session(self, error: &BeginError) -> Option<String> {
        match error {
            BeginError::ConnectionStopped(reason) => self.stopped(reason),
            BeginError::RemoteEndedWithError(error) => {
                Some(self.sentence(format!("refuses a session ({}): check its log", peer_error(error))))
            }
            error => Some(self.sentence(format!("does not begin a session: {error}: check its log"))),
        }
    }

    fn stopped(self, reason: &ConnectionStopReason) -> Option<String> {
        match reason {
            ConnectionStopReason::RemoteClosedWithError(error) => Some(self.closed(error)),
            _ => None,
        }
    }

    fn refused(self, address: &str, error: &definitions::Error) -> String {
        let who = self.login.description();
        self.sentence(format!(
            "refuses the address {address} ({}): check the rights of {who} there",
            peer_error(error)
        ))
    }

    fn session_stopped(self, address: &str, reason: &SessionStopReason) -> Option<String> {
        match reason {
            // RabbitMQ ends the session where others refuse the link.
            SessionStopReason::RemoteEndedWithError(error) => Some(self.refused(address, error)),
            SessionStopReason::ConnectionStopped(reason) => self.stopped(reason),
            _ => None,
        }
    }

    /// A sending link was not attached (AMQP 1.0 part 2.6.3). `None` as with
    /// [`session`](Self::session).
    pub(super) fn sender(self, address: &str, error: &SenderAttachError) -> Option<String> {
        match error {
            SenderAttachError::SessionStopped(reason) => self.session_stopped(address, reason),
            SenderAttachError::RemoteClosedWithError(error) => Some(self.refused(address, error)),
            error => {
                Some(self.sentence(format!("does not accept messages for {address}: {error}: check its log")))
            }
        }
    }

    /// A receiving link was not attached. `None` as with [`session`](Self::session).
    pub(super) fn receiver(self, address: &str, error: &ReceiverAttachError) -> Option<String> {
        match error {
            ReceiverAttachError::SessionStopped(reason) => self.session_stopped(address, reason),
            ReceiverAttachError::RemoteClosedWithError(error) => Some(self.refused(address, error)),
            error => {
                Some(self.sentence(format!("does not deliver messages of {address}: {error}: check its log")))
            }
        }
    }

    /// A sending link ended. `None` as with [`session`](Self::session).
    pub(super) fn sending(self, address: &str, error: &SendError) -> Option<String> {
        match error {
            SendError::LinkStateError(error) => self.link(address, error),
            SendError::Detached(error) => self.detached(address, error),
            error => {
                Some(self.sentence(format!("does not accept messages for {address}: {error}: check its log")))
            }
        }
    }

    /// A receiving link ended. `None` as with [`session`](Self::session).
    pub(super) fn receiving(self, address: &str, error: &RecvError) -> Option<String> {
        match error {
            RecvError::LinkStateError(error) => self.link(address, error),
            error => Some(
                self.sentence(format!("violates the AMQP protocol on {address}: {error}: check its log")),
            ),
        }
    }

    fn link(self, address: &str, error: &LinkStateError) -> Option<String> {
        match error {
            LinkStateError::SessionStopped(reason) => self.session_stopped(address, reason),
            LinkStateError::RemoteDetachedWithError(error) | LinkStateError::RemoteClosedWithError(error) => {
                Some(self.refused(address, error))
            }
            _ => Some(self.sentence(format!("has detached the address {address}: check its log"))),
        }
    }

    /// The broker ended a link. `None` as with [`session`](Self::session).
    pub(super) fn detached(self, address: &str, error: &DetachError) -> Option<String> {
        match error {
            DetachError::SessionStopped(reason) => self.session_stopped(address, reason),
            DetachError::RemoteDetachedWithError(error) | DetachError::RemoteClosedWithError(error) => {
                Some(self.refused(address, error))
            }
            _ => Some(self.sentence(format!("has detached the address {address}: check its log"))),
        }
    }
}

/// The peer's error: its condition and description.
fn peer_error(error: &definitions::Error) -> String {
    let condition = match &error.condition {
        ErrorCondition::AmqpError(condition) => Symbol::from(condition),
        ErrorCondition::ConnectionError(condition) => Symbol::from(condition),
        ErrorCondition::SessionError(condition) => Symbol::from(condition),
        ErrorCondition::LinkError(condition) => Symbol::from(condition),
        ErrorCondition::Custom(condition) => condition.clone(),
    };
    match &error.description {
        Some(description) => format!("{}: {description}", condition.0),
        None => condition.0,
    }
}
