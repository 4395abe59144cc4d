//! Measures the cost of a cached decision: digest of a 900-byte token, lookup, reference count.
//!
//! `cargo run --release -p credentials --example cache_cost`
//!
//! Looks up 10 001 tokens in a random order, on one thread and on two, and prints nanoseconds per
//! hit. Then the same for a single hot token, where threads contend for one cache line. Then all
//! again with facts that depend on a followed issuer's log: while nothing is revoked, and while a
//! thousand other tokens per second are. Prints medians of several rounds.
#![expect(clippy::print_stdout, reason = "a program that prints its measurement")]

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use auth::time::Timestamp;
use coherence::consumer::{Consumer, ConsumerSettings};
use coherence::consumers::ConsumerRecord;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops;
use coherence::event_loops::{Log, QueryAnswers};
use coherence::message_channel::MessageChannel;
use coherence::revocation_query::RevocationQuery;
use coherence::time::BootClock;
use coherence::transport::memory::Memory;
use coherence::view::{CredentialCheck, View};
use coherence::wire::Keys;
use coherence::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};
use credentials::cache::{
    CacheEntryBasis, CacheLookup, CacheScope, CacheSecret, DecisionCache, EntryBasis, Generation, Lifetime,
    Weigh,
};
use credentials::config::CacheLimits;
use http_engine::clock::{Clock, SystemClock};

const TOKENS: usize = 10_001;
const TOKEN_BYTES: usize = 900;
const HITS: usize = 400_000;
const ROUNDS: usize = 7;

/// About the size of verified facts.
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

fn walk(cache: &Cache, scope: &CacheScope, tokens: &[Vec<u8>], seed: u64, start: &Barrier) -> Duration {
    let clock = SystemClock;
    let mut state = seed;
    // As in a worker: a ticker reads the clock, not each request.
    let mut now = clock.now();
    start.wait();
    let begun = Instant::now();
    for hit in 0..HITS {
        if hit % 1024 == 0 {
            now = clock.now();
        }
        let token = &tokens[usize::try_from(next(&mut state)).unwrap_or(0) % tokens.len()];
        match cache.lookup(scope.key(black_box(token)), now) {
            CacheLookup::Hit(fact) => {
                black_box(fact.0[0]);
            }
            _ => unreachable!("everything was filled and nothing expires meanwhile"),
        }
    }
    begun.elapsed()
}

fn measure(name: &str, cache: &Cache, scope: &CacheScope, tokens: &[Vec<u8>], threads: u64) {
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

/// The revocations of an authority: a thousand per second, once that has begun.
#[derive(Clone, Default)]
struct Revocations(Arc<std::sync::atomic::AtomicU64>);

const EPOCH: Epoch = Epoch([1; 16]);

fn event(seq: u64) -> LogEvent {
    let mut tag = [9; Tag::LENGTH];
    tag[..8].copy_from_slice(&seq.to_le_bytes());
    LogEvent { seq, tags: vec![Tag(tag)], not_before: None, until: i64::MAX }
}

impl Log for Revocations {
    async fn head(&self) -> Option<LogHead> {
        Some(LogHead { epoch: EPOCH, seq: self.0.load(std::sync::atomic::Ordering::SeqCst) })
    }

    async fn record_consumers(&self, _: &[ConsumerRecord]) -> bool {
        true
    }

    async fn range(&self, after: u64, limit: usize) -> Option<(Epoch, Vec<LogEvent>)> {
        let head = self.0.load(std::sync::atomic::Ordering::SeqCst);
        Some((EPOCH, (after + 1..=head).take(limit).map(event).collect()))
    }
}

impl RevocationQuery for Revocations {
    async fn query_denied(&self, _: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        Some((Log::head(self).await?, Vec::new()))
    }
}

impl event_loops::DenylistSource for Revocations {
    async fn load(&self, _: &Denylist) -> Option<LogHead> {
        Log::head(self).await
    }
}

/// Starts to follow an authority; the returned channel delivers its revocations to it.
async fn follow(revocations: &Revocations) -> (Arc<View>, tokio::sync::mpsc::Sender<(Epoch, LogEvent)>) {
    let end = MessageChannel {
        authority: PeerName::new("main").expect("a name"),
        transport: Arc::new(Memory::default()),
        keys: Keys::single(1, &[7; 32]),
        clock: Arc::new(BootClock),
        counts: Arc::default(),
    };
    let view = Arc::new(View::new(100_000).with_denylist(1_000_000));
    let id = (ConsumerId([1; 16]), PeerName::new("gateway").expect("a name"));
    let consumer = Consumer::new(id, ConsumerSettings::default(), view.clone());
    let mut drawn = 0_u128;
    let nonce = move || {
        drawn += 1;
        Nonce(drawn.to_le_bytes())
    };
    let (append, appended) = tokio::sync::mpsc::channel(1024);
    tokio::spawn(QueryAnswers::new(end.clone(), revocations.clone()).run(appended));
    tokio::spawn(event_loops::run_consumer(end, consumer, revocations.clone(), nonce, |_| {}));
    while !matches!(view.check_credential(&[], 0), CredentialCheck::NotRevoked(_)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (view, append)
}

fn fill(cache: &Cache, scope: &CacheScope, tokens: &[Vec<u8>], hold: impl Fn(usize) -> Option<EntryBasis>) {
    let now = SystemClock.now();
    for (at, token) in tokens.iter().enumerate() {
        if let CacheLookup::Miss(ticket) = cache.lookup(scope.key(token), now) {
            let life = Lifetime { expires: Timestamp::MAX, until: None, basis: hold(at) };
            let _ = ticket.fill(Fact([1; 700]), life, now);
        }
    }
}

fn main() {
    let limits = CacheLimits {
        bytes: 64 << 20,
        ttl: Duration::from_hours(1),
        deny_ttl: Duration::from_secs(2),
        deny_entries: 4096,
    };
    let cache = Cache::new(&limits, Generation::default());
    let scope = CacheSecret::new([0x42; 16]).scope(1, 1);
    let tokens = tokens();
    fill(&cache, &scope, &tokens, |_| None);
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

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let revocations = Revocations::default();
    let (view, append) = runtime.block_on(follow(&revocations));
    let held = Cache::new(&limits, Generation::default());
    fill(&held, &scope, &tokens, |at| {
        // The tags of a user's token: the token itself, its family, session, user, client, consent
        // and key.
        let tag =
            |kind: u8| Tag(std::array::from_fn(|byte| if byte < 8 { at.to_le_bytes()[byte] } else { kind }));
        let tags: Arc<[Tag]> = (0..7).map(tag).collect();
        let CredentialCheck::NotRevoked(stamp) = view.check_credential(&tags, 0) else {
            unreachable!("nothing was revoked")
        };
        Some(EntryBasis::Followed(Arc::new(CacheEntryBasis::new(
            view.clone(),
            Arc::new(BootClock),
            (tags, 0),
            stamp,
        ))))
    });
    for threads in [1, 2] {
        measure("followed, random walk", &held, &scope, &tokens, threads);
        measure("followed, one hot token", &held, &scope, &tokens[..1], threads);
    }
    runtime.spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        loop {
            tick.tick().await;
            let seq = revocations.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
            let _ = append.send((EPOCH, event(seq))).await;
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    measure("1000 revoked/s, random walk", &held, &scope, &tokens, 1);
    measure("1000 revoked/s, one hot token", &held, &scope, &tokens[..1], 1);
}
