//! Scenarios: what is measured on which topologies, how often and in which order.
//!
//! Owns: the TOML form ([`Scenario`]), its variants (topology × token mode × load), and the names
//! that its tables may use. Does not own: topologies ([`crate::topology`]), and measuring
//! ([`crate::run`]).
//!
//! 1. The file is parsed into tables.
//! 2. The quick form is applied, if requested.
//! 3. The tables become arrangements (topologies to run), each with its loads.
//! 4. [`crate::run`] measures them.

mod arrangement;
mod consistency;
mod counts;
mod description;
mod event;
mod exchange_table;
mod hold_table;
mod load;
mod load_table;
mod rate;
mod table;
mod target;

pub use arrangement::{Arrangement, ScenarioOptions};
pub use counts::Counts;
pub use description::Scenario;
pub use event::PlannedEvent;
pub use load::{ArrivalPattern, HeldBehavior, Hold, Load};
pub use rate::{Rate, RateProfile, RateStage};

pub use table::RestartPolicy;

pub(crate) use description::expand_name;
