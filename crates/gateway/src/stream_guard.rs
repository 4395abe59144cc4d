//! Stream guard: cuts an exchange when a credential that authorized it stops being valid.
//!
//! A response can outlive its credential: a WebSocket, an event stream, a long download, or a
//! request that waited before it could be sent. The guard checks again while the exchange lasts.
//!
//! Owns: when to check, when to ask the issuer, how long to wait for its answer. Does not own: what
//! is known of a credential and how its issuer is asked ([`credentials::revocation`]), whether a
//! session is over ([`credentials::open_session`]), how an exchange is cut ([`crate::forward`],
//! [`crate::relay`]).
//!
//! 1. Each credential that authorized the exchange is known to be valid until some time: the end of
//!    a lease, or a lease after the issuer was last asked and confirmed it.
//! 2. Every [`CHECK_INTERVAL`] the guard reads local state, without I/O. This usually moves that
//!    time forward.
//! 3. If it does not, the guard asks the issuer, early enough for the answer to arrive in time, and
//!    again after each failure.
//! 4. At that time plus [`ANSWER_GRACE`] the exchange is cut, regardless of pending questions.
//!
//! A session is checked as well, whichever provider it has. Where a shared store keeps it, the
//! store is read as often as for requests.
//!
//! A token or certificate that expires ends its exchange ([`Expiry`]), unless the route keeps it
//! open. The wall clock decides, as for requests. That clock may be set, so the guard reads it from
//! time to time even if the end is far away.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use auth::time::Timestamp;
use coherence::time::Boot;
use credentials::open_session::OpenSession;
use credentials::revocation::{CutReason, IssuerAnswer, RevocableToken, RevocationStatus};
use http_engine::clock::CoarseClock;
use http_engine::deadline::Deadline;

use crate::record::RequestRecord;

/// Interval of the local checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long past the end of validity the guard waits for an answer. With one tick of the worker
/// this is half of the second that the documentation promises.
const ANSWER_GRACE: Duration = Duration::from_millis(250);

/// Interval of wall clock checks where only expiry can end the exchange.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// A pending question whether a credential is still valid.
type PendingQuestion<T> = Pin<Box<dyn Future<Output = T>>>;

/// Guards one exchange, from authorization to its last byte.
pub(crate) struct StreamGuard {
    /// Time of the next check, in milliseconds since the worker's start; `u64::MAX` where nothing
    /// can end.
    next_check: u64,
    /// Until when all tokens are known to be valid, as of the beginning.
    valid_until: Boot,
    /// The credentials to check, filled at the first check: most exchanges end before it.
    guarded: Option<Box<Guarded>>,
}

/// The credentials that authorized an exchange.
pub(crate) struct AuthorizedBy {
    pub(crate) revocable: Vec<RevocableToken>,
    pub(crate) session: Option<OpenSession>,
    pub(crate) expiry: Option<Expiry>,
}

/// When a credential expires by itself, with the clock to compare.
#[derive(Clone)]
pub(crate) struct Expiry {
    at: Timestamp,
    clock: Rc<CoarseClock>,
}

/// The credentials of an exchange that may become invalid before it ends.
struct Guarded {
    revocable: Vec<GuardedToken>,
    session: Option<GuardedSession>,
    expiry: Option<Expiry>,
}

/// A revocable token or authorizer answer that authorized the exchange.
struct GuardedToken {
    revocable: RevocableToken,
    /// Known to be valid until at least this time; later findings are in the [`RevocableToken`].
    valid_until: Boot,
    pending: Option<PendingQuestion<IssuerAnswer>>,
}

/// A session that authorized the exchange.
struct GuardedSession {
    lasting: OpenSession,
    /// When to read the store next, in milliseconds since the worker's start; `u64::MAX` where no
    /// store keeps the session.
    next_store_read: u64,
    pending: Option<PendingQuestion<bool>>,
}

impl StreamGuard {
    /// Starts guarding an exchange that these credentials authorized just now.
    pub(crate) fn begin<'r>(
        grounds: impl Iterator<Item = &'r RevocableToken>,
        session: Option<&OpenSession>,
        expiry: Option<&Expiry>,
        deadline: &Deadline,
    ) -> Self {
        let until = grounds.map(RevocableToken::valid_until).min();
        let may_end = until.is_some() || session.is_some() || expiry.is_some();
        let look_at = if may_end { deadline.millis_at(CHECK_INTERVAL) } else { u64::MAX };
        Self { next_check: look_at, valid_until: until.unwrap_or_default(), guarded: None }
    }

    /// Time of the next poll, in milliseconds since the worker's start. After a poll it is in the
    /// future.
    pub(crate) fn next_check(&self) -> u64 {
        self.next_check
    }

    /// Fails when the exchange must be cut. `rests_on` returns the credentials that the guard was
    /// started with.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &Deadline,
        rests_on: impl FnOnce() -> AuthorizedBy,
    ) -> Result<(), CutReason> {
        // Nothing can become invalid.
        if self.next_check == u64::MAX {
            return Ok(());
        }
        if deadline.millis_at(Duration::ZERO) >= self.next_check {
            let until = self.valid_until;
            let grounds = self.guarded.get_or_insert_with(|| Guarded::new(rests_on(), until, deadline));
            let next = grounds.check_local(deadline)?;
            self.next_check = deadline.millis_at(next.max(Duration::from_millis(1)));
        }
        self.guarded.as_mut().map_or(Ok(()), |grounds| grounds.poll(cx, deadline))
    }
}

impl Guarded {
    fn new(rests_on: AuthorizedBy, until: Boot, deadline: &Deadline) -> Box<Self> {
        let AuthorizedBy { revocable, session, expiry } = rests_on;
        let revocable = revocable.into_iter().map(|one| GuardedToken::new(one, until)).collect();
        Box::new(Self {
            revocable,
            session: session.map(|session| GuardedSession::new(session, deadline)),
            expiry,
        })
    }

    /// Checks by local state; returns the time until the next check.
    fn check_local(&mut self, deadline: &Deadline) -> Result<Duration, CutReason> {
        let mut next = if self.revocable.is_empty() && self.session.is_none() {
            CLOCK_CHECK_INTERVAL
        } else {
            CHECK_INTERVAL
        };
        if let Some(expiry) = &self.expiry {
            next = next.min(expiry.remaining()?);
        }
        for ground in &mut self.revocable {
            next = next.min(ground.check_local()?);
        }
        self.session.as_mut().map_or(Ok(()), |session| session.check_local(deadline))?;
        Ok(next)
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: &Deadline) -> Result<(), CutReason> {
        self.revocable.iter_mut().try_for_each(|ground| ground.poll(cx))?;
        self.session.as_mut().map_or(Ok(()), |session| session.poll(cx, deadline))
    }
}

impl Expiry {
    /// For a credential that expires at `at`; `None`: it does not expire.
    pub(crate) fn new(at: Timestamp, clock: &Rc<CoarseClock>) -> Option<Self> {
        (at < Timestamp::MAX).then(|| Self { at, clock: clock.clone() })
    }

    /// The remaining time, or an error when it has expired.
    fn remaining(&self) -> Result<Duration, CutReason> {
        let left = self.at.since(self.clock.now().wall);
        if left.is_zero() { Err(CutReason::Expired) } else { Ok(left) }
    }
}

impl GuardedToken {
    fn new(revocable: RevocableToken, until: Boot) -> Self {
        // For an authorizer's answer no time of validity may be known. The issuer is asked before
        // an exchange that began just now is cut.
        let at_least = until.max(revocable.now());
        Self { revocable, valid_until: at_least, pending: None }
    }

    /// Checks local state, and otherwise asks the issuer. Returns the time until the token counts
    /// as unknown without news.
    fn check_local(&mut self) -> Result<Duration, CutReason> {
        let known = self.revocable.status_until_answer();
        let over = self.valid_until.max(self.revocable.until()).plus(ANSWER_GRACE);
        let left = over.since(self.revocable.now());
        match known {
            RevocationStatus::NotRevoked(_) => {}
            RevocationStatus::Denied => return Err(CutReason::Revoked),
            RevocationStatus::Unknown if left.is_zero() => return Err(CutReason::Unknown),
            RevocationStatus::Unknown => {
                let one = self.revocable.clone();
                self.pending.get_or_insert_with(|| Box::pin(async move { one.ask().await }));
            }
        }
        Ok(left)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), CutReason> {
        let Some(query) = &mut self.pending else { return Ok(()) };
        let Poll::Ready(answer) = query.as_mut().poll(cx) else { return Ok(()) };
        // The next check asks again, if that is still needed.
        self.pending = None;
        match answer {
            IssuerAnswer::Denied => Err(CutReason::Revoked),
            IssuerAnswer::NotRevoked(_) | IssuerAnswer::NoAnswer => Ok(()),
        }
    }
}

impl GuardedSession {
    fn new(lasting: OpenSession, deadline: &Deadline) -> Self {
        let ask_at = lasting.store_interval().map_or(u64::MAX, |every| deadline.millis_at(every));
        Self { lasting, next_store_read: ask_at, pending: None }
    }

    /// Checks local state, and reads the store when that is due.
    fn check_local(&mut self, deadline: &Deadline) -> Result<(), CutReason> {
        if self.lasting.is_over() {
            return Err(CutReason::Revoked);
        }
        if self.pending.is_none() && deadline.millis_at(Duration::ZERO) >= self.next_store_read {
            self.pending = Some(Box::pin(self.lasting.clone().is_deleted_in_store()));
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: &Deadline) -> Result<(), CutReason> {
        let Some(query) = &mut self.pending else { return Ok(()) };
        let Poll::Ready(gone) = query.as_mut().poll(cx) else { return Ok(()) };
        self.pending = None;
        self.next_store_read =
            self.lasting.store_interval().map_or(u64::MAX, |every| deadline.millis_at(every));
        if gone { Err(CutReason::Revoked) } else { Ok(()) }
    }
}

/// Whether a request may still be sent after it had to wait. Its credential may have been revoked
/// meanwhile, and the party that revoked it may have been told that no node accepts it any more.
pub(crate) async fn may_be_sent(record: &RequestRecord, expiry: Option<&Expiry>) -> Result<(), CutReason> {
    for revocable in record.caller_revocable() {
        match revocable.status_or_ask().await {
            IssuerAnswer::NotRevoked(_) => {}
            IssuerAnswer::Denied => return Err(CutReason::Revoked),
            IssuerAnswer::NoAnswer => return Err(CutReason::Unknown),
        }
    }
    for (consent, revocable) in record.revocable_consents() {
        match revocable.status_or_ask().await {
            IssuerAnswer::NotRevoked(_) => {}
            IssuerAnswer::Denied => return Err(CutReason::Revoked),
            // An authorizer that was queried about this very request is trusted (decision 0021).
            IssuerAnswer::NoAnswer if !consent.from_cache => {}
            IssuerAnswer::NoAnswer => return Err(CutReason::Unknown),
        }
    }
    expiry.map_or(Ok(Duration::ZERO), Expiry::remaining)?;
    // While one of them was asked about, another may have been revoked.
    let is_denied = |revocable: &RevocableToken| matches!(revocable.local_status(), RevocationStatus::Denied);
    let is_over = record.session().is_some_and(OpenSession::is_over);
    if is_over || record.revocable().any(is_denied) { Err(CutReason::Revoked) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;
    use std::time::Instant;

    use coherence::LogHead;

    use super::*;
    use credentials::revocation::test_support::{EPOCH, IssuerBehavior, LEASE, ManualIssuer};
    use http_engine::clock::ManualClock;
    use http_engine::deadline::{Deadlines, TICK};

    /// An exchange that lasts, with the worker that ticks for it.
    struct LastingExchange {
        stay: StreamGuard,
        grounds: Vec<RevocableToken>,
        expiry: Option<Expiry>,
        deadlines: Rc<Deadlines>,
        deadline: Deadline,
        origin: (Instant, tokio::time::Instant),
    }

    impl LastingExchange {
        fn begin(grounds: &[RevocableToken]) -> Self {
            let origin = (Instant::now(), tokio::time::Instant::now());
            let deadlines = Deadlines::new(origin.0);
            let deadline = deadlines.register();
            let stay = StreamGuard::begin(grounds.iter(), None, None, &deadline);
            Self { stay, grounds: grounds.to_vec(), expiry: None, deadlines, deadline, origin }
        }

        /// The same, authorized by something that expires at `at`.
        fn expiring(at: Timestamp, clock: &Rc<CoarseClock>) -> Self {
            let lasting = Self::begin(&[]);
            let expiry = Expiry::new(at, clock);
            let stay = StreamGuard::begin([].iter(), None, expiry.as_ref(), &lasting.deadline);
            Self { stay, expiry, ..lasting }
        }

        async fn tick(&mut self) -> Result<(), CutReason> {
            tokio::time::sleep(TICK).await;
            self.deadlines.set_now(self.origin.0 + self.origin.1.elapsed());
            let mut cx = Context::from_waker(Waker::noop());
            let (revocable, expiry) = (self.grounds.clone(), self.expiry.clone());
            let rests_on = || AuthorizedBy { revocable, session: None, expiry };
            self.stay.poll(&mut cx, &self.deadline, rests_on)?;
            assert!(
                self.stay.next_check() > self.deadline.millis_at(Duration::ZERO),
                "it would be taken for late"
            );
            Ok(())
        }

        /// When it is cut, and why; within a minute.
        async fn cut(&mut self) -> Option<(Duration, CutReason)> {
            let began = tokio::time::Instant::now();
            while began.elapsed() < Duration::from_mins(1) {
                if let Err(why) = self.tick().await {
                    return Some((began.elapsed(), why));
                }
            }
            None
        }
    }

    /// Promised time to the cut after the end of the lease.
    const PROMISED: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn nobody_stays_for_longer_than_a_second_after_what_is_known_whatever_becomes_of_questions() {
        for (says, asks) in [(IssuerBehavior::Nothing, 1), (IssuerBehavior::Unreachable, 4)] {
            let issuer = ManualIssuer::heard(EPOCH, 3).await;
            issuer.says(says);
            let (after, why) = LastingExchange::begin(&[issuer.token("a")]).cut().await.expect("cut");
            assert!(LEASE <= after && after < LEASE + PROMISED, "{after:?}");
            assert_eq!(why, CutReason::Unknown);
            assert!(issuer.query_count() >= asks, "asked {} times before", issuer.query_count());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_as_good_as_a_lease_and_no_better() {
        let issuer = ManualIssuer::heard(EPOCH, 3).await;
        issuer.says(IssuerBehavior::Good(LogHead { epoch: EPOCH, seq: 3 }));
        let mut lasting = LastingExchange::begin(&[issuer.token("a")]);
        assert_eq!(lasting.cut().await, None, "it is asked in place of the lease");
        issuer.says(IssuerBehavior::Nothing);
        let (after, why) = lasting.cut().await.expect("cut");
        assert!(after < LEASE + PROMISED, "{after:?}");
        assert_eq!(why, CutReason::Unknown);
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_let_in_on_an_answer_alone_is_asked_about_before_they_are_cut() {
        let issuer = ManualIssuer::new();
        let token = issuer.token("a");
        issuer.says(IssuerBehavior::Good(LogHead { epoch: EPOCH, seq: 3 }));
        assert!(matches!(token.ask().await, IssuerAnswer::NotRevoked(_)));
        issuer.says(IssuerBehavior::Nothing);
        let (after, _) = LastingExchange::begin(&[token]).cut().await.expect("cut");
        assert!(LEASE <= after && after < LEASE + PROMISED, "{after:?}");
        // Authorized by an authorizer's answer, for which no time of validity is known.
        let queries = issuer.query_count();
        let (after, why) = LastingExchange::begin(&[issuer.token("b")]).cut().await.expect("cut");
        assert!(after < PROMISED && why == CutReason::Unknown, "{after:?}");
        assert_eq!(issuer.query_count(), queries + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_back_is_noticed_while_a_question_about_it_waits() {
        let mut issuer = ManualIssuer::heard(EPOCH, 3).await;
        issuer.says(IssuerBehavior::Nothing);
        let mut lasting = LastingExchange::begin(&[issuer.token("a"), issuer.token("b")]);
        for _ in 0..40 {
            assert_eq!(lasting.tick().await, Ok(()));
        }
        assert!(issuer.query_count() > 0);
        issuer.revokes(4, issuer.tag("b"));
        let (after, why) = lasting.cut().await.expect("cut");
        assert!(after < PROMISED && why == CutReason::Revoked, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_issuer_denies_is_cut_and_what_cannot_be_taken_back_is_never_looked_at() {
        let issuer = ManualIssuer::heard(EPOCH, 3).await;
        issuer.says(IssuerBehavior::Denied(LogHead { epoch: EPOCH, seq: 4 }));
        let (after, why) = LastingExchange::begin(&[issuer.token("a")]).cut().await.expect("cut");
        assert!(after < LEASE && why == CutReason::Revoked, "{after:?}");
        let mut lasting = LastingExchange::begin(&[]);
        assert_eq!((lasting.cut().await, lasting.stay.next_check()), (None, u64::MAX));
    }

    const THEN: Timestamp = Timestamp::from_secs(1_800_000_000);

    #[tokio::test(start_paused = true)]
    async fn what_has_an_end_is_cut_with_it_and_not_before() {
        for seconds in [0, 1, 20, 59] {
            let source = Arc::new(ManualClock::new(THEN));
            let clock = Rc::new(CoarseClock::new(source.clone()));
            let mut lasting = LastingExchange::expiring(THEN.plus(Duration::from_secs(seconds)), &clock);
            let began = tokio::time::Instant::now();
            let why = loop {
                // As the worker's ticker does.
                source.advance(TICK);
                clock.refresh();
                if let Err(why) = lasting.tick().await {
                    break why;
                }
            };
            let after = began.elapsed();
            assert_eq!(why, CutReason::Expired);
            let end = Duration::from_secs(seconds);
            assert!(end <= after && after < end + PROMISED, "{after:?} for one of {end:?}");
        }
        let clock = Rc::new(CoarseClock::new(Arc::new(ManualClock::new(THEN))));
        assert!(Expiry::new(Timestamp::MAX, &clock).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_is_set_forward_is_noticed() {
        let source = Arc::new(ManualClock::new(THEN));
        let clock = Rc::new(CoarseClock::new(source.clone()));
        let mut lasting = LastingExchange::expiring(THEN.plus(Duration::from_hours(1)), &clock);
        assert_eq!(lasting.tick().await, Ok(()));
        source.set_wall(THEN.plus(Duration::from_hours(2)));
        clock.refresh();
        let (after, why) = lasting.cut().await.expect("cut");
        assert!(after <= CLOCK_CHECK_INTERVAL + CHECK_INTERVAL && why == CutReason::Expired, "{after:?}");
    }
}
