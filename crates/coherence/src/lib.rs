//! What changed, told to every cache, so that none of them believes for long what has been revoked.
//!
//! Owns: the two machines of the protocol ([`consumer`], [`authority`]) and what runs them ([`drive`]), who
//! follows ([`roster`]), what caches ask of it
//! ([`view`], [`denials`]), what is done where that does not help ([`confirm`], with [`query`] as what goes over the network and [`repeat`]
//! where that loses messages), whether anything is answered at all ([`silence`]), what an answer
//! about a credential says beside ([`statement`]), what tags are made from ([`tags`]) and who may make them ([`secret`]), and the
//! messages between them ([`wire`], [`end`]), with the ways that they take ([`transport`]). Beside them what is said in the log when something is away that a process
//! depends on ([`outage`]). Does not own: the log in the database, or the
//! caches themselves.
//!
//! An *authority* is one database that owns facts. It keeps a log of what it has taken back: dense numbers from 1, each with
//! tags that name what it concerns. A *consumer* is a cache, on whatever node. Events of the log are pushed to it, and may be
//! lost, repeated, late and out of order: they give speed and nothing else. Safety comes from the *lease*. Every half second the
//! consumer asks how far the log has got; if it has applied all of that, it may believe its entries for five seconds
//! more, counted from when it *asked*, on its own clock. So whoever hears nothing stops believing, and no two clocks need agree.
//!
//! Both machines are pure: messages, answers and the time go in, [actions](consumer::Action) come out. The same code runs
//! behind a broker and in the simulation, where a hundred thousand bad networks try to make it admit what was revoked.
//!
//! The bound: a revocation that is durable at T is admitted by nobody after T + L(1 + ρ), where ρ bounds how wrong the *rate* of a
//! clock is. Let a request be admitted at t under a lease that was asked for at x, so t < x + L(1 + ρ). If the revocation
//! was durable at x, the head that was read after x counts it, so the consumer had applied it, and its tombstone refuses
//! the entry; an entry that came later rests on an answer that knew of it. Hence T > x, and t < T + L(1 + ρ). Delivery
//! was never used.

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

pub use crate::log_types::{ConsumerId, ConsumerName, Epoch, LogEvent, LogHead, Nonce, Tag};
