//! Security events: stores events of other issuers in a database and follows them as a revocation
//! log.
//!
//! Owns: opening the database, the secret that its users share, following it as the log of the
//! reported issuers ([`EventLogState`]), and deleting expired rows. Does not own: receiving events
//! (`credentials::events`), the log itself (`store`, `coherence`).
//!
//! One log serves all transmitters. The tags of each reported issuer are made with a key of its
//! own. The log may be the provider's. Then it contains both kinds of tags, and they cannot be
//! confused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use auth::time::Timestamp;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use coherence::secret::SharedSecret;
use config::{DatabaseSettings, SecurityEvents};
use credentials::events::{AppendFuture, EventLog, EventRevocation, LogFault};
use credentials::revocation::FollowedIssuer;
use http_engine::clock::{Clock as _, SystemClock};
use store::security_events::{AppendRevocations, StoreSharedSecret};
use store::{Revocation, RevocationReach, Store};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use crate::exit::Failure;
use crate::revocation::transports::{LogTransports, combine_transports, database_transports};
use crate::revocation::{FollowedLog, LogSource, new_view};

/// Name of the log among the followed logs.
const NAME: &str = "security-events";
/// Time between two deletions of expired rows.
const EXPIRY_INTERVAL: Duration = Duration::from_mins(1);
/// How long events stay in the log for consumers that are disconnected.
const LOG_KEPT: Duration = Duration::from_hours(48);

/// The followed log of security events. Its background tasks end when this value is dropped.
pub struct EventLogState {
    log: Arc<FollowedLog>,
    followed_issuers: Vec<Arc<FollowedIssuer>>,
    store: Store,
    sweep_task: AbortHandle,
}

impl EventLogState {
    /// Follows the log in `store`, which must be the open `database` of this runtime. Blocks, so
    /// call it outside of the runtime.
    ///
    /// # Errors
    /// A message in one line, with a hint.
    pub fn start(
        events: &SecurityEvents,
        (store, database): (Store, &DatabaseSettings),
        ways: &LogTransports,
        on: &Handle,
    ) -> Result<Self, Failure> {
        let _runtime = on.enter();
        let secret = on.block_on(load_shared_secret(&store))?;
        let own = secret.derive_for(NAME);
        let source = LogSource {
            issuer: NAME.into(),
            tags: own.tag_key(),
            keys: own.message_keys(),
            transport: combine_transports(database_transports(database, store.outage())),
            lease: ways.lease,
            denylist_source: store.clone(),
            consumer_name: ways.called.clone(),
            view: new_view(),
            counts: Arc::default(),
            outage: store.outage().another_way(),
        };
        let mut following = FollowedLog::start(source, on)?;
        following.answer(&store, on);
        // If two transmitters report one issuer, the shorter token lifetime applies: both store
        // events for at least this time.
        let mut spoken_of: BTreeMap<&str, Duration> = BTreeMap::new();
        for transmitter in &events.transmitters {
            for issuer in &transmitter.tokens_of {
                let longest = spoken_of.entry(issuer).or_insert(transmitter.max_token_age);
                *longest = transmitter.max_token_age.min(*longest);
            }
        }
        following.add_reported_issuers(spoken_of.keys().map(|issuer| Box::from(*issuer)));
        let followed = spoken_of.into_iter();
        let followed = followed.map(|(issuer, longest)| {
            following.for_issuer(issuer, secret.derive_for(issuer).tag_key(), longest)
        });
        let followed = followed.collect();
        let sweeping = on.spawn(delete_expired(store.clone())).abort_handle();
        Ok(Self { log: Arc::new(following), followed_issuers: followed, store, sweep_task: sweeping })
    }

    /// The log with its consumer state.
    pub fn followed_log(&self) -> &Arc<FollowedLog> {
        &self.log
    }

    /// All reported issuers.
    pub fn followed_issuers(&self) -> &[Arc<FollowedIssuer>] {
        &self.followed_issuers
    }

    /// Makes pending changes durable and closes the database.
    pub async fn close(self) {
        self.store.close().await;
    }

    /// The log that new events are appended to.
    pub fn log(&self) -> Arc<dyn EventLog> {
        Arc::new(EventLogAppender(self.store.clone()))
    }
}

impl Drop for EventLogState {
    fn drop(&mut self) {
        self.sweep_task.abort();
    }
}

/// Secret that all processes with this database share.
async fn load_shared_secret(store: &Store) -> Result<SharedSecret, Failure> {
    let mut drawn = [0; 64];
    let filled = SystemRandom::new().fill(&mut drawn);
    filled.map_err(|_| Failure::new("the system has no random numbers available"))?;
    let stored = store.write(StoreSharedSecret(drawn)).await;
    let stored = stored.map_err(|error| Failure::new(format!("the database of security events: {error}")))?;
    let (mut tags, mut root) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
    tags.copy_from_slice(&stored[..32]);
    root.copy_from_slice(&stored[32..]);
    let shared = SharedSecret::new(tags, vec![(1, root)]);
    shared.map_err(|error| Failure::new(format!("the database of security events: {error}")))
}

/// Adapter that appends events to the log.
struct EventLogAppender(Store);

impl EventLog for EventLogAppender {
    fn append(&self, taken: Vec<EventRevocation>) -> AppendFuture<'_> {
        let time = |millis: i64| Timestamp::from_millis(u64::try_from(millis).unwrap_or(0));
        let revocation = |taken: EventRevocation| Revocation {
            tags: taken.tags,
            reason: "security event",
            reach: taken
                .not_before
                .map_or(RevocationReach::All, |then| RevocationReach::IssuedBefore(time(then))),
            until: time(taken.until),
            // No occurrence: this entry comes from a transmitter and is not reported to other
            // receivers.
            occurrence: None,
        };
        let revocations = taken.into_iter().map(revocation).collect();
        Box::pin(async move {
            let all = AppendRevocations { revocations, now: SystemClock.now().wall };
            let append = async {
                self.0.write(all).await?;
                // The position is at least that of the appended events.
                self.0.head().await
            };
            append.await.map_err(|error| LogFault(error.to_string()))
        })
    }
}

/// Deletes expired rows. The provider does the same if the database is its own.
async fn delete_expired(store: Store) {
    loop {
        tokio::time::sleep(EXPIRY_INTERVAL).await;
        if let Err(error) = store.delete_expired(SystemClock.now().wall, LOG_KEPT).await
            && !error.is_outage()
        {
            tracing::warn!(%error, "deleting expired security events failed; retrying");
        }
    }
}
