//! Tokens for the load: from the topology's provider, from a file, or signed by the lab.
//!
//! Owns: the token requests (RFC 6749 §4.4) and the population. Does not own: which token a request
//! carries. Tokens are secrets and are never printed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use lab_load::Interrupt;
use lab_load::fetch::{BlockingClient, access_token, client_auth_headers};
use lab_load::load::{Protocol, Target, Trust};

use super::TopologyError;
use super::description::{TokenMode, Tokens};
use super::signer::Signer;
use super::template::{self, Values};

/// Longest wait for one token.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Largest response of the token endpoint in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Obtains `count` different tokens of a mode.
///
/// # Errors
/// The token endpoint refuses, a file has too few tokens, two tokens are equal, or the run is
/// interrupted.
pub(super) fn get(
    tokens: &Tokens,
    mode: &TokenMode,
    count: usize,
    values: &Values,
    signer: Option<&Signer>,
    interrupt: &Interrupt,
) -> Result<Vec<String>, TopologyError> {
    if let Some(claims) = &mode.claims {
        let all = signer.and_then(|signer| signer.tokens(claims, mode.bytes, count));
        let why = || "cannot sign tokens: no random numbers from the system".to_owned();
        return all.ok_or_else(|| TopologyError::Token { url: "the lab".to_owned(), why: why() });
    }
    if let Some(file) = &mode.file {
        return from_file(file, count);
    }
    let fill = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        template::fill(text, values)
            .map_err(|unknown| TopologyError::Token { url: text.to_owned(), why: unknown.describe(values) })
    };
    let (url, secret_file) = (fill(&tokens.url)?, fill(&tokens.secret_file)?);
    let refused = |why: String| TopologyError::Token { url: url.clone(), why };
    let secret =
        fs::read_to_string(&secret_file).map_err(|error| refused(format!("`{secret_file}`: {error}")))?;
    let client = mode.client.as_deref().unwrap_or_default();
    let headers = client_auth_headers(client, &secret).map_err(refused)?;
    let trust = tokens.insecure.then_some(Trust::AnyCertificate);
    let target = Target::new(&url, Protocol::Http1, trust.as_ref(), None, None);
    let target = target.map_err(|error| refused(error.to_string()))?;
    let mut token_client =
        BlockingClient::new(target, MAX_RESPONSE_BYTES).map_err(|error| refused(error.to_string()))?;
    let mut issued = BTreeSet::new();
    let mut ordered = Vec::with_capacity(count);
    while ordered.len() < count {
        if interrupt.is_set() {
            return Err(TopologyError::Interrupted);
        }
        let answer =
            token_client.post(headers.clone(), "grant_type=client_credentials".to_owned(), TOKEN_TIMEOUT);
        let answer = answer.map_err(refused)?;
        if answer.status != 200 {
            return Err(refused(format!(
                "client `{client}` received status {}: {}",
                answer.status,
                answer.excerpt()
            )));
        }
        let token = access_token(&answer).map_err(refused)?;
        if !issued.insert(token.clone()) {
            return Err(refused("the same token was issued twice; the tokens must differ".to_owned()));
        }
        ordered.push(token);
    }
    Ok(ordered)
}

fn from_file(file: &Path, count: usize) -> Result<Vec<String>, TopologyError> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).map_err(|error| TopologyError::File {
        action: "read",
        path: name.clone(),
        error,
    })?;
    let tokens: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).take(count).map(str::to_owned).collect();
    if tokens.len() < count {
        let why = format!("has {} tokens, needs {count} (one per line)", tokens.len());
        return Err(TopologyError::Token { url: name, why });
    }
    Ok(tokens)
}
