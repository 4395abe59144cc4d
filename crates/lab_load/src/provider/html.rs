//! HTML forms: extracts the forms of a page, as a browser without scripts would submit them.
//!
//! This is a tolerant scan of tags, attributes and character references, not a complete parser. Its
//! time is linear in the page size, and the collected data is bounded for any input.
//!
//! Owns: the extraction. Does not own: the values that are filled in.

use std::borrow::Cow;

/// Largest number of forms that are read from a page.
const MAX_FORMS: usize = 32;
/// Largest number of fields that are kept of a form.
const MAX_FIELDS: usize = 256;
/// Largest number of attributes that are read from a tag.
const MAX_ATTRIBUTES: usize = 64;
/// Longest character reference, including `&` and `;`.
const MAX_REFERENCE_CHARS: usize = 12;

/// How a field is submitted with its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// Submitted unchanged: hidden fields and checked boxes.
    Fixed,
    /// Filled in by the user.
    Input,
    /// Submitted only if this button is clicked.
    Button,
}

impl FieldKind {
    /// Name of the kind in error messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Input => "typed",
            Self::Button => "button",
        }
    }
}

/// A named field of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// How the field is submitted.
    pub kind: FieldKind,
    /// Field name, with character references decoded.
    pub name: String,
    /// Field value, with character references decoded.
    pub value: String,
}

/// A form of a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form {
    /// Submission address, with character references decoded; `None` for the address of the page.
    pub action: Option<String>,
    /// `true` if the form is submitted with POST.
    pub post: bool,
    /// Fields of the form in order.
    pub fields: Vec<Field>,
}

impl Form {
    /// The field with this kind and name.
    pub fn field(&self, kind: FieldKind, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.kind == kind && field.name == name)
    }
}

/// Extracts the forms of a page.
pub fn forms(page: &str) -> Vec<Form> {
    let mut found: Vec<Form> = Vec::new();
    let mut open = false;
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            let Some(end) = comment.find("-->") else { break };
            rest = &comment[end + 3..];
            continue;
        }
        let Some((tag, after)) = Tag::read(rest) else { continue };
        let Some(after) = after else { break };
        rest = after;
        match (tag.closing, tag.name.as_str()) {
            (true, "form") => open = false,
            // HTML does not permit nested forms; an inner form tag is ignored.
            (false, "form") if !open => {
                if found.len() == MAX_FORMS {
                    break;
                }
                open = true;
                let post = tag.get("method").is_some_and(|method| method.eq_ignore_ascii_case("post"));
                let action = tag.get("action").filter(|action| !action.trim().is_empty());
                let action = action.map(|action| decode(action.trim()));
                found.push(Form { action, post, fields: Vec::new() });
            }
            (false, "input" | "button") if open => {
                if let Some(form) = found.last_mut().filter(|form| form.fields.len() < MAX_FIELDS) {
                    form.fields.extend(tag.field());
                }
            }
            // The content of these elements is text until their end tag.
            (false, "script" | "style" | "textarea" | "title") => {
                let Some(after) = end_of_text(rest, &tag.name) else { break };
                rest = after;
            }
            _ => {}
        }
    }
    found
}

/// Approximate visible text of a page, without tags. Text that is not HTML is returned unchanged.
pub(crate) fn visible_text(page: &str) -> Cow<'_, str> {
    if !page.trim_start().starts_with('<') {
        return page.into();
    }
    let mut text = String::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        text.push_str(&rest[..start]);
        text.push(' ');
        let Some((tag, after)) = Tag::read(&rest[start + 1..]) else {
            rest = &rest[start + 1..];
            continue;
        };
        let text_only = !tag.closing && matches!(tag.name.as_str(), "script" | "style");
        let after =
            after.and_then(|after| if text_only { end_of_text(after, &tag.name) } else { Some(after) });
        let Some(after) = after else { return text.into() };
        rest = after;
    }
    text.push_str(rest);
    text.into()
}

/// The rest of the page from the end tag of a text element.
fn end_of_text<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = text;
    loop {
        let at = rest.find("</")?;
        rest = &rest[at..];
        let named = rest.as_bytes().get(2..2 + name.len())?;
        if named.eq_ignore_ascii_case(name.as_bytes()) {
            return Some(rest);
        }
        rest = &rest[2..];
    }
}

/// A tag with its attributes as written.
struct Tag<'a> {
    closing: bool,
    name: String,
    attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Tag<'a> {
    /// Parses a tag after its `<`. Returns `None` if there is no tag. The second value is the rest
    /// of the page; it is `None` if the page ends inside the tag.
    fn read(text: &'a str) -> Option<(Self, Option<&'a str>)> {
        let closing = text.starts_with('/');
        let text = &text[usize::from(closing)..];
        if !text.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return None;
        }
        let end = text.find(|c: char| c.is_ascii_whitespace() || c == '/' || c == '>').unwrap_or(text.len());
        let mut tag = Self { closing, name: text[..end].to_ascii_lowercase(), attributes: Vec::new() };
        let mut rest = &text[end..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if rest.is_empty() {
                return Some((tag, None));
            }
            if let Some(after) = rest.strip_prefix('>') {
                return Some((tag, Some(after)));
            }
            // A stray `=` begins a name, as in a browser. Therefore each iteration consumes at
            // least one character.
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let stops = |c: char| c.is_ascii_whitespace() || matches!(c, '=' | '/' | '>');
            let end = rest[first..].find(stops).map_or(rest.len(), |at| first + at);
            let name = &rest[..end];
            rest = rest[end..].trim_start_matches(|c: char| c.is_ascii_whitespace());
            let mut value = "";
            if let Some(after) = rest.strip_prefix('=') {
                let after = after.trim_start_matches(|c: char| c.is_ascii_whitespace());
                let quote = after.chars().next().filter(|first| matches!(first, '"' | '\''));
                match quote {
                    Some(quote) => {
                        let Some(end) = after[1..].find(quote) else { return Some((tag, None)) };
                        value = &after[1..=end];
                        rest = &after[end + 2..];
                    }
                    None => {
                        let stops = |c: char| c.is_ascii_whitespace() || c == '>';
                        let end = after.find(stops).unwrap_or(after.len());
                        value = &after[..end];
                        rest = &after[end..];
                    }
                }
            }
            if tag.attributes.len() < MAX_ATTRIBUTES {
                tag.attributes.push((name, value));
            }
        }
    }

    /// Value of the first attribute with this name, as written.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.attributes.iter().find(|(had, _)| had.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }

    fn field(&self) -> Option<Field> {
        let name = decode(self.get("name")?);
        if name.is_empty() || self.get("disabled").is_some() {
            return None;
        }
        let preset = if self.name == "button" { "submit" } else { "text" };
        let written = self.get("type").unwrap_or(preset).to_ascii_lowercase();
        let mut value = decode(self.get("value").unwrap_or_default());
        let kind = match written.as_str() {
            "hidden" => FieldKind::Fixed,
            "checkbox" | "radio" => {
                self.get("checked")?;
                if self.get("value").is_none() {
                    value.push_str("on");
                }
                FieldKind::Fixed
            }
            "submit" => FieldKind::Button,
            "button" | "reset" | "image" | "file" => return None,
            _ => FieldKind::Input,
        };
        Some(Field { kind, name, value })
    }
}

/// Decodes character references in an attribute value. Text that is not a reference stays
/// unchanged.
fn decode(text: &str) -> String {
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        decoded.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(MAX_REFERENCE_CHARS).position(|byte| byte == b';');
        match end.and_then(|end| Some((reference(&rest[1..end])?, end))) {
            Some((character, end)) => {
                decoded.push(character);
                rest = &rest[end + 1..];
            }
            None => {
                decoded.push('&');
                rest = &rest[1..];
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

fn reference(name: &str) -> Option<char> {
    let Some(number) = name.strip_prefix('#') else {
        return Some(match name {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            "nbsp" => '\u{a0}',
            _ => return None,
        });
    };
    let (digits, radix) = match number.strip_prefix(['x', 'X']) {
        Some(digits) => (digits, 16),
        None => (number, 10),
    };
    let plain = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    char::from_u32(u32::from_str_radix(digits, radix).ok().filter(|_| plain)?)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn one(page: &str) -> Form {
        let mut found = forms(page);
        assert_eq!(found.len(), 1, "{page}");
        found.remove(0)
    }

    fn fixed(form: &Form) -> Vec<(&str, &str)> {
        let fixed = form.fields.iter().filter(|field| field.kind == FieldKind::Fixed);
        fixed.map(|field| (field.name.as_str(), field.value.as_str())).collect()
    }

    #[test]
    fn a_login_form_is_read() {
        let form = one(
            r#"<!doctype html><body><FORM class=x id="f" ACTION="/a?b=c&amp;d=&#101;&#x66;" method='POST'>
            <input type="hidden" name="csrf" value="a&quot;b&lt;&gt;&apos;">
            <input type=hidden name=plain value=x/y>
            <input name="username"><input type=password name="password" required/>
            <input type="checkbox" name="stay"><input type="checkbox" name="box" checked>
            <button type="button" name="no">x</button><button name="decision" value="allow">Allow</button>
            </form><input type=hidden name=outside value=x>"#,
        );
        assert_eq!(form.action.as_deref(), Some("/a?b=c&d=ef"));
        assert!(form.post);
        assert_eq!(fixed(&form), [("csrf", "a\"b<>'"), ("plain", "x/y"), ("box", "on")]);
        assert!(
            form.field(FieldKind::Input, "username").is_some()
                && form.field(FieldKind::Input, "password").is_some()
        );
        assert_eq!(
            form.field(FieldKind::Button, "decision").map(|field| field.value.as_str()),
            Some("allow")
        );
        assert!(form.field(FieldKind::Button, "no").is_none());
    }

    #[test]
    fn what_is_text_or_comment_is_no_form() {
        let page = "<!-- <form action=no> --><script>'<form action=no>'</script><style><form></style>\
            <title><form></title><textarea><form></TEXTAREA><form action=yes></form>";
        assert_eq!(one(page).action.as_deref(), Some("yes"));
        assert!(forms("<form action='a").is_empty());
        assert!(forms("a < b <1 <> </form> <").is_empty());
    }

    #[test]
    fn a_form_in_a_form_belongs_to_the_outer_one() {
        let form = one("<form action=a><form action=b><input type=hidden name=x value=1></form>");
        assert_eq!(form.action.as_deref(), Some("a"));
        assert!(!form.post);
        assert_eq!(fixed(&form), [("x", "1")]);
    }

    #[test]
    fn the_first_of_two_attributes_counts_and_names_may_be_odd() {
        let form = one(
            "<form action=a action=b =c><input type=hidden name=\"\" value=x><input type=hidden value=x>",
        );
        assert_eq!(form.action.as_deref(), Some("a"));
        assert!(form.fields.is_empty());
    }

    #[test]
    fn an_excerpt_has_no_tags() {
        let page = "<html><style>x{}</style><body class='<'><h1>Sorry</h1>it broke<script>1<2</script>.";
        assert_eq!(visible_text(page).split_whitespace().collect::<Vec<_>>(), ["Sorry", "it", "broke", "."]);
        assert_eq!(visible_text("a < b"), "a < b");
        assert_eq!(visible_text("<form").trim(), "");
    }

    #[test]
    fn what_is_no_reference_stays() {
        assert_eq!(
            decode("a&b&copy=1&amp;&#0x41;&#;&#x;&#xD800;&#+65;&"),
            "a&b&copy=1&&#0x41;&#;&#x;&#xD800;&#+65;&"
        );
        assert_eq!(decode("&#65;&#x1F600;&é;"), "A\u{1F600}&é;");
    }

    #[test]
    fn hostile_pages_are_bounded() {
        let started = Instant::now();
        let size = 1 << 18;
        for unit in [
            "<",
            "<form>",
            "<form a='",
            "<!--",
            "<script>",
            "</",
            "<a =",
            "<a b=c ",
            "<script></",
            "&",
            "<é",
            "='\"",
        ] {
            let page = unit.repeat(size / unit.len());
            assert!(forms(&page).len() <= MAX_FORMS, "{unit}");
        }
        let many = format!("<form>{}", "<input type=hidden name=x>".repeat(10_000));
        assert_eq!(one(&many).fields.len(), MAX_FIELDS);
        assert_eq!(forms(&"<form></form>".repeat(1000)).len(), MAX_FORMS);
        let long = format!("<form action=\"{}\">", "&".repeat(size));
        assert_eq!(one(&long).action.map(|action| action.len()), Some(size));
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    }
}
