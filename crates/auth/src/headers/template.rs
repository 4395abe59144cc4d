//! Value template: the value of a header field, from text and what is known about the caller.
//!
//! `Bearer {id_token}` is text and one placeholder; `{{` and `}}` are braces. No placeholder reads a
//! field of the request, so no client can choose a value.

use std::net::IpAddr;

use super::HeaderSource;
use crate::identity::Identity;

/// A value from text and placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueTemplate {
    parts: Box<[Part]>,
}

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text as it is.
    Text(Box<str>),
    /// An attribute of the caller's identity.
    Identity(HeaderSource),
    /// The access token of the caller's session, or the bearer token of the request.
    AccessToken,
    /// The ID token of the caller's session.
    IdToken,
    /// The client's address.
    ClientAddress,
}

/// What placeholders stand for, in one request.
#[derive(Clone, Copy, Default)]
pub struct TemplateValues<'v> {
    /// The caller, if there is one.
    pub identity: Option<&'v Identity>,
    /// The access token, if it is known.
    pub access_token: Option<&'v str>,
    /// The ID token, if it is known.
    pub id_token: Option<&'v str>,
    /// The client's address, if it is known.
    pub client_address: Option<IpAddr>,
}

/// Why a text is not a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// A `{` without its `}`, or the reverse.
    #[error("a brace has no counterpart: write {{{{ or }}}} for a brace in the value")]
    Brace,
    /// Something that a field value cannot contain (RFC 9110 §5.5).
    #[error("the value has a character that a header cannot have: use printable ASCII")]
    Character,
    /// A placeholder that does not exist.
    #[error("there is no placeholder {{{0}}}")]
    Unknown(String),
}

impl ValueTemplate {
    /// Parses a template. `part` finds the part of a placeholder by its name.
    ///
    /// # Errors
    /// The first fault.
    pub fn parse(text: &str, part: impl Fn(&str) -> Option<Part>) -> Result<Self, TemplateFault> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = rest.find(['{', '}']) {
            plain.push_str(&rest[..at]);
            let (brace, after) = (&rest[at..=at], &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                plain.push_str(brace);
                rest = after;
                continue;
            }
            let (name, after) = after.split_once('}').filter(|_| brace == "{").ok_or(TemplateFault::Brace)?;
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain).into()));
            }
            parts.push(part(name).ok_or_else(|| TemplateFault::Unknown(name.into()))?);
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain.into()));
        }
        let template = Self { parts: parts.into() };
        let texts = template.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text),
            _ => None,
        });
        if texts.flat_map(|text| text.bytes()).all(is_value_byte) && text.trim_ascii() == text {
            Ok(template)
        } else {
            Err(TemplateFault::Character)
        }
    }

    /// The value, where it is the same for every request.
    pub fn constant(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The value for a request; `None`: something that a placeholder stands for is not known or
    /// cannot be written into a field.
    pub fn render(&self, values: &TemplateValues<'_>) -> Option<String> {
        let mut out = String::new();
        for part in &self.parts {
            let before = out.len();
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Identity(source) => {
                    out.push_str(str::from_utf8(&source.render(values.identity?)).ok()?);
                }
                Part::AccessToken => out.push_str(values.access_token?),
                Part::IdToken => out.push_str(values.id_token?),
                Part::ClientAddress => out.push_str(&values.client_address?.to_string()),
            }
            if out.len() == before {
                return None;
            }
        }
        out.bytes().all(is_value_byte).then_some(out)
    }
}

fn is_value_byte(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ValueTemplate, TemplateFault> {
        ValueTemplate::parse(text, |name| match name {
            "id_token" => Some(Part::IdToken),
            "access_token" => Some(Part::AccessToken),
            "client_address" => Some(Part::ClientAddress),
            _ => None,
        })
    }

    #[test]
    fn placeholders_are_replaced_and_doubled_braces_are_text() {
        let values = TemplateValues {
            id_token: Some("a.b.c"),
            client_address: Some("192.0.2.1".parse().unwrap()),
            ..TemplateValues::default()
        };
        for (text, value) in [
            ("Bearer {id_token}", Some("Bearer a.b.c")),
            ("{id_token}{client_address}", Some("a.b.c192.0.2.1")),
            ("{{{id_token}}}", Some("{a.b.c}")),
            ("{{}}", Some("{}")),
            ("plain text", Some("plain text")),
            ("Bearer {access_token}", None),
        ] {
            assert_eq!(parse(text).unwrap().render(&values).as_deref(), value, "{text}");
        }
        assert_eq!(parse("plain").unwrap().constant(), Some("plain"));
        assert_eq!(parse("{id_token}").unwrap().constant(), None);
    }

    #[test]
    fn faults_are_found() {
        for text in ["{id_token", "id_token}", "{", "}", "a}b", "{id_token}}"] {
            assert_eq!(parse(text), Err(TemplateFault::Brace), "{text}");
        }
        assert_eq!(parse("{header.x}"), Err(TemplateFault::Unknown("header.x".into())));
        for text in ["a\r\nb", "ä", " a", "a ", "\u{7f}"] {
            assert_eq!(parse(text), Err(TemplateFault::Character), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_in_a_field_is_no_value() {
        let values = TemplateValues { id_token: Some("a\r\nX-Evil: 1"), ..TemplateValues::default() };
        assert_eq!(parse("{id_token}").unwrap().render(&values), None);
    }
}
