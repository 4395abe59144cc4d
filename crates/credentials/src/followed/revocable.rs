//! A token that its issuer may take back at any moment: what is known of it, and what the issuer says when it is asked.
//!
//! Owns: the questions, what an answer is good for, and until when what was found holds for those who go on. Does not own: by what it
//! is taken back (the parent), when it is looked at again ([`gateway::stay`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use coherence::confirm::Confirmed;
use coherence::statement::Statement;
use coherence::time::Boot;
use coherence::view::{Stamp, Standing, Verdict, Voided};
use coherence::{Epoch, Head, Tag};

use super::{Departed, Followed};
use crate::cache::{Held, Hold};

/// How often it is asked about one token, when its answer is older than what is known here.
const ASKED: usize = 2;

/// A token that may be taken back before it expires. Clones are one.
#[derive(Clone)]
pub struct Revocable {
    /// By whom it was followed when it was presented. Somebody else may do that by now.
    followed: Arc<Followed>,
    /// What takes it back, and then what only makes it worth asking again.
    tags: Arc<[Tag]>,
    /// How many of them take it back.
    denying: usize,
    /// In milliseconds since 1970, in the time of the issuer's log or, where it has none, by the issuer's clock.
    issued_at: i64,
    /// Until when it was known to be good, as far as somebody asked or looked: a [`Boot`], which only grows.
    until: Arc<AtomicU64>,
}

/// What is known of a token without asking.
pub enum Known {
    /// Not taken back.
    Good(Hold),
    /// Taken back.
    Denied,
    /// Its issuer has to be asked.
    Nothing,
}

/// What the issuer says of it.
pub enum Told {
    /// Not taken back; `None`: nothing may be remembered of that.
    Good(Option<Hold>),
    /// Taken back.
    Denied,
    /// There is no answer.
    Silent,
}

/// What somebody's answer is worth who vouches for a token.
pub enum Vouched {
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
pub(super) enum Kept {
    /// As long as this stands.
    For(Hold),
    /// For whoever asked, and nobody after them, if it was proven: nothing that is known here confirms or refutes it.
    Once,
    /// Nobody: it is known here that the token was taken back.
    Denied,
    /// More is known here: nobody is let in on the strength of less.
    Again,
    /// It came too late.
    Not,
}

/// Why somebody who was let in may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// What let them in was taken back.
    Revoked,
    /// Nobody can say any more whether it was.
    Unheard,
    /// It ended by itself.
    Expired,
}

impl Revocable {
    /// One that the first `denying` of these tags take back.
    pub(super) fn new(followed: Arc<Followed>, tags: Arc<[Tag]>, denying: usize, issued_at: i64) -> Self {
        Self { followed, tags, denying, issued_at, until: Arc::default() }
    }

    /// Whether its issuer's log is heard of, so that whatever that tells is known here before it is in force everywhere.
    pub fn is_heard_of(&self) -> bool {
        self.followed().is_heard_of()
    }

    fn followed(&self) -> &Arc<Followed> {
        self.followed.latest()
    }

    fn denying(&self) -> &[Tag] {
        &self.tags[..self.denying]
    }

    /// What is known of it, its signature being good.
    pub fn known(&self) -> Known {
        let followed = self.followed();
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
                let held = self.held(followed, stamp);
                match held.standing() {
                    Standing::Good => Known::Good(Hold::Followed(Arc::new(held))),
                    Standing::Void | Standing::NoLease => Known::Nothing,
                }
            }
        }
    }

    /// What others need who are told that it is good, and follow the issuer too: its `iss`, and how much of what the issuer tells
    /// is in that. `None`: that is not known here well enough to be passed on.
    pub fn statement(&self) -> Option<(Box<str>, Statement)> {
        let followed = self.followed();
        let view = &followed.view;
        // Before it is looked whether it is good: what is told meanwhile is not in it.
        let (epoch, seq) = (view.epoch()?, view.contiguous());
        let good = matches!(self.known(), Known::Good(_)) && view.epoch() == Some(epoch);
        let statement =
            Statement { as_of: Head { epoch, seq }, issued_at: self.issued_at, tags: self.tags.to_vec() };
        good.then(|| (followed.issuer.clone(), statement))
    }

    /// Bytes behind its pointers that are its own.
    pub fn weight(&self) -> usize {
        // Both have the two counts of an `Arc`.
        size_of_val(&*self.tags) + size_of::<AtomicU64>() + 4 * size_of::<usize>()
    }

    fn held(&self, followed: &Followed, stamp: Stamp) -> Held {
        let (view, clock) = (followed.view.clone(), followed.clock.clone());
        Held::new(view, clock, (self.tags.clone(), self.issued_at), stamp)
    }

    /// What is known of it, or else what the issuer says.
    pub async fn told(&self) -> Told {
        let known = || match self.known() {
            Known::Good(hold) => Some(Told::Good(Some(hold))),
            Known::Denied => Some(Told::Denied),
            Known::Nothing => None,
        };
        if let Some(told) = known() {
            return told;
        }
        match self.ask().await {
            // It may have been heard of meanwhile, by another way.
            Told::Silent => known().unwrap_or(Told::Silent),
            told => told,
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
        match self.kept(&departed, as_of) {
            Kept::For(hold) => Vouched::Good(self, Some(hold)),
            Kept::Once => Vouched::Good(self, None),
            Kept::Denied => Vouched::Denied,
            Kept::Again | Kept::Not => Vouched::Again,
        }
    }

    /// Asks the issuer.
    pub async fn ask(&self) -> Told {
        let told = self.try_ask().await;
        let followed = self.followed();
        let counts = &followed.counts;
        let count = match &told {
            Told::Good(_) => &counts.good,
            Told::Denied => &counts.denied,
            Told::Silent => &counts.silent,
        };
        count.fetch_add(1, Relaxed);
        if matches!(told, Told::Silent) {
            // Whoever follows it says once that it is silent.
            tracing::debug!(issuer = &*followed.issuer, "nobody can say whether a token was revoked");
        }
        told
    }

    async fn try_ask(&self) -> Told {
        for _ in 0..ASKED {
            let departed = self.followed.depart();
            let asked = departed.followed.desk.ask(self.denying(), self.issued_at);
            let Some(Confirmed { as_of, denied }) = asked.await else { return Told::Silent };
            let as_of = (as_of.epoch, as_of.seq);
            if let Some(tag) = denied {
                departed.followed.view.denied(as_of, tag);
                return Told::Denied;
            }
            let hold = match self.kept(&departed, as_of) {
                Kept::For(hold) => Some(hold),
                Kept::Once => None,
                Kept::Denied => return Told::Denied,
                Kept::Again => continue,
                Kept::Not => return Told::Silent,
            };
            // Like an echo: for a lease from when it was asked.
            self.is_good_until(departed.began.plus(departed.followed.lease));
            return Told::Good(hold);
        }
        Told::Silent
    }

    /// What an answer that nothing was taken back is good for.
    pub(super) fn kept(&self, departed: &Departed, as_of: (Epoch, u64)) -> Kept {
        let Departed { followed, ticket, began, .. } = departed;
        let (view, now) = (&followed.view, followed.clock.now());
        if now.since(*began) >= followed.lease {
            return Kept::Not;
        }
        // For good, also where the answer knows nothing of that: it may be one of a database that was deposed, or has lost it.
        if let Some(denials) = view.denials()
            && denials.denies(self.denying(), self.issued_at)
        {
            // A copy that is being loaded may know more than what is cached rests on: it refuses nobody who could be admitted again.
            return if denials.is_whole() { Kept::Denied } else { Kept::Again };
        }
        match view.fill(*ticket, as_of, &self.tags, now) {
            Ok(stamp) => Kept::For(Hold::Followed(Arc::new(self.held(followed, stamp)))),
            Err(Voided::Late) => Kept::Not,
            Err(why) if view.admits_once(ticket, why) => Kept::Once,
            Err(_) => Kept::Again,
        }
    }
}

/// For those who were let in a while ago and go on.
impl Revocable {
    /// What is known of it, if that will still be known when the issuer, asked now, would have answered.
    pub fn still(&self) -> Known {
        let followed = self.followed();
        // Before it is looked at: what is believed until then was applied before that was promised.
        let lease = followed.view.lease();
        let known = self.known();
        if !matches!(known, Known::Good(_)) {
            return known;
        }
        self.is_good_until(lease);
        // A lease that is renewed never gets so short.
        if lease.since(followed.clock.now()) < followed.lease / 2 { Known::Nothing } else { known }
    }

    /// Until when it is known to be good that was let in just now: while its issuer is believed, or for as long as an answer counts.
    pub fn good_until(&self) -> Boot {
        self.until().max(self.followed.view.lease())
    }

    /// Until when it was known to be good, when that was last found out.
    pub fn until(&self) -> Boot {
        Boot(self.until.load(Relaxed))
    }

    fn is_good_until(&self, until: Boot) {
        self.until.fetch_max(until.0, Relaxed);
    }

    /// By the clock that all this is measured with.
    pub fn now(&self) -> Boot {
        self.followed.clock.now()
    }
}

impl std::fmt::Debug for Revocable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Revocable by {}", self.followed.name)
    }
}
