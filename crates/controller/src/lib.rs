//! Objects of a Kubernetes cluster, turned into the desired state of the data plane and into status
//! conditions, without I/O.
//!
//! Owns:
//! - reading objects strictly into compact types ([`objects`]);
//! - everything that is known of the cluster, and what depends on what ([`world`]);
//! - listeners of Gateways and ListenerSets ([`listeners`]), the attachment of routes to them
//!   ([`attach`]), backends and their endpoints ([`backends`]), rules of routes ([`rules`]) and the
//!   policies that reach them ([`policies`]);
//! - the desired state as values ([`plan`]), and the status documents of objects ([`conditions`]).
//!
//! Does not own: the client and the watches of Kubernetes, the leader that writes status, the
//! schema of a policy's body, and the translation of the desired state into checked routes.
//!
//! Flow: `objects::read → World::apply(Event) → World::settle(now) → Changes`.

pub mod attach;
pub mod backends;
pub mod conditions;
pub mod fault;
pub mod known;
pub mod listeners;
pub mod names;
pub mod objects;
pub mod plan;
pub mod policies;
pub mod rules;
pub mod settings;
pub mod world;
