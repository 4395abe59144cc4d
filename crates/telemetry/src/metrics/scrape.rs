//! Scrape: writes all metrics in one pass.
//!
//! Owns: the metric families, their names and help texts. All names start with `postern_`, except
//! the `process_` ones that all Prometheus client libraries share. Units are base units; counters
//! end with `_total`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http_engine::labels::{HandshakeFailure, MirrorResult, Outcome, Protocol, Refusal, StatusClass};

use super::Metrics;
use super::cluster::{ALL_SERVICES, ClusterMetrics};
use super::encode::{Encoder, Exposition, Family, FamilyKind, Format};
use super::histogram::{FIRST_REQUEST_BOUND, Total};
use super::local::sum;
use super::series::{
    EndpointMetrics, EndpointShard, ListenerMetrics, ListenerShard, RouteMetrics, RouteShard,
};
use super::sources::{IssuerSample, Sources};
use crate::cgroup::Cgroup;
use crate::phases::{CacheUse, Phase};
use crate::process;

/// What has many series, as it was when the scrape began.
struct Listed {
    routes: Vec<Arc<RouteMetrics>>,
    listeners: Vec<Arc<ListenerMetrics>>,
    endpoints: Vec<Arc<EndpointMetrics>>,
    cluster: ClusterMetrics,
}

impl Metrics {
    /// All metrics as text. Reads `/proc` and the cgroup, which takes milliseconds, so it must not
    /// run on a worker's thread.
    pub fn render(&self, format: Format) -> String {
        let text = self.write(Encoder::new(format), || ());
        String::from_utf8(text).unwrap_or_default()
    }

    /// All metrics in any format, on a thread of its own: it has the lowest priority afterwards. Most
    /// of the work is done at that priority, so it takes no core from a worker.
    pub fn expose(&self, exposition: Exposition) -> Vec<u8> {
        let encoder = match exposition {
            Exposition::Text(format) => Encoder::new(format),
            Exposition::Protobuf => Encoder::protobuf(),
        };
        self.write(encoder, process::lower_priority)
    }

    /// Does first what may hold a lock: a thread with a low priority would make a worker wait for it.
    fn write(&self, mut encoder: Encoder, between: impl FnOnce()) -> Vec<u8> {
        let e = &mut encoder;
        self.denials(e);
        let sources = self.sources.read();
        self.cache(e, &sources);
        issuers(e, &sources);
        self.render_authorizers(e);
        for (_, write) in &sources.registered {
            write(e);
        }
        self.configuration(e);
        outputs(e, &sources);
        if let Some(provider) = &sources.provider {
            provider.render(e);
        }
        let cpu_seconds = process(e);
        self.cpu_limit(e, &sources, cpu_seconds);
        self.build(e, &sources);
        let mut listed = self.listed(&sources);
        drop(sources);
        between();
        listed.cluster.sort();
        self.requests(&listed, e);
        self.durations(&listed, e);
        connections(&listed, e);
        self.upstreams(&listed, e);
        encoder.finish()
    }

    fn listed(&self, sources: &Sources) -> Listed {
        let named = self.routes.read().values().cloned().collect::<Vec<_>>();
        Listed {
            routes: std::iter::once(Arc::clone(&self.unrouted)).chain(named).collect(),
            listeners: self.listeners.read().values().cloned().collect(),
            endpoints: self.endpoints.read().values().cloned().collect(),
            cluster: sources.cluster.as_ref().map(|sample| sample()).unwrap_or_default(),
        }
    }

    fn cache(&self, e: &mut Encoder, sources: &Sources) {
        let help = "Decision cache lookups, by result.";
        let mut family = e.family("postern_cache_lookups", FamilyKind::Counter, help);
        for result in CacheUse::ALL {
            let count = sum(&self.workers, |shard| shard.cache[result as usize].get());
            family.sample(&[("result", result.as_str())], count);
        }
        let Some(sample) = sources.cache.as_ref().map(|sample| sample()) else { return };
        e.family("postern_cache_evictions", FamilyKind::Counter, "Entries evicted for lack of space.")
            .sample(&[], sample.evictions);
        e.family("postern_cache_entries", FamilyKind::Gauge, "Cache entries.").sample(&[], sample.entries);
        e.family("postern_cache_bytes", FamilyKind::Gauge, "Approximate size of the cache entries.")
            .sample(&[], sample.bytes);
        e.family("postern_cache_limit_bytes", FamilyKind::Gauge, "Maximum size of the cache entries.")
            .sample(&[], sample.limit_bytes);
    }

    fn requests(&self, listed: &Listed, e: &mut Encoder) {
        let Listed { routes, cluster, .. } = listed;
        let mut family = e.family(
            "postern_requests",
            FamilyKind::Counter,
            "Requests finished, by route or listener of a Gateway, outcome and class of the status sent.",
        );
        for route in routes {
            let usual = if Arc::ptr_eq(route, &self.unrouted) {
                (Outcome::NoRoute, StatusClass::ClientError)
            } else {
                (Outcome::Allowed, StatusClass::Success)
            };
            for outcome in Outcome::ALL {
                for class in StatusClass::ALL {
                    let count =
                        sum(&route.shards, |shard| shard.requests[outcome as usize][class as usize].get());
                    // the usual series exists from the start, so that its first increase is visible
                    if count > 0 || (outcome, class) == usual {
                        let labels = [
                            ("route", &*route.name),
                            ("outcome", outcome.as_str()),
                            ("class", class.as_str()),
                        ];
                        family.sample(&labels, count);
                    }
                }
            }
        }
        cluster.write_requests(&mut family);
        let by_route = |family: &mut Family<'_>, read: fn(&RouteShard) -> u64| {
            for route in routes {
                family.sample(&[("route", &*route.name)], sum(&route.shards, read));
            }
        };
        let help = "Body bytes received from clients, by route or Gateway.";
        let mut family = e.family("postern_request_body_bytes", FamilyKind::Counter, help);
        by_route(&mut family, |shard| shard.received.get());
        cluster.write_received(&mut family);
        let help = "Body bytes sent to clients, by route or Gateway.";
        let mut family = e.family("postern_response_body_bytes", FamilyKind::Counter, help);
        by_route(&mut family, |shard| shard.sent.get());
        cluster.write_sent(&mut family);
        let mut family = e.family(
            "postern_request_headers_removed",
            FamilyKind::Counter,
            "Client header fields removed because they state identity, origin or method, by route or Gateway.",
        );
        by_route(&mut family, |shard| shard.headers_removed.get());
        cluster.write_headers_removed(&mut family);
        render_mirrored(listed, e);
        e.family(
            "postern_requests_in_flight",
            FamilyKind::Gauge,
            "Requests whose head has arrived and whose response is not complete.",
        )
        .sample(&[], sum(&self.workers, |shard| shard.requests.open()));
    }

    fn durations(&self, listed: &Listed, e: &mut Encoder) {
        let mut family = e.family(
            "postern_request_duration_seconds",
            FamilyKind::Histogram,
            "Time from the complete request head to the last byte of the response, by route.",
        );
        for route in &listed.routes {
            let total = Total::sum_of(route.shards.iter().map(|shard| &shard.0.duration));
            total.write(&mut family, ("route", &route.name), FIRST_REQUEST_BOUND);
        }
        listed.cluster.write_own_families(e);
        let mut family = e.family(
            "postern_phase_duration_seconds",
            FamilyKind::Histogram,
            "Time spent in each phase by the requests that were timed.",
        );
        for phase in Phase::ALL {
            let total = Total::sum_of(self.workers.iter().map(|shard| &shard.0.phases[phase as usize]));
            total.write(&mut family, ("phase", phase.as_str()), 0);
        }
    }

    fn denials(&self, e: &mut Encoder) {
        let mut family =
            e.family("postern_denials", FamilyKind::Counter, "Requests refused, by reason code.");
        for (reason, count) in self.denials.counts() {
            family.sample(&[("reason", reason)], count);
        }
        let mut family = e.family(
            "postern_exchange_failures",
            FamilyKind::Counter,
            "Authorized requests whose exchange with the upstream failed, by reason code.",
        );
        for (reason, count) in self.exchange_failures.counts() {
            family.sample(&[("reason", reason)], count);
        }
    }

    fn upstreams(&self, listed: &Listed, e: &mut Encoder) {
        let endpoints = &listed.endpoints;
        let mut family = e.family(
            "postern_upstream_endpoint_healthy",
            FamilyKind::Gauge,
            "Share of workers that send requests to the endpoint: 1 all, 0 none.",
        );
        for endpoint in endpoints {
            family.sample(&endpoint_labels(endpoint), endpoint.healthy_share());
        }
        let has_services = self.has_services();
        let mut family = e.family(
            "postern_upstream_ejections",
            FamilyKind::Counter,
            "Ejections of an endpoint, over all workers.",
        );
        for endpoint in endpoints {
            let ejections = sum(&endpoint.shards, |shard| shard.ejections.get());
            family.sample(&endpoint_labels(endpoint), ejections + endpoint.down_count.load(Relaxed));
        }
        if has_services {
            family.sample(&ALL_SERVICES, self.of_services(|shard| shard.ejections.get()));
        }
        let checked = |endpoint: &&Arc<EndpointMetrics>| endpoint.checks.iter().any(|n| n.load(Relaxed) > 0);
        if endpoints.iter().any(|endpoint| checked(&endpoint)) {
            let help = "Active health checks of an endpoint, by result.";
            let mut family = e.family("postern_upstream_health_checks", FamilyKind::Counter, help);
            for endpoint in endpoints.iter().filter(checked) {
                let [upstream, address] = endpoint_labels(endpoint);
                for (result, count) in ["failure", "success"].into_iter().zip(&endpoint.checks) {
                    family.sample(&[upstream, address, ("result", result)], count.load(Relaxed));
                }
            }
        }
        for (name, kind, help, read) in ENDPOINT_FAMILIES {
            let mut family = e.family(name, *kind, help);
            for endpoint in endpoints {
                family.sample(&endpoint_labels(endpoint), sum(&endpoint.shards, read));
            }
            if has_services {
                family.sample(&ALL_SERVICES, self.of_services(read));
            }
        }
    }

    fn configuration(&self, e: &mut Encoder) {
        let (succeeded, failed) = self.reloads.counts();
        let mut family =
            e.family("postern_config_reloads", FamilyKind::Counter, "Configuration reloads, by result.");
        family.sample(&[("result", "success")], succeeded);
        family.sample(&[("result", "failure")], failed);
        let applied = self.reloads.applied();
        let Some(at) = applied.at else { return };
        e.family(
            "postern_config_last_reload_successful",
            FamilyKind::Gauge,
            "1 if the newest configuration is applied, 0 if it was refused and an older one is in use.",
        )
        .sample(&[], u64::from(!applied.last_failed));
        e.family(
            "postern_config_last_success_timestamp_seconds",
            FamilyKind::Gauge,
            "When the configuration in use was applied.",
        )
        .sample(&[], at.as_millis() as f64 / 1e3);
        e.family(
            "postern_config_generation",
            FamilyKind::Gauge,
            "Number of configurations applied by this process.",
        )
        .sample(&[], applied.generation);
        e.family("postern_config", FamilyKind::Info, "Digest of the configuration in use.")
            .sample(&[("digest", &applied.digest)], 1);
    }

    fn cpu_limit(&self, e: &mut Encoder, sources: &Sources, cpu_seconds: Option<f64>) {
        let limit = sources.cgroup.as_ref().and_then(Cgroup::sample);
        if let Some(limit) = &limit {
            e.family(
                "postern_cgroup_cpu_quota_cores",
                FamilyKind::Gauge,
                "CPU the cgroup may use, in cores.",
            )
            .sample(&[], limit.quota_cores);
            e.family(
                "postern_cgroup_cpu_periods",
                FamilyKind::Counter,
                "Enforcement periods in which the cgroup ran.",
            )
            .sample(&[], limit.periods);
            e.family(
                "postern_cgroup_cpu_throttled_periods",
                FamilyKind::Counter,
                "Periods in which the quota was used up.",
            )
            .sample(&[], limit.throttled_periods);
            e.family(
                "postern_cgroup_cpu_throttled_seconds",
                FamilyKind::Counter,
                "Time that threads were throttled.",
            )
            .sample(&[], limit.throttled.as_secs_f64());
        }
        let observed = cpu_seconds
            .and_then(|cpu| self.cpu_per_request.lock().observe(cpu, self.requests_finished()))
            .filter(|per_request| *per_request > 0.0);
        let Some(per_request) = observed else { return };
        e.family(
            "postern_cpu_seconds_per_request",
            FamilyKind::Gauge,
            "CPU of the process divided by requests finished, over recent traffic; absent until there was enough.",
        )
        .sample(&[], per_request);
        if let Some(limit) = limit {
            e.family(
                "postern_cpu_limit_implied_requests_per_second",
                FamilyKind::Gauge,
                "CPU quota divided by CPU per request; absent without a quota or until there was enough traffic.",
            )
            .sample(&[], limit.quota_cores / per_request);
        }
    }

    fn build(&self, e: &mut Encoder, sources: &Sources) {
        if let Some(build) = sources.build {
            e.family("postern_build", FamilyKind::Info, "Version and commit of the program.")
                .sample(&[("version", build.version), ("commit", build.commit)], 1);
        }
        e.family("postern_workers", FamilyKind::Gauge, "Worker threads.").sample(&[], self.workers() as u64);
    }
}

type EndpointFamily = (&'static str, FamilyKind, &'static str, fn(&EndpointShard) -> u64);

const ENDPOINT_FAMILIES: &[EndpointFamily] = &[
    ("postern_upstream_requests", FamilyKind::Counter, "Requests assigned to the endpoint.", |s| {
        s.requests.begun()
    }),
    ("postern_upstream_requests_in_flight", FamilyKind::Gauge, "Requests in flight at the endpoint.", |s| {
        s.requests.open()
    }),
    ("postern_upstream_connections_opened", FamilyKind::Counter, "Connections established.", |s| {
        s.connections.begun()
    }),
    ("postern_upstream_connections_open", FamilyKind::Gauge, "Open connections.", |s| s.connections.open()),
    ("postern_upstream_connect_errors", FamilyKind::Counter, "Failed connection attempts.", |s| {
        s.connect_errors.get()
    }),
    ("postern_upstream_retries", FamilyKind::Counter, "Requests retried after the endpoint failed.", |s| {
        s.retries.get()
    }),
    ("postern_upstream_resets", FamilyKind::Counter, "Exchanges aborted by the endpoint.", |s| {
        s.resets.get()
    }),
    ("postern_upstream_timeouts", FamilyKind::Counter, "Exchanges that timed out at the endpoint.", |s| {
        s.timeouts.get()
    }),
];

/// A family with the connections of listeners.
struct ListenerFamily {
    name: &'static str,
    kind: FamilyKind,
    help: &'static str,
    /// The label, with its values. Without a label there is one value, which is empty.
    label: &'static str,
    values: &'static [&'static str],
    /// The number of the value at an index.
    read: fn(&ListenerShard, usize) -> u64,
    of_gateways: GatewayDetail,
}

/// What a family has of each Gateway, as far as it is not 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GatewayDetail {
    Nothing,
    /// The sum over all values of the label; also 0, once the Gateway has had a connection: a gauge that
    /// goes away when it reaches 0 is a gap in each graph.
    Sum,
    /// The same as of a listener of the file.
    ByValue,
}

impl ListenerFamily {
    const fn new(
        name: &'static str,
        kind: FamilyKind,
        help: &'static str,
        read: fn(&ListenerShard, usize) -> u64,
    ) -> Self {
        Self { name, kind, help, label: "", values: &[""], read, of_gateways: GatewayDetail::ByValue }
    }

    const fn by(
        self,
        label: &'static str,
        values: &'static [&'static str],
        of_gateways: GatewayDetail,
    ) -> Self {
        Self { label, values, of_gateways, ..self }
    }
}

const LISTENER_FAMILIES: &[ListenerFamily] = &[
    ListenerFamily::new(
        "postern_connections_accepted",
        FamilyKind::Counter,
        "Connections accepted.",
        |l, _| l.accepted.get(),
    ),
    ListenerFamily::new("postern_accept_errors", FamilyKind::Counter, "Failed accept calls.", |l, _| {
        l.accept_errors.get()
    }),
    ListenerFamily::new(
        "postern_connections",
        FamilyKind::Counter,
        "Connections that used a protocol.",
        |l, at| l.open[at].begun(),
    )
    .by("protocol", &Protocol::ALL_TEXTS, GatewayDetail::Nothing),
    ListenerFamily::new(
        "postern_connections_open",
        FamilyKind::Gauge,
        "Open connections, by protocol.",
        |l, at| l.open[at].open(),
    )
    .by("protocol", &Protocol::ALL_TEXTS, GatewayDetail::Sum),
    ListenerFamily::new(
        "postern_connections_refused",
        FamilyKind::Counter,
        "Connections closed before their first request, by reason.",
        |l, at| l.refused[at].get(),
    )
    .by("reason", &Refusal::ALL_TEXTS, GatewayDetail::ByValue),
    ListenerFamily::new(
        "postern_connections_evicted",
        FamilyKind::Counter,
        "Idle connections closed to make room for others.",
        |l, _| l.closed_for_room.get(),
    ),
    ListenerFamily::new(
        "postern_tls_handshake_errors",
        FamilyKind::Counter,
        "TLS handshakes that failed, by reason.",
        |l, at| l.handshake[at].get(),
    )
    .by("reason", &HandshakeFailure::ALL_TEXTS, GatewayDetail::ByValue),
];

/// Writes the connections of each listener of the file, and of each Gateway.
fn connections(listed: &Listed, e: &mut Encoder) {
    for ListenerFamily { name, kind, help, label, values, read, of_gateways } in LISTENER_FAMILIES {
        let mut family = e.family(name, *kind, help);
        for l in &listed.listeners {
            for (at, value) in values.iter().enumerate() {
                family.sample(&[("listener", &*l.name), (label, value)], l.sum(|shard| read(shard, at)));
            }
        }
        for gateway in &listed.cluster.gateways {
            let owner = ("gateway", &*gateway.name);
            let counts =
                values.iter().enumerate().map(|(at, value)| (*value, gateway.sum(|shard| read(shard, at))));
            match of_gateways {
                GatewayDetail::Nothing => {}
                GatewayDetail::Sum => {
                    let sum: u64 = counts.map(|(_, count)| count).sum();
                    if sum > 0 || gateway.sum(|shard| shard.accepted.get()) > 0 {
                        family.sample(&[owner], sum);
                    }
                }
                GatewayDetail::ByValue => counts
                    .filter(|(_, count)| *count > 0)
                    .for_each(|(value, count)| family.sample(&[owner, (label, value)], count)),
            }
        }
    }
}

/// Writes the copies of requests for mirrors. Routes without mirrors, which are most, have none.
fn render_mirrored(listed: &Listed, e: &mut Encoder) {
    let help = "Copies of requests for mirrors, by route or Gateway and result.";
    let mut family = e.family("postern_mirrored_requests", FamilyKind::Counter, help);
    for route in &listed.routes {
        let count = |result: MirrorResult| sum(&route.shards, |shard| shard.mirrored[result as usize].get());
        if MirrorResult::ALL.iter().all(|result| count(*result) == 0) {
            continue;
        }
        for result in MirrorResult::ALL {
            family.sample(&[("route", &*route.name), ("result", result.as_str())], count(result));
        }
    }
    listed.cluster.write_mirrored(&mut family);
}

fn endpoint_labels(endpoint: &EndpointMetrics) -> [(&str, &str); 2] {
    [("upstream", &*endpoint.upstream), ("endpoint", &*endpoint.endpoint)]
}

type IssuerFamily = (&'static str, FamilyKind, &'static str, fn(&IssuerSample) -> u64);

fn issuers(e: &mut Encoder, sources: &Sources) {
    let Some(issuers) = sources.issuers.as_ref().map(|sample| sample()) else { return };
    let mut family = e.family(
        "postern_key_set_age_seconds",
        FamilyKind::Gauge,
        "Time since the current key set was fetched; absent while there is none.",
    );
    for issuer in &issuers {
        if let Some(age) = issuer.age {
            family.sample(&[("issuer", &*issuer.name)], age.as_secs_f64());
        }
    }
    let families: [IssuerFamily; 3] = [
        ("postern_key_set_keys", FamilyKind::Gauge, "Usable keys of the issuer.", |i| i.keys),
        ("postern_key_set_fetches", FamilyKind::Counter, "Key set fetches started.", |i| i.fetches),
        ("postern_key_set_fetch_errors", FamilyKind::Counter, "Fetches without a usable key set.", |i| {
            i.fetch_errors
        }),
    ];
    for (name, kind, help, read) in families {
        let mut family = e.family(name, kind, help);
        for issuer in &issuers {
            family.sample(&[("issuer", &*issuer.name)], read(issuer));
        }
    }
}

fn outputs(e: &mut Encoder, sources: &Sources) {
    if let Some(stats) = &sources.access_log {
        e.family("postern_access_log_lines", FamilyKind::Counter, "Access log lines written.")
            .sample(&[], stats.written());
        e.family(
            "postern_access_log_lines_dropped",
            FamilyKind::Counter,
            "Access log lines dropped because writing was slow or failed.",
        )
        .sample(&[], stats.dropped());
    }
    if let Some(stats) = &sources.trace {
        let mut family = e.family("postern_trace_spans", FamilyKind::Counter, "Sampled spans, by result.");
        for (result, count) in [
            ("exported", stats.exported()),
            ("dropped", stats.dropped()),
            ("failed", stats.failed()),
            ("rejected", stats.rejected()),
        ] {
            family.sample(&[("result", result)], count);
        }
    }
}

/// Writes the process metrics and returns the CPU seconds used so far. Writes nothing except on
/// Linux.
fn process(e: &mut Encoder) -> Option<f64> {
    let sample = process::sample().ok()?;
    let cpu_seconds = sample.cpu.as_secs_f64();
    e.family("process_cpu_seconds", FamilyKind::Counter, "User and system CPU time spent.")
        .sample(&[], cpu_seconds);
    e.family("process_resident_memory_bytes", FamilyKind::Gauge, "Resident memory.")
        .sample(&[], sample.resident_bytes);
    e.family("process_virtual_memory_bytes", FamilyKind::Gauge, "Virtual memory.")
        .sample(&[], sample.virtual_bytes);
    e.family("process_open_fds", FamilyKind::Gauge, "Open file descriptors.").sample(&[], sample.open_fds);
    if let Some(most) = sample.max_fds {
        e.family("process_max_fds", FamilyKind::Gauge, "Maximum number of open file descriptors.")
            .sample(&[], most);
    }
    e.family("process_threads", FamilyKind::Gauge, "Threads.").sample(&[], sample.threads);
    e.family(
        "process_start_time_seconds",
        FamilyKind::Gauge,
        "Start time of the process, in seconds since the Unix epoch.",
    )
    .sample(&[], sample.started_unix_seconds);
    Some(cpu_seconds)
}
