//! Checks how the gateway authenticates as a client of a login provider.

use std::sync::Arc;

use auth::algorithm::Algorithm;
use auth::token::jws::Signer;
use http_engine::config::ClientCredential;
use login::config::{ClientKey, ClientProof};

use super::super::fault::KeyPath;
use super::super::raw::{self, LoginClientAuthentication as By, LoginKind as Kind};
use super::Context;

/// How the gateway authenticates.
pub(super) struct LoginClient {
    pub(super) credential: ClientCredential,
    pub(super) key: Option<ClientKey>,
    pub(super) tls_client_auth: bool,
}

/// Checks the keys of the client's authentication. `None` when a fault was noted.
pub(super) fn login_client(
    raw: &raw::LoginProvider,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<LoginClient> {
    let by = raw.client_authentication.or_else(|| implied(raw));
    let mut sound = true;
    // What each method needs. A secret without a method is sent as the metadata say.
    for (key, is_set, methods) in [
        (
            "client_secret_file",
            raw.client_secret_file.is_some(),
            &[By::ClientSecretBasic, By::ClientSecretPost][..],
        ),
        ("client_key_file", raw.client_key_file.is_some(), &[By::PrivateKeyJwt, By::Apple]),
        ("client_key_id", raw.client_key_id.is_some(), &[By::Apple]),
        ("apple_team_id", raw.apple_team_id.is_some(), &[By::Apple]),
        ("certificate", raw.certificate.is_some(), &[By::TlsClientAuth]),
    ] {
        let is_needed = by.is_some_and(|by| methods.contains(&by));
        let is_used = is_needed
            || match key {
                "client_secret_file" => by.is_none(),
                "client_key_id" => by == Some(By::PrivateKeyJwt),
                // Some servers ask every client for one.
                "certificate" => true,
                _ => false,
            };
        if is_needed && !is_set {
            let message = format!("the client has no `{key}` to authenticate with");
            let hint = format!("name `{key}`, or choose another method");
            context.faults.add(&path.key("client_authentication"), message, hint);
            sound = false;
        } else if is_set && !is_used {
            let message = "the client does not authenticate with it";
            context.faults.add(&path.key(key), message, "remove it, or change `client_authentication`");
            sound = false;
        }
    }
    if raw.kind == Kind::Openshift {
        let by_secret = matches!(by, None | Some(By::ClientSecretBasic | By::ClientSecretPost));
        for (key, is_set) in [
            ("client_authentication", raw.client_authentication.is_some() && !by_secret),
            ("client_key_file", raw.client_key_file.is_some()),
            ("certificate", raw.certificate.is_some()),
            ("response_mode", raw.response_mode.is_some()),
        ] {
            if is_set {
                let message = "OpenShift's OAuth server does not know it";
                context.faults.add(&path.key(key), message, "remove it; the client has a secret there");
                sound = false;
            }
        }
    }
    if !sound {
        return None;
    }
    let key = match by {
        Some(by @ (By::PrivateKeyJwt | By::Apple)) => Some(client_key(raw, by, path, context)?),
        _ => None,
    };
    Some(LoginClient {
        credential: credential(raw, by, path, context)?,
        key,
        tls_client_auth: by == Some(By::TlsClientAuth),
    })
}

/// The method that the other keys imply; `None`: no method, or that of the metadata.
fn implied(raw: &raw::LoginProvider) -> Option<By> {
    if raw.client_secret_file.is_some() {
        None
    } else if raw.client_key_file.is_some() {
        Some(By::PrivateKeyJwt)
    } else {
        raw.certificate.is_some().then_some(By::TlsClientAuth)
    }
}

fn credential(
    raw: &raw::LoginProvider,
    by: Option<By>,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<ClientCredential> {
    let Some(file) = &raw.client_secret_file else { return Some(ClientCredential::None) };
    context.read(file, &path.key("client_secret_file"))?;
    let (id, secret) = (raw.client_id.as_str().into(), context.reader.resolve(file));
    Some(match by {
        Some(By::ClientSecretBasic) => ClientCredential::Basic { id, secret },
        Some(By::ClientSecretPost) => ClientCredential::Post { id, secret },
        _ => ClientCredential::Discovered { id, secret },
    })
}

fn client_key(
    raw: &raw::LoginProvider,
    by: By,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<ClientKey> {
    let (file, at) = (raw.client_key_file.as_ref()?, path.key("client_key_file"));
    let hint = "whoever has the key can act as this client: chmod o= the file";
    let pem = context.read_private(file, &at, hint)?;
    let signer = match Signer::from_pkcs8_pem(&pem) {
        Ok(signer) if by == By::Apple && signer.algorithm() != Algorithm::Es256 => {
            let message =
                format!("the key is for {}, but Apple's keys are for ES256", signer.algorithm().as_str());
            context.faults.add(&at, message, "use the `.p8` file that Apple gave you");
            return None;
        }
        Ok(signer) => signer,
        Err(error) => {
            let hint = "create one with `openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256`";
            context.faults.add(&at, error.to_string(), hint);
            return None;
        }
    };
    let signer = match &raw.client_key_id {
        Some(kid) => signer.with_kid(kid),
        None => signer,
    };
    let proof = match (&raw.apple_team_id, by) {
        (Some(team), By::Apple) => ClientProof::AppleSecret { team: team.as_str().into() },
        _ => ClientProof::Assertion,
    };
    Some(ClientKey { signer: Arc::new(signer), proof })
}
