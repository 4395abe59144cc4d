//! Shell: the document around the content of a page, and the page's response headers.
//!
//! Owns: the template of the document, every header field of a page ([`Shell::page`]), and its
//! content security policy ([`PolicySources`]). Does not own: status and content of a page, and its
//! form as a response of an HTTP library.

use std::borrow::Cow;
use std::fmt;

use askama::Template;

use crate::address::FormTarget;
use crate::brand::Brand;
use crate::language::{Language, Languages};
use crate::style::Style;
use crate::templates::{ErrorValues, PageValues, Templates};

/// Brand, style sheet and languages of all pages.
#[derive(Debug, Clone)]
pub struct Shell {
    brand: Brand,
    style: Style,
    languages: Languages,
    templates: Option<Templates>,
}

/// The content of a page.
pub struct Content<'a> {
    /// Status of the response.
    pub status: u16,
    /// Title of the document; it is escaped here.
    pub title: &'a dyn fmt::Display,
    /// Whether the page is wide, for tables.
    pub wide: bool,
    /// What is inside `<main>`: HTML, with every foreign text escaped.
    pub main: String,
    /// What the page may load, and where its forms may lead.
    pub sources: PolicySources<'a>,
}

/// The parts of a page's content security policy (CSP Level 3) that are its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicySources<'a> {
    /// Source expression of the page's script, if there is one.
    pub script: Option<&'a str>,
    /// Targets of the page's forms besides its own origin; `None`: it has no forms.
    pub form_targets: Option<&'a [FormTarget]>,
    /// Sources of `frame-ancestors`: who may show the page in a frame; `None`: nobody.
    pub frame_ancestors: Option<&'a str>,
}

/// A page as a response, for any HTTP library.
#[derive(Debug, Clone)]
pub struct ShellPage {
    /// Its status.
    pub status: u16,
    /// Its header fields, names in lower case.
    pub fields: Vec<(&'static str, Cow<'static, str>)>,
    /// The document.
    pub body: String,
}

#[derive(Template)]
#[template(path = "base.html")]
struct Document<'a> {
    lang: &'a str,
    direction: &'static str,
    title: &'a dyn fmt::Display,
    brand: &'a Brand,
    style: &'a str,
    wide: bool,
    main: &'a str,
}

impl Default for Shell {
    /// The brand `Postern`, in English and German.
    fn default() -> Self {
        Self::new(Brand::default(), Languages::default())
    }
}

impl Shell {
    /// Creates the shell for a brand and languages.
    pub fn new(brand: Brand, languages: Languages) -> Self {
        let style = Style::new(&brand, None);
        Self { brand, style, languages, templates: None }
    }

    /// The same with templates of the operator.
    #[must_use]
    pub fn with_templates(self, templates: Templates) -> Self {
        let style = Style::new(&self.brand, templates.style());
        Self { style, templates: Some(templates), ..self }
    }

    /// The content of an error page by the operator's template; `None`: there is none.
    pub fn error_content(&self, values: &ErrorValues<'_>) -> Option<String> {
        self.templates.as_ref()?.error(values)
    }

    /// The brand of the pages.
    pub fn brand(&self) -> &Brand {
        &self.brand
    }

    /// The supported languages.
    pub fn languages(&self) -> &Languages {
        &self.languages
    }

    /// The page around a content, with all header fields.
    pub fn page(&self, language: &Language, content: &Content<'_>) -> ShellPage {
        let own = self.templates.as_ref().and_then(|templates| {
            templates.page(&PageValues {
                title: &content.title.to_string(),
                main: &content.main,
                style: self.style.text(),
                language: language.tag(),
                direction: language.direction().as_str(),
                brand_name: self.brand.name(),
                brand_logo: self.brand.logo(),
                wide: content.wide,
            })
        });
        let document = Document {
            lang: language.tag(),
            direction: language.direction().as_str(),
            title: content.title,
            brand: &self.brand,
            style: self.style.text(),
            wide: content.wide,
            main: &content.main,
        };
        // Writing to a string does not fail; if it does, the response is empty with status 500.
        let (status, body) = match own.map_or_else(|| document.render(), Ok) {
            Ok(body) => (content.status, body),
            Err(_) => (500, String::new()),
        };
        let framing = match content.sources.frame_ancestors {
            None => Some("DENY"),
            Some("'self'") => Some("SAMEORIGIN"),
            // The older field knows no other origins, and browsers prefer the policy.
            Some(_) => None,
        };
        let policy = self.policy(&content.sources);
        let mut fields: Vec<(&'static str, Cow<'static, str>)> = vec![
            ("content-type", "text/html; charset=utf-8".into()),
            ("cache-control", "no-store".into()),
            ("content-language", language.tag().to_owned().into()),
            ("content-security-policy", policy.into()),
            ("x-content-type-options", "nosniff".into()),
            ("referrer-policy", "no-referrer".into()),
            ("cross-origin-opener-policy", "same-origin".into()),
        ];
        fields.extend(framing.map(|framing| ("x-frame-options", framing.into())));
        ShellPage { status, fields, body }
    }

    fn policy(&self, sources: &PolicySources<'_>) -> String {
        let mut policy = format!(
            "default-src 'none'; style-src {}; img-src 'self' data:; frame-ancestors {}; base-uri 'none'; ",
            self.style.source(),
            sources.frame_ancestors.unwrap_or("'none'"),
        );
        if let Some(script) = sources.script {
            policy.push_str("script-src ");
            policy.push_str(script);
            policy.push_str("; ");
        }
        match sources.form_targets {
            None => policy.push_str("form-action 'none'"),
            Some(targets) => {
                policy.push_str("form-action 'self'");
                for target in targets {
                    policy.push(' ');
                    policy.push_str(target.as_str());
                }
            }
        }
        policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, sources: PolicySources<'_>) -> ShellPage {
        let shell = Shell::default();
        let content = Content { status: 404, title: &title, wide: false, main: "<h1>x</h1>".into(), sources };
        shell.page(shell.languages().choose(Some("de"), None), &content)
    }

    fn field<'p>(page: &'p ShellPage, name: &str) -> Option<&'p str> {
        page.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    #[test]
    fn a_page_has_its_language_and_an_escaped_title() {
        let page = page("<b>", PolicySources::default());
        assert_eq!(page.status, 404);
        assert!(page.body.starts_with("<!doctype html>\n<html lang=\"de\" dir=\"ltr\">"), "{}", page.body);
        assert!(page.body.contains("<title>&#60;b&#62; · Postern</title>"), "{}", page.body);
        assert!(page.body.contains("<main>\n<h1>x</h1>\n</main>"), "{}", page.body);
        assert_eq!(field(&page, "content-language"), Some("de"));
    }

    #[test]
    fn templates_of_the_operator_replace_the_built_in_parts() {
        let page =
            "<title>{{ title }}</title>{{ style }}<body lang={{ language }}>{{ main }}{{ brand_name }}";
        let files = vec![("page.html", page.to_owned()), ("style.css", "h1{color:red}".to_owned())];
        let shell = Shell::default().with_templates(Templates::parse(files).unwrap());
        let main = "<h1>x</h1>".to_owned();
        let sources = PolicySources::default();
        let content = Content { status: 404, title: &"<b>", wide: false, main, sources };
        let page = shell.page(shell.languages().choose(Some("de"), None), &content);
        assert!(page.body.starts_with("<title>&#60;b&#62;</title><style>:root{"), "{}", page.body);
        assert!(
            page.body.ends_with("\nh1{color:red}</style><body lang=de><h1>x</h1>Postern"),
            "{}",
            page.body
        );
        let sheet = page.body.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        let source = Style::new(&Brand::default(), Some("h1{color:red}"));
        assert_eq!(sheet, source.text());
        assert!(field(&page, "content-security-policy").unwrap().contains(source.source()));
    }

    #[test]
    fn nothing_but_the_style_is_loaded_and_nobody_frames_a_page() {
        let plain = page("x", PolicySources::default());
        let policy = field(&plain, "content-security-policy").unwrap();
        for directive in [
            "default-src 'none'; style-src 'sha256-",
            "frame-ancestors 'none'; ",
            "base-uri 'none'; ",
            "form-action 'none'",
        ] {
            assert!(policy.contains(directive), "{policy}");
        }
        assert!(!policy.contains("script-src"), "{policy}");
        assert_eq!(field(&plain, "x-frame-options"), Some("DENY"));
        assert_eq!(field(&plain, "cache-control"), Some("no-store"));
    }

    #[test]
    fn a_page_may_be_framed_by_those_it_names() {
        let same = page("x", PolicySources { frame_ancestors: Some("'self'"), ..PolicySources::default() });
        assert_eq!(field(&same, "x-frame-options"), Some("SAMEORIGIN"));
        let other = PolicySources { frame_ancestors: Some("https://a.example"), ..PolicySources::default() };
        let other = page("x", other);
        assert_eq!(field(&other, "x-frame-options"), None);
        assert!(
            field(&other, "content-security-policy").unwrap().contains("frame-ancestors https://a.example;")
        );
    }
}
