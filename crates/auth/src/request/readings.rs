//! Readings: the paths that servers may take one path for.
//!
//! RFC 3986 gives a path one meaning, but servers take steps that change it:
//!
//! * decode escapes of characters that may stand raw (`/%40admin`, §2.2), and decode again what is
//!   an escape afterwards (`/%2540admin`);
//! * take an escaped slash for a separator, and a backslash for a slash;
//! * read an escaped `?` or `#` as the end of the path;
//! * remove parameters (`/admin;v=1/users`, §3.3);
//! * merge slashes, and resolve dot segments (§5.2.4).
//!
//! Each server takes some of these steps, in an order of its own. A reading is what any of them
//! leads to, in any order and number. None of the steps is taken before forwarding, since the path
//! would then mean something else to servers that do not take it.
//!
//! Owns: the set of readings of a path. Does not own: what follows from them (routing, reviews and
//! rewrites decide).

use super::{Malformed, bytes, escape};

/// Most readings of a path, itself included. More are no spelling of an honest client, and each
/// costs a lookup.
const MAX_READINGS: usize = 32;
/// Most bytes of all readings together. It bounds the work that a request can cause.
const MAX_BYTES: usize = 64 * 1024;

/// What servers may take a path for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Readings {
    /// All readings but the path itself, in normal spelling.
    pub(super) others: Box<[Box<str>]>,
    /// Whether a server may read the end of the path as a query.
    pub(super) hide_query: bool,
}

/// A step that some servers take. `None`: it changes nothing.
type Step = fn(&str) -> Result<Option<String>, Malformed>;

const STEPS: [Step; 10] = [
    |path| Ok(unescaped(path)),
    |path| decoded_again(path, |_| true),
    // For a server that leaves escaped slashes alone, twice escaped ones look the same afterwards.
    |path| decoded_again(path, |byte| byte == b'/'),
    |path| Ok(replaced(path, "%2F")),
    |path| Ok(replaced(path, "%5C")),
    |path| Ok(cut(path, HIDDEN_QUERY)),
    |path| Ok(cut(path, "%23")),
    |path| Ok(without_parameters(path)),
    |path| Ok(merged(path)),
    resolved,
];

/// Escape of the `?`, which begins a query.
const HIDDEN_QUERY: &str = "%3F";

impl Readings {
    /// The readings of a path in normal spelling: unreserved characters raw, others that need it
    /// escaped, escapes in upper case.
    ///
    /// # Errors
    /// When a reading has no meaning ([`Malformed::DotSegment`], [`Malformed::NestedEscape`],
    /// [`Malformed::AuthorityTarget`]), or there are too many ([`Malformed::Readings`]).
    pub(super) fn of(path: &str) -> Result<Self, Malformed> {
        let mut all: Vec<Box<str>> = vec![path.into()];
        let (mut next, mut size) = (0, path.len());
        while next < all.len() {
            for step in STEPS {
                let Some(reading) = step(&all[next])? else { continue };
                if reading.starts_with("//") {
                    return Err(Malformed::AuthorityTarget);
                }
                if all.iter().any(|known| **known == *reading) {
                    continue;
                }
                size += reading.len();
                if all.len() == MAX_READINGS || size > MAX_BYTES {
                    return Err(Malformed::Readings);
                }
                all.push(reading.into());
            }
            next += 1;
        }
        let hide_query = all.iter().any(|reading| reading.contains(HIDDEN_QUERY));
        all.swap_remove(0);
        Ok(Self { others: all.into(), hide_query })
    }
}

/// The path with every character unescaped that may stand raw.
fn unescaped(path: &str) -> Option<String> {
    let raw = |byte: u8| bytes::is_plain(byte) || byte == b';';
    replace_escapes(path, |byte, _| raw(byte).then_some((Replacement::Raw(byte), ESCAPE)))
}

/// The path decoded once more: escapes of the percent sign that begins another escape, of a byte
/// that `concerns`, are decoded.
fn decoded_again(path: &str, concerns: fn(u8) -> bool) -> Result<Option<String>, Malformed> {
    let mut control = false;
    let decoded = replace_escapes(path, |byte, rest| {
        // The digits of the inner escape, whose percent sign is the escaped one.
        let digits = rest.as_bytes().get(ESCAPE..ESCAPE + 2).filter(|_| byte == b'%')?;
        let inner = escape::byte(&[b'%', digits[0], digits[1]], 0).filter(|inner| concerns(*inner))?;
        control |= inner.is_ascii_control();
        let unreserved = bytes::is_unreserved(inner);
        let replacement = if unreserved { Replacement::Raw(inner) } else { Replacement::Escape(inner) };
        Some((replacement, ESCAPE + 2))
    });
    if control { Err(Malformed::NestedEscape) } else { Ok(decoded) }
}

/// Length of an escape in bytes.
const ESCAPE: usize = 3;

/// What replaces an escape.
enum Replacement {
    Raw(u8),
    Escape(u8),
}

/// Asks for each escape, with its byte and the text from its percent sign on, what replaces it, and
/// how many bytes of the text that replaces. `None` when nothing is replaced.
fn replace_escapes(
    path: &str,
    mut ask: impl FnMut(u8, &str) -> Option<(Replacement, usize)>,
) -> Option<String> {
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = path[at..].find('%') {
        let start = at + found;
        at = start + 1;
        let byte = escape::byte(path.as_bytes(), start);
        let Some((replacement, length)) = byte.and_then(|byte| ask(byte, &path[start..])) else { continue };
        out.push_str(&path[copied..start]);
        match replacement {
            Replacement::Raw(byte) => out.push(char::from(byte)),
            Replacement::Escape(byte) => escape::push(&mut out, byte),
        }
        (copied, at) = (start + length, start + length);
    }
    out.push_str(&path[copied..]);
    (copied > 0).then_some(out)
}

/// The path with a slash in place of each of these escapes.
fn replaced(path: &str, escape: &str) -> Option<String> {
    path.contains(escape).then(|| path.replace(escape, "/"))
}

/// The path up to this escape.
fn cut(path: &str, escape: &str) -> Option<String> {
    path.find(escape).map(|end| path[..end].to_owned())
}

/// The path as read by a server that removes parameters (from `;` to the end of each segment).
fn without_parameters(path: &str) -> Option<String> {
    path.contains(';').then(|| {
        let mut plain = String::with_capacity(path.len());
        for segment in path.split_inclusive('/') {
            match segment.find(';') {
                None => plain.push_str(segment),
                Some(end) => {
                    plain.push_str(&segment[..end]);
                    plain.push_str(if segment.ends_with('/') { "/" } else { "" });
                }
            }
        }
        plain
    })
}

/// The path with one slash in place of several.
fn merged(path: &str) -> Option<String> {
    path.contains("//").then(|| {
        let mut out = String::with_capacity(path.len());
        for character in path.chars() {
            if character != '/' || !out.ends_with('/') {
                out.push(character);
            }
        }
        out
    })
}

/// The path without dot segments (RFC 3986 §5.2.4), which must not lead above the root.
fn resolved(path: &str) -> Result<Option<String>, Malformed> {
    let is_dots = |segment: &str| matches!(segment, "." | "..");
    if !path.split('/').any(is_dots) {
        return Ok(None);
    }
    let mut kept: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop().ok_or(Malformed::DotSegment)?),
            segment => kept.push(segment),
        }
    }
    let mut out = String::with_capacity(path.len());
    for segment in kept {
        out.push('/');
        out.push_str(segment);
    }
    // A dot segment at the end stands for the folder itself.
    if out.is_empty() || path.rsplit('/').next().is_some_and(is_dots) {
        out.push('/');
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_readings(path: &str, expected: &[&str]) {
        let mut seen: Vec<_> = Readings::of(path).unwrap().others.into_iter().map(String::from).collect();
        let mut expected = expected.to_vec();
        seen.sort_unstable();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{path}");
    }

    #[test]
    fn a_path_that_no_server_changes_has_one_reading() {
        for path in ["/", "/a/b.c/~d", "/a/", "/%20/%C3%A4", "/100%25", "/50%25/a%25%20", "/.a/..b/..."] {
            assert_readings(path, &[]);
        }
    }

    #[test]
    fn each_step_gives_a_reading() {
        for (path, reading) in [
            ("/%40a%3Ab", "/@a:b"),
            ("/%21%24%26%27%28%29%2A%2B%2C%3D", "/!$&'()*+,="),
            ("/a%2541", "/aA"),
            ("/%25C3%25A4", "/%C3%A4"),
            ("/a%2Fb", "/a/b"),
            ("/a%5Cb", "/a/b"),
            ("/a%3Fb/c", "/a"),
            ("/Report%20%233.ipynb", "/Report%20"),
            ("/a;x/b;y=1", "/a/b"),
            ("/a;/b/", "/a/b/"),
            ("/a//b///c", "/a/b/c"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
        ] {
            assert_readings(path, &[reading]);
        }
    }

    #[test]
    fn steps_combine_in_any_order() {
        assert_readings("/%40a;x", &["/@a;x", "/@a", "/%40a"]);
        assert_readings("/a%252Fb", &["/a%2Fb", "/a/b"]);
        assert_readings("/a%2F%2Fb", &["/a//b", "/a/b"]);
        assert_readings("/a/..;x/b", &["/a/../b", "/b"]);
        // Merged first, the dots remove `a`; resolved first, they remove the empty segment.
        assert_readings("/a//../b", &["/a/../b", "/b", "/a/b"]);
        assert_readings(
            "/x/%252e%252e%252fa",
            &["/x/..%2Fa", "/x/../a", "/a", "/x/%252e%252e%2Fa", "/x/%252e%252e/a"],
        );
        assert_readings("/a%3Bb/c", &["/a;b/c", "/a/c"]);
        // `%2541` may stay as it is while the slash is decoded.
        assert_readings("/%2541%252F", &["/A%2F", "/A/", "/%2541%2F", "/%2541/"]);
    }

    #[test]
    fn a_reading_without_a_meaning_is_refused() {
        for (path, fault) in [
            ("/..", Malformed::DotSegment),
            ("/a/../..", Malformed::DotSegment),
            ("/a%2F..%2F..%2Fb", Malformed::DotSegment),
            ("/..;x", Malformed::DotSegment),
            ("/%252e%252e", Malformed::DotSegment),
            ("/a%2500", Malformed::NestedEscape),
            ("/a%25250a", Malformed::NestedEscape),
            ("/%2Fevil.example", Malformed::AuthorityTarget),
            ("/;x/evil.example", Malformed::AuthorityTarget),
            ("/%5C%2F%3F;x/%40/..//%2540%2523%2525", Malformed::AuthorityTarget),
        ] {
            assert_eq!(Readings::of(path), Err(fault), "{path}");
        }
    }

    #[test]
    fn the_number_of_readings_is_limited() {
        assert_eq!(Readings::of("/a%2F%5C%40;x//%2540%252F%253Bx/./b"), Err(Malformed::Readings));
        let nested = format!("/%{}41", "25".repeat(MAX_READINGS - 1));
        assert_eq!(Readings::of(&nested).unwrap().others.len(), MAX_READINGS - 1);
        let nested = format!("/%{}41", "25".repeat(MAX_READINGS));
        assert_eq!(Readings::of(&nested), Err(Malformed::Readings));
        let segment = "a".repeat(MAX_BYTES / 8 - 16);
        assert_eq!(Readings::of(&format!("/{segment}%2Fb;c")).unwrap().others.len(), 3);
        assert_eq!(Readings::of(&format!("/{segment}%2F%5Cb;c%40d//")), Err(Malformed::Readings));
    }

    #[test]
    fn an_escaped_question_mark_hides_a_query_in_any_depth() {
        for (path, hides) in [("/a%3Fb", true), ("/a%25253Fb", true), ("/a%2Fb", false), ("/a;b", false)] {
            assert_eq!(Readings::of(path).unwrap().hide_query, hides, "{path}");
        }
    }
}
