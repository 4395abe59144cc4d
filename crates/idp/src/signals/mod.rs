//! Telling others what happened here (`OpenID` Shared Signals Framework 1.0, CAEP 1.0): a transmitter of security events.
//!
//! Owns: who is told ([`Receivers`]), what of ([`Receiver::wants`]), telling those who are pushed to (RFC 8935), and counting it.
//! Does not own: what happened (the store keeps it beside the log, in the transaction that made it happen), the tokens ([`set`]),
//! those who fetch ([`crate::endpoint::signals`]).
//!
//! Flow: `ending → Revocation.occurrence → store: log and occurrence in one transaction → tend: deliver → TakeReceiver → push each →
//! GiveBack`.
//!
//! Each receiver hears everything in the order in which it happened, at least once. One node tells it at a time. What cannot be
//! delivered is tried again, and everything after it waits, so that nobody hears of a login before the logout it followed; what is
//! older than [`GIVEN_UP`] is given up. A receiver that says that a token is no good (400) will say so again, and is not told again.

pub mod set;

use std::{
    collections::BTreeMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use auth::time::Timestamp;
use auth::token::{jws::SigningAlgorithm, security_event::Kind};
use aws_lc_rs::constant_time;
use parking_lot::Mutex;
use store::{
    StoreError,
    security_events::{GiveBack, Occurred, Register, TakeReceiver, Taken},
};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::provider::{Post, Provider};

/// What is older is not told any more: whatever it was about has expired where it matters.
pub const GIVEN_UP: Duration = Duration::from_hours(7 * 24);
/// For how long one node has a receiver.
const TAKEN: Duration = Duration::from_mins(1);
/// For how long of that it tells; what it has begun to tell then is over in time.
const TELLING: Duration = Duration::from_secs(30);
/// Events that are told in one go.
const BATCH: u32 = 50;
/// The pause after the first failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause.
const LAST_RETRY: Duration = Duration::from_mins(5);

/// A secret that only its holders know. `Debug` prints nothing.
#[derive(Clone)]
pub struct Bearer(pub Zeroizing<String>);

impl Bearer {
    /// Whether somebody shows it.
    pub(crate) fn is(&self, shown: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(shown, self.0.as_bytes()).is_ok()
    }
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(..)")
    }
}

/// Somebody who is told.
#[derive(Debug, Clone)]
pub struct Receiver {
    /// What it is called; names it in the store.
    pub name: String,
    /// The `aud` of what it is told.
    pub audience: String,
    /// What it is told of.
    pub events: Vec<Kind>,
    /// How.
    pub delivery: Delivery,
}

/// How somebody is told.
#[derive(Debug, Clone)]
pub enum Delivery {
    /// Tokens are sent there (RFC 8935).
    Push {
        /// Where.
        endpoint: String,
        /// What shows there who we are.
        bearer: Bearer,
    },
    /// It fetches them (RFC 8936).
    Poll {
        /// What shows here who it is.
        bearer: Bearer,
    },
}

impl Receiver {
    /// Whether it is told of such events.
    pub(crate) fn wants(&self, kind: Kind) -> bool {
        self.events.contains(&kind)
    }
}

/// Everybody who is told, and what came of it.
#[derive(Debug)]
pub(crate) struct Receivers {
    all: Vec<Arc<Receiver>>,
    pub(crate) algorithm: SigningAlgorithm,
    counts: Mutex<BTreeMap<(String, &'static str), u64>>,
}

/// How often something came of telling a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldSample {
    /// Whom.
    pub receiver: String,
    /// `delivered`, `refused` (it says that the token is no good), `failed` (tried again) or `given_up`.
    pub outcome: &'static str,
    /// How often.
    pub count: u64,
}

impl Receivers {
    pub(crate) fn new(all: Vec<Receiver>, algorithm: SigningAlgorithm) -> Self {
        Self { all: all.into_iter().map(Arc::new).collect(), algorithm, counts: Mutex::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Makes them known to the store: they hear what happens from then on.
    pub(crate) async fn register(&self, store: &store::Store, now: Timestamp) -> Result<(), StoreError> {
        for receiver in &self.all {
            store.write(Register { receiver: receiver.name.clone(), now }).await?;
        }
        Ok(())
    }

    /// One who fetches.
    pub(crate) fn polling(&self, name: &str) -> Option<(&Receiver, &Bearer)> {
        self.all.iter().find(|receiver| receiver.name == name).and_then(|receiver| match &receiver.delivery {
            Delivery::Poll { bearer } => Some((&**receiver, bearer)),
            Delivery::Push { .. } => None,
        })
    }

    pub(crate) fn methods(&self) -> Vec<&'static str> {
        let has =
            |poll: bool| self.all.iter().any(|one| matches!(one.delivery, Delivery::Poll { .. }) == poll);
        let all = [(has(false), "urn:ietf:rfc:8935"), (has(true), "urn:ietf:rfc:8936")];
        all.into_iter().filter_map(|(there, method)| there.then_some(method)).collect()
    }

    pub(crate) fn count(&self, receiver: &str, outcome: &'static str, by: u64) {
        if by > 0 {
            *self.counts.lock().entry((receiver.to_owned(), outcome)).or_default() += by;
        }
    }

    pub(crate) fn samples(&self) -> Vec<ToldSample> {
        let sample = |((receiver, outcome), count): (&(String, &'static str), &u64)| ToldSample {
            receiver: receiver.clone(),
            outcome,
            count: *count,
        };
        self.counts.lock().iter().map(sample).collect()
    }
}

/// Tells everybody who is pushed to what they have not heard.
pub(crate) async fn deliver(provider: &Arc<Provider>) -> Result<(), StoreError> {
    let mut under_way = JoinSet::new();
    for receiver in &provider.receivers().all {
        if matches!(receiver.delivery, Delivery::Push { .. }) {
            let (provider, receiver) = (provider.clone(), receiver.clone());
            under_way.spawn(async move { work_off(&provider, &receiver).await });
        }
    }
    under_way.join_all().await.into_iter().collect()
}

async fn work_off(provider: &Provider, receiver: &Receiver) -> Result<(), StoreError> {
    let (store, name) = (provider.store(), &receiver.name);
    if !store.is_to_be_told(name, provider.now()).await? {
        return Ok(());
    }
    let take = TakeReceiver { receiver: name.clone(), lasts: TAKEN, now: provider.now() };
    let Some(taken) = store.write(take).await? else { return Ok(()) };
    let (heard, is_told) = tell_all(provider, receiver, taken).await?;
    let tries = match (is_told, heard > taken.seq) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => taken.tries.saturating_add(1),
    };
    let pause = match tries {
        0 => Duration::ZERO,
        tries => (FIRST_RETRY * 2_u32.saturating_pow((tries - 1).min(20))).min(LAST_RETRY),
    };
    let due_at = provider.now().plus(pause);
    store.write(GiveBack { receiver: name.clone(), from: taken.seq, to: heard, tries, due_at }).await?;
    Ok(())
}

/// Tells a receiver what it has not heard; answers what it has heard now, and whether it could be told.
async fn tell_all(provider: &Provider, receiver: &Receiver, taken: Taken) -> Result<(u64, bool), StoreError> {
    let epoch = provider.store().head().await?.epoch;
    let (began, mut heard) = (Instant::now(), taken.seq);
    let (mut given_up, mut is_told) = (0, true);
    for event in provider.store().occurred(taken.seq, BATCH).await? {
        if began.elapsed() >= TELLING {
            break;
        }
        if receiver.wants(event.what.kind) {
            if event.at.plus(GIVEN_UP) <= provider.now() {
                given_up += 1;
            } else if !tell(provider, receiver, &event, (&set::name(epoch, event.seq), taken.tries)).await {
                is_told = false;
                break;
            }
        }
        heard = event.seq;
    }
    if given_up > 0 {
        tracing::warn!(
            receiver = receiver.name,
            events = given_up,
            "events that nobody took for a week are given up"
        );
        provider.receivers().count(&receiver.name, "given_up", given_up);
    }
    Ok((heard, is_told))
}

/// Whether an event is done with: heard, or refused for good.
async fn tell(provider: &Provider, receiver: &Receiver, event: &Occurred, (jti, tries): (&str, u32)) -> bool {
    let Delivery::Push { endpoint, bearer } = &receiver.delivery else { return true };
    let body = match set::of(provider, receiver, event, jti) {
        Ok(body) => body,
        Err(fault) => {
            tracing::error!(%fault, receiver = receiver.name, "no security event token could be made");
            return false;
        }
    };
    let post = Post {
        url: endpoint.clone(),
        content_type: "application/secevent+jwt",
        authorization: Some(Zeroizing::new(format!("Bearer {}", *bearer.0))),
        body,
    };
    let answered = provider.outbound().post(post).await;
    let (name, kind) = (&receiver.name, event.what.kind.word());
    let (outcome, is_done) = match answered {
        Ok(200..=299) => {
            tracing::info!(receiver = name, kind, jti, "told of a security event");
            ("delivered", true)
        }
        // It says that the token is no good: it will say so again.
        Ok(400) => {
            tracing::warn!(receiver = name, kind, jti, "a receiver refused a security event with status 400");
            ("refused", true)
        }
        Ok(status) => {
            tracing::warn!(
                receiver = name,
                kind,
                jti,
                tries,
                status,
                "not told of a security event: tried again"
            );
            ("failed", false)
        }
        Err(why) => {
            tracing::warn!(
                receiver = name,
                kind,
                jti,
                tries,
                why,
                "not told of a security event: tried again"
            );
            ("failed", false)
        }
    };
    provider.receivers().count(name, outcome, 1);
    is_done
}
