//! `postern token`: gets an access token by client credentials (RFC 6749 section 4.4), or decodes a
//! token.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;

use auth::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{Method, StatusCode};
use http_engine::clock::{Clock as _, SystemClock};
use http_engine::url::Url;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::client::{Client, Version};
use crate::exit::{Failure, Outcome};
use crate::terminal::{BOLD, DIM};

/// Arguments of `postern token`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Prints only the token, so that a command can use it:
  TOKEN=$(postern token --issuer https://id.example --client-id me --client-secret @secret.txt)
  curl -H \"Authorization: Bearer $TOKEN\" https://app.example/

  postern token --decode --token \"$TOKEN\"

Exit codes: 0 success, 1 the server refused, 3 the server could not be reached.")]
pub struct Arguments {
    /// The issuer; its discovery document names the token endpoint.
    #[arg(long, value_name = "URL", required_unless_present_any = ["endpoint", "token"])]
    issuer: Option<String>,
    /// The token endpoint, instead of discovery.
    #[arg(long, value_name = "URL", conflicts_with = "issuer")]
    endpoint: Option<String>,
    /// The `client_id` of the client.
    #[arg(long, value_name = "ID", allow_hyphen_values = true, required_unless_present = "token")]
    client_id: Option<String>,
    /// The client's secret: @FILE, - for standard input, or the secret itself (other users of this
    /// machine can see it).
    #[arg(long, value_name = "SECRET", allow_hyphen_values = true, required_unless_present = "token")]
    client_secret: Option<String>,
    /// Scopes to request, separated by spaces.
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// The API that will receive the token (RFC 8707 `resource`); can be given several times.
    #[arg(long, value_name = "URI")]
    resource: Vec<String>,
    /// The API that will receive the token, for servers that call it `audience`; can be given
    /// several times.
    #[arg(long, value_name = "NAME")]
    audience: Vec<String>,
    /// PEM file with the certificate authorities to trust instead of the system's.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Permit sending the client's secret over plain http to another machine.
    #[arg(long)]
    insecure_http: bool,
    /// Print header and claims instead of the token; nothing is verified.
    #[arg(long)]
    decode: bool,
    /// Use this token and get none: @FILE, - for standard input, or the token itself.
    #[arg(
        long,
        value_name = "TOKEN",
        allow_hyphen_values = true,
        conflicts_with_all = ["issuer", "endpoint"],
        requires = "decode"
    )]
    token: Option<String>,
}

/// Runs `postern token`.
pub fn run(arguments: &Arguments) -> Result<Outcome, Failure> {
    let token = match &arguments.token {
        Some(token) => read_value(token, "token")?,
        None => match fetch(arguments)? {
            Ok(token) => token,
            Err(refused) => {
                anstream::eprintln!("{refused}");
                return Ok(Outcome::Negative);
            }
        },
    };
    if !arguments.decode {
        anstream::println!("{token}");
        return Ok(Outcome::Success);
    }
    let Some((header, claims)) = decode(token.as_bytes()) else {
        anstream::eprintln!("the token is not a JWT and cannot be decoded; only its issuer can read it");
        return Ok(Outcome::Negative);
    };
    anstream::print!("{}", format_token(&header, &claims, SystemClock.now().wall));
    Ok(Outcome::Success)
}

/// Reads a value of the command line: the text itself, `@FILE`, or `-` for standard input.
pub(crate) fn read_value(text: &str, subject: &str) -> Result<String, Failure> {
    let unread = |from: &str, error: std::io::Error| {
        Failure::new(format!("cannot read the {subject} from {from}: {error}"))
    };
    let value = match (text, text.strip_prefix('@')) {
        ("-", _) => {
            let mut value = String::new();
            std::io::stdin().read_to_string(&mut value).map_err(|error| unread("standard input", error))?;
            value
        }
        (_, Some(file)) => std::fs::read_to_string(file).map_err(|error| unread(file, error))?,
        (value, None) => value.to_owned(),
    };
    match value.trim() {
        "" => Err(Failure::new(format!("the {subject} is empty"))),
        value => Ok(value.to_owned()),
    }
}

/// Decodes header and claims of a JWT without verification. `None`: it is not a JWT.
pub(crate) fn decode(token: &[u8]) -> Option<(Map<String, Value>, Map<String, Value>)> {
    let mut parts = token.split(|b| *b == b'.');
    let mut part = || serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
    Some((part()?, part()?))
}

fn format_token(header: &Map<String, Value>, claims: &Map<String, Value>, now: Timestamp) -> String {
    let mut out = String::new();
    for (name, members) in [("header", header), ("claims", claims)] {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{BOLD}{name}{BOLD:#}");
        for (key, value) in members {
            let _ = writeln!(out, "  {key:<12} {value}{}", relative_time(key, value, now));
        }
    }
    out
}

/// Relative time of a claim that is an instant. Empty for other claims.
fn relative_time(key: &str, value: &Value, now: Timestamp) -> String {
    let (true, Some(seconds)) = (matches!(key, "exp" | "nbf" | "iat" | "auth_time"), value.as_u64()) else {
        return String::new();
    };
    let at = Timestamp::from_secs(seconds);
    let text = if at > now {
        format!("in {} s", at.since(now).as_secs())
    } else {
        format!("{} s ago", now.since(at).as_secs())
    };
    format!("  {DIM}{text}{DIM:#}")
}

/// Refusal of the server, as a message.
type Refused = String;

fn fetch(arguments: &Arguments) -> Result<Result<String, Refused>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let outbound = config::outbound_of_environment(SystemClock.now().wall);
    let outbound = outbound.map_err(|report| Failure::new(report.lines().collect::<Vec<_>>().join("\n")))?;
    let client = Client::new(arguments.ca.as_deref(), outbound.proxies);
    let secret = read_value(arguments.client_secret.as_deref().unwrap_or_default(), "client secret")?;
    runtime.block_on(async {
        let endpoint = match (&arguments.endpoint, &arguments.issuer) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, issuer) => discover(&client, issuer.as_deref().unwrap_or_default()).await?,
        };
        if !arguments.insecure_http {
            check_secret_transport(&endpoint, arguments.issuer.as_deref())?;
        }
        let request = TokenRequest {
            id: arguments.client_id.as_deref().unwrap_or_default(),
            secret: &secret,
            scope: arguments.scope.as_deref(),
            resources: &arguments.resource,
            audiences: &arguments.audience,
        };
        request.send(&client, &endpoint).await
    })
}

/// Refuses an endpoint that would receive the secret in plain text.
fn check_secret_transport(endpoint: &str, issuer: Option<&str>) -> Result<(), Failure> {
    let place = url(endpoint, "token endpoint")?;
    let downgraded =
        issuer.map(|issuer| url(issuer, "issuer")).transpose()?.is_some_and(|url| url.is_https());
    if place.is_https() || (place.is_loopback() && !downgraded) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the client secret would be sent to {place} in plain text; use https, or confirm it with --insecure-http"
    )))
}

/// Token request with the client credentials grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRequest<'a> {
    pub(crate) id: &'a str,
    pub(crate) secret: &'a str,
    pub(crate) scope: Option<&'a str>,
    pub(crate) resources: &'a [String],
    pub(crate) audiences: &'a [String],
}

/// Successful token response (RFC 6749 section 5.1).
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    token_type: String,
}

/// Error response (RFC 6749 section 5.2).
#[derive(Deserialize)]
struct Denied {
    error: String,
    error_description: Option<String>,
}

impl TokenRequest<'_> {
    pub(crate) async fn send(
        self,
        client: &Client,
        endpoint: &str,
    ) -> Result<Result<String, Refused>, Failure> {
        let url = url(endpoint, "token endpoint")?;
        let mut form = "grant_type=client_credentials".to_owned();
        let scope = self.scope.iter().map(|scope| ("scope", *scope));
        let resources = self.resources.iter().map(|resource| ("resource", resource.as_str()));
        let audiences = self.audiences.iter().map(|audience| ("audience", audience.as_str()));
        for (name, value) in scope.chain(resources).chain(audiences) {
            let _ = write!(form, "&{name}={}", form_encoded(value));
        }
        // RFC 6749 section 2.3.1: form-encode both parts before joining them.
        let pair = format!("{}:{}", form_encoded(self.id), form_encoded(self.secret));
        let authorization = format!("Basic {}", STANDARD.encode(pair));
        let fields = [
            ("content-type", "application/x-www-form-urlencoded"),
            ("accept", "application/json"),
            ("authorization", &*authorization),
        ];
        let reply =
            client.send(Version::Http1, Method::POST, &url, &fields, form).await.map_err(Failure::new)?;
        if reply.status == StatusCode::OK {
            let granted = serde_json::from_slice::<Granted>(&reply.body).ok();
            return match granted.filter(|granted| granted.token_type.eq_ignore_ascii_case("bearer")) {
                Some(granted) => Ok(Ok(granted.access_token)),
                None => Err(Failure::new(format!("{url}: not a response of a token endpoint (RFC 6749)"))),
            };
        }
        let refusal = match serde_json::from_slice::<Denied>(&reply.body) {
            Ok(Denied { error, error_description }) => {
                let text = error_description.map_or_else(String::new, |text| format!(": {text}"));
                format!("{url} refused with {error}{text}{}", remedy(&error))
            }
            Err(_) => format!("{url} answered {}; is it a token endpoint?", reply.status),
        };
        Ok(Err(refusal))
    }
}

fn remedy(error: &str) -> &'static str {
    match error {
        "invalid_client" => "\n  check --client-id and --client-secret",
        "unauthorized_client" | "unsupported_grant_type" => {
            "\n  permit the client_credentials grant for the client"
        }
        "invalid_scope" => "\n  request fewer scopes with --scope, or add them to the client",
        "invalid_target" => "\n  check --resource and --audience",
        _ => "",
    }
}

/// Finds the token endpoint of an issuer in its discovery document.
pub(crate) async fn discover(client: &Client, issuer: &str) -> Result<String, Failure> {
    #[derive(Deserialize)]
    struct Metadata {
        issuer: String,
        token_endpoint: Option<String>,
    }
    let base = url(issuer, "issuer")?;
    let below = base.target().trim_end_matches('/');
    let scheme = if base.is_https() { "https" } else { "http" };
    let openid = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let oauth = format!("{scheme}://{}/.well-known/oauth-authorization-server{below}", base.authority());
    let mut seen = Vec::new();
    for place in [openid, oauth] {
        let place = url(&place, "issuer")?;
        let accept = [("accept", "application/json")];
        let reply =
            client.send(Version::Http1, Method::GET, &place, &accept, "").await.map_err(Failure::new)?;
        if reply.status != StatusCode::OK {
            seen.push(format!("{place} answered {}", reply.status));
            continue;
        }
        let Ok(metadata) = serde_json::from_slice::<Metadata>(&reply.body) else {
            seen.push(format!("{place} is not a discovery document"));
            continue;
        };
        if metadata.issuer != issuer {
            let text = format!("{place} has the issuer {:?}; write exactly this issuer", metadata.issuer);
            return Err(Failure::new(text));
        }
        return metadata
            .token_endpoint
            .ok_or_else(|| Failure::new(format!("{place} names no token endpoint")));
    }
    Err(Failure::new(format!("{}; name the endpoint with --endpoint", seen.join(", "))))
}

fn url(text: &str, subject: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|fault| Failure::new(format!("{subject}: {fault}")))
}

/// Encodes a text as `application/x-www-form-urlencoded`.
fn form_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => out.push('+'),
            b'*' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => out.push(char::from(byte)),
            _ => {
                out.push('%');
                out.push_str(&config::hex(&[byte]).to_ascii_uppercase());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_encoded_octet_by_octet() {
        assert_eq!(form_encoded("a b&c=ü*"), "a+b%26c%3D%C3%BC*");
    }

    #[test]
    fn tokens_are_decoded_without_being_believed() {
        let part = |json: &str| URL_SAFE_NO_PAD.encode(json);
        let token = format!("{}.{}.x", part(r#"{"alg":"ES256"}"#), part(r#"{"sub":"me","exp":60}"#));
        let (header, claims) = decode(token.as_bytes()).unwrap();
        assert_eq!(header["alg"], "ES256");
        let text = format_token(&header, &claims, Timestamp::from_secs(20));
        assert!(text.contains("in 40 s"), "{text}");
        assert!(decode(b"opaque").is_none());
    }
}
