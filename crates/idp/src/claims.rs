//! Claims: the standard claims about users, and the names that no attribute or mapping may have.
//!
//! Owns: which claim belongs to which scope (OpenID Connect Core 1.0 §5.4), which claims an
//! account's record holds, reserved names. Does not own: the claims of one user
//! ([`crate::person`]).

/// Claims of each scope that come from the account's record. `preferred_username` and `updated_at`
/// come from the account itself.
const CLAIMS_BY_SCOPE: [(&str, &[&str]); 3] = [
    (
        "profile",
        &[
            "name",
            "family_name",
            "given_name",
            "middle_name",
            "nickname",
            "preferred_username",
            "profile",
            "picture",
            "website",
            "gender",
            "birthdate",
            "zoneinfo",
            "locale",
            "updated_at",
        ],
    ),
    ("address", &["address"]),
    ("phone", &["phone_number", "phone_number_verified"]),
];
/// Claims of the scope `email`, from the account itself.
const EMAIL: [&str; 2] = ["email", "email_verified"];

/// Claims and members of introspections that the protocols or the provider define, besides those
/// about a user.
const PROTOCOL_CLAIMS: [&str; 27] = [
    "iss",
    "aud",
    "exp",
    "iat",
    "nbf",
    "jti",
    "client_id",
    "scope",
    "sid",
    "azp",
    "nonce",
    "auth_time",
    "acr",
    "amr",
    "at_hash",
    "c_hash",
    "cnf",
    "act",
    "may_act",
    "events",
    "active",
    "username",
    "token_type",
    "family",
    "read_at",
    "revocation_tags",
    "_claim_names",
];

/// All standard claims about a user.
pub fn claim_names() -> impl Iterator<Item = &'static str> {
    let of_scopes = CLAIMS_BY_SCOPE.iter().flat_map(|(_, names)| names.iter().copied());
    ["sub"].into_iter().chain(of_scopes).chain(EMAIL).chain(["groups"])
}

/// The scope that a claim belongs to; `None`: it is not a claim about a user.
pub fn scope_of(claim: &str) -> Option<&'static str> {
    match claim {
        "email" | "email_verified" => Some("email"),
        "groups" => Some("groups"),
        _ => CLAIMS_BY_SCOPE.iter().find(|(_, names)| names.contains(&claim)).map(|(scope, _)| *scope),
    }
}

/// Whether the protocols or the provider define this claim, so that neither an attribute nor a
/// mapping may have its name.
pub fn is_reserved_claim(name: &str) -> bool {
    PROTOCOL_CLAIMS.contains(&name) || claim_names().any(|claim| claim == name)
}

/// Whether an account's record may hold this standard claim; the provider itself determines the others.
pub fn may_be_recorded(claim: &str) -> bool {
    let own = ["preferred_username", "updated_at"];
    !own.contains(&claim) && CLAIMS_BY_SCOPE.iter().any(|(_, names)| names.contains(&claim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_belongs_to_a_scope() {
        assert!(claim_names().all(|name| name == "sub" || scope_of(name).is_some()));
        assert_eq!(scope_of("auth_time"), None);
    }

    #[test]
    fn names_of_the_protocols_are_reserved() {
        for name in ["sub", "email", "groups", "iss", "revocation_tags", "phone_number_verified"] {
            assert!(is_reserved_claim(name), "{name}");
        }
        assert!(!is_reserved_claim("department") && !is_reserved_claim("roles"));
    }
}
