//! A played SMTP server on loopback: it follows RFC 5321, misbehaves on request, and records what it
//! received.

#![allow(dead_code, reason = "each of the crates that include it uses a part")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What the server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Accepts every mail.
    Accept,
    /// Answers `RCPT` with this reply.
    Recipient(&'static str),
    /// Answers the message with this reply.
    Message(&'static str),
    /// Says nothing after the connection is accepted.
    Silent,
    /// Closes the connection in the middle of the message.
    DropInData,
    /// Accepts the message, then says nothing to `QUIT`.
    SilentQuit,
    /// Closes each connection at once.
    Close,
}

/// How the server encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Security {
    Implicit,
    StartTls,
    None,
}

/// A mail that the server received.
#[derive(Debug, Clone, Default)]
pub(crate) struct Received {
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    /// The message with line feeds, without the final dot.
    pub(crate) data: String,
    pub(crate) encrypted: bool,
    pub(crate) authenticated: bool,
}

impl Received {
    /// The text of the message: its body, decoded from quoted-printable.
    pub(crate) fn text(&self) -> String {
        let (head, body) = self.data.split_once("\n\n").expect("a head and a body");
        if !head.contains("quoted-printable") {
            return body.to_owned();
        }
        let joined = body.replace("=\n", "");
        let (mut bytes, mut rest) = (Vec::new(), joined.as_bytes());
        while let Some((&first, behind)) = rest.split_first() {
            if first == b'=' && behind.len() >= 2 {
                let digits = std::str::from_utf8(&behind[..2]).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
                rest = &behind[2..];
            } else {
                bytes.push(first);
                rest = behind;
            }
        }
        String::from_utf8(bytes).expect("UTF-8")
    }
}

struct State {
    act: Mutex<Act>,
    mails: Mutex<Vec<Received>>,
    connections: AtomicUsize,
    /// Everything that clients wrote before TLS.
    plain: Mutex<String>,
    credentials: Option<(String, String)>,
    security: Security,
}

/// The server. It ends with its last clone's tasks, at the end of the test.
#[derive(Clone)]
pub(crate) struct Played {
    pub(crate) address: SocketAddr,
    /// Certificate in PEM, for `localhost`.
    pub(crate) ca_pem: String,
    state: Arc<State>,
}

impl Played {
    pub(crate) async fn start(security: Security, credentials: Option<(&str, &str)>) -> Self {
        Self::named("localhost", security, credentials).await
    }

    /// A server whose certificate has this name.
    pub(crate) async fn named(name: &str, security: Security, credentials: Option<(&str, &str)>) -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], der)
            .expect("a pair");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let state = Arc::new(State {
            act: Mutex::new(Act::Accept),
            mails: Mutex::default(),
            connections: AtomicUsize::new(0),
            plain: Mutex::default(),
            credentials: credentials.map(|(user, password)| (user.to_owned(), password.to_owned())),
            security,
        });
        let played = Self { address, ca_pem: certificate.pem(), state: state.clone() };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                state.connections.fetch_add(1, Ordering::SeqCst);
                let (state, acceptor) = (state.clone(), acceptor.clone());
                // A client that goes away ends the conversation.
                tokio::spawn(async move {
                    let _ = serve(&state, &acceptor, socket).await;
                });
            }
        });
        played
    }

    pub(crate) fn act(&self, act: Act) {
        *self.state.act.lock().unwrap() = act;
    }

    pub(crate) fn mails(&self) -> Vec<Received> {
        self.state.mails.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn plain(&self) -> String {
        self.state.plain.lock().unwrap().clone()
    }
}

async fn serve(state: &State, acceptor: &TlsAcceptor, socket: TcpStream) -> std::io::Result<()> {
    let act = *state.act.lock().unwrap();
    match act {
        Act::Close => return Ok(()),
        Act::Silent => std::future::pending::<()>().await,
        _ => {}
    }
    if state.security == Security::Implicit {
        let mut stream = BufReader::new(acceptor.accept(socket).await?);
        stream.write_all(b"220 played\r\n").await?;
        return converse(state, &mut stream, true).await.map(drop);
    }
    let mut stream = BufReader::new(socket);
    stream.write_all(b"220 played\r\n").await?;
    if converse(state, &mut stream, false).await? == End::StartTls {
        let mut stream = BufReader::new(acceptor.accept(stream.into_inner()).await?);
        converse(state, &mut stream, true).await?;
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum End {
    StartTls,
    Closed,
}

async fn converse<S>(state: &State, stream: &mut BufReader<S>, encrypted: bool) -> std::io::Result<End>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut mail = Received { encrypted, ..Received::default() };
    loop {
        let Some(line) = line(state, stream, encrypted).await? else { return Ok(End::Closed) };
        let act = *state.act.lock().unwrap();
        let upper = line.to_ascii_uppercase();
        let answer = if upper.starts_with("EHLO") {
            let tls =
                if state.security == Security::StartTls && !encrypted { "250-STARTTLS\r\n" } else { "" };
            let auth = if state.credentials.is_some() { "250-AUTH PLAIN LOGIN\r\n" } else { "" };
            format!("250-played\r\n{tls}{auth}250 8BITMIME")
        } else if upper == "STARTTLS" && state.security == Security::StartTls && !encrypted {
            stream.write_all(b"220 go ahead\r\n").await?;
            return Ok(End::StartTls);
        } else if let Some(given) = line.strip_prefix("AUTH PLAIN ") {
            mail.authenticated = is_right(state, given);
            if mail.authenticated { "235 2.7.0 right" } else { "535 5.7.8 wrong" }.to_owned()
        } else if upper.starts_with("MAIL FROM:") {
            if state.credentials.is_some() && !mail.authenticated {
                "530 5.7.0 who are you".to_owned()
            } else {
                line[10..].clone_into(&mut mail.from);
                "250 2.1.0 ok".to_owned()
            }
        } else if upper.starts_with("RCPT TO:") {
            match act {
                Act::Recipient(reply) => reply.to_owned(),
                _ => {
                    mail.to.push(line[8..].to_owned());
                    "250 2.1.5 ok".to_owned()
                }
            }
        } else if upper == "DATA" {
            stream.write_all(b"354 go ahead\r\n").await?;
            match message(state, stream, act).await? {
                Some(data) => mail.data = data,
                None => return Ok(End::Closed),
            }
            match act {
                Act::Message(reply) => reply.to_owned(),
                _ => {
                    state.mails.lock().unwrap().push(mail.clone());
                    "250 2.0.0 queued as 4711".to_owned()
                }
            }
        } else if upper == "QUIT" {
            if act == Act::SilentQuit {
                std::future::pending::<()>().await;
            }
            stream.write_all(b"221 bye\r\n").await?;
            return Ok(End::Closed);
        } else {
            "502 5.5.1 unknown".to_owned()
        };
        stream.write_all(format!("{answer}\r\n").as_bytes()).await?;
        stream.flush().await?;
    }
}

/// The next line, without its end. `None`: the client closed the connection.
async fn line<S>(state: &State, stream: &mut BufReader<S>, encrypted: bool) -> std::io::Result<Option<String>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    if !encrypted {
        state.plain.lock().unwrap().push_str(&line);
    }
    Ok(Some(line.trim_end().to_owned()))
}

/// The message up to the final dot. `None`: the connection is to be closed.
async fn message<S>(state: &State, stream: &mut BufReader<S>, act: Act) -> std::io::Result<Option<String>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut data = String::new();
    loop {
        let Some(line) = line(state, stream, true).await? else { return Ok(None) };
        if act == Act::DropInData {
            return Ok(None);
        }
        if line == "." {
            return Ok(Some(data));
        }
        data.push_str(line.strip_prefix('.').unwrap_or(&line));
        data.push('\n');
    }
}

/// Whether these are the credentials, as base64 of `\0user\0password` (RFC 4616).
fn is_right(state: &State, given: &str) -> bool {
    let Some((user, password)) = &state.credentials else { return false };
    decode(given) == format!("\0{user}\0{password}").into_bytes()
}

fn decode(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for byte in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == byte).expect("base64");
        bits = bits << 6 | u32::try_from(value).expect("small");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).expect("a byte"));
        }
    }
    bytes
}
