//! What the data plane reports, in the status of objects.

use controller::names::{Kind, NamespacedName};
use controller::plan::{
    DataPlaneReport, ListenerFault, ListenerId, PlanFault, PlanId, SocketId, UpstreamKey,
};
use controller::world::Event;
use serde_json::Value;

use crate::cluster::{Cluster, gateway, ingress_cluster, key, service};

const ACCEPTED: &str = "Accepted";
const PARTIAL: &str = "PartiallyInvalid";
const POLICY: &str = "access.postern.dev/PolicyApplied";

/// A Gateway with two listeners, a ListenerSet with one, and the route `route` with two rules, which a
/// policy of its Gateway protects.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let listeners =
        "  - {name: alt, port: 81, protocol: HTTP}\n  allowedListeners: {namespaces: {from: All}}\n";
    cluster.apply(&format!("{}{listeners}", gateway("gw")));
    cluster.apply(&service("web"));
    cluster.apply(
        "kind: ListenerSet
metadata: {name: ls}
spec: {parentRef: {name: gw}, listeners: [{name: extra, port: 82, protocol: HTTP}]}
---
kind: AccessPolicy
metadata: {name: staff}
spec: {targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: gw}], defaults: {}}",
    );
    cluster.apply(&route(""));
    cluster.addresses("gw", &["192.0.2.1"], &[]);
    cluster.settle();
    cluster
}

/// `more` is a part of the second rule.
fn route(more: &str) -> String {
    format!(
        "kind: HTTPRoute
metadata: {{name: route}}
spec:
  parentRefs: [{{name: gw}}]
  rules:
  - {{matches: [{{path: {{value: /one}}}}], backendRefs: [{{name: web, port: 8080}}]}}
  - {{{more}backendRefs: [{{name: web, port: 8080}}]}}"
    )
}

fn rule(number: u16) -> PlanId {
    PlanId { route: key(Kind::HttpRoute, "route"), rule: number, matched: 0 }
}

fn fault(policy: Option<&str>, problem: &str) -> PlanFault {
    PlanFault { policy: policy.map(|name| NamespacedName::new("infra", name)), problem: problem.to_owned() }
}

/// Reports faults of rules. Answers how many status documents differ.
fn report_rules(cluster: &mut Cluster, rules: Vec<(PlanId, PlanFault)>) -> usize {
    report(cluster, DataPlaneReport { rules, ..DataPlaneReport::default() })
}

fn report(cluster: &mut Cluster, report: DataPlaneReport) -> usize {
    cluster.world.apply(Event::Reported(report));
    let changes = cluster.settle();
    assert!(changes.is_empty() && changes.recomputed.routes == 0, "a report changes only status");
    changes.statuses.len()
}

fn conditions(cluster: &Cluster) -> [String; 3] {
    [ACCEPTED, PARTIAL, POLICY].map(|of_type| cluster.parent(Kind::HttpRoute, "route", 0, of_type))
}

fn message(cluster: &Cluster, kind: Kind, name: &str, list: &str, of_type: &str) -> String {
    let entry: &Value = &cluster.status(kind, name)[list][0];
    Cluster::message(&entry["conditions"], of_type)
}

#[test]
fn a_rule_that_is_not_carried_out_is_in_the_status_until_it_changes() {
    let mut cluster = cluster();
    let sound = ["True Accepted", "-", "True Applied"];
    assert_eq!(conditions(&cluster), sound);
    assert_eq!(report_rules(&mut cluster, vec![(rule(1), fault(None, "too long"))]), 1);
    let partial = ["True Accepted", "True UnsupportedValue", "True Applied"];
    assert_eq!(conditions(&cluster), partial);
    let text = message(&cluster, Kind::HttpRoute, "route", "parents", PARTIAL);
    assert_eq!(text, "Dropped Rule(s) 1: rule 1 is not carried out as it is written: too long");
    // The other rule is derived again, and is as it was.
    cluster.apply(&service("web").replace("8080", "8081"));
    cluster.apply(&service("web"));
    cluster.settle();
    assert_eq!(conditions(&cluster), partial);
    assert_eq!(report_rules(&mut cluster, vec![(rule(0), fault(None, "too short"))]), 1);
    assert_eq!(conditions(&cluster), ["False UnsupportedValue", "-", "True Applied"]);
    let text = message(&cluster, Kind::HttpRoute, "route", "parents", ACCEPTED);
    assert_eq!(text, "rule 0 is not carried out as it is written: too short");
    cluster.apply(&route("matches: [{path: {value: /two}}], "));
    cluster.settle();
    assert_eq!(conditions(&cluster), ["True Accepted", "True UnsupportedValue", "True Applied"]);
    // A whole report is about all rules.
    let whole = DataPlaneReport { is_whole: true, ..DataPlaneReport::default() };
    assert_eq!(report(&mut cluster, whole.clone()), 1);
    assert_eq!(conditions(&cluster), sound);
    assert_eq!(report(&mut cluster, whole), 0);
}

#[test]
fn a_fault_that_stays_is_written_once() {
    let mut cluster = cluster();
    report_rules(&mut cluster, vec![(rule(1), fault(None, "too long"))]);
    cluster.apply(&route("matches: [{path: {value: /two}}], "));
    let mut changes = cluster.world.derive();
    assert!(changes.plans.contains_key(&rule(1)));
    let rules = vec![(rule(1), fault(None, "too long"))];
    cluster.world.apply(Event::Reported(DataPlaneReport { rules, ..DataPlaneReport::default() }));
    cluster.world.derive_statuses(5, &mut changes);
    let [document] = &changes.statuses[..] else { panic!("{:?}", changes.statuses) };
    assert!(document.body.contains("too long"), "{}", document.body);
}

#[test]
fn a_policy_that_does_not_fit_a_rule_says_so_as_its_route_does() {
    let mut cluster = cluster();
    let rules =
        vec![(rule(0), fault(Some("staff"), "no label")), (rule(1), fault(Some("staff"), "no label"))];
    assert_eq!(report_rules(&mut cluster, rules), 2);
    assert_eq!(conditions(&cluster), ["True Accepted", "-", "False InvalidPolicy"]);
    let text = message(&cluster, Kind::HttpRoute, "route", "parents", POLICY);
    assert_eq!(
        text,
        "AccessPolicy infra/staff does not fit: rule 0 is not carried out as it is written: no label"
    );
    let of_policy = |cluster: &Cluster| {
        [ACCEPTED, PARTIAL].map(|of_type| cluster.ancestor(Kind::AccessPolicy, "staff", 0, of_type))
    };
    assert_eq!(of_policy(&cluster), ["True Accepted", "True UnsupportedValue"]);
    let text = message(&cluster, Kind::AccessPolicy, "staff", "ancestors", PARTIAL);
    assert_eq!(text, "these requests are refused: HTTPRoute infra/route rule 0, and one more rule: no label");
    cluster.remove(Kind::HttpRoute, "route");
    cluster.settle();
    assert_eq!(of_policy(&cluster), ["True Accepted", "-"]);
}

#[test]
fn a_listener_that_is_not_served_is_not_programmed() {
    let mut cluster = cluster();
    let socket = |port: u16| SocketId { gateway: NamespacedName::new("infra", "gw"), port };
    let programmed = |cluster: &Cluster| {
        let of = |kind, name, listener| cluster.listener(kind, name, listener, "Programmed");
        [
            of(Kind::Gateway, "gw", "http"),
            of(Kind::Gateway, "gw", "alt"),
            of(Kind::ListenerSet, "ls", "extra"),
            cluster.condition(Kind::Gateway, "gw", "Programmed"),
        ]
    };
    let sound = "True Programmed";
    assert_eq!(programmed(&cluster), [sound; 4]);
    let listener = ListenerId { parent: key(Kind::Gateway, "gw"), section: "http".into() };
    let one = |port, listener| ListenerFault { socket: socket(port), listener, problem: "expired".into() };
    let gateways = vec![NamespacedName::new("infra", "gw")];
    let listeners = vec![one(80, Some(listener.clone())), one(82, None)];
    report(
        &mut cluster,
        DataPlaneReport { gateways: gateways.clone(), listeners, ..DataPlaneReport::default() },
    );
    assert_eq!(programmed(&cluster), ["False Invalid", sound, "False Invalid", sound]);
    let status = cluster.listener_status(Kind::Gateway, "gw", "http");
    assert_eq!(Cluster::message(&status["conditions"], "Programmed"), "expired");
    let listeners = vec![one(80, Some(listener)), one(81, None), one(82, None)];
    report(
        &mut cluster,
        DataPlaneReport { gateways: gateways.clone(), listeners, ..DataPlaneReport::default() },
    );
    assert_eq!(programmed(&cluster), ["False Invalid"; 4]);
    report(&mut cluster, DataPlaneReport { gateways, ..DataPlaneReport::default() });
    assert_eq!(programmed(&cluster), [sound; 4]);
}

#[test]
fn a_backend_that_cannot_be_used_is_not_resolved() {
    let mut cluster = cluster();
    let upstream = cluster.world.desired_state().upstreams.keys().next().cloned().unwrap();
    let report_of = |upstream: &UpstreamKey| DataPlaneReport {
        upstreams: vec![(upstream.clone(), "upstream infra/web:8080: no authority".to_owned())],
        ..DataPlaneReport::default()
    };
    assert_eq!(report(&mut cluster, report_of(&upstream)), 1);
    let resolved = |cluster: &Cluster| cluster.parent(Kind::HttpRoute, "route", 0, "ResolvedRefs");
    assert_eq!(resolved(&cluster), "False BackendNotFound");
    cluster.remove(Kind::HttpRoute, "route");
    cluster.settle();
    cluster.apply(&route(""));
    cluster.settle();
    assert_eq!(resolved(&cluster), "True ResolvedRefs", "the upstream is a new one");
}

#[test]
fn an_openshift_route_that_is_not_carried_out_is_not_admitted() {
    let mut cluster = ingress_cluster();
    cluster.apply(
        "kind: Route\nmetadata: {name: app, namespace: team-a}\nspec: {host: app.test, to: {kind: Service, name: web}}",
    );
    cluster.settle();
    let admitted = |cluster: &Cluster| {
        let entry = &cluster.status(Kind::OpenShiftRoute, "team-a/app")["ingress"][0];
        entry["conditions"][0]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(admitted(&cluster), "True");
    let plans = cluster.plans_of(Kind::OpenShiftRoute, "team-a/app");
    let forwards = plans.iter().filter(|plan| !plan.is_exempt());
    let rules: Vec<_> = forwards.map(|plan| (plan.id.clone(), fault(None, "too long"))).collect();
    assert!(!rules.is_empty() && rules.len() < plans.len());
    assert_eq!(report_rules(&mut cluster, rules), 1);
    assert_eq!(admitted(&cluster), "False");
}
