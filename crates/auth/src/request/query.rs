//! Query: kept as received, checked, and read as a form where a rule names a parameter.

use std::borrow::Cow;

use super::{Malformed, bytes, escape};

/// Refuses a query with a byte that is never allowed raw.
pub(super) fn check_bytes(query: &str) -> Result<(), Malformed> {
    let at = bytes::prefix_len(query.as_bytes(), &bytes::ALLOWED_IN_QUERY);
    let refused = query.as_bytes().get(at).and_then(|&byte| bytes::raw_refusal(byte));
    refused.map_or(Ok(()), Err)
}

/// Checks that a query can be read as a form: well-formed escapes that decode to UTF-8 without NUL.
/// Escaped delimiters are common here, and allowed.
pub(super) fn validate(query: &str) -> Result<(), Malformed> {
    let bytes = query.as_bytes();
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|&byte| byte == b'%') {
        at += found;
        let (character, length) = escape::character(bytes, at)?;
        if character == '\0' {
            return Err(Malformed::ForbiddenEscape);
        }
        at += length;
    }
    Ok(())
}

/// A name or value in form encoding.
#[derive(Clone, Copy)]
pub(crate) struct Encoded<'a>(&'a str);

/// The decoded names and values of a form (`application/x-www-form-urlencoded`), in order.
pub fn form_pairs(body: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    pairs(Some(body)).map(|(name, value)| (name.decode(), value.decode()))
}

/// The `name=value` pairs of a query, in order; the empty ones between two `&` are skipped.
pub(crate) fn pairs(query: Option<&str>) -> impl Iterator<Item = (Encoded<'_>, Encoded<'_>)> {
    query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (Encoded(name), Encoded(value))
    })
}

impl<'a> Encoded<'a> {
    /// Whether it decodes to exactly `text`. Does not allocate.
    pub(crate) fn decodes_to(self, text: &str) -> bool {
        self.bytes().eq(text.bytes())
    }

    /// Whether some server could take this parameter name for `name`:
    ///
    /// - without regard to case;
    /// - up to the `[` of the array notation of PHP, Rails and qs;
    /// - as PHP turns names into variables: it drops leading spaces, and replaces other spaces,
    ///   dots and an unclosed `[` by underscores.
    pub(crate) fn resembles(self, name: &str) -> bool {
        fn folded(bytes: impl Iterator<Item = u8>) -> impl Iterator<Item = u8> {
            bytes.skip_while(|b| *b == b' ').map(|b| match b {
                b' ' | b'.' | b'[' => b'_',
                b => b.to_ascii_lowercase(),
            })
        }
        let stem = |b: &u8| *b != b'[';
        folded(self.bytes()).eq(folded(name.bytes()))
            || folded(self.bytes().take_while(stem)).eq(folded(name.bytes().take_while(stem)))
    }

    /// The decoded text; borrowed when there is nothing to decode.
    pub(crate) fn decode(self) -> Cow<'a, str> {
        if self.0.bytes().any(|b| matches!(b, b'%' | b'+')) {
            // Whoever decides by a value has checked before that it is UTF-8.
            Cow::Owned(String::from_utf8_lossy(&self.bytes().collect::<Vec<_>>()).into_owned())
        } else {
            Cow::Borrowed(self.0)
        }
    }

    fn bytes(self) -> impl Iterator<Item = u8> + 'a {
        let raw = self.0.as_bytes();
        let mut at = 0;
        std::iter::from_fn(move || {
            let byte = *raw.get(at)?;
            if let Some(escaped) = escape::byte(raw, at) {
                at += 3;
                return Some(escaped);
            }
            at += 1;
            Some(if byte == b'+' { b' ' } else { byte })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_a_form() {
        let read = |query| pairs(Some(query)).map(|(n, v)| (n.decode(), v.decode())).collect::<Vec<_>>();
        assert_eq!(
            read("a=b&&c&=d&e=f=g"),
            [("a", "b"), ("c", ""), ("", "d"), ("e", "f=g")].map(|(n, v)| (Cow::from(n), Cow::from(v)))
        );
        assert_eq!(read("%61+%2B=%C3%A4+"), [(Cow::from("a +"), Cow::from("ä "))]);
        assert_eq!(pairs(None).count(), 0);
    }

    #[test]
    fn a_resembling_name_differs_in_case_notation_or_what_php_makes_of_it() {
        for name in ["ns", "NS", "n%73", "ns[]", "ns%5B0%5D", "Ns[x", "+ns", "%20+ns[]"] {
            assert!(Encoded(name).resembles("ns"), "{name}");
        }
        for name in ["n", "nsx", "n-s", "n+s", ""] {
            assert!(!Encoded(name).resembles("ns"), "{name}");
        }
        for name in ["tenant_id", "tenant.id", "tenant+id", "tenant[id", "Tenant.Id[]", "+tenant_id"] {
            assert!(Encoded(name).resembles("tenant_id"), "{name}");
        }
    }
}
