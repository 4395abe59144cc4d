//! Objects of a Kubernetes cluster, turned into the desired state of the data plane and into status
//! conditions, without I/O.
//!
//! Owns:
//! - reading objects strictly into compact types ([`objects`]);
//! - everything that is known of the cluster, and what depends on what ([`world`]);
//! - listeners of Gateways and ListenerSets ([`listeners`]), the attachment of routes to them
//!   ([`attach`]), backends and their endpoints ([`backends`]), rules of routes ([`rules`]) and the
//!   policies that reach them ([`policies`]);
//! - Ingresses and the Routes of OpenShift, which one Gateway serves ([`ingress`]);
//! - the desired state as values ([`plan`]), and the status documents of objects ([`conditions`]).
//!
//! Does not own: the client and the watches of Kubernetes, the leader that writes status, the
//! schema of a policy's body, and the translation of the desired state into checked routes.
//!
//! Flow: `objects::read → World::apply(Event) → World::settle(now) → Changes`.
//!
//! ```
//! use controller::names::{Interner, Kind};
//! use controller::objects;
//! use controller::settings::Settings;
//! use controller::world::{Event, World};
//! use serde_json::json;
//!
//! let mut world = World::new(Settings::new("postern.dev/gateway-controller"));
//! let mut interner = Interner::default();
//! let class = json!({
//!     "metadata": { "name": "postern" },
//!     "spec": { "controllerName": "postern.dev/gateway-controller" },
//! });
//! let gateway = json!({
//!     "metadata": { "name": "gw", "namespace": "infra" },
//!     "spec": {
//!         "gatewayClassName": "postern",
//!         "listeners": [{ "name": "http", "port": 80, "protocol": "HTTP" }],
//!     },
//! });
//! for (kind, object) in [(Kind::GatewayClass, class), (Kind::Gateway, gateway)] {
//!     world.apply(Event::Set(objects::read(kind, &object, &mut interner)?));
//! }
//! let changes = world.settle(1_800_000_000);
//! assert_eq!(changes.gateways.len(), 1);
//! assert_eq!(changes.statuses.len(), 2);
//! # Ok::<(), controller::objects::ReadError>(())
//! ```

pub mod attach;
pub mod backends;
pub mod conditions;
pub mod fault;
pub mod ingress;
pub mod known;
pub mod listeners;
pub mod names;
pub mod objects;
pub mod plan;
pub mod policies;
pub mod rules;
pub mod settings;
pub mod world;
