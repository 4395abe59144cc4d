//! Parts of a process: the control runtime, the admin listener, logs, traces and metrics.

use crate::exit::Failure;
use crate::process::{Process, ProcessState};
use crate::provider::RunningProvider;
use crate::sessions::Sessions;
use config::raw::AccessLogFormat;
use config::{Otlp, ProcessSettings};
use credentials::session_store::SessionStore;
use gateway::server::Gateway;
use http_engine::config::ListenAddress;
use http_engine::inherited_sockets::InheritedSockets;
use http_engine::listen::{ListenOptions, bind_advice};
use idp::audit_receivers::AuditSample;
use idp::mailer::MailSample;
use idp::receivers::DeliverySample;
use std::net::SocketAddr;
use std::sync::Arc;
use store::Store;
use telemetry::access_log::{self, AccessLog};
use telemetry::cgroup::{self, Cgroup};
use telemetry::metrics::{BuildInfo, Metrics};
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use telemetry::trace::{ExportOptions, Exporter, Queue, Sampling, Tracer};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) fn control_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("control").enable_all().build();
    runtime.map_err(|error| Failure::new(format!("cannot start the control thread: {error}")))
}

/// One worker for each core that this process may use.
pub(super) fn workers_for(cgroup: Option<&Cgroup>) -> usize {
    cgroup::suggested_workers(cgroup.and_then(Cgroup::quota_cores), cgroup::available_cores())
}

/// Session storage in a database.
pub(super) fn session_store(store: &Store, control: &tokio::runtime::Runtime) -> Arc<dyn SessionStore> {
    Arc::new(Sessions::new(store.clone(), control.handle().clone()))
}

pub(super) fn bind_admin(
    address: SocketAddr,
    listen: &ListenOptions,
    control: &tokio::runtime::Runtime,
) -> Result<TcpListener, Failure> {
    let _guard = control.enter();
    listen.bind_tcp(address).and_then(TcpListener::from_std).map_err(|error| {
        let hint = bind_advice(address, &error);
        Failure::new(format!(
            "the admin listener cannot listen on {address}: {error}; {hint}; change it with `[admin]`"
        ))
    })
}

/// Warns about sockets of the service manager that no listener has: clients of these get no answer.
pub(super) fn warn_about_unused(inherited: &InheritedSockets, process: &Process) {
    let others = [process.admin, process.provider.as_ref().map(RunningProvider::address)];
    let others = others.into_iter().flatten().map(ListenAddress::Ip);
    let used: Vec<_> = process.addresses().into_iter().map(|(_, address)| address).chain(others).collect();
    for address in inherited.addresses().filter(|address| !used.contains(address)) {
        tracing::warn!(
            %address,
            "socket of the service manager is not used: no listener of the configuration has this address"
        );
    }
}

pub(super) fn access_log(settings: &ProcessSettings) -> Result<Option<AccessLog>, Failure> {
    let style = match settings.access_log.format {
        AccessLogFormat::Json => access_log::Style::Json,
        AccessLogFormat::Text => access_log::Style::Text,
        AccessLogFormat::Off => return Ok(None),
    };
    let destination = match settings.access_log.output.to_str() {
        Some("stdout") => access_log::Destination::Stdout,
        Some("stderr") => access_log::Destination::Stderr,
        _ => access_log::Destination::File(settings.access_log.output.clone()),
    };
    let log = AccessLog::start(access_log::AccessLogOptions { style, destination });
    log.map(Some).map_err(|error| Failure::new(error.to_string()))
}

/// Starts the export of spans.
pub(super) fn export(
    otlp: &Otlp,
    control: &tokio::runtime::Runtime,
    stop: &watch::Sender<bool>,
    metrics: &Metrics,
    attendants: &mut Vec<JoinHandle<()>>,
) -> Arc<Queue> {
    let service = otlp.service.as_str().into();
    let options = ExportOptions { service, ..ExportOptions::new(otlp.endpoint.clone()) };
    let (queue, exporter) = Exporter::new(options);
    metrics.set_trace(exporter.stats());
    let mut stopped = stop.subscribe();
    attendants.push(control.spawn(exporter.run(async move {
        let _ = stopped.wait_for(|stop| *stop).await;
    })));
    queue
}

/// The tracer of requests. Without an exporter and an access log, nothing would use the
/// identifiers: the client's are forwarded unchanged.
pub(super) fn tracer(ratio: f64, queue: Option<Arc<Queue>>, access_log: bool) -> Option<Arc<Tracer>> {
    (queue.is_some() || access_log).then(|| Arc::new(Tracer::new(Sampling::Parent(ratio), queue)))
}

pub(super) fn sources(
    metrics: &Metrics,
    shared: &Arc<ProcessState>,
    access_log: Option<&AccessLog>,
    cgroup: Option<Cgroup>,
) {
    let (cache, issuers) = (shared.clone(), shared.clone());
    let (authorities, reviews, watches) = (shared.clone(), shared.clone(), shared.clone());
    metrics.set_cache(move || cache.cache());
    metrics.set_issuers(move || issuers.issuers());
    let (logins, follows) = (shared.clone(), shared.clone());
    metrics.register(move || follows.followed_logs().iter().map(|one| one.sample()).collect());
    if let Some(events) = shared.events.clone() {
        metrics.register(move || events.status());
    }
    metrics.register(move || logins.gateway.lock().as_ref().and_then(Gateway::logins).into_iter().collect());
    metrics
        .register(move || reviews.gateway.lock().as_ref().and_then(Gateway::reviews).into_iter().collect());
    let authorizers = shared.clone();
    metrics.register(move || authorizers.gateway.lock().as_ref().map_or_else(Vec::new, Gateway::authorizers));
    let upstreams = shared.clone();
    metrics.register(move || upstreams.gateway.lock().as_ref().map_or_else(Vec::new, Gateway::discoveries));
    metrics.register(move || watches.gateway.lock().as_ref().map_or_else(Vec::new, Gateway::watches));
    metrics.register(move || authorities.authenticator().map_or_else(Vec::new, |a| a.authorities()));
    if let Some(log) = access_log {
        metrics.set_access_log(log.stats());
    }
    if let Some(cgroup) = cgroup {
        metrics.set_cgroup(cgroup);
    }
    let commit = env!("POSTERN_SOURCE_COMMIT");
    metrics.set_build(BuildInfo { version: env!("CARGO_PKG_VERSION"), commit });
}

/// Deliveries of security events to a receiver, as metrics.
pub(super) struct DeliveryMetric(pub(super) DeliverySample);

impl Collect for DeliveryMetric {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let help =
            "Deliveries of security events to receivers by outcome: delivered, refused, failed, given_up.";
        let mut family = e.family("postern_security_events_delivered", FamilyKind::Counter, help);
        for DeliveryMetric(delivery) in all {
            family.sample(
                &[("receiver", delivery.receiver.as_str()), ("outcome", delivery.outcome)],
                delivery.count,
            );
        }
    }
}

/// State of a receiver of the audit log, as metrics.
pub(super) struct AuditMetric(pub(super) AuditSample);

impl Collect for AuditMetric {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let help = "Entries of the audit log that a receiver does not have yet.";
        let mut family = e.family("postern_audit_receiver_lag_entries", FamilyKind::Gauge, help);
        for AuditMetric(state) in all {
            if let Some(lag) = state.lag {
                family.sample(&[("receiver", state.receiver.as_str())], lag);
            }
        }
        let help = "Entries of the audit log that this process delivered.";
        let mut family = e.family("postern_audit_entries_delivered", FamilyKind::Counter, help);
        for AuditMetric(state) in all {
            family.sample(&[("receiver", state.receiver.as_str())], state.delivered);
        }
        let help = "Deliveries of audit entries that failed and are repeated.";
        let mut family = e.family("postern_audit_deliveries_failed", FamilyKind::Counter, help);
        for AuditMetric(state) in all {
            family.sample(&[("receiver", state.receiver.as_str())], state.failed);
        }
    }
}

/// Mails of the provider with one outcome, as metrics.
pub(super) struct MailMetric(pub(super) MailSample);

impl Collect for MailMetric {
    fn collect(all: &[Self], e: &mut Encoder) {
        if all.is_empty() {
            return;
        }
        let help = "Mails of the provider by outcome: sent, failed (another attempt follows), given_up.";
        let mut family = e.family("postern_mails", FamilyKind::Counter, help);
        for MailMetric(mails) in all {
            family.sample(&[("outcome", mails.outcome)], mails.count);
        }
    }
}
