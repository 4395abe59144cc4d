//! The `tracestate` field (W3C Trace Context level 2 §3.3).
//!
//! Owns: deciding whether a list may be passed on. The gateway never adds a member: `traceparent`
//! contains all it needs.

use std::borrow::Cow;

/// Maximum number of members in a list.
const MAX_MEMBERS: usize = 32;
/// Maximum length that is passed on, in bytes; the standard requires at least 512.
const MAX_LENGTH: usize = 512;

/// A valid list of at most 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceState<'a>(Cow<'a, str>);

impl<'a> TraceState<'a> {
    /// Parses all `tracestate` fields of a request, in order: they form one list (RFC 9110 §5.3).
    ///
    /// `None`: the list is empty, a member is invalid, a key is repeated, or there are too many
    /// members. The whole list is then discarded (§4.3) while `traceparent` remains valid. A list
    /// longer than 512 bytes loses members over 128 bytes first, then those at its end (§3.3.1.5).
    /// A single valid field is borrowed.
    pub fn parse(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut values = values.into_iter().map(|value| str::from_utf8(value).ok());
        let mut list = Cow::Borrowed(values.next()??);
        for more in values {
            let joined = list.to_mut();
            joined.push(',');
            joined.push_str(more?);
        }
        let mut keys: Vec<&str> = Vec::new();
        for member in members(&list) {
            let (key, value) = member.split_once('=')?;
            if !is_key(key) || !is_value(value) || keys.len() == MAX_MEMBERS || keys.contains(&key) {
                return None;
            }
            keys.push(key);
        }
        if keys.is_empty() {
            return None;
        }
        if list.len() > MAX_LENGTH {
            list = Cow::Owned(shorten(&list));
        }
        (!list.is_empty()).then_some(Self(list))
    }

    /// The field value to pass on.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The members of a list, trimmed, without empty ones.
fn members(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|member| member.trim_matches([' ', '\t'])).filter(|member| !member.is_empty())
}

/// `simple-key` or `tenant@system`, at most 256 bytes. Level 2 allows keys that start with a digit.
fn is_key(key: &str) -> bool {
    let begins = |part: &str| part.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let goes_on = |part: &str| {
        part.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'*' | b'/'))
    };
    match key.split_once('@') {
        None => begins(key) && goes_on(key) && key.len() <= 256,
        Some((tenant, system)) => {
            begins(tenant)
                && goes_on(tenant)
                && tenant.len() <= 241
                && system.starts_with(|c: char| c.is_ascii_lowercase())
                && goes_on(system)
                && system.len() <= 14
        }
    }
}

/// 1 to 256 printable bytes without `,` and `=`, the last not a space (members are already
/// trimmed).
fn is_value(value: &str) -> bool {
    (1..=256).contains(&value.len())
        && value.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b',' && b != b'=')
}

fn shorten(list: &str) -> String {
    let mut kept: Vec<&str> = members(list).collect();
    let length = |kept: &[&str]| kept.iter().map(|member| member.len() + 1).sum::<usize>().saturating_sub(1);
    while length(&kept) > MAX_LENGTH {
        match kept.iter().rposition(|member| member.len() > 128) {
            Some(large) => drop(kept.remove(large)),
            None => drop(kept.pop()),
        }
    }
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(values: &[&str]) -> Option<String> {
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        TraceState::parse(values).map(|state| state.as_str().to_owned())
    }

    #[test]
    fn good_lists_are_passed_on_as_they_are() {
        for list in [
            "congo=t61rcWkgMzE",
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
            "a=1, b=2\t,,c=3",
            "0tenant@system=x",
            "a_-*/9=!\"#$%&'()*+-./:;<>?@[]^_`{|}~ x",
        ] {
            assert_eq!(parse(&[list]).as_deref(), Some(list));
        }
        let value: &[u8] = b"a=1";
        assert!(matches!(TraceState::parse([value]), Some(TraceState(Cow::Borrowed("a=1")))));
    }

    #[test]
    fn several_fields_are_one_list() {
        assert_eq!(parse(&["a=1", "", "b=2,c=3"]).as_deref(), Some("a=1,,b=2,c=3"));
        assert_eq!(parse(&["a=1", "a=2"]), None, "a key twice, over two fields");
    }

    #[test]
    fn broken_lists_are_discarded_whole() {
        let long_key = format!("{}=1", "k".repeat(257));
        let long_value = format!("k={}", "v".repeat(257));
        let many = (0..33).map(|i| format!("k{i}=1")).collect::<Vec<_>>().join(",");
        for list in [
            "",
            " , ,",
            "a",
            "a=",
            "=1",
            "A=1",
            "a=1,b",
            "a=1=2",
            "a=1,a=2",
            "a=\u{e9}",
            "a b=1",
            "a@=1",
            "@b=1",
            "a@9b=1",
            "a@b@c=1",
            "a@abcdefghijklmno=1",
            &long_key,
            &long_value,
            &many,
        ] {
            assert_eq!(parse(&[list]), None, "{list}");
        }
        assert_eq!(TraceState::parse([b"a=\xff".as_slice()]), None);
        assert_eq!(TraceState::parse([]), None);
    }

    #[test]
    fn long_lists_lose_large_members_first_and_then_the_last() {
        let large = format!("large={}", "v".repeat(200));
        let small = (0..20).map(|i| format!("key{i:02}={}", "v".repeat(20))).collect::<Vec<_>>();
        let list = format!("{},{large},{}", small[..10].join(","), small[10..].join(","));
        let kept = parse(&[&list]).unwrap();
        assert!(kept.len() <= 512 && kept.len() > 480, "{}", kept.len());
        assert_eq!(kept, small[..kept.split(',').count()].join(","));
    }

    proptest! {
        #[test]
        fn what_is_passed_on_is_valid_and_bounded(list in "([a-c0@=, ]{0,12}|[ -~]{0,40}|(k[0-9]{1,3}=v{1,200},){0,40})") {
            if let Some(state) = TraceState::parse([list.as_bytes()]) {
                prop_assert!(state.as_str().len() <= 512);
                let again = TraceState::parse([state.as_str().as_bytes()]);
                prop_assert_eq!(again.as_ref(), Some(&state));
            }
        }
    }
}
