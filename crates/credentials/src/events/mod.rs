//! Security events: receives what other issuers report about users, sessions and tokens (OpenID
//! Shared Signals Framework 1.0, CAEP 1.0).
//!
//! Owns: receiving event tokens that are pushed (`push`) or polled (`poll`), verifying them with
//! their transmitter's keys, what an event revokes (`mapping`), counters of the outcomes. Does not
//! own: the format of an event token ([`auth::token::security_event`]), the log that events are
//! appended to ([`EventLog`]), the effect on tokens and sessions: that log is followed like that of
//! any issuer ([`crate::revocation`]).
//!
//! Flow: `push or poll → Receiver::take: signature, audience, subject → mapping → EventLog::append
//! → View::denied → 202 or ack`.
//!
//! An acknowledged event is durable and applied here: it is appended first, then noted where every
//! hit checks, then acknowledged. Other processes that share the log receive it through the log. A
//! repeated token appends the same event again, which changes nothing.
//!
//! The transmitters are fixed from the start to the end of a process. A reload exchanges their push
//! credentials ([`Receiver::replace_push_tokens`]), and extends how long their events are stored
//! ([`Receiver::extend_retention`]).

mod mapping;
mod poll;
mod push;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::token::jwt;
use auth::token::security_event::{EventKind, ExpectedEvents, SecurityEvent, TimeUnit, security_events};
use auth::token_error::TokenError;
use coherence::{LogHead, Tag};
use http_engine::http_client::Throttle;
use outage::Outage;
use parking_lot::{Mutex, RwLock};
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use crate::authenticate::{AuthenticatorRuntime, KeyRenewal, KeyStore, start_key_store};
use crate::config::EventDelivery;
use crate::events::mapping::EventMeaning;
pub use crate::events::push::{EventPush, MAX_BODY};
use crate::revocation::FollowedIssuer;

/// Maximum number of event tokens verified at once.
const MAX_CONCURRENT: usize = 256;

/// A revocation to append to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRevocation {
    /// The tags that are revoked.
    pub tags: Vec<Tag>,
    /// Revokes only what was issued before this time, in milliseconds since 1970; `None`:
    /// everything with such a tag.
    pub not_before: Option<i64>,
    /// Until when the revocation matters, in milliseconds since 1970.
    pub until: i64,
}

/// Future of an append to the log.
pub type AppendFuture<'s> = Pin<Box<dyn Future<Output = Result<LogHead, LogFault>> + Send + 's>>;

/// The log cannot be written to.
#[derive(Debug, Clone, thiserror::Error)]
#[error("security events cannot be stored: {0}")]
pub struct LogFault(pub String);

/// Stores events durably. The binary provides the implementation.
pub trait EventLog: Send + Sync {
    /// Appends all of them or none. They are durable when the future completes, with the head of
    /// the log.
    fn append(&self, taken: Vec<EventRevocation>) -> AppendFuture<'_>;
}

/// Why an event token was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventRefused {
    #[error("{0}")]
    Token(#[from] TokenError),
    #[error("the transmitter's keys are unavailable; check their source")]
    Keys,
    #[error("{0}")]
    Log(String),
    #[error("too many event tokens are being verified")]
    Busy,
}

impl EventRefused {
    /// Whether the token may be accepted later.
    fn is_retryable(&self) -> bool {
        !matches!(self, Self::Token(_))
    }

    /// Reason label for metrics.
    fn code(&self) -> &'static str {
        match self {
            Self::Token(error) => error.code(),
            Self::Keys => "keys_unavailable",
            Self::Log(_) => "log_unavailable",
            Self::Busy => "busy",
        }
    }

    /// The error code for the transmitter (RFC 8935 §2.4).
    fn error(&self) -> &'static str {
        use TokenError as T;
        match self {
            Self::Token(T::WrongIssuer) => "invalid_issuer",
            Self::Token(T::WrongAudience) => "invalid_audience",
            Self::Token(
                T::UnknownKey
                | T::AmbiguousKey
                | T::KeyMismatch
                | T::BadSignature
                | T::AlgorithmNotAllowed
                | T::Unsigned
                | T::Symmetric
                | T::UnsupportedAlgorithm,
            ) => "invalid_key",
            _ => "invalid_request",
        }
    }
}

/// Counters of a transmitter, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsStatus {
    /// Its configured name.
    pub name: Box<str>,
    /// Events by type and outcome: `applied`, `ignored`, `foreign`, or why their token was refused.
    pub events: Vec<(&'static str, &'static str, u64)>,
    /// Events with a time in milliseconds instead of seconds.
    pub in_millis: u64,
    /// Whether the poll endpoint is reachable; `None`: events are pushed.
    pub up: Option<bool>,
}

impl Collect for EventsStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        let mut family = e.family(
            "postern_security_events",
            FamilyKind::Counter,
            "Security events, by outcome: applied, ignored, foreign, or why their token was refused.",
        );
        for one in all {
            for (kind, outcome, count) in &one.events {
                let labels = [("transmitter", &*one.name), ("type", kind), ("outcome", outcome)];
                family.sample(&labels, *count);
            }
        }
        let help = "Security events with a time in milliseconds instead of seconds (RFC 8417).";
        let mut family = e.family("postern_security_events_in_milliseconds", FamilyKind::Counter, help);
        for one in all {
            family.sample(&[("transmitter", &*one.name)], one.in_millis);
        }
        let mut family = e.family(
            "postern_security_events_up",
            FamilyKind::Gauge,
            "Whether the poll endpoint for security events is reachable.",
        );
        for (one, up) in all.iter().filter_map(|one| Some((one, one.up?))) {
            family.sample(&[("transmitter", &*one.name)], u64::from(up));
        }
    }
}

/// Receives security events.
pub struct Receiver {
    transmitters: Box<[TransmitterState]>,
    log: Arc<dyn EventLog>,
    surroundings: AuthenticatorRuntime,
    places: Arc<Semaphore>,
    tasks: Mutex<Vec<AbortHandle>>,
}

struct TransmitterState {
    /// The configuration, without the bearer tokens.
    config: crate::config::Transmitter,
    /// Bearer tokens that the transmitter may push with.
    tokens: RwLock<Vec<Zeroizing<String>>>,
    /// How long its events are stored, in milliseconds.
    retention: AtomicU64,
    keys: Arc<KeyStore>,
    /// The followed issuers that its events are about.
    followed: Box<[Arc<FollowedIssuer>]>,
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// Events with a time in milliseconds.
    in_millis: AtomicU64,
    /// Why polling fails; `None`: it works, or is not used.
    poll_error: Mutex<Option<Arc<str>>>,
    outage: Outage,
    log_throttle: Throttle,
}

impl Receiver {
    /// Starts a poll task on the control runtime for each transmitter that is polled. `followed`:
    /// all issuers that events may be about.
    pub fn start(
        transmitters: Vec<crate::config::Transmitter>,
        followed: &[Arc<FollowedIssuer>],
        log: Arc<dyn EventLog>,
        surroundings: AuthenticatorRuntime,
    ) -> Arc<Self> {
        let transmitters =
            transmitters.into_iter().map(|config| TransmitterState::new(config, followed, &surroundings));
        let this = Arc::new(Self {
            transmitters: transmitters.collect(),
            log,
            places: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            tasks: Mutex::default(),
            surroundings,
        });
        let fetched = this.transmitters.iter().enumerate();
        for (at, _) in fetched.filter(|(_, one)| matches!(one.config.delivery, EventDelivery::Polled { .. }))
        {
            let task = this.surroundings.control.spawn(poll::run(Arc::downgrade(&this), at));
            this.tasks.lock().push(task.abort_handle());
        }
        this
    }

    /// Stores later events for at least as long as sessions that begin from now on may last. Never
    /// shortens the time: older sessions may still exist.
    pub fn extend_retention(&self, sessions: Duration) {
        for one in &self.transmitters {
            one.retention.fetch_max(millis(sessions), Relaxed);
        }
    }

    /// Replaces the push credentials of these transmitters. Other settings are ignored, and so are
    /// transmitters with an unknown name.
    pub fn replace_push_tokens(&self, transmitters: &[crate::config::Transmitter]) {
        for new in transmitters {
            let EventDelivery::Pushed { bearer_tokens: tokens, .. } = &new.delivery else { continue };
            let mut all = self.transmitters.iter();
            if let Some(one) = all.find(|one| one.name() == new.issuer.config.name()) {
                one.tokens.write().clone_from(tokens);
            }
        }
    }

    /// Counters of each transmitter.
    pub fn status(&self) -> Vec<EventsStatus> {
        let one = |one: &TransmitterState| EventsStatus {
            name: one.name().into(),
            events: one
                .counts
                .lock()
                .iter()
                .map(|((kind, outcome), count)| (*kind, *outcome, *count))
                .collect(),
            in_millis: one.in_millis.load(Relaxed),
            up: matches!(one.config.delivery, EventDelivery::Polled { .. })
                .then(|| one.poll_error.lock().is_none()),
        };
        self.transmitters.iter().map(one).collect()
    }

    /// Degraded dependencies of a gateway that still answers requests.
    pub fn notes(&self) -> Vec<String> {
        let note = |one: &TransmitterState| {
            let why = one.poll_error.lock().clone()?;
            Some(format!(
                "security events of {} cannot be polled: {why}; its revocations take effect later, or when tokens expire",
                one.name()
            ))
        };
        self.transmitters.iter().filter_map(note).collect()
    }

    /// Verifies an event token of a transmitter and applies its events.
    async fn receive(&self, transmitter: &TransmitterState, token: &[u8]) -> Result<(), EventRefused> {
        let Ok(_place) = self.places.try_acquire() else { return Err(EventRefused::Busy) };
        let outcome = self.try_take(transmitter, token).await;
        if let Err(refused) = &outcome {
            transmitter.count("unknown", refused.code(), 1);
            // Key sets and databases have outage logs of their own.
            if refused.is_retryable() {
                tracing::debug!(transmitter = transmitter.name(), %refused, "security event token deferred");
            } else if transmitter.log_throttle.is_due() {
                tracing::warn!(
                    transmitter = transmitter.name(),
                    %refused,
                    "security event token refused"
                );
            }
        }
        outcome
    }

    async fn try_take(&self, transmitter: &TransmitterState, token: &[u8]) -> Result<(), EventRefused> {
        let judged = self.verify(transmitter, token).await?;
        let all: Vec<EventRevocation> =
            judged.iter().flat_map(|verified| verified.meaning.revocations().cloned()).collect();
        if !all.is_empty() {
            let tags: Vec<Tag> = all.iter().flat_map(|one| &one.tags).copied().collect();
            let head = self.log.append(all).await.map_err(|fault| EventRefused::Log(fault.to_string()))?;
            // As if the log had delivered them already: all followed issuers share one view of one
            // log.
            if let Some(followed) = transmitter.followed.first() {
                for tag in tags {
                    followed.view.apply_denial((head.epoch, head.seq), tag);
                }
            }
        }
        for EventOutcome { kind, jti, at, unit, state, meaning } in judged {
            let outcome = meaning.outcome();
            transmitter.count(kind.as_str(), outcome, 1);
            if unit == TimeUnit::Milliseconds {
                transmitter.in_millis.fetch_add(1, Relaxed);
            }
            let (name, kind) = (transmitter.name(), kind.as_str());
            tracing::info!(
                transmitter = name,
                kind,
                outcome,
                jti = &*jti,
                at,
                state = state.as_deref(),
                "security event"
            );
        }
        Ok(())
    }

    /// Verifies an event token; fetches newer keys if the current ones do not fit.
    async fn verify(
        &self,
        transmitter: &TransmitterState,
        token: &[u8],
    ) -> Result<Vec<EventOutcome>, EventRefused> {
        let issuer = &*transmitter.config.issuer.config;
        let expected = ExpectedEvents {
            issuer: issuer.issuer(),
            audiences: issuer.audiences(),
            clock_skew: issuer.clock_skew(),
        };
        let unverified = jwt::parse(token)?;
        // Otherwise its key would be searched among the wrong issuer's keys, and the error would be
        // about keys.
        if unverified.issuer() != expected.issuer {
            return Err(TokenError::WrongIssuer.into());
        }
        let mut seen = 0;
        loop {
            let now = self.surroundings.clock.now();
            let error = match transmitter.keys.current(now) {
                Some(held) => match unverified.signed(issuer.algorithms(), &held.set) {
                    Ok(signed) => {
                        let events = security_events(signed, &expected, now.wall)?;
                        let outcome = |event: &SecurityEvent<'_>| EventOutcome {
                            kind: event.kind,
                            jti: events.jti.into(),
                            at: event.occurred_at.as_secs(),
                            unit: event.unit,
                            state: event.state.map(Into::into),
                            meaning: transmitter.map(event, now.wall),
                        };
                        return Ok(events.events.iter().map(outcome).collect());
                    }
                    Err(error) if held.attempt > seen && unverified.may_pass_newer_keys(&error) => {
                        seen = held.attempt;
                        Some(error)
                    }
                    Err(error) => return Err(error.into()),
                },
                None => None,
            };
            match transmitter.keys.renew(seen, now).await {
                KeyRenewal::Newer => {}
                KeyRenewal::Fresh => return Err(error.map_or(EventRefused::Keys, EventRefused::Token)),
                KeyRenewal::Failed { .. } => return Err(EventRefused::Keys),
            }
        }
    }
}

/// An event with the metadata of its token.
struct EventOutcome {
    kind: EventKind,
    jti: Box<str>,
    at: u64,
    unit: TimeUnit,
    state: Option<Box<str>>,
    meaning: EventMeaning,
}

impl TransmitterState {
    fn new(
        mut config: crate::config::Transmitter,
        followed: &[Arc<FollowedIssuer>],
        surroundings: &AuthenticatorRuntime,
    ) -> Self {
        let tokens = match &mut config.delivery {
            EventDelivery::Pushed { bearer_tokens: tokens, .. } => std::mem::take(tokens),
            EventDelivery::Polled { .. } => Vec::new(),
        };
        let issuer = &config.issuer;
        let keys = start_key_store(issuer, surroundings, None);
        let spoken_of =
            |one: &&Arc<FollowedIssuer>| config.tokens_of.iter().any(|issuer| **issuer == *one.issuer);
        let followed = followed.iter().filter(spoken_of).cloned().collect();
        Self {
            tokens: RwLock::new(tokens),
            retention: AtomicU64::new(millis(config.retention)),
            keys,
            followed,
            counts: Mutex::default(),
            in_millis: AtomicU64::new(0),
            poll_error: Mutex::default(),
            outage: Outage::new(format!("transmitter {}", config.issuer.config.name()))
                .with_effect("its revocations take effect later"),
            log_throttle: Throttle::default(),
            config,
        }
    }

    fn name(&self) -> &str {
        self.config.issuer.config.name()
    }

    fn count(&self, kind: &'static str, outcome: &'static str, increment: u64) {
        *self.counts.lock().entry((kind, outcome)).or_default() += increment;
    }

    fn map(&self, event: &SecurityEvent<'_>, now: auth::time::Timestamp) -> EventMeaning {
        EventMeaning::of(event, &self.followed, now, Duration::from_millis(self.retention.load(Relaxed)))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for Receiver {
    fn drop(&mut self) {
        for task in self.tasks.get_mut() {
            task.abort();
        }
    }
}

/// How long a transmitter that pushes should wait before a retry.
const RETRY_AFTER: Duration = Duration::from_secs(5);
