//! Tokens of a followed issuer: local knowledge by its log, queries to it, and the effect of its
//! silence.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use auth::token_error::TokenError;
use coherence::consumer::{Consumer, ConsumerSettings};
use coherence::consumers::ConsumerRecord;
use coherence::denylist::{Denylist, DenylistEntry};
use coherence::event_loops;
use coherence::event_loops::{DenylistSource, Log, QueryAnswers};
use coherence::message_channel::MessageChannel;
use coherence::revocation_query::{QueryHandle, RevocationQuery};
use coherence::tags::{TagKey, TagSubject};
use coherence::time::BootClock;
use coherence::transport::memory::Memory;
use coherence::view::View;
use coherence::wire::Keys;
use coherence::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};
use credentials::authenticate::outcome::{CredentialLookup, Rejection};
use credentials::config::KeySource;
use credentials::revocation;
use credentials::revocation::{
    FollowedIssuer, FollowedIssuers, FollowerSuccessor, IssuerClockSkew, RevocationCounts, RevocationSample,
};
use parking_lot::Mutex;
use serde_json::json;
use telemetry::metrics::{Format, Metrics};
use telemetry::phases::CacheUse;
use telemetry::test_support::exposition::{assert_sample, read};
use tokio::sync::mpsc;

use crate::authenticate::{World, authentication, invalid, issuer};
use crate::issuer::{TestIssuer, signer, token};

const EPOCH: Epoch = Epoch([1; 16]);
const LEASE: Duration = Duration::from_secs(1);
const TAGS: [u8; 32] = [7; 32];

/// The revocations of an issuer, and how it behaves.
#[derive(Clone, Default)]
struct Facts(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    events: Vec<LogEvent>,
    /// The issuer does not serve its log.
    deaf: bool,
    /// The issuer answers nothing at all.
    silent: bool,
    /// Number of queries about tokens.
    asked: usize,
    /// Revocations without an event in its log, which no guarantee covers.
    hidden: Vec<LogEvent>,
}

impl State {
    fn head(&self) -> LogHead {
        LogHead { epoch: EPOCH, seq: self.events.len() as u64 }
    }

    fn denied(&self) -> Vec<(Tag, DenylistEntry)> {
        let denial = |event: &LogEvent| DenylistEntry { not_before: event.not_before, until: event.until };
        self.events
            .iter()
            .chain(&self.hidden)
            .flat_map(|event| event.tags.iter().map(move |tag| (*tag, denial(event))))
            .collect()
    }
}

impl Log for Facts {
    async fn head(&self) -> Option<LogHead> {
        let state = self.0.lock();
        (!state.deaf && !state.silent).then(|| state.head())
    }

    async fn record_consumers(&self, _: &[ConsumerRecord]) -> bool {
        true
    }

    async fn range(&self, after: u64, limit: usize) -> Option<(Epoch, Vec<LogEvent>)> {
        let state = self.0.lock();
        let events = state.events.iter().filter(|event| event.seq > after).take(limit).cloned().collect();
        (!state.deaf && !state.silent).then_some((EPOCH, events))
    }
}

impl DenylistSource for Facts {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        let state = self.0.lock();
        for (tag, denial) in state.denied() {
            denials.add(tag, denial);
        }
        Some(state.head())
    }
}

impl RevocationQuery for Facts {
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let mut state = self.0.lock();
        // An empty query is not about a token.
        state.asked += usize::from(!tags.is_empty());
        let denied = state.denied().into_iter().filter(|(tag, _)| tags.contains(tag)).collect();
        (!state.silent).then(|| (state.head(), denied))
    }
}

/// An issuer, and a gateway that follows it.
struct Town {
    world: World,
    follows: FollowedIssuers,
    followed: Arc<FollowedIssuer>,
    facts: Facts,
    append: mpsc::Sender<(Epoch, LogEvent)>,
    tokens: [Vec<u8>; 2],
    _issuer: TestIssuer,
}

impl Town {
    async fn new() -> Self {
        let key = signer();
        let idp = TestIssuer::with_keys(&[&key]).await;
        let facts = Facts::default();
        let (append, appended) = mpsc::channel(16);
        let clock = Arc::new(BootClock);
        let end = MessageChannel {
            authority: PeerName::new("main").unwrap(),
            transport: Arc::new(Memory::default()),
            keys: Keys::single(1, &[3; 32]),
            clock: clock.clone(),
            counts: Arc::default(),
        };
        let view = Arc::new(View::new(1000).with_denylist(1000));
        let settings = ConsumerSettings {
            lease: LEASE,
            probe_period: Duration::from_millis(100),
            ..ConsumerSettings::default()
        };
        let id = (ConsumerId([1; 16]), PeerName::new("gateway").unwrap());
        let consumer = Consumer::new(id, settings, view.clone());
        let mut drawn = 0_u128;
        let nonce = move || {
            drawn += 1;
            Nonce(drawn.to_le_bytes())
        };
        let (desk, attended) = QueryHandle::new(facts.clone(), view.silence().clone());
        tokio::spawn(attended);
        tokio::spawn(QueryAnswers::new(end.clone(), facts.clone()).run(appended));
        tokio::spawn(event_loops::run_consumer(end.clone(), consumer, facts.clone(), nonce, |_| {}));
        let follows = FollowedIssuers::default();
        let followed = Arc::new(FollowedIssuer {
            issuer: idp.url().into(),
            name: end.authority,
            view,
            tags: TagKey::new(&TAGS),
            clock,
            query_desk: desk,
            lease: LEASE,
            counts: Arc::<RevocationCounts>::default(),
            max_token_age: None,
            successor: FollowerSuccessor::default(),
            clock_skew: IssuerClockSkew::default(),
        });
        follows.replace(vec![followed.clone()]);
        let issuers = vec![issuer("main", idp.url(), KeySource::Discovery)];
        let world = World::following(&authentication(issuers, 1), follows.clone());
        world.authenticator.first_fetches().await;
        let tokens = ["a", "b"].map(|jti| token(&key, idp.url(), "u1", &json!({ "jti": jti })));
        Self { world, follows, followed, facts, append, tokens, _issuer: idp }
    }

    /// Both tokens are known by the log alone.
    async fn known() -> Self {
        let town = Self::new().await;
        for token in &town.tokens {
            until("known", || async { town.world.ask(token).await.is_ok() && town.is_hit(token) }).await;
        }
        town.facts.0.lock().asked = 0;
        town
    }

    fn is_hit(&self, token: &[u8]) -> bool {
        matches!(self.world.lookup(token), CredentialLookup::Hit(_))
    }

    /// Revokes a token; `told`: its log is pushed.
    async fn revoke(&self, jti: &str, told: bool) {
        let event = {
            let mut state = self.facts.0.lock();
            let tags = vec![TagKey::new(&TAGS).tag(TagSubject::Token(jti))];
            let seq = state.events.len() as u64 + 1;
            let event = LogEvent { seq, tags, not_before: None, until: i64::MAX };
            state.events.push(event.clone());
            event
        };
        if told {
            self.append.send((EPOCH, event)).await.unwrap();
        }
    }

    fn asked(&self) -> usize {
        self.facts.0.lock().asked
    }
}

async fn until<F: Future<Output = bool>>(name: &str, what: impl Fn() -> F) {
    let began = Instant::now();
    while !what().await {
        // Much of this happens within seconds, on random entries, and only under a lease that a
        // busy machine may miss.
        assert!(began.elapsed() < Duration::from_mins(1), "not {name} in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_revoked_is_refused_and_nothing_else_and_nobody_is_asked() {
    let town = Town::known().await;
    let [a, b] = &town.tokens;
    town.revoke("a", true).await;
    until("refused", || async { !town.is_hit(a) }).await;
    assert_eq!(town.world.subject(a).await, Err(invalid(TokenError::Revoked)));
    assert!(town.is_hit(b) || town.world.ask(b).await.is_ok());
    assert_eq!(town.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_lease_each_request_asks_and_what_was_known_waits_for_the_next() {
    let town = Town::known().await;
    let [a, _] = &town.tokens;
    town.facts.0.lock().deaf = true;
    until("over", || async { !town.is_hit(a) }).await;
    for asked in 1..=3 {
        let (verified, cache) = town.world.authenticator.authenticate(a, || town.world.now()).await;
        assert!(verified.is_ok(), "{verified:?}");
        assert_eq!((cache, town.asked()), (CacheUse::Miss, asked));
    }
    town.facts.0.lock().deaf = false;
    until("good again", || async { town.is_hit(a) }).await;
    assert_eq!(town.asked(), 3, "without another question");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_issuer_denies_when_it_is_asked_stays_denied() {
    let town = Town::known().await;
    let [a, b] = &town.tokens;
    town.facts.0.lock().deaf = true;
    town.revoke("a", false).await;
    until("over", || async { !town.is_hit(a) }).await;
    assert_eq!(town.world.subject(a).await, Err(invalid(TokenError::Revoked)));
    assert!(town.world.ask(b).await.is_ok());
    town.facts.0.lock().deaf = false;
    until("heard of again", || async { town.is_hit(b) }).await;
    // The denial itself has expired by now.
    town.world.clock.advance(Duration::from_secs(3));
    assert_eq!(town.world.subject(a).await, Err(invalid(TokenError::Revoked)));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_in_use_are_held_against_what_the_issuer_says() {
    let town = Town::known().await;
    let [a, b] = &town.tokens;
    let counts = &town.followed.counts;
    let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let mut drawn = 0;
    let random = || {
        drawn += 1;
        drawn
    };
    let any = |random| town.world.authenticator.any_entry_basis(random);
    let looked = async {
        until("looked at", || async { count(&counts.audited) >= 1 }).await;
        town.revoke("a", true).await;
        until("refused", || async { !town.is_hit(a) }).await;
        let before = count(&counts.audited);
        until("looked at", || async { town.is_hit(b) && count(&counts.audited) > before + 1 }).await;
        assert_eq!(count(&counts.stale), 0, "all is as promised");
        // An issuer whose log does not contain its revocations.
        let tags = vec![TagKey::new(&TAGS).tag(TagSubject::Token("b"))];
        let event = LogEvent { seq: 1, tags, not_before: None, until: i64::MAX };
        town.facts.0.lock().hidden.push(event);
        until("found", || async { town.is_hit(b) && count(&counts.stale) >= 1 }).await;
    };
    tokio::select! {
        () = revocation::audit(town.follows.clone(), any, random) => unreachable!("it never ends"),
        () = looked => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_says_nothing_leaves_tokens_unknown_and_not_bad() {
    let town = Town::known().await;
    let [a, _] = &town.tokens;
    town.facts.0.lock().silent = true;
    until("over", || async { !town.is_hit(a) }).await;
    let refused = town.world.ask(a).await.err();
    assert_eq!(refused, Some(Rejection::Silent { authority: "main".into() }));
    town.facts.0.lock().silent = false;
    until("good again", || async { town.is_hit(a) }).await;
}

#[test]
fn what_is_known_of_an_issuer_that_is_followed_has_the_names_that_are_promised() {
    let follow = RevocationSample {
        issuer: "https://id.example".into(),
        lease: Some(Duration::from_millis(4_500)),
        silent: true,
        up: true,
        contiguous: 12,
        lag: 1,
        tombstones: 2,
        denials: 3,
        denylist_complete: false,
        revoked: 4,
        flushes: vec![("gap", 5)],
        sent: 6,
        received: 7,
        refused: 8,
        queries_good: 9,
        queries_revoked: 10,
        queries_unanswered: 11,
        audited: 13,
        stale: 14,
        arrivals: Some(coherence::consumers::ApplyTimes { count: 2, sum: 0.006, below: [2; 11] }),
    };
    let metrics = Metrics::new(1);
    metrics.register(move || vec![follow.clone()]);
    for (format, open_metrics) in [(Format::Text, false), (Format::OpenMetrics, true)] {
        let samples = read(&metrics.render(format), open_metrics);
        let of = |name: &str, more: &str, value: f64| {
            assert_sample(
                &samples,
                &format!("postern_revocation_{name}{{issuer=\"https://id.example\"{more}}}"),
                value,
            );
        };
        for (name, value) in [
            ("lease_seconds", 4.5),
            ("silent", 1.0),
            ("up", 1.0),
            ("sequence", 12.0),
            ("lag_events", 1.0),
            ("tombstones", 2.0),
            ("denylist_entries", 3.0),
            ("denylist_complete", 0.0),
            ("events_total", 4.0),
            ("audits_total", 13.0),
            ("stale_admits_total", 14.0),
            ("refusal_seconds_count", 2.0),
        ] {
            of(name, "", value);
        }
        of("cache_flushes_total", ",cause=\"gap\"", 5.0);
        of("messages_total", ",kind=\"refused\"", 8.0);
        of("queries_total", ",result=\"silent\"", 11.0);
    }
}
