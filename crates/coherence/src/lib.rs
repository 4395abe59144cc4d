//! Revocation coherence: tells every cache what was revoked, so that no cache uses a revoked
//! credential for longer than a bounded time.
//!
//! Owns:
//! - the two state machines of the protocol ([`consumer`], [`authority`]), and the loops that run
//!   them ([`event_loops`]);
//! - the consumers of a log, and how far each has applied it ([`consumers`]);
//! - what caches check before they use an entry ([`view`], [`denylist`]);
//! - what a node queries when that does not suffice ([`revocation_query`]), the form of queries
//!   ([`query`]), and their repetition over networks that lose messages ([`repeat`]);
//! - whether an authority answers at all ([`silence`]);
//! - the header field that makes an answer about a credential revocable ([`revocation_tags`]);
//! - the tags that name what is revoked ([`tags`]), and the secret that permits making them
//!   ([`secret`]);
//! - the messages ([`wire`], [`message_channel`]), and their transports ([`transport`]).
//!
//! Does not own: the log in the database, the caches themselves, or the log lines about a
//! dependency that is down ([`outage`]).
//!
//! An *authority* is one database that owns facts about credentials. It keeps a log of what it has
//! revoked: events with dense numbers from 1, each with tags that name what the event concerns. A
//! *consumer* is a cache, on any node. Events of the log are pushed to it. They may be lost,
//! repeated, late and out of order: they give speed and nothing else.
//!
//! Safety comes from the *lease*. Every half second the consumer asks for the head of the log. Once
//! it has applied everything up to that head, its entries are valid for five more seconds. That
//! time counts from when the consumer *sent* the probe, on its own clock. So a consumer that
//! receives nothing stops using its entries, and no two clocks need to agree.
//!
//! Both machines are pure: messages, answers and the time go in,
//! [actions](consumer::ConsumerAction) come out. The same code runs behind a message broker and in
//! the simulation, where a hundred thousand bad networks try to make it admit a revoked credential.
//!
//! The bound: no cache admits a revoked credential later than T + L(1 + ρ). T is the time at which
//! the revocation is durable, L the lease, and ρ bounds the error of a clock's *rate*. Proof: a
//! request is admitted at t under a lease whose probe was sent at x, so t < x + L(1 + ρ). Assume
//! that the revocation was durable at x. The head was read after x, so it counts the revocation,
//! and the consumer had applied it. Then its tombstone refuses the entry; an entry that was filled
//! later rests on an answer that included the revocation. Hence T > x, and t < T + L(1 + ρ). The
//! proof does not use the delivery of events.

pub mod authority;
pub mod consumer;
pub mod consumers;
pub mod denylist;
pub mod event_loops;
mod log_types;
pub mod message_channel;
mod mutation;
pub mod query;
pub mod relay;
pub mod repeat;
pub mod revocation_query;
pub mod revocation_tags;
pub mod secret;
pub mod silence;
pub mod tags;
pub mod time;
pub mod transport;
pub mod view;
pub mod wire;

#[cfg(test)]
mod simulation;

pub use crate::log_types::{ConsumerId, Epoch, LogEvent, LogHead, Nonce, PeerName, Tag};
