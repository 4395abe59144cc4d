//! Colours and their contrast (WCAG 2.2 §1.4.3, §1.4.11).
//!
//! Owns: [`Colour`], its contrast, and the choice of readable colours for a given one. Does not
//! own: the colours in use (`style`, [`crate::brand`]).

use std::fmt;

/// Minimum contrast of text.
pub const TEXT: f64 = 4.5;
/// Minimum contrast of other elements: edges of fields, focus rings.
pub const SHAPE: f64 = 3.0;

/// An opaque sRGB colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    red: u8,
    green: u8,
    blue: u8,
}

impl Colour {
    /// Black, `#000000`.
    pub const BLACK: Self = Self::rgb(0, 0, 0);
    /// White, `#ffffff`.
    pub const WHITE: Self = Self::rgb(255, 255, 255);

    /// A colour from its red, green and blue parts.
    pub const fn rgb(red: u8, green: u8, blue: u8) -> Self {
        Self { red, green, blue }
    }

    /// Parses `#rrggbb` or `#rgb`; `None` for any other text, including names of colours.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('#')?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let part = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
        let single = |at: usize| Some(u8::from_str_radix(digits.get(at..=at)?, 16).ok()? * 0x11);
        match digits.len() {
            6 => Some(Self::rgb(part(0)?, part(2)?, part(4)?)),
            3 => Some(Self::rgb(single(0)?, single(1)?, single(2)?)),
            _ => None,
        }
    }

    /// Relative luminance, 0 to 1 (WCAG 2.2, "relative luminance").
    pub fn luminance(self) -> f64 {
        let linear = |part: u8| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(self.red) + 0.7152 * linear(self.green) + 0.0722 * linear(self.blue)
    }

    /// Contrast ratio, 1 to 21 (WCAG 2.2, "contrast ratio").
    pub fn contrast(self, other: Self) -> f64 {
        let (a, b) = (self.luminance(), other.luminance());
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    /// Black or white, whichever has more contrast on this colour: at least 4.58.
    #[must_use]
    pub fn text_on(self) -> Self {
        if self.contrast(Self::WHITE) >= self.contrast(Self::BLACK) { Self::WHITE } else { Self::BLACK }
    }

    /// This colour, mixed with as little of `towards` as necessary for the contrast `least` on all
    /// of `grounds`.
    #[must_use]
    pub fn readable_on(self, grounds: &[Self], least: f64, towards: Self) -> Self {
        (0..=STEPS)
            .map(|step| self.mixed(towards, step))
            .find(|c| grounds.iter().all(|ground| c.contrast(*ground) >= least))
            .unwrap_or(towards)
    }

    /// This colour with `step` parts of [`STEPS`] of another one.
    #[must_use]
    pub(crate) fn mixed(self, other: Self, step: u8) -> Self {
        let step = u16::from(step.min(STEPS));
        let mix = |a: u8, b: u8| {
            let sum = u16::from(a) * (u16::from(STEPS) - step) + u16::from(b) * step;
            u8::try_from(sum / u16::from(STEPS)).unwrap_or(u8::MAX)
        };
        Self::rgb(mix(self.red, other.red), mix(self.green, other.green), mix(self.blue, other.blue))
    }
}

/// Number of parts of a mixture.
pub(crate) const STEPS: u8 = 50;

impl fmt::Display for Colour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contrast_agrees_with_published_values() {
        assert!((Colour::BLACK.contrast(Colour::WHITE) - 21.0).abs() < 1e-9);
        let grey = Colour::parse("#767676").unwrap();
        assert!((grey.contrast(Colour::WHITE) - 4.54).abs() < 0.01, "{}", grey.contrast(Colour::WHITE));
    }

    #[test]
    fn only_hexadecimal_colours_are_colours() {
        assert_eq!(Colour::parse("#0af"), Some(Colour::rgb(0, 0xaa, 0xff)));
        assert_eq!(Colour::parse("#00AAff"), Some(Colour::rgb(0, 0xaa, 0xff)));
        for bad in ["", "#", "red", "00aaff", "#00aaf", "#00aaff00", "#ggg", "#+1+1+1", "#äb", "#fff;}"] {
            assert_eq!(Colour::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn text_on_any_colour_is_readable() {
        for red in (0..=255).step_by(15) {
            for green in (0..=255).step_by(15) {
                for blue in (0..=255).step_by(15) {
                    let c = Colour::rgb(red, green, blue);
                    assert!(c.contrast(c.text_on()) >= TEXT, "{c}");
                }
            }
        }
    }
}
