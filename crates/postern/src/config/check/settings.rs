//! What the process is told besides what it does with requests.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway::authenticate::Url;
use gateway::tls::Protocols;
use ipnet::IpNet;

use super::super::fault::KeyPath;
use super::super::raw;
use super::Context;
use super::tls::Client;
use super::trust::TrustList;

/// What the process is told besides what it does with requests.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Worker threads; `None`: as many as the CPUs this process may use.
    pub workers: Option<u16>,
    /// How long requests under way may take to finish when the process ends.
    pub drain_timeout: Duration,
    /// Whether files are watched.
    pub reload_on_change: bool,
    /// Where the admin listener is; `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Access log; the output's path is resolved.
    pub access_log: raw::AccessLog,
    /// Level of the process's own log.
    pub log: raw::LogLevel,
    /// Shape of the process's own log.
    pub log_format: raw::LogFormat,
    /// Where spans go.
    pub otlp: Option<Otlp>,
    /// Part of the requests without a trace of their own that is traced, from 0 to 1.
    pub trace_ratio: f64,
}

impl Settings {
    /// The keys that differ in `other` and are read at start only.
    pub fn postponed(&self, other: &Self) -> Vec<&'static str> {
        let otlp =
            |s: &Self| s.otlp.as_ref().map(|o| (o.endpoint.clone(), o.headers.clone(), o.service.clone()));
        let log = |s: &Self| (s.access_log.format, s.access_log.output.clone());
        let differences = [
            ("server.workers", self.workers != other.workers),
            ("admin", self.admin != other.admin),
            ("access_log", log(self) != log(other)),
            ("telemetry.log", self.log != other.log),
            ("telemetry.log_format", self.log_format != other.log_format),
            ("telemetry.otlp_endpoint", otlp(self) != otlp(other)),
            ("telemetry.trace_ratio", self.trace_ratio.to_bits() != other.trace_ratio.to_bits()),
        ];
        differences.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// Where spans go.
#[derive(Clone)]
pub struct Otlp {
    /// URL of the collector.
    pub endpoint: String,
    /// Headers sent along; their values are secret.
    pub headers: Vec<(String, String)>,
    /// TLS towards the collector, when its URL asks for it.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    /// `service.name`.
    pub service: String,
}

/// Says where, not with which credentials.
impl std::fmt::Debug for Otlp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Otlp")
            .field("endpoint", &self.endpoint)
            .field("service", &self.service)
            .finish_non_exhaustive()
    }
}

pub(super) fn check(file: &raw::File, context: &mut Context<'_>) -> Option<Settings> {
    let admin = &file.admin;
    if admin.enabled && !admin.address.0.ip().is_loopback() {
        let what = "the admin listener asks for no credentials and can be reached from other machines";
        let hint = "keep it on loopback, or see to it that only operators and probes can reach it";
        context.faults.warn(&KeyPath::of("admin").key("address"), what, hint);
    }
    let realm = &file.server.realm;
    if realm.is_empty() || realm.chars().any(|c| !c.is_ascii_graphic() && c != ' ' || c == '"' || c == '\\') {
        let what = format!("{realm:?} cannot be quoted in a challenge");
        context.faults.add(
            &KeyPath::of("server").key("realm"),
            what,
            "use printable ASCII without \" and \\",
        );
    }
    let telemetry = &file.telemetry;
    let otlp = otlp(telemetry, context);
    let mut access_log = file.access_log.clone();
    if !matches!(access_log.output.to_str(), Some("stdout" | "stderr")) {
        access_log.output = log_file(&access_log.output, context);
    }
    Some(Settings {
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

fn log_file(output: &std::path::Path, context: &mut Context<'_>) -> PathBuf {
    if output.as_os_str().is_empty() || output.as_os_str().as_encoded_bytes().ends_with(b"/") {
        let what = format!("{:?} is not a file", output.display().to_string());
        let hint = "write \"stdout\", \"stderr\" or the path of a file; `format = \"off\"` turns the log off";
        context.faults.add(&KeyPath::of("access_log").key("output"), what, hint);
    }
    context.reader.resolve(output)
}

/// `Err` when a fault was noted.
fn otlp(raw: &raw::Telemetry, context: &mut Context<'_>) -> Result<Option<Otlp>, ()> {
    let path = KeyPath::of("telemetry");
    let Some(endpoint) = &raw.otlp_endpoint else {
        for (key, given) in
            [("otlp_headers_file", raw.otlp_headers_file.is_some()), ("otlp_ca", raw.otlp_ca.is_some())]
        {
            if given {
                context.faults.add(
                    &path.key(key),
                    "there is no `otlp_endpoint`",
                    "add it, or take this key out",
                );
            }
        }
        return Ok(None);
    };
    let hint = "such as \"http://127.0.0.1:4318\"";
    let url = Url::parse(endpoint)
        .map_err(|fault| context.faults.add(&path.key("otlp_endpoint"), fault.to_string(), hint))?;
    let headers = headers(raw, &path, context)?;
    let tls = match (url.is_https(), &raw.otlp_ca) {
        (false, Some(_)) => {
            context.faults.add(
                &path.key("otlp_ca"),
                "no TLS is spoken to the collector",
                "take `otlp_ca` out",
            );
            return Err(());
        }
        (false, None) => None,
        (true, ca) => {
            let protocols = Protocols { http1: true, http2: false };
            let client =
                Client { ca: ca.as_deref(), identity: None, protocols, path: &path, ca_key: "otlp_ca" };
            Some(context.tls_client(&client).ok_or(())?.0)
        }
    };
    Ok(Some(Otlp { endpoint: endpoint.clone(), headers, tls, service: raw.service.clone() }))
}

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
            // the line may be the secret itself, so it is not shown
            _ => {
                let what = format!("line {} of {} is not a header", number + 1, file.display());
                context.faults.add(&at, what, "write one `name: value` per line");
                return Err(());
            }
        }
    }
    Ok(headers)
}

/// Peers whose answers carry `Server-Timing`.
pub(super) fn server_timing(file: &raw::File, context: &mut Context<'_>) -> Vec<IpNet> {
    let (telemetry, path) = (&file.telemetry, KeyPath::of("telemetry"));
    let list = TrustList {
        networks: &telemetry.server_timing_to,
        path: path.key("server_timing_to"),
        anyone: telemetry.server_timing_to_anyone,
        anyone_path: path.key("server_timing_to_anyone"),
        consequence: "learns how long each step takes, and whether a credential was known",
    };
    list.check(context)
}
