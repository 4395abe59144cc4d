//! The decision cache: bounds, lifetimes, coalescing, flushes.

use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use credentials::cache::{
    CacheKey, CacheLookup, CacheSecret, DecisionCache, Flight, FlightResult, FlightVoided, Generation,
    Lifetime, Ticket, Usage, Weigh,
};
use credentials::config::CacheLimits;
use http_engine::clock::{Clock, ManualClock, Now};

const TTL: Duration = Duration::from_mins(1);
const DENY_TTL: Duration = Duration::from_secs(2);
const FOREVER: Lifetime = Lifetime { expires: Timestamp::MAX, until: None, basis: None };

#[derive(Debug, PartialEq, Eq)]
struct Fact {
    name: u64,
    weight: usize,
}

impl Weigh for Fact {
    fn weight(&self) -> usize {
        self.weight
    }
}

type Cache = DecisionCache<Fact, &'static str>;

struct Bench {
    cache: Cache,
    secret: CacheSecret,
    clock: ManualClock,
}

impl Bench {
    fn new(bytes: usize, deny_entries: usize) -> Self {
        let limits = CacheLimits { bytes, ttl: TTL, deny_ttl: DENY_TTL, deny_entries };
        Self {
            cache: DecisionCache::new(&limits, Generation::default()),
            secret: CacheSecret::new([7; 16]),
            clock: ManualClock::new(Timestamp::from_secs(1_000_000)),
        }
    }

    fn key(&self, name: u64) -> CacheKey {
        self.secret.scope(1, 1).key(&name.to_le_bytes())
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn lookup(&self, name: u64) -> CacheLookup<Fact, &'static str> {
        self.cache.lookup(self.key(name), self.now())
    }

    fn ticket(&self, name: u64) -> Ticket<Fact, &'static str> {
        match self.lookup(name) {
            CacheLookup::Miss(ticket) => ticket,
            other => panic!("{name}: expected a miss, found {}", word(&other)),
        }
    }

    fn flight(&self, name: u64) -> Flight<Fact, &'static str> {
        match self.lookup(name) {
            CacheLookup::Pending(flight) => flight,
            other => panic!("{name}: expected a flight, found {}", word(&other)),
        }
    }

    fn fill(&self, name: u64, weight: usize) {
        self.ticket(name).fill(Fact { name, weight }, FOREVER, self.now()).unwrap();
    }

    /// The result of a lookup as a word; the ticket of a miss is dropped.
    fn sees(&self, name: u64) -> &'static str {
        word(&self.lookup(name))
    }
}

fn word(lookup: &CacheLookup<Fact, &'static str>) -> &'static str {
    match lookup {
        CacheLookup::Hit(_) => "hit",
        CacheLookup::Denied(why) => why,
        CacheLookup::Pending(_) => "pending",
        CacheLookup::Miss(_) => "miss",
    }
}

fn landing(landing: &FlightResult<Fact, &'static str>) -> String {
    match landing {
        FlightResult::Known(fact) => format!("known {}", fact.name),
        FlightResult::Denied(why) => format!("denied {why}"),
        FlightResult::Again => "again".into(),
    }
}

#[test]
fn a_filled_fact_is_hit_and_shared() {
    let bench = Bench::new(1 << 20, 16);
    let filled = bench.ticket(1).fill(Fact { name: 1, weight: 10 }, FOREVER, bench.now()).unwrap();
    let CacheLookup::Hit(found) = bench.lookup(1) else { panic!("not found") };
    assert!(Arc::ptr_eq(&filled, &found));
    assert_eq!(bench.sees(2), "miss");
}

#[test]
fn the_byte_bound_holds_under_churn() {
    for bytes in [4 << 10, 300 << 10, 1 << 20, 5 << 20] {
        let bench = Bench::new(bytes, 16);
        let mut most = 0;
        for name in 0..20_000 {
            bench.fill(name, 100 + usize::try_from(name % 37).unwrap() * 50);
            if name % 64 == 0 {
                let usage = bench.cache.usage();
                assert!(usage.bytes <= bytes, "{} of {bytes} after {name}", usage.bytes);
                most = most.max(usage.bytes);
            }
        }
        let usage = bench.cache.usage();
        assert!(usage.bytes <= bytes && usage.evicted > 0, "{usage:?}");
        // The bound is used, not only respected.
        assert!(most > bytes / 2, "at most {most} of {bytes} used");
        assert!(usage.bytes > usage.facts * 100, "the weight of the facts is counted: {usage:?}");
    }
}

#[test]
fn a_fact_heavier_than_its_shard_is_answered_but_not_stored() {
    let bench = Bench::new(16 << 10, 16);
    bench.fill(1, 100);
    let fact = bench.ticket(2).fill(Fact { name: 2, weight: 16 << 10 }, FOREVER, bench.now()).unwrap();
    assert_eq!(fact.name, 2);
    assert_eq!((bench.sees(2), bench.sees(1)), ("miss", "hit"));
}

#[test]
fn a_fact_in_use_survives_a_scan() {
    let bench = Bench::new(64 << 10, 16);
    bench.fill(0, 200);
    for name in 1..5_000 {
        assert_eq!(bench.sees(0), "hit", "gone after {name} one-time facts");
        bench.fill(name, 200);
    }
    assert!(bench.cache.usage().evicted > 4_000);
}

#[test]
fn at_its_deadline_a_fact_is_expired() {
    let bench = Bench::new(1 << 20, 16);
    let until = bench.now().monotonic + Duration::from_secs(10);
    let life = Lifetime { expires: Timestamp::MAX, until: Some(until), basis: None };
    bench.ticket(1).fill(Fact { name: 1, weight: 1 }, life, bench.now()).unwrap();
    bench.clock.advance(Duration::from_secs(10) - Duration::from_nanos(1));
    assert_eq!(bench.sees(1), "hit");
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.sees(1), "miss");
}

#[test]
fn at_exp_a_fact_is_expired() {
    let bench = Bench::new(1 << 20, 16);
    let expires = bench.now().wall.plus(Duration::from_secs(5));
    let life = Lifetime { expires, until: None, basis: None };
    bench.ticket(1).fill(Fact { name: 1, weight: 1 }, life.clone(), bench.now()).unwrap();
    bench.clock.advance(Duration::from_millis(4_999));
    assert_eq!(bench.sees(1), "hit");
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.sees(1), "miss");
    // A fact that has expired on arrival is returned to the waiters, and never found.
    let late = bench.ticket(1).fill(Fact { name: 1, weight: 1 }, life, bench.now()).unwrap();
    assert_eq!(late.name, 1);
    assert_eq!(bench.sees(1), "miss");
}

#[test]
fn setting_the_wall_clock_back_does_not_lengthen_a_life() {
    let bench = Bench::new(1 << 20, 16);
    bench.fill(1, 1);
    bench.clock.set_wall(Timestamp::from_secs(1));
    assert_eq!(bench.sees(1), "hit");
    bench.clock.advance(TTL);
    assert_eq!(bench.sees(1), "miss");
}

#[test]
fn the_time_to_live_is_jittered_down_by_at_most_a_tenth() {
    let bench = Bench::new(8 << 20, 16);
    let count = 2_000;
    for name in 0..count {
        bench.fill(name, 1);
    }
    let living = || (0..count).filter(|&name| bench.sees(name) == "hit").count();
    bench.clock.advance(TTL * 9 / 10);
    assert_eq!(living(), 2_000, "none dies before nine tenths");
    bench.clock.advance(TTL / 20);
    let half = living();
    assert!((800..1_200).contains(&half), "{half} of 2000 in the middle of the range: not spread evenly");
    bench.clock.advance(TTL / 20);
    assert_eq!(living(), 0, "none outlives the time to live");
}

#[test]
fn a_denial_lives_its_own_short_time() {
    let bench = Bench::new(1 << 20, 16);
    bench.ticket(1).deny("forged", bench.now());
    bench.clock.advance(Duration::from_nanos(1_999_999_999));
    assert_eq!(bench.sees(1), "forged");
    bench.clock.advance(Duration::from_nanos(1));
    assert_eq!(bench.sees(1), "miss");
}

#[test]
fn a_flood_of_denials_is_bounded_and_evicts_no_fact() {
    let bench = Bench::new(1 << 20, 100);
    for name in 0..500 {
        bench.fill(name, 100);
    }
    let before = bench.cache.usage();
    assert_eq!(before.evicted, 0);
    for name in 1_000..21_000 {
        bench.ticket(name).deny("forged", bench.now());
        assert_eq!(bench.sees(name), "forged", "the latest denial is remembered");
    }
    let after = bench.cache.usage();
    assert!((90..=103).contains(&after.denials), "{after:?}");
    assert_eq!((after.facts, after.bytes, after.evicted), (before.facts, before.bytes, 0));
    assert!((0..500).all(|name| bench.sees(name) == "hit"));
    assert_eq!(bench.sees(1_000), "miss", "the oldest denial went first");
}

#[test]
fn no_denial_is_remembered_when_none_is_allowed() {
    let bench = Bench::new(1 << 20, 0);
    bench.ticket(1).deny("forged", bench.now());
    assert_eq!(bench.sees(1), "miss");
}

#[test]
fn a_fact_after_a_denial_and_a_denial_after_a_fact_replace_each_other() {
    let bench = Bench::new(1 << 20, 16);
    let (first, second) = (bench.ticket(1), {
        // A flush lets a second ticket start beside the first.
        bench.cache.flush();
        bench.ticket(1)
    });
    second.fill(Fact { name: 1, weight: 1 }, FOREVER, bench.now()).unwrap();
    assert_eq!(bench.sees(1), "hit");
    first.deny("revoked", bench.now());
    assert_eq!(bench.sees(1), "revoked", "the denial dropped the fact");
    bench.clock.advance(DENY_TTL);
    assert_eq!(bench.sees(1), "miss", "and the fact does not come back");
    bench.fill(1, 1);
    assert_eq!(bench.sees(1), "hit");
    assert_eq!(bench.cache.usage().denials, 0);
}

#[tokio::test]
async fn a_thousand_concurrent_lookups_take_one_ticket() {
    let bench = Arc::new(Bench::new(1 << 20, 16));
    let ticket = bench.ticket(1);
    let waiting: Vec<_> = (0..999).map(|_| tokio::spawn(bench.flight(1).wait())).collect();
    assert_eq!(bench.cache.usage().flights, 1);
    ticket.fill(Fact { name: 1, weight: 1 }, FOREVER, bench.now()).unwrap();
    for task in waiting {
        assert_eq!(landing(&task.await.unwrap()), "known 1");
    }
    assert_eq!(bench.cache.usage().flights, 0);
}

#[test]
fn threads_that_race_verify_once() {
    let bench = Bench::new(1 << 20, 16);
    let verified = std::sync::atomic::AtomicUsize::new(0);
    let start = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                start.wait();
                for name in 0..500 {
                    match bench.lookup(name) {
                        CacheLookup::Miss(ticket) => {
                            verified.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            ticket.fill(Fact { name, weight: 1 }, FOREVER, bench.now()).unwrap();
                        }
                        CacheLookup::Pending(flight) => {
                            let landed = runtime.block_on(flight.wait());
                            assert_eq!(landing(&landed), format!("known {name}"));
                        }
                        CacheLookup::Hit(fact) => assert_eq!(fact.name, name),
                        CacheLookup::Denied(why) => panic!("{why}"),
                    }
                }
            });
        }
    });
    assert_eq!(verified.into_inner(), 500);
}

#[tokio::test]
async fn a_dropped_ticket_wakes_the_waiters_who_try_again() {
    let bench = Bench::new(1 << 20, 16);
    let ticket = bench.ticket(1);
    let (one, two) = (bench.flight(1), bench.flight(1));
    drop(ticket);
    assert_eq!(landing(&one.wait().await), "again");
    assert_eq!(landing(&two.wait().await), "again");
    // The first to retry takes the ticket, the next one waits for it.
    let ticket = bench.ticket(1);
    let flight = bench.flight(1);
    ticket.deny("forged", bench.now());
    assert_eq!(landing(&flight.wait().await), "denied forged");
}

#[tokio::test]
async fn an_error_answers_those_who_wait_and_is_never_stored() {
    let bench = Bench::new(1 << 20, 16);
    let ticket = bench.ticket(1);
    let flight = bench.flight(1);
    ticket.fail("unavailable");
    assert_eq!(landing(&flight.wait().await), "denied unavailable");
    assert_eq!(bench.sees(1), "miss");
    assert_eq!(bench.cache.usage(), Usage::default());
}

#[tokio::test]
async fn a_flush_voids_what_is_stored_and_a_fill_begun_before_it() {
    let bench = Bench::new(1 << 20, 16);
    bench.fill(1, 1);
    let ticket = bench.ticket(2);
    let flight = bench.flight(2);
    bench.cache.flush();
    assert_eq!(bench.sees(1), "miss", "stored before the flush");
    let fill = ticket.fill(Fact { name: 2, weight: 1 }, FOREVER, bench.now());
    assert_eq!(fill, Err(FlightVoided));
    assert_eq!(landing(&flight.wait().await), "again");
    assert_eq!(bench.sees(2), "miss");
    bench.fill(2, 1);
    assert_eq!(bench.sees(2), "hit");
}

#[tokio::test]
async fn a_flight_begun_before_a_flush_is_not_joined_after_it() {
    let bench = Bench::new(1 << 20, 16);
    let old = bench.ticket(1);
    bench.cache.flush();
    let new = bench.ticket(1);
    let flight = bench.flight(1);
    // The end of the old one neither answers nor removes the new flight.
    assert_eq!(old.fill(Fact { name: 0, weight: 1 }, FOREVER, bench.now()), Err(FlightVoided));
    assert_eq!(bench.sees(1), "pending");
    new.fill(Fact { name: 1, weight: 1 }, FOREVER, bench.now()).unwrap();
    assert_eq!(landing(&flight.wait().await), "known 1");
}

#[tokio::test]
async fn a_closed_flight_answers_those_who_wait_already_and_nobody_else() {
    let bench = Bench::new(1 << 20, 16);
    let old = bench.ticket(1);
    let (early, began) = (bench.flight(1), bench.now());
    old.close();
    let new = bench.ticket(1);
    let late = bench.flight(1);
    // A fact that may not be cached expires at once.
    let over = Lifetime { until: Some(began.monotonic), ..FOREVER };
    old.fill(Fact { name: 0, weight: 1 }, over, bench.now()).unwrap();
    assert_eq!(landing(&early.wait().await), "known 0");
    assert_eq!(bench.sees(1), "pending");
    new.fill(Fact { name: 1, weight: 1 }, FOREVER, bench.now()).unwrap();
    assert_eq!(landing(&late.wait().await), "known 1");
}

#[tokio::test]
async fn an_answer_is_compared_with_the_generation_when_its_waiter_wakes() {
    let bench = Bench::new(1 << 20, 16);
    let ticket = bench.ticket(1);
    let flight = bench.flight(1);
    ticket.fill(Fact { name: 1, weight: 1 }, FOREVER, bench.now()).unwrap();
    bench.cache.flush();
    assert_eq!(landing(&flight.wait().await), "again");
}

#[test]
fn flushed_facts_are_swept_by_later_fills() {
    let bench = Bench::new(8 << 20, 16);
    for name in 0..4_000 {
        bench.fill(name, 100);
    }
    bench.cache.flush();
    for name in 10_000..16_000 {
        bench.fill(name, 100);
    }
    let usage = bench.cache.usage();
    assert_eq!(usage.facts, 6_000, "nothing of the old generation remains");
    assert_eq!(usage.evicted, 0, "what was void is not counted as pushed out");
}

#[test]
fn caches_that_share_a_generation_are_flushed_together() {
    let generation = Generation::default();
    let limits = CacheLimits { bytes: 1 << 20, ttl: TTL, deny_ttl: DENY_TTL, deny_entries: 1 };
    let one = Cache::new(&limits, generation.clone());
    let two = Cache::new(&limits, generation.clone());
    let bench = Bench::new(1, 1);
    for cache in [&one, &two] {
        let CacheLookup::Miss(ticket) = cache.lookup(bench.key(1), bench.now()) else { panic!("not empty") };
        ticket.fill(Fact { name: 1, weight: 1 }, FOREVER, bench.now()).unwrap();
    }
    generation.advance();
    for cache in [&one, &two] {
        assert!(matches!(cache.lookup(bench.key(1), bench.now()), CacheLookup::Miss(_)));
    }
}

#[test]
fn different_configuration_versions_never_share() {
    let bench = Bench::new(1 << 20, 16);
    let key = |version, variant| bench.secret.scope(version, variant).key(b"the same token");
    for (name, (version, variant)) in
        [(1, 1), (2, 1), (1, 2), (1 << 32, 1), (1, 1 << 32)].into_iter().enumerate()
    {
        let CacheLookup::Miss(ticket) = bench.cache.lookup(key(version, variant), bench.now()) else {
            panic!("found under another configuration")
        };
        let fact = Fact { name: name as u64, weight: 1 };
        ticket.fill(fact, FOREVER, bench.now()).unwrap();
    }
    let CacheLookup::Hit(found) = bench.cache.lookup(key(2, 1), bench.now()) else { panic!("lost") };
    assert_eq!(found.name, 1);
}
