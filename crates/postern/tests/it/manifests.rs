//! `postern check -f`: what a process would make of manifests, and what it would tell the cluster.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::support::{FILES, Folder, NOW, SIGNER, expect, output_text, postern, repository, sources};

/// The operator's file, beside the files that it names.
static CONFIG: LazyLock<String> = LazyLock::new(|| {
    let text = std::fs::read_to_string(sources().join("manifests/postern.toml")).unwrap();
    FILES.write("manifests.toml", text).display().to_string()
});

fn fixtures(name: &str) -> String {
    sources().join("manifests").join(name).display().to_string()
}

/// Runs `postern check` with the operator's file and further arguments.
fn check(arguments: &[&str]) -> Output {
    let now = NOW.to_string();
    postern(&[&["check", &CONFIG, "--at", &now], arguments].concat())
}

/// Removes what differs between machines, and the warning about the operator's file.
fn tidy(output: &[u8]) -> String {
    let text = String::from_utf8(output.to_vec()).unwrap();
    let text = text.replace(&fixtures(""), "").replace(&format!("{}/", FILES.0.display()), "");
    let text: String = text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect();
    let skipped = text.find("warning: gateway_api.listener").map_or(0, |_| text.find("\n\n").unwrap() + 2);
    text[skipped..].to_owned()
}

/// The findings of manifests as lines, with the exit code.
fn findings(folder: &Folder, manifests: &str, more: &[&str]) -> (Vec<String>, Option<i32>) {
    let file = folder.write("manifests.yaml", manifests).display().to_string();
    let output = check(&[&["-f", &file, "--output", "json"], more].concat());
    let result: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", output_text(&output)));
    let line = |one: &Value| {
        let part = |name: &str| one[name].as_str().map(|text| format!("{text}: ")).unwrap_or_default();
        let severity = one["severity"].as_str().unwrap();
        format!("{severity}: {}{}{}", part("object"), part("field"), one["message"].as_str().unwrap())
    };
    let list = result["manifests"]["findings"].as_array().unwrap();
    (list.iter().map(line).collect(), output.status.code())
}

#[test]
fn sound_manifests_are_shown_with_their_conditions_and_routes() {
    let output = check(&["-f", &fixtures("sound"), "--namespace", "shop"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    expect("manifests-sound.txt", &tidy(&output.stdout));
    expect("manifests-assumed.txt", &tidy(&output.stderr));
}

#[test]
fn faults_name_file_line_field_and_remedy() {
    let output = check(&["-f", &fixtures("faulty")]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    expect("manifests-faulty.txt", &tidy(&output.stderr));
}

#[test]
fn a_program_reads_conditions_routes_and_findings() {
    let output = check(&["-f", &fixtures("sound"), "--namespace", "shop", "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let manifests = &result["manifests"];
    assert_eq!((&manifests["valid"], &manifests["count"]), (&json!(true), &json!(9)));
    let gateway =
        manifests["objects"].as_array().unwrap().iter().find(|one| one["kind"] == "Gateway").unwrap();
    assert_eq!(
        (&gateway["namespace"], &gateway["name"], &gateway["line"]),
        (&json!("infra"), &json!("shop"), &json!(9))
    );
    assert_eq!(gateway["parts"][1]["about"], "listener https");
    assert_eq!(gateway["parts"][1]["attached_routes"], 1);
    let of_write = manifests["routes"].as_array().unwrap().iter();
    let of_write = of_write.filter(|route| route["rule"] == "HTTPRoute shop/orders rule 1 match 0");
    let [write] = &of_write.collect::<Vec<_>>()[..] else { panic!("{manifests}") };
    assert_eq!(write["access"], "protected");
    assert_eq!(
        write["policy"],
        "defaults of AccessPolicy shop/writers for HTTPRoute shop/orders, section write"
    );
    assert_eq!(write["backends"][0], "Service shop/orders:80, weight 9");
    assert!(!String::from_utf8(output.stdout).unwrap().contains("PRIVATE"), "no key is printed");
}

/// The explanation of a request with the sound manifests, and the exit code.
fn explain(request: &str, groups: &[&str], more: &[&str]) -> (String, Option<i32>) {
    let token = SIGNER.sign(&[("typ", "at+jwt")], &json!({
        "iss": "https://id.example", "aud": "shop", "sub": "17", "groups": groups, "iat": NOW - 60, "exp": NOW + 240,
    }));
    let (token, folder) = (token.unwrap(), fixtures("sound"));
    let arguments = ["-f", &folder, "--namespace", "shop", "--request", request, "--as", &token];
    let output = check(&[&arguments, more].concat());
    (tidy(&output.stdout).replace(SIGNER.kid(), "KID"), output.status.code())
}

#[test]
fn a_request_is_explained_by_listener_rule_and_policy() {
    let (text, code) = explain("GET https://orders.shop.example/orders/7", &["staff"], &[]);
    assert_eq!(code, Some(0), "{text}");
    expect("manifests-request.txt", &text);
    let (text, code) = explain("GET https://orders.shop.example/orders/7", &["guests"], &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("403 forbidden"), "{text}");
}

#[test]
fn requests_come_to_the_listener_of_their_host_and_port() {
    for (request, code, part) in [
        ("GET http://orders.shop.example/x", 0, "301 to https://orders.shop.example/x"),
        ("GET https://orders.shop.example/healthz", 0, "forwarded to upstream shop/orders:80"),
        ("DELETE https://orders.shop.example/orders", 1, "404 no_route"),
        (
            "GET https://other.example/",
            1,
            "no listener of Gateway infra/shop on port 443 takes other.example",
        ),
        (
            "GET https://orders.shop.example:8443/",
            1,
            "no Gateway serves https on port 8443; the routes of the file apply",
        ),
    ] {
        let (text, found) = explain(request, &["staff"], &[]);
        assert_eq!(found, Some(code), "{request}: {text}");
        assert!(text.contains(part), "{request}: {text}");
    }
}

#[test]
fn a_closed_rule_says_why() {
    let request = "GET http://partners.shop.example/";
    let output = check(&["-f", &fixtures("faulty"), "--request", request]);
    let text = tidy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in ["403 no_policy", "there is no issuer \"crop\""] {
        assert!(text.contains(part), "{text}");
    }
}

const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app, namespace: team}
spec:
  parentRefs: [{name: gw, namespace: infra, sectionName: web}]
  hostnames: [app.example]
  rules: [{backendRefs: [{name: app, port: 8080}]}]
---
";

#[test]
fn what_only_the_cluster_has_is_a_note() {
    let folder = Folder::new("manifests-notes");
    let (found, code) = findings(&folder, ROUTE, &[]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert_eq!(
        found,
        [
            "note: HTTPRoute team/app: Gateway infra/gw, section web: PolicyApplied is False, NoPolicy: no AccessPolicy \
             applies to some rules: target the route, its listener or its Gateway",
            "note: Gateway infra/gw is not in the files: it is assumed to take the routes that name it, in plain text",
            "note: Service team/app is not in the files: it is assumed to exist, with port 8080",
        ]
    );
}

/// The operator's file gives each a Service.
#[test]
fn gateways_with_services_may_have_the_same_port() {
    let folder = Folder::new("manifests-ports");
    let gateway = |name: &str| {
        format!(
            "---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: {name}, namespace: infra}}
spec:
  gatewayClassName: postern
  listeners: [{{name: web, port: 80, protocol: HTTP}}]
"
        )
    };
    let (found, code) = findings(&folder, &[gateway("a"), gateway("b")].concat(), &[]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(!found.iter().any(|one| one.contains("port")), "{found:#?}");
}

/// What only the operator may permit is told with the key that permits it.
#[test]
fn a_policy_that_the_operator_must_permit_names_the_key() {
    let folder = Folder::new("manifests-permitted");
    let policy = "
apiVersion: access.postern.dev/v1alpha1
kind: AccessPolicy
metadata: {name: app, namespace: team}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: app}]
  defaults: {policy: staff, forward_authorization: true}
";
    let (found, code) = findings(&folder, &format!("{ROUTE}{policy}"), &[]);
    assert_eq!(code, Some(1), "{found:#?}");
    assert!(
        found.iter().any(|one| one.starts_with("error: AccessPolicy team/app")
            && one.contains("the operator does not permit `forward_authorization` in policies")),
        "{found:#?}"
    );
}

#[test]
fn a_relation_between_objects_of_the_files_is_judged() {
    let folder = Folder::new("manifests-relations");
    let gateway = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: infra}
spec:
  gatewayClassName: postern
  listeners: [{name: web, port: 80, protocol: HTTP}]
";
    let (found, code) = findings(&folder, &format!("{ROUTE}{gateway}"), &[]);
    assert_eq!(code, Some(1), "{found:#?}");
    assert!(found[0].contains("NotAllowedByListeners"), "{found:#?}");
    let gateway =
        gateway.replace("protocol: HTTP", "protocol: HTTP, allowedRoutes: {namespaces: {from: All}}");
    let (found, code) = findings(&folder, &format!("{ROUTE}{gateway}"), &[]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(
        found[0].starts_with("warning: HTTPRoute team/app") && found[0].contains("NoPolicy"),
        "{found:#?}"
    );
}

#[test]
fn listener_sets_grpc_and_tls_to_backends_are_checked_with_what_they_name() {
    let folder = Folder::new("manifests-kinds");
    let manifests = "
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: team, namespace: team}
spec:
  parentRef: {name: gw, namespace: infra}
  listeners:
  - {name: grpc, port: 443, protocol: HTTPS, hostname: grpc.example, tls: {certificateRefs: [{name: grpc-tls}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: calls, namespace: team}
spec:
  parentRefs: [{kind: ListenerSet, name: team}]
  rules:
  - matches: [{method: {service: shop.Orders}}]
    backendRefs: [{name: calls, port: 8443}]
---
apiVersion: v1
kind: Service
metadata: {name: calls, namespace: team}
spec: {ports: [{name: grpc, port: 8443}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: calls, namespace: team}
spec:
  targetRefs: [{group: '', kind: Service, name: calls}]
  validation:
    hostname: calls.team.svc
    caCertificateRefs: [{group: '', kind: ConfigMap, name: team-ca}]
---
apiVersion: access.postern.dev/v1alpha1
kind: AccessPolicy
metadata: {name: team, namespace: team}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: ListenerSet, name: team, sectionName: grpc}]
  overrides: {policy: staff}
";
    let (found, code) = findings(&folder, manifests, &[]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(found.iter().all(|finding| finding.starts_with("note: ")), "{found:#?}");
    for missing in ["Gateway infra/gw is not", "Secret team/grpc-tls is not", "ConfigMap team/team-ca is not"]
    {
        assert!(found.iter().any(|finding| finding.contains(missing)), "{missing}: {found:#?}");
    }
    let file = folder.0.join("manifests.yaml").display().to_string();
    let output = check(&["-f", &file, "--request", "POST https://grpc.example/shop.Orders/Place"]);
    let text = tidy(&output.stdout);
    for part in [
        "listener grpc of ListenerSet team/team",
        "overrides of AccessPolicy team/team",
        "401 unauthenticated",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn several_gateways_with_a_port_need_a_name() {
    let folder = Folder::new("manifests-gateways");
    let gateway = |name: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: {name}, namespace: infra}}\n\
             spec:\n  gatewayClassName: postern\n  listeners: [{{name: web, port: 80, protocol: HTTP, \
             allowedRoutes: {{namespaces: {{from: All}}}}}}]\n---\n"
        )
    };
    let file = folder.write("all.yaml", format!("{ROUTE}{}{}", gateway("gw"), gateway("other")));
    let request = ["-f", file.to_str().unwrap(), "--request", "GET http://app.example/"];
    let output = check(&request);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("several Gateways serve app.example on port 80: infra/gw, infra/other"), "{text}");
    let text = output_text(&check(&[&request[..], &["--gateway", "infra/gw"]].concat()));
    assert!(text.contains("403 no_policy"), "{text}");
    let text = output_text(&check(&[&request[..], &["--gateway", "infra/other"]].concat()));
    assert!(text.contains("404 no_route"), "{text}");
}

#[test]
fn objects_outside_of_the_namespaces_of_the_process_do_not_count() {
    let text = std::fs::read_to_string(sources().join("manifests/postern.toml")).unwrap();
    let text = text.replace("[gateway_api]\n", "[gateway_api]\nnamespaces = [\"infra\"]\n");
    let config = FILES.write("manifests-namespaces.toml", text).display().to_string();
    let file = FILES.write("route.yaml", ROUTE).display().to_string();
    let output = postern(&["check", &config, "-f", &file, "--output", "json"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["manifests"]["count"], 0);
    let message = result["manifests"]["findings"][0]["message"].as_str().unwrap();
    assert!(message.contains("not one of `gateway_api.namespaces`"), "{message}");
}

#[test]
fn the_namespace_of_objects_without_one_is_an_argument() {
    let folder = Folder::new("manifests-namespace");
    let route = ROUTE.replace(", namespace: team}", "}");
    for (arguments, name) in
        [(&[][..], "HTTPRoute default/app"), (&["--namespace", "mine"], "HTTPRoute mine/app")]
    {
        let (found, _) = findings(&folder, &route, arguments);
        assert!(found[0].contains(name), "{found:#?}");
    }
}

#[test]
fn manifests_come_from_standard_input_too() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_postern"))
        .args(["check", &CONFIG, "-f", "-", "--output", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(ROUTE.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["manifests"]["objects"][0]["file"], "standard input");
}

#[test]
fn a_folder_is_read_with_those_below_it_and_without_what_is_no_manifest() {
    let folder = Folder::new("manifests-folder");
    std::fs::create_dir_all(folder.0.join("base/.cache")).unwrap();
    folder.write("base/route.yml", ROUTE);
    folder.write("service.json", r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"app","namespace":"team"},"spec":{"ports":[{"port":8080}]}}"#);
    for (name, text) in [
        ("kustomization.yaml", "resources: [base]\n"),
        ("base/.cache/x.yaml", "a: ["),
        ("README.md", "# no manifest\n"),
    ] {
        folder.write(name, text);
    }
    let output = check(&["-f", folder.0.to_str().unwrap(), "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["manifests"]["count"], 2);
    assert_eq!(result["manifests"]["routes"][0]["backends"], json!(["Service team/app:8080"]));
    let empty = Folder::new("manifests-empty");
    let output = check(&["-f", empty.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("has no .yaml, .yml or .json file"), "{}", output_text(&output));
}

#[test]
fn the_policies_in_the_documents_hold() {
    let folder = Folder::new("manifests-documents");
    let page = std::fs::read_to_string(repository().join("docs/reference/access-policy.md")).unwrap();
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let (found, code) = findings(&folder, &blocks.collect::<Vec<_>>().join("---\n"), &[]);
    assert_eq!(code, Some(0), "{found:#?}");
    assert!(
        found.iter().any(|finding| finding.contains("HTTPRoute shop/orders does not exist")),
        "{found:#?}"
    );
}

#[test]
fn a_command_line_that_means_nothing_is_refused() {
    let code = |arguments: &[&str]| check(arguments).status.code();
    let sound = fixtures("sound");
    assert_eq!(code(&["-f", "/nowhere"]), Some(3));
    assert_eq!(code(&["--namespace", "x"]), Some(2), "it needs -f");
    assert_eq!(code(&["-f", &sound, "--gateway", "infra/shop"]), Some(2), "it needs --request");
    let request = ["-f", &sound, "--request", "GET https://orders.shop.example/", "--gateway"];
    assert_eq!(code(&[&request[..], &["shop"]].concat()), Some(2));
    assert_eq!(code(&[&request[..], &["infra/other"]].concat()), Some(2));
    let plain = FILES.write("plain.toml", std::fs::read(sources().join("sound/minimal.toml")).unwrap());
    let output = postern(&["check", plain.to_str().unwrap(), "-f", &sound]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output_text(&output).contains("`[gateway_api]`"), "{}", output_text(&output));
}
