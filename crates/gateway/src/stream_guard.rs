//! Whether whoever was let in may go on: when their request had to wait before it is sent, and while an exchange lasts.
//!
//! Owns: when it is looked at, that its issuer is asked where nothing is known, and for how long an answer is waited for. Does not own:
//! what is known of a credential and how its issuer is asked ([`credentials::revocation`]), whether a session is over ([`credentials::open_session`]), what
//! becomes of those who may not go on ([`crate::forward`], [`crate::relay`]).
//!
//! Everything that somebody was let in by was found good, and is known to be good until then: by a lease, or since the issuer said so
//! and for a lease from when it was asked. That end is kept, and moves on with each look and each answer. Where no look moves it, the
//! issuer is asked, early enough for the answer to be there before, and as often as it does not answer; but whatever the questions do,
//! nobody stays for much longer than that.
//!
//! A session is looked at as well, whoever its provider is; where it is kept in a store that others share, the store is asked as often as it is for
//! requests.
//!
//! A token or certificate that has an end ends what it let in with it ([`Expiry`]), unless the route keeps that open. The wall clock tells,
//! as for requests; it may be set, so it is looked at from time to time also where the end is far.

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

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(500);
/// For how long an answer is waited for when nothing is known any more. With a tick of the worker, half of the second that is promised.
const GRACE: Duration = Duration::from_millis(250);

/// How often the wall clock is looked at where nothing but that can end it.
const CLOCK_LOOK: Duration = Duration::from_secs(10);

/// A question whether it is still good.
type PendingQuestion<T> = Pin<Box<dyn Future<Output = T>>>;

/// Looks at what an exchange rests on, as long as it lasts.
pub(crate) struct StreamGuard {
    /// When to look, in milliseconds after the worker's start; never where there is nothing to look at.
    look_at: u64,
    /// Until when all of it is known to be good, as of the beginning.
    until: Boot,
    /// All of it, from the first look on: most exchanges are over before.
    grounds: Option<Box<Guarded>>,
}

/// What an exchange rests on.
pub(crate) struct AuthorizedBy {
    pub(crate) revocable: Vec<RevocableToken>,
    pub(crate) session: Option<OpenSession>,
    pub(crate) expiry: Option<Expiry>,
}

/// When what somebody was let in by ends by itself.
#[derive(Clone)]
pub(crate) struct Expiry {
    at: Timestamp,
    clock: Rc<CoarseClock>,
}

/// All that somebody was let in by that may be over before they are gone.
struct Guarded {
    revocable: Vec<GuardedToken>,
    session: Option<GuardedSession>,
    expiry: Option<Expiry>,
}

/// Something that somebody was let in by.
struct GuardedToken {
    revocable: RevocableToken,
    /// Until when it may be taken for good in any case; what was found out since is in the [`RevocableToken`].
    at_least: Boot,
    asking: Option<PendingQuestion<IssuerAnswer>>,
}

/// A session that somebody was let in by.
struct GuardedSession {
    lasting: OpenSession,
    /// When to ask the store, in milliseconds after the worker's start; never where it has nothing to say.
    ask_at: u64,
    asking: Option<PendingQuestion<bool>>,
}

impl StreamGuard {
    /// From here on, for whoever was let in by these just now.
    pub(crate) fn begin<'r>(
        grounds: impl Iterator<Item = &'r RevocableToken>,
        session: Option<&OpenSession>,
        expiry: Option<&Expiry>,
        deadline: &Deadline,
    ) -> Self {
        let until = grounds.map(RevocableToken::good_until).min();
        let may_end = until.is_some() || session.is_some() || expiry.is_some();
        let look_at = if may_end { deadline.millis_at(LOOK) } else { u64::MAX };
        Self { look_at, until: until.unwrap_or_default(), grounds: None }
    }

    /// When it has to be polled, in milliseconds after the worker's start. After a poll that is later than now.
    pub(crate) fn look_at(&self) -> u64 {
        self.look_at
    }

    /// Whether they may stay; `rests_on` is what it was begun with.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &Deadline,
        rests_on: impl FnOnce() -> AuthorizedBy,
    ) -> Result<(), CutReason> {
        // There is nothing to look at.
        if self.look_at == u64::MAX {
            return Ok(());
        }
        if deadline.millis_at(Duration::ZERO) >= self.look_at {
            let until = self.until;
            let grounds = self.grounds.get_or_insert_with(|| Guarded::new(rests_on(), until, deadline));
            let next = grounds.look(deadline)?;
            self.look_at = deadline.millis_at(next.max(Duration::from_millis(1)));
        }
        self.grounds.as_mut().map_or(Ok(()), |grounds| grounds.poll(cx, deadline))
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

    /// By what is known here; when to look again.
    fn look(&mut self, deadline: &Deadline) -> Result<Duration, CutReason> {
        let mut next = if self.revocable.is_empty() && self.session.is_none() { CLOCK_LOOK } else { LOOK };
        if let Some(expiry) = &self.expiry {
            next = next.min(expiry.look()?);
        }
        for ground in &mut self.revocable {
            next = next.min(ground.look()?);
        }
        self.session.as_mut().map_or(Ok(()), |session| session.look(deadline))?;
        Ok(next)
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: &Deadline) -> Result<(), CutReason> {
        self.revocable.iter_mut().try_for_each(|ground| ground.poll(cx))?;
        self.session.as_mut().map_or(Ok(()), |session| session.poll(cx, deadline))
    }
}

impl Expiry {
    /// Of what ends then; `None`: it has no end.
    pub(crate) fn new(at: Timestamp, clock: &Rc<CoarseClock>) -> Option<Self> {
        (at < Timestamp::MAX).then(|| Self { at, clock: clock.clone() })
    }

    /// How long it lasts, or that it is over.
    fn look(&self) -> Result<Duration, CutReason> {
        let left = self.at.since(self.clock.now().wall);
        if left.is_zero() { Err(CutReason::Expired) } else { Ok(left) }
    }
}

impl GuardedToken {
    fn new(revocable: RevocableToken, until: Boot) -> Self {
        // Where somebody else vouched nobody knows until when. Whoever was let in a moment ago is asked about before they are cut.
        let at_least = until.max(revocable.now());
        Self { revocable, at_least, asking: None }
    }

    /// By what is known here, or else asks; when it is over if nothing more is known by then.
    fn look(&mut self) -> Result<Duration, CutReason> {
        let known = self.revocable.still();
        let over = self.at_least.max(self.revocable.until()).plus(GRACE);
        let left = over.since(self.revocable.now());
        match known {
            RevocationStatus::Good(_) => {}
            RevocationStatus::Denied => return Err(CutReason::Revoked),
            RevocationStatus::Nothing if left.is_zero() => return Err(CutReason::Unheard),
            RevocationStatus::Nothing => {
                let one = self.revocable.clone();
                self.asking.get_or_insert_with(|| Box::pin(async move { one.ask().await }));
            }
        }
        Ok(left)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Result<(), CutReason> {
        let Some(asking) = &mut self.asking else { return Ok(()) };
        let Poll::Ready(told) = asking.as_mut().poll(cx) else { return Ok(()) };
        // The next look asks again, if that is still needed.
        self.asking = None;
        match told {
            IssuerAnswer::Denied => Err(CutReason::Revoked),
            IssuerAnswer::Good(_) | IssuerAnswer::Silent => Ok(()),
        }
    }
}

impl GuardedSession {
    fn new(lasting: OpenSession, deadline: &Deadline) -> Self {
        let ask_at = lasting.ask_every().map_or(u64::MAX, |every| deadline.millis_at(every));
        Self { lasting, ask_at, asking: None }
    }

    /// By what is known here; the store is asked when that is due.
    fn look(&mut self, deadline: &Deadline) -> Result<(), CutReason> {
        if self.lasting.is_over() {
            return Err(CutReason::Revoked);
        }
        if self.asking.is_none() && deadline.millis_at(Duration::ZERO) >= self.ask_at {
            self.asking = Some(Box::pin(self.lasting.clone().gone()));
        }
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>, deadline: &Deadline) -> Result<(), CutReason> {
        let Some(asking) = &mut self.asking else { return Ok(()) };
        let Poll::Ready(gone) = asking.as_mut().poll(cx) else { return Ok(()) };
        self.asking = None;
        self.ask_at = self.lasting.ask_every().map_or(u64::MAX, |every| deadline.millis_at(every));
        if gone { Err(CutReason::Revoked) } else { Ok(()) }
    }
}

/// Whether a request may still be sent after it had to wait: what it was let in by may have been taken back meanwhile, by somebody who
/// was told since that it is admitted nowhere.
pub(crate) async fn may_be_sent(record: &RequestRecord, expiry: Option<&Expiry>) -> Result<(), CutReason> {
    for revocable in record.caller_revocable() {
        match revocable.told().await {
            IssuerAnswer::Good(_) => {}
            IssuerAnswer::Denied => return Err(CutReason::Revoked),
            IssuerAnswer::Silent => return Err(CutReason::Unheard),
        }
    }
    for (consent, revocable) in record.revocable_consents() {
        match revocable.told().await {
            IssuerAnswer::Good(_) => {}
            IssuerAnswer::Denied => return Err(CutReason::Revoked),
            // An authorizer that was asked about this very request is taken at its word (decision 0021).
            IssuerAnswer::Silent if !consent.kept => {}
            IssuerAnswer::Silent => return Err(CutReason::Unheard),
        }
    }
    expiry.map_or(Ok(Duration::ZERO), Expiry::look)?;
    // While one of them was asked about, another may have been taken back.
    let is_denied = |revocable: &RevocableToken| matches!(revocable.known(), RevocationStatus::Denied);
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
    use credentials::revocation::test_support::{EPOCH, FollowedByHand, IssuerSays, LEASE};
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

        /// The same by something that ends then.
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
                self.stay.look_at() > self.deadline.millis_at(Duration::ZERO),
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

    /// What is promised after the lease.
    const PROMISED: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn nobody_stays_for_longer_than_a_second_after_what_is_known_whatever_becomes_of_questions() {
        for (says, asks) in [(IssuerSays::Nothing, 1), (IssuerSays::Unreachable, 4)] {
            let issuer = FollowedByHand::heard(EPOCH, 3).await;
            issuer.says(says);
            let (after, why) = LastingExchange::begin(&[issuer.token("a")]).cut().await.expect("cut");
            assert!(LEASE <= after && after < LEASE + PROMISED, "{after:?}");
            assert_eq!(why, CutReason::Unheard);
            assert!(issuer.asked() >= asks, "asked {} times before", issuer.asked());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_as_good_as_a_lease_and_no_better() {
        let issuer = FollowedByHand::heard(EPOCH, 3).await;
        issuer.says(IssuerSays::Good(LogHead { epoch: EPOCH, seq: 3 }));
        let mut lasting = LastingExchange::begin(&[issuer.token("a")]);
        assert_eq!(lasting.cut().await, None, "it is asked in place of the lease");
        issuer.says(IssuerSays::Nothing);
        let (after, why) = lasting.cut().await.expect("cut");
        assert!(after < LEASE + PROMISED, "{after:?}");
        assert_eq!(why, CutReason::Unheard);
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_let_in_on_an_answer_alone_is_asked_about_before_they_are_cut() {
        let issuer = FollowedByHand::new();
        let token = issuer.token("a");
        issuer.says(IssuerSays::Good(LogHead { epoch: EPOCH, seq: 3 }));
        assert!(matches!(token.ask().await, IssuerAnswer::Good(_)));
        issuer.says(IssuerSays::Nothing);
        let (after, _) = LastingExchange::begin(&[token]).cut().await.expect("cut");
        assert!(LEASE <= after && after < LEASE + PROMISED, "{after:?}");
        // On somebody else's word, of which nobody knows until when it holds.
        let asked = issuer.asked();
        let (after, why) = LastingExchange::begin(&[issuer.token("b")]).cut().await.expect("cut");
        assert!(after < PROMISED && why == CutReason::Unheard, "{after:?}");
        assert_eq!(issuer.asked(), asked + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_taken_back_is_noticed_while_a_question_about_it_waits() {
        let mut issuer = FollowedByHand::heard(EPOCH, 3).await;
        issuer.says(IssuerSays::Nothing);
        let mut lasting = LastingExchange::begin(&[issuer.token("a"), issuer.token("b")]);
        for _ in 0..40 {
            assert_eq!(lasting.tick().await, Ok(()));
        }
        assert!(issuer.asked() > 0);
        issuer.revokes(4, issuer.tag("b"));
        let (after, why) = lasting.cut().await.expect("cut");
        assert!(after < PROMISED && why == CutReason::Revoked, "{after:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_issuer_denies_is_cut_and_what_cannot_be_taken_back_is_never_looked_at() {
        let issuer = FollowedByHand::heard(EPOCH, 3).await;
        issuer.says(IssuerSays::Denied(LogHead { epoch: EPOCH, seq: 4 }));
        let (after, why) = LastingExchange::begin(&[issuer.token("a")]).cut().await.expect("cut");
        assert!(after < LEASE && why == CutReason::Revoked, "{after:?}");
        let mut lasting = LastingExchange::begin(&[]);
        assert_eq!((lasting.cut().await, lasting.stay.look_at()), (None, u64::MAX));
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
        assert!(after <= CLOCK_LOOK + LOOK && why == CutReason::Expired, "{after:?}");
    }
}
