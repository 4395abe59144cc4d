//! Pages: every command of a page about a migration runs, in the order of the page, in a folder with
//! the files that the page names.
//!
//! What a cluster or a Keycloak would write is there already, so `kubectl` and `kc.sh` are not run.
//! Files of another machine have stand-ins, and keys of issuers come from a file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dataplane::issuer::now;
use serde_json::json;

use super::STAND_INS;
use crate::support::{FILES, Folder, SIGNER, output_text, repository};

/// A workload with the oauth-proxy of `OpenShift`.
const OAUTH_PROXY: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: shop}
spec:
  template:
    spec:
      containers:
      - {name: shop, image: "registry.example/shop:1"}
      - name: oauth-proxy
        image: registry.example/openshift/oauth-proxy:4
        args:
        - --https-address=:8443
        - --http-address=
        - --provider=openshift
        - --openshift-service-account=shop
        - --upstream=http://localhost:8080
        - --tls-cert=/etc/tls/private/tls.crt
        - --tls-key=/etc/tls/private/tls.key
        - --cookie-secret=change-me
        - '--openshift-sar={"namespace": "shop", "resource": "services", "resourceName": "shop", "verb": "get"}'
"#;

/// Policies as `kubectl` prints them.
const POLICIES: &str = "---
kind: AuthorizationPolicy
metadata: {name: orders, namespace: shop}
spec:
  rules:
  - from: [{source: {requestPrincipals: ['*']}}]
    to: [{operation: {methods: [GET], paths: [/orders/*]}}]
";

/// What the commands of a page find: names and contents of files.
fn inputs(page: &str) -> Vec<(&'static str, String)> {
    let data =
        |name: &str| fs::read_to_string(repository().join("crates/migrate/tests/it").join(name)).unwrap();
    match page {
        "envoy.md" => vec![("envoy.yaml", data("envoy-jwt.yaml"))],
        "istio.md" => vec![("policies.yaml", data("istio.yaml") + POLICIES)],
        "kube-rbac-proxy.md" => {
            let config =
                "authorization: {resourceAttributes: {namespace: shop, resource: services, name: shop}}\n";
            vec![("shop.yaml", data("notebook.yaml")), ("config.yaml", config.to_owned())]
        }
        "oauth-proxy.md" => vec![("shop.yaml", OAUTH_PROXY.to_owned())],
        "oauth2-proxy.md" => {
            vec![("shop.yaml", data("oauth2-proxy.yaml")), ("oauth2-proxy.cfg", data("application.cfg"))]
        }
        "keycloak.md" => ["shop-realm.json", "shop-users-0.json", "shop-users-1.json", "shop-users-2.json"]
            .map(|name| {
                let path: &'static str = String::leak(format!("export/{name}"));
                (path, data(&format!("keycloak/{name}")))
            })
            .into(),
        other => panic!("no files for the page {other}"),
    }
}

/// The commands of a page, in order: the lines of its code.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut fence, mut command) = (None, String::new());
    for line in text.lines() {
        if let Some(language) = line.strip_prefix("```") {
            fence = if fence.is_none() { Some(language) } else { None };
        } else if fence == Some("sh") || (fence.is_none() && line.starts_with("    ")) {
            match line.trim().strip_suffix('\\') {
                Some(part) => command.push_str(part),
                None => found.push(std::mem::take(&mut command) + line.trim()),
            }
        }
    }
    found.retain(|line| !line.is_empty());
    found
}

/// A page's folder.
struct Place {
    folder: Folder,
}

impl Place {
    fn new(page: &str) -> Self {
        let folder = Folder::new(&format!("migrate-{page}"));
        for (name, text) in inputs(page) {
            fs::create_dir_all(folder.0.join(name).parent().unwrap()).unwrap();
            folder.write(name, text);
        }
        let issuer = if page == "istio.md" {
            ("https://id.example/", "orders")
        } else {
            ("https://id.example", "shop")
        };
        let claims =
            json!({"iss": issuer.0, "aud": issuer.1, "sub": "ada", "iat": now(), "exp": now() + 600});
        folder.write("token.jwt", SIGNER.sign(&[("typ", "JWT")], &claims).unwrap());
        Self { folder }
    }

    /// Runs a line of `postern`, as a shell does.
    fn run(&self, line: &str) {
        let words = line.strip_prefix("postern ").unwrap();
        let out = words.split_whitespace().skip_while(|word| *word != "--out").nth(1);
        let out = out.map(|name| self.folder.0.join(name));
        // Of several ways to translate, each begins anew.
        if let Some(out) = &out {
            let _ = fs::remove_dir_all(out);
        }
        let script = format!("\"$0\" {words}");
        let program = env!("CARGO_BIN_EXE_postern");
        let done = Command::new("sh").args(["-c", &script, program]).current_dir(&self.folder.0).output();
        let done = done.unwrap();
        assert!(done.status.success(), "{line}\n{}", output_text(&done));
        if let Some(out) = out {
            complete(&out);
        }
    }
}

/// Gives a configuration stand-ins for files of another machine.
fn complete(out: &Path) {
    for entry in fs::read_dir(&FILES.0).unwrap().map(|entry| entry.unwrap().path()) {
        let to = out.join(entry.file_name().unwrap());
        if entry.is_file() && !to.exists() {
            fs::copy(entry, to).unwrap();
        }
    }
    let file = out.join("postern.toml");
    let mut text = fs::read_to_string(&file).unwrap();
    for (path, stand_in) in STAND_INS.iter().chain(&[
        ("/etc/tls/tls.crt", "cert.pem"),
        ("/etc/tls/tls.key", "key.pem"),
        ("/etc/postern/secrets/login/client-secret", "client.secret"),
        ("sqlite:///var/lib/postern/postern.db", "sqlite://people.db"),
    ]) {
        text = text.replace(path, stand_in);
    }
    text = text
        .replace("[kubernetes]\n", "[kubernetes]\nca = \"cluster-ca.crt\"\ntoken_file = \"bearer.token\"\n");
    let own_keys = "jwks_file = \"jwks.json\"";
    let lines = text.lines().map(|line| if line.starts_with("jwks_uri = ") { own_keys } else { line });
    let lines: Vec<&str> = lines.collect();
    fs::write(file, lines.join("\n")).unwrap();
}

#[test]
fn the_commands_of_each_page_run() {
    let folder = repository().join("docs/migrate");
    let mut pages: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let mut programs = BTreeSet::new();
    for path in pages {
        let page = path.file_name().unwrap().to_str().unwrap().to_owned();
        let all = commands(&fs::read_to_string(&path).unwrap());
        let place = Place::new(&page);
        let mut translated = 0;
        for line in &all {
            let program = line.split(' ').next().unwrap();
            programs.insert(program.to_owned());
            if program == "postern" {
                translated += usize::from(line.starts_with("postern migrate"));
                place.run(line);
            }
        }
        assert!(
            translated > 0 && all.iter().any(|line| line.starts_with("postern check")),
            "{page}: {all:?}"
        );
    }
    // Whatever else a page runs must be looked at here.
    assert_eq!(programs, ["kc.sh", "kubectl", "postern"].map(str::to_owned).into());
}

#[test]
fn commands_are_read_as_a_shell_reads_them() {
    let page = "# A\n\n```sh\na b \\\n    c\nd\n```\n\n    e f\n\n```toml\n    x = 1\n```\n";
    assert_eq!(commands(page), ["a b c", "d", "e f"]);
}
