//! Texts of others, made fit to be shown.
//!
//! Owns: what becomes of a client's name, a user's or a browser's before it stands on a page ([`Shown`]), and
//! the escaping of values inside a sentence ([`Escaping`]).
//! Does not own: the escaping of everything else, which is askama's and always on.
//!
//! Escaping alone is not enough: a right-to-left override turns what stands around it, and a name of ten
//! thousand letters hides the button below it.

use std::fmt::{self, Write};

/// Most characters of a foreign text that are shown.
pub(crate) const MAX_SHOWN: usize = 120;

/// A foreign text as shown: controls and marks of direction are replaced by `U+FFFD`, and what is over
/// [`MAX_SHOWN`] characters ends in `…`. Not escaped: `Display` is for templates, which do that.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a>(pub(crate) &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, c) in self.0.chars().enumerate() {
            if at == MAX_SHOWN {
                return f.write_char('…');
            }
            f.write_char(if unfit(c) { char::REPLACEMENT_CHARACTER } else { c })?;
        }
        Ok(())
    }
}

/// Whether a character has no shape of its own but an effect on others: controls, and the bidirectional
/// marks, embeddings, overrides and isolates of UAX #9, line separators, and the byte order mark.
pub(crate) fn unfit(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Writes on with the five characters escaped that mean something in HTML text or a quoted attribute.
pub(crate) struct Escaping<'a, 'f>(pub(crate) &'a mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.write_str("&#38;")?,
                '<' => self.0.write_str("&#60;")?,
                '>' => self.0.write_str("&#62;")?,
                '"' => self.0.write_str("&#34;")?,
                '\'' => self.0.write_str("&#39;")?,
                other => self.0.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_the_text_around_it_is_made_visible() {
        assert_eq!(Shown("safe\u{202e}gpj.exe").to_string(), "safe\u{fffd}gpj.exe");
        assert_eq!(Shown("a\u{0}b\nc\u{2067}").to_string(), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(Shown("שלום Grüße 東京").to_string(), "שלום Grüße 東京", "letters stay");
    }

    #[test]
    fn a_long_text_ends_early() {
        let shown = Shown(&"ä".repeat(10_000)).to_string();
        assert_eq!(shown.chars().count(), MAX_SHOWN + 1);
        assert!(shown.ends_with('…'));
        assert_eq!(Shown(&"x".repeat(MAX_SHOWN)).to_string(), "x".repeat(MAX_SHOWN), "not cut at the limit");
    }
}
