//! Seeded faults: real servers with one fault each, under a real load for a few seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab_analysis::record::{Ladder, Record, Rung, Sweep};
use lab_load::load::{Plan, Protocol, RequestTemplate, Schedule, Stop, TokenChoice};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::bridge::{ObservedServer, iteration, record, variant};
use super::check_fault;
use super::control_group::CpuLimit;
use super::faulty::FaultyServer;

/// Plan of an open loop over 16 connections.
pub(super) fn open_loop(server: &FaultyServer, rate: f64, seconds: f64) -> Plan {
    Plan {
        target: crate::target(&server.url(), Protocol::Http1),
        flow: RequestTemplate::get(),
        schedule: crate::open(rate),
        stop: Stop::After(Duration::from_secs_f64(seconds)),
        warmup: Duration::from_millis(200),
        connections: 16,
        streams: 1,
        timeout: Duration::from_secs(5),
        seed: 1,
        watch: Vec::new(),
    }
}

/// Plan of a closed loop.
pub(super) fn closed_loop(server: &FaultyServer, workers: usize, seconds: f64) -> Plan {
    let schedule = Schedule::Closed { concurrency: workers };
    Plan { schedule, connections: workers, ..open_loop(server, 0.0, seconds) }
}

pub(super) fn seen<'a>(name: &'a str, server: &'a FaultyServer) -> ObservedServer<'a> {
    ObservedServer { name, server, limit: None }
}

/// A record of one variant with one iteration.
fn single_iteration_record(plan: &Plan, watched: &[ObservedServer<'_>]) -> Record {
    record(vec![variant("under test", plan, vec![iteration(1, plan, watched, &|| None)])])
}

/// A gateway that calls an authority `times` per request, with or without a cache.
fn gateway_calling(authority: &FaultyServer, times: u32, cache: bool, timeout: Duration) -> FaultyServer {
    let cache = if cache { "cache" } else { "always" };
    FaultyServer::start(&format!("ask {} {times} {cache} {}", authority.address, timeout.as_micros()))
}

/// Runs `work` while busy threads use the core to which a server is bound.
fn beside_busy_threads<T>(server: &FaultyServer, work: impl FnOnce() -> T) -> T {
    const BUSY: usize = 6;
    let before = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).rev().find(|core| before.is_set(*core)).unwrap());
    // Threads that these start later are bound too.
    for thread in server.threads() {
        sched_setaffinity(Pid::from_raw(thread), &one).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..BUSY {
            scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// Runs `work` on one core, of which a busy thread uses the other half.
fn with_half_a_core<T>(work: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|core| before.is_set(*core)).unwrap());
    sched_setaffinity(None, &one).unwrap();
    let over = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    });
    sched_setaffinity(None, &before).unwrap();
    done
}

const PATIENT: Duration = Duration::from_secs(5);

#[test]
fn no_fault() {
    check_fault("no fault", || {
        let authority = FaultyServer::start("none");
        let gateway = gateway_calling(&authority, 1, false, PATIENT);
        single_iteration_record(
            &open_loop(&gateway, 200.0, 2.0),
            &[seen("gateway", &gateway), seen("authority", &authority)],
        )
    });
}

#[test]
fn a_cpu_limit() {
    if let Err(why) = CpuLimit::new(0.1) {
        println!("skipped: a control group with a CPU limit cannot be made here: {why}");
        return;
    }
    let found = check_fault("a CPU limit that is too low", || {
        let server = FaultyServer::start("work 2000");
        let limit = CpuLimit::new(0.1).unwrap();
        limit.take(&server).unwrap();
        let plan = closed_loop(&server, 8, 3.0);
        let record = single_iteration_record(
            &plan,
            &[ObservedServer { limit: Some(&limit), ..seen("proxy", &server) }],
        );
        drop(server);
        record
    });
    assert!(found.evidence.contains("`proxy` used up its 0.1 cores"), "{found:?}");
    // 0.1 cores ÷ slightly more than 2 ms are less than 50 requests a second, and that rate was
    // measured.
    let rate = |after: &str| -> f64 {
        let rest = found.evidence.split(after).nth(1).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let (implied, measured) = (rate("CPU per successful response allow "), rate("measured "));
    assert!(implied < 60.0 && (implied / measured - 1.0).abs() < 0.3, "{found:?}");
}

#[test]
fn a_slow_backend() {
    let found = check_fault("a slow backend", || {
        let backend = FaultyServer::start("wait 20000");
        let gateway = gateway_calling(&backend, 1, false, PATIENT);
        let (direct, whole) = (open_loop(&backend, 100.0, 1.5), open_loop(&gateway, 100.0, 1.5));
        let bare = iteration(1, &direct, &[seen("backend", &backend)], &|| None);
        let full = iteration(1, &whole, &[seen("gateway", &gateway), seen("backend", &backend)], &|| None);
        let mut record =
            record(vec![variant("bare", &direct, vec![bare]), variant("through", &whole, vec![full])]);
        let rung = |adds: &str, variant: &str| Rung { adds: adds.to_owned(), variant: variant.to_owned() };
        let rungs = vec![rung("backend", "bare"), rung("gateway", "through")];
        record.ladders = vec![Ladder { name: "gateway".to_owned(), rungs }];
        record
    });
    assert_eq!(found.variants, ["through"]);
    assert!(found.evidence.contains("(`bare`)"), "{found:?}");
}

#[test]
fn the_generator_is_too_slow() {
    check_fault("more load than the generator can send", || {
        let server = FaultyServer::start("none");
        let (timeout, connections) = (Duration::from_millis(300), 256);
        let plan = Plan { timeout, connections, ..open_loop(&server, 400_000.0, 1.0) };
        // The server must always be faster than the generator, whatever else runs on the machine.
        with_half_a_core(|| single_iteration_record(&plan, &[seen("server", &server)]))
    });
}

#[test]
fn connection_churn() {
    let found = check_fault("a new connection for each request", || {
        let server = FaultyServer::start("none");
        let mut plan = open_loop(&server, 200.0, 1.5);
        plan.flow.keep_alive = false;
        single_iteration_record(&plan, &[seen("server", &server)])
    });
    assert!(found.evidence.contains("none is kept open"), "{found:?}");
}

#[test]
fn a_cold_cache() {
    let found = check_fault("an empty cache in front of the token authority", || {
        let authority = FaultyServer::start("none");
        let gateway = gateway_calling(&authority, 1, true, PATIENT);
        let mut plan = open_loop(&gateway, 300.0, 2.0);
        plan.warmup = Duration::ZERO;
        plan.flow.tokens = (0..100).map(|number| format!("token-{number}")).collect();
        plan.flow.choice = TokenChoice::RoundRobin;
        single_iteration_record(&plan, &[seen("gateway", &gateway), seen("authority", &authority)])
    });
    assert!(found.evidence.contains("`authority` received"), "{found:?}");
}

#[test]
fn one_slow_iteration() {
    let found = check_fault("one iteration with a slower server", || {
        let server = FaultyServer::start("none");
        let plan = open_loop(&server, 300.0, 0.5);
        let iterations = (1..=7).map(|number| {
            server.get(if number == 4 { "/slow?30000" } else { "/slow?2000" });
            iteration(number, &plan, &[seen("server", &server)], &|| None)
        });
        record(vec![variant("under test", &plan, iterations.collect())])
    });
    assert!(found.evidence.contains("P50 of iteration 4"), "{found:?}");
}

#[test]
fn a_key_rotation() {
    let found = check_fault("a key rotation that is detected late", || {
        let server = FaultyServer::start("rotation 250000");
        let plan = open_loop(&server, 300.0, 2.0);
        let rotate = || {
            std::thread::sleep(Duration::from_secs(1));
            server.get("/rotate");
            Some("key rotation")
        };
        let measured = iteration(1, &plan, &[seen("server", &server)], &rotate);
        record(vec![variant("under test", &plan, vec![measured])])
    });
    assert!(found.evidence.contains("(401)") && found.evidence.contains("near key rotation"), "{found:?}");
}

#[test]
fn memory_that_grows() {
    let found = check_fault("memory that every request leaks", || {
        let server = FaultyServer::start("keep 50000");
        single_iteration_record(&open_loop(&server, 300.0, 2.5), &[seen("server", &server)])
    });
    let each = found.evidence.split(" in the last, ").nth(1).unwrap().split(" bytes").next().unwrap();
    let each: f64 = each.replace('\u{202f}', "").parse().unwrap();
    assert!((each / 50_000.0 - 1.0).abs() < 0.3, "{found:?}");
}

#[test]
fn a_lock_convoy() {
    check_fault("threads that contend for one lock", || {
        let server = FaultyServer::start("convoy 2000");
        let loads = [2, 6, 24].map(|workers| {
            let plan = closed_loop(&server, workers, 1.0);
            let measured = iteration(1, &plan, &[seen("server", &server)], &|| None);
            variant(&format!("{workers} workers"), &plan, vec![measured])
        });
        let names = loads.iter().map(|load| load.name.clone()).collect();
        let mut record = record(loads.to_vec());
        record.sweeps = vec![Sweep { name: "workers".to_owned(), variants: names }];
        record
    });
}

#[test]
fn many_calls_for_a_request() {
    let found = check_fault("many calls to the token authority per request", || {
        let authority = FaultyServer::start("none");
        let gateway = gateway_calling(&authority, 8, false, PATIENT);
        single_iteration_record(
            &open_loop(&gateway, 60.0, 1.5),
            &[seen("gateway", &gateway), seen("authority", &authority)],
        )
    });
    assert!(found.evidence.contains("`authority`") && !found.evidence.contains("`gateway`"), "{found:?}");
}

#[test]
fn pauses_of_a_collector() {
    let found = check_fault("a garbage collector that stops the program", || {
        let server = FaultyServer::start("pauses 450000 170000");
        single_iteration_record(&open_loop(&server, 300.0, 3.0), &[seen("server", &server)])
    });
    assert!(found.evidence.contains("`server` used"), "{found:?}");
}

#[test]
fn timeouts_reported_as_403() {
    let found = check_fault("a token authority that times out, reported as 403", || {
        let authority = FaultyServer::start("silent 10");
        let gateway = gateway_calling(&authority, 1, false, Duration::from_millis(500));
        let plan = Plan { connections: 32, ..open_loop(&gateway, 200.0, 2.0) };
        single_iteration_record(&plan, &[seen("gateway", &gateway), seen("authority", &authority)])
    });
    assert!(
        found.evidence.contains("status 403") && found.evidence.contains("timeout of 500 ms"),
        "{found:?}"
    );
}

#[test]
fn a_full_server() {
    let found = check_fault("a rate above the server's capacity", || {
        let server = FaultyServer::start("serial 5000");
        let timeout = Duration::from_secs(1);
        single_iteration_record(
            &Plan { timeout, ..open_loop(&server, 600.0, 1.5) },
            &[seen("server", &server)],
        )
    });
    assert!(found.evidence.starts_with("600 requests/s were offered"), "{found:?}");
}

#[test]
fn a_backend_that_stalls() {
    let found = check_fault("a backend that stalls for a second", || {
        let server = FaultyServer::start("stall 250 1000000");
        single_iteration_record(&open_loop(&server, 200.0, 3.0), &[seen("server", &server)])
    });
    assert!(found.evidence.contains("no observed program used CPU"), "{found:?}");
}

#[test]
fn busy_programs_on_the_servers_core() {
    let found = check_fault("busy programs on the server's core", || {
        // A closed loop, so that the server always has work: a thread that wants less than its share
        // of a core hardly waits for it.
        let server = FaultyServer::start("work 2000");
        let plan = closed_loop(&server, 2, 3.0);
        beside_busy_threads(&server, || single_iteration_record(&plan, &[seen("server", &server)]))
    });
    assert!(found.evidence.contains("`server` were ready to run and waited for a core"), "{found:?}");
}
