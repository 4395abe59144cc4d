//! What others tell of what happened at their place, kept in a database.
//!
//! Owns: opening it, the secret that its users share, following it as the log of those who are spoken of ([`EventLogState`]), and sweeping it.
//! Does not own: taking what is told (`credentials::events`), what a log is (`store`, `coherence`).
//!
//! One log serves all transmitters, and the issuers that they speak of are told apart by their tags, which each has a key of its own
//! for. It may be the provider's log: then its tags and these are in one, and nobody takes the one for the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use coherence::secret::SharedSecret;
use config::{DatabaseSettings, SecurityEvents};
use credentials::events::{EventAppended, EventLog, EventTaken, LogFault};
use credentials::revocation::FollowedIssuer;
use http_engine::clock::{Clock as _, SystemClock};
use store::security_events::{ShareSecret, TellAll};
use store::{Revocation, RevocationReach, Store};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use crate::exit::Failure;
use crate::revocation::{FollowedLog, LogSource, LogTransports, beside, together, view};

/// What the log is called among those that are followed.
const NAME: &str = "security-events";
/// How often what is over is deleted.
const SWEEP: Duration = Duration::from_mins(1);
/// How long events stay in the log for those who were away.
const LOG_KEPT: Duration = Duration::from_hours(48);

/// The log of what is told, followed. What runs for it ends when this is dropped.
pub struct EventLogState {
    following: Arc<FollowedLog>,
    followed: Vec<Arc<FollowedIssuer>>,
    store: Store,
    sweeping: AbortHandle,
}

impl EventLogState {
    /// Follows the log in `store`, which is `database` and was opened in this runtime. Blocks, outside of it.
    ///
    /// # Errors
    /// In one line, with a remedy.
    pub fn start(
        events: &SecurityEvents,
        (store, database): (Store, &DatabaseSettings),
        ways: &LogTransports,
        on: &Handle,
    ) -> Result<Self, Failure> {
        let _runtime = on.enter();
        let secret = on.block_on(shared(&store))?;
        let own = secret.of(NAME);
        let source = LogSource {
            issuer: NAME.into(),
            tags: own.tag_key(),
            keys: own.message_keys(),
            transport: together(beside(database, store.outage())),
            lease: ways.lease,
            facts: store.clone(),
            called: ways.called.clone(),
            view: view(),
            counts: Arc::default(),
            outage: store.outage().way(),
        };
        let mut following = FollowedLog::start(source, on)?;
        following.answer(&store, on);
        // Two who speak of one issuer: what both remember is remembered for as long.
        let mut spoken_of: BTreeMap<&str, Duration> = BTreeMap::new();
        for transmitter in &events.transmitters {
            for issuer in &transmitter.tokens_of {
                let longest = spoken_of.entry(issuer).or_insert(transmitter.longest);
                *longest = transmitter.longest.min(*longest);
            }
        }
        following.tells_of(spoken_of.keys().map(|issuer| Box::from(*issuer)));
        let followed = spoken_of.into_iter();
        let followed =
            followed.map(|(issuer, longest)| following.of(issuer, secret.of(issuer).tag_key(), longest));
        let followed = followed.collect();
        let sweeping = on.spawn(sweep(store.clone())).abort_handle();
        Ok(Self { following: Arc::new(following), followed, store, sweeping })
    }

    /// The log as it is followed.
    pub fn following(&self) -> &Arc<FollowedLog> {
        &self.following
    }

    /// All who are spoken of.
    pub fn followed(&self) -> &[Arc<FollowedIssuer>] {
        &self.followed
    }

    /// Makes durable what was begun, and ends.
    pub async fn close(self) {
        self.store.close().await;
    }

    /// Where what is told is kept.
    pub fn log(&self) -> Arc<dyn EventLog> {
        Arc::new(Log(self.store.clone()))
    }
}

impl Drop for EventLogState {
    fn drop(&mut self) {
        self.sweeping.abort();
    }
}

/// The secret of all who share the database.
async fn shared(store: &Store) -> Result<SharedSecret, Failure> {
    let mut drawn = [0; 64];
    let filled = SystemRandom::new().fill(&mut drawn);
    filled.map_err(|_| Failure::new("the system has no randomness to give"))?;
    let kept = store.write(ShareSecret(drawn)).await;
    let kept = kept.map_err(|error| Failure::new(format!("the database of security events: {error}")))?;
    let (mut tags, mut root) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
    tags.copy_from_slice(&kept[..32]);
    root.copy_from_slice(&kept[32..]);
    let shared = SharedSecret::new(tags, vec![(1, root)]);
    shared.map_err(|error| Failure::new(format!("the database of security events: {error}")))
}

/// The log, as events are appended to it.
struct Log(Store);

impl EventLog for Log {
    fn append(&self, taken: Vec<EventTaken>) -> EventAppended<'_> {
        let time = |millis: i64| Timestamp::from_millis(u64::try_from(millis).unwrap_or(0));
        let revocation = |taken: EventTaken| Revocation {
            tags: taken.tags,
            reason: "security event",
            reach: taken
                .not_before
                .map_or(RevocationReach::Whole, |then| RevocationReach::Before(time(then))),
            until: time(taken.until),
            // Whoever told us tells everybody else.
            occurrence: None,
        };
        let revocations = taken.into_iter().map(revocation).collect();
        Box::pin(async move {
            let all = TellAll { revocations, now: SystemClock.now().wall };
            let told = async {
                self.0.write(all).await?;
                // At least as far as the log has got with it.
                self.0.head().await
            };
            told.await.map_err(|error| LogFault(error.to_string()))
        })
    }
}

/// Deletes what is over. The provider does so as well where it is its database.
async fn sweep(store: Store) {
    loop {
        tokio::time::sleep(SWEEP).await;
        if let Err(error) = store.sweep(SystemClock.now().wall, LOG_KEPT).await
            && !error.is_outage()
        {
            tracing::warn!(%error, "security events that are over stay in the database for now");
        }
    }
}
