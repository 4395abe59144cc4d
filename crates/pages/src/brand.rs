//! Brand of the pages: name, logo, colour.
//!
//! Owns: [`BrandConfig`] and its check into a [`Brand`]. Does not own: the colours derived from the
//! brand's colour (`style`).

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{colour::Colour, text::is_unprintable};

/// Longest name in characters.
pub const MAX_NAME: usize = 60;
/// Longest inline logo in bytes of its text: every page contains it.
pub const MAX_INLINE_LOGO: usize = 48 * 1024;
/// Supported media types of inline images.
const IMAGES: [&str; 4] = ["image/svg+xml", "image/png", "image/webp", "image/jpeg"];

/// The brand as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrandConfig {
    /// Name of the service for users: 1 to [`MAX_NAME`] characters.
    pub name: String,
    /// A path on the host of the page (`/assets/logo.svg`), or the image itself
    /// (`data:image/svg+xml;base64,…`, also png, webp, jpeg). `None`: the first letter of the name.
    pub logo: Option<String>,
    /// Colour of the main button, `#rrggbb`. Any colour works: its text and links are made
    /// readable.
    pub colour: String,
}

/// Reason why a brand is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrandFault {
    /// The name is empty, too long, or has characters that cannot be shown.
    #[error("brand name is empty, longer than {MAX_NAME} characters or has control characters")]
    Name,
    /// The colour is not valid; holds its text.
    #[error("brand colour {0:?} is not a colour: write #rrggbb, for example #2f5bd0")]
    Colour(Box<str>),
    /// The logo is neither a path nor an inline image.
    #[error(
        "brand logo is neither a path on this host (/assets/logo.svg) nor data:image/…;base64,… of svg+xml, png, webp or jpeg"
    )]
    Logo,
    /// The inline image is not valid base64.
    #[error("brand logo is not valid base64")]
    LogoBase64,
    /// The inline image is longer than [`MAX_INLINE_LOGO`].
    #[error("brand logo is over {MAX_INLINE_LOGO} bytes: serve it from a path instead")]
    LogoTooLarge,
}

/// A checked brand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brand {
    name: Box<str>,
    logo: Option<Box<str>>,
    colour: Colour,
}

impl Default for BrandConfig {
    fn default() -> Self {
        Self { name: "Postern".into(), logo: None, colour: "#2f5bd0".into() }
    }
}

impl Default for Brand {
    fn default() -> Self {
        Self { name: "Postern".into(), logo: None, colour: Colour::rgb(0x2f, 0x5b, 0xd0) }
    }
}

impl Brand {
    /// Checks a brand and reports all faults.
    ///
    /// # Errors
    /// Every [`BrandFault`] that was found.
    pub fn check(config: &BrandConfig) -> Result<Self, Vec<BrandFault>> {
        let mut faults = Vec::new();
        let name = config.name.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(is_unprintable) {
            faults.push(BrandFault::Name);
        }
        if let Some(fault) = config.logo.as_deref().and_then(|logo| check_logo(logo).err()) {
            faults.push(fault);
        }
        match Colour::parse(&config.colour) {
            Some(colour) if faults.is_empty() => {
                Ok(Self { name: name.into(), logo: config.logo.as_deref().map(Into::into), colour })
            }
            Some(_) => Err(faults),
            None => {
                faults.push(BrandFault::Colour(config.colour.chars().take(40).collect()));
                Err(faults)
            }
        }
    }

    /// Name of the service.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Address of the logo.
    pub fn logo(&self) -> Option<&str> {
        self.logo.as_deref()
    }

    /// Colour of the main button.
    pub fn colour(&self) -> Colour {
        self.colour
    }

    /// First letter of the name, used if there is no logo.
    pub(crate) fn initial(&self) -> String {
        self.name.chars().take(1).flat_map(char::to_uppercase).collect()
    }
}

fn check_logo(logo: &str) -> Result<(), BrandFault> {
    let Some(inline) = logo.strip_prefix("data:") else {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
        // `//host/x` would be another host, and dot segments change the path.
        let sound = logo.len() <= 256
            && logo.bytes().all(plain)
            && logo.strip_prefix('/').is_some_and(|p| p.split('/').all(|s| !matches!(s, "" | "." | "..")));
        return if sound { Ok(()) } else { Err(BrandFault::Logo) };
    };
    if logo.len() > MAX_INLINE_LOGO {
        return Err(BrandFault::LogoTooLarge);
    }
    match inline.split_once(";base64,") {
        Some((kind, data)) if IMAGES.contains(&kind) => {
            STANDARD.decode(data).map(|_| ()).map_err(|_| BrandFault::LogoBase64)
        }
        _ => Err(BrandFault::Logo),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, logo: Option<&str>, colour: &str) -> Result<Brand, Vec<BrandFault>> {
        Brand::check(&BrandConfig { name: name.into(), logo: logo.map(Into::into), colour: colour.into() })
    }

    #[test]
    fn the_default_is_one_brand() {
        assert_eq!(Brand::check(&BrandConfig::default()), Ok(Brand::default()));
    }

    #[test]
    fn a_sound_brand_passes() {
        for logo in [None, Some("/assets/logo.svg"), Some("data:image/png;base64,AAAA")] {
            assert_eq!(check("Ärzteverein", logo, "#2f5bd0").unwrap().initial(), "Ä");
        }
    }

    #[test]
    fn all_faults_are_told_at_once_and_the_colour_is_named() {
        let faults = check("", Some("http://evil.example/x.png"), "reddish").unwrap_err();
        assert_eq!(faults, [BrandFault::Name, BrandFault::Logo, BrandFault::Colour("reddish".into())]);
        assert_eq!(
            faults[2].to_string(),
            r#"brand colour "reddish" is not a colour: write #rrggbb, for example #2f5bd0"#
        );
    }

    #[test]
    fn a_logo_comes_from_here_or_from_itself() {
        for bad in
            ["//evil.example/x", "/a/../b", "/a b", "/a\"", "javascript:x", "data:text/html;base64,AA", ""]
        {
            assert_eq!(check("x", Some(bad), "#000").unwrap_err(), [BrandFault::Logo], "{bad}");
        }
        let torn = check("x", Some("data:image/png;base64,A\"A"), "#000").unwrap_err();
        assert_eq!(torn, [BrandFault::LogoBase64]);
        let huge = format!("data:image/png;base64,{}", "A".repeat(MAX_INLINE_LOGO));
        assert_eq!(check("x", Some(&huge), "#000").unwrap_err(), [BrandFault::LogoTooLarge]);
    }
}
