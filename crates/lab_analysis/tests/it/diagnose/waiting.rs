//! Constructed profiles: what threads wait for is found only where most requests wait so, and only
//! because of them.

use lab_analysis::record::{Activity, ActivityThreads, ComponentProfile, ProfileRound, Record, ThreadUse};

use super::made_up::{component, names, with};

/// Threads with one activity, under load and at rest.
fn threads(activity: Activity, under_load: f64, at_rest: Option<f64>) -> ActivityThreads {
    ActivityThreads { activity, under_load, at_rest }
}

/// A record with a profile of `server`, with this number of requests in flight.
fn profiled(in_flight: Option<f64>, activities: Vec<ActivityThreads>, threads: Vec<ThreadUse>) -> Record {
    let mut record = with(&[component("server", |_, _| ())]);
    let server = ComponentProfile {
        component: "server".to_owned(),
        activities,
        threads,
        on_cpu: None,
        off_cpu: None,
        notes: Vec::new(),
    };
    record.variants[0].profile = Some(ProfileRound {
        round: 6,
        seconds: 5.0,
        per_s: 100.0,
        mean_in_flight: in_flight,
        mean_us: Some(500.0),
        components: vec![server],
    });
    record
}

fn waiting(activity: Activity, under_load: f64, at_rest: Option<f64>, in_flight: Option<f64>) -> Vec<String> {
    names(&profiled(in_flight, vec![threads(activity, under_load, at_rest)], Vec::new()))
}

const NONE: [&str; 0] = [];

#[test]
fn a_wait_is_found_where_most_requests_have_it() {
    for (activity, name) in
        [(Activity::Lock, "waits-for-lock"), (Activity::Disk, "waits-for-disk"), (Activity::Sleep, "sleeps")]
    {
        assert_eq!(waiting(activity, 7.0, Some(0.0), Some(8.0)), [name]);
        assert_eq!(waiting(activity, 3.0, Some(0.0), Some(8.0)), NONE, "a minority of the requests");
        assert_eq!(waiting(activity, 7.0, Some(6.5), Some(8.0)), NONE, "they wait at rest too: a pool");
        assert_eq!(waiting(activity, 7.0, None, Some(8.0)), NONE, "not known what they do at rest");
        assert_eq!(waiting(activity, 7.0, Some(0.0), None), NONE, "not known how many requests there were");
        assert_eq!(waiting(activity, 0.01, Some(0.0), Some(0.01)), NONE, "within the error of samples");
    }
}

#[test]
fn a_lock_matters_only_where_requests_queue() {
    assert_eq!(waiting(Activity::Lock, 0.9, Some(0.0), Some(1.0)), NONE);
    assert_eq!(waiting(Activity::Disk, 0.9, Some(0.0), Some(1.0)), ["waits-for-disk"]);
}

#[test]
fn waits_that_every_server_has_are_no_finding() {
    for activity in [Activity::Ready, Activity::Poll, Activity::Connection, Activity::Other] {
        assert_eq!(waiting(activity, 9.0, Some(0.0), Some(8.0)), NONE);
    }
}

#[test]
fn one_thread_that_never_rests_is_the_limit() {
    let use_of = |core_share, core_wait_share| ThreadUse {
        name: "loop".to_owned(),
        core_share,
        core_wait_share: Some(core_wait_share),
    };
    let of = |threads, in_flight| names(&profiled(Some(in_flight), Vec::new(), threads));
    let alone = vec![use_of(0.95, 0.03), use_of(0.1, 0.0)];
    assert_eq!(of(alone.clone(), 6.0), ["one-thread-bound"]);
    assert_eq!(of(alone.clone(), 1.0), NONE, "no request waits");
    assert_eq!(of(vec![use_of(0.95, 0.03), use_of(0.9, 0.0)], 6.0), NONE, "two of them");
    assert_eq!(of(vec![use_of(0.6, 0.1)], 6.0), NONE, "it rests");
    let mut limited = profiled(Some(6.0), Vec::new(), alone.clone());
    for component in limited.variants[0].iterations.iter_mut().flat_map(|one| &mut one.components) {
        component.cpu_limit_cores = Some(1.0);
    }
    assert_eq!(names(&limited), NONE, "it may not use a second core");
    // Threads that wait for the result of that one are explained by it.
    let waiting = vec![threads(Activity::Lock, 5.0, Some(0.0))];
    assert_eq!(names(&profiled(Some(6.0), waiting, alone)), ["one-thread-bound"]);
}
