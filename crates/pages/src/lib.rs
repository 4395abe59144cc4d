//! Pages: what all pages for people share, whichever part of the program sends them.
//!
//! Owns: the document around the content of a page and its response headers ([`shell`]), brand and
//! colours ([`brand`], [`colour`], `style`), languages and messages ([`language`], [`messages`],
//! [`catalog`]), templates of the operator ([`templates`]), the addresses on a page ([`address`]),
//! escaping ([`text`]), and whether a client wants a page at all ([`negotiation`]). Does not own:
//! the content of any page, its messages, or its status. The crates that send pages own those. It
//! knows no HTTP library: a page is a status, fields and text.
//!
//! Flow:
//!
//! ```text
//! negotiation::wants_page        Accept, Sec-Fetch-* → a page, or a document for programs
//! Languages::choose              ui_locales, Accept-Language → Language
//! Catalog::of                    Language → the messages of one crate
//! Shell::page                    title and content → document, policy, fields
//! ```

pub mod address;
pub mod brand;
pub mod catalog;
pub mod colour;
pub mod language;
pub mod messages;
pub mod negotiation;
pub mod shell;
mod style;
pub mod templates;
pub mod text;

pub use address::{FormTarget, Href, Link};
pub use brand::{Brand, BrandConfig, BrandFault};
pub use catalog::Catalog;
pub use language::{Language, LanguageFault, Languages};
pub use messages::{Filled, Phrase};
pub use shell::{Content, PolicySources, Shell, ShellPage};
