//! Metrics written by several threads, and the scraped result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use telemetry::metrics::{
    BuildInfo, CacheSample, Format, HandshakeFailure, IssuerSample, Metrics, Outcome, Protocol, Refusal,
};
use telemetry::phases::{CacheUse, Phase, Recorder};
use telemetry::test_support::exposition::{Samples, assert_sample, read};

#[track_caller]
fn counted() -> Arc<Metrics> {
    let metrics = Metrics::new(2);
    let (a, b) = (metrics.worker(0).unwrap(), metrics.worker(1).unwrap());
    let route = metrics.route("a\"b");
    for worker in [&a, &b] {
        worker.request_begun();
        route.count_finished(worker, Outcome::Allowed, 204, 1_000_000);
        route.count_bytes(worker, 10, 20);
        worker.request_ended();
    }
    a.request_begun();
    metrics.unrouted().count_finished(&b, Outcome::Malformed, 400, 5);
    metrics.count_denial("expired");
    let mut recorder = Recorder::start(Instant::now());
    recorder.add(Phase::Decide, 150);
    a.record_phases(&recorder);
    b.record_phase(Phase::Decide, 151);
    a.count_cache_lookup(CacheUse::Hit);
    b.count_cache_lookup(CacheUse::Hit);
    b.count_cache_lookup(CacheUse::Denied);

    let listener = metrics.listener("public");
    listener.accepted(&a);
    listener.accepted(&b);
    listener.opened(&a, Protocol::Http2);
    listener.closed(&a, Protocol::Http2);
    listener.opened(&b, Protocol::Http2);
    listener.refused(&b, Refusal::Limit);
    listener.handshake_failed(&b, HandshakeFailure::Certificate);
    listener.accept_failed(&a);

    let endpoint = metrics.endpoint("app", "10.0.0.1:80");
    endpoint.connected(&a);
    endpoint.request_begun(&a);
    endpoint.request_ended(&a);
    endpoint.request_begun(&b);
    endpoint.connect_failed(&b);
    endpoint.retried(&b);
    endpoint.reset(&b);
    endpoint.timed_out(&b);
    endpoint.set_ejected(&b, true);

    let sample = CacheSample { bytes: 512, ..CacheSample::default() };
    metrics.set_cache(move || sample);
    let age = Some(Duration::from_millis(1500));
    let corp = IssuerSample { name: "corp".into(), age, keys: 2, fetches: 3, fetch_errors: 1 };
    let new = IssuerSample { name: "new".into(), age: None, keys: 0, fetches: 1, fetch_errors: 1 };
    metrics.set_issuers(move || vec![corp.clone(), new.clone()]);
    metrics.reloads().started(Timestamp::from_millis(1_500), 1, "d1");
    metrics.reloads().succeeded(Timestamp::from_millis(2_500), 2, "d2");
    metrics.reloads().failed();
    metrics.set_build(BuildInfo { version: "1.2.3", commit: "abc" });
    metrics
}

#[test]
fn a_scrape_in_both_forms() {
    let metrics = counted();
    let text = read(&metrics.render(Format::Text), false);
    let open = read(&metrics.render(Format::OpenMetrics), true);
    for (series, value) in [
        (r#"postern_requests_total{route="a\"b",outcome="allowed",class="2xx"}"#, 2.0),
        (r#"postern_requests_total{route="(none)",outcome="malformed",class="4xx"}"#, 1.0),
        (r#"postern_request_duration_seconds_sum{route="a\"b"}"#, 0.002),
        (r#"postern_request_body_bytes_total{route="a\"b"}"#, 20.0),
        (r#"postern_response_body_bytes_total{route="a\"b"}"#, 40.0),
        ("postern_requests_in_flight", 1.0),
        (r#"postern_phase_duration_seconds_bucket{phase="decide",le="0.00000015"}"#, 1.0),
        (r#"postern_phase_duration_seconds_bucket{phase="decide",le="0.00000025"}"#, 2.0),
        (r#"postern_denials_total{reason="expired"}"#, 1.0),
        (r#"postern_connections_accepted_total{listener="public"}"#, 2.0),
        (r#"postern_accept_errors_total{listener="public"}"#, 1.0),
        (r#"postern_connections_total{listener="public",protocol="http2"}"#, 2.0),
        (r#"postern_connections_open{listener="public",protocol="http2"}"#, 1.0),
        (r#"postern_connections_refused_total{listener="public",reason="limit"}"#, 1.0),
        (r#"postern_tls_handshake_errors_total{listener="public",reason="certificate"}"#, 1.0),
        (r#"postern_upstream_endpoint_healthy{upstream="app",endpoint="10.0.0.1:80"}"#, 0.5),
        (r#"postern_upstream_requests_total{upstream="app",endpoint="10.0.0.1:80"}"#, 2.0),
        (r#"postern_upstream_requests_in_flight{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_upstream_connections_open{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_upstream_connect_errors_total{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_upstream_retries_total{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_upstream_resets_total{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_upstream_timeouts_total{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_upstream_ejections_total{upstream="app",endpoint="10.0.0.1:80"}"#, 1.0),
        (r#"postern_cache_lookups_total{result="hit"}"#, 2.0),
        (r#"postern_cache_lookups_total{result="denied"}"#, 1.0),
        ("postern_cache_bytes", 512.0),
        (r#"postern_key_set_age_seconds{issuer="corp"}"#, 1.5),
        (r#"postern_key_set_fetch_errors_total{issuer="new"}"#, 1.0),
        (r#"postern_config_reloads_total{result="success"}"#, 1.0),
        (r#"postern_config_reloads_total{result="failure"}"#, 1.0),
        ("postern_config_last_reload_successful", 0.0),
        ("postern_config_last_success_timestamp_seconds", 2.5),
        ("postern_config_generation", 2.0),
        (r#"postern_config_info{digest="d2"}"#, 1.0),
        (r#"postern_build_info{version="1.2.3",commit="abc"}"#, 1.0),
        ("postern_workers", 2.0),
    ] {
        assert_sample(&text, series, value);
        assert_sample(&open, series, value);
    }
    assert!(!text.contains_key(r#"postern_key_set_age_seconds{issuer="new"}"#), "no age without a key set");
    assert!(!text.contains_key("postern_cpu_seconds_per_request"), "too little traffic to say");
    assert!(text["process_cpu_seconds_total"] > 0.0 && text["process_resident_memory_bytes"] > 1e5);
    let spelt_alike = |samples: &Samples| -> Vec<String> {
        let mut series: Vec<_> = samples.keys().map(|series| series.replace(".0\"}", "\"}")).collect();
        series.sort();
        series
    };
    assert_eq!(spelt_alike(&text), spelt_alike(&open), "the same series in both");
}

#[test]
fn nothing_is_lost_over_threads_and_reloads() {
    const PER_WORKER: u64 = 50_000;
    let metrics = Metrics::new(4);
    let over = AtomicBool::new(false);
    let total = r#"postern_requests_total{route="api",outcome="allowed",class="2xx"}"#;
    let whole = r#"postern_request_duration_seconds_count{route="api"}"#;
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let (mut seen, mut scrapes) = (0.0, 0);
            while !over.load(Ordering::Relaxed) {
                let samples = read(&metrics.render(Format::Text), false);
                let now = samples.get(total).copied().unwrap_or(0.0);
                assert!(now >= seen, "a counter fell from {seen} to {now}");
                (seen, scrapes) = (now, scrapes + 1);
            }
            scrapes
        });
        let counting: Vec<_> = (0..4)
            .map(|index| {
                let metrics = &metrics;
                scope.spawn(move || {
                    let worker = metrics.worker(index).unwrap();
                    for request in 0..PER_WORKER {
                        // a reload requests the handle again
                        let route = metrics.route("api");
                        worker.request_begun();
                        route.count_finished(&worker, Outcome::Allowed, 200, request);
                        worker.request_ended();
                    }
                })
            })
            .collect();
        for thread in counting {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        assert!(scraper.join().unwrap() > 0);
    });
    let samples = read(&metrics.render(Format::Text), false);
    let all = (4 * PER_WORKER) as f64;
    assert_sample(&samples, total, all);
    assert_sample(&samples, whole, all);
    assert_eq!(metrics.requests_finished(), 4 * PER_WORKER);
    let nanos = 4.0 * (PER_WORKER * (PER_WORKER - 1) / 2) as f64;
    assert_sample(&samples, r#"postern_request_duration_seconds_sum{route="api"}"#, nanos / 1e9);
}
