//! Simulated browser that logs in: cookies, forms, redirects.
//!
//! Owns: the steps from an authorization request to a token, for the self check. It parses pages
//! like a browser does, so that it detects a page that users could not use.

use std::fmt::Write as _;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use http_engine::url::Url;

use super::provider::WEB_CLIENT;
use crate::client::{Client, Reply, Version};
use crate::exit::Failure;

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
/// PKCE code verifier (RFC 7636). It is not secret in the demo.
const VERIFIER: &str = "the-demo-takes-its-own-tour-and-hides-nothing-from-itself";

/// The relevant part of the token response.
#[derive(serde::Deserialize)]
struct Tokens {
    access_token: String,
}

/// A browser at one provider.
pub(super) struct Browser<'c> {
    client: &'c Client,
    issuer: String,
    cookies: Vec<(String, String)>,
}

impl<'c> Browser<'c> {
    pub(super) fn new(client: &'c Client, issuer: String) -> Self {
        Self { client, issuer, cookies: Vec::new() }
    }

    /// Logs in and consents. Returns the access token.
    ///
    /// # Errors
    ///
    /// Returns what the provider answered instead.
    pub(super) async fn token(&mut self, name: &str, password: &str, back: &str) -> Result<String, Failure> {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, VERIFIER.as_bytes()));
        let request = form(&[
            ("response_type", "code"),
            ("client_id", WEB_CLIENT),
            ("redirect_uri", back),
            ("scope", "openid groups orders:read"),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let login = self.send(Method::GET, &format!("/authorize?{request}"), "").await?;
        let next = self.submit(&login, "/login", &[("username", name), ("password", password)]).await?;
        let consent = self.follow(next).await?;
        let answer = self.submit(&consent, "/consent", &[("decision", "allow")]).await?;
        let location = answer.headers.get("location").and_then(|value| value.to_str().ok());
        let code = location.and_then(|to| to.split(['?', '&']).find_map(|field| field.strip_prefix("code=")));
        let code = code.ok_or_else(|| unexpected("no code after consent", &answer))?;
        let redemption = form(&[
            ("grant_type", "authorization_code"),
            ("client_id", WEB_CLIENT),
            ("code", code),
            ("redirect_uri", back),
            ("code_verifier", VERIFIER),
        ]);
        let answer = self.send(Method::POST, "/token", &redemption).await?;
        let tokens = serde_json::from_slice::<Tokens>(&answer.body);
        tokens.map(|tokens| tokens.access_token).map_err(|_| unexpected("no token for the code", &answer))
    }

    /// Title of a page.
    pub(super) async fn title(&mut self, path: &str) -> Result<String, Failure> {
        let page = self.send(Method::GET, path, "").await?;
        let text = String::from_utf8_lossy(&page.body);
        Ok(between(&text, "<h1>", "</h1>").unwrap_or("no page").to_owned())
    }

    /// Follows a redirect to a page of the provider. Returns any other response unchanged.
    async fn follow(&mut self, answer: Reply) -> Result<Reply, Failure> {
        let location = answer.headers.get("location").and_then(|value| value.to_str().ok());
        match location.and_then(|to| to.strip_prefix(&self.issuer)) {
            Some(target) => {
                let target = target.to_owned();
                self.send(Method::GET, &target, "").await
            }
            None => Ok(answer),
        }
    }

    /// Sends the form of a page whose action is `action`, with the values of a user.
    async fn submit(
        &mut self,
        page: &Reply,
        action: &str,
        filled: &[(&str, &str)],
    ) -> Result<Reply, Failure> {
        let text = String::from_utf8_lossy(&page.body).into_owned();
        let found = text.split("<form ").skip(1).find(|form| form.contains(&format!("action=\"{action}\"")));
        let found = found.ok_or_else(|| unexpected(&format!("no form to {action}"), page))?;
        let hidden = found
            .split("type=\"hidden\" ")
            .skip(1)
            .filter_map(|input| Some((between(input, "name=\"", "\"")?, between(input, "value=\"", "\"")?)));
        let fields: Vec<(&str, &str)> = hidden.chain(filled.iter().copied()).collect();
        self.send(Method::POST, action, &form(&fields)).await
    }

    async fn send(&mut self, method: Method, target: &str, body: &str) -> Result<Reply, Failure> {
        let url = Url::parse(&format!("{}{target}", self.issuer));
        let url = url.map_err(|fault| Failure::new(fault.to_string()))?;
        let cookies: Vec<String> =
            self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = cookies.join("; ");
        let fields = [FORM, ("cookie", cookies.as_str())];
        let reply = self.client.send(Version::Http1, method, &url, &fields, body.to_owned()).await;
        let reply = reply.map_err(Failure::new)?;
        for line in reply.headers.get_all("set-cookie").iter().filter_map(|line| line.to_str().ok()) {
            if let Some((name, value)) = line.split(';').next().and_then(|pair| pair.split_once('=')) {
                self.cookies.retain(|(kept, _)| kept != name);
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(reply)
    }
}

fn unexpected(problem: &str, reply: &Reply) -> Failure {
    let text = String::from_utf8_lossy(&reply.body);
    let shown =
        between(&text, "<h1>", "</h1>").map_or_else(|| text.chars().take(200).collect(), str::to_owned);
    Failure::new(format!("the provider answered {}: {problem}: {shown}", reply.status.as_u16()))
}

fn between<'t>(text: &'t str, from: &str, to: &str) -> Option<&'t str> {
    let rest = &text[text.find(from)? + from.len()..];
    Some(&rest[..rest.find(to)?])
}

fn form(fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in fields {
        if !out.is_empty() {
            out.push('&');
        }
        out.push_str(name);
        out.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
