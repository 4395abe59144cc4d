//! Rendering: turns sheets into Markdown and into one HTML page.
//!
//! Owns: how numbers, tables and charts look.
//! Does not own: their content ([`super::report`], [`super::compare`](mod@super::compare)).
//!
//! The page is self-contained: it loads nothing, and links only to files beside it. Its one script is
//! part of it. Light and dark follow the reader's setting.

mod escape;
mod html;
mod sheet;
pub(crate) mod svg;
mod warning;

pub use html::html;
pub use sheet::{Block, DataLink, Section, Sheet, Table};
pub use svg::Chart;
pub use warning::{Case, Warning, Weight};
