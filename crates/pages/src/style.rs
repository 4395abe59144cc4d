//! Style sheet: one text with its colours, and its hash for the policy.
//!
//! Owns: the colours of both schemes, the colours derived from the brand's colour, and the
//! `style-src` hash. Does not own: shapes and spacing (`assets/pages.css`, which contains no
//! colours).
//!
//! The sheet is inside each page, not at its own URL. So a page is one consistent response even
//! while two versions of the program run. No other route must be reachable before login, and the
//! policy's hash allows only this text. It costs about 6 KB per page.

use std::fmt::Write;

use aws_lc_rs::digest;
use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{
    brand::Brand,
    colour::{Colour, SHAPE, TEXT},
};

const SHAPES: &str = include_str!("../assets/pages.css");

/// Name, colour of the light scheme, colour of the dark scheme.
#[rustfmt::skip]
const COLOURS: [(&str, Colour, Colour); 15] = [
    ("page",       Colour::rgb(0xf3, 0xf4, 0xf6), Colour::rgb(0x0e, 0x11, 0x16)),
    ("card",       Colour::WHITE,                 Colour::rgb(0x17, 0x1b, 0x21)),
    ("field",      Colour::WHITE,                 Colour::rgb(0x10, 0x14, 0x19)),
    ("hover",      Colour::rgb(0xee, 0xf0, 0xf3), Colour::rgb(0x24, 0x2a, 0x33)),
    ("ink",        Colour::rgb(0x16, 0x19, 0x1d), Colour::rgb(0xe8, 0xea, 0xed)),
    ("muted",      Colour::rgb(0x54, 0x5b, 0x66), Colour::rgb(0xa8, 0xb0, 0xbb)),
    ("line",       Colour::rgb(0xdd, 0xe0, 0xe6), Colour::rgb(0x2c, 0x33, 0x3d)),
    ("field-line", Colour::rgb(0x7d, 0x85, 0x91), Colour::rgb(0x74, 0x7d, 0x8a)),
    ("bad",        Colour::rgb(0xa5, 0x14, 0x1f), Colour::rgb(0xff, 0xb3, 0xb3)),
    ("bad-soft",   Colour::rgb(0xfd, 0xee, 0xee), Colour::rgb(0x3a, 0x1a, 0x1d)),
    ("good",       Colour::rgb(0x0f, 0x5f, 0x37), Colour::rgb(0x9f, 0xe0, 0xb8)),
    ("good-soft",  Colour::rgb(0xe8, 0xf6, 0xee), Colour::rgb(0x12, 0x30, 0x1f)),
    ("warn",       Colour::rgb(0x6b, 0x42, 0x00), Colour::rgb(0xf5, 0xd4, 0x8a)),
    ("warn-soft",  Colour::rgb(0xff, 0xf4, 0xd6), Colour::rgb(0x3a, 0x2e, 0x12)),
    ("shade",      Colour::rgb(0xd3, 0xd7, 0xde), Colour::rgb(0x05, 0x07, 0x0a)),
];

/// The complete style sheet.
#[derive(Debug, Clone)]
pub(crate) struct Style {
    text: Box<str>,
    source: Box<str>,
}

impl Style {
    /// The sheet for a brand, with the operator's own rules at its end.
    pub(crate) fn new(brand: &Brand, own: Option<&str>) -> Self {
        let mut text = String::with_capacity(SHAPES.len() + 2048);
        for (scheme, open, close) in [
            (Scheme::Light, ":root{", "}"),
            (Scheme::Dark, "@media (prefers-color-scheme:dark){:root{", "}}"),
        ] {
            text.push_str(open);
            let keyword = if scheme == Scheme::Light { "light dark" } else { "dark" };
            let _ = write!(text, "color-scheme:{keyword}");
            for (name, colour) in scheme.colours(brand.colour()) {
                let _ = write!(text, ";--{name}:{colour}");
            }
            text.push_str(close);
            text.push('\n');
        }
        text.push_str(SHAPES.trim_end());
        if let Some(own) = own {
            text.push('\n');
            text.push_str(own);
        }
        let hash = STANDARD.encode(digest::digest(&digest::SHA256, text.as_bytes()));
        Self { text: text.into(), source: format!("'sha256-{hash}'").into() }
    }

    /// Exact text between `<style>` and `</style>`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Source expression that allows the sheet (CSP Level 3 §2.3.1, `hash-source`).
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Light,
    Dark,
}

impl Scheme {
    fn colours(self, brand: Colour) -> Vec<(&'static str, Colour)> {
        let mut all: Vec<_> = COLOURS
            .iter()
            .map(|(name, light, dark)| (*name, if self == Self::Light { *light } else { *dark }))
            .collect();
        let grounds: Vec<_> =
            all.iter().filter(|(name, _)| matches!(*name, "page" | "card")).map(|(_, c)| *c).collect();
        let towards = if self == Self::Light { Colour::BLACK } else { Colour::WHITE };
        // The button has a visible edge even if the brand's colour is close to that of the card.
        let edge = brand.readable_on(&grounds, SHAPE, towards);
        // Away from the colour of its text, so that hovering never reduces the contrast.
        let away = if brand.text_on() == Colour::WHITE { Colour::BLACK } else { Colour::WHITE };
        all.extend([
            ("brand", brand),
            ("brand-hover", brand.mixed(away, 7)),
            ("on-brand", brand.text_on()),
            ("edge", edge),
            ("accent", brand.readable_on(&grounds, TEXT, towards)),
        ]);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brand::BrandConfig;

    /// Foreground, background, minimum contrast.
    const PAIRS: [(&str, &str, f64); 19] = [
        ("ink", "page", TEXT),
        ("ink", "card", TEXT),
        ("ink", "field", TEXT),
        ("ink", "hover", TEXT),
        ("muted", "page", TEXT),
        ("muted", "card", TEXT),
        ("bad", "card", TEXT),
        ("bad", "hover", TEXT),
        ("bad", "bad-soft", TEXT),
        ("good", "good-soft", TEXT),
        ("warn", "warn-soft", TEXT),
        ("on-brand", "brand", TEXT),
        ("on-brand", "brand-hover", TEXT),
        ("accent", "card", TEXT),
        ("accent", "page", TEXT),
        ("field-line", "card", SHAPE),
        ("field-line", "field", SHAPE),
        ("bad", "field", SHAPE),
        ("edge", "card", SHAPE),
    ];

    const BRANDS: [&str; 9] =
        ["#2f5bd0", "#000000", "#ffffff", "#ffd400", "#808080", "#ff0000", "#00ff00", "#171b21", "#767676"];

    fn brand(colour: &str) -> Brand {
        Brand::check(&BrandConfig { name: "x".into(), logo: None, colour: colour.into() }).unwrap()
    }

    #[test]
    fn every_pair_of_colours_is_readable_in_both_schemes_under_any_brand() {
        for scheme in [Scheme::Light, Scheme::Dark] {
            for hex in BRANDS {
                let colours = scheme.colours(brand(hex).colour());
                let find = |name| colours.iter().find(|(n, _)| *n == name).unwrap().1;
                for (front, back, least) in PAIRS {
                    let ratio = find(front).contrast(find(back));
                    assert!(ratio >= least, "{scheme:?} {hex}: {front} on {back} is {ratio:.2}");
                }
            }
        }
    }

    #[test]
    fn the_sheet_names_no_colour_itself_and_uses_only_those_there_are() {
        let colours = Scheme::Light.colours(Colour::BLACK);
        for used in SHAPES.split("var(--").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            assert!(colours.iter().any(|(name, _)| *name == used), "--{used} is not defined");
        }
        for (name, _) in colours {
            assert!(SHAPES.contains(&format!("var(--{name})")), "--{name} is not used");
        }
        assert!(!SHAPES.contains('#') && !SHAPES.contains("rgb") && !SHAPES.contains("hsl"));
    }

    #[test]
    fn the_sheet_cannot_end_early_and_reaches_for_nothing() {
        let style = Style::new(&brand("#2f5bd0"), None);
        assert!(!style.text().contains("</") && !style.text().contains("url("));
        assert!(!style.text().contains("@import"));
        assert!(style.source().starts_with("'sha256-") && style.source().ends_with("='"));
    }
}
