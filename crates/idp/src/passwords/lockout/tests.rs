use super::*;

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Locks from the 3rd failure on for 10, 20, 40, 60, 60, … s; halves every 100 s.
fn limits() -> Limits {
    Limits::new(3, secs(10), secs(60), secs(100)).unwrap()
}

fn policy() -> Policy {
    Policy::new(limits(), Limits::new(6, secs(10), secs(60), secs(100)).unwrap()).unwrap()
}

/// `n` failures, each exactly at the end of the previous lock.
fn failed(n: u32) -> (Record, Timestamp) {
    let (mut record, mut now) = (limits().after_failure(None, START), START);
    for _ in 1..n {
        now = now.max(record.locked_until);
        record = limits().after_failure(Some(&record), now);
    }
    (record, now)
}

fn locked(seconds: u64) -> Gate {
    Gate::Locked { retry_after: secs(seconds) }
}

#[test]
fn the_first_failures_lock_nothing_and_the_next_ones_double_up_to_the_cap() {
    for (n, lock) in [(1, 0), (2, 0), (3, 10), (4, 20), (5, 40), (6, 60), (7, 60), (40, 60), (70, 60)] {
        let (record, now) = failed(n);
        assert_eq!(record.failures, n);
        assert_eq!((record.first, record.last), (START, now));
        assert_eq!(record.locked_until, now.plus(secs(lock)), "{n} failures");
        let gate = policy().decide(Some(&record), None, now);
        assert_eq!(gate, if lock == 0 { Gate::Allowed } else { locked(lock) }, "{n} failures");
    }
}

#[test]
fn locked_means_now_is_before_the_end() {
    let (record, now) = failed(3);
    let end = now.plus(secs(10));
    for (now, gate) in [
        (now, locked(10)),
        (end.minus(Duration::from_millis(1)), Gate::Locked { retry_after: Duration::from_millis(1) }),
        (end, Gate::Allowed),
        (end.plus(Duration::from_millis(1)), Gate::Allowed),
        (Timestamp::MAX, Gate::Allowed),
    ] {
        assert_eq!(policy().decide(Some(&record), None, now), gate, "{now:?}");
    }
}

#[test]
fn the_longer_of_two_locks_counts() {
    let lock = |seconds| Record { locked_until: START.plus(secs(seconds)), ..failed(1).0 };
    let none = lock(0);
    for (account, network, gate) in [
        (None, None, Gate::Allowed),
        (Some(none), Some(none), Gate::Allowed),
        (Some(lock(5)), None, locked(5)),
        (None, Some(lock(7)), locked(7)),
        (Some(lock(5)), Some(lock(7)), locked(7)),
        (Some(lock(9)), Some(lock(7)), locked(9)),
        (Some(none), Some(lock(7)), locked(7)),
    ] {
        assert_eq!(policy().decide(account.as_ref(), network.as_ref(), START), gate);
    }
}

#[test]
fn failures_are_forgotten_by_halves_after_the_lock_has_ended() {
    let (record, _) = failed(6);
    let end = record.locked_until;
    for (quiet, failures) in [(0, 7), (99_999, 7), (100_000, 4), (199_999, 4), (200_000, 2), (300_000, 1)] {
        let next = limits().after_failure(Some(&record), end.plus(Duration::from_millis(quiet)));
        assert_eq!(next.failures, failures, "after {quiet} ms");
    }
    // 7 → 3 + 1 is still beyond the threshold: the count of a slow attacker is not reset.
    let next = limits().after_failure(Some(&record), end.plus(secs(100)));
    assert_eq!(policy().decide(Some(&next), None, next.last), locked(20));
}

#[test]
fn a_record_that_is_forgotten_starts_anew() {
    let (record, _) = failed(6);
    let late = record.locked_until.plus(secs(300));
    assert!(!limits().is_expired(&record, record.locked_until.plus(Duration::from_millis(299_999))));
    assert!(limits().is_expired(&record, late));
    assert!(limits().is_expired(&record, Timestamp::MAX));
    let next = limits().after_failure(Some(&record), late);
    assert_eq!(next, Record { failures: 1, first: late, last: late, locked_until: late });
}

#[test]
fn a_lock_set_by_hand_is_not_forgotten_before_its_end() {
    let record = Record { failures: 0, locked_until: Timestamp::MAX, ..failed(1).0 };
    assert!(!limits().is_expired(&record, START.plus(MAX_DELAY)));
    assert!(matches!(policy().decide(Some(&record), None, START), Gate::Locked { .. }));
}

#[test]
fn a_failure_under_way_when_the_lock_began_never_shortens_it() {
    let (record, now) = failed(5);
    let mut concurrent = record;
    for _ in 0..10 {
        let next = limits().after_failure(Some(&concurrent), now);
        assert!(next.locked_until >= concurrent.locked_until && next.failures == concurrent.failures + 1);
        concurrent = next;
    }
    assert_eq!(concurrent.locked_until, now.plus(secs(60)), "the cap holds for bursts too");
}

#[test]
fn a_clock_that_went_back_forgets_and_shortens_nothing() {
    let (record, now) = failed(4);
    let earlier = now.minus(secs(1000));
    let next = limits().after_failure(Some(&record), earlier);
    assert_eq!(next.failures, 5);
    assert_eq!((next.first, next.last), (earlier, now));
    assert_eq!(next.locked_until, record.locked_until);
}

#[test]
fn counters_saturate() {
    let full = Record { failures: u32::MAX, ..failed(6).0 };
    let next = limits().after_failure(Some(&full), full.last);
    assert_eq!(next.failures, u32::MAX);
    assert_eq!(next.locked_until, full.last.plus(secs(60)));
    let end = limits().after_failure(Some(&full), Timestamp::MAX);
    assert_eq!(end.failures, 1);
}

#[test]
fn over_any_series_of_attempts_the_locks_stay_within_the_cap_and_the_order_of_time() {
    // A fixed linear congruential generator: many series, identical in each run.
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..200 {
        let (mut record, mut now) = (None::<Record>, START);
        for _ in 0..50 {
            now = now.plus(Duration::from_millis(random(40_000)));
            if policy().decide(record.as_ref(), None, now) != Gate::Allowed {
                continue;
            }
            let next = limits().after_failure(record.as_ref(), now);
            assert!(next.first <= next.last && next.last == now);
            assert!(next.locked_until.since(now) <= secs(60));
            assert_eq!(next.locked_until > now, next.failures >= 3);
            assert!(next.failures <= record.map_or(0, |r| r.failures) + 1);
            record = Some(next);
        }
    }
}

#[test]
fn limits_out_of_bounds_are_refused_by_name() {
    let (s, day) = (secs(1), MAX_DELAY);
    let more = |d: Duration| d + Duration::from_millis(1);
    assert_eq!(Limits::new(0, s, s, s), Err(LimitFault::Threshold(0)));
    assert_eq!(Limits::new(MAX_THRESHOLD + 1, s, s, s), Err(LimitFault::Threshold(MAX_THRESHOLD + 1)));
    assert_eq!(Limits::new(1, secs(0), s, s), Err(LimitFault::Delay(secs(0))));
    assert_eq!(Limits::new(1, more(s), s, s), Err(LimitFault::Delay(more(s))));
    assert_eq!(Limits::new(1, s, more(day), s), Err(LimitFault::Cap(more(day))));
    assert_eq!(Limits::new(1, s, s, secs(0)), Err(LimitFault::Quiet(secs(0))));
    assert_eq!(Limits::new(1, s, s, more(day)), Err(LimitFault::Quiet(more(day))));
    assert!(Limits::new(1, s, s, s).is_ok() && Limits::new(MAX_THRESHOLD, day, day, day).is_ok());
    assert_eq!(
        Policy::new(limits(), limits()).unwrap_err().to_string(),
        "network threshold 3 is not above account threshold 3: raise it, many users share a network"
    );
    assert_eq!(
        LimitFault::Delay(Duration::from_millis(500)).to_string(),
        "first lock of 0.5 s out of bounds: use 1 s up to the longest lock"
    );
}

#[test]
fn the_defaults_pass_their_own_check() {
    for l in [Limits::ACCOUNT, Limits::NETWORK] {
        assert_eq!(Limits::new(l.threshold, l.delay, l.cap, l.quiet), Ok(l));
    }
    assert_eq!(Policy::new(Limits::ACCOUNT, Limits::NETWORK), Ok(Policy::default()));
}

#[test]
fn a_network_is_one_address_of_ipv4_and_a_64_of_ipv6() {
    for (caller, network) in [
        ("192.0.2.1", "192.0.2.1/32"),
        ("192.0.2.2", "192.0.2.2/32"),
        ("::ffff:192.0.2.1", "192.0.2.1/32"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff:ffff:ffff:ffff", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
    ] {
        assert_eq!(Network::of(caller.parse().unwrap()).to_string(), network, "{caller}");
    }
}
