//! Test support: an issuer that is followed by hand, on the paused clock of tests.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "the helpers of tests are tests")]

use std::sync::atomic::AtomicUsize;

use coherence::consumer::{Consumer, ConsumerAction, ConsumerSettings};
use coherence::denylist::DenylistEntry;
use coherence::revocation_query::RevocationQuery;
use coherence::wire::Body;
use coherence::{ConsumerId, LogEvent, LogHead, Nonce};
use parking_lot::Mutex;

use super::{
    Arc, Boot, BootTime, Duration, Epoch, FollowedIssuer, FollowerSuccessor, IssuerClockSkew, PeerName,
    QueryHandle, Relaxed, RevocableToken, RevocationTags, Tag, TagKey, TagSubject, View,
};

/// Lease of the issuer.
pub const LEASE: Duration = Duration::from_secs(5);
/// Epoch of its log.
pub const EPOCH: Epoch = Epoch([1; 16]);

/// The paused clock of tests.
struct Paused(tokio::time::Instant);

impl BootTime for Paused {
    fn now(&self) -> Boot {
        // Not from zero: nothing may depend on that.
        Boot(1_000_000_000_000).plus(self.0.elapsed())
    }
}

/// The issuer's answer to a query about tags.
#[derive(Clone, Copy)]
pub enum IssuerBehavior {
    /// No answer, ever.
    Nothing,
    /// The issuer cannot be reached, which shows at once.
    Unreachable,
    /// Nothing was revoked, as of this head.
    Good(LogHead),
    /// All of the tags were revoked.
    Denied(LogHead),
}

#[derive(Clone)]
struct Asked(Arc<Mutex<IssuerBehavior>>, Arc<AtomicUsize>);

impl RevocationQuery for Asked {
    async fn query_denied(&self, tags: Vec<Tag>) -> Option<(LogHead, Vec<(Tag, DenylistEntry)>)> {
        self.1.fetch_add(1, Relaxed);
        let says = *self.0.lock();
        match says {
            IssuerBehavior::Nothing => std::future::pending().await,
            IssuerBehavior::Unreachable => None,
            IssuerBehavior::Good(head) => Some((head, Vec::new())),
            IssuerBehavior::Denied(head) => {
                let denial = DenylistEntry { not_before: None, until: i64::MAX };
                Some((head, tags.into_iter().map(|tag| (tag, denial)).collect()))
            }
        }
    }
}

/// An issuer that is followed by hand, on the paused clock of tests.
pub struct ManualIssuer {
    /// The state that a gateway has of it.
    pub followed: Arc<FollowedIssuer>,
    consumer: Consumer,
    responder: Asked,
    drawn: u128,
}

impl Default for ManualIssuer {
    fn default() -> Self {
        Self::new()
    }
}

impl ManualIssuer {
    /// An issuer whose log was never received, and which cannot be reached.
    pub fn new() -> Self {
        Self::with_key(7)
    }

    pub(super) fn with_key(key: u8) -> Self {
        let responder = Asked(Arc::new(Mutex::new(IssuerBehavior::Unreachable)), Arc::default());
        let view = Arc::new(View::new(100).with_denylist(100));
        let (desk, attended) = QueryHandle::new(responder.clone(), view.silence().clone());
        tokio::spawn(attended);
        let name = PeerName::new("issuer").unwrap();
        let settings = ConsumerSettings { lease: LEASE, ..ConsumerSettings::default() };
        let consumer = Consumer::new((ConsumerId([1; 16]), name.clone()), settings, view.clone());
        let followed = Arc::new(FollowedIssuer {
            issuer: "https://issuer.test".into(),
            name,
            view,
            tags: TagKey::new(&[key; 32]),
            clock: Arc::new(Paused(tokio::time::Instant::now())),
            query_desk: desk,
            lease: LEASE,
            counts: Arc::default(),
            max_token_age: None,
            successor: FollowerSuccessor::default(),
            clock_skew: IssuerClockSkew::default(),
        });
        Self { followed, consumer, responder, drawn: 0 }
    }

    /// An issuer whose log has just been received up to this event.
    pub async fn heard(epoch: Epoch, seq: u64) -> Self {
        let mut issuer = Self::new();
        issuer.echo(epoch, seq).await;
        issuer
    }

    /// Changes its answers from now on.
    pub fn says(&self, says: IssuerBehavior) {
        *self.responder.0.lock() = says;
    }

    /// Number of queries so far.
    pub fn query_count(&self) -> usize {
        self.responder.1.load(Relaxed)
    }

    /// The issuer answers a probe about its log's head at once.
    pub async fn echo(&mut self, epoch: Epoch, seq: u64) {
        let nonce = self.probe().await;
        self.receive(&Body::Echo { nonce, head: LogHead { epoch, seq } });
    }

    pub(super) async fn probe(&mut self) -> Nonce {
        tokio::time::advance(ConsumerSettings::default().probe_period).await;
        let mut actions = Vec::new();
        self.drive(|consumer, now, nonce| consumer.tick(now, nonce, &mut actions));
        let probe_nonce = actions.iter().find_map(|action| match action {
            ConsumerAction::Send(Body::Probe { nonce, .. }) => Some(*nonce),
            _ => None,
        });
        probe_nonce.expect("a probe is due")
    }

    /// The issuer announces the revocation of everything with this tag.
    pub fn revokes(&mut self, seq: u64, tag: Tag) {
        let event = LogEvent { seq, tags: vec![tag], not_before: None, until: i64::MAX };
        let epoch = self.followed.view.epoch().unwrap();
        self.receive(&Body::Event { epoch, event });
    }

    pub(super) fn receive(&mut self, body: &Body) {
        let mut actions = Vec::new();
        self.drive(|consumer, now, nonce| consumer.on_message(now, body, nonce, &mut actions));
        let head = LogHead {
            epoch: self.followed.view.epoch().unwrap_or(EPOCH),
            seq: self.followed.view.applied_up_to(),
        };
        for action in actions {
            // The denylist contains only what was announced.
            if let ConsumerAction::LoadDenylist { ticket } = action {
                self.drive(|consumer, now, _| consumer.denylist_loaded(now, ticket, Some(head)));
            }
        }
    }

    pub(super) fn drive(&mut self, action: impl FnOnce(&mut Consumer, Boot, &mut dyn FnMut() -> Nonce)) {
        let Self { followed, consumer, drawn, .. } = self;
        action(consumer, followed.clock.now(), &mut || {
            *drawn += 1;
            Nonce(drawn.to_le_bytes())
        });
    }

    /// A token of the issuer, by its `jti`.
    pub fn token(&self, jti: &str) -> RevocableToken {
        RevocableToken::new(self.followed.clone(), Arc::new([self.tag(jti)]), 1, 0)
    }

    /// The tag that revokes the token with this `jti`.
    pub fn tag(&self, jti: &str) -> Tag {
        self.followed.tags.tag(TagSubject::Token(jti))
    }

    /// Revocation tags as from an introspection of a token.
    pub fn statement(&self, jti: &str, epoch: Epoch, seq: u64) -> RevocationTags {
        RevocationTags { as_of: LogHead { epoch, seq }, issued_at: 0, tags: vec![self.tag(jti)] }
    }
}
