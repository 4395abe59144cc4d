//! One pass over all counts.
//!
//! Owns: the families, their names and help. All names begin with `postern_`, except the `process_` ones
//! that every Prometheus client library spells the same; base units; `_total` for what only grows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use coherence::roster;

use super::Metrics;
use super::encode::{Encoder, Format, Kind};
use super::histogram::{REQUEST_BOUND, Total};
use super::local::sum;
use super::series::{EndpointMetrics, EndpointShard, ListenerMetrics, RouteMetrics};
use super::sources::{FollowSample, IssuerSample, Sources};
use crate::cgroup::Cgroup;
use crate::labels::{HandshakeFailure, Outcome, Protocol, Refusal, StatusClass};
use crate::phases::{CacheUse, Phase};
use crate::process;
use crate::watch::{State, WatchStatus};

impl Metrics {
    /// All metrics as text. Reads `/proc` and the cgroup; milliseconds, so not for a worker's thread.
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
        authorities(e, &sources);
        follows(e, &sources);
        events(e, &sources);
        told(e, &sources);
        reviews(e, &sources);
        self.consulted(e, &sources);
        logins(e, &sources);
        watches(e, &sources);
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
        let mut family = e.family("postern_cache_lookups", Kind::Counter, help);
        for what in CacheUse::ALL {
            let count = sum(&self.workers, |shard| shard.cache[what as usize].get());
            family.sample(&[("result", what.as_str())], count);
        }
        let Some(sample) = sources.cache.as_ref().map(|sample| sample()) else { return };
        e.family("postern_cache_evictions", Kind::Counter, "Entries removed for want of room.")
            .sample(&[], sample.evictions);
        e.family("postern_cache_entries", Kind::Gauge, "Facts held.").sample(&[], sample.entries);
        e.family("postern_cache_bytes", Kind::Gauge, "Approximate size of what is held.")
            .sample(&[], sample.bytes);
        e.family("postern_cache_limit_bytes", Kind::Gauge, "Size that may be held.")
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
            Kind::Counter,
            "Requests finished, by route, how they ended, and class of the status sent.",
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
                    // the usual series exists from the start, so that its first increase is seen as one
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
            Kind::Counter,
            "Body bytes received from clients, by route.",
        );
        for route in &routes {
            family.sample(&[("route", &*route.name)], sum(&route.shards, |shard| shard.received.get()));
        }
        let mut family =
            e.family("postern_response_body_bytes", Kind::Counter, "Body bytes sent to clients, by route.");
        for route in &routes {
            family.sample(&[("route", &*route.name)], sum(&route.shards, |shard| shard.sent.get()));
        }
        let mut family = e.family(
            "postern_request_headers_removed",
            Kind::Counter,
            "Header fields of clients that were taken off because they speak of identity, origin or method, by route.",
        );
        for route in &routes {
            family
                .sample(&[("route", &*route.name)], sum(&route.shards, |shard| shard.headers_removed.get()));
        }
        e.family(
            "postern_requests_in_flight",
            Kind::Gauge,
            "Requests whose head came and whose answer is not over.",
        )
        .sample(&[], sum(&self.workers, |shard| shard.requests.open()));
    }

    fn durations(&self, e: &mut Encoder) {
        let mut family = e.family(
            "postern_request_duration_seconds",
            Kind::Histogram,
            "Whole head of a request to last byte of its answer, by route.",
        );
        for route in self.all_routes() {
            let total = Total::of(route.shards.iter().map(|shard| &shard.0.duration));
            total.write(&mut family, ("route", &route.name), REQUEST_BOUND);
        }
        let mut family = e.family(
            "postern_phase_duration_seconds",
            Kind::Histogram,
            "Time spent in each phase by the requests that were timed.",
        );
        for phase in Phase::ALL {
            let total = Total::of(self.workers.iter().map(|shard| &shard.0.phases[phase as usize]));
            total.write(&mut family, ("phase", phase.as_str()), 0);
        }
    }

    fn denials(&self, e: &mut Encoder) {
        let mut family =
            e.family("postern_denials", Kind::Counter, "Requests not let through, by reason code.");
        for (reason, count) in self.denials.counts() {
            family.sample(&[("reason", reason)], count);
        }
        let mut family = e.family(
            "postern_exchange_failures",
            Kind::Counter,
            "Requests let through whose exchange with the upstream broke off, by reason code.",
        );
        for (reason, count) in self.exchange_failures.counts() {
            family.sample(&[("reason", reason)], count);
        }
    }

    fn connections(&self, e: &mut Encoder) {
        let listeners: Vec<Arc<ListenerMetrics>> = self.listeners.lock().values().cloned().collect();
        let mut family = e.family("postern_connections_accepted", Kind::Counter, "Connections accepted.");
        for l in &listeners {
            family.sample(&[("listener", &*l.name)], sum(&l.shards, |shard| shard.accepted.get()));
        }
        let mut family = e.family("postern_accept_errors", Kind::Counter, "Failures of accept itself.");
        for l in &listeners {
            family.sample(&[("listener", &*l.name)], sum(&l.shards, |shard| shard.accept_errors.get()));
        }
        let mut family =
            e.family("postern_connections", Kind::Counter, "Connections that came to speak a protocol.");
        for (l, protocol) in listeners.iter().flat_map(|l| Protocol::ALL.map(|protocol| (l, protocol))) {
            let count = sum(&l.shards, |shard| shard.open[protocol as usize].begun());
            family.sample(&[("listener", &*l.name), ("protocol", protocol.as_str())], count);
        }
        let mut family =
            e.family("postern_connections_open", Kind::Gauge, "Connections open now, by what they speak.");
        for (l, protocol) in listeners.iter().flat_map(|l| Protocol::ALL.map(|protocol| (l, protocol))) {
            let count = sum(&l.shards, |shard| shard.open[protocol as usize].open());
            family.sample(&[("listener", &*l.name), ("protocol", protocol.as_str())], count);
        }
        let mut family = e.family(
            "postern_connections_refused",
            Kind::Counter,
            "Connections closed before their first request, by reason.",
        );
        for (l, why) in listeners.iter().flat_map(|l| Refusal::ALL.map(|why| (l, why))) {
            let count = sum(&l.shards, |shard| shard.refused[why as usize].get());
            family.sample(&[("listener", &*l.name), ("reason", why.as_str())], count);
        }
        let mut family = e.family(
            "postern_connections_crowded_out",
            Kind::Counter,
            "Resting connections closed to make room for others.",
        );
        for l in &listeners {
            family.sample(&[("listener", &*l.name)], sum(&l.shards, |shard| shard.crowded_out.get()));
        }
        let mut family =
            e.family("postern_tls_handshake_errors", Kind::Counter, "TLS handshakes that failed, by reason.");
        for (l, why) in listeners.iter().flat_map(|l| HandshakeFailure::ALL.map(|why| (l, why))) {
            let count = sum(&l.shards, |shard| shard.handshake[why as usize].get());
            family.sample(&[("listener", &*l.name), ("reason", why.as_str())], count);
        }
    }

    fn upstreams(&self, e: &mut Encoder) {
        let endpoints: Vec<Arc<EndpointMetrics>> = self.endpoints.lock().values().cloned().collect();
        let mut family = e.family(
            "postern_upstream_endpoint_healthy",
            Kind::Gauge,
            "Share of workers that send to the endpoint: 1 all, 0 none.",
        );
        for endpoint in &endpoints {
            family.sample(&endpoint_labels(endpoint), endpoint.healthy_share());
        }
        let mut family = e.family(
            "postern_upstream_ejections",
            Kind::Counter,
            "Times an endpoint was taken out, over workers.",
        );
        for endpoint in &endpoints {
            let ejections = sum(&endpoint.shards, |shard| shard.ejections.get());
            family.sample(&endpoint_labels(endpoint), ejections + endpoint.went_down.load(Relaxed));
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
            e.family("postern_config_reloads", Kind::Counter, "Configurations offered while running.");
        family.sample(&[("result", "success")], succeeded);
        family.sample(&[("result", "failure")], failed);
        let applied = self.reloads.applied();
        let Some(at) = applied.at else { return };
        e.family(
            "postern_config_last_reload_successful",
            Kind::Gauge,
            "1 when the newest configuration is in use, 0 when it was refused and an older one is.",
        )
        .sample(&[], u64::from(!applied.last_failed));
        e.family(
            "postern_config_last_success_timestamp_seconds",
            Kind::Gauge,
            "When the configuration in use was applied.",
        )
        .sample(&[], at.as_millis() as f64 / 1e3);
        e.family("postern_config_generation", Kind::Gauge, "Counts configurations applied by this process.")
            .sample(&[], applied.generation);
        e.family("postern_config", Kind::Info, "Digest of the configuration in use.")
            .sample(&[("digest", &applied.digest)], 1);
    }

    fn cpu_limit(&self, e: &mut Encoder, sources: &Sources, cpu_seconds: Option<f64>) {
        let limit = sources.cgroup.as_ref().and_then(Cgroup::sample);
        if let Some(limit) = &limit {
            e.family("postern_cgroup_cpu_quota_cores", Kind::Gauge, "CPU the cgroup may use, in cores.")
                .sample(&[], limit.quota_cores);
            e.family(
                "postern_cgroup_cpu_periods",
                Kind::Counter,
                "Enforcement periods in which anything ran.",
            )
            .sample(&[], limit.periods);
            e.family(
                "postern_cgroup_cpu_throttled_periods",
                Kind::Counter,
                "Periods in which the quota ran out.",
            )
            .sample(&[], limit.throttled_periods);
            e.family(
                "postern_cgroup_cpu_throttled_seconds",
                Kind::Counter,
                "Time threads were kept from running.",
            )
            .sample(&[], limit.throttled.as_secs_f64());
        }
        let observed = cpu_seconds
            .and_then(|cpu| self.cpu_per_request.lock().observe(cpu, self.requests_finished()))
            .filter(|per_request| *per_request > 0.0);
        let Some(per_request) = observed else { return };
        e.family(
            "postern_cpu_seconds_per_request",
            Kind::Gauge,
            "CPU of the process divided by requests finished, over recent traffic; absent until there was enough.",
        )
        .sample(&[], per_request);
        if let Some(limit) = limit {
            e.family(
                "postern_cpu_limit_implied_requests_per_second",
                Kind::Gauge,
                "CPU quota divided by CPU per request; absent without a quota or until there was enough traffic.",
            )
            .sample(&[], limit.quota_cores / per_request);
        }
    }

    fn build(&self, e: &mut Encoder, sources: &Sources) {
        if let Some(build) = sources.build {
            e.family("postern_build", Kind::Info, "What runs.")
                .sample(&[("version", build.version), ("commit", build.commit)], 1);
        }
        e.family("postern_workers", Kind::Gauge, "Worker threads.").sample(&[], self.workers() as u64);
    }
}

type EndpointFamily = (&'static str, Kind, &'static str, fn(&EndpointShard) -> u64);

const ENDPOINT_FAMILIES: &[EndpointFamily] = &[
    ("postern_upstream_requests", Kind::Counter, "Requests given to the endpoint.", |s| s.requests.begun()),
    ("postern_upstream_requests_in_flight", Kind::Gauge, "Requests at the endpoint now.", |s| {
        s.requests.open()
    }),
    ("postern_upstream_connections_opened", Kind::Counter, "Connections made.", |s| s.connections.begun()),
    ("postern_upstream_connections_open", Kind::Gauge, "Connections open now.", |s| s.connections.open()),
    ("postern_upstream_connect_errors", Kind::Counter, "Connections that could not be made.", |s| {
        s.connect_errors.get()
    }),
    ("postern_upstream_retries", Kind::Counter, "Requests tried again after the endpoint failed.", |s| {
        s.retries.get()
    }),
    ("postern_upstream_resets", Kind::Counter, "Exchanges broken off by the endpoint.", |s| s.resets.get()),
    ("postern_upstream_timeouts", Kind::Counter, "Exchanges the endpoint did not answer in time.", |s| {
        s.timeouts.get()
    }),
];

fn endpoint_labels(endpoint: &EndpointMetrics) -> [(&str, &str); 2] {
    [("upstream", &*endpoint.upstream), ("endpoint", &*endpoint.endpoint)]
}

type IssuerFamily = (&'static str, Kind, &'static str, fn(&IssuerSample) -> u64);

fn issuers(e: &mut Encoder, sources: &Sources) {
    let Some(issuers) = sources.issuers.as_ref().map(|sample| sample()) else { return };
    let mut family = e.family(
        "postern_key_set_age_seconds",
        Kind::Gauge,
        "Since the key set in use was fetched; absent while there is none.",
    );
    for issuer in &issuers {
        if let Some(age) = issuer.age {
            family.sample(&[("issuer", &*issuer.name)], age.as_secs_f64());
        }
    }
    let families: [IssuerFamily; 3] = [
        ("postern_key_set_keys", Kind::Gauge, "Usable keys of the issuer.", |i| i.keys),
        ("postern_key_set_fetches", Kind::Counter, "Key set fetches begun.", |i| i.fetches),
        ("postern_key_set_fetch_errors", Kind::Counter, "Fetches that brought no usable key set.", |i| {
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

/// Of those who transmit security events.
fn events(e: &mut Encoder, sources: &Sources) {
    let Some(all) = sources.events.as_ref().map(|sample| sample()) else { return };
    let mut family = e.family(
        "postern_security_events",
        Kind::Counter,
        "Security events, by what became of them: applied, ignored, foreign, or why their token was refused.",
    );
    for one in &all {
        for (kind, outcome, count) in &one.events {
            let labels = [("transmitter", &*one.name), ("type", kind), ("outcome", outcome)];
            family.sample(&labels, *count);
        }
    }
    let help = "Events whose time was in milliseconds, where RFC 8417 has seconds.";
    let mut family = e.family("postern_security_events_in_milliseconds", Kind::Counter, help);
    for one in &all {
        family.sample(&[("transmitter", &*one.name)], one.in_millis);
    }
    let mut family =
        e.family("postern_security_events_up", Kind::Gauge, "Whether security events can be fetched.");
    for (one, up) in all.iter().filter_map(|one| Some((one, one.up?))) {
        family.sample(&[("transmitter", &*one.name)], u64::from(up));
    }
}

/// Of those who are told of security events.
fn told(e: &mut Encoder, sources: &Sources) {
    let all = sources.told.as_ref().map(|sample| sample()).unwrap_or_default();
    if all.is_empty() {
        return;
    }
    let help = "What came of telling a receiver of a security event: delivered, refused, failed, given_up.";
    let mut family = e.family("postern_security_events_told", Kind::Counter, help);
    for (receiver, outcome, count) in &all {
        family.sample(&[("receiver", receiver.as_str()), ("outcome", outcome)], *count);
    }
}

/// Of issuers that are followed.
fn follows(e: &mut Encoder, sources: &Sources) {
    let Some(follows) = sources.follows.as_ref().map(|sample| sample()) else { return };
    let mut gauge = |name, help, value: fn(&FollowSample) -> f64| {
        let mut family = e.family(name, Kind::Gauge, help);
        for follow in &follows {
            family.sample(&[("issuer", &*follow.issuer)], value(follow));
        }
    };
    gauge(
        "postern_coherence_lease_seconds",
        "For how long what is known of an issuer's revocations may be believed; 0: each token is asked about.",
        |follow| follow.lease.map_or(0.0, |left| left.as_secs_f64()),
    );
    gauge(
        "postern_coherence_silent",
        "1: no lease is left of an issuer, and it has answered nothing for as long, less half a second: what would have to be asked about is refused at once.",
        |follow| f64::from(u8::from(follow.silent)),
    );
    gauge("postern_coherence_up", "Whether the way for an issuer's messages is up.", |follow| {
        f64::from(u8::from(follow.up))
    });
    gauge("postern_coherence_sequence", "Last event of an issuer's log that is applied.", |follow| {
        follow.contiguous as f64
    });
    gauge(
        "postern_coherence_lag_events",
        "Events of an issuer's log that are known to be there and not applied.",
        |follow| follow.lag as f64,
    );
    gauge("postern_coherence_tombstones", "Tags that were revoked lately.", |follow| {
        follow.tombstones as f64
    });
    gauge("postern_coherence_denials", "Tags whose tokens are denied although they have not expired.", |f| {
        f.denials as f64
    });
    gauge("postern_coherence_denials_whole", "Whether that is all of them.", |follow| {
        f64::from(u8::from(follow.whole))
    });
    let help = "Events of an issuer's log that were applied.";
    let mut family = e.family("postern_coherence_events", Kind::Counter, help);
    for follow in &follows {
        family.sample(&[("issuer", &*follow.issuer)], follow.revoked);
    }
    let help = "Times that everything known of an issuer was forgotten, by cause.";
    let mut family = e.family("postern_coherence_flushes", Kind::Counter, help);
    for follow in &follows {
        for (cause, count) in &follow.flushes {
            family.sample(&[("issuer", &*follow.issuer), ("cause", cause)], *count);
        }
    }
    let help = "Messages about revocations, by what became of them.";
    let mut family = e.family("postern_coherence_messages", Kind::Counter, help);
    for follow in &follows {
        let kinds = [("sent", follow.sent), ("received", follow.received), ("refused", follow.refused)];
        for (kind, count) in kinds {
            family.sample(&[("issuer", &*follow.issuer), ("kind", kind)], count);
        }
    }
    let help = "Tokens that an issuer was asked about, since it was not known here whether they are revoked.";
    let mut family = e.family("postern_coherence_questions", Kind::Counter, help);
    for follow in &follows {
        let results = [("good", follow.good), ("revoked", follow.denied), ("silent", follow.unanswered)];
        for (result, count) in results {
            family.sample(&[("issuer", &*follow.issuer), ("result", result)], count);
        }
    }
    let mut counter = |name, help, value: fn(&FollowSample) -> u64| {
        let mut family = e.family(name, Kind::Counter, help);
        for follow in &follows {
            family.sample(&[("issuer", &*follow.issuer)], value(follow));
        }
    };
    let help = "Entries in use that were held against what their issuer says.";
    counter("postern_coherence_audits", help, |follow| follow.audited);
    let help = "Of those, believed although denied for longer than a lease: must stay 0.";
    counter("postern_coherence_stale_admits", help, |follow| follow.stale);
    let help = "From when something was revoked at this node until a follower said that it has applied it.";
    let mut family = e.family("postern_coherence_refusal_seconds", Kind::Histogram, help);
    for (follow, arrivals) in follows.iter().filter_map(|one| one.arrivals.as_ref().map(|some| (one, some))) {
        let buckets = roster::BOUNDS.into_iter().zip(arrivals.below);
        family.histogram(&[("issuer", &*follow.issuer)], buckets, arrivals.count, arrivals.sum);
    }
}

fn authorities(e: &mut Encoder, sources: &Sources) {
    let Some(authorities) = sources.authorities.as_ref().map(|sample| sample()) else { return };
    let help = "Questions to an authority about a token, by what came of them.";
    let mut family = e.family("postern_authority_questions", Kind::Counter, help);
    for authority in &authorities {
        for (result, count) in [
            ("good", authority.good),
            ("refused", authority.refused),
            ("failed", authority.failed),
            ("busy", authority.busy),
            ("throttled", authority.throttled),
        ] {
            family.sample(&[("authority", &*authority.name), ("result", result)], count);
        }
    }
    let help = "Time spent waiting for an authority's answers, all together.";
    let mut family = e.family("postern_authority_wait_seconds", Kind::Counter, help);
    for authority in &authorities {
        family.sample(&[("authority", &*authority.name)], authority.waited.as_secs_f64());
    }
}

fn reviews(e: &mut Encoder, sources: &Sources) {
    let Some(reviews) = sources.reviews.as_ref().and_then(|sample| sample()) else { return };
    let help = "SubjectAccessReviews asked for, by what came of them.";
    let mut family = e.family("postern_reviews", Kind::Counter, help);
    for (result, count) in [
        ("allowed", reviews.allowed),
        ("refused", reviews.refused),
        ("failed", reviews.failed),
        ("busy", reviews.busy),
        ("throttled", reviews.throttled),
    ] {
        family.sample(&[("result", result)], count);
    }
    let help = "Answers to reviews that are remembered.";
    let mut family = e.family("postern_reviews_remembered", Kind::Gauge, help);
    for (answer, count) in [("yes", reviews.remembered.facts), ("no", reviews.remembered.denials)] {
        family.sample(&[("answer", answer)], count as u64);
    }
}

fn logins(e: &mut Encoder, sources: &Sources) {
    let Some(logins) = sources.logins.as_ref().and_then(|sample| sample()) else { return };
    let help = "Logins that came back from a provider, by what came of them.";
    let mut family = e.family("postern_logins", Kind::Counter, help);
    for (result, count) in
        [("good", logins.logins), ("refused", logins.login_refused), ("failed", logins.login_failed)]
    {
        family.sample(&[("result", result)], count);
    }
    let help = "Times that a provider was asked whether a session holds, by its answer.";
    let mut family = e.family("postern_session_renewals", Kind::Counter, help);
    for (result, count) in
        [("good", logins.renewed), ("refused", logins.renewal_refused), ("failed", logins.renewal_failed)]
    {
        family.sample(&[("result", result)], count);
    }
    let help = "Sessions that were ended before their time, by whom; by a provider, messages of it.";
    let mut family = e.family("postern_logouts", Kind::Counter, help);
    for (by, count) in [("holder", logins.logouts), ("provider", logins.provider_logouts)] {
        family.sample(&[("by", by)], count);
    }
    e.family("postern_sessions_ended", Kind::Gauge, "Entries in the list of sessions that were ended.")
        .sample(&[], logins.ended as u64);
    e.family("postern_sessions_remembered", Kind::Gauge, "Sessions whose facts are remembered.")
        .sample(&[], logins.cache.facts as u64);
}

fn watches(e: &mut Encoder, sources: &Sources) {
    let Some(watches) = sources.watches.as_ref().map(|sample| sample()) else { return };
    if watches.is_empty() {
        return;
    }
    let help = "1 for how the watch of a resource stands. Answers are dropped at once while it is `watching`, else they end with their time to live.";
    let mut family = e.family("postern_kubernetes_watch_state", Kind::Gauge, help);
    for (watch, state) in watches.iter().flat_map(|watch| State::ALL.map(|state| (watch, state))) {
        let [of, resource] = watch_labels(watch);
        family.sample(&[of, resource, ("state", state.as_str())], u64::from(watch.state == state));
    }
    let help = "Events of a watch that dropped answers.";
    let mut family = e.family("postern_kubernetes_watch_events", Kind::Counter, help);
    for watch in &watches {
        family.sample(&watch_labels(watch), watch.events);
    }
    let help = "Times a watch began anew and dropped every answer, the first one included.";
    let mut family = e.family("postern_kubernetes_watch_lists", Kind::Counter, help);
    for watch in &watches {
        family.sample(&watch_labels(watch), watch.lists);
    }
}

fn watch_labels(watch: &WatchStatus) -> [(&str, &str); 2] {
    [("watcher", &*watch.watcher), ("resource", watch.resource.as_str())]
}

fn outputs(e: &mut Encoder, sources: &Sources) {
    if let Some(stats) = &sources.access_log {
        e.family("postern_access_log_lines", Kind::Counter, "Access log lines written.")
            .sample(&[], stats.written());
        e.family(
            "postern_access_log_lines_dropped",
            Kind::Counter,
            "Lines lost because writing was slow or failed.",
        )
        .sample(&[], stats.dropped());
    }
    if let Some(stats) = &sources.trace {
        let mut family =
            e.family("postern_trace_spans", Kind::Counter, "Sampled spans, by what became of them.");
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

/// Gives the CPU seconds used so far. Outside Linux nothing is shown.
fn process(e: &mut Encoder) -> Option<f64> {
    let sample = process::sample().ok()?;
    let cpu_seconds = sample.cpu.as_secs_f64();
    e.family("process_cpu_seconds", Kind::Counter, "User and system CPU time spent.")
        .sample(&[], cpu_seconds);
    e.family("process_resident_memory_bytes", Kind::Gauge, "Resident memory.")
        .sample(&[], sample.resident_bytes);
    e.family("process_virtual_memory_bytes", Kind::Gauge, "Virtual memory.")
        .sample(&[], sample.virtual_bytes);
    e.family("process_open_fds", Kind::Gauge, "Open file descriptors.").sample(&[], sample.open_fds);
    if let Some(most) = sample.max_fds {
        e.family("process_max_fds", Kind::Gauge, "File descriptors that may be open.").sample(&[], most);
    }
    e.family("process_threads", Kind::Gauge, "Threads.").sample(&[], sample.threads);
    e.family("process_start_time_seconds", Kind::Gauge, "When the process began, since the epoch.")
        .sample(&[], sample.started_unix_seconds);
    Some(cpu_seconds)
}
