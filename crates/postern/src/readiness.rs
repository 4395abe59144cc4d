//! Whether requests are worth being sent to a gateway whose issuers are not heard of.
//!
//! Owns: which ways there are to be admitted, and whose word each rests on. Does not own: whether somebody is heard of
//! ([`crate::revocation`]), what is said ([`crate::process`]).

use auth::policy::rule::Policy;
use gateway::config::Config;
use login::config::LoginKind;

/// Whether some request may be admitted although tokens of those issuers that are `gone` are not. A way counts whoever may use it: what the
/// others hear is said in a line.
pub(crate) fn admits(config: &Config, gone: impl Fn(&str) -> bool) -> bool {
    let authentication = &config.authentication;
    if authentication.certificates.is_some()
        || config.routes.iter().any(|route| matches!(route.policy, Policy::Public))
    {
        return true;
    }
    let issuers = authentication.issuers.iter().map(|issuer| Some(issuer.config.issuer()));
    let authorities = authentication.authorities.iter().map(|one| one.config.issuer.as_deref());
    let providers = config.login.iter().flat_map(|login| &login.providers);
    let logins = providers.map(|provider| match &provider.kind {
        LoginKind::OpenId { issuer, .. } => Some(&**issuer),
        LoginKind::OpenShift { .. } => None,
    });
    // What rests on nobody's word who is followed is asked for elsewhere.
    issuers.chain(authorities).chain(logins).any(|issuer| !issuer.is_some_and(&gone))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use auth::time::Timestamp;

    use super::*;
    use config::{ConfigSource, NoFiles};

    const ISSUER: &str =
        "[[issuer]]\nname = \"NAME\"\nissuer = \"https://NAME.example\"\naudiences = [\"orders\"]\n";
    const AUTHORITY: &str = "[[authority]]\nname = \"opaque\"\nkind = \"introspection\"\nurl = \"https://c.example/introspect\"\n\
         prefixes = [\"c_\"]\naudiences = [\"orders\"]\n";

    fn configured(policy: &str, more: &[&str]) -> Config {
        let text = format!(
            "[[listener]]\nname = \"main\"\naddress = \"127.0.0.1:0\"\n{}\
             [[upstream]]\nname = \"service\"\nendpoints = [\"http://127.0.0.1:1\"]\n\
             [[route]]\nname = \"all\"\npath = {{ prefix = \"/\" }}\nupstream = \"service\"\n{policy}\n",
            more.concat()
        );
        let source =
            ConfigSource { name: "postern.toml", text: &text, base: Path::new("/"), files: &NoFiles };
        let loaded = config::load(source, Timestamp::from_secs(1_800_000_000), 1);
        loaded.unwrap_or_else(|refused| panic!("{text}\n{:?}", refused.report)).config
    }

    #[test]
    fn one_way_to_be_admitted_is_enough() {
        const ALL: &str = "policy = { allow = [{ authenticated = true }] }";
        let (a, b) = (ISSUER.replace("NAME", "a"), ISSUER.replace("NAME", "b"));
        let of_a = format!("{AUTHORITY}issuer = \"https://a.example\"\n");
        let gone = |issuers: &'static [&str]| move |issuer: &str| issuers.contains(&issuer);
        let (only_a, both) = (&["https://a.example"][..], &["https://a.example", "https://b.example"][..]);
        for (policy, more, issuers, expected) in [
            (ALL, vec![&*a], &[][..], true),
            (ALL, vec![&*a], only_a, false),
            (ALL, vec![&*a, &b], only_a, true),
            // Told of by one log, perhaps.
            (ALL, vec![&*a, &b], both, false),
            (ALL, vec![&*a, AUTHORITY], only_a, true),
            (ALL, vec![&*a, &of_a], only_a, false),
            ("public = true", vec![&*a], only_a, true),
        ] {
            assert_eq!(
                admits(&configured(policy, &more), gone(issuers)),
                expected,
                "{policy} {more:?} {issuers:?}"
            );
        }
    }
}
