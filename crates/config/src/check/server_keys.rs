//! Server that the gateway itself sends requests to: checks its URL and its TLS keys.

use std::path::Path;
use std::sync::Arc;

use http_engine::tls::Protocols;
use http_engine::url::Url;
use rustls::ClientConfig;

use super::super::fault::KeyPath;
use super::Context;
use super::tls::{Client, KeyNames};

/// The keys that describe the server.
pub(super) struct ServerKeys<'a> {
    pub(super) url: &'a str,
    pub(super) ca: Option<&'a Path>,
    pub(super) certificate: Option<&'a Path>,
    pub(super) key: Option<&'a Path>,
    pub(super) insecure_http: bool,
    /// What an attacker on the network can do over plain http. Part of a message.
    pub(super) plain_http_risk: &'static str,
    /// Key that holds the URL, below the table; dots separate nested keys.
    pub(super) url_key: &'static str,
    /// An example of such a URL.
    pub(super) example: &'static str,
}

/// TLS configuration, if the server uses TLS, and a digest that changes with its files.
pub(super) type Tls = (Option<Arc<ClientConfig>>, u64);

impl ServerKeys<'_> {
    /// Checks the URL and the TLS keys. `None` when a fault was noted.
    pub(super) fn check(&self, path: &KeyPath, context: &mut Context<'_>) -> Option<(Url, Tls)> {
        let url = self.url(path, context)?;
        let tls = self.tls(&url, path, context)?;
        Some((url, tls))
    }

    fn url(&self, path: &KeyPath, context: &mut Context<'_>) -> Option<Url> {
        let at = self.url_key.split('.').fold(path.clone(), |path, key| path.key(key));
        let url = match Url::parse(self.url) {
            Ok(url) => url,
            Err(fault) => {
                context.faults.add(&at, fault.to_string(), format!("write a URL such as {:?}", self.example));
                return None;
            }
        };
        if !url.is_https() && !url.is_loopback() && !self.insecure_http {
            let hint = "use https, or confirm it with `insecure_http = true`";
            context.faults.add(&at, format!("over plain http, {}", self.plain_http_risk), hint);
            return None;
        }
        Some(url)
    }

    fn tls(&self, url: &Url, path: &KeyPath, context: &mut Context<'_>) -> Option<Tls> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                let hint = "name the file with the certificate's private key";
                context.faults.add(&path.key("certificate"), "missing key `key`", hint);
                return None;
            }
            (None, Some(_)) => {
                let hint = "name the file with the certificate";
                context.faults.add(&path.key("key"), "missing key `certificate`", hint);
                return None;
            }
        };
        if url.is_https() {
            let protocols = Protocols { http1: true, http2: true };
            let client = Client { ca: self.ca, identity, protocols, path, keys: KeyNames::DEFAULT };
            let (tls, version) = context.tls_client(&client)?;
            return Some((Some(tls), version));
        }
        for (key, is_set) in [("ca", self.ca.is_some()), ("certificate", identity.is_some())] {
            if is_set {
                context.faults.add(
                    &path.key(key),
                    "this server is not used over TLS",
                    "remove it, or use https",
                );
                return None;
            }
        }
        Some((None, 0))
    }
}
