//! Listeners, metrics and logs of oauth2-proxy.

use toml::Value;

use crate::draft::{Draft, inline};
use crate::go;
use crate::input_fault::InputFault;
use crate::server_tls;
use crate::settings::{Given, ProgramSettings};

/// Networks from which private proxies connect.
const PRIVATE: [&str; 5] = ["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fd00::/8"];

pub(super) fn translate(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let (certificate, key) = (settings.text("tls-cert-file"), settings.text("tls-key-file"));
    let (plain, secure) = (settings.text("http-address"), settings.text("https-address"));
    if certificate.is_some() != key.is_some() {
        return Err(InputFault::Contradiction("--tls-cert-file and --tls-key-file need each other".into()));
    }
    let mut members: Vec<(&'static str, Value)> = Vec::new();
    let mut from = Vec::new();
    for (name, given) in [("certificate", &certificate), ("key", &key)] {
        let Some(given) = given else { continue };
        members.push((name, given.value.clone().into()));
        from.push(given.origin.clone());
        settings.translated(given);
    }
    let has_tls = !members.is_empty();
    from.extend(server_tls::add_versions(settings, "tls-min-version", "tls-cipher-suite", &mut members)?);
    let table = draft.table("[[listener]]");
    table.set("name", "web", "");
    // One of the two listens: that with TLS if there is a certificate.
    let (used, unused, default) =
        if has_tls { (secure, plain, ":443") } else { (plain, secure, "127.0.0.1:4180") };
    let used = used.unwrap_or_else(|| Given::new(default, "the default address"));
    match used.value.strip_prefix("unix://") {
        Some(path) => {
            table.set("address", format!("unix:{path}"), &used.shown());
            settings.translated(&used);
        }
        None => {
            let listen = go::listen(&stripped(&used))?;
            table.set("address", listen.address, &used.shown());
            if listen.loses_ipv6 {
                settings.different(
                    &used,
                    "it listens on IPv4 only; for IPv6 add a listener with the address `[::]`",
                );
            } else {
                settings.translated(&used);
            }
        }
    }
    if has_tls {
        table.set("tls", inline(members), &from.join(", "));
    }
    if let Some(given) = unused {
        settings.different(&given, "only one of the two addresses is used, as by the program");
    }
    if let Some(given) = settings.switch("force-https")? {
        table.set("https_redirect", true, &given.shown());
        settings.translated(&given);
    }
    proxies(settings, draft)?;
    metrics(settings, draft)?;
    logs(settings, draft)
}

/// Without the scheme that an address may have.
fn stripped(given: &Given) -> Given {
    let value = given.value.trim_start_matches("http://").trim_start_matches("https://");
    Given::new(value, given.origin.clone())
}

fn proxies(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let header = settings.text("real-client-ip-header");
    let networks = settings.list("trusted-proxy-ip");
    match settings.switch("reverse-proxy")? {
        Some(given) if networks.is_empty() => {
            let from = inline([("from", PRIVATE.to_vec().into())]);
            draft.last("[[listener]]").set("trusted_proxies", from, &given.shown());
            settings.different(
                &given,
                "only private networks are trusted: write those of your proxies into `trusted_proxies.from`; a forwarded \
                 host chooses no route here",
            );
        }
        Some(given) => {
            let from: Vec<String> = networks.iter().map(|network| network.value.clone()).collect();
            let from = inline([("from", from.into())]);
            let origin = format!("{}, {}", given.origin, networks[0].origin);
            draft.last("[[listener]]").set("trusted_proxies", from, &origin);
            settings.different(&given, "a forwarded host chooses no route here");
            for network in &networks {
                settings.translated(network);
            }
        }
        None => {
            for network in &networks {
                let why = "without --reverse-proxy no proxy is trusted, so nothing is lost";
                settings.different(network, why);
            }
        }
    }
    if let Some(given) = header {
        if given.value.eq_ignore_ascii_case("X-Forwarded-For") {
            settings.translated(&given);
        } else {
            settings.no_equal(
                &given,
                "the client's address is read from `X-Forwarded-For` or `Forwarded`; let the proxy send one",
            );
        }
    }
    Ok(())
}

fn metrics(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let (plain, secure) = (settings.text("metrics-address"), settings.text("metrics-secure-address"));
    if let Some(given) = &plain {
        let listen = go::listen(&stripped(given))?;
        draft.table("[admin]").set("address", listen.address, &given.shown());
        settings.different(
            given,
            "the admin listener has `/metrics`, and also `/livez`, `/readyz` and `/debug`: keep it private",
        );
    }
    if let Some(given) = secure {
        settings.no_equal(
            &given,
            "the admin listener has no TLS: keep it on loopback, or behind a network policy",
        );
    }
    settings.none_equal(&["metrics-tls-cert-file", "metrics-tls-key-file"], "the admin listener has no TLS");
    Ok(())
}

fn logs(settings: &mut ProgramSettings, draft: &mut Draft) -> Result<(), InputFault> {
    let off = settings.off("request-logging")?;
    let file = settings.text("logging-filename");
    let table = draft.table("[access_log]");
    if let Some(given) = off {
        table.set("format", "off", &given.shown());
        settings.translated(&given);
    }
    if let Some(given) = file {
        table.set("output", &*given.value, &given.shown());
        settings.different(&given, "the file is not rotated: let `logrotate` do it, with SIGHUP");
    }
    Ok(())
}
