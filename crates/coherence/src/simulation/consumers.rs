//! Consumers of the simulation: requests with tokens, queries about them, copies of the denylist.
//!
//! A token is queried in one of two ways. A plain read ([`Packet::Read`]) is answered by any
//! server, perhaps one that lags behind; its answer admits only under the lease. A query
//! ([`crate::query`]) is answered by the primary, and its answer admits by itself.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::adversary::About;
use super::{BrokenPromise, NODES, Packet, Revoked, Token, World, name, number};
use crate::denylist::DenylistEntry;
use crate::log_types::{Epoch, LogEvent, Tag};
use crate::mutation::{self, Mutation};
use crate::query::{CopyProgress, DenylistCopier, LogAnswer, LogQuery, LogQuestion};
use crate::view::{CredentialCheck, EntryState, QueryTicket};

/// Denylist entries in one page.
const PAGE: usize = 4;
/// Ticks after which a page is requested again, and the number of attempts.
const PAGE_AGAIN: u64 = 30;
const TRIES: u32 = 3;
/// Time of a request that waited for no query from before it came.
const NOW: u64 = u64::MAX;

/// A query about a token that is in flight.
pub(super) struct OpenQuery {
    pub(super) token: u64,
    pub(super) ticket: QueryTicket,
    pub(super) began: u64,
    /// `None` for a plain read.
    query: Option<LogQuery>,
    /// It was sent without a lease: no request joins it, and its answer is only for the request
    /// that sent it.
    not_joinable: bool,
}

/// A copy of the denylist that is in progress.
pub(super) struct Load {
    ticket: u64,
    copying: DenylistCopier,
    query: LogQuery,
    /// Number of the page.
    number: u64,
    sent_at: u64,
    attempts: u32,
}

fn denied_by(log: &BTreeMap<u64, LogEvent>, as_of: u64) -> Vec<(Tag, DenylistEntry)> {
    let denials = log.range(..=as_of).flat_map(|(_, event)| {
        let denial = DenylistEntry { not_before: event.not_before, until: event.until };
        event.tags.iter().map(move |tag| (*tag, denial))
    });
    denials.collect()
}

impl World {
    /// Everything that is denied after a tag, as a node reads it.
    fn page(&mut self, node: usize, after: Option<Tag>) -> Option<LogAnswer> {
        let (head, log) = self.page_of(node)?;
        let mut denied: Vec<_> =
            denied_by(log, head.seq).into_iter().filter(|(tag, _)| after < Some(*tag)).collect();
        denied.sort_by_key(|(tag, _)| *tag);
        denied.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1 = first.1.merge(later.1);
            }
            same
        });
        let more = denied.len() > PAGE;
        denied.truncate(PAGE);
        Some(LogAnswer { head, denied, more })
    }

    /// Which of these tags are denied, by a node whose server is the primary.
    fn answer_tags(&mut self, node: usize, tags: &[Tag]) -> Option<LogAnswer> {
        let (head, log) = self.prove_log(node)?;
        let denied = denied_by(log, head.seq).into_iter().filter(|(tag, _)| tags.contains(tag)).collect();
        Some(LogAnswer { head, denied, more: false })
    }

    /// Delivers a query to a node, unless the node is down.
    pub(super) fn deliver_query(&mut self, node: usize, about: About, bytes: &Bytes, to: (usize, u64, u64)) {
        if self.down_until[node] > self.tick {
            return;
        }
        let Ok(query) = LogQuery::read(&name(), bytes) else { return };
        let answer = match query.question() {
            LogQuestion::Tags(tags) => self.answer_tags(node, tags),
            LogQuestion::DenylistPage { after } => self.page(node, *after),
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

    /// Sends a query to some node, or to the adversary.
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

    /// Delivers an answer to a query, genuine or forged. An answer that does not verify is dropped.
    pub(super) fn deliver_sealed_answer(&mut self, at: usize, life: u64, number: u64, bytes: &Bytes) {
        if self.caches[at].life != life {
            return;
        }
        if self.caches[at].load.as_ref().is_some_and(|load| load.number == number) {
            return self.deliver_page(at, bytes);
        }
        let Some(flight) = self.caches[at].flights.remove(&number) else { return };
        let Some(Ok(answer)) = flight.query.as_ref().map(|query| query.open(bytes, &self.keys)) else {
            return;
        };
        let now = self.caches[at].now(self.tick);
        let token = self.tokens[&flight.token];
        let view = self.caches[at].machine.view().clone();
        view.silence().answer_received();
        let as_of = (answer.head.epoch, answer.head.seq);
        let concerns = |(tag, denial): &&(Tag, DenylistEntry)| {
            token.tags().contains(tag) && denial.not_before.is_none_or(|then| token.issued < then)
        };
        if let Some((tag, _)) = answer.denied.iter().find(concerns) {
            return self.denies(at, token, as_of, *tag);
        }
        let denials = view.denylist().expect("it has them");
        if denials.denies(&token.tags(), token.issued) {
            // A denylist that is being loaded decides nothing: the kept state may rest on less.
            if denials.is_complete() {
                self.refuse(at, token);
            }
            return;
        }
        let before = if flight.not_joinable { flight.began } else { NOW };
        match view.fill(flight.ticket, as_of, &token.tags(), now) {
            Ok(stamp) => {
                self.admit(at, token, before);
                self.caches[at].entries.insert(token.number, stamp);
            }
            Err(why) if view.may_admit_once(&flight.ticket, why) => self.admit(at, token, before),
            Err(_) => {}
        }
    }

    /// Delivers the answer to a plain read of a token.
    pub(super) fn deliver_read_answer(&mut self, at: usize, flight: u64, good: bool, as_of: (Epoch, u64)) {
        let Some(flight) = self.caches[at].flights.remove(&flight) else { return };
        let now = self.caches[at].now(self.tick);
        let token = self.tokens[&flight.token];
        let view = self.caches[at].machine.view().clone();
        if !good {
            return self.denies(at, token, as_of, token.tags()[0]);
        }
        let Ok(stamp) = view.fill(flight.ticket, as_of, &token.tags(), now) else { return };
        if view.entry_state(&stamp, &token.tags(), now) == EntryState::Valid {
            self.admit(at, token, NOW);
        }
        self.caches[at].entries.insert(token.number, stamp);
    }

    fn denies(&mut self, at: usize, token: Token, as_of: (Epoch, u64), tag: Tag) {
        let now = self.caches[at].now(self.tick);
        self.caches[at].machine.view().apply_denial(as_of, tag);
        if !mutation::is_active(Mutation::DenialNotApplied) {
            self.caches[at].entries.remove(&token.number);
        }
        self.caches[at].denied.insert(token.number, now.plus(self.denial));
        self.refuse(at, token);
    }

    // Copies of the denylist.

    /// Begins a copy of the denylist.
    pub(super) fn load(&mut self, at: usize, ticket: u64) {
        self.next_page(at, (ticket, DenylistCopier::default()));
    }

    fn next_page(&mut self, at: usize, (ticket, copying): (u64, DenylistCopier)) {
        let query = LogQuery::new(&name(), self.nonce(), copying.question());
        self.next += 1;
        let load = Load { ticket, copying, query, number: self.next, sent_at: self.tick, attempts: 1 };
        self.caches[at].load = Some(load);
        self.ask_page(at);
    }

    fn ask_page(&mut self, at: usize) {
        let Some(load) = &self.caches[at].load else { return };
        let (number, query) = (load.number, load.query.clone());
        self.ask(at, About::Page, number, &query);
    }

    /// Requests a page again that did not arrive, each time with a new query, and gives up after
    /// some attempts.
    pub(super) fn page_again(&mut self, at: usize) {
        let tick = self.tick;
        if self.caches[at].load.as_ref().is_none_or(|load| tick - load.sent_at < PAGE_AGAIN) {
            return;
        }
        let Some(Load { ticket, copying, attempts, .. }) = self.caches[at].load.take() else { return };
        if attempts >= TRIES {
            return self.consumer(at, |machine, now, _, _| machine.denylist_loaded(now, ticket, None));
        }
        self.next_page(at, (ticket, copying));
        if let Some(load) = &mut self.caches[at].load {
            load.attempts = attempts + 1;
        }
    }

    fn deliver_page(&mut self, at: usize, bytes: &Bytes) {
        let Some(Load { ticket, mut copying, query, .. }) = self.caches[at].load.take() else { return };
        let view = self.caches[at].machine.view().clone();
        let denials = view.denylist().expect("it has them");
        let head = match query.open(bytes, &self.keys).map(|page| copying.add_page(page, denials)) {
            Ok(CopyProgress::More) => return self.next_page(at, (ticket, copying)),
            Ok(CopyProgress::Complete(head)) => Some(head),
            Ok(CopyProgress::Invalid) | Err(_) => None,
        };
        self.consumer(at, |machine, now, _, _| machine.denylist_loaded(now, ticket, head));
    }

    // Requests.

    /// Admits a request. That breaks a promise if the token was confirmed as revoked, or refused,
    /// `before` the request came.
    fn admit(&mut self, at: usize, token: Token, before: u64) {
        if token.lost {
            return;
        }
        if let Some(Revoked { epoch, seq, replied }) = token.revoked {
            let applied = self.caches[at].machine.applied();
            if applied.is_some_and(|head| number(head.epoch) >= epoch && head.seq >= seq) {
                self.broken.push((BrokenPromise::Applied, self.tick, token.number));
            }
            let bound = 50.0 * (1.0 + 2.0 * super::RHO);
            if (self.tick - replied) as f64 >= bound {
                self.broken.push((BrokenPromise::Bounded, self.tick, token.number));
            }
            if token.confirmed.is_some_and(|confirmed| confirmed < before) {
                self.broken.push((BrokenPromise::Confirmed, self.tick, token.number));
            }
            if self.caches[at].refused.get(&token.number).is_some_and(|refused| *refused < before) {
                self.broken.push((BrokenPromise::Monotone, self.tick, token.number));
            }
        }
    }

    fn refuse(&mut self, at: usize, token: Token) {
        if token.revoked.is_none() && !token.lost {
            self.broken.push((BrokenPromise::Refused, self.tick, token.number));
        }
        self.refused(at, token.number);
    }

    fn refused(&mut self, at: usize, number: u64) {
        let tick = self.tick;
        self.caches[at].refused.entry(number).or_insert(tick);
    }

    /// Sends a request; returns whether it was answered from the cache.
    pub(super) fn request(&mut self, at: usize, number: u64) -> bool {
        let (tick, token) = (self.tick, self.tokens[&number]);
        let cache = &mut self.caches[at];
        let (now, view) = (cache.now(tick), cache.machine.view().clone());
        if cache.denied.get(&number).is_some_and(|until| now < *until) {
            self.refuse(at, token);
            return false;
        }
        if let Some(stamp) = cache.entries.get(&number) {
            match view.entry_state(stamp, &token.tags(), now) {
                EntryState::Valid => {
                    self.admit(at, token, NOW);
                    return true;
                }
                EntryState::Evicted => {
                    cache.entries.remove(&number);
                    if token.revoked.is_some() && view.has_tombstone(&token.tags()[0]) {
                        self.refused(at, number);
                    }
                }
                EntryState::LeaseExpired => {}
            }
        }
        if token.local {
            match view.check_credential(&token.tags(), token.issued) {
                CredentialCheck::NotRevoked(stamp)
                    if view.entry_state(&stamp, &token.tags(), now) == EntryState::Valid =>
                {
                    self.admit(at, token, NOW);
                    self.caches[at].entries.insert(number, stamp);
                    return false;
                }
                CredentialCheck::Denied => {
                    self.refuse(at, token);
                    return false;
                }
                CredentialCheck::NotRevoked(_) | CredentialCheck::Unknown => {}
            }
        }
        self.ask_about(at, token);
        false
    }

    /// Queries a token, unless a query that this request can join is in flight.
    fn ask_about(&mut self, at: usize, token: Token) {
        let (number, tick) = (token.number, self.tick);
        let cache = &self.caches[at];
        let (now, view) = (cache.now(tick), cache.machine.view().clone());
        let joins = |f: &OpenQuery| f.token == number && !f.not_joinable && view.may_join(&f.ticket, now);
        let joins = cache.flights.values().any(joins);
        if joins || cache.flights.len() >= 30 || view.silence().is_silent() {
            return;
        }
        let ticket = view.start_query(now);
        let proven = token.local || self.random.chance(500);
        let tags = token.tags().to_vec();
        let query = proven.then(|| LogQuery::new(&name(), self.nonce(), LogQuestion::Tags(tags)));
        self.next += 1;
        let flight = self.next;
        match &query {
            Some(query) => self.ask(at, About::Token(number), flight, query),
            None => self.send(at, false, || Packet::Read { from: at, flight, token: number }),
        }
        let alone =
            query.is_some() && now >= view.lease() && !mutation::is_active(Mutation::JoinedWithoutLease);
        self.caches[at]
            .flights
            .insert(flight, OpenQuery { token: number, ticket, began: tick, query, not_joinable: alone });
    }
}
