//! Listeners of Gateways whose certificates arrive late, or disappear.

use dataplane::certificates::Authority;

use crate::ingress::{get_secure, secret};
use crate::objects::Cluster;
use crate::{DEVELOPERS, EVERYBODY, cluster, policy};

/// A Gateway `web` with these HTTPS listeners, each with its hostname and the name of its Secret.
fn gateway(cluster: &mut Cluster, listeners: &[(&str, &str, &str)]) {
    let listener = |(name, hostname, secret): &(&str, &str, &str)| {
        format!(
            "  - {{name: {name}, port: 443, protocol: HTTPS, hostname: '{hostname}', \
             tls: {{certificateRefs: [{{name: {secret}}}]}}}}\n"
        )
    };
    let listeners: String = listeners.iter().map(listener).collect();
    let head = "kind: Gateway\nmetadata: {name: web}\nspec:\n  gatewayClassName: postern\n  listeners:\n";
    cluster.apply(&format!("{head}{listeners}"));
}

/// A route of the Gateway `web` to the service `app`, with these hostnames.
fn route(name: &str, hostnames: &str) -> String {
    format!(
        "kind: HTTPRoute
metadata: {{name: {name}}}
spec:
  parentRefs: [{{name: web}}]
  hostnames: [{hostnames}]
  rules:
  - backendRefs: [{{name: app, port: 80}}]"
    )
}

fn policy_of_listener(name: &str, listener: &str, body: &str) -> String {
    format!(
        "kind: AccessPolicy
metadata: {{name: {name}}}
spec:
  targetRefs: [{{group: gateway.networking.k8s.io, kind: Gateway, name: web, sectionName: {listener}}}]
  {body}"
    )
}

#[test]
fn a_route_is_served_when_the_certificate_arrives_after_it() {
    let (mut cluster, _pod) = cluster();
    let authority = Authority::new("team");
    gateway(&mut cluster, &[("tls", "app.test", "app-tls")]);
    cluster.apply(&route("app", "app.test"));
    cluster.apply(&policy("open", "app", EVERYBODY));
    cluster.publish();
    cluster.apply(&secret("app-tls", &authority, "app.test"));
    cluster.publish();
    assert_eq!(get_secure(&cluster, &authority, "/", "").0, 200);
    cluster.remove("Secret", "app-tls");
    cluster.publish();
    cluster.apply(&secret("app-tls", &authority, "app.test"));
    cluster.publish();
    assert_eq!(get_secure(&cluster, &authority, "/", "").0, 200, "and when it comes back");
}

#[test]
fn a_listener_without_its_certificate_leaves_its_routes_to_no_other_listener() {
    let (mut cluster, pod) = cluster();
    let authority = Authority::new("team");
    gateway(&mut cluster, &[("tls", "app.test", "app-tls")]);
    cluster.apply(&secret("app-tls", &authority, "app.test"));
    cluster.apply(&route("app", ""));
    cluster.apply(&policy("open", "app", EVERYBODY));
    cluster.publish();
    assert_eq!(get_secure(&cluster, &authority, "/", "").0, 200);
    assert_eq!(pod.seen().len(), 1);
    cluster.remove("Secret", "app-tls");
    cluster.publish();
    cluster.apply(
        "
kind: Gateway
metadata: {name: gw}
spec:
  gatewayClassName: postern
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: new, port: 80, protocol: HTTP, hostname: new.test}
",
    );
    cluster.publish();
    assert_eq!(cluster.get("new.test", "/", "").status, 404, "nothing is attached to the new listener");
    assert_eq!(pod.seen().len(), 1);
}

#[test]
fn a_host_whose_listener_lost_its_certificate_is_not_served_by_a_broader_one() {
    let (mut cluster, pod) = cluster();
    let authority = Authority::new("team");
    gateway(&mut cluster, &[("admin", "app.test", "admin-tls"), ("apps", "*.test", "apps-tls")]);
    // Both for the same name: clients get a certificate that they accept.
    cluster.apply(&secret("admin-tls", &authority, "app.test"));
    cluster.apply(&secret("apps-tls", &authority, "app.test"));
    cluster.apply(&route("console", "app.test"));
    cluster.apply(&policy_of_listener("strict", "admin", &format!("overrides: {DEVELOPERS}")));
    cluster.apply(&policy_of_listener("open", "apps", &format!("defaults: {EVERYBODY}")));
    cluster.publish();
    assert_eq!(get_secure(&cluster, &authority, "/", "").0, 401);
    cluster.remove("Secret", "admin-tls");
    cluster.publish();
    assert_eq!(get_secure(&cluster, &authority, "/", "").0, 404);
    assert!(pod.seen().is_empty());
    cluster.apply(&secret("admin-tls", &authority, "app.test"));
    cluster.publish();
    assert_eq!(get_secure(&cluster, &authority, "/", "").0, 401);
}
