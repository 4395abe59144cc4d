//! Watch events: splits the stream of a watch into lines and parses them.
//!
//! Owns: a bound on lines, and the meaning of a line. Only metadata of the objects is read; their
//! content is not needed.

use serde::Deserialize;

/// Maximum bytes of one line. Objects have at most 1.5 MiB in the server's database.
pub(super) const MAX_LINE: usize = 2 << 20;

/// Why a stream cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WatchEventError {
    #[error("a line is longer than {MAX_LINE} bytes")]
    TooLong,
    #[error("a line is not a watch event")]
    NoEvent,
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    held: Vec<u8>,
    /// Number of bytes that were returned already.
    start: usize,
}

impl Lines {
    /// Appends received bytes.
    ///
    /// # Errors
    /// When a line grows too long.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), WatchEventError> {
        self.held.drain(..self.start);
        self.start = 0;
        self.held.extend_from_slice(bytes);
        let rest = memchr::memrchr(b'\n', &self.held).map_or(0, |at| at + 1);
        if self.held.len() - rest > MAX_LINE { Err(WatchEventError::TooLong) } else { Ok(()) }
    }

    /// The next complete line that is not empty.
    pub(super) fn next(&mut self) -> Option<&[u8]> {
        loop {
            let rest = self.held.get(self.start..)?;
            let length = memchr::memchr(b'\n', rest)?;
            let begin = self.start;
            self.start += length + 1;
            if length > 0 {
                return self.held.get(begin..begin + length);
            }
        }
    }
}

/// The kind of change of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Added,
    Modified,
    Deleted,
}

/// A parsed line.
#[derive(Debug)]
pub(super) enum WatchEvent {
    /// An object changed.
    Changed(Change, Object),
    /// Progress of the stream without a change.
    Bookmark(Object),
    /// The server ended the watch with this HTTP status.
    Failed(u16),
}

/// The metadata of an object, as far as it is read.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Object {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    code: Option<u16>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    resource_version: Option<String>,
}

impl Object {
    pub(super) fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref().filter(|name| !name.is_empty())
    }

    pub(super) fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref().filter(|name| !name.is_empty())
    }

    /// The `uid`, which no other object ever has.
    pub(super) fn uid(&self) -> Option<&str> {
        self.metadata.uid.as_deref().filter(|uid| !uid.is_empty())
    }

    /// The version from which a watch continues. It is opaque, and becomes part of a URL.
    pub(super) fn version(&self) -> Option<&str> {
        let version = self.metadata.resource_version.as_deref()?;
        let plain =
            !version.is_empty() && version.len() <= 128 && version.bytes().all(|b| b.is_ascii_alphanumeric());
        plain.then_some(version)
    }
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: Box<str>,
    object: Object,
}

/// Parses a line.
///
/// # Errors
/// When it is not a watch event, or its type is unknown, so its effect on cached answers cannot be
/// determined.
pub(super) fn read(line: &[u8]) -> Result<WatchEvent, WatchEventError> {
    let Line { kind, object } = serde_json::from_slice(line).map_err(|_| WatchEventError::NoEvent)?;
    let change = match &*kind {
        "ADDED" => Change::Added,
        "MODIFIED" => Change::Modified,
        "DELETED" => Change::Deleted,
        "BOOKMARK" => return Ok(WatchEvent::Bookmark(object)),
        "ERROR" => return Ok(WatchEvent::Failed(object.code.unwrap_or(0))),
        _ => return Err(WatchEventError::NoEvent),
    };
    Ok(WatchEvent::Changed(change, object))
}

/// The version of a list.
pub(super) fn version_of_list(body: &[u8]) -> Option<String> {
    let list: Object = serde_json::from_slice(body).ok()?;
    list.version().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let text = b"one\n\ntwo\r\nthree\nfour";
        for size in 1..text.len() {
            let (mut lines, mut seen) = (Lines::default(), Vec::new());
            for chunk in text.chunks(size) {
                lines.push(chunk).unwrap();
                while let Some(line) = lines.next() {
                    seen.push(line.to_vec());
                }
            }
            assert_eq!(seen, [&b"one"[..], b"two\r", b"three"], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_is_held_to_its_bound_and_no_further() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; MAX_LINE]).unwrap();
        lines.push(b"\n").unwrap();
        assert_eq!(lines.next().map(<[u8]>::len), Some(MAX_LINE));
        lines.push(&vec![b'x'; MAX_LINE]).unwrap();
        assert_eq!(lines.push(b"x"), Err(WatchEventError::TooLong));
    }

    #[test]
    fn a_line_says_what_changed_or_nothing() {
        let of = |text: &str| read(text.as_bytes());
        let event = of(
            r#"{"type":"DELETED","object":{"kind":"Role","metadata":{"name":"a","namespace":"b","resourceVersion":"12","labels":{"name":"c"}},"rules":[{"verbs":["*"]}]}}"#,
        );
        let Ok(WatchEvent::Changed(Change::Deleted, object)) = event else { panic!("{event:?}") };
        assert_eq!((object.name(), object.namespace(), object.version()), (Some("a"), Some("b"), Some("12")));
        let event = of(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"13","creationTimestamp":null}}}"#,
        );
        assert!(matches!(event, Ok(WatchEvent::Bookmark(object)) if object.version() == Some("13")));
        let event =
            of(r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410,"reason":"Expired"}}"#);
        assert!(matches!(event, Ok(WatchEvent::Failed(410))));
        for text in [
            "",
            "[]",
            "null",
            r#"{"type":"ADDED"}"#,
            r#"{"type":"RENAMED","object":{}}"#,
            r#"{"type":1,"object":{}}"#,
        ] {
            assert_eq!(of(text).err(), Some(WatchEventError::NoEvent), "{text}");
        }
    }

    #[test]
    fn a_version_that_would_change_the_url_is_none() {
        for version in ["", "1&x=2", "1 2", "1/2", "ä"] {
            let list = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#);
            assert_eq!(version_of_list(list.as_bytes()), None, "{version}");
        }
        assert_eq!(
            version_of_list(br#"{"kind":"X","metadata":{"resourceVersion":"5"}}"#).as_deref(),
            Some("5")
        );
        assert_eq!(version_of_list(b"<html>"), None);
    }
}
