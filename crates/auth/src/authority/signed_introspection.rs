//! Signed token introspection (RFC 9701): who signed the answer, for which client, when, and then
//! its content.
//!
//! Owns: the checks of the JWT around an introspection. Does not own: the introspection in it
//! ([`super::introspection`]), the signature and the form of a JWT ([`crate::token::jwt`]), where
//! keys come from.
//!
//! Flow: `jwt::parse → iss, algorithm, key, signature → typ → aud → iat, exp, nbf →
//! token_introspection → Verdict`.
//!
//! An error in the JWT is caused by the server or by an attacker on the path, never by the client:
//! such an answer is [`AnswerUnclear`]. Encrypted answers (JWE) are refused as well.

use std::time::Duration;

use super::{AnswerUnclear, AuthorityConfig, AuthorityVerdict, introspection};
use crate::json::Value;
use crate::keyset::KeySet;
use crate::time::Timestamp;
use crate::token::{IssuerConfig, claims, jwt};
use crate::token_error::{ClaimError, ClaimFault, TokenError};

/// Media type of a signed answer: for the request's `Accept`, and required as the `Content-Type`.
pub const MEDIA_TYPE: &str = "application/token-introspection+jwt";
/// `typ` of its header; it may have `application/` before it (RFC 7515 §4.1.9).
const HEADER_TYPE: &str = "token-introspection+jwt";
/// `iat` usually has whole seconds: an answer may seem older than it is by this much.
const SECOND: Duration = Duration::from_secs(1);

/// When a query was sent, and when its answer is read.
#[derive(Debug, Clone, Copy)]
pub struct QueryTimes {
    /// When the query was sent. An answer from before is old, or belongs to another query.
    pub sent_at: Timestamp,
    /// When the answer is read. An answer from later than this comes from a wrong clock.
    pub read_at: Timestamp,
}

/// Reads a signed answer. `signer` gives the issuer whose signature is accepted, its algorithms,
/// the clock skew, and as audience the client that queries.
///
/// # Errors
/// [`AnswerUnclear`] when the answer is not signed as required, or does not say whether the
/// token is active. [`AnswerUnclear::Keys`] when newer keys of the signer may fit.
pub fn read(
    answer: &[u8],
    signer: &IssuerConfig,
    keys: &KeySet,
    config: &AuthorityConfig,
    at: QueryTimes,
) -> Result<AuthorityVerdict, AnswerUnclear> {
    let unverified = jwt::parse(answer).map_err(AnswerUnclear::Signed)?;
    if *unverified.issuer() != *signer.issuer() {
        return Err(AnswerUnclear::Signed(TokenError::WrongIssuer));
    }
    let jwt = unverified.signed(signer.algorithms(), keys).map_err(|error| {
        if unverified.may_pass_newer_keys(&error) {
            AnswerUnclear::Keys(error)
        } else {
            AnswerUnclear::Signed(error)
        }
    })?;
    let is_introspection = jwt
        .typ
        .is_some_and(|typ| typ.eq_ignore_ascii_case(HEADER_TYPE) || typ.eq_ignore_ascii_case(MEDIA_TYPE));
    if !is_introspection {
        return Err(AnswerUnclear::Signed(TokenError::WrongType));
    }
    check(jwt.claims, signer, at).map_err(AnswerUnclear::Signed)?;
    let claim = jwt.claims.get("token_introspection").filter(|claim| claim.is_object());
    introspection::verdict(claim.ok_or(AnswerUnclear::Member("token_introspection"))?, config, at.read_at)
}

/// Checks audience and time. Neither `sub` nor `exp` is required (RFC 9701 §5); an `exp` or `nbf`
/// that is present counts.
fn check(claims: Value<'_>, signer: &IssuerConfig, at: QueryTimes) -> Result<(), TokenError> {
    claims::check_audience(claims, signer.audiences())?;
    let skew = signer.clock_skew();
    let issued = claims::issued(claims)?.ok_or_else(|| ClaimError::new("iat", ClaimFault::Missing))?;
    if issued.plus(skew).plus(SECOND) <= at.sent_at {
        return Err(TokenError::Expired);
    }
    if at.read_at < claims::not_before(claims)?.minus(skew) {
        return Err(TokenError::NotYetValid);
    }
    claims::check_issued(Some(issued), at.read_at, skew)?;
    match claims::expires(claims)? {
        Some(expires) if at.read_at >= expires.plus(skew) => Err(TokenError::Expired),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::algorithm::{Algorithm, AlgorithmSet};
    use crate::mapping::ClaimMapping;
    use crate::token::jws::{Signer, SigningAlgorithm, public_jwks};
    use crate::token_error::Part;

    const NOW: u64 = 1_800_000_000;

    struct Server {
        signer: Signer,
        keys: KeySet,
    }

    impl Server {
        fn new(algorithm: SigningAlgorithm) -> Self {
            let signer = Signer::generate(algorithm).unwrap();
            let (keys, _) = KeySet::from_jwks_json(public_jwks([&signer]).to_string().as_bytes()).unwrap();
            Self { signer, keys }
        }

        fn read(&self, answer: &str) -> Result<AuthorityVerdict, AnswerUnclear> {
            let at =
                QueryTimes { sent_at: Timestamp::from_secs(NOW - 1), read_at: Timestamp::from_secs(NOW) };
            read(answer.as_bytes(), &expected(), &self.keys, &authority(), at)
        }

        fn says(&self, change: impl FnOnce(&mut Json)) -> Result<AuthorityVerdict, AnswerUnclear> {
            self.read(&self.signed("token-introspection+jwt", change))
        }

        fn signed(&self, typ: &str, change: impl FnOnce(&mut Json)) -> String {
            let mut claims = answer();
            change(&mut claims);
            let header = [("typ", typ)];
            self.signer.sign(if typ.is_empty() { &[] } else { &header }, &claims).unwrap()
        }
    }

    fn answer() -> Json {
        json!({
            "iss": "https://id.example", "aud": "gateway", "iat": NOW,
            "token_introspection": { "active": true, "sub": "u1", "aud": "api", "exp": NOW + 60, "groups": ["dev"] },
        })
    }

    fn expected() -> IssuerConfig {
        IssuerConfig::new("id", "https://id.example", vec!["gateway".into()])
            .unwrap()
            .with_clock_skew(Duration::from_secs(10))
            .unwrap()
    }

    fn authority() -> AuthorityConfig {
        AuthorityConfig {
            name: "id".into(),
            audiences: Some(vec!["api".into()]),
            issuer: None,
            mapping: ClaimMapping::default(),
        }
    }

    #[test]
    fn a_signed_answer_says_who_holds_the_token() {
        for algorithm in [SigningAlgorithm::Es256, SigningAlgorithm::Rs256, SigningAlgorithm::EdDsa] {
            let server = Server::new(algorithm);
            let facts = server.says(|_| ()).unwrap().unwrap();
            assert_eq!((&*facts.identity.subject, &*facts.identity.issuer), ("u1", "id"));
            assert_eq!(facts.identity.groups, ["dev".into()]);
            assert_eq!(facts.expires, Timestamp::from_secs(NOW + 60));
            for typ in ["Token-Introspection+JWT", MEDIA_TYPE] {
                assert!(server.read(&server.signed(typ, |_| ())).unwrap().is_ok(), "{typ}");
            }
            let many = server.says(|claims| claims["aud"] = json!(["else", "gateway"]));
            assert!(many.unwrap().is_ok());
            let inactive = server.says(|claims| claims["token_introspection"] = json!({ "active": false }));
            assert_eq!(inactive, Ok(Err(TokenError::Inactive)));
            let other = server.says(|claims| claims["token_introspection"]["aud"] = "somebody".into());
            assert_eq!(other, Ok(Err(TokenError::WrongAudience)), "the token's, and so the client's fault");
        }
    }

    #[test]
    fn it_is_of_this_kind_this_server_and_for_us() {
        let server = Server::new(SigningAlgorithm::Es256);
        for typ in ["", "JWT", "at+jwt", "introspection+jwt", "token-introspection+jwt; x"] {
            let verdict = server.read(&server.signed(typ, |_| ()));
            assert_eq!(verdict, Err(AnswerUnclear::Signed(TokenError::WrongType)), "{typ:?}");
        }
        for iss in ["https://id.example/", "https://ID.example", "https://evil.example", ""] {
            let verdict = server.says(|claims| claims["iss"] = iss.into());
            assert_eq!(verdict, Err(AnswerUnclear::Signed(TokenError::WrongIssuer)), "{iss}");
        }
        for aud in [json!("else"), json!(["else"]), json!([]), json!("gateway2")] {
            let verdict = server.says(|claims| claims["aud"] = aud.clone());
            assert_eq!(verdict, Err(AnswerUnclear::Signed(TokenError::WrongAudience)), "{aud}");
        }
        for aud in [json!(null), json!(7), json!(["gateway", 7])] {
            let verdict = server.says(|claims| claims["aud"] = aud.clone());
            assert!(matches!(verdict, Err(AnswerUnclear::Signed(TokenError::Claim(_)))), "{aud}");
        }
        for name in ["iss", "aud", "iat"] {
            let verdict = server.says(|claims| drop(claims.as_object_mut().unwrap().remove(name)));
            assert!(matches!(verdict, Err(AnswerUnclear::Signed(TokenError::Claim(_)))), "{name}");
        }
    }

    #[test]
    fn it_answers_this_question() {
        let server = Server::new(SigningAlgorithm::Es256);
        let at = |name: &str, time: u64| server.says(|claims| claims[name] = time.into()).map(|v| v.is_ok());
        // asked at NOW - 1, read at NOW, 10 s of skew, 1 s of grain
        for (name, good, bad, fault) in [
            ("iat", NOW - 11, NOW - 12, TokenError::Expired),
            ("iat", NOW + 10, NOW + 11, TokenError::InFuture("iat")),
            ("exp", NOW - 9, NOW - 10, TokenError::Expired),
            ("nbf", NOW + 10, NOW + 11, TokenError::NotYetValid),
        ] {
            assert_eq!(at(name, good), Ok(true), "{name} {good}");
            assert_eq!(at(name, bad), Err(AnswerUnclear::Signed(fault)), "{name} {bad}");
        }
        for iat in [json!("now"), json!(null), json!(NOW * 1000)] {
            let verdict = server.says(|claims| claims["iat"] = iat.clone());
            assert!(matches!(verdict, Err(AnswerUnclear::Signed(TokenError::Claim(_)))), "{iat}");
        }
    }

    #[test]
    fn the_key_decides_the_algorithm() {
        let (server, other) = (Server::new(SigningAlgorithm::Es256), Server::new(SigningAlgorithm::Es256));
        let foreign = server.read(&other.signed("token-introspection+jwt", |_| ()));
        assert_eq!(foreign, Err(AnswerUnclear::Keys(TokenError::UnknownKey)), "newer keys may have it");
        let good = server.signed("token-introspection+jwt", |_| ());
        let (head, _) = good.rsplit_once('.').unwrap();
        let (_, signature) = other
            .signed("token-introspection+jwt", |_| ())
            .rsplit_once('.')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_eq!(
            server.read(&format!("{head}.{signature}")),
            Err(AnswerUnclear::Signed(TokenError::BadSignature))
        );
        let only: AlgorithmSet = [Algorithm::Rs256].into_iter().collect();
        let strict = expected().with_algorithms(only).unwrap();
        let at = QueryTimes { sent_at: Timestamp::from_secs(NOW), read_at: Timestamp::from_secs(NOW) };
        let verdict = read(good.as_bytes(), &strict, &server.keys, &authority(), at);
        assert_eq!(verdict, Err(AnswerUnclear::Signed(TokenError::AlgorithmNotAllowed)));
        // {"alg":"none","typ":"token-introspection+jwt"}
        let payload = head.split('.').nth(1).unwrap();
        let unsigned = format!("eyJhbGciOiJub25lIiwidHlwIjoidG9rZW4taW50cm9zcGVjdGlvbitqd3QifQ.{payload}.");
        assert_eq!(server.read(&unsigned), Err(AnswerUnclear::Signed(TokenError::Unsigned)));
    }

    #[test]
    fn what_is_not_signed_says_nothing() {
        let server = Server::new(SigningAlgorithm::Es256);
        let plain = answer()["token_introspection"].to_string();
        assert_eq!(server.read(&plain), Err(AnswerUnclear::Signed(TokenError::NotJwt)));
        assert_eq!(server.read(""), Err(AnswerUnclear::Signed(TokenError::NotJwt)));
        assert_eq!(server.read("a.b.c.d.e"), Err(AnswerUnclear::Signed(TokenError::Encrypted)));
        let good = server.signed("token-introspection+jwt", |_| ());
        let spaced = server.read(&format!("{good}\n"));
        assert_eq!(spaced, Err(AnswerUnclear::Signed(TokenError::Base64(Part::Signature))));
    }

    #[test]
    fn the_introspection_is_a_member_of_its_own() {
        let server = Server::new(SigningAlgorithm::Es256);
        for introspection in [json!(null), json!("{}"), json!([]), json!(true)] {
            let verdict = server.says(|claims| claims["token_introspection"] = introspection.clone());
            assert_eq!(verdict, Err(AnswerUnclear::Member("token_introspection")), "{introspection}");
        }
        let outside = server.says(|claims| {
            claims["active"] = true.into();
            claims["sub"] = "u1".into();
            drop(claims.as_object_mut().unwrap().remove("token_introspection"));
        });
        assert_eq!(outside, Err(AnswerUnclear::Member("token_introspection")));
        for active in [json!("true"), json!(1), json!(null)] {
            let verdict = server.says(|claims| claims["token_introspection"]["active"] = active.clone());
            assert_eq!(verdict, Err(AnswerUnclear::Member("active")), "{active}");
        }
    }
}
