//! Seeded faults that a profile shows: what the threads of a real server wait for, under a real load.

use std::time::{Duration, Instant};

use lab_analysis::record::{ProfileRound, Record};
use lab_load::Interrupt;
use lab_load::load::Plan;
use lab_load::observe::profile::{ProfiledProcess, Profiler};
use lab_load::report::run_load;

use super::bridge::{ObservedServer, iteration, record, variant};
use super::check_fault;
use super::control_group::DiskLimit;
use super::faulty::FaultyServer;
use super::seeded::{closed_loop, open_loop, seen};

/// How long threads are sampled after the load.
const REST: Duration = Duration::from_millis(200);

/// A record of one variant with one iteration, and a profile from a second run of the plan.
fn profiled_record(plan: &Plan, watched: &[ObservedServer<'_>]) -> Record {
    let measured = iteration(1, plan, watched, &|| None);
    let mut variant = variant("under test", plan, vec![measured]);
    variant.profile = Some(profile(plan, watched));
    record(vec![variant])
}

fn profile(plan: &Plan, watched: &[ObservedServer<'_>]) -> ProfileRound {
    let folder = tempfile::tempdir().unwrap();
    let processes = watched.iter().map(|seen| ProfiledProcess {
        name: seen.name.to_owned(),
        pid: seen.server.pid(),
        root_only: false,
    });
    let mut profiler = Profiler::new(processes.collect(), folder.path().to_path_buf());
    let (_interrupter, interrupt) = Interrupt::manual();
    let length = Duration::from_millis(1200);
    let report = std::thread::scope(|scope| {
        let load = scope.spawn(|| run_load(plan).unwrap());
        interrupt.sleep(2 * plan.warmup);
        profiler.record_under_load(length, &interrupt);
        load.join().unwrap()
    });
    let ended = Instant::now();
    profiler.record_at_rest(REST, &interrupt);
    assert!(ended.elapsed() >= REST / 2, "threads were sampled at rest");
    let ok = report.statuses.iter().map(|row| row.latency_us.mean * row.count as f64).sum::<f64>();
    let count = report.statuses.iter().map(|row| row.count).sum::<u64>() as f64;
    ProfileRound {
        round: 2,
        seconds: length.as_secs_f64(),
        per_s: count / report.totals.seconds,
        mean_in_flight: Some(report.totals.mean_in_flight),
        mean_us: Some(ok / count),
        components: profiler.finish(),
    }
}

#[test]
fn no_fault() {
    check_fault("no fault, profiled", || {
        let backend = FaultyServer::start("none");
        let gateway = FaultyServer::start(&format!("ask {} 1 always 5000000", backend.address));
        profiled_record(
            &open_loop(&gateway, 200.0, 2.0),
            &[seen("gateway", &gateway), seen("backend", &backend)],
        )
    });
}

#[test]
fn a_lock() {
    let found = check_fault("a lock that every request holds for a while", || {
        let server = FaultyServer::start("convoy 2000");
        profiled_record(&closed_loop(&server, 8, 2.0), &[seen("server", &server)])
    });
    assert!(found.evidence.contains("threads of `server` waited for a lock"), "{found:?}");
}

#[test]
fn a_disk() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    if let Err(why) = DiskLimit::new(folder, WRITES_PER_S) {
        println!("skipped: a control group that limits the disk of {folder} cannot be made here: {why}");
        return;
    }
    let found = check_fault("a file that every request syncs to its disk", || {
        let server = FaultyServer::start("sync 4");
        let limit = DiskLimit::new(folder, WRITES_PER_S).unwrap();
        limit.take(&server).unwrap();
        let record = profiled_record(&open_loop(&server, 5.0, 3.0), &[seen("server", &server)]);
        drop(server);
        record
    });
    assert!(found.evidence.contains("threads of `server` waited for a disk"), "{found:?}");
}

/// Writes per second of a slow disk. The kernel lets a tenth of them through at once, which is less
/// than a request needs.
const WRITES_PER_S: u32 = 100;

#[test]
fn a_pause() {
    let found = check_fault("a pause in every request", || {
        let server = FaultyServer::start("wait 20000");
        profiled_record(&open_loop(&server, 100.0, 2.0), &[seen("server", &server)])
    });
    assert!(found.evidence.contains("threads of `server` slept"), "{found:?}");
}

#[test]
fn one_thread() {
    let found = check_fault("one thread that does the work of all", || {
        let server = FaultyServer::start("one-thread 2000");
        profiled_record(&closed_loop(&server, 6, 2.0), &[seen("server", &server)])
    });
    assert!(found.evidence.contains("of `server` ran"), "{found:?}");
}
