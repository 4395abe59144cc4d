//! Timeouts in made-up records.

use lab_analysis::diagnose::findings;
use lab_analysis::record::Outcome;

use super::made_up::{class, each, names, with};

#[test]
fn refusals_are_timeouts_only_where_they_cluster_at_one() {
    let refused = |status: u16, ns: &dyn Fn(u64) -> u64| {
        let mut record = with(&[]);
        each(&mut record, |iteration| {
            iteration.classes.push(class(Outcome::Refused, status, (0..20).map(ns)));
        });
        record
    };
    assert_eq!(names(&refused(403, &|at| 5_000_000_000 + at * 2_000_000)), ["errors", "timeouts-mapped"]);
    assert_eq!(names(&refused(504, &|at| 5_000_000_000 + at * 2_000_000)), ["errors"], "504 says so itself");
    assert_eq!(
        names(&refused(403, &|at| 3_000_000_000 + at * 200_000_000)),
        ["errors"],
        "they take any time"
    );
    assert_eq!(
        names(&refused(403, &|at| 7_300_000_000 + at * 2_000_000)),
        ["errors"],
        "nobody sets such a timeout"
    );
    assert_eq!(names(&refused(403, &|_| 400_000)), ["errors"], "they are as quick as any answer");
    let some_sooner =
        |sooner| move |at| if at < sooner { 90_000_000 } else { 5_000_000_000 + at * 2_000_000 };
    let half = refused(403, &some_sooner(10));
    assert_eq!(names(&half), ["errors", "timeouts-mapped"], "what waited behind a fault");
    assert!(findings(&half)[1].evidence.starts_with("50 of 100 responses with status 403"), "those alone");
    assert_eq!(names(&refused(403, &some_sooner(11))), ["errors"], "most are refused for another reason");
    let no_edge = |at| 4_200_000_000 + at * 75_000_000;
    assert_eq!(names(&refused(403, &no_edge)), ["errors"], "they come before as after it");
    // Latencies like those of Envoy with a busy event loop.
    let busy = |sooner: u64| move |at: u64| 200_000_000 + at * 400_000 - sooner * 1_000_000;
    assert_eq!(names(&refused(403, &busy(5))), ["errors", "timeouts-mapped"]);
    assert_eq!(names(&refused(403, &busy(10))), ["errors"], "no timer is so early");
}

#[test]
fn what_came_through_late_does_not_hide_a_timeout_of_nearly_all() {
    let mostly_late = |good: u64| {
        let mut record = with(&[]);
        each(&mut record, |iteration| {
            iteration.classes = vec![
                class(Outcome::Ok, 200, (0..good).map(|_| 207_000_000)),
                class(Outcome::Refused, 403, (0..400).map(|at| 200_000_000 + at * 20_000)),
            ];
        });
        findings(&record).iter().any(|finding| finding.name == "timeouts-mapped")
    };
    assert!(mostly_late(1));
    assert!(!mostly_late(40), "good answers take as long: that is how long it takes");
}

/// Latencies like those of Envoy with a timeout of 200 ms, in front of an authorizer with too
/// little CPU. A success waits as well, sometimes as long as the timeout. Some refusals come early,
/// when a connection breaks.
#[test]
fn a_timeout_shows_where_good_answers_wait_as_long_and_some_refusals_come_sooner() {
    let waiting = |usual: u64| {
        let mut record = with(&[]);
        each(&mut record, |iteration| {
            let good = (0..100).map(|at| usual - 95_000_000 + at * 2_000_000);
            let refused = (0..100).map(|at| match at {
                0..25 => 20_000_000 + at * 7_000_000,
                25..90 => 198_000_000 + at * 100_000,
                _ => 212_000_000 + at * 200_000,
            });
            iteration.classes = vec![class(Outcome::Ok, 200, good), class(Outcome::Refused, 403, refused)];
        });
        findings(&record).into_iter().find(|finding| finding.name == "timeouts-mapped")
    };
    let found = waiting(95_000_000).expect("the cluster shows");
    assert!(
        found.evidence.contains("status 403 came after 194 ms to 230 ms, at a timeout of 200 ms"),
        "{found:?}"
    );
    assert!(waiting(165_000_000).is_none(), "the usual good one takes hardly less");
}

/// A cached credential is admitted immediately. Others are checked, and every refusal is one of
/// these.
#[test]
fn what_takes_as_long_for_good_ones_is_no_timeout() {
    let asked_about = |good: u64| {
        let mut record = with(&[]);
        each(&mut record, |iteration| {
            let admitted = (0..100).map(|at| if at < good { 105_000_000 + at * 400_000 } else { 1_000_000 });
            iteration.classes = vec![
                class(Outcome::Ok, 200, admitted),
                class(Outcome::Refused, 403, (0..100).map(|at| 104_000_000 + at * 60_000)),
            ];
        });
        findings(&record).iter().any(|finding| finding.name == "timeouts-mapped")
    };
    assert!(!asked_about(15));
    assert!(asked_about(0));
}
