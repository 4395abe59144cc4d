//! Readiness: whether a gateway can still admit requests when some of its issuers are unreachable.
//!
//! Owns: the ways in which a request can be admitted, and the issuer that each depends on. Does not
//! own: whether an issuer is reachable ([`crate::revocation`]), the text of `/readyz`
//! ([`crate::process`]).

use auth::policy::rule::Policy;
use gateway::config::Config;
use login::config::LoginKind;

/// Whether some request may be admitted although the issuers in `gone` are unreachable. One
/// remaining way is enough, whichever callers can use it. Other unreachable issuers only appear in
/// a note.
pub(crate) fn can_admit(config: &Config, gone: impl Fn(&str) -> bool) -> bool {
    let authentication = &config.authentication;
    if authentication.certificates.is_some()
        || config.routing.routes().any(|route| matches!(route.policy, Policy::Public) && !route.is_closed)
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
    // A way that depends on no followed issuer counts as open: other checks cover it.
    issuers.chain(authorities).chain(logins).any(|issuer| !issuer.is_some_and(&gone))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use auth::policy::route::{CheckedRoute, Order, PathMatch, RouteMatch};
    use auth::time::Timestamp;
    use gateway::config::Route;

    use super::*;
    use config::{ConfigSource, NoFiles};

    const ISSUER: &str =
        "[[issuer]]\nname = \"NAME\"\nissuer = \"https://NAME.example\"\naudiences = [\"orders\"]\n";
    const ALL: &str = "policy = { allow = [{ authenticated = true }] }";
    const AUTHORITY: &str = "[[token_authority]]\nname = \"opaque\"\nkind = \"introspection\"\nurl = \"https://c.example/introspect\"\n\
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
        let (a, b) = (ISSUER.replace("NAME", "a"), ISSUER.replace("NAME", "b"));
        let of_a = format!("{AUTHORITY}issuer = \"https://a.example\"\n");
        let gone = |issuers: &'static [&str]| move |issuer: &str| issuers.contains(&issuer);
        let (only_a, both) = (&["https://a.example"][..], &["https://a.example", "https://b.example"][..]);
        for (policy, more, issuers, expected) in [
            (ALL, vec![&*a], &[][..], true),
            (ALL, vec![&*a], only_a, false),
            (ALL, vec![&*a, &b], only_a, true),
            // One log may report both issuers.
            (ALL, vec![&*a, &b], both, false),
            (ALL, vec![&*a, AUTHORITY], only_a, true),
            (ALL, vec![&*a, &of_a], only_a, false),
            ("public = true", vec![&*a], only_a, true),
        ] {
            assert_eq!(
                can_admit(&configured(policy, &more), gone(issuers)),
                expected,
                "{policy} {more:?} {issuers:?}"
            );
        }
    }

    /// The cluster closes a route by refusing its requests, whatever its policy says.
    #[test]
    fn a_closed_route_admits_nobody() {
        let mut config = configured("public = true", &[]);
        let public = config.routing.routes().next().unwrap().clone();
        let conditions = RouteMatch {
            name: "closed".into(),
            hosts: Vec::new(),
            path: PathMatch::Prefix("/".into()),
            methods: Vec::new(),
            exact_methods: false,
            headers: Vec::new(),
            query: Vec::new(),
        };
        let order = Order { created: 0, object: "team/closed".into(), position: 0 };
        let gone = |_: &str| true;
        for (is_closed, expected) in [(false, true), (true, false)] {
            config.routing = configured(ALL, &[&ISSUER.replace("NAME", "a")]).routing;
            let at = config.routing.first_free().route;
            let matcher = CheckedRoute::new(conditions.clone(), order.clone()).unwrap();
            let route = Route { is_closed, ..(*public).clone() };
            config.routing.insert_route(at, matcher, Vec::new(), Arc::new(route));
            assert_eq!(can_admit(&config, gone), expected);
        }
    }
}
