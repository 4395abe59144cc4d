//! Scrape: writes all metrics in one pass.
//!
//! Owns: the metric families, their names and help texts. All names start with `postern_`, except
//! the `process_` ones that all Prometheus client libraries share. Units are base units; counters
//! end with `_total`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use http_engine::labels::{HandshakeFailure, MirrorResult, Outcome, Protocol, Refusal, StatusClass};

use super::Metrics;
use super::encode::{Encoder, FamilyKind, Format};
use super::histogram::{FIRST_REQUEST_BOUND, Total};
use super::local::sum;
use super::series::{EndpointMetrics, EndpointShard, ListenerMetrics, RouteMetrics};
use super::sources::{IssuerSample, Sources};
use crate::cgroup::Cgroup;
use crate::phases::{CacheUse, Phase};
use crate::process;

impl Metrics {
    /// All metrics as text. Reads `/proc` and the cgroup, which takes milliseconds, so it must not
    /// run on a worker's thread.
    pub fn render(&self, format: Format) -> String {
        let mut encoder = Encoder::new(format);
        let e = &mut encoder;
        self.requests(e);
        self.durations(e);
        self.denials(e);
        self.connections(e);
        self.upstreams(e);
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
        drop(sources);
        encoder.finish()
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

    fn all_routes(&self) -> Vec<Arc<RouteMetrics>> {
        let named = self.routes.lock().values().cloned().collect::<Vec<_>>();
        std::iter::once(Arc::clone(&self.unrouted)).chain(named).collect()
    }

    fn requests(&self, e: &mut Encoder) {
        let routes = self.all_routes();
        let mut family = e.family(
            "postern_requests",
            FamilyKind::Counter,
            "Requests finished, by route, outcome and class of the status sent.",
        );
        for route in &routes {
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
        let mut family = e.family(
            "postern_request_body_bytes",
            FamilyKind::Counter,
            "Body bytes received from clients, by route.",
        );
        for route in &routes {
            family.sample(&[("route", &*route.name)], sum(&route.shards, |shard| shard.received.get()));
        }
        let mut family = e.family(
            "postern_response_body_bytes",
            FamilyKind::Counter,
            "Body bytes sent to clients, by route.",
        );
        for route in &routes {
            family.sample(&[("route", &*route.name)], sum(&route.shards, |shard| shard.sent.get()));
        }
        let mut family = e.family(
            "postern_request_headers_removed",
            FamilyKind::Counter,
            "Client header fields removed because they state identity, origin or method, by route.",
        );
        for route in &routes {
            family
                .sample(&[("route", &*route.name)], sum(&route.shards, |shard| shard.headers_removed.get()));
        }
        render_mirrored(&routes, e);
        e.family(
            "postern_requests_in_flight",
            FamilyKind::Gauge,
            "Requests whose head has arrived and whose response is not complete.",
        )
        .sample(&[], sum(&self.workers, |shard| shard.requests.open()));
    }

    fn durations(&self, e: &mut Encoder) {
        let mut family = e.family(
            "postern_request_duration_seconds",
            FamilyKind::Histogram,
            "Time from the complete request head to the last byte of the response, by route.",
        );
        for route in self.all_routes() {
            let total = Total::sum_of(route.shards.iter().map(|shard| &shard.0.duration));
            total.write(&mut family, ("route", &route.name), FIRST_REQUEST_BOUND);
        }
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

    fn connections(&self, e: &mut Encoder) {
        let listeners: Vec<Arc<ListenerMetrics>> = self.listeners.lock().values().cloned().collect();
        let mut family =
            e.family("postern_connections_accepted", FamilyKind::Counter, "Connections accepted.");
        for l in &listeners {
            family.sample(&[("listener", &*l.name)], sum(&l.shards, |shard| shard.accepted.get()));
        }
        let mut family = e.family("postern_accept_errors", FamilyKind::Counter, "Failed accept calls.");
        for l in &listeners {
            family.sample(&[("listener", &*l.name)], sum(&l.shards, |shard| shard.accept_errors.get()));
        }
        let mut family =
            e.family("postern_connections", FamilyKind::Counter, "Connections that used a protocol.");
        for (l, protocol) in listeners.iter().flat_map(|l| Protocol::ALL.map(|protocol| (l, protocol))) {
            let count = sum(&l.shards, |shard| shard.open[protocol as usize].begun());
            family.sample(&[("listener", &*l.name), ("protocol", protocol.as_str())], count);
        }
        let mut family =
            e.family("postern_connections_open", FamilyKind::Gauge, "Open connections, by protocol.");
        for (l, protocol) in listeners.iter().flat_map(|l| Protocol::ALL.map(|protocol| (l, protocol))) {
            let count = sum(&l.shards, |shard| shard.open[protocol as usize].open());
            family.sample(&[("listener", &*l.name), ("protocol", protocol.as_str())], count);
        }
        let mut family = e.family(
            "postern_connections_refused",
            FamilyKind::Counter,
            "Connections closed before their first request, by reason.",
        );
        for (l, why) in listeners.iter().flat_map(|l| Refusal::ALL.map(|why| (l, why))) {
            let count = sum(&l.shards, |shard| shard.refused[why as usize].get());
            family.sample(&[("listener", &*l.name), ("reason", why.as_str())], count);
        }
        let mut family = e.family(
            "postern_connections_evicted",
            FamilyKind::Counter,
            "Idle connections closed to make room for others.",
        );
        for l in &listeners {
            family.sample(&[("listener", &*l.name)], sum(&l.shards, |shard| shard.closed_for_room.get()));
        }
        let mut family = e.family(
            "postern_tls_handshake_errors",
            FamilyKind::Counter,
            "TLS handshakes that failed, by reason.",
        );
        for (l, why) in listeners.iter().flat_map(|l| HandshakeFailure::ALL.map(|why| (l, why))) {
            let count = sum(&l.shards, |shard| shard.handshake[why as usize].get());
            family.sample(&[("listener", &*l.name), ("reason", why.as_str())], count);
        }
    }

    fn upstreams(&self, e: &mut Encoder) {
        let endpoints: Vec<Arc<EndpointMetrics>> = self.endpoints.lock().values().cloned().collect();
        let mut family = e.family(
            "postern_upstream_endpoint_healthy",
            FamilyKind::Gauge,
            "Share of workers that send requests to the endpoint: 1 all, 0 none.",
        );
        for endpoint in &endpoints {
            family.sample(&endpoint_labels(endpoint), endpoint.healthy_share());
        }
        let mut family = e.family(
            "postern_upstream_ejections",
            FamilyKind::Counter,
            "Ejections of an endpoint, over all workers.",
        );
        for endpoint in &endpoints {
            let ejections = sum(&endpoint.shards, |shard| shard.ejections.get());
            family.sample(&endpoint_labels(endpoint), ejections + endpoint.down_count.load(Relaxed));
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
            for endpoint in &endpoints {
                family.sample(&endpoint_labels(endpoint), sum(&endpoint.shards, read));
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

/// Writes the copies of requests for mirrors. Routes without mirrors, which are most, have none.
fn render_mirrored(routes: &[Arc<RouteMetrics>], e: &mut Encoder) {
    let help = "Copies of requests for mirrors, by route and result.";
    let mut family = e.family("postern_mirrored_requests", FamilyKind::Counter, help);
    for route in routes {
        let count = |result: MirrorResult| sum(&route.shards, |shard| shard.mirrored[result as usize].get());
        if MirrorResult::ALL.iter().all(|result| count(*result) == 0) {
            continue;
        }
        for result in MirrorResult::ALL {
            family.sample(&[("route", &*route.name), ("result", result.as_str())], count(result));
        }
    }
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
