//! Snapshots: collections whose versions share what did not change.
//!
//! Readers hold a version of such a collection for as long as they need it, without a lock. A writer
//! clones the latest version, changes the clone and publishes it. [`Slots`] and [`TextMap`] make
//! both cheap: they consist of small pieces behind [`Arc`](std::sync::Arc)s. A clone copies
//! references to the pieces, and a change copies the one piece that it touches. So one changed route
//! among forty thousand costs a few microseconds, and lookups cost one reference more than those of
//! a plain vector or hash table.
//!
//! Owns: the two collections. Does not own: what they contain, publishing.

mod slots;
mod text_map;

pub use slots::Slots;
pub use text_map::TextMap;
