//! Constructed records: findings whose faults no test can cause here. Each is found in a record
//! that shows it, and not found if one part of the evidence is missing.

use std::collections::BTreeMap;

use lab_analysis::diagnose::findings;
use lab_analysis::record::{
    Arrivals, Class, Component, Distribution, Doubt, Event, Iteration, Outcome, Phase, Record, Sample, Slice,
    Variant,
};
use lab_analysis::test_support::sample;

const SECONDS: u64 = 10;

/// 100 requests/s for ten seconds with a duration of about `us` each.
fn iteration(number: u32, us: f64) -> Iteration {
    let answers = 100 * SECONDS;
    let spread = (0..answers).map(|at| (us * (900.0 + 0.2 * at as f64)) as u64);
    let slice = |at| Slice {
        at_ms: at * 200,
        ms: 200,
        ok: 20,
        bad: 0,
        p50_us: Some(us),
        p99_us: Some(us * 1.1),
        max_us: Some(us * 1.1),
    };
    Iteration {
        classes: vec![class(Outcome::Ok, 200, spread)],
        timeline: (0..SECONDS * 5).map(slice).collect(),
        ..Iteration::new(number, SECONDS as f64)
    }
}

pub(super) fn class(outcome: Outcome, status: u16, latencies: impl Iterator<Item = u64>) -> Class {
    let latency = Distribution::of(latencies, 3);
    Class {
        outcome,
        status: Some(status),
        fault: None,
        count: latency.count(),
        latency: Some(latency),
        example: None,
    }
}

/// A program with ten samples a second. `fill` sets the usage until then; its argument counts
/// tenths of a second.
pub(super) fn component(name: &str, fill: impl Fn(u64, &mut Sample)) -> Component {
    let look = |tenth| {
        let mut sample = Sample { at_ms: tenth * 100, rss_bytes: 50 << 20, ..Sample::default() };
        fill(tenth, &mut sample);
        sample
    };
    Component {
        name: name.to_owned(),
        cpu_limit_cores: None,
        memory_limit_bytes: None,
        cpu_error_us: None,
        samples: (0..=SECONDS * 10).map(look).collect(),
        counters: BTreeMap::new(),
        ended: false,
    }
}

pub(super) fn variant(name: &str, iterations: Vec<Iteration>) -> Variant {
    Variant {
        name: name.to_owned(),
        topology: String::new(),
        path: Vec::new(),
        labels: std::collections::BTreeMap::new(),
        load: sample::load(100.0),
        iterations,
        missing: Vec::new(),
        counters: BTreeMap::new(),
        profile: None,
    }
}

/// Five iterations with these components.
pub(super) fn with(components: &[Component]) -> Record {
    let five =
        (1..=5).map(|number| Iteration { components: components.to_vec(), ..iteration(number, 500.0) });
    let mut record = super::record(vec![variant("under test", five.collect())]);
    record.run.machines[0].cores = 2;
    record
}

pub(super) fn each(record: &mut Record, change: impl Fn(&mut Iteration)) {
    record.variants.iter_mut().flat_map(|variant| &mut variant.iterations).for_each(change);
}

/// Names of the findings; the record must be valid.
pub(super) fn names(record: &Record) -> Vec<String> {
    record.check().unwrap();
    findings(record).into_iter().map(|finding| finding.name).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn nothing_is_said_about_nothing() {
    assert_eq!(names(&with(&[])), NONE);
    assert_eq!(names(&with(&[component("gateway", |_, _| ())])), NONE);
    let mut empty = with(&[]);
    each(&mut empty, |iteration| *iteration = Iteration::new(iteration.number, 1.0));
    assert_eq!(names(&empty), NONE);
    empty.variants[0].iterations.clear();
    assert_eq!(names(&empty), ["few-iterations"]);
}

#[test]
fn handshakes_are_named_instead_of_their_connections() {
    let busy = component("edge", |tenth, sample| {
        sample.connections_opened = Some(tenth * 9);
        sample.tls_handshakes = Some(tenth * 9);
    });
    assert_eq!(names(&with(&[busy])), ["tls-handshakes"]);
    let plain = component("edge", |tenth, sample| sample.connections_opened = Some(tenth * 9));
    assert_eq!(names(&with(&[plain])), ["connection-churn"]);
    let pooled = component("edge", |tenth, sample| sample.connections_opened = Some(40.min(tenth)));
    assert_eq!(names(&with(&[pooled])), NONE);
}

#[test]
fn a_node_with_most_of_the_calls() {
    let node = |name: &str, each: u64| {
        component(name, move |tenth, sample| sample.calls_received = Some(tenth * each))
    };
    let found = findings(&with(&[node("idp-1", 8), node("idp-2", 2)]));
    assert_eq!(found[0].name, "uneven-spread");
    assert!(found[0].evidence.contains("`idp-1` received 4000 calls and `idp-2` 1000"), "{found:?}");
    assert_eq!(names(&with(&[node("idp-1", 6), node("idp-2", 4)])), NONE);
    assert_eq!(names(&with(&[node("gateway", 10), node("idp", 1)])), NONE, "they are not of one kind");
}

#[test]
fn a_rate_limit_by_its_status_or_by_what_it_lets_through() {
    let refusing = |status: u16, bad: &dyn Fn(u64) -> u64| {
        let mut record = with(&[]);
        let all: u64 = (0..SECONDS * 5).map(bad).sum();
        each(&mut record, |iteration| {
            iteration.timeline.iter_mut().zip(0..).for_each(|(slice, at)| slice.bad = bad(at));
            iteration.classes.push(class(Outcome::Refused, status, (0..all).map(|_| 200_000)));
        });
        record
    };
    assert_eq!(names(&refusing(429, &|_| 2)), ["errors", "rate-limited"]);
    assert_eq!(names(&refusing(503, &|at| 3 + at % 4)), ["errors", "rate-limited"]);
    assert_eq!(names(&refusing(500, &|at| 3 + at % 4)), ["errors"]);
    let mut failing = refusing(503, &|at| 3 + at % 4);
    // If successes vary as much as refusals, the cause is not a rate limit but a failing server.
    each(&mut failing, |iteration| {
        iteration.timeline.iter_mut().zip(0..).for_each(|(slice, at): (_, u64)| slice.ok = 5 + 10 * (at % 4));
    });
    assert_eq!(names(&failing), ["errors"]);
}

#[test]
fn busy_cores_that_are_taken_away() {
    let busy = |taken: u64| {
        component("gateway", move |tenth, sample| {
            sample.user_ms = tenth * 195;
            sample.involuntary_switches = tenth * taken;
        })
    };
    assert_eq!(names(&with(&[busy(40)])), ["core-starved"]);
    assert_eq!(names(&with(&[busy(1)])), NONE, "nobody else wanted the cores");
    let mut larger = with(&[busy(40)]);
    larger.run.machines[0].cores = 8;
    assert_eq!(names(&larger), NONE);
    larger.run.machines.clear();
    assert_eq!(names(&larger), NONE, "nobody says how many cores there are");
}

#[test]
fn memory_that_was_wanting() {
    let killed = component("idp", |tenth, sample| sample.oom_kills = Some(tenth / 60));
    assert_eq!(names(&with(&[killed])), ["out-of-memory"]);
    let mut full = component("idp", |tenth, sample| sample.rss_bytes = (tenth + 1) << 20);
    full.memory_limit_bytes = Some(105 << 20);
    full.ended = true;
    let found = names(&with(&[full.clone()]));
    assert!(
        found.iter().any(|name| name == "out-of-memory")
            && found.iter().any(|name| name == "component-ended")
    );
    full.memory_limit_bytes = Some(400 << 20);
    let found = names(&with(&[full]));
    assert!(!found.iter().any(|name| name == "out-of-memory"), "{found:?}");
    let swapped = component("idp", |tenth, sample| sample.swap_bytes = Some(tenth << 20));
    assert_eq!(names(&with(&[swapped])), ["swapping"]);
    let left_over = component("idp", |_, sample| sample.swap_bytes = Some(100 << 20));
    assert_eq!(names(&with(&[left_over])), NONE);
}

#[test]
fn memory_that_only_fills_is_no_growth() {
    let of = |bytes: fn(u64) -> u64| {
        names(&with(&[component("idp", move |tenth, sample| sample.rss_bytes = bytes(tenth))]))
    };
    assert_eq!(of(|tenth| (50 << 20) + tenth * 300_000), ["memory-growth"]);
    assert_eq!(of(|tenth| (50 << 20) + 30.min(tenth) * 1_000_000), NONE, "it is full after three seconds");
    assert_eq!(of(|tenth| (50 << 20) + tenth * 20_000), NONE, "2 MB are what allocators take");
    assert_eq!(of(|tenth| (50 << 20) + tenth % 20 * 3_000_000), NONE, "it is given back");
}

#[test]
fn whose_latency_it_is() {
    // 20 ms each, of which the gateway waited 18 ms for the backend.
    let mut waits = with(&[]);
    let slow = |number| Iteration {
        phases: vec![Phase {
            component: "gateway".to_owned(),
            name: "upstream".to_owned(),
            duration: Distribution::of((0..100).map(|_| 18_000_000), 3),
        }],
        ..iteration(number, 20_000.0)
    };
    waits.variants[0].iterations = (1..=5).map(slow).collect();
    let found = findings(&waits);
    assert_eq!(found[0].name, "backend-bound");
    assert!(found[0].evidence.contains("waited 18.0 ms of 20.0 ms"), "{found:?}");
    each(&mut waits, |iteration| {
        iteration.phases[0].duration = Distribution::of((0..100).map(|_| 9_000_000), 3);
    });
    assert_eq!(names(&waits), NONE, "half of it is not the backend's");

    // A closed loop over a round trip of 40 ms, with 1 ms of work.
    let far = |name: &str, us| {
        let mut far = variant(name, (1..=5).map(|number| iteration(number, us)).collect());
        far.load.arrivals = Arrivals::Closed;
        (far.load.rate_per_s, far.load.concurrency) = (None, Some(4));
        far
    };
    let mut loops = super::record(vec![far("direct", 40_000.0), far("gateway", 41_000.0)]);
    let found = findings(&loops);
    let bound = found.iter().find(|finding| finding.name == "round-trip-bound").unwrap();
    assert_eq!(bound.variants, ["gateway"]);
    assert!(bound.evidence.contains("4 workers"), "{bound:?}");
    loops.variants.remove(0);
    assert_eq!(names(&loops), ["closed-loop"], "nobody measured the bare backend");
    let phase = |name: &str, ms: u64| Phase {
        component: "gateway".to_owned(),
        name: name.to_owned(),
        duration: Distribution::of((0..100).map(|_| ms * 1_000_000), 3),
    };
    each(&mut loops, |iteration| iteration.phases = vec![phase("authenticate", 1), phase("upstream", 2)]);
    let found = findings(&loops);
    assert!(
        found[1].name == "round-trip-bound" && found[1].evidence.contains("reports 3.00 ms as its own"),
        "{found:?}"
    );
    each(&mut loops, |iteration| iteration.phases = vec![phase("authenticate", 15), phase("upstream", 2)]);
    assert_eq!(names(&loops), ["closed-loop"], "it takes its time itself");
    let mut near = super::record(vec![far("direct", 400.0), far("gateway", 410.0)]);
    each(&mut near, |iteration| iteration.seconds /= 100.0);
    each(&mut near, |iteration| iteration.timeline.clear());
    assert!(!names(&near).contains(&"round-trip-bound".to_owned()), "below 2 ms nobody minds");
}

#[test]
fn http2_beside_http1() {
    let tail = |protocol: &str, p99: u64| {
        let of = |number| {
            let slow =
                (0..1000).map(move |at| if at >= 980 { p99 * 1_000_000 } else { 1_000_000 + at * 100 });
            Iteration { classes: vec![class(Outcome::Ok, 200, slow)], ..iteration(number, 1000.0) }
        };
        let mut variant = variant(protocol, (1..=5).map(of).collect());
        variant.load.protocol = Some(protocol.to_owned());
        variant
    };
    assert_eq!(names(&super::record(vec![tail("http/1.1", 2), tail("h2", 9)])), ["head-of-line"]);
    assert_eq!(names(&super::record(vec![tail("http/1.1", 2), tail("h2", 3)])), NONE);
    assert_eq!(names(&super::record(vec![tail("h2", 9)])), NONE, "nothing to compare it with");
    let rounds = |http1: usize, http2: usize| {
        let mut both = super::record(vec![tail("http/1.1", 2), tail("h2", 9)]);
        both.variants[0].iterations.truncate(http1);
        both.variants[1].iterations.truncate(http2);
        names(&both)
    };
    assert_eq!(rounds(4, 4), ["few-iterations", "head-of-line"]);
    for (http1, http2) in [(3, 5), (5, 3), (1, 1)] {
        assert_eq!(rounds(http1, http2), ["few-iterations"], "it may be chance");
    }
    let mut other = super::record(vec![tail("http/1.1", 2), tail("h2", 9)]);
    other.variants[0].load.rate_per_s = Some(50.0);
    assert_eq!(names(&other), NONE, "the load is another one");
}

#[test]
fn a_slow_start_in_every_iteration() {
    let mut cold = with(&[]);
    each(&mut cold, |iteration| {
        iteration.timeline[..10].iter_mut().for_each(|slice| slice.p50_us = Some(1500.0));
    });
    assert_eq!(names(&cold), ["cold-cache"]);
    cold.variants[0].iterations[2].timeline[..10].iter_mut().for_each(|slice| slice.p50_us = Some(500.0));
    assert_eq!(names(&cold), NONE, "one start was not slow: it is not the start");
}

#[test]
fn pauses_without_a_look_at_the_servers_have_no_cause() {
    let quiet = |record: &mut Record, at: std::ops::Range<usize>| {
        each(record, |iteration| iteration.timeline[at.clone()].iter_mut().for_each(|slice| slice.ok = 0));
    };
    let mut paused = with(&[]);
    quiet(&mut paused, 20..23);
    assert_eq!(names(&paused), ["pauses"]);
    let mut brief = with(&[]);
    quiet(&mut brief, 20..21);
    assert_eq!(names(&brief), NONE, "200 ms are what a busy machine takes");
    let slower = |factor: u64| {
        move |iteration: &mut Iteration| {
            iteration.seconds *= factor as f64;
            for slice in &mut iteration.timeline {
                (slice.at_ms, slice.ms) = (slice.at_ms * factor, slice.ms * factor);
            }
        }
    };
    let mut long = with(&[]);
    quiet(&mut long, 20..21);
    each(&mut long, slower(2));
    long.variants[0].load.rate_per_s = Some(50.0);
    assert_eq!(names(&long), ["pauses"], "400 ms are more");
    let mut coarse = with(&[]);
    quiet(&mut coarse, 20..23);
    each(&mut coarse, slower(5));
    coarse.variants[0].load.rate_per_s = Some(20.0);
    assert_eq!(names(&coarse), NONE, "slices of a second do not show them");
}

#[test]
fn a_burst_says_what_happened_beside_it() {
    let mut burst = with(&[]);
    each(&mut burst, |iteration| {
        iteration.timeline[24..27].iter_mut().for_each(|slice| (slice.ok, slice.bad) = (8, 12));
        iteration.classes.push(class(Outcome::Refused, 401, (0..36).map(|_| 400_000)));
    });
    let found = findings(&burst);
    let told = found.iter().find(|finding| finding.name == "error-burst").unwrap();
    assert!(told.evidence.contains("between 4.80 and 5.40 s") && !told.evidence.contains("near"), "{told:?}");
    each(&mut burst, |iteration| {
        let event = |at_ms, what: &str| Event { at_ms, what: what.to_owned() };
        iteration.events = vec![event(500, "deployment"), event(4700, "key rotation")];
    });
    let found = findings(&burst);
    let told = found.iter().find(|finding| finding.name == "error-burst").unwrap();
    assert!(
        told.evidence.contains("near key rotation at 4.70 s") && !told.evidence.contains("deployment"),
        "{told:?}"
    );
    let mut even = with(&[]);
    each(&mut even, |iteration| {
        iteration.timeline.iter_mut().for_each(|slice| slice.bad = 1);
        iteration.classes.push(class(Outcome::Refused, 401, (0..50).map(|_| 400_000)));
    });
    assert_eq!(names(&even), ["errors"]);
}

#[test]
fn a_slow_iteration_is_told_with_what_else_was_different_and_a_quick_one_is_odd() {
    let busy = |each: u64| component("gateway", move |tenth, sample| sample.user_ms = tenth * each);
    let mut record = with(&[busy(10)]);
    for (place, other) in record.variants[0].iterations.iter_mut().enumerate() {
        *other = Iteration {
            components: vec![busy(10 + place as u64 % 2)],
            ..iteration(other.number, 500.0 + 2.0 * place as f64)
        };
    }
    let mut slow = record.clone();
    slow.variants[0].iterations[3] = Iteration { components: vec![busy(60)], ..iteration(4, 1500.0) };
    slow.variants[0].iterations[3].events.push(Event { at_ms: 2000, what: "deployment".to_owned() });
    let found = findings(&slow);
    assert_eq!(found[0].name, "slow-iteration");
    for part in ["P50 of iteration 4", "CPU per request of `gateway`", "deployment at 2.00 s"] {
        assert!(found[0].evidence.contains(part), "{part}: {found:?}");
    }
    record.variants[0].iterations[3] = Iteration { components: vec![busy(10)], ..iteration(4, 100.0) };
    assert_eq!(names(&record), ["odd-iteration"]);
}

#[test]
fn of_what_was_different_in_a_slow_iteration_the_greatest_is_told() {
    let nine = |each: u64| -> Vec<Component> {
        let one = |number: u64| {
            component(&format!("node-{number}"), move |tenth, sample| sample.user_ms = tenth * each * number)
        };
        (1..=9).map(one).collect()
    };
    let mut record = with(&nine(10));
    for (place, other) in record.variants[0].iterations.iter_mut().enumerate() {
        let us = 500.0 + 2.0 * place as f64;
        *other = Iteration { components: nine(10 + place as u64 % 2), ..iteration(other.number, us) };
    }
    record.variants[0].iterations[3] = Iteration { components: nine(60), ..iteration(4, 1500.0) };
    let told = &findings(&record)[0].evidence;
    assert_eq!(told.matches("CPU per request of `node-").count(), 6, "{told}");
    assert!(told.ends_with("3 more in iteration 4"), "{told}");
}

#[test]
fn of_many_odd_iterations_the_oddest_are_named() {
    let mut record = with(&[]);
    let usual = |number: u32| 500.0 + 2.0 * f64::from(number % 5);
    let slow = |number: u32| 1500.0 + 10.0 * f64::from(number);
    let us = |number: u32| if number.is_multiple_of(8) { slow(number) } else { usual(number) };
    record.variants[0].iterations = (1..=40).map(|number| iteration(number, us(number))).collect();
    let found = findings(&record);
    let told = &found.iter().find(|finding| finding.name == "slow-iteration").unwrap().evidence;
    for number in [24, 32, 40] {
        assert!(told.contains(&format!("P50 of iteration {number} is")), "{told}");
    }
    assert!(!told.contains("iteration 8 is") && !told.contains("iteration 16 is"), "{told}");
    assert!(told.contains("2 more of 40 iterations deviate"), "{told}");
}

#[test]
fn littles_law_is_held_to_requests_whose_latencies_were_kept() {
    let slow = |in_flight: f64| {
        let mut record = with(&[]);
        each(&mut record, |iteration| iteration.mean_in_flight = Some(in_flight));
        record
    };
    // 100 requests/s of one millisecond each are 0.1 requests in flight.
    assert_eq!(names(&slow(0.1)), NONE);
    assert_eq!(names(&slow(40.0)), ["little-law-broken"]);
    // A third of the requests that ended in the window was due before it, and counts as in flight
    // as well.
    let mut backlog = slow(40.0);
    each(&mut backlog, |iteration| iteration.timeline.iter_mut().for_each(|slice| slice.ok = 30));
    assert_eq!(names(&backlog), NONE);
    // Five unanswered requests were awaited until after the window. How much of their 25 s lies in
    // it is unknown.
    let lost = |in_flight: f64| {
        let mut record = slow(in_flight);
        each(&mut record, |iteration| {
            let lost = class(Outcome::Ok, 200, std::iter::repeat_n(5_000_000_000, 5));
            let fault = Some("timeout".to_owned());
            iteration.classes.push(Class { outcome: Outcome::Failed, status: None, fault, ..lost });
        });
        names(&record).contains(&"little-law-broken".to_owned())
    };
    assert!(!lost(0.3) && !lost(2.4) && lost(40.0));
}

#[test]
fn a_generator_that_never_rests_is_the_limit_even_when_it_shares_its_core() {
    let own = |running: f64, waiting: f64| {
        let mut record = with(&[]);
        each(&mut record, |iteration| {
            iteration.generator = Some(lab_analysis::record::GeneratorUse {
                cpu_share: Some(running),
                core_wait_share: Some(waiting),
                stolen_share: Some(0.0),
                lag_p99_us: Some(50.0),
                limited: false,
            });
        });
        record
    };
    assert_eq!(names(&own(0.3, 0.05)), NONE);
    assert_eq!(names(&own(0.95, 0.02)), ["generator-bound"]);
    assert_eq!(names(&own(0.6, 0.38)), ["generator-bound"]);
    assert_eq!(names(&own(0.5, 0.42)), ["machine-shared"], "it rested now and then");
    assert_eq!(names(&own(0.3, 0.3)), ["machine-shared"]);
    assert_eq!(findings(&own(0.95, 0.02))[0].doubt, Doubt::Invalid);
    let mut stolen = own(0.3, 0.05);
    stolen.variants[0].iterations[1].generator.as_mut().unwrap().stolen_share = Some(0.62);
    assert_eq!(names(&stolen), ["time-stolen"]);
    let mut late = own(0.3, 0.05);
    each(&mut late, |iteration| iteration.generator.as_mut().unwrap().lag_p99_us = Some(1200.0));
    assert_eq!(names(&late), ["generator-late"]);
    let mut limited = own(0.3, 0.05);
    each(&mut limited, |iteration| iteration.generator.as_mut().unwrap().limited = true);
    assert_eq!(names(&limited), ["generator-bound"]);
}

#[test]
fn a_throttle_explains_what_follows_from_it() {
    let limited = |periods: bool| {
        let mut limited = component("proxy", move |tenth, sample| {
            sample.user_ms = tenth * 5;
            sample.periods = periods.then_some(tenth);
            sample.throttled_periods = periods.then_some(tenth * 9 / 10);
            sample.throttled_ms = periods.then_some(tenth * 80);
        });
        limited.cpu_limit_cores = Some(0.05);
        limited
    };
    let mut record = with(&[limited(true)]);
    each(&mut record, |iteration| iteration.timeline[20..23].iter_mut().for_each(|slice| slice.ok = 0));
    assert_eq!(names(&record), ["throttled"], "the pauses are the throttle's");
    assert_eq!(names(&with(&[limited(false)])), NONE, "a limit alone is no throttle");
}

#[test]
fn a_convoy_needs_idle_cores_and_switches_that_grow() {
    let sweep = |cores_ms: u64, switches: [u64; 3]| {
        let loads = [2_u32, 8, 32].into_iter().zip(switches).map(|(workers, switches)| {
            let busy = component("server", move |tenth, sample| {
                sample.user_ms = tenth * cores_ms;
                sample.voluntary_switches = tenth * 10 * switches;
            });
            let us = f64::from(workers) * 10_000.0;
            let five =
                (1..=5).map(|number| Iteration { components: vec![busy.clone()], ..iteration(number, us) });
            let mut variant = variant(&format!("{workers} workers"), five.collect());
            variant.load.arrivals = Arrivals::Closed;
            (variant.load.rate_per_s, variant.load.concurrency) = (None, Some(workers));
            variant
        });
        let mut record = super::record(loads.collect());
        record.run.machines[0].cores = 2;
        let names = record.variants.iter().map(|variant| variant.name.clone()).collect();
        record.sweeps = vec![lab_analysis::record::Sweep { name: "workers".to_owned(), variants: names }];
        record
    };
    let has = |record: &Record| names(record).contains(&"lock-convoy".to_owned());
    let convoy = sweep(20, [3, 9, 31]);
    let found = findings(&convoy);
    let told = found.iter().find(|finding| finding.name == "lock-convoy").unwrap();
    assert!(told.evidence.contains("grow from 3.00 to 31.0"), "{told:?}");
    assert_eq!(told.variants, ["workers"]);
    assert!(!has(&sweep(190, [3, 9, 31])), "its cores are busy: it is only full");
    assert!(!has(&sweep(20, [3, 3, 3])), "it waits for something else");
    let mut two = sweep(20, [3, 9, 31]);
    two.sweeps.clear();
    assert!(!has(&two), "one load shows no course");
}

#[test]
fn the_sample_with_a_limit_has_the_limits_findings_only() {
    let record = sample::record(1);
    let about = |finding: &&lab_analysis::record::Finding| finding.variants == ["3x/50m"];
    let found = findings(&record);
    let names: Vec<&str> = found.iter().filter(about).map(|finding| &*finding.name).collect();
    assert_eq!(names, ["errors", "throttled", "timeouts-mapped"]);
}

/// A finding that is already in the record is not found again.
#[test]
fn findings_are_found_once() {
    let mut record = sample::record(1);
    record.findings = findings(&record);
    assert!(!record.findings.is_empty());
    assert_eq!(findings(&record), record.findings);
}

#[test]
fn a_wait_for_a_core_is_found_where_it_is_most_of_the_latency() {
    // 10 requests in a tenth of a second, of 500 µs each.
    let server = |wait: u64, cpu: u64| {
        component("server", move |tenth, sample| {
            sample.cpu_us = Some(tenth * 10 * cpu);
            sample.core_wait_us = Some(tenth * 10 * wait);
        })
    };
    let found = findings(&with(&[server(300, 100)]));
    assert_eq!(found[0].name, "waits-for-core");
    assert!(found[0].evidence.contains("a core 300 µs per request, 60.01 %"), "{found:?}");
    assert!(found[0].evidence.ends_with("they ran for 100 µs"), "{found:?}");
    assert_eq!(names(&with(&[server(200, 100)])), NONE, "not most of the latency");
    assert_eq!(names(&with(&[server(300, 350)])), NONE, "it runs longer than it waits");
    let unknown = component("server", |tenth, sample| sample.cpu_us = Some(tenth * 1000));
    assert_eq!(names(&with(&[unknown])), NONE);
}
