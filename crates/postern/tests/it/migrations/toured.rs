//! Translated configurations serve: callers of several kinds get the answers of the program.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dataplane::harness::{Fixture, Issuer, Response, Seen, Upstream};
use dataplane::issuer::now;
use migrate::files::ContainerFiles;
use migrate::{envoy, istio, kube_rbac_proxy, manifest};
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use super::MESH;

/// A translated configuration that serves, with a cluster and an authorizer that answer.
struct Place {
    f: Fixture,
    cluster: Upstream,
}

fn respond(socket: &mut TcpStream, status: u16, body: &str) -> bool {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n");
    socket.write_all(format!("{head}{body}").as_bytes()).is_ok()
}

/// Knows the tokens of ada and bob, and allows ada what is in `team-a`, and paths.
fn cluster(seen: &Seen, socket: &mut TcpStream) -> bool {
    let asked: Json = serde_json::from_slice(&seen.body).unwrap_or_default();
    let spec = &asked["spec"];
    let (kind, status) = if seen.line().contains("tokenreviews") {
        let payload =
            spec["token"].as_str().and_then(|token| URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok());
        let claims: Json = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        let user = json!({"username": claims["sub"], "groups": ["staff", "system:authenticated"]});
        let is_known = claims["sub"] == "ada" || claims["sub"] == "bob";
        ("TokenReview", json!({"authenticated": is_known, "user": user}))
    } else {
        let attributes = &spec["resourceAttributes"];
        let is_there =
            attributes.is_null() || attributes["namespace"] == "team-a" || attributes["resource"] == "nodes";
        ("SubjectAccessReview", json!({"allowed": spec["user"] == "ada" && is_there}))
    };
    respond(socket, 201, &json!({"kind": kind, "status": status}).to_string())
}

/// Lets those pass who say so.
fn authorizer(seen: &Seen, socket: &mut TcpStream) -> bool {
    let says_yes = seen.values("authorization") == ["Bearer yes"];
    respond(socket, if says_yes { 200 } else { 403 }, "")
}

/// Serves a configuration at an address of the test, without the files of another machine.
fn place(configuration: &str) -> Place {
    let (dir, issuer, upstream) = (tempfile::tempdir().unwrap(), Issuer::new(), Upstream::start());
    let cluster = Upstream::answering(cluster);
    issuer.write_jwks(&dir.path().join("jwks.json"));
    std::fs::write(dir.path().join("token"), "own\n").unwrap();
    let mut file: Table = configuration.parse().unwrap();
    let url = |address: SocketAddr| Value::from(format!("http://{address}"));
    for upstream_table in file.get_mut("upstream").and_then(Value::as_array_mut).into_iter().flatten() {
        let table = upstream_table.as_table_mut().unwrap();
        let address = match table["name"].as_str() {
            Some("postern") => Upstream::answering(authorizer).address,
            _ => upstream.address,
        };
        table.retain(|key, _| key == "name" || key == "timeouts");
        table.insert("endpoints".into(), vec![url(address)].into());
    }
    let mut kubernetes = file.remove("kubernetes");
    let authorities = file.get_mut("token_authority").and_then(Value::as_array_mut);
    let mut asking: Vec<&mut Table> =
        authorities.into_iter().flatten().filter_map(Value::as_table_mut).collect();
    asking.extend(kubernetes.as_mut().and_then(Value::as_table_mut));
    for table in asking {
        table.remove("ca");
        table.insert("url".into(), url(cluster.address));
        table.insert("token_file".into(), "token".into());
    }
    file.extend(kubernetes.map(|table| ("kubernetes".to_owned(), table)));
    for issuer in file.get_mut("issuer").and_then(Value::as_array_mut).into_iter().flatten() {
        let issuer = issuer.as_table_mut().unwrap();
        issuer.remove("jwks_uri");
        issuer.insert("jwks_file".into(), "jwks.json".into());
    }
    file.remove("client_certificates");
    let own = "[server]\nworkers = 1\n[admin]\nenabled = false\n[access_log]\nformat = \"off\"\n\
               [[listener]]\nname = \"test\"\naddress = \"127.0.0.1:0\"\n";
    file.extend(own.parse::<Table>().unwrap());
    let f = Fixture::from_text(dir, issuer, upstream, &toml::to_string(&file).unwrap());
    Place { f, cluster }
}

impl Place {
    /// Sends `METHOD HOST/PATH` with a token; none: an empty one.
    fn send(&self, request: &str, token: &str) -> Response {
        let (method, target) = request.split_once(' ').unwrap();
        let (host, path) = target.split_once('/').unwrap();
        let host = if host.is_empty() { "shop.example" } else { host };
        let field =
            if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
        let fields = format!("Host: {host}\r\n{field}X-Auth-Request-User: root\r\nContent-Length: 0\r\n");
        self.f.send(format!("{method} /{path} HTTP/1.1\r\n{fields}\r\n"))
    }

    /// A JWT with these claims.
    fn jwt(&self, claims: &Json) -> String {
        let mut whole = json!({"sub": "ada", "iat": now(), "exp": now() + 600});
        whole.as_object_mut().unwrap().extend(claims.as_object().unwrap().clone());
        self.f.issuer.signer.sign(&[("typ", "JWT")], &whole).unwrap()
    }

    /// Takes each step: the request, the token or the user of the cluster, the status.
    fn tour(&self, what: &str, steps: &[(&str, &str, u16)]) {
        let differ = steps.iter().filter_map(|(request, token, status)| {
            let seen = match *token {
                user @ ("ada" | "bob" | "nobody") => {
                    let claims = json!({"iss": "https://kubernetes.default.svc.cluster.local", "sub": user});
                    self.send(request, &self.jwt(&claims)).status
                }
                token => self.send(request, token).status,
            };
            let shown = token.get(..4.min(token.len())).unwrap_or_default();
            (seen != *status).then(|| format!("{request} as {shown:?}: {seen}, not {status}"))
        });
        let differ: Vec<String> = differ.collect();
        assert!(differ.is_empty(), "{what}: {}", differ.join("; "));
    }
}

fn sidecar(file: &str, more: &[&str]) -> Place {
    let common =
        ["--insecure-listen-address=127.0.0.1:1", "--upstream=http://127.0.0.1:8888/", "--config-file=/c"];
    let given: Vec<String> = common.iter().chain(more).map(|&text| text.to_owned()).collect();
    let mut files = ContainerFiles::default();
    files.add("/c", file);
    place(&kube_rbac_proxy::translate(&given, &files).unwrap().configuration)
}

#[test]
fn the_sidecar_of_a_notebook() {
    let text = include_str!("../../../../migrate/tests/it/notebook.yaml");
    let manifests = [("notebook.yaml".to_owned(), text.to_owned())];
    let found = manifest::find(&manifests, None, kube_rbac_proxy::SYNTAX.program).unwrap();
    let place = place(&kube_rbac_proxy::translate(&found.arguments, &found.files).unwrap().configuration);
    let steps = [
        ("GET /lab", "", 401),
        ("GET /lab", "nobody", 401),
        ("GET /lab", "bob", 403),
        ("GET /lab", "ada", 200),
        ("DELETE /lab/api/kernels/1", "ada", 200),
        ("GET /healthz", "", 200),
    ];
    place.tour("a notebook", &steps);
    let reached = place.f.upstream.seen();
    assert_eq!(reached.len(), 2);
    for seen in reached {
        assert_eq!(seen.values("x-auth-request-user"), ["ada"]);
        assert_eq!(seen.values("authorization"), [""; 0], "the token stays here");
    }
    let mut asked = place.cluster.seen().into_iter().map(|seen| String::from_utf8(seen.body).unwrap());
    let review = asked.rfind(|body| body.contains("\"ada\"") && body.contains("notebooks")).unwrap();
    let review: Json = serde_json::from_str(&review).unwrap();
    let expected = json!({"group": "kubeflow.org", "resource": "notebooks", "name": "mine", "namespace": "team-a", "verb": "get"});
    assert_eq!(review["spec"]["resourceAttributes"], expected);
}

#[test]
fn sidecars_of_metrics() {
    let allowed = sidecar("authorization: {}", &["--allow-paths=/metrics,/api/*/metrics"]);
    let steps = [
        ("GET /metrics", "", 401),
        ("GET /metrics", "bob", 403),
        ("GET /metrics", "ada", 200),
        ("GET /api/a/metrics", "ada", 200),
        ("GET /api/a/b/metrics", "ada", 404),
        ("GET /debug", "ada", 404),
    ];
    allowed.tour("allowed paths", &steps);
    let ignored = sidecar("authorization: {}", &["--ignore-paths=/healthz"]);
    ignored.tour("ignored paths", &[("GET /healthz", "", 200), ("GET /", "", 401), ("GET /", "ada", 200)]);
    let rewrites = "authorization:\n  rewrites: {byQueryParameter: {name: namespace}}\n  resourceAttributes: {apiGroup: metrics.k8s.io, resource: pods, namespace: '{{ .Value }}'}\n";
    let steps = [
        ("GET /api?namespace=team-a", "ada", 200),
        ("GET /api?namespace=team-b", "ada", 403),
        ("GET /api?namespace=team-a", "bob", 403),
        ("GET /api?namespace=team-a&namespace=team-b", "ada", 403),
        ("GET /api", "ada", 400),
    ];
    sidecar(rewrites, &[]).tour("a value of the query", &steps);
    let rules = "authorization:\n  static:\n  - {user: {name: bob}, verb: get, path: /metrics, resourceRequest: false}\n";
    let steps = [
        ("GET /metrics", "bob", 200),
        ("POST /metrics", "bob", 403),
        ("GET /other", "bob", 403),
        ("GET /other", "ada", 200),
    ];
    sidecar(rules, &[]).tour("static rules", &steps);
}

/// The sidecar of a manifest.
fn deployed(name: &str, text: &str) -> Place {
    let found = manifest::find(&[(name.to_owned(), text.to_owned())], None, kube_rbac_proxy::SYNTAX.program);
    let found = found.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    place(&kube_rbac_proxy::translate(&found.arguments, &found.files).unwrap().configuration)
}

#[test]
fn sidecars_of_an_operator() {
    let model = deployed("kserve.yaml", include_str!("../../../../migrate/tests/it/kserve.yaml"));
    let steps = [
        ("POST /v1/models/sklearn:predict", "", 401),
        ("POST /v1/models/sklearn:predict", "nobody", 401),
        ("POST /v1/models/sklearn:predict", "bob", 403),
        ("POST /v1/models/sklearn:predict", "ada", 200),
        ("GET /healthz", "", 200),
    ];
    model.tour("a model server", &steps);
    let last = model.f.upstream.seen().pop().unwrap();
    assert_eq!(last.values("x-remote-user"), ["ada"]);
    assert_eq!(last.values("x-remote-groups"), ["staff,system:authenticated"]);
    assert_eq!(last.values("authorization"), [""; 0]);
    assert_eq!(last.values("x-auth-request-user"), [""; 0], "the client's own");

    let cluster = deployed(
        "prometheus-cluster.yaml",
        include_str!("../../../../migrate/tests/it/prometheus-cluster.yaml"),
    );
    let steps = [
        ("GET /metrics", "", 401),
        ("GET /metrics", "bob", 403),
        ("GET /metrics", "ada", 200),
        ("GET /api/v1/query", "ada", 404),
    ];
    cluster.tour("metrics of a cluster", &steps);

    let namespace = deployed(
        "prometheus-namespace.yaml",
        include_str!("../../../../migrate/tests/it/prometheus-namespace.yaml"),
    );
    let steps = [
        ("GET /api/v1/query?namespace=team-a", "ada", 200),
        ("GET /api/v1/query?namespace=team-b", "ada", 403),
        ("GET /api/v1/query?namespace=team-a", "bob", 403),
        ("GET /api/v1/query", "ada", 400),
    ];
    namespace.tour("metrics of a namespace", &steps);
}

fn mesh(policy: &str) -> Place {
    let authentication = include_str!("../../../../migrate/tests/it/istio.yaml");
    let manifests = [("mesh.yaml".to_owned(), format!("{authentication}{policy}"))];
    place(&istio::translate(&manifests, "http://127.0.0.1:8080").unwrap().configuration)
}

#[test]
fn policies_of_istio() {
    let object = |spec: &str| format!("---\nkind: AuthorizationPolicy\nmetadata: {{name: a}}\nspec:\n{spec}");
    let claims = json!({"iss": "https://id.example/", "aud": "orders"});
    let staff = json!({"iss": "https://id.example/", "aud": "orders", "realm": {"roles": ["staff"]}});

    let open = mesh("");
    let token = open.jwt(&claims);
    open.tour("no policy", &[("GET /x", "", 200), ("GET /x", &token, 200), ("GET /x", "a.b.c", 200)]);
    // Istio refuses the third; here nobody looks at it, and it goes nowhere.
    assert!(open.f.upstream.seen().iter().all(|seen| seen.values("authorization").is_empty()));

    let none = mesh(&object("  {}\n"));
    let token = none.jwt(&staff);
    none.tour("nothing is allowed", &[("GET /x", &token, 403), ("POST /", &token, 403)]);

    let roles = mesh(&object(
        "  rules:\n  - from: [{source: {requestPrincipals: ['https://id.example//*']}}]\n    to: [{operation: {methods: [GET], paths: [/orders/*]}}]\n    when: [{key: 'request.auth.claims[realm][roles]', values: [staff]}]\n  - to: [{operation: {paths: [/healthz]}}]\n",
    ));
    let (token, with_role) = (roles.jwt(&claims), roles.jwt(&staff));
    let steps = [
        ("GET /orders/1", "", 401),
        ("GET /orders/1", &token, 403),
        ("GET /orders/1", &with_role, 200),
        ("POST /orders/1", &with_role, 403),
        ("GET /other", &with_role, 403),
        ("GET /healthz", "", 200),
    ];
    roles.tour("roles", &steps);

    let denied = mesh(&object("  action: DENY\n  rules:\n  - to: [{operation: {methods: [DELETE]}}]\n"));
    let token = denied.jwt(&staff);
    denied.tour("a denial", &[("GET /x", &token, 200), ("DELETE /x", &token, 403)]);
}

fn edge(bootstrap: &str) -> Place {
    place(&envoy::translate("envoy.yaml", bootstrap).unwrap().configuration)
}

#[test]
fn tokens_behind_envoy() {
    let place = edge(include_str!("../../../../migrate/tests/it/envoy-jwt.yaml"));
    let example = place.jwt(&json!({"iss": "https://id.example", "aud": "shop"}));
    let machine = place.jwt(&json!({"iss": "https://machines.example", "aud": "shop"}));
    let stranger = place.jwt(&json!({"iss": "https://id.example", "aud": "other"}));
    let steps = [
        ("GET /healthz", "", 200),
        ("GET /healthz/more", "", 401),
        ("GET /", "", 401),
        ("GET /", &stranger, 401),
        ("GET /", &example, 200),
        ("GET /", &machine, 200),
        ("GET /orders", &machine, 200),
        ("GET /orders/1", &machine, 403),
        ("GET /orders/1", &example, 200),
        ("GET /old/1", &machine, 308),
        ("GET other.example/", &machine, 404),
    ];
    place.tour("tokens", &steps);
    let last = place.f.upstream.seen().pop().unwrap();
    assert_eq!(last.line(), "GET /v2/orders/1 HTTP/1.1");
    assert_eq!(last.values("authorization"), [format!("Bearer {example}")], "`forward: true`");
    assert!(place.send("GET /old/1", &machine).value("location").unwrap().ends_with("/new/1"));
}

#[test]
fn an_authorizer_of_envoy() {
    let place = edge(include_str!("../../../../../examples/3x-envoy/envoy-http.yaml"));
    place.tour("over HTTP", &[("GET /", "yes", 200), ("GET /", "no", 403), ("GET /", "", 403)]);
    assert_eq!(place.f.upstream.seen().len(), 1);
    let place = edge(include_str!("../../../../../examples/3x-envoy/envoy.yaml"));
    place.tour("over gRPC", &[("GET /", "yes", 403), ("GET /a/b", "", 403)]);
}

#[test]
fn answers_of_envoy() {
    let closed = edge(MESH);
    closed.tour("closed", &[("GET a.example/robots.txt", "", 403), ("GET a.example/grpc/x", "", 403)]);
    let filter = "          - {name: r, typed_config: {'@type': t/v3.RBAC, rules: {}}}\n";
    assert!(MESH.contains(filter));
    let open = edge(&MESH.replace(filter, ""));
    let steps = [
        ("GET a.example/robots.txt", "", 404),
        ("GET app.example/else", "", 301),
        ("GET example/else", "", 404),
        ("GET a.b.test/else", "", 404),
    ];
    open.tour("open", &steps);
    assert_eq!(open.send("GET a.example/robots.txt", "").text(), "none");
    assert_eq!(open.send("GET a.example/x?y", "").value("location"), Some("https://www.example/x?y"));
}
