//! Checks `[provider.mail]`: the mail server and the sender.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use http_engine::tls::Protocols;
use idp::mailer::MailConfig;
use mail::{Encryption, SmtpServer, SmtpSettings};
use zeroize::Zeroizing;

use super::super::super::fault::KeyPath;
use super::super::super::raw::{self, MailTls};
use super::super::Context;
use super::super::tls::{Client, KeyNames};

/// Bounds of the time limit of one mail.
const TIMEOUTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_mins(5);

/// The settings of mails. `None`: there are none, or a fault was noted.
pub(super) fn read(raw: &raw::Provider, path: &KeyPath, context: &mut Context<'_>) -> Option<MailConfig> {
    let raw = raw.mail.as_ref()?;
    let path = &path.key("mail");
    let encryption = match raw.tls {
        MailTls::Implicit => Encryption::Implicit,
        MailTls::StartTls => Encryption::StartTls,
        MailTls::None => Encryption::None,
    };
    let server = server(&raw.server, encryption, &path.key("server"), context);
    let ca_pem = authorities(raw.ca.as_deref(), encryption, path, context);
    let credentials = credentials(raw, path, context);
    if !TIMEOUTS.contains(&raw.timeout.0) {
        context.faults.add(&path.key("timeout"), "the time limit is out of bounds", "use 1s to 5m");
    }
    if !mail::is_sender(&raw.from) {
        let message = format!("{:?} is not a sender", raw.from);
        let hint = "write \"login@example.com\" or \"Example <login@example.com>\"";
        context.faults.add(&path.key("from"), message, hint);
    }
    let (host, port) = server?;
    let settings = SmtpSettings {
        host,
        port,
        encryption,
        ca_pem: ca_pem.ok()?,
        credentials: credentials.ok()?,
        from: raw.from.clone(),
        timeout: raw.timeout.0,
    };
    let server = SmtpServer::new(settings).ok()?;
    Some(MailConfig { server, self_service_reset: raw.self_service_reset })
}

/// Host and port of the server.
fn server(
    text: &str,
    encryption: Encryption,
    at: &KeyPath,
    context: &mut Context<'_>,
) -> Option<(String, u16)> {
    let Some((host, port)) = split(text) else {
        let message = format!("{text:?} is not a server");
        context.faults.add(at, message, "write \"smtp.example.com\" or \"smtp.example.com:465\"");
        return None;
    };
    if encryption == Encryption::None && !is_loopback(host) {
        let message = "without TLS, an attacker on the network can read the links and take over accounts";
        let hint = "use `tls = \"implicit\"` or `tls = \"starttls\"`; plain text is only for this machine";
        context.faults.add(at, message, hint);
        return None;
    }
    Some((host.to_owned(), port.unwrap_or(encryption.default_port())))
}

/// Host and port of `HOST`, `HOST:PORT` or `[IPv6]:PORT`.
fn split(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (
                host,
                rest.strip_prefix(':')
                    .map_or_else(|| rest.is_empty().then_some(None), |port| Some(Some(port)))?,
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_host = host.contains(':') || (!host.is_empty() && host.chars().all(is_name));
    let port = match port {
        Some(port) => Some(port.parse::<u16>().ok().filter(|port| *port > 0)?),
        None => None,
    };
    is_host.then_some((host, port))
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A fault was noted.
struct Noted;

/// The certificates in the file of `ca`. `None`: those of the system.
fn authorities(
    ca: Option<&Path>,
    encryption: Encryption,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Option<Vec<u8>>, Noted> {
    let Some(ca) = ca else { return Ok(None) };
    if encryption == Encryption::None {
        let message = "the key has no effect: the connection has no TLS";
        context.faults.add(&path.key("ca"), message, "remove it, or choose another `tls`");
        return Err(Noted);
    }
    let protocols = Protocols { http1: false, http2: false };
    let client = Client { ca: Some(ca), identity: None, protocols, path, keys: KeyNames::DEFAULT };
    context.roots(&client).ok_or(Noted)?;
    context.read(ca, &path.key("ca")).map(Some).ok_or(Noted)
}

type Credentials = (String, Zeroizing<String>);

/// User name and password. `None`: the server asks for none.
fn credentials(
    raw: &raw::Mail,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Option<Credentials>, Noted> {
    match (&raw.username, &raw.password_file) {
        (None, None) => Ok(None),
        (Some(_), None) => {
            let hint = "write the password into a file, and name that with `password_file`";
            context.faults.add(path, "missing key `password_file`", hint);
            Err(Noted)
        }
        (None, Some(_)) => {
            let hint = "name the user at the mail server, or remove `password_file`";
            context.faults.add(path, "missing key `username`", hint);
            Err(Noted)
        }
        (Some(user), Some(file)) => {
            let password = password(file, &path.key("password_file"), context);
            if user.is_empty() || user.contains(char::is_control) {
                let message = "the name is empty or has control characters";
                context.faults.add(&path.key("username"), message, "write the name at the mail server");
                return Err(Noted);
            }
            Ok(Some((user.clone(), password.ok_or(Noted)?)))
        }
    }
}

fn password(file: &Path, at: &KeyPath, context: &mut Context<'_>) -> Option<Zeroizing<String>> {
    let read = context.read_private(file, at, "it contains a credential: chmod o= the file")?;
    let shown = context.reader.resolve(file);
    let text = std::str::from_utf8(&read).unwrap_or_default();
    let password = text.strip_suffix('\n').unwrap_or(text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() || password.contains(char::is_control) {
        let message = format!("{} must have the password in one line", shown.display());
        context.faults.add(at, message, "write the password at the mail server, and nothing else");
        return None;
    }
    Some(Zeroizing::new(password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_with_or_without_a_port() {
        for (text, expected) in [
            ("smtp.example.com", ("smtp.example.com", None)),
            ("smtp.example.com:465", ("smtp.example.com", Some(465))),
            ("192.0.2.1:25", ("192.0.2.1", Some(25))),
            ("[::1]:25", ("::1", Some(25))),
            ("[2001:db8::1]", ("2001:db8::1", None)),
        ] {
            assert_eq!(split(text), Some(expected), "{text}");
        }
        for text in [
            "",
            ":25",
            "host:",
            "host:0",
            "host:x",
            "host:70000",
            "::1",
            "[::1",
            "[::1]25",
            "a b",
            "smtp://h",
        ] {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_has_several_names() {
        for (host, expected) in [
            ("localhost", true),
            ("127.0.0.9", true),
            ("::1", true),
            ("smtp.example.com", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(host), expected, "{host}");
        }
    }
}
