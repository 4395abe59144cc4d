//! Scenarios: what is measured on which topologies, how often and in which order.
//!
//! Owns: the TOML form ([`Scenario`]), its variants (topology × token mode × load), and what may be said about names in it. Does not own:
//! topologies ([`crate::topology`]) and measuring ([`crate::run`]).
//!
//! Flow: file → tables → quick or whole → arrangements (what has to run) with the loads that go through each → [`crate::run`].

mod counts;
mod description;
mod event;
mod load;
mod rate;
mod table;
mod target;

pub use counts::Counts;
pub use description::{Arrangement, Scenario, Wish};
pub use event::Planned;
pub use load::{Arriving, Hold, Holding, Load};
pub use rate::{Course, Rate, Stage};

pub use table::Fresh;

pub(crate) use description::stand_in;
