//! Sheets as Markdown and as one HTML page.
//!
//! Owns: how numbers, tables and pictures look. Does not own: what they say ([`super::report`], [`super::compare`](mod@super::compare)). The page
//! needs nothing but itself: no script, no font, no address; light and dark follow the reader.

mod html;
mod sheet;
pub(crate) mod svg;

pub use html::html;
pub use sheet::{Block, Section, Sheet, Table, Weight};
pub use svg::Chart;

pub(crate) use crate::words;
