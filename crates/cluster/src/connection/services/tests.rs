//! Tests: Services of Gateways from what is seen and what is wanted.

use controller::plan::{SocketPlan, SocketProtocol};

use super::*;

fn services(ports: RangeInclusive<u16>) -> Services {
    of_installation("internal", ports)
}

fn of_installation(name: &str, ports: RangeInclusive<u16>) -> Services {
    let selector = [("app".to_owned(), "postern".to_owned())].into();
    Services::new(ServiceSettings {
        namespace: "postern".into(),
        installation: name.into(),
        selector,
        ports,
        external_traffic_policy: ExternalTrafficPolicy::default(),
    })
}

fn plan(name: &str, ports: &[u16]) -> GatewayPlan {
    let gateway = NamespacedName::new("team", name);
    let socket = |port: &u16| SocketPlan {
        id: SocketId { gateway: gateway.clone(), port: *port },
        protocol: SocketProtocol::Http,
        listeners: Vec::new(),
        reserved_hosts: Vec::new(),
        certificates: Vec::new(),
    };
    GatewayPlan {
        sockets: ports.iter().map(socket).collect(),
        gateway: gateway.clone(),
        created: 0,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        requested_addresses: Vec::new(),
    }
}

fn wanted(services: &mut Services, name: &str, ports: &[u16]) -> WantedService {
    services.wanted(&plan(name, ports)).0.unwrap()
}

fn target(services: &Services, name: &str, port: u16) -> Option<u16> {
    services.target(&SocketId { gateway: NamespacedName::new("team", name), port })
}

#[test]
fn each_port_of_a_gateway_gets_a_port_that_stays() {
    let mut services = services(20_000..=20_002);
    let WantedService { name, body: first } = wanted(&mut services, "a", &[80, 443]);
    assert!(name.starts_with("gw-a-"), "{name}");
    assert_eq!(services.set(&first), Some(NamespacedName::new("team", "a")));
    assert_eq!(services.set(&first), None, "nothing differs");
    assert_eq!((target(&services, "a", 80), target(&services, "a", 443)), (Some(20_000), Some(20_001)));
    assert_eq!(services.wanted(&plan("a", &[80, 443])), (None, None));
    // Two are wanted before one is seen.
    let (b, c) = (wanted(&mut services, "b", &[80]), services.wanted(&plan("c", &[80])));
    assert!(c.1.is_some_and(|error| error.port == 80), "one port was left");
    assert_eq!(services.may_get_ports(), []);
    services.not_written(&NamespacedName::new("team", "b"), None);
    assert_eq!(services.may_get_ports(), [NamespacedName::new("team", "c")]);
    assert_eq!(wanted(&mut services, "b", &[80]).body, b.body);
    services.set(&b.body);
    assert_eq!(target(&services, "b", 80), Some(20_002));
    // A port is gone, another one comes.
    let fewer = wanted(&mut services, "a", &[443]);
    services.set(&fewer.body);
    assert_eq!((target(&services, "a", 80), target(&services, "a", 443)), (None, Some(20_001)));
    let c = wanted(&mut services, "c", &[80]);
    services.set(&c.body);
    assert_eq!(target(&services, "c", 80), Some(20_000));
    let full = services.wanted(&plan("d", &[80])).1.unwrap().to_string();
    assert!(full.starts_with("no port from 20000 to 20002 is left for port 80 of Gateway team/d"), "{full}");
    assert_eq!(services.orphans(|gateway| &*gateway.name != "b").len(), 1);
}

#[test]
fn addresses_are_those_of_the_load_balancer() {
    let mut services = services(20_000..=20_002);
    let WantedService { name, body: mut object } = wanted(&mut services, "a", &[80]);
    let gateway = NamespacedName::new("team", "a");
    services.set(&object);
    assert_eq!(services.addresses(&gateway), GatewayAddresses::default());
    object["status"] = json!({ "loadBalancer": { "ingress": [{ "ip": "10.1.2.3" }] } });
    assert_eq!(services.set(&object), Some(gateway.clone()));
    assert_eq!(services.addresses(&gateway).assigned, ["10.1.2.3"]);
    object["status"] = json!({ "loadBalancer": { "ingress": [{ "hostname": "lb.example.com" }] } });
    assert_eq!(services.set(&object), Some(gateway.clone()));
    assert_eq!(services.addresses(&gateway).assigned, ["lb.example.com"]);
    object["metadata"]["namespace"] = json!("elsewhere");
    assert_eq!(services.set(&object), None, "another namespace");
    assert_eq!(services.remove(&NamespacedName::new("postern", &*name)), Some(gateway.clone()));
    assert_eq!(services.addresses(&gateway), GatewayAddresses::default());
}

#[test]
fn a_gateway_without_enough_ports_has_those_that_there_are() {
    let mut services = services(20_000..=20_001);
    let gateway = NamespacedName::new("team", "a");
    let (service, fault) = services.wanted(&plan("a", &[80, 443, 8443]));
    services.set(&service.unwrap().body);
    assert_eq!((target(&services, "a", 80), target(&services, "a", 443)), (Some(20_000), Some(20_001)));
    assert_eq!(services.addresses(&gateway).problem, fault.map(|fault| fault.to_string()));
    // Its ports are kept, whatever else it asks for, and other changes are carried out.
    let mut plan = plan("a", &[79, 80, 443]);
    plan.labels.insert("team".into(), "a".into());
    let (service, fault) = services.wanted(&plan);
    assert_eq!(fault.unwrap().port, 79);
    services.set(&service.unwrap().body);
    assert_eq!((target(&services, "a", 79), target(&services, "a", 80)), (None, Some(20_000)));
    plan.sockets.remove(0);
    assert_eq!(services.wanted(&plan), (None, None));
    assert_eq!(services.addresses(&gateway), GatewayAddresses::default());
}

#[test]
fn a_port_that_was_freed_is_given_last() {
    let mut services = services(20_000..=20_003);
    let mut other = of_installation("internal", 20_000..=20_003);
    for (name, port) in [("a", 20_000), ("b", 20_001)] {
        let body = wanted(&mut services, name, &[80]).body;
        services.set(&body);
        other.set(&body);
        assert_eq!(target(&services, name, 80), Some(port));
    }
    let a = service_name(&NamespacedName::new("team", "a"));
    let b = service_name(&NamespacedName::new("team", "b"));
    for services in [&mut services, &mut other] {
        services.remove(&NamespacedName::new("postern", &*a));
        services.remove(&NamespacedName::new("postern", &*b));
        for (name, port) in [("c", 20_002), ("d", 20_003), ("e", 20_000)] {
            let body = wanted(services, name, &[80]).body;
            services.set(&body);
            assert_eq!(target(services, name, 80), Some(port));
        }
    }
}

#[test]
fn services_of_another_installation_are_left_alone() {
    let (mut ours, mut others) = (services(20_000..=20_009), of_installation("public", 20_000..=20_009));
    let service = wanted(&mut ours, "a", &[80]);
    assert_eq!(others.set(&service.body), None);
    assert_eq!(others.orphans(|_| false), [""; 0]);
    assert_eq!(wanted(&mut others, "b", &[80]).body["spec"]["ports"][0]["targetPort"], 20_000);
    assert!(ours.set(&service.body).is_some());
    assert_eq!(ours.orphans(|_| false), [service.name]);
    // The Gateway becomes another's: so does the Service.
    let taken_over = wanted(&mut others, "a", &[80]);
    assert_eq!(ours.set(&taken_over.body), Some(NamespacedName::new("team", "a")));
    assert_eq!((target(&ours, "a", 80), ours.orphans(|_| false).len()), (None, 0));
}

#[test]
fn a_service_that_does_not_say_whose_it_is_is_adopted_but_not_deleted() {
    let mut services = services(20_000..=20_009);
    let mut object = wanted(&mut services, "a", &[80]).body;
    object["metadata"]["labels"].as_object_mut().unwrap().remove(INSTALLATION);
    object["metadata"].as_object_mut().unwrap().remove("annotations");
    object["spec"]["ports"][0]["targetPort"] = json!(20_005);
    let mut services = of_installation("internal", 20_000..=20_009);
    services.set(&object);
    assert_eq!(services.orphans(|_| false), [""; 0]);
    let adopted = wanted(&mut services, "a", &[80]).body;
    assert_eq!(adopted["spec"]["ports"][0]["targetPort"], 20_005, "it keeps its port");
    services.set(&adopted);
    assert_eq!(services.orphans(|_| false).len(), 1);
}

#[test]
fn whatever_differs_is_written_again() {
    let mut services = services(20_000..=20_009);
    let mut changed = plan("a", &[80]);
    let written = services.wanted(&changed).0.unwrap().body;
    services.set(&written);
    assert_eq!(services.wanted(&changed).0, None);
    changed.annotations.insert("scheme".into(), "internal".into());
    let body = services.wanted(&changed).0.expect("an annotation").body;
    services.set(&body);
    assert_eq!(services.wanted(&changed).0, None);
    changed.annotations.clear();
    assert_eq!(services.wanted(&changed).0.expect("an annotation less").body, written);
    services.set(&written);
    // By hand.
    for (field, value) in [
        ("selector", json!({ "app": "x" })),
        ("type", json!("ClusterIP")),
        ("externalTrafficPolicy", json!("Cluster")),
    ] {
        let mut object = written.clone();
        object["spec"][field] = value;
        assert!(services.set(&object).is_some());
        assert_eq!(services.wanted(&changed).0.expect(field).body, written);
    }
    let mut other = Services::new(ServiceSettings {
        selector: [("app".to_owned(), "other".to_owned())].into(),
        ..services.settings.clone()
    });
    other.set(&written);
    assert!(other.wanted(&changed).0.is_some(), "an upgrade has other labels of pods");
}

#[test]
fn addresses_of_clients_are_kept_unless_the_operator_chooses_otherwise() {
    let mut local = services(20_000..=20_009);
    let written = wanted(&mut local, "a", &[80]).body;
    assert_eq!(written["spec"]["externalTrafficPolicy"], "Local");
    local.set(&written);
    // The API server adds the port at which a node says whether it has a pod.
    let mut object = written.clone();
    object["spec"]["healthCheckNodePort"] = json!(30_001);
    assert_eq!(local.set(&object), None, "nothing of ours differs");
    assert_eq!(local.wanted(&plan("a", &[80])), (None, None));
    // An earlier version wrote no policy, which means `Cluster`.
    object["spec"].as_object_mut().unwrap().remove("externalTrafficPolicy");
    assert_eq!(local.set(&object), Some(NamespacedName::new("team", "a")));
    assert_eq!(wanted(&mut local, "a", &[80]).body, written);
    let mut cluster = Services::new(ServiceSettings {
        external_traffic_policy: ExternalTrafficPolicy::Cluster,
        ..local.settings.clone()
    });
    cluster.set(&written);
    let changed = wanted(&mut cluster, "a", &[80]).body;
    assert_eq!(changed["spec"]["externalTrafficPolicy"], "Cluster");
    cluster.set(&changed);
    assert_eq!(cluster.wanted(&plan("a", &[80])), (None, None));
}

#[test]
fn a_copy_of_a_service_is_none_of_a_gateway() {
    let mut services = services(20_000..=20_009);
    let body = wanted(&mut services, "a", &[80]).body;
    services.set(&body);
    let mut copy = body.clone();
    copy["metadata"]["name"] = json!("copy");
    copy["spec"]["ports"][0]["targetPort"] = json!(20_005);
    assert_eq!(services.set(&copy), None);
    assert_eq!(services.remove(&NamespacedName::new("postern", "copy")), None);
    assert_eq!(target(&services, "a", 80), Some(20_000));
}

#[test]
fn a_long_name_of_a_gateway_is_kept_whole() {
    let mut services = services(20_000..=20_009);
    let long = "x".repeat(200);
    let body = wanted(&mut services, &long, &[80]).body;
    assert_eq!(body["metadata"]["labels"][GATEWAY_NAME].as_str().unwrap().len(), 63);
    assert_eq!(services.set(&body), Some(NamespacedName::new("team", &*long)));
}

#[test]
fn names_of_services_are_valid_and_distinct() {
    let long = "x".repeat(200);
    let name = service_name(&NamespacedName::new("team", &*long));
    assert_eq!(name.len(), 63);
    assert_ne!(name, service_name(&NamespacedName::new("other", &*long)));
    assert!(service_name(&NamespacedName::new("team", "1.b")).starts_with("gw-1-b-"));
}
