//! Negotiation: whether a client that gets a response of the program itself wants a page or a
//! document for programs.
//!
//! Owns: that decision. Browsers state their purpose (`Sec-Fetch-Mode`, W3C Fetch Metadata);
//! without that field `Accept` decides (RFC 9110 §12.5.1). In doubt the answer is a document: a
//! program cannot read a page, but a person can read a document.

/// Most media ranges of one request that are considered.
const MAX_RANGES: usize = 32;
/// The weight of a range without a parameter `q`.
const FULL: u16 = 1000;

/// Whether the client wants a page. `fields` are those of the request, with names in any case.
pub fn wants_page<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> bool {
    let (mut mode, mut destination, mut accepted) = (None, None, Accepted::default());
    for (name, value) in fields {
        if name.eq_ignore_ascii_case("accept") {
            accepted.read(value);
        } else if name.eq_ignore_ascii_case("sec-fetch-mode") {
            mode = mode.or(Some(value));
        } else if name.eq_ignore_ascii_case("sec-fetch-dest") {
            destination = destination.or(Some(value));
        } else if name.eq_ignore_ascii_case("x-requested-with") {
            // Scripts send it, whatever they accept.
            return false;
        }
    }
    if let Some(mode) = mode {
        return mode.eq_ignore_ascii_case(b"navigate");
    }
    if let Some(destination) = destination {
        let places: [&[u8]; 6] = [b"document", b"iframe", b"frame", b"embed", b"object", b"fencedframe"];
        return places.iter().any(|place| destination.eq_ignore_ascii_case(place));
    }
    accepted.prefers_html()
}

/// The largest weights of media ranges in `Accept`.
#[derive(Default)]
struct Accepted {
    html: Option<u16>,
    json: Option<u16>,
    any: Option<u16>,
    ranges: usize,
}

impl Accepted {
    /// Reads one value of the field.
    fn read(&mut self, value: &[u8]) {
        let left = MAX_RANGES.saturating_sub(self.ranges);
        for range in value.split(|byte| *byte == b',').take(left) {
            self.ranges += 1;
            let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = parts.next().unwrap_or_default();
            let weight = parts.find_map(weight).unwrap_or(FULL);
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            let slot = if is("text/html") || is("application/xhtml+xml") {
                &mut self.html
            } else if is("application/json") || is("application/problem+json") {
                &mut self.json
            } else if is("*/*") || is("application/*") {
                &mut self.any
            } else {
                continue;
            };
            *slot = (*slot).max(Some(weight));
        }
    }

    /// Whether HTML is preferred over JSON. HTML must be named, because programs accept `*/*`. A
    /// range with a type is more specific than one without (RFC 9110 §12.5.1).
    fn prefers_html(&self) -> bool {
        self.html.is_some_and(|html| html > self.json.or(self.any).unwrap_or(0))
    }
}

/// Parses a parameter `q` to thousandths (RFC 9110 §12.4.2). A malformed weight counts as zero: the
/// client did not clearly ask for the range. `None`: another parameter.
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', value @ ..] = parameter else { return None };
    let digits = |digits: &[u8]| digits.len() <= 3 && digits.iter().all(u8::is_ascii_digit);
    Some(match value {
        b"1" | b"1." => FULL,
        [b'1', b'.', zeros @ ..] if digits(zeros) && zeros.iter().all(|digit| *digit == b'0') => FULL,
        [b'0', b'.', part @ ..] if digits(part) => {
            let padded = part.iter().copied().chain([b'0'; 3]).take(3);
            padded.fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
        }
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(fields: &[(&str, &str)]) -> bool {
        wants_page(fields.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    const CHROMIUM: (&str, &str) = (
        "Accept",
        "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7",
    );

    #[test]
    fn browsers_get_pages() {
        assert!(wants(&[CHROMIUM]));
        assert!(wants(&[CHROMIUM, ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")]));
        assert!(wants(&[("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")]));
        assert!(wants(&[("Sec-Fetch-Dest", "iframe")]));
        assert!(wants(&[("accept", "Text/HTML")]));
    }

    #[test]
    fn the_purpose_that_a_browser_states_decides() {
        for mode in ["cors", "no-cors", "same-origin", "websocket"] {
            assert!(!wants(&[CHROMIUM, ("Sec-Fetch-Mode", mode)]), "{mode}");
        }
        assert!(!wants(&[CHROMIUM, ("Sec-Fetch-Dest", "empty")]));
        assert!(!wants(&[CHROMIUM, ("Sec-Fetch-Dest", "image")]));
        assert!(wants(&[("Accept", "*/*"), ("Sec-Fetch-Mode", "navigate")]));
    }

    #[test]
    fn programs_get_documents() {
        for accept in
            ["", "*/*", "text/*", "application/json", "application/json, text/plain, */*", "text/plain"]
        {
            assert!(!wants(&[("Accept", accept)]), "{accept}");
        }
        assert!(!wants(&[]));
        assert!(!wants(&[("Sec-Fetch-Mode", "cors"), ("Accept", "*/*")]));
        assert!(!wants(&[CHROMIUM, ("X-Requested-With", "XMLHttpRequest")]));
    }

    #[test]
    fn weights_are_compared() {
        for (accept, page) in [
            ("text/html;q=0.9, application/json;q=0.8", true),
            ("text/html;q=0.8, application/json;q=0.9", false),
            ("text/html, application/json", false),
            ("text/html;q=0.9, */*;q=0.8", true),
            ("text/html;q=0.5, */*", false),
            ("text/html;q=0", false),
            ("text/html;q=0.001", true),
            ("text/html; level=1; q=0.4, application/problem+json;q=0.3", true),
            ("text/html;Q=1.000, application/json;q=0.999", true),
            ("text/html;q=2", false),
            ("text/html;q=0.5555", false),
            ("text/html;q=x, */*;q=0", false),
            ("application/json;q=0.1, text/html;q=0.2, */*;q=0.9", true),
        ] {
            assert_eq!(wants(&[("Accept", accept)]), page, "{accept}");
        }
    }

    #[test]
    fn several_fields_are_one_list_and_a_long_one_ends() {
        assert!(wants(&[("Accept", "application/json;q=0.1"), ("accept", "text/html")]));
        let long = format!("{}text/html", "a/b,".repeat(MAX_RANGES));
        assert!(!wants(&[("Accept", &long)]));
    }
}
