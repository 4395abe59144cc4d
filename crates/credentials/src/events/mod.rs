//! Security events: what issuers elsewhere tell of their users, sessions and tokens of their own accord (`OpenID` Shared Signals
//! Framework 1.0, CAEP 1.0).
//!
//! Owns: taking tokens that are pushed ([`call`]) or fetched ([`fetch`]), having them verified by their transmitter's keys, what an
//! event takes back ([`meaning`]), and counting what came of each. Does not own: what such a token is
//! ([`auth::token::security_event`]), the log that what it tells is appended to ([`EventLog`]), what follows for tokens and sessions:
//! the log is followed like that of any issuer ([`crate::revocation`]).
//!
//! Flow: `push or fetch → Receiver::take: signature, audience, subject → meaning → EventLog::append → View::denied → 202 or ack`.
//!
//! What was acknowledged is durable, and in force here: it is appended first, then noted where every hit looks, then acknowledged.
//! Other processes that share the log hear of it like of anything in a log. A token that comes again appends the same again, which
//! changes nothing.
//!
//! Transmitters are known from the start to the end of a process. A reload exchanges what they push with ([`Receiver::admit`]), and has
//! what they tell remembered for longer ([`Receiver::outlast`]).

mod mapping;
mod poll;
mod push;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::token::jwt;
use auth::token::security_event::{EventKind, ExpectedEvents, SecurityEvent, Unit, security_events};
use auth::token_error::TokenError;
use coherence::{LogHead, Tag};
use http_engine::http_client::Throttle;
use outage::Outage;
use parking_lot::{Mutex, RwLock};
use telemetry::metrics::{Collect, Encoder, FamilyKind};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use zeroize::Zeroizing;

use crate::authenticate::{
    AuthenticatorRuntime, KeyOrigin, KeyRenewal, KeySchedule, KeyStore, KeyStoreRuntime,
};
use crate::config::EventDelivery;
use crate::events::mapping::EventMeaning;
pub use crate::events::push::{EventPush, MAX_BODY};
use crate::revocation::FollowedIssuer;

/// Tokens that are judged at once, at most.
const AT_ONCE: usize = 256;

/// Something to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTaken {
    /// What is taken back.
    pub tags: Vec<Tag>,
    /// Only what was made before, in milliseconds since 1970; `None`: all of it.
    pub not_before: Option<i64>,
    /// Until when it matters, in milliseconds since 1970.
    pub until: i64,
}

/// An answer that has to be waited for.
pub type EventAppended<'s> = Pin<Box<dyn Future<Output = Result<LogHead, LogFault>> + Send + 's>>;

/// The log cannot be written to.
#[derive(Debug, Clone, thiserror::Error)]
#[error("what was told cannot be kept: {0}")]
pub struct LogFault(pub String);

/// Keeps what was told. Who keeps it is the binary's to say.
pub trait EventLog: Send + Sync {
    /// Appends all of it or nothing; durable when answered, with how far the log has got.
    fn append(&self, taken: Vec<EventTaken>) -> EventAppended<'_>;
}

/// Why a token was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EventRefused {
    #[error("{0}")]
    Token(#[from] TokenError),
    #[error("its keys cannot be had now; see their source")]
    Keys,
    #[error("{0}")]
    Log(String),
    #[error("too many are being judged")]
    Busy,
}

impl EventRefused {
    /// Whether it may be taken another time.
    fn is_ours(&self) -> bool {
        !matches!(self, Self::Token(_))
    }

    /// A word for metrics.
    fn code(&self) -> &'static str {
        match self {
            Self::Token(error) => error.code(),
            Self::Keys => "keys_unavailable",
            Self::Log(_) => "log_unavailable",
            Self::Busy => "busy",
        }
    }

    /// As a transmitter is told (RFC 8935 §2.4).
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

/// How a transmitter stands, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsStatus {
    /// Its configured name.
    pub name: Box<str>,
    /// What became of events, by type and outcome: `applied`, `ignored`, `foreign`, or why their token was refused.
    pub events: Vec<(&'static str, &'static str, u64)>,
    /// Events whose time was in milliseconds, where seconds are meant.
    pub in_millis: u64,
    /// Whether events can be fetched; `None`: they are pushed.
    pub up: Option<bool>,
}

impl Collect for EventsStatus {
    fn collect(all: &[Self], e: &mut Encoder) {
        let mut family = e.family(
            "postern_security_events",
            FamilyKind::Counter,
            "Security events, by what became of them: applied, ignored, foreign, or why their token was refused.",
        );
        for one in all {
            for (kind, outcome, count) in &one.events {
                let labels = [("transmitter", &*one.name), ("type", kind), ("outcome", outcome)];
                family.sample(&labels, *count);
            }
        }
        let help = "Events whose time was in milliseconds, where RFC 8417 has seconds.";
        let mut family = e.family("postern_security_events_in_milliseconds", FamilyKind::Counter, help);
        for one in all {
            family.sample(&[("transmitter", &*one.name)], one.in_millis);
        }
        let mut family = e.family(
            "postern_security_events_up",
            FamilyKind::Gauge,
            "Whether security events can be fetched.",
        );
        for (one, up) in all.iter().filter_map(|one| Some((one, one.up?))) {
            family.sample(&[("transmitter", &*one.name)], u64::from(up));
        }
    }
}

/// Takes what is told. Clones of the pointer are one.
pub struct Receiver {
    transmitters: Box<[TransmitterState]>,
    log: Arc<dyn EventLog>,
    surroundings: AuthenticatorRuntime,
    places: Arc<Semaphore>,
    tasks: Mutex<Vec<AbortHandle>>,
}

struct TransmitterState {
    /// Without the tokens.
    config: crate::config::Transmitter,
    /// What it shows that pushes: one of these.
    tokens: RwLock<Vec<Zeroizing<String>>>,
    /// How long what it tells is remembered, in milliseconds.
    kept: AtomicU64,
    keys: Arc<KeyStore>,
    /// Those it speaks of.
    followed: Box<[Arc<FollowedIssuer>]>,
    counts: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// Events whose time was in milliseconds.
    in_millis: AtomicU64,
    /// Why nothing can be fetched; `None`: it can, or need not.
    down: Mutex<Option<Arc<str>>>,
    outage: Outage,
    told: Throttle,
}

impl Receiver {
    /// Begins to fetch what is fetched, on the control runtime. `followed`: all that transmitters speak of.
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
            places: Arc::new(Semaphore::new(AT_ONCE)),
            tasks: Mutex::default(),
            surroundings,
        });
        let fetched = this.transmitters.iter().enumerate();
        for (at, _) in fetched.filter(|(_, one)| matches!(one.config.way, EventDelivery::Fetched { .. })) {
            let task = this.surroundings.control.spawn(poll::run(Arc::downgrade(&this), at));
            this.tasks.lock().push(task.abort_handle());
        }
        this
    }

    /// Remembers what is told from now on for as long as sessions may last that begin from now on; for no less than before: there are
    /// those that began then.
    pub fn outlast(&self, sessions: Duration) {
        for one in &self.transmitters {
            one.kept.fetch_max(millis(sessions), Relaxed);
        }
    }

    /// Lets in whoever shows what these transmitters push with, and nobody any more by what they pushed with before. Nothing else of them
    /// is looked at, nor one that is called otherwise.
    pub fn admit(&self, transmitters: &[crate::config::Transmitter]) {
        for new in transmitters {
            let EventDelivery::Pushed { tokens, .. } = &new.way else { continue };
            let mut all = self.transmitters.iter();
            if let Some(one) = all.find(|one| one.name() == new.issuer.config.name()) {
                one.tokens.write().clone_from(tokens);
            }
        }
    }

    /// How each transmitter stands.
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
            up: matches!(one.config.way, EventDelivery::Fetched { .. }).then(|| one.down.lock().is_none()),
        };
        self.transmitters.iter().map(one).collect()
    }

    /// What is not as it should be although requests are answered.
    pub fn notes(&self) -> Vec<String> {
        let note = |one: &TransmitterState| {
            let why = one.down.lock().clone()?;
            Some(format!(
                "security events of {} cannot be fetched: {why}; what it tells takes effect later, or when tokens expire",
                one.name()
            ))
        };
        self.transmitters.iter().filter_map(note).collect()
    }

    /// Judges a token of a transmitter and puts in force what it tells.
    async fn take(&self, transmitter: &TransmitterState, token: &[u8]) -> Result<(), EventRefused> {
        let Ok(_place) = self.places.try_acquire() else { return Err(EventRefused::Busy) };
        let outcome = self.try_take(transmitter, token).await;
        if let Err(refused) = &outcome {
            transmitter.count("unknown", refused.code(), 1);
            // A key set and a database have lines of their own.
            if refused.is_ours() {
                tracing::debug!(transmitter = transmitter.name(), %refused, "a token cannot be taken now");
            } else if transmitter.told.is_due() {
                tracing::warn!(
                    transmitter = transmitter.name(),
                    %refused,
                    "a security event token was refused, said once in 10 s"
                );
            }
        }
        outcome
    }

    async fn try_take(&self, transmitter: &TransmitterState, token: &[u8]) -> Result<(), EventRefused> {
        let judged = self.judge(transmitter, token).await?;
        let all: Vec<EventTaken> = judged.iter().flat_map(|told| told.meaning.taken().cloned()).collect();
        if !all.is_empty() {
            let tags: Vec<Tag> = all.iter().flat_map(|one| &one.tags).copied().collect();
            let head = self.log.append(all).await.map_err(|fault| EventRefused::Log(fault.to_string()))?;
            // As if it had been heard of already: all of them look at one view of one log.
            if let Some(followed) = transmitter.followed.first() {
                for tag in tags {
                    followed.view.denied((head.epoch, head.seq), tag);
                }
            }
        }
        for EventOutcome { kind, jti, at, unit, state, meaning } in judged {
            let outcome = meaning.outcome();
            transmitter.count(kind.word(), outcome, 1);
            if unit == Unit::Milliseconds {
                transmitter.in_millis.fetch_add(1, Relaxed);
            }
            let (name, kind) = (transmitter.name(), kind.word());
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

    /// Has a token verified; by newer keys, if those at hand do not fit.
    async fn judge(
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
        // Else its own keys would be looked for among this one's, and the answer would be about keys.
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
                        let told = |event: &SecurityEvent<'_>| EventOutcome {
                            kind: event.kind,
                            jti: events.jti.into(),
                            at: event.at.as_secs(),
                            unit: event.unit,
                            state: event.state.map(Into::into),
                            meaning: transmitter.meaning(event, now.wall),
                        };
                        return Ok(events.events.iter().map(told).collect());
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

/// An event, taken out of its token.
struct EventOutcome {
    kind: EventKind,
    jti: Box<str>,
    at: u64,
    unit: Unit,
    state: Option<Box<str>>,
    meaning: EventMeaning,
}

impl TransmitterState {
    fn new(
        mut config: crate::config::Transmitter,
        followed: &[Arc<FollowedIssuer>],
        surroundings: &AuthenticatorRuntime,
    ) -> Self {
        let tokens = match &mut config.way {
            EventDelivery::Pushed { tokens, .. } => std::mem::take(tokens),
            EventDelivery::Fetched { .. } => Vec::new(),
        };
        let issuer = &config.issuer;
        let source = KeyOrigin::new(issuer.config.issuer(), issuer.keys.clone(), issuer.tls.clone());
        let schedule = KeySchedule { refresh: issuer.refresh, max_stale: issuer.max_stale };
        let means = KeyStoreRuntime {
            clock: surroundings.clock.clone(),
            control: surroundings.control.clone(),
            secret: surroundings.secret.clone(),
            generation: surroundings.generation.clone(),
        };
        let keys = KeyStore::start(issuer.config.name(), source, schedule, means, None);
        let spoken_of =
            |one: &&Arc<FollowedIssuer>| config.tokens_of.iter().any(|issuer| **issuer == *one.issuer);
        let followed = followed.iter().filter(spoken_of).cloned().collect();
        Self {
            tokens: RwLock::new(tokens),
            kept: AtomicU64::new(millis(config.kept)),
            keys,
            followed,
            counts: Mutex::default(),
            in_millis: AtomicU64::new(0),
            down: Mutex::default(),
            outage: Outage::of(format!("transmitter {}", config.issuer.config.name()))
                .with_effect("what it tells takes effect later"),
            told: Throttle::default(),
            config,
        }
    }

    fn name(&self) -> &str {
        self.config.issuer.config.name()
    }

    fn count(&self, kind: &'static str, outcome: &'static str, by: u64) {
        *self.counts.lock().entry((kind, outcome)).or_default() += by;
    }

    fn meaning(&self, event: &SecurityEvent<'_>, now: auth::time::Timestamp) -> EventMeaning {
        EventMeaning::of(event, &self.followed, now, Duration::from_millis(self.kept.load(Relaxed)))
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

/// How long somebody who pushes is asked to wait.
const RETRY_AFTER: Duration = Duration::from_secs(5);
