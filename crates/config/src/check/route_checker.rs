//! Route checker: checks a route that comes from another source than the file, such as an object of
//! a cluster.
//!
//! Owns: checking one route by itself, against the operator's file. Does not own: which requests the
//! route matches, and that routes of several sources do not get in each other's way (the caller).
//!
//! The route is checked by the same functions as one of the file. It may refer to what the operator
//! has configured: policies, issuers, authorizers, CORS policies. It cannot refer to upstreams of the
//! file, and no file of this machine is read for it.

use std::path::Path;
use std::sync::Arc;

use auth::time::Timestamp;
use gateway::config::Route;

use super::super::fault::{Fault, KeyPath};
use super::super::files::NoFiles;
use super::super::raw;
use super::routes::{self, Shared};
use super::{Context, UpstreamNumbers, gateway_api};
use crate::partial::Partial;

/// Checks routes against a file. A clone shares what is known of the file.
#[derive(Clone)]
pub struct RouteChecker {
    file: Arc<Partial>,
    shared: Arc<Shared>,
}

impl RouteChecker {
    pub(super) fn new(file: &raw::File, shared: Shared) -> Self {
        let mut file = file.clone();
        // Listeners and routes of the file say nothing about other routes.
        file.listener.clear();
        file.route.clear();
        file.upstream.clear();
        Self { file: Arc::new(Partial::whole(file)), shared: Arc::new(shared) }
    }

    /// Whether policies of the cluster may use a field (`gateway_api.policies_may_use`).
    pub fn permits(&self, field: raw::PolicyPermission) -> bool {
        gateway_api::permits(&self.file.file, field)
    }

    /// Checks a route, whose upstreams have the numbers that `upstreams` finds.
    ///
    /// # Errors
    /// Every fault in the route.
    pub fn check(
        &self,
        raw: &raw::Route,
        upstreams: &UpstreamNumbers<'_>,
        now: Timestamp,
    ) -> Result<Route, Vec<Fault>> {
        let mut context = Context::new(&NoFiles, Path::new("/"), now);
        context.other_upstreams = Some(upstreams);
        let (path, sound, shared) = (KeyPath::default(), &*self.file, &*self.shared);
        let policy = routes::policy(raw, &path, sound, (&shared.policies, &shared.claims), &mut context);
        let route = routes::one(raw, &path, sound, (policy, shared), &mut context);
        let faults = context.faults.into_faults();
        match route {
            Some(route) if faults.is_empty() => Ok(route),
            _ => Err(faults),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{ConfigSource, load};
    use super::*;

    const FILE: &str = r#"
[[listener]]
name = "main"
address = "127.0.0.1:0"
[[issuer]]
name = "corp"
issuer = "https://id.example"
audiences = ["app"]
[[upstream]]
name = "internal"
endpoints = ["http://127.0.0.1:1"]
[[route]]
name = "all"
upstream = "internal"
policy = "staff"
[policies.staff]
allow = [{ groups = { any = ["staff"] } }]
"#;

    fn checker() -> RouteChecker {
        let source = ConfigSource { name: "f", text: FILE, base: Path::new("/"), files: &NoFiles };
        load(source, Timestamp::from_secs(0), 1).unwrap_or_else(|e| panic!("{}", e.report)).route_checker
    }

    fn check(route: &str) -> Result<Route, String> {
        let raw: raw::Route = toml::from_str(&format!("name = \"r\"\n{route}")).unwrap();
        let numbers = |name: &str| (name == "team.app.80").then_some(17);
        let checked = checker().check(&raw, &numbers, Timestamp::from_secs(0));
        checked.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn a_route_may_refer_to_what_the_operator_has_configured() {
        let to_app = "upstreams = [{ upstream = \"team.app.80\" }, { status = 500 }]\n";
        let route = check(&format!("{to_app}policy = \"staff\"")).unwrap();
        assert_eq!(route.reached_upstreams().collect::<Vec<_>>(), [17]);
        assert!(matches!(route.policy, auth::policy::rule::Policy::Rules(_)));
        assert!(check(&format!("{to_app}policy = {{ allow = [{{ issuers = [\"corp\"] }}] }}")).is_ok());
        assert!(check(&format!("{to_app}public = true")).is_ok());
    }

    #[test]
    fn a_fault_names_the_key_and_a_remedy() {
        let to_app = "upstream = \"team.app.80\"\n";
        for (route, fault) in [
            ("upstream = \"internal\"\npublic = true", "upstream: there is no upstream \"internal\""),
            (
                &*format!("{to_app}policy = \"stuff\""),
                "policy: there is no policy \"stuff\"; did you mean \"staff\"?",
            ),
            (
                &format!("{to_app}policy = {{ allow = [{{ issuers = [\"crop\"] }}] }}"),
                "policy.allow[0].issuers: there is no issuer \"crop\"; did you mean \"corp\"?",
            ),
            (to_app, "the route \"r\" has no policy"),
        ] {
            let faults = check(route).err().unwrap_or_default();
            assert!(faults.contains(fault), "{route}: {faults}");
        }
    }

    #[test]
    fn no_file_of_this_machine_is_read() {
        let headers = "request_headers = { set = { X-Key = { file = \"/etc/hostname\" } } }";
        let faults = check(&format!("upstream = \"team.app.80\"\npublic = true\n{headers}"));
        let faults = faults.err().unwrap_or_default();
        assert!(faults.contains("/etc/hostname"), "{faults}");
    }
}
