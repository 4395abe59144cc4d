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
mod load;
mod load_table;
mod rate;
mod table;
mod target;

pub use arrangement::{Arrangement, Wish};
pub use counts::Counts;
pub use description::Scenario;
pub use event::Planned;
pub use load::{Arriving, Hold, Holding, Load};
pub use rate::{Course, Rate, RateStage};

pub use table::Fresh;

pub(crate) use description::stand_in;
