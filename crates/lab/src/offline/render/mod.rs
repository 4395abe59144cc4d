//! Sheets as Markdown and as one HTML page.
//!
//! Owns: how numbers, tables and pictures look. Does not own: what they say ([`super::report`], [`super::compare`](mod@super::compare)). The page
//! needs nothing but itself: no script, no font, no address; light and dark follow the reader.

mod escape;
mod html;
mod sheet;
pub(crate) mod svg;
mod warning;

pub use html::html;
pub use sheet::{Block, Section, Sheet, Table};
pub use svg::Chart;
pub use warning::{Case, Warning, Weight};

pub(crate) use crate::words;
