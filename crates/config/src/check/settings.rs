//! Process settings: workers, shutdown, admin listener, logs and traces.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_engine::tls::Protocols;
use http_engine::url::Url;
use ipnet::IpNet;
use telemetry::trace::{CollectorEndpoint, EndpointFault};

use super::super::fault::{Faults, KeyPath};
use super::super::raw;
use super::Context;
use super::tls::{Client, KeyNames};
use super::trust::TrustList;

/// Settings of the process that do not concern how requests are handled.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// Number of worker threads. `None`: as many as the CPUs that this process may use.
    pub workers: Option<u16>,
    /// How long requests in flight may take to finish when the process stops.
    pub drain_timeout: Duration,
    /// Whether the process watches its files and reloads when one changes.
    pub reload_on_change: bool,
    /// Address of the admin listener. `None`: there is no admin listener.
    pub admin: Option<SocketAddr>,
    /// Settings of the access log. The path of the output is resolved.
    pub access_log: raw::AccessLog,
    /// Level of the process log.
    pub log: raw::LogLevel,
    /// Format of the process log.
    pub log_format: raw::LogFormat,
    /// Export of spans. `None`: spans are not exported.
    pub otlp: Option<Otlp>,
    /// Share of the requests without a trace context that is traced, from 0 to 1.
    pub trace_ratio: f64,
}

/// Export of spans to an OTLP collector.
#[derive(Debug, Clone)]
pub struct Otlp {
    /// The collector's URL, the headers to send and the TLS configuration.
    pub endpoint: CollectorEndpoint,
    /// Value of the resource attribute `service.name`.
    pub service: String,
}

/// Refuses a realm that a challenge cannot quote.
pub(super) fn check_realm(realm: &str, path: &KeyPath, context: &mut Context<'_>) {
    if realm.is_empty() || realm.chars().any(|c| !c.is_ascii_graphic() && c != ' ' || c == '"' || c == '\\') {
        let message = format!("{realm:?} cannot be quoted in a challenge");
        context.faults.add(path, message, "use printable ASCII without \" and \\");
    }
}

pub(super) fn check(file: &raw::File, context: &mut Context<'_>) -> Option<ProcessSettings> {
    let admin = &file.admin;
    if admin.enabled && !admin.address.0.ip().is_loopback() {
        let message = "the admin listener needs no credentials and can be reached from other machines";
        let hint = "keep it on loopback, or permit only operators and probes to reach it";
        context.faults.warn(&KeyPath::top_level("admin").key("address"), message, hint);
    }
    check_realm(&file.server.realm, &KeyPath::top_level("server").key("realm"), context);
    let telemetry = &file.telemetry;
    let otlp = otlp(telemetry, context);
    let mut access_log = file.access_log.clone();
    if !matches!(access_log.output.to_str(), Some("stdout" | "stderr")) {
        access_log.output = log_file(&access_log.output, context);
    }
    Some(ProcessSettings {
        workers: file.server.workers.0,
        drain_timeout: file.server.drain_timeout.0,
        reload_on_change: file.server.reload_on_change,
        admin: admin.enabled.then_some(admin.address.0),
        access_log,
        log: telemetry.log,
        log_format: telemetry.log_format,
        otlp: otlp.ok()?,
        trace_ratio: telemetry.trace_ratio,
    })
}

fn log_file(output: &Path, context: &mut Context<'_>) -> PathBuf {
    if output.as_os_str().is_empty() || output.as_os_str().as_encoded_bytes().ends_with(b"/") {
        let message = format!("{:?} is not a file", output.display().to_string());
        let hint = "write \"stdout\", \"stderr\" or the path of a file; `format = \"off\"` turns the log off";
        context.faults.add(&KeyPath::top_level("access_log").key("output"), message, hint);
    }
    context.reader.resolve(output)
}

/// The message does not show the URL, because it may contain an API key.
const NO_URL: &str = "the collector's URL does not begin with http:// or https://";
const URL_HINT: &str = "such as \"http://127.0.0.1:4318\"; put credentials into `otlp_headers_file`";

/// Checks the export of spans. `Err` when a fault was noted.
fn otlp(raw: &raw::Telemetry, context: &mut Context<'_>) -> Result<Option<Otlp>, ()> {
    let path = KeyPath::top_level("telemetry");
    let Some(endpoint) = &raw.otlp_endpoint else {
        for (key, is_set) in
            [("otlp_headers_file", raw.otlp_headers_file.is_some()), ("otlp_ca", raw.otlp_ca.is_some())]
        {
            if is_set {
                context.faults.add(
                    &path.key(key),
                    "there is no `otlp_endpoint`",
                    "add it, or remove this key",
                );
            }
        }
        return Ok(None);
    };
    let Ok(url) = Url::parse(endpoint) else {
        context.faults.add(&path.key("otlp_endpoint"), NO_URL, URL_HINT);
        return Err(());
    };
    let headers = headers(raw, &path, context)?;
    let tls = match (url.is_https(), &raw.otlp_ca) {
        (false, Some(_)) => {
            context.faults.add(
                &path.key("otlp_ca"),
                "the collector is not used over TLS",
                "remove `otlp_ca`",
            );
            return Err(());
        }
        (false, None) => None,
        (true, ca) => {
            let protocols = Protocols { http1: true, http2: false };
            let keys = KeyNames { ca: "otlp_ca", ..KeyNames::DEFAULT };
            let client = Client { ca: ca.as_deref(), identity: None, protocols, path: &path, keys };
            Some(context.tls_client(&client).ok_or(())?.0)
        }
    };
    match CollectorEndpoint::new(endpoint, &headers, tls) {
        Ok(endpoint) => {
            let endpoint = endpoint.through(context.proxies.clone());
            Ok(Some(Otlp { endpoint, service: raw.service.clone() }))
        }
        Err(fault) => {
            collector_fault(&fault, raw, &path, &mut context.faults);
            Err(())
        }
    }
}

/// Notes why the exporter refuses its settings. Shows no part that may be a secret.
fn collector_fault(fault: &EndpointFault, raw: &raw::Telemetry, path: &KeyPath, faults: &mut Faults) {
    let url = path.key("otlp_endpoint");
    match fault {
        EndpointFault::Header(name) => {
            let file = raw.otlp_headers_file.as_deref().unwrap_or(Path::new("")).display();
            let message = format!("the header {name:?} in {file} cannot be sent");
            let hint = "values may not contain control characters; host, type and length of the request cannot be set";
            faults.add(&path.key("otlp_headers_file"), message, hint);
        }
        EndpointFault::UserInformation => {
            let hint = "put credentials into `otlp_headers_file`";
            faults.add(&url, "the collector's URL contains an @", hint);
        }
        EndpointFault::Url(_) | EndpointFault::Scheme(_) | EndpointFault::NoRoots(_) => {
            faults.add(&url, NO_URL, URL_HINT);
        }
    }
}

/// Reads the headers from `otlp_headers_file`. `Err` when a fault was noted.
fn headers(
    raw: &raw::Telemetry,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Result<Vec<(String, String)>, ()> {
    let Some(file) = &raw.otlp_headers_file else { return Ok(Vec::new()) };
    let at = path.key("otlp_headers_file");
    let text = context.read(file, &at).ok_or(())?;
    let mut headers = Vec::new();
    for (number, line) in String::from_utf8_lossy(&text).lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(':') {
            Some((name, value)) if super::super::scalar::is_token(name) => {
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
            // The line may be the secret itself, so the message does not show it.
            _ => {
                let message = format!("line {} of {} is not a header", number + 1, file.display());
                context.faults.add(&at, message, "write one `name: value` per line");
                return Err(());
            }
        }
    }
    Ok(headers)
}

/// Networks whose clients get `Server-Timing` in responses.
pub(super) fn server_timing(file: &raw::File, context: &mut Context<'_>) -> Vec<IpNet> {
    let (telemetry, path) = (&file.telemetry, KeyPath::top_level("telemetry"));
    let list = TrustList {
        networks: &telemetry.server_timing_to,
        path: path.key("server_timing_to"),
        anyone: telemetry.server_timing_to_anyone,
        anyone_path: path.key("server_timing_to_anyone"),
        consequence: "can read how long each step takes, and whether a credential was cached",
    };
    list.check(context)
}
