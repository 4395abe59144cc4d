//! `OpenShift`'s oauth-proxy: a notebook, a model server, and every flag.

use migrate::Migration;
use migrate::files::ContainerFiles;
use migrate::flags::FlagKind;
use migrate::oauth_proxy::{SYNTAX, translate};

const MINIMAL: [&str; 7] = [
    "-https-address=:8443",
    "-http-address=",
    "-tls-cert=cert.pem",
    "-tls-key=key.pem",
    "-upstream=http://localhost:8888",
    "-client-id=app",
    "-redirect-url=https://app.example",
];

fn translated(arguments: &[&str]) -> Migration {
    let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
    let mut files = ContainerFiles::default();
    files.add("file", "");
    translate(&arguments, &[], &files).unwrap_or_else(|fault| panic!("{fault}"))
}

/// The lines of a configuration without comments.
fn text(migration: &Migration) -> String {
    let lines = migration.configuration.lines().map(|line| line.split("  # ").next().unwrap_or(line));
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    lines.join("\n")
}

const NOTEBOOK: &str = "-openshift-sar={\"verb\":\"get\",\"resource\":\"notebooks\",\"resourceAPIGroup\":\"kubeflow.org\",\"resourceName\":\"mine\",\"namespace\":\"a\"}";

#[test]
fn people_are_reviewed_on_each_request() {
    let migration = translated(&[&MINIMAL[..], &[NOTEBOOK, "--skip-provider-button"]].concat());
    let seen = text(&migration);
    let route = "name = \"application\"\npath = { prefix = \"/\" }\nlogin = true\naccess_review = { api_group = \"kubeflow.org\", name = \"mine\", namespace = \"a\", resource = \"notebooks\", verb = \"get\" }\nupstream = \"application\"";
    assert!(seen.contains(route), "{seen}");
    assert!(seen.contains("kind = \"openshift\"") && seen.contains("path = \"/oauth\""), "{seen}");
    assert!(!seen.contains("token_authority") && !seen.contains("address = \"127.0.0.1:4180\""), "{seen}");
}

#[test]
fn programs_are_a_matter_of_the_delegated_paths() {
    let urls = "-openshift-delegate-urls={\"/\": {\"namespace\": \"a\", \"resource\": \"services\"}, \"/api\": {\"resource\": \"pods\"}}";
    let seen = text(&translated(&[&MINIMAL[..], &[urls]].concat()));
    let api = "path = { prefix = \"/api\" }\nlogin = true\npolicy = { allow = [{ credentials = [\"session\"] }] }\naccess_review = { resource = \"pods\", verb = \"proxy\" }";
    assert!(seen.contains(api), "{seen}");
    assert!(seen.contains("kind = \"token-review\"") && seen.contains("prefixes = [\"sha256~\"]"), "{seen}");
    let elsewhere = urls.replace("\"/\"", "\"/x\"");
    let seen = text(&translated(&[&MINIMAL[..], &[NOTEBOOK, &elsewhere]].concat()));
    let people = "path = { prefix = \"/\" }\nlogin = true\npolicy = { allow = [{ groups = [\"nobody\"] }], deny = [{ credentials = [\"jwt\", \"opaque\", \"certificate\", \"basic\"] }] }\naccess_review = ";
    assert!(seen.contains(people), "{seen}");
    assert!(seen.contains("access_reviews = { all = ["), "{seen}");
}

#[test]
fn people_whom_a_setting_without_an_equal_names_are_refused() {
    for flag in ["-openshift-sar-by-host={}", "-email-domain=example.com", "-authenticated-emails-file=/e"] {
        let seen = text(&translated(&[&MINIMAL[..], &[flag]].concat()));
        let closed = "path = { prefix = \"/\" }\nlogin = true\npolicy = { allow = [{ groups = [\"nobody\"] }] }\nupstream";
        assert!(seen.contains(closed), "{flag}\n{seen}");
    }
}

#[test]
fn every_flag_ends_in_the_report() {
    let list = include_str!("oauth-proxy.flags");
    let flags: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(flags.len() + 1, SYNTAX.flags().count());
    for name in flags {
        let flag = SYNTAX.flags().find(|flag| flag.name == name).unwrap_or_else(|| panic!("{name}"));
        let value = match name {
            _ if flag.kind == FlagKind::Switch => "true",
            "config" => "file",
            "http-address" | "https-address" => "127.0.0.1:9",
            "upstream" => "http://a:1/",
            "redirect-url" => "https://app.example",
            "upstream-flush" | "upstream-timeout" | "cookie-expire" | "cookie-refresh" => "30s",
            "openshift-sar" => "{\"resource\":\"pods\"}",
            "openshift-sar-by-host" | "openshift-delegate-urls" => "{}",
            "skip-auth-regex" | "bypass-auth-for" => "^/a$",
            _ => "x",
        };
        let (own, prefix) = (format!("-{name}={value}"), format!("-{name}="));
        let mut given: Vec<&str> =
            MINIMAL.iter().copied().filter(|other| !other.starts_with(&prefix)).collect();
        given.push(&own);
        let migration = translated(&given);
        let flag_text = format!("--{name}");
        let mut seen = migration.report.entries.iter().filter(|entry| {
            entry.setting == flag_text || entry.setting.starts_with(&format!("{flag_text} "))
        });
        assert!(seen.next().is_some(), "-{name}: {}", migration.report);
        assert!(!migration.report.to_string().contains("not read here"), "-{name}: {}", migration.report);
    }
}
