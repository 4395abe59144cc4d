//! Page of the reflecting upstream, for browsers.
//!
//! The page sends its own URL again and again, counts what passes and what is refused, and shows
//! the request as it arrived here.

use std::fmt::Write as _;

use pages::text::escaped;

const PAGE: &str = include_str!("page.html");
/// Where the hints go.
const HINTS: &str = "<!-- hints -->\n";

/// Something to try, shown on the page.
#[derive(Debug, Clone)]
pub struct Hint {
    /// What happens.
    pub text: String,
    /// How: the URL of a page, or a command for a terminal.
    pub way: Way,
}

/// How a hint is tried.
#[derive(Debug, Clone)]
pub enum Way {
    /// An absolute URL, or the path of a page behind the same gateway.
    Page(String),
    /// A command for a shell.
    Command(String),
}

/// The page with these hints.
pub(super) fn page(hints: &[Hint]) -> String {
    if hints.is_empty() {
        return PAGE.replace(HINTS, "");
    }
    let mut list = String::from("<section aria-labelledby=\"try\">\n<h2 id=\"try\">Try</h2>\n<ul>\n");
    for Hint { text, way } in hints {
        let text = escaped(text);
        // Writing to a string cannot fail.
        let _ = match way {
            Way::Page(url) => writeln!(list, "<li><a href=\"{}\">{text}</a></li>", escaped(url)),
            Way::Command(command) => writeln!(list, "<li>{text} <code>{}</code></li>", escaped(command)),
        };
    }
    list.push_str("</ul>\n</section>\n");
    PAGE.replace(HINTS, &list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_text() {
        let plain = page(&[]);
        assert!(!plain.contains("id=\"try\"") && !plain.contains(HINTS));
        let hints = [
            Hint { text: "a <b>".into(), way: Way::Command("postern admin --config 'a & b'".into()) },
            Hint { text: "elsewhere".into(), way: Way::Page("/reports?a=1&b=\"2\"".into()) },
        ];
        let full = page(&hints);
        assert!(
            full.contains("<li>a &#60;b&#62; <code>postern admin --config &#39;a &#38; b&#39;</code></li>"),
            "{full}"
        );
        assert!(full.contains("<li><a href=\"/reports?a=1&#38;b=&#34;2&#34;\">elsewhere</a></li>"), "{full}");
    }
}
