//! Issuers whose log of revocations is followed here.
//!
//! An issuer may also tell by security events ([`crate::events`]). Then the log is that of a database of ours, which what it told is
//! appended to, and everything else is the same; but tags are made from what every issuer's tokens say, and since what was told is
//! forgotten one day, a token is believed for as long at most.
//!
//! Owns: which tags a token of theirs carries, whether it was taken back as far as is known here, and asking where that is not
//! known. Does not own: how the log is followed (`coherence`), signatures ([`crate::authenticate`]), what is remembered
//! ([`crate::cache`]).
//!
//! A signature says that a token was issued, and nothing of what came later. So a token of an issuer that is followed is good
//! when its signature is, and nothing speaks against it that the issuer has said up to now. Three things can be known of it:
//! that it was taken back; that it was not, which holds for as long as the lease does; or nothing, while the issuer is not heard
//! of. Then the issuer is asked, and if it does not answer either, the answer is "unavailable": never yes, and never "this
//! token is bad".

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::jwt::Lineage;
use coherence::confirm::{Confirmed, Desk};
use coherence::statement::Statement;
use coherence::tags::{Subject, TagKey};
use coherence::time::{Boot, Clock};
use coherence::view::{Stamp, Standing, Ticket, Verdict, View, Voided};
use coherence::{Epoch, Head, Name, Tag};
use parking_lot::RwLock;

use crate::cache::{Held, Hold};
use crate::outbound::Throttle;

/// How often it is asked about one token, when its answer is older than what is known here.
const ASKED: usize = 2;

/// Between two entries that are audited.
const AUDIT: Duration = Duration::from_secs(1);
/// The share of a time by which the rate of a clock may be wrong: one in so many.
const DRIFT: u32 = 1000;

/// An issuer that is followed.
pub struct Followed {
    /// Its `iss`.
    pub issuer: Box<str>,
    /// What it is called as an authority.
    pub name: Name,
    /// What is known of it.
    pub view: Arc<View>,
    /// Makes its tags.
    pub tags: TagKey,
    /// What its lease is measured by.
    pub clock: Arc<dyn Clock>,
    /// Where it is asked.
    pub desk: Desk,
    /// L: an answer that took longer is none.
    pub lease: Duration,
    /// What was asked.
    pub counts: Arc<Counts>,
    /// It tells by security events, and after so long what it told may be forgotten: what was made earlier is not believed.
    pub longest: Option<Duration>,
}

/// When it is asked what something is worth.
#[derive(Clone, Copy)]
pub(crate) struct Departed {
    ticket: Ticket,
    began: Boot,
    /// What had been told by then.
    as_of: Option<(Epoch, u64)>,
}

/// How a fact came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The credential says it itself, and is as old as what it says.
    Said,
    /// Somebody was asked, and what was told can be told anew.
    Told,
}

/// How often an issuer was asked, since nothing was known here, and what came of it.
#[derive(Debug, Default)]
pub struct Counts {
    /// It has not taken the token back.
    pub good: AtomicU64,
    /// It has.
    pub denied: AtomicU64,
    /// There was no answer in time.
    pub silent: AtomicU64,
    /// Entries in use that were held against what the issuer says.
    pub audited: AtomicU64,
    /// Of those, how many would still have been believed when the issuer had denied them for longer than a lease: none, or the promise is
    /// broken.
    pub stale: AtomicU64,
    told: Throttle,
}

/// All that is followed in a process. Clones are one.
#[derive(Clone, Default)]
pub struct Follows(Arc<RwLock<Vec<Arc<Followed>>>>);

impl Follows {
    /// Has these followed from the next configuration on, and says what was before.
    pub fn replace(&self, followed: Vec<Arc<Followed>>) -> Vec<Arc<Followed>> {
        std::mem::replace(&mut *self.0.write(), followed)
    }

    fn behind(&self, held: &Held) -> Option<Arc<Followed>> {
        self.0.read().iter().find(|followed| held.is_of(&followed.view)).cloned()
    }

    /// Before somebody is asked who may rest on the word of any of them.
    pub(crate) fn depart(&self) -> Vec<(Arc<Followed>, Departed)> {
        self.0.read().iter().map(|followed| (followed.clone(), followed.depart())).collect()
    }

    /// The one with this `iss`.
    pub(crate) fn of(&self, issuer: &str) -> Option<Arc<Followed>> {
        self.0.read().iter().find(|followed| *followed.issuer == *issuer).cloned()
    }
}

/// A token that may be taken back before it expires. Clones are one.
#[derive(Clone)]
pub(crate) struct Revocable {
    followed: Arc<Followed>,
    /// What takes it back, and then what only makes it worth asking again.
    tags: Arc<[Tag]>,
    /// How many of them take it back.
    denying: usize,
    /// In milliseconds since 1970, in the time of the issuer's log or, where it has none, by the issuer's clock.
    issued_at: i64,
}

/// What is known of a token without asking.
pub(crate) enum Known {
    /// Not taken back.
    Good(Hold),
    /// Taken back.
    Denied,
    /// Its issuer has to be asked.
    Nothing,
}

/// What the issuer says of it.
pub(crate) enum Told {
    /// Not taken back; `None`: nothing may be remembered of that.
    Good(Option<Hold>),
    /// Taken back.
    Denied,
    /// There is no answer.
    Silent,
}

/// What somebody's answer is worth who vouches for a token.
pub(crate) enum Vouched {
    /// It is good, for as long as this stands; `None`: nothing may be remembered of that.
    Good(Revocable, Option<Hold>),
    /// Its issuer has taken it back.
    Denied,
    /// Nobody can say whether it has.
    Silent,
    /// Something was told meanwhile: whoever vouches has to be asked again.
    Again,
}

/// What an answer is good for.
enum Kept {
    /// As long as this stands.
    For(Hold),
    /// For whoever asked, and nobody after them.
    Once,
    /// More is known here: nobody is let in on the strength of less.
    Again,
    /// It came too late.
    Not,
}

/// Why somebody who was let in may not stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// What let them in was taken back.
    Revoked,
    /// Nobody can say any more whether it was.
    Unheard,
}

/// Looks at entries in use, one a second, as long as it is polled: what an issuer denies when it is asked must not be believed any more a
/// lease later. `any` finds an entry by a number that `random` draws.
pub async fn audit(
    follows: Follows,
    any: impl Fn(u64) -> Option<Arc<Held>>,
    mut random: impl FnMut() -> u64,
) {
    loop {
        tokio::time::sleep(AUDIT).await;
        let Some(held) = any(random()) else { continue };
        let Some(followed) = follows.behind(&held) else { continue };
        let (tags, issued_at) = held.lineage();
        // Without an answer there is nothing to compare with.
        let Some(Confirmed { denied, .. }) = followed.desk.ask(tags, issued_at).await else { continue };
        if denied.is_some() {
            tokio::time::sleep(followed.lease + followed.lease / DRIFT).await;
            if held.standing() == Standing::Good {
                followed.counts.stale.fetch_add(1, Relaxed);
                tracing::error!(
                    issuer = &*followed.issuer,
                    "a token is still believed here that its issuer has denied for longer than a lease: please report this"
                );
            }
        }
        followed.counts.audited.fetch_add(1, Relaxed);
    }
}

impl Followed {
    /// Before the issuer is asked what a token is worth.
    pub(crate) fn depart(&self) -> Departed {
        let now = self.clock.now();
        // The number first: what is told in between is compared with. Of the history that was followed before and after it.
        let epoch = self.view.epoch();
        let seq = self.view.contiguous();
        let ticket = self.view.depart(now);
        let same = self.view.epoch() == epoch;
        Departed { ticket, began: now, as_of: epoch.filter(|_| same).map(|epoch| (epoch, seq)) }
    }

    /// What its answer is good for, that it vouches for the token: the token, and what the fact rests on; without the latter nothing may be
    /// remembered. `None`: nobody may be let in on the strength of it.
    pub(crate) fn hold(
        self: &Arc<Self>,
        departed: Departed,
        said: Statement,
    ) -> Option<(Revocable, Option<Hold>)> {
        let Statement { as_of, issued_at, tags } = said;
        let denying = tags.len();
        let revocable = Revocable { followed: self.clone(), tags: tags.into(), denying, issued_at };
        match revocable.kept(departed, (as_of.epoch, as_of.seq)) {
            Kept::For(hold) => Some((revocable, Some(hold))),
            Kept::Once => Some((revocable, None)),
            Kept::Again | Kept::Not => None,
        }
    }

    /// The same of the answer of somebody who follows the issuer as well: what may be remembered of it is remembered only while the
    /// issuer is heard of here. Who follows may lag, and nothing here would tell.
    pub(crate) fn hold_relayed(
        self: &Arc<Self>,
        departed: Departed,
        said: Statement,
    ) -> Option<(Revocable, Option<Hold>)> {
        let (revocable, hold) = self.hold(departed, said)?;
        Some((revocable, hold.filter(|hold| hold.standing() == Standing::Good)))
    }

    /// A token of which this is known, and with it what can take it back.
    pub(crate) fn revocable(self: &Arc<Self>, lineage: &Lineage<'_>, evidence: Evidence) -> Revocable {
        let ((tags, denying), issued_at) = match self.longest {
            None => {
                let tags: Vec<Tag> = self.of_own(lineage).collect();
                let denying = tags.len();
                ((tags, denying), lineage.in_time_of_log())
            }
            // Its events have its own clock.
            Some(_) => (self.of_others(lineage, evidence), lineage.issued_at),
        };
        Revocable { followed: self.clone(), tags: tags.into(), denying, issued_at: millis(issued_at) }
    }

    /// Of a session or another fact that was told at a time: whether what it rests on has changed since, so that it has to be told anew.
    pub(crate) fn outdated(self: &Arc<Self>, lineage: &Lineage<'_>, told_at: Timestamp) -> Option<Revocable> {
        self.longest?;
        let lower = lineage.email.map(str::to_ascii_lowercase);
        let tags: Arc<[Tag]> =
            subjects(lineage, lower.as_deref()).map(|subject| self.tags.told(subject)).collect();
        Some(Revocable { followed: self.clone(), denying: tags.len(), tags, issued_at: millis(told_at) })
    }

    fn of_own(&self, lineage: &Lineage<'_>) -> impl Iterator<Item = Tag> {
        let consent = match (lineage.user, lineage.client) {
            (Some(user), Some(client)) => Some(Subject::Consent(user, client)),
            _ => None,
        };
        let subjects = [
            lineage.token.map(Subject::Token),
            lineage.family.map(Subject::Family),
            lineage.session.map(Subject::Session),
            lineage.user.map(Subject::User),
            lineage.client.map(Subject::Client),
            lineage.key.map(Subject::Key),
            consent,
        ];
        subjects.into_iter().flatten().map(|subject| self.tags.tag(subject))
    }

    fn of_others(&self, lineage: &Lineage<'_>, evidence: Evidence) -> (Vec<Tag>, usize) {
        let lower = lineage.email.map(str::to_ascii_lowercase);
        let subjects = || subjects(lineage, lower.as_deref());
        let mut tags: Vec<Tag> = subjects().map(|subject| self.tags.tag(subject)).collect();
        if let (Some(user), Some(client)) = (lineage.user, lineage.client) {
            tags.push(self.tags.tag(Subject::Consent(user, client)));
        }
        match evidence {
            Evidence::Said => {
                tags.extend(subjects().map(|subject| self.tags.said(subject)));
                let denying = tags.len();
                (tags, denying)
            }
            Evidence::Told => {
                let denying = tags.len();
                tags.extend(subjects().map(|subject| self.tags.told(subject)));
                (tags, denying)
            }
        }
    }
}

/// What an event of somebody else's can be about. A service that speaks for itself is a user to those who know it by `sub`.
fn subjects<'l>(lineage: &Lineage<'l>, email: Option<&'l str>) -> impl Iterator<Item = Subject<'l>> {
    [
        lineage.token.map(Subject::Token),
        lineage.family.map(Subject::Family),
        lineage.session.map(Subject::Session),
        lineage.user.or(lineage.client).map(Subject::User),
        email.map(Subject::Email),
    ]
    .into_iter()
    .flatten()
}

/// The end of time is within both.
fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Revocable {
    /// What is known of it, its signature being good.
    pub(crate) fn known(&self) -> Known {
        let followed = &self.followed;
        let (denying, outdating) = self.tags.split_at(self.denying);
        let verdict = match followed.view.verify(denying, self.issued_at) {
            // What makes it outdated denies nothing; it may only be known of that there is something to be asked.
            Verdict::Good(_)
                if !outdating.is_empty()
                    && matches!(followed.view.verify(outdating, i64::MAX), Verdict::Ask) =>
            {
                Verdict::Ask
            }
            verdict => verdict,
        };
        match verdict {
            Verdict::Denied => Known::Denied,
            Verdict::Ask => Known::Nothing,
            Verdict::Good(stamp) => {
                let held = self.held(stamp);
                match held.standing() {
                    Standing::Good => Known::Good(Hold::Followed(Arc::new(held))),
                    Standing::Void | Standing::NoLease => Known::Nothing,
                }
            }
        }
    }

    /// What others need who are told that it is good, and follow the issuer too: its `iss`, and how much of what the issuer tells
    /// is in that. `None`: that is not known here well enough to be passed on.
    pub(crate) fn statement(&self) -> Option<(Box<str>, Statement)> {
        let view = &self.followed.view;
        // Before it is looked whether it is good: what is told meanwhile is not in it.
        let (epoch, seq) = (view.epoch()?, view.contiguous());
        let good = matches!(self.known(), Known::Good(_)) && view.epoch() == Some(epoch);
        let statement =
            Statement { as_of: Head { epoch, seq }, issued_at: self.issued_at, tags: self.tags.to_vec() };
        good.then(|| (self.followed.issuer.clone(), statement))
    }

    /// Bytes behind its pointers that are its own.
    pub(crate) fn weight(&self) -> usize {
        size_of_val(&*self.tags) + 2 * size_of::<usize>()
    }

    fn held(&self, stamp: Stamp) -> Held {
        let (view, clock) = (self.followed.view.clone(), self.followed.clock.clone());
        Held::new(view, clock, (self.tags.clone(), self.issued_at), stamp)
    }

    /// What is known of it, or else what the issuer says.
    pub(crate) async fn told(&self) -> Told {
        match self.known() {
            Known::Good(hold) => Told::Good(Some(hold)),
            Known::Denied => Told::Denied,
            Known::Nothing => self.ask().await,
        }
    }

    /// What the answer of somebody is worth who vouches for it, knows nothing of a log, and was asked then.
    pub(crate) async fn vouched(self, departed: Departed) -> Vouched {
        match self.told().await {
            Told::Denied => return Vouched::Denied,
            Told::Silent => return Vouched::Silent,
            Told::Good(_) => {}
        }
        // Nothing had been heard that could be told from what is heard now.
        let Some(as_of) = departed.as_of else { return Vouched::Good(self, None) };
        match self.kept(departed, as_of) {
            Kept::For(hold) => Vouched::Good(self, Some(hold)),
            Kept::Once => Vouched::Good(self, None),
            Kept::Again | Kept::Not => Vouched::Again,
        }
    }

    /// For those who let its holder in a while ago and go on doing so: what is known of it, if that will still be known when the
    /// issuer, asked now, would have answered.
    pub(crate) fn still(&self) -> Known {
        let left = self.followed.view.lease().since(self.followed.clock.now());
        // A lease that is renewed never gets so short.
        if left < self.followed.lease / 2 { Known::Nothing } else { self.known() }
    }

    /// Asks whether its holder may stay: not when the issuer says no, nor when nobody can say any more.
    pub(crate) async fn may_stay(self) -> Result<(), Unfit> {
        let asked = tokio::time::timeout(self.followed.lease / 2, self.ask()).await;
        match (asked.unwrap_or(Told::Silent), self.known()) {
            (Told::Denied, _) | (_, Known::Denied) => Err(Unfit::Revoked),
            (Told::Good(_), _) | (_, Known::Good(_)) => Ok(()),
            (Told::Silent, Known::Nothing) => Err(Unfit::Unheard),
        }
    }

    /// Asks the issuer.
    pub(crate) async fn ask(&self) -> Told {
        let told = self.try_ask().await;
        let counts = &self.followed.counts;
        let count = match &told {
            Told::Good(_) => &counts.good,
            Told::Denied => &counts.denied,
            Told::Silent => &counts.silent,
        };
        count.fetch_add(1, Relaxed);
        if matches!(told, Told::Silent) && counts.told.is_due() {
            tracing::warn!(
                issuer = &*self.followed.issuer,
                "the issuer is not heard of, and does not say whether a token was revoked: answered 503, said once in 10 s"
            );
        }
        told
    }

    async fn try_ask(&self) -> Told {
        let Self { followed, tags, denying, issued_at } = self;
        for _ in 0..ASKED {
            let departed = followed.depart();
            let Some(Confirmed { as_of, denied }) = followed.desk.ask(&tags[..*denying], *issued_at).await
            else {
                return Told::Silent;
            };
            let as_of = (as_of.epoch, as_of.seq);
            if let Some(tag) = denied {
                followed.view.denied(as_of, tag);
                return Told::Denied;
            }
            match self.kept(departed, as_of) {
                Kept::For(hold) => return Told::Good(Some(hold)),
                Kept::Once => return Told::Good(None),
                Kept::Again => {}
                Kept::Not => return Told::Silent,
            }
        }
        Told::Silent
    }

    /// What an answer that nothing was taken back is good for.
    fn kept(&self, departed: Departed, as_of: (Epoch, u64)) -> Kept {
        let Departed { ticket, began, .. } = departed;
        let (followed, now) = (&self.followed, self.followed.clock.now());
        if now.since(began) >= followed.lease {
            return Kept::Not;
        }
        match followed.view.fill(ticket, as_of, &self.tags, now) {
            Ok(stamp) => Kept::For(Hold::Followed(Arc::new(self.held(stamp)))),
            Err(Voided::Late) => Kept::Not,
            Err(Voided::Revoked) => Kept::Again,
            Err(Voided::Old) if now < followed.view.lease() => Kept::Again,
            // What was forgotten since may have spoken against it, and whoever revoked it may have been told that nobody is let in
            // on the strength of it any more.
            Err(_) if followed.view.has_flushed(&ticket) => Kept::Again,
            // It was asked after the request came and says that all is well; what it says is no use for others.
            Err(Voided::Flushed | Voided::Epoch | Voided::Old) => Kept::Once,
        }
    }
}

impl std::fmt::Debug for Revocable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Revocable by {}", self.followed.name)
    }
}
