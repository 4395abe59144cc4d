//! Other readings of a normal path: spellings that servers take for one another, although RFC 3986
//! distinguishes them.
//!
//! * Parameters (`/admin;v=1/users`, §3.3): some servers treat them as part of the path, others
//!   remove them.
//! * Escapes of characters that may stand raw (`/%40admin` for `/@admin`, §2.2): nearly all servers
//!   decode them first, and few distinguish the two.
//!
//! Neither is normalised away, since the forwarded path would then mean something else to servers
//! that distinguish them. Owns: the other spellings. Does not own: what follows from them (routing
//! decides).

use super::{escape, path};

/// The other readings of a normal path that has any.
pub(super) fn other_readings(path: &str) -> Vec<String> {
    let plain = without_parameters(path);
    let mut all = vec![unescaped(path), unescaped(&plain), plain];
    all.retain(|reading| reading != path);
    all.dedup();
    all
}

/// The path as read by a server that removes parameters (from `;` to the end of each segment).
fn without_parameters(path: &str) -> String {
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
}

/// The path with every character unescaped that may stand raw.
fn unescaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        match escape::byte(rest.as_bytes(), at).filter(|&byte| path::is_plain(byte)) {
            Some(byte) => text.push(char::from(byte)),
            None => text.push_str(&rest[at..at + 3]),
        }
        rest = &rest[at + 3..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_cut_off_every_segment() {
        for (path, plain) in [
            ("/a;x/b;y=1", "/a/b"),
            ("/a;/b/", "/a/b/"),
            ("/a/b;c;d", "/a/b"),
            ("/a", "/a"),
            ("/a;x/", "/a/"),
        ] {
            assert_eq!(without_parameters(path), plain);
        }
    }

    #[test]
    fn only_what_may_stand_raw_is_unescaped() {
        for (path, plain) in [
            ("/%40a%3Ab", "/@a:b"),
            ("/%21%24%26%27%28%29%2A%2B%2C%3D", "/!$&'()*+,="),
            ("/%20%22%25%C3%A4", "/%20%22%25%C3%A4"),
            ("/%2540", "/%2540"),
        ] {
            assert_eq!(unescaped(path), plain);
        }
    }

    #[test]
    fn both_kinds_combine() {
        assert_eq!(other_readings("/%40a;x"), ["/@a;x", "/@a", "/%40a"]);
        assert_eq!(other_readings("/a;x"), ["/a"]);
        assert_eq!(other_readings("/%40"), ["/@"]);
    }
}
