//! What a cached decision costs: digest of a 900-byte token, lookup, reference count.
//!
//! `cargo run --release -p gateway --example cache_cost`
//!
//! Walks 10 001 tokens in a random order, on one thread and on two, and prints nanoseconds per hit; then the
//! same for a single hot token, where threads contend for one cache line. Medians of several rounds.
#![expect(clippy::print_stdout, reason = "a program that prints its measurement")]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use gateway::cache::{DecisionCache, Generation, Lifetime, Lookup, Scope, Secret, Weigh};
use gateway::clock::{Clock, SystemClock};
use gateway::config::CacheLimits;

const TOKENS: usize = 10_001;
const TOKEN_BYTES: usize = 900;
const HITS: usize = 400_000;
const ROUNDS: usize = 7;

/// About what verified facts weigh.
struct Fact([u8; 700]);

impl Weigh for Fact {
    fn weight(&self) -> usize {
        self.0.len()
    }
}

type Cache = DecisionCache<Fact, u8>;

/// xorshift: enough to defeat the prefetcher.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn tokens() -> Vec<Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    (0..TOKENS)
        .map(|_| {
            let mut letter = || {
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
                    [(next(&mut state) % 64) as usize]
            };
            std::iter::repeat_with(&mut letter).take(TOKEN_BYTES).collect()
        })
        .collect()
}

fn walk(cache: &Cache, scope: &Scope, tokens: &[Vec<u8>], seed: u64, start: &Barrier) -> Duration {
    let clock = SystemClock;
    let mut state = seed;
    // As a worker does it: the clock is read by a ticker, not per request.
    let mut now = clock.now();
    start.wait();
    let begun = Instant::now();
    for hit in 0..HITS {
        if hit % 1024 == 0 {
            now = clock.now();
        }
        let token = &tokens[usize::try_from(next(&mut state)).unwrap_or(0) % tokens.len()];
        match cache.lookup(scope.key(black_box(token)), now) {
            Lookup::Hit(fact) => {
                black_box(fact.0[0]);
            }
            _ => unreachable!("everything was filled and nothing expires meanwhile"),
        }
    }
    begun.elapsed()
}

fn measure(name: &str, cache: &Cache, scope: &Scope, tokens: &[Vec<u8>], threads: u64) {
    let mut rounds: Vec<u128> = (0..ROUNDS)
        .map(|_| {
            let start = Barrier::new(usize::try_from(threads).unwrap_or(1));
            std::thread::scope(|scope_| {
                let walkers: Vec<_> = (1..=threads)
                    .map(|seed| {
                        let start = &start;
                        scope_.spawn(move || walk(cache, scope, tokens, seed * 0x2545_f491_4f6c_dd1d, start))
                    })
                    .collect();
                let longest = walkers.into_iter().filter_map(|w| w.join().ok()).max().unwrap_or_default();
                longest.as_nanos() / HITS as u128
            })
        })
        .collect();
    rounds.sort_unstable();
    println!(
        "{name:<28} {threads} thread(s)  {:>5} ns/hit  (from {} to {})",
        rounds[ROUNDS / 2],
        rounds[0],
        rounds[ROUNDS - 1]
    );
}

fn main() {
    let limits = CacheLimits {
        bytes: 64 << 20,
        ttl: Duration::from_hours(1),
        deny_ttl: Duration::from_secs(2),
        deny_entries: 4096,
    };
    let cache = Cache::new(&limits, Generation::default());
    let scope = Secret::new([0x42; 16]).scope(1, 1);
    let tokens = tokens();
    let now = SystemClock.now();
    for token in &tokens {
        if let Lookup::Miss(ticket) = cache.lookup(scope.key(token), now) {
            let life = Lifetime { expires: Timestamp::MAX, until: None, hold: None };
            let _ = ticket.fill(Fact([1; 700]), life, now);
        }
    }
    let usage = cache.usage();
    println!("{} facts, {} bytes charged, {TOKEN_BYTES}-byte tokens", usage.facts, usage.bytes);
    let begun = Instant::now();
    for token in tokens.iter().cycle().take(HITS) {
        black_box(scope.key(black_box(token)));
    }
    println!("digest alone                 1 thread(s)  {:>5} ns", begun.elapsed().as_nanos() / HITS as u128);
    for threads in [1, 2] {
        measure("random walk over all tokens", &cache, &scope, &tokens, threads);
        measure("one hot token", &cache, &scope, &tokens[..1], threads);
    }
}
