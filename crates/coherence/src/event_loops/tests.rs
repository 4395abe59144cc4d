//! Tests of the parent module.

use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::*;
use crate::consumer::ConsumerSettings;
use crate::denylist::DenylistEntry;
use crate::log_types::{ConsumerId, PeerName, Tag};
use crate::message_channel::ChannelCounts;
use crate::repeat::MessageQueryClient;
use crate::time::BootTime;
use crate::transport::memory::Memory;
use crate::transport::{Subscription, Transport, TransportState};
use crate::view::{CredentialCheck, EntryStamp, EntryState, View};
use crate::wire::Keys;

const EPOCH: Epoch = Epoch([1; 16]);

struct Paused(tokio::time::Instant);

impl BootTime for Paused {
    fn now(&self) -> Boot {
        // Not from zero: nothing may depend on that.
        Boot(1_000_000_000_000).plus(self.0.elapsed())
    }
}

/// A transport that can be closed. While it is closed, it holds messages back.
#[derive(Clone, Default)]
struct Valve {
    way: Memory,
    closed: Arc<Mutex<bool>>,
    held: Arc<Mutex<Vec<(Topic, Bytes)>>>,
}

impl Valve {
    fn close(&self) {
        *self.closed.lock() = true;
    }

    /// Opens it; the messages held back are delivered, or lost.
    fn open(&self, release: bool) {
        *self.closed.lock() = false;
        for (topic, message) in self.held.lock().drain(..).filter(|_| release) {
            self.way.send(&topic, message);
        }
    }
}

impl Transport for Valve {
    fn send(&self, topic: &Topic, message: Bytes) {
        if *self.closed.lock() {
            self.held.lock().push((topic.clone(), message));
        } else {
            self.way.send(topic, message);
        }
    }

    fn subscribe(&self, topic: Topic) -> Subscription {
        self.way.subscribe(topic)
    }

    fn state(&self) -> watch::Receiver<TransportState> {
        self.way.state()
    }
}

#[derive(Clone, Default)]
struct FakeStore(Arc<Mutex<Vec<LogEvent>>>, Arc<Mutex<Listed>>);

/// Recorded consumers, whether writes fail now, and how long a read of the head takes.
#[derive(Default)]
struct Listed {
    followers: HashMap<ConsumerId, ConsumerRecord>,
    full: bool,
    slow: Duration,
}

impl Log for FakeStore {
    async fn head(&self) -> Option<LogHead> {
        let slow = self.1.lock().slow;
        tokio::time::sleep(slow.max(Duration::from_millis(1))).await;
        Some(LogHead { epoch: EPOCH, seq: self.0.lock().len() as u64 })
    }

    async fn head_and_listed(&self, followers: &[ConsumerId]) -> Option<(LogHead, Vec<ConsumerId>)> {
        let head = Log::head(self).await?;
        let all = &self.1.lock().followers;
        Some((head, followers.iter().copied().filter(|id| all.contains_key(id)).collect()))
    }

    async fn record_consumers(&self, followers: &[ConsumerRecord]) -> bool {
        let mut listed = self.1.lock();
        let writable = !listed.full;
        if writable {
            listed.followers.extend(followers.iter().map(|follower| (follower.id, follower.clone())));
        }
        writable
    }

    async fn range(&self, after: u64, limit: usize) -> Option<(Epoch, Vec<LogEvent>)> {
        let events = self.0.lock().iter().filter(|e| e.seq > after).take(limit).cloned().collect();
        Some((EPOCH, events))
    }
}

impl RevocationQuery for FakeStore {
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        let head = Log::head(self).await?;
        let log = self.0.lock();
        let is_denied = |tag: &Tag| log.iter().any(|event| event.tags.contains(tag));
        let denial = DenylistEntry { not_before: None, until: i64::MAX };
        Some((head, tags.into_iter().filter(is_denied).map(|tag| (tag, denial)).collect()))
    }
}

impl DenylistSource for FakeStore {
    async fn load(&self, denials: &Denylist) -> Option<LogHead> {
        let head = Log::head(self).await;
        for event in self.0.lock().iter() {
            for tag in &event.tags {
                denials.add(*tag, DenylistEntry { not_before: event.not_before, until: event.until });
            }
        }
        head
    }
}

struct Fixture {
    valve: Valve,
    facts: FakeStore,
    clock: Arc<dyn BootTime>,
    views: Vec<Arc<View>>,
    counts: Vec<Arc<ChannelCounts>>,
    notices: Arc<Mutex<Vec<AuthorityNotice>>>,
    append: mpsc::Sender<(Epoch, LogEvent)>,
}

fn tag(number: u64) -> Tag {
    let mut tag = [0; Tag::LENGTH];
    tag[..8].copy_from_slice(&number.to_le_bytes());
    Tag(tag)
}

/// An authority and two consumers, which already have a lease.
async fn fixture() -> Fixture {
    let clock: Arc<dyn BootTime> = Arc::new(Paused(tokio::time::Instant::now()));
    let (append, appended) = mpsc::channel(100);
    let (valve, facts, notices) = (Valve::default(), FakeStore::default(), Arc::<Mutex<Vec<_>>>::default());
    let mut town = Fixture {
        valve: valve.clone(),
        facts: facts.clone(),
        clock: clock.clone(),
        views: Vec::new(),
        counts: Vec::new(),
        notices: notices.clone(),
        append,
    };
    tokio::spawn(QueryAnswers::new(town.channel(), facts.clone()).run(appended));
    for id in 1..=2 {
        let view = Arc::new(View::new(1000).with_denylist(200_000));
        let called = PeerName::new(&format!("gateway-{id}")).expect("a name");
        let consumer =
            Consumer::new((ConsumerId([id; 16]), called), ConsumerSettings::default(), view.clone());
        let (end, notices, mut drawn) = (town.channel(), notices.clone(), 0_u64);
        let nonce = move || {
            drawn += 1;
            Nonce([&[id; 8][..], &drawn.to_le_bytes()].concat().try_into().expect("16 bytes"))
        };
        town.counts.push(end.counts.clone());
        town.views.push(view);
        tokio::spawn(run_consumer(end, consumer, facts.clone(), nonce, move |one| notices.lock().push(one)));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    town
}

impl Fixture {
    fn channel(&self) -> MessageChannel {
        MessageChannel {
            authority: PeerName::new("main").expect("a name"),
            transport: Arc::new(self.valve.clone()),
            keys: Keys::new(&[(1, [7; 32])]).expect("a key"),
            clock: self.clock.clone(),
            counts: Arc::default(),
        }
    }

    fn revoke(&self, number: u64) {
        let mut log = self.facts.0.lock();
        let event =
            LogEvent { seq: log.len() as u64 + 1, tags: vec![tag(number)], not_before: None, until: 0 };
        log.push(event.clone());
        self.append.try_send((EPOCH, event)).expect("room");
    }

    /// What each node would keep, if the authority were queried now.
    fn fill(&self, number: u64) -> Vec<EntryStamp> {
        let (now, head) = (self.clock.now(), self.facts.0.lock().len() as u64);
        let fill = |view: &Arc<View>| view.fill(view.start_query(now), (EPOCH, head), &[tag(number)], now);
        self.views.iter().map(|view| fill(view).expect("kept")).collect()
    }

    fn standing(&self, stamps: &[EntryStamp], number: u64) -> Vec<EntryState> {
        let now = self.clock.now();
        self.views.iter().zip(stamps).map(|(v, s)| v.entry_state(s, &[tag(number)], now)).collect()
    }
}

const GOOD: [EntryState; 2] = [EntryState::Valid; 2];
const VOID: [EntryState; 2] = [EntryState::Evicted; 2];
const NO_LEASE: [EntryState; 2] = [EntryState::LeaseExpired; 2];

async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_revoked_is_refused_everywhere_at_once() {
    let town = fixture().await;
    let (one, other) = (town.fill(1), town.fill(2));
    assert_eq!((town.standing(&one, 1), town.standing(&other, 2)), (GOOD.to_vec(), GOOD.to_vec()));
    town.revoke(1);
    after(Duration::from_millis(2)).await;
    assert_eq!((town.standing(&one, 1), town.standing(&other, 2)), (VOID.to_vec(), GOOD.to_vec()));
    assert!(
        matches!(&town.notices.lock()[..], [AuthorityNotice::Revoked(a), AuthorityNotice::Revoked(b)] if a == b && a.seq == 1)
    );
    after(Duration::from_mins(10)).await;
    assert_eq!((town.standing(&one, 1), town.standing(&other, 2)), (VOID.to_vec(), GOOD.to_vec()));
    assert_eq!(town.notices.lock().len(), 2, "and nothing was flushed");
}

#[tokio::test(start_paused = true)]
async fn what_is_verified_here_is_held_against_what_is_denied() {
    let town = fixture().await;
    let verify =
        |number| town.views.iter().map(|v| v.check_credential(&[tag(number)], 0)).collect::<Vec<_>>();
    let good = |verdicts: Vec<CredentialCheck>| -> Vec<EntryStamp> {
        let stamps = verdicts.into_iter().map(|verdict| match verdict {
            CredentialCheck::NotRevoked(stamp) => stamp,
            other => panic!("{other:?}"),
        });
        stamps.collect()
    };
    let stamps = good(verify(1));
    assert_eq!(town.standing(&stamps, 1), GOOD);
    town.revoke(1);
    after(Duration::from_millis(2)).await;
    assert_eq!(town.standing(&stamps, 1), VOID);
    assert!(verify(1).iter().all(|verdict| matches!(verdict, CredentialCheck::Denied)));
    // A consumer that starts now did not get the event.
    let view = Arc::new(View::new(1000).with_denylist(10));
    let called = PeerName::new("gateway-9").expect("a name");
    let consumer = Consumer::new((ConsumerId([9; 16]), called), ConsumerSettings::default(), view.clone());
    assert!(matches!(view.check_credential(&[tag(1)], 0), CredentialCheck::Unknown));
    let mut drawn = 0;
    let nonce = move || {
        drawn += 1;
        Nonce([drawn; 16])
    };
    tokio::spawn(run_consumer(town.channel(), consumer, town.facts.clone(), nonce, |_| {}));
    after(Duration::from_secs(1)).await;
    assert!(matches!(view.check_credential(&[tag(1)], 0), CredentialCheck::Denied));
    assert!(matches!(view.check_credential(&[tag(2)], 0), CredentialCheck::NotRevoked(_)));
    for number in 10..30 {
        town.revoke(number);
    }
    after(Duration::from_millis(10)).await;
    assert!(
        matches!(view.check_credential(&[tag(2)], 0), CredentialCheck::Unknown),
        "more than it has room for"
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_way_nobody_believes_for_longer_than_the_lease() {
    let town = fixture().await;
    let stamps = [town.fill(1), town.fill(2)];
    town.valve.close();
    town.revoke(1);
    after(Duration::from_millis(4400)).await;
    assert_eq!(town.standing(&stamps[1], 2), GOOD, "the lease holds for a while");
    after(Duration::from_millis(600)).await;
    assert_eq!(town.standing(&stamps[0], 1), NO_LEASE);
    after(Duration::from_mins(1)).await;
    assert_eq!(town.standing(&stamps[1], 2), NO_LEASE);
    // What was sent meanwhile is lost; the log has it.
    town.valve.open(false);
    after(Duration::from_secs(1)).await;
    assert_eq!((town.standing(&stamps[0], 1), town.standing(&stamps[1], 2)), (VOID.to_vec(), GOOD.to_vec()));
    assert!(
        !town.notices.lock().iter().any(|notice| matches!(notice, AuthorityNotice::Flushed(_))),
        "one event was told again"
    );
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_messages_that_were_held_back_changes_nothing() {
    let town = fixture().await;
    let stamps = town.fill(1);
    town.valve.close();
    for number in 2..50 {
        town.revoke(number);
        after(Duration::from_mins(1)).await;
    }
    town.revoke(1);
    let leases: Vec<_> = town.views.iter().map(|view| view.lease()).collect();
    town.valve.open(true);
    after(Duration::from_millis(1)).await;
    for (view, before) in town.views.iter().zip(leases) {
        assert_eq!(view.lease(), before, "no echo of the past extends a lease");
    }
    assert_eq!(town.standing(&stamps, 1), NO_LEASE);
    after(Duration::from_secs(1)).await;
    assert_eq!(town.standing(&stamps, 1), VOID);
    let later = town.fill(60);
    assert_eq!(town.standing(&later, 60), GOOD);
}

#[tokio::test(start_paused = true)]
async fn who_has_no_key_is_heard_by_nobody() {
    let town = fixture().await;
    let stamps = town.fill(1);
    let forger = MessageChannel { keys: Keys::new(&[(1, [8; 32])]).expect("a key"), ..town.channel() };
    let event = LogEvent { seq: 1, tags: vec![tag(1)], not_before: None, until: 0 };
    for topic in [Topic::Events(forger.authority.clone()), Topic::Questions(forger.authority.clone())] {
        forger.publish(&topic, Body::Event { epoch: EPOCH, event: event.clone() });
        forger.publish(&topic, Body::RangeUnavailable { nonce: Nonce([0; 16]) });
        town.valve.send(&topic, Bytes::from_static(b"nonsense"));
    }
    after(Duration::from_millis(10)).await;
    assert_eq!(town.standing(&stamps, 1), GOOD);
    assert!(town.notices.lock().is_empty());
    assert!(town.counts.iter().all(|counts| counts.refused.load(Ordering::Relaxed) == 3));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_revocations_at_once_are_survived() {
    let town = fixture().await;
    let stamps = town.fill(1);
    for number in 10..100_010 {
        let seq = number - 9;
        town.facts.0.lock().push(LogEvent { seq, tags: vec![tag(number)], not_before: None, until: 0 });
    }
    // They are not pushed, and are more than a node sends again.
    after(Duration::from_secs(3)).await;
    assert_eq!(town.standing(&stamps, 1), VOID);
    assert!(town.views.iter().all(|view| view.tombstones() <= 1000));
    let later = town.fill(1);
    assert_eq!(town.standing(&later, 1), GOOD);
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_slow_reading_is_answered_only_if_it_is_listed() {
    let town = fixture().await;
    // Neither consumer sends another probe meanwhile.
    let probe = |id: u8| Body::Probe {
        consumer: ConsumerId([id; 16]),
        name: PeerName::new("gateway").expect("a name"),
        lease: Duration::from_secs(5),
        nonce: Nonce([id; 16]),
        applied: None,
    };
    let answered = async |writable: bool| {
        let facts = FakeStore::default();
        let end = MessageChannel { transport: Arc::new(Memory::default()), ..town.channel() };
        let (questions, mut answers) = (
            Topic::Questions(end.authority.clone()),
            end.transport.subscribe(Topic::Events(end.authority.clone())),
        );
        let (_append, appended) = mpsc::channel(1);
        let running = tokio::spawn(QueryAnswers::new(end.clone(), facts.clone()).run(appended));
        after(Duration::from_millis(1)).await;
        facts.1.lock().slow = Duration::from_secs(7);
        end.publish(&questions, probe(8));
        after(Duration::from_secs(1)).await;
        facts.1.lock().full = !writable;
        end.publish(&questions, probe(9));
        // Three readings: a new process reads the head again once it knows the epoch.
        after(Duration::from_secs(30)).await;
        running.abort();
        let mut answered = Vec::new();
        while let Ok(bytes) = answers.try_recv() {
            if let Some(Body::Echo { nonce, .. }) = end.read(&bytes) {
                answered.push(nonce.0[0]);
            }
        }
        let listed = facts.1.lock().followers.contains_key(&ConsumerId([9; 16]));
        (answered, listed)
    };
    assert_eq!(answered(false).await, (vec![8], false));
    assert_eq!(answered(true).await, (vec![8, 9], true));
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_by_message_is_answered_although_most_messages_are_lost() {
    let town = fixture().await;
    town.revoke(1);
    let mut drawn = 0_u128;
    let (client, hearing) = MessageQueryClient::new(town.channel(), move || {
        drawn += 1;
        Some(Nonce((drawn << 64).to_le_bytes()))
    });
    tokio::spawn(hearing);
    // More tags than one message holds.
    let tags: Vec<_> = (0..1000).map(tag).collect();
    let denied =
        async || client.query_denied(tags.clone()).await.map(|(head, denied)| (head.seq, denied.len()));
    assert_eq!(denied().await, Some((1, 1)));
    let sent_at = tokio::time::Instant::now();
    town.valve.close();
    let open = async {
        after(Duration::from_millis(700)).await;
        town.valve.open(false);
    };
    assert_eq!(tokio::join!(denied(), open).0, Some((1, 1)));
    assert!(sent_at.elapsed() < Duration::from_secs(1), "{:?}", sent_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn progress_is_recorded_soon_and_of_many_events_with_the_next_probe() {
    let town = fixture().await;
    let recorded = |id: u8| {
        let listed = town.facts.1.lock();
        listed.followers.get(&ConsumerId([id; 16])).and_then(|follower| follower.applied).map(|head| head.seq)
    };
    town.revoke(1);
    after(RECORD_DELAY * 2).await;
    assert_eq!((recorded(1), recorded(2)), (Some(1), Some(1)));
    for number in 2..=100 {
        town.revoke(number);
        after(Duration::from_millis(10)).await;
    }
    after(ConsumerSettings::default().probe_period + RECORD_DELAY * 2).await;
    assert_eq!((recorded(1), recorded(2)), (Some(100), Some(100)));

    // A consumer whose questions do not arrive as messages.
    let (_append, appended) = mpsc::channel(1);
    let answers = QueryAnswers::new(town.channel(), town.facts.clone());
    tokio::spawn(answers.clone().run(appended));
    let (consumer, name) = (ConsumerId([3; 16]), PeerName::new("far").expect("a name"));
    let (lease, nonce) = (Duration::from_secs(5), Nonce([3; 16]));
    let probe = Body::Probe { consumer, name, lease, nonce, applied: None };
    let head = LogHead { epoch: EPOCH, seq: 100 };
    for question in [probe, Body::Applied { consumer, head }] {
        let question = town.channel().write(question).expect("it fits");
        answers.answer_once(&question).await;
    }
    assert_eq!(recorded(3), None, "the response does not wait for it");
    after(RECORD_DELAY * 2).await;
    assert_eq!(recorded(3), Some(100));
}
