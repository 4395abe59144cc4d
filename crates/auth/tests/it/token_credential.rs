//! One bearer token per request, in the header (RFC 6750 §2).

use auth::credential::{CredentialFault, bearer};
use auth::request::Field;
use proptest::prelude::*;

fn one(value: &str) -> Result<Option<String>, CredentialFault> {
    of(&[("Authorization", value)], None)
}

fn of(fields: &[(&str, &str)], query: Option<&str>) -> Result<Option<String>, CredentialFault> {
    let fields: Vec<_> = fields.iter().map(|(name, value)| Field { name, value: value.as_bytes() }).collect();
    let token = bearer(&fields, query)?;
    token.map(|token| token.checked().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())).transpose()
}

#[test]
fn tokens_bearer_scheme_ignores_case() {
    for value in ["Bearer abc", "bearer abc", "BEARER abc", "bEaReR   abc"] {
        assert_eq!(one(value), Ok(Some("abc".into())), "{value}");
    }
    for name in ["authorization", "AUTHORIZATION", "AuThOrIzAtIoN"] {
        assert_eq!(of(&[("Host", "x"), (name, "Bearer a")], None), Ok(Some("a".into())), "{name}");
    }
    assert_eq!(one("Bearer aZ09-._~+/=="), Ok(Some("aZ09-._~+/==".into())));
}

#[test]
fn tokens_other_schemes_are_no_bearer_token() {
    for value in ["Basic dXNlcjpwYXNz", "Negotiate", "DPoP abc", "Bearerer abc", "Digest a=\"b\", c=d"] {
        assert_eq!(one(value), Ok(None), "{value}");
    }
    assert_eq!(
        of(&[("X-Authorization", "Bearer a"), ("Proxy-Authorization", "Bearer b")], Some("a=b")),
        Ok(None)
    );
    assert_eq!(of(&[], None), Ok(None));
}

#[test]
fn tokens_repeated_authorization_is_refused() {
    for second in ["Bearer a", "Bearer b", "Basic x", ""] {
        let fields = [("Authorization", "Bearer a"), ("authorization", second)];
        assert_eq!(of(&fields, None), Err(CredentialFault::RepeatedAuthorization), "{second}");
    }
}

#[test]
fn tokens_malformed_authorization_is_refused() {
    for (value, fault) in [
        ("", CredentialFault::NoScheme),
        (" ", CredentialFault::NoScheme),
        ("Bearer\tabc", CredentialFault::NoScheme),
        ("Bearer, Bearer abc", CredentialFault::NoScheme),
        ("Bearer\u{a0}abc", CredentialFault::NoScheme),
        ("Bearer", CredentialFault::EmptyToken),
        ("Bearer   ", CredentialFault::EmptyToken),
        ("Bearer =", CredentialFault::IllegalToken),
        ("Bearer a b", CredentialFault::IllegalToken),
        ("Bearer a,Bearer b", CredentialFault::IllegalToken),
        ("Bearer a=b", CredentialFault::IllegalToken),
        ("Bearer \"abc\"", CredentialFault::IllegalToken),
        ("Bearer a\0b", CredentialFault::IllegalToken),
        ("Bearer \tabc", CredentialFault::IllegalToken),
        ("Bearer ab\u{e9}", CredentialFault::IllegalToken),
        ("Bearer a%2Eb", CredentialFault::IllegalToken),
    ] {
        assert_eq!(one(value), Err(fault), "{value:?}");
    }
}

#[test]
fn tokens_in_the_query_are_refused() {
    for query in [
        "access_token=abc",
        "a=b&access_token=abc",
        "access_token",
        "access_token=",
        "access%5Ftoken=abc",
        "%61%63cess%5ftoken=abc",
        "a=b;access_token=abc",
        "access_token=abc&access_token=def",
        "Access_Token=abc",
        "access_token[]=abc",
    ] {
        assert_eq!(of(&[], Some(query)), Err(CredentialFault::QueryToken), "{query}");
        assert_eq!(
            of(&[("Authorization", "Basic x")], Some(query)),
            Err(CredentialFault::QueryToken),
            "{query}"
        );
        // RFC 6750 §2: one method per request.
        let both = of(&[("Authorization", "Bearer abc")], Some(query));
        assert_eq!(both, Err(CredentialFault::SeveralMethods), "{query}");
    }
    for query in
        ["", "token=abc", "a=access_token", "access_tokens=abc", "xaccess_token=1", "access%255Ftoken=1"]
    {
        assert_eq!(of(&[("Authorization", "Bearer abc")], Some(query)), Ok(Some("abc".into())), "{query}");
    }
}

proptest! {
    #[test]
    fn tokens_bearer_takes_every_b64token_and_nothing_else(token in "[ -~]{1,20}") {
        // Leading spaces belong to the separator.
        let text = token.trim_start_matches(' ');
        let body = text.trim_end_matches('=');
        let legal =
            !body.is_empty() && body.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b));
        match one(&format!("Bearer {token}")) {
            Ok(found) => {
                prop_assert!(legal);
                prop_assert_eq!(found.as_deref(), Some(text));
            }
            Err(_) => prop_assert!(!legal),
        }
    }

    #[test]
    fn tokens_query_names_are_found_however_escaped(escape in proptest::collection::vec(0..3_u8, 12)) {
        let name: String = "access_token"
            .bytes()
            .zip(escape)
            .map(|(byte, how)| match how {
                0 => char::from(byte).to_string(),
                1 => format!("%{byte:02x}"),
                _ => format!("%{byte:02X}"),
            })
            .collect();
        prop_assert_eq!(of(&[], Some(&format!("x=y&{name}=abc&z"))), Err(CredentialFault::QueryToken));
    }
}
