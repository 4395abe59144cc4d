//! Templates of the operator: files that replace built-in parts of the pages.
//!
//! Owns: which files there are ([`FILES`]) and which placeholders each may use, their check when
//! the configuration is loaded, and rendering. Does not own: reading the files, the values.
//!
//! Every value is escaped, whatever a template says; only the content of a page and its style
//! sheet, which this program renders, are HTML. A template has no filters, no functions and no
//! access to files. Each is rendered once when it is loaded, with and without the optional values,
//! so that it cannot fail later.

use std::fmt;

use minijinja::{AutoEscape, Environment, ErrorKind, UndefinedBehavior, Value};

use crate::text::{Shown, escaped};

/// The document around every page.
const PAGE: &str = "page.html";
/// The content of error pages.
const ERROR: &str = "error.html";
/// Style sheet that is added to the built-in one.
const STYLE: &str = "style.css";

/// The files of a folder of templates. A missing one means the built-in part.
pub const FILES: [&str; 3] = [PAGE, ERROR, STYLE];

/// Placeholders of [`PAGE`].
const PAGE_PLACEHOLDERS: [&str; 8] =
    ["title", "main", "style", "language", "direction", "brand_name", "brand_logo", "wide"];
/// Placeholders of [`ERROR`].
const ERROR_PLACEHOLDERS: [&str; 12] = [
    "title",
    "text",
    "detail",
    "note",
    "status",
    "code",
    "request_id",
    "user",
    "sign_out",
    "other_account",
    "retry",
    "language",
];

/// Fault of a file in the folder of templates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// The template cannot be parsed or rendered.
    #[error("{file} is not a valid template in line {line}: {reason}")]
    Template {
        /// Name of the file.
        file: &'static str,
        /// Line in the file, from 1.
        line: usize,
        /// What is wrong.
        reason: Box<str>,
    },
    /// The template uses a placeholder that does not exist.
    #[error("{file} has an unknown placeholder {name} in line {line}: use {known}")]
    Placeholder {
        /// Name of the file.
        file: &'static str,
        /// Line in the file, from 1.
        line: usize,
        /// The placeholder.
        name: Box<str>,
        /// The placeholders that exist.
        known: Box<str>,
    },
    /// The template lacks a placeholder without which the page would be empty or unstyled.
    #[error("{file} lacks the placeholder {name}: write {{{{ {name} }}}} where it belongs")]
    Missing {
        /// Name of the file.
        file: &'static str,
        /// The placeholder.
        name: &'static str,
    },
    /// The style sheet would end its element.
    #[error("{STYLE} contains </, which would end the style sheet: remove it")]
    Style,
}

/// Checked templates of an operator.
#[derive(Clone)]
pub struct Templates {
    environment: Environment<'static>,
    page: bool,
    error: bool,
    style: Option<Box<str>>,
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Templates")
            .field("page", &self.page)
            .field("error", &self.error)
            .field("style", &self.style)
            .finish_non_exhaustive()
    }
}

/// Values of the document around a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageValues<'a> {
    pub(crate) title: &'a str,
    /// HTML.
    pub(crate) main: &'a str,
    /// The whole style sheet.
    pub(crate) style: &'a str,
    pub(crate) language: &'a str,
    pub(crate) direction: &'a str,
    pub(crate) brand_name: &'a str,
    pub(crate) brand_logo: Option<&'a str>,
    pub(crate) wide: bool,
}

/// Values of the content of an error page. None of them is HTML.
#[derive(Debug, Clone, Copy)]
pub struct ErrorValues<'a> {
    /// Heading, in the language of the page.
    pub title: &'a str,
    /// What happened and what to do, in the language of the page.
    pub text: &'a str,
    /// Text of the route for those whom it is forbidden.
    pub detail: Option<&'a str>,
    /// Why this user may be refused, in the language of the page.
    pub note: Option<&'a str>,
    /// Status of the response.
    pub status: u16,
    /// Stable code of the error.
    pub code: &'a str,
    /// Id of the request in the log.
    pub request_id: &'a str,
    /// The user of the session, where another one may have access.
    pub user: Option<&'a str>,
    /// Address that ends that session.
    pub sign_out: Option<&'a str>,
    /// Address that starts a login with another account.
    pub other_account: Option<&'a str>,
    /// Whether the same request may succeed a little later.
    pub retry: bool,
    /// Tag of the page's language.
    pub language: &'a str,
}

impl Templates {
    /// Parses and checks files: names of [`FILES`] with their texts.
    ///
    /// # Errors
    /// Every [`TemplateFault`] that was found.
    pub fn parse(files: Vec<(&'static str, String)>) -> Result<Self, Vec<TemplateFault>> {
        let mut faults = Vec::new();
        let mut templates = Self { environment: environment(), page: false, error: false, style: None };
        for (file, text) in files {
            match file {
                STYLE if text.contains("</") => faults.push(TemplateFault::Style),
                STYLE => templates.style = Some(text.trim_end().into()),
                PAGE => templates.page = templates.add(PAGE, &text, &PAGE_PLACEHOLDERS, &mut faults),
                _ => templates.error = templates.add(ERROR, &text, &ERROR_PLACEHOLDERS, &mut faults),
            }
        }
        if faults.is_empty() { Ok(templates) } else { Err(faults) }
    }

    /// Adds a template and tries it out. Returns whether it can be used.
    fn add(
        &mut self,
        file: &'static str,
        text: &str,
        known: &[&str],
        faults: &mut Vec<TemplateFault>,
    ) -> bool {
        let before = faults.len();
        let line_of = |name: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let uses = |line: &str| line.split(|c: char| !is_word(c)).any(|word| word == name);
            text.lines().position(uses).map_or(1, |at| at + 1)
        };
        if let Err(error) = self.environment.add_template_owned(file, text.to_owned()) {
            faults.push(fault(file, &error));
            return false;
        }
        let Ok(template) = self.environment.get_template(file) else { return false };
        let used = template.undeclared_variables(false);
        let unknown = used.iter().filter(|name| !known.contains(&name.as_str()));
        let mut unknown: Vec<_> = unknown.map(|name| (line_of(name), name)).collect();
        unknown.sort_unstable();
        for (line, name) in unknown {
            let (name, known) = (name.as_str().into(), known.join(", ").into());
            faults.push(TemplateFault::Placeholder { file, line, name, known });
        }
        let needed: &[&'static str] = if file == PAGE { &["title", "main", "style"] } else { &["title"] };
        let missing = needed.iter().filter(|name| !used.contains(**name));
        faults.extend(missing.map(|name| TemplateFault::Missing { file, name }));
        if faults.len() == before {
            let tried = if file == PAGE { self.try_page() } else { self.try_error() };
            faults.extend(tried.err().map(|error| fault(file, &error)));
        }
        faults.len() == before
    }

    fn try_page(&self) -> Result<(), minijinja::Error> {
        for (brand_logo, wide) in [(None, false), (Some("/logo.svg"), true)] {
            self.render_page(&PageValues {
                title: "x",
                main: "x",
                style: "x",
                language: "en",
                direction: "ltr",
                brand_name: "x",
                brand_logo,
                wide,
            })?;
        }
        Ok(())
    }

    fn try_error(&self) -> Result<(), minijinja::Error> {
        for (given, retry) in [(None, false), (Some("x"), false), (None, true)] {
            self.render_error(&ErrorValues {
                title: "x",
                text: "x",
                detail: given,
                note: given,
                status: 403,
                code: "x",
                request_id: "x",
                user: given,
                sign_out: given,
                other_account: given,
                retry,
                language: "en",
            })?;
        }
        Ok(())
    }

    /// The operator's style sheet.
    pub(crate) fn style(&self) -> Option<&str> {
        self.style.as_deref()
    }

    /// The document around a page; `None`: the built-in one.
    pub(crate) fn page(&self, values: &PageValues<'_>) -> Option<String> {
        // Every template was tried out; if one fails nevertheless, the built-in part is good.
        if self.page { self.render_page(values).ok() } else { None }
    }

    /// The content of an error page; `None`: the built-in one.
    pub(crate) fn error(&self, values: &ErrorValues<'_>) -> Option<String> {
        if self.error { self.render_error(values).ok() } else { None }
    }

    fn render_page(&self, values: &PageValues<'_>) -> Result<String, minijinja::Error> {
        self.environment.get_template(PAGE)?.render(Value::from_pairs([
            ("title", Value::from(values.title)),
            ("main", Value::from_safe_string(values.main.to_owned())),
            ("style", Value::from_safe_string(format!("<style>{}</style>", values.style))),
            ("language", Value::from(values.language)),
            ("direction", Value::from(values.direction)),
            ("brand_name", Value::from(values.brand_name)),
            ("brand_logo", optional(values.brand_logo)),
            ("wide", Value::from(values.wide)),
        ]))
    }

    fn render_error(&self, values: &ErrorValues<'_>) -> Result<String, minijinja::Error> {
        let user = values.user.map(|user| Shown(user).to_string());
        self.environment.get_template(ERROR)?.render(Value::from_pairs([
            ("title", Value::from(values.title)),
            ("text", Value::from(values.text)),
            ("detail", optional(values.detail)),
            ("note", optional(values.note)),
            ("status", Value::from(values.status)),
            ("code", Value::from(values.code)),
            ("request_id", Value::from(values.request_id)),
            ("user", optional(user.as_deref())),
            ("sign_out", optional(values.sign_out)),
            ("other_account", optional(values.other_account)),
            ("retry", Value::from(values.retry)),
            ("language", Value::from(values.language)),
        ]))
    }
}

/// Every placeholder has a value; a missing one is none, which is written as nothing.
fn optional(value: Option<&str>) -> Value {
    value.map_or_else(|| Value::from(()), Value::from)
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    // Escapes inside `{% autoescape false %}` too.
    environment.set_formatter(|out, _, value| {
        if value.is_none() {
            return Ok(());
        }
        if value.is_undefined() {
            return Err(ErrorKind::UndefinedError.into());
        }
        let text = value.to_string();
        out.write_str(&if value.is_safe() { text } else { escaped(&text) }).map_err(Into::into)
    });
    environment
}

fn fault(file: &'static str, error: &minijinja::Error) -> TemplateFault {
    let kind = error.kind();
    let reason = match error.detail() {
        Some(detail) => format!("{kind}: {detail}"),
        None => kind.to_string(),
    };
    TemplateFault::Template { file, line: error.line().unwrap_or(1), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(file: &'static str, text: &str) -> Vec<String> {
        let parsed = Templates::parse(vec![(file, text.to_owned())]);
        parsed.unwrap_err().iter().map(ToString::to_string).collect()
    }

    fn error_page(text: &str, user: Option<&str>) -> String {
        let templates = Templates::parse(vec![(ERROR, text.to_owned())]).unwrap();
        let values = ErrorValues {
            title: "<Title>",
            text: "a & b",
            detail: None,
            note: None,
            status: 403,
            code: "forbidden",
            request_id: "0af7",
            user,
            sign_out: user,
            other_account: None,
            retry: false,
            language: "en",
        };
        templates.error(&values).unwrap()
    }

    #[test]
    fn values_are_filled_in_and_escaped() {
        let text = "<h1>{{ title }}</h1><p>{{ text }} {{status}}</p>{% if user %}<a href=\"{{ sign_out }}\">{{ user }}</a>{% endif %}{{ detail }}";
        assert_eq!(error_page(text, None), "<h1>&#60;Title&#62;</h1><p>a &#38; b 403</p>");
        let shown = error_page(text, Some("\"><script>\u{202e}"));
        assert!(
            shown.ends_with(
                "<a href=\"&#34;&#62;&#60;script&#62;\u{202e}\">&#34;&#62;&#60;script&#62;\u{fffd}</a>"
            ),
            "{shown}"
        );
    }

    #[test]
    fn escaping_cannot_be_switched_off() {
        for text in [
            "{{ title }}{% autoescape false %}{{ user }}{% endautoescape %}",
            "{{ title }}{% set copy %}{{ user }}{% endset %}{{ copy }}",
            "{{ title }}{{ user ~ user }}",
        ] {
            let shown = error_page(text, Some("<b>"));
            assert!(!shown.contains("<b>"), "{text}: {shown}");
        }
        for text in ["{{ title }}{{ user|safe }}", "{{ title|e }}"] {
            assert!(faults(ERROR, text)[0].contains("unknown filter"), "{text}");
        }
    }

    #[test]
    fn a_fault_names_file_line_and_placeholder() {
        assert_eq!(
            faults(ERROR, "<h1>{{ title }}</h1>\n<p>{{ titel }}</p>\n{{ password }}"),
            [
                "error.html has an unknown placeholder titel in line 2: use title, text, detail, note, status, code, request_id, user, sign_out, other_account, retry, language",
                "error.html has an unknown placeholder password in line 3: use title, text, detail, note, status, code, request_id, user, sign_out, other_account, retry, language",
            ]
        );
        let invalid = |text: &str| faults(ERROR, text).remove(0);
        let syntax = invalid("{{ title }}\n\n{% if user %}");
        assert!(
            syntax.starts_with("error.html is not a valid template in line 3: syntax error: "),
            "{syntax}"
        );
        let member = invalid("{{ title }}\n{{ title.x.y }}");
        assert!(member.starts_with("error.html is not a valid template in line 2: "), "{member}");
        assert_eq!(
            faults(PAGE, "{{ title }} {{ main }}"),
            ["page.html lacks the placeholder style: write {{ style }} where it belongs"]
        );
        assert_eq!(
            faults(STYLE, "a{}</style>"),
            ["style.css contains </, which would end the style sheet: remove it"]
        );
        for text in ["{{ title }}{% include 'x' %}", "{{ title }}{{ range(9) }}"] {
            assert_eq!(faults(ERROR, text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_missing_file_means_the_built_in_part() {
        let templates = Templates::parse(vec![(STYLE, "a{b:c}\n".to_owned())]).unwrap();
        assert_eq!(templates.style(), Some("a{b:c}"));
        assert!(!templates.page && !templates.error);
    }
}
