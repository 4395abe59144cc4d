//! Foreign texts, made safe to show.
//!
//! Owns: preparing names of clients, users and browsers for a page ([`Shown`]), and escaping of
//! values inside a message ([`Escaping`]). Does not own: all other escaping, which askama always
//! does.
//!
//! Escaping alone is not enough: a right-to-left override reorders the text around it, and a very
//! long name pushes the button out of view.

use std::fmt::{self, Write};

/// Most characters of a foreign text that are shown.
pub const MAX_SHOWN: usize = 120;

/// A foreign text as shown: controls and direction marks are replaced by `U+FFFD`, and a text
/// longer than [`MAX_SHOWN`] characters is cut and ends in `…`. Not escaped: templates escape
/// `Display`.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, c) in self.0.chars().enumerate() {
            if at == MAX_SHOWN {
                return f.write_char('…');
            }
            f.write_char(if is_unprintable(c) { char::REPLACEMENT_CHARACTER } else { c })?;
        }
        Ok(())
    }
}

/// A text with the five characters escaped that have a meaning in HTML.
pub fn escaped(text: &str) -> String {
    struct Escaped<'a>(&'a str);
    impl fmt::Display for Escaped<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            Escaping(f).write_str(self.0)
        }
    }
    Escaped(text).to_string()
}

/// Whether a character has no glyph but affects others: controls, the bidirectional marks,
/// embeddings, overrides and isolates of UAX #9, line separators, and the byte order mark.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Writes text with the five characters escaped that have a meaning in HTML text or a quoted
/// attribute.
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
