//! Request to explain, from the command line.

use std::path::Path;

use auth::request::{Field, RawRequest, Scheme};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::exit::Failure;

/// A request in the form that a client would send.
pub(super) struct RequestedRequest {
    pub(super) method: String,
    pub(super) scheme: Scheme,
    pub(super) authority: String,
    /// Path and query, byte for byte as given.
    pub(super) target: String,
    /// Header fields except `Host`, including the token's.
    pub(super) fields: Vec<(String, String)>,
    /// The token of the command line, if one was given.
    pub(super) token: Option<String>,
}

impl RequestedRequest {
    pub(super) fn new(request: &str, headers: &[String], token: Option<&str>) -> Result<Self, Failure> {
        let wrong = |problem: &str| {
            Failure::usage(format!(
                "--request {request:?}: {problem}; write it like 'GET https://host/path?query'"
            ))
        };
        let (method, url) = request.split_once(' ').ok_or_else(|| wrong("expected a method and a URL"))?;
        let (scheme, rest) = match url.trim().split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (Scheme::Https, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (Scheme::Http, rest),
            _ => return Err(wrong("the URL must begin with http:// or https://")),
        };
        // Do not use a URL library: whatever a client can send must stay unchanged.
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        let mut fields = Vec::new();
        for header in headers {
            let Some((name, value)) = header.split_once(':') else {
                return Err(Failure::usage(format!("--header {header:?}: write it like 'name: value'")));
            };
            if name.trim().eq_ignore_ascii_case("host") {
                return Err(Failure::usage(format!(
                    "--header {header:?}: the host is taken from the URL in --request"
                )));
            }
            fields.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        let token = token.map(read_token).transpose()?;
        if let Some(token) = &token {
            fields.push(("Authorization".into(), format!("Bearer {token}")));
        }
        Ok(Self { method: method.into(), scheme, authority: authority.into(), target, fields, token })
    }

    pub(super) fn raw(&self) -> RawRequest<'_> {
        RawRequest {
            method: &self.method,
            scheme: self.scheme,
            authority: None,
            host: Some(self.authority.as_bytes()),
            target: self.target.as_bytes(),
        }
    }

    pub(super) fn fields(&self) -> Vec<Field<'_>> {
        self.fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect()
    }
}

/// Reads a token from the command line. It may be copied from a header.
fn read_token(text: &str) -> Result<String, Failure> {
    let token = crate::cmd::token::read_value(text, "token")?;
    Ok(token.strip_prefix("Bearer ").unwrap_or(&token).trim().to_owned())
}

/// Reads the first certificate of a PEM file.
pub(super) fn certificate(file: &Path) -> Result<CertificateDer<'static>, Failure> {
    CertificateDer::from_pem_file(file)
        .map_err(|error| Failure::new(format!("cannot read a certificate from {}: {error}", file.display())))
}
