//! The consumers' side: requests with tokens, what is asked about them, copies of what is denied.
//!
//! A token is asked about in one of two ways. What a server has only read ([`Packet::Read`]), perhaps one that lags behind, admits under the lease
//! alone. A query ([`crate::query`]) is answered by a server that is in force, and its answer admits by itself.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::adversary::About;
use super::{Broken, NODES, Packet, Revoked, Token, World, name, number};
use crate::denylist::DenylistEntry;
use crate::log_types::{Epoch, LogEvent, Tag};
use crate::mutation::{self, Mutation};
use crate::query::{CopyProgress, DenylistCopying, LogAnswer, LogQuery, LogQuestion};
use crate::view::{CredentialCheck, EntryState, QuestionTicket};

/// Denials of one page.
const PAGE: usize = 4;
/// Ticks after which a page is asked for again, and how often.
const PAGE_AGAIN: u64 = 30;
const TRIES: u32 = 3;
/// A request that waited for nothing that was asked before it came.
const NOW: u64 = u64::MAX;

/// A question about a token that is under way.
pub(super) struct Flight {
    pub(super) token: u64,
    pub(super) ticket: QuestionTicket,
    pub(super) began: u64,
    /// Absent of what is only read.
    query: Option<LogQuery>,
    /// It was asked without a lease: nobody joins it, and its answer is for the request that asked.
    alone: bool,
}

/// A copy of what is denied that is under way.
pub(super) struct Load {
    ticket: u64,
    copying: DenylistCopying,
    query: LogQuery,
    /// Of the page.
    number: u64,
    asked: u64,
    tries: u32,
}

fn denied_by(log: &BTreeMap<u64, LogEvent>, as_of: u64) -> Vec<(Tag, DenylistEntry)> {
    let denials = log.range(..=as_of).flat_map(|(_, event)| {
        let denial = DenylistEntry { not_before: event.not_before, until: event.until };
        event.tags.iter().map(move |tag| (*tag, denial))
    });
    denials.collect()
}

impl World {
    /// All that is denied after a tag, as a node reads it.
    fn page(&mut self, node: usize, after: Option<Tag>) -> Option<LogAnswer> {
        let (head, log) = self.page_of(node)?;
        let mut denied: Vec<_> =
            denied_by(log, head.seq).into_iter().filter(|(tag, _)| after < Some(*tag)).collect();
        denied.sort_by_key(|(tag, _)| *tag);
        denied.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 = first.1.and(later.1);
            }
            same
        });
        let more = denied.len() > PAGE;
        denied.truncate(PAGE);
        Some(LogAnswer { head, denied, more })
    }

    /// Which of these are denied, by a node whose server is in force.
    fn confirm(&mut self, node: usize, tags: &[Tag]) -> Option<LogAnswer> {
        let (head, log) = self.prove_log(node)?;
        let denied = denied_by(log, head.seq).into_iter().filter(|(tag, _)| tags.contains(tag)).collect();
        Some(LogAnswer { head, denied, more: false })
    }

    /// A node gets a query, if it is there.
    pub(super) fn queried(&mut self, node: usize, about: About, bytes: &Bytes, to: (usize, u64, u64)) {
        if self.down_until[node] > self.tick {
            return;
        }
        let Ok(query) = LogQuery::read(&name(), bytes) else { return };
        let answer = match query.question() {
            LogQuestion::Confirm(tags) => self.confirm(node, tags),
            LogQuestion::Denials { after } => self.page(node, *after),
        };
        let Some(answer) = answer else { return };
        let sealed = Bytes::from(query.seal(&answer, &self.keys));
        let (sealed, late) = self.tampers(about, sealed);
        let (at, life, number) = to;
        let packet = || Packet::Sealed { to: at, life, number, bytes: sealed.clone() };
        if late > 0 {
            self.at(self.tick + late, packet());
        } else {
            self.send(at, true, packet);
        }
    }

    /// Sends a query to some node, or to whoever sits between.
    fn ask(&mut self, at: usize, about: About, number: u64, query: &LogQuery) {
        let (life, bytes) = (self.caches[at].life, Bytes::copy_from_slice(query.bytes()));
        let answered = |bytes| Packet::Sealed { to: at, life, number, bytes };
        if let Some(bytes) = self.intercepts(about, &bytes, answered) {
            let node = self.random.index(NODES);
            self.send(at, false, || Packet::Query {
                node,
                about,
                from: (at, life, number),
                bytes: bytes.clone(),
            });
        }
    }

    /// An answer to a query comes, or what somebody takes for one. One that is refused is none.
    pub(super) fn sealed(&mut self, at: usize, life: u64, number: u64, bytes: &Bytes) {
        if self.caches[at].life != life {
            return;
        }
        if self.caches[at].load.as_ref().is_some_and(|load| load.number == number) {
            return self.paged(at, bytes);
        }
        let Some(flight) = self.caches[at].flights.remove(&number) else { return };
        let Some(Ok(answer)) = flight.query.as_ref().map(|query| query.open(bytes, &self.keys)) else {
            return;
        };
        let now = self.caches[at].now(self.tick);
        let token = self.tokens[&flight.token];
        let view = self.caches[at].machine.view().clone();
        view.silence().heard();
        let as_of = (answer.head.epoch, answer.head.seq);
        let concerns = |(tag, denial): &&(Tag, DenylistEntry)| {
            token.tags().contains(tag) && denial.not_before.is_none_or(|then| token.issued < then)
        };
        if let Some((tag, _)) = answer.denied.iter().find(concerns) {
            return self.denies(at, token, as_of, *tag);
        }
        let denials = view.denials().expect("it has them");
        if denials.denies(&token.tags(), token.issued) {
            // A copy under way decides nothing: what is kept may rest on less.
            if denials.is_whole() {
                self.refuse(at, token);
            }
            return;
        }
        let before = if flight.alone { flight.began } else { NOW };
        match view.fill(flight.ticket, as_of, &token.tags(), now) {
            Ok(stamp) => {
                self.admit(at, token, before);
                self.caches[at].entries.insert(token.number, stamp);
            }
            Err(why) if view.admits_once(&flight.ticket, why) => self.admit(at, token, before),
            Err(_) => {}
        }
    }

    /// A server says what it has read of a token.
    pub(super) fn answered(&mut self, at: usize, flight: u64, good: bool, as_of: (Epoch, u64)) {
        let Some(flight) = self.caches[at].flights.remove(&flight) else { return };
        let now = self.caches[at].now(self.tick);
        let token = self.tokens[&flight.token];
        let view = self.caches[at].machine.view().clone();
        if !good {
            return self.denies(at, token, as_of, token.tags()[0]);
        }
        let Ok(stamp) = view.fill(flight.ticket, as_of, &token.tags(), now) else { return };
        if view.standing(&stamp, &token.tags(), now) == EntryState::Good {
            self.admit(at, token, NOW);
        }
        self.caches[at].entries.insert(token.number, stamp);
    }

    fn denies(&mut self, at: usize, token: Token, as_of: (Epoch, u64), tag: Tag) {
        let now = self.caches[at].now(self.tick);
        self.caches[at].machine.view().denied(as_of, tag);
        if !mutation::is(Mutation::DenialNotApplied) {
            self.caches[at].entries.remove(&token.number);
        }
        self.caches[at].denied.insert(token.number, now.plus(self.denial));
        self.refuse(at, token);
    }

    // Copies of what is denied.

    /// Begins a copy.
    pub(super) fn load(&mut self, at: usize, ticket: u64) {
        self.next_page(at, (ticket, DenylistCopying::default()));
    }

    fn next_page(&mut self, at: usize, (ticket, copying): (u64, DenylistCopying)) {
        let query = LogQuery::new(&name(), self.nonce(), copying.question());
        self.next += 1;
        let load = Load { ticket, copying, query, number: self.next, asked: self.tick, tries: 1 };
        self.caches[at].load = Some(load);
        self.ask_page(at);
    }

    fn ask_page(&mut self, at: usize) {
        let Some(load) = &self.caches[at].load else { return };
        let (number, query) = (load.number, load.query.clone());
        self.ask(at, About::Page, number, &query);
    }

    /// Asks again for a page that did not come, each time with a query of its own, and gives up after some.
    pub(super) fn page_again(&mut self, at: usize) {
        let tick = self.tick;
        if self.caches[at].load.as_ref().is_none_or(|load| tick - load.asked < PAGE_AGAIN) {
            return;
        }
        let Some(Load { ticket, copying, tries, .. }) = self.caches[at].load.take() else { return };
        if tries >= TRIES {
            return self.consumer(at, |machine, now, _, _| machine.loaded(now, ticket, None));
        }
        self.next_page(at, (ticket, copying));
        if let Some(load) = &mut self.caches[at].load {
            load.tries = tries + 1;
        }
    }

    fn paged(&mut self, at: usize, bytes: &Bytes) {
        let Some(Load { ticket, mut copying, query, .. }) = self.caches[at].load.take() else { return };
        let view = self.caches[at].machine.view().clone();
        let denials = view.denials().expect("it has them");
        let head = match query.open(bytes, &self.keys).map(|page| copying.take(page, denials)) {
            Ok(CopyProgress::More) => return self.next_page(at, (ticket, copying)),
            Ok(CopyProgress::Whole(head)) => Some(head),
            Ok(CopyProgress::Void) | Err(_) => None,
        };
        self.consumer(at, |machine, now, _, _| machine.loaded(now, ticket, head));
    }

    // Requests.

    /// Admits a request, which must not be admitted after what was told `before` it came.
    fn admit(&mut self, at: usize, token: Token, before: u64) {
        if token.lost {
            return;
        }
        if let Some(Revoked { epoch, seq, replied }) = token.revoked {
            let applied = self.caches[at].machine.applied();
            if applied.is_some_and(|head| number(head.epoch) >= epoch && head.seq >= seq) {
                self.broken.push((Broken::Applied, self.tick, token.number));
            }
            let bound = 50.0 * (1.0 + 2.0 * super::RHO);
            if (self.tick - replied) as f64 >= bound {
                self.broken.push((Broken::Bounded, self.tick, token.number));
            }
            if token.confirmed.is_some_and(|confirmed| confirmed < before) {
                self.broken.push((Broken::Confirmed, self.tick, token.number));
            }
            if self.caches[at].refused.get(&token.number).is_some_and(|refused| *refused < before) {
                self.broken.push((Broken::Monotone, self.tick, token.number));
            }
        }
    }

    fn refuse(&mut self, at: usize, token: Token) {
        if token.revoked.is_none() && !token.lost {
            self.broken.push((Broken::Refused, self.tick, token.number));
        }
        self.refused(at, token.number);
    }

    fn refused(&mut self, at: usize, number: u64) {
        let tick = self.tick;
        self.caches[at].refused.entry(number).or_insert(tick);
    }

    /// A request; whether it was answered from the cache.
    pub(super) fn request(&mut self, at: usize, number: u64) -> bool {
        let (tick, token) = (self.tick, self.tokens[&number]);
        let cache = &mut self.caches[at];
        let (now, view) = (cache.now(tick), cache.machine.view().clone());
        if cache.denied.get(&number).is_some_and(|until| now < *until) {
            self.refuse(at, token);
            return false;
        }
        if let Some(stamp) = cache.entries.get(&number) {
            match view.standing(stamp, &token.tags(), now) {
                EntryState::Good => {
                    self.admit(at, token, NOW);
                    return true;
                }
                EntryState::Void => {
                    cache.entries.remove(&number);
                    if token.revoked.is_some() && view.is_buried(&token.tags()[0]) {
                        self.refused(at, number);
                    }
                }
                EntryState::NoLease => {}
            }
        }
        if token.local {
            match view.verify(&token.tags(), token.issued) {
                CredentialCheck::Good(stamp)
                    if view.standing(&stamp, &token.tags(), now) == EntryState::Good =>
                {
                    self.admit(at, token, NOW);
                    self.caches[at].entries.insert(number, stamp);
                    return false;
                }
                CredentialCheck::Denied => {
                    self.refuse(at, token);
                    return false;
                }
                CredentialCheck::Good(_) | CredentialCheck::Ask => {}
            }
        }
        self.ask_about(at, token);
        false
    }

    /// Has a token asked about, unless that is under way.
    fn ask_about(&mut self, at: usize, token: Token) {
        let (number, tick) = (token.number, self.tick);
        let cache = &self.caches[at];
        let (now, view) = (cache.now(tick), cache.machine.view().clone());
        let joins = |f: &Flight| f.token == number && !f.alone && view.may_join(&f.ticket, now);
        let joins = cache.flights.values().any(joins);
        if joins || cache.flights.len() >= 30 || view.silence().is_silent() {
            return;
        }
        let ticket = view.depart(now);
        let proven = token.local || self.random.chance(500);
        let tags = token.tags().to_vec();
        let query = proven.then(|| LogQuery::new(&name(), self.nonce(), LogQuestion::Confirm(tags)));
        self.next += 1;
        let flight = self.next;
        match &query {
            Some(query) => self.ask(at, About::Token(number), flight, query),
            None => self.send(at, false, || Packet::Read { from: at, flight, token: number }),
        }
        let alone = query.is_some() && now >= view.lease() && !mutation::is(Mutation::JoinedUnheard);
        self.caches[at].flights.insert(flight, Flight { token: number, ticket, began: tick, query, alone });
    }
}
