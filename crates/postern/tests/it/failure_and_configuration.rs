//! The rules of *Failure and configuration* that the configuration must keep, one test each.

use crate::support::{FILES, Folder, faults, load, minimal_and, output_text, postern};

#[test]
fn an_unknown_policy_refuses_to_start_naming_it() {
    let faults = faults(&minimal_and("").replace("public = true", "policy = \"nobody-wrote-this\""));
    assert!(faults.contains("route[0].policy: there is no policy \"nobody-wrote-this\""), "{faults}");
}

#[test]
fn an_unknown_key_refuses_to_start_naming_it() {
    for (text, key) in [
        ("[server]\nworkerz = 1", "server.workerz: unknown key `workerz`"),
        ("[policies.x]\nallow = [{ authenticated = true }]\nalow = 1", "policies.x.alow: unknown key `alow`"),
        ("[sever]\nworkers = 1", "sever: unknown key `sever`"),
    ] {
        let faults = faults(&minimal_and(text));
        assert!(faults.contains(key), "{faults}");
    }
}

#[test]
fn an_unknown_role_refuses_to_start_naming_it() {
    // The issuer is the one role that the configuration can check.
    let text = minimal_and(
        "[[issuer]]\nname = \"main\"\nissuer = \"i\"\naudiences = [\"a\"]\njwks_file = \"jwks.json\"\n",
    )
    .replace("public = true", "policy = { allow = [{ issuers = [\"other\"] }] }");
    let faults = faults(&text);
    assert!(faults.contains("there is no issuer \"other\""), "{faults}");
}

#[test]
fn an_unknown_option_refuses_to_start_naming_it() {
    for (text, path) in [
        ("[telemetry]\nlog = \"chatty\"", "telemetry.log"),
        ("[identity_headers]\nstyle = \"x-remote\"", "identity_headers.style"),
        ("[access_log]\nformat = \"xml\"", "access_log.format"),
    ] {
        let faults = faults(&minimal_and(text));
        assert!(faults.contains(path) && faults.contains("unknown value"), "{faults}");
    }
}

#[test]
fn a_route_without_a_policy_refuses_to_start_naming_the_route() {
    let faults = faults(&minimal_and("").replace("public = true", ""));
    assert!(faults.contains("the route \"app\" has no policy"), "{faults}");
}

#[test]
fn a_deny_rule_that_says_nothing_refuses_to_start() {
    for rule in ["{}", "{ groups = {} }", "{ groups = [] }", "{ users = [] }", "{ issuers = [\"gone\"] }"] {
        let policy = format!("policy = {{ allow = [{{ authenticated = true }}], deny = [{rule}] }}");
        let issuer =
            "[[issuer]]\nname = \"m\"\nissuer = \"i\"\naudiences = [\"a\"]\njwks_file = \"jwks.json\"\n";
        let faults = faults(&minimal_and(issuer).replace("public = true", &policy));
        assert!(faults.contains("route[0].policy.deny[0]"), "{rule}: {faults}");
    }
}

#[test]
fn an_unreadable_ca_refuses_to_start() {
    let upstream = "endpoints = [\"https://127.0.0.1:9000\"]\ntls = { ca = \"gone.pem\" }";
    let faults = faults(&minimal_and("").replace("endpoints = [\"http://127.0.0.1:9000\"]", upstream));
    assert!(faults.contains("upstream[0].tls.ca: cannot read") && faults.contains("gone.pem"), "{faults}");
}

#[test]
fn an_unreadable_secret_refuses_to_start() {
    for text in [
        "[assertion]\nkey = \"gone.pem\"\nissuer = \"https://gateway.example\"",
        "[telemetry]\notlp_endpoint = \"http://127.0.0.1:4318\"\notlp_headers_file = \"gone.txt\"",
    ] {
        let faults = faults(&minimal_and(text));
        assert!(faults.contains("cannot read") && faults.contains("gone."), "{faults}");
    }
}

#[test]
fn an_unreadable_rule_file_refuses_to_start() {
    let folder = Folder::new("rules");
    let missing = folder.0.join("gone.toml").display().to_string();
    let output = postern(&["serve", "--config", &missing]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("gone.toml"), "{}", output_text(&output));
    let latin1 = folder.write("latin1.toml", b"# \xfcber\n").display().to_string();
    let output = postern(&["serve", "--config", &latin1]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("not UTF-8"), "{}", output_text(&output));
}

#[test]
fn all_faults_are_reported_at_once_with_their_path_in_the_file() {
    let text =
        minimal_and("[server]\ndrain_timeout = \"soon\"\n[cache]\nsize = 3\n[telemetry]\nlog = \"x\"\n")
            .replace("public = true", "");
    let faults = faults(&text);
    for path in ["server.drain_timeout: ", "cache.size: ", "telemetry.log: ", "route[0]: "] {
        assert_eq!(faults.matches(path).count(), 1, "{path}: {faults}");
    }
    assert!(faults.lines().all(|line| line.starts_with("postern.toml:")), "{faults}");
}

#[test]
fn trust_lists_are_empty_by_default() {
    let loaded = load(&minimal_and("")).unwrap();
    assert!(loaded.config.listeners.iter().all(|listener| listener.proxy_protocol.is_empty()));
    assert!(loaded.config.server_timing.is_empty());
}

#[test]
fn a_trust_list_that_covers_everyone_is_refused_without_saying_so() {
    for list in [
        "\"0.0.0.0/0\"",
        "\"::/0\"",
        "\"0.0.0.0/1\", \"128.0.0.0/1\"",
        "\"::ffff:0:0/96\"",
        "\"::/64\", \"8000::/1\", \"::/1\"",
    ] {
        let timing = format!("[telemetry]\nserver_timing_to = [{list}]");
        let faults = faults(&minimal_and(&timing));
        assert!(faults.contains("telemetry.server_timing_to: the list covers every"), "{list}: {faults}");
        let meant = load(&minimal_and(&format!("{timing}\nserver_timing_to_anyone = true")));
        assert!(meant.is_ok(), "{list}");
    }
}

#[test]
fn no_secret_is_in_a_message_or_in_the_effective_configuration() {
    const SECRET: &str = "hunter2";
    let files = ["jwks_file = \"garbage.pem\"", "jwks_uri = \"https://me:hunter2@id.example/\""];
    for source in files {
        let issuer = format!("[[issuer]]\nname = \"m\"\nissuer = \"i\"\naudiences = [\"a\"]\n{source}\n");
        let faults = faults(&minimal_and(&issuer));
        assert!(!faults.contains(SECRET), "{faults}");
    }
    let headers = "[telemetry]\notlp_endpoint = \"http://127.0.0.1:4318/?key=hunter2\"\notlp_headers_file = ";
    let bad_headers = faults(&minimal_and(&format!("{headers}\"no-headers.txt\"")));
    assert!(!bad_headers.contains(SECRET), "{bad_headers}");
    let endpoint = faults(&minimal_and("").replace("http://127.0.0.1:9000", "http://me:hunter2@app"));
    assert!(!endpoint.contains(SECRET), "{endpoint}");
    let scheme = faults(&minimal_and("[telemetry]\notlp_endpoint = \"collector?key=hunter2\""));
    assert!(!scheme.contains(SECRET), "{scheme}");
    let collector = faults(&minimal_and("[telemetry]\notlp_endpoint = \"http://me:hunter2@collector\""));
    assert!(!collector.contains(SECRET), "{collector}");
    let key = std::fs::read_to_string(FILES.0.join("assertion-key.pem")).unwrap();
    let key = key.lines().nth(1).unwrap();
    let text = minimal_and(&format!(
        "{headers}\"headers.txt\"\n[assertion]\nkey = \"assertion-key.pem\"\nissuer = \"x\"\n"
    ))
    .replace("public = true", "public = true\nheaders = { \"X-Key\" = \"hunter2\" }");
    let loaded = load(&text).unwrap_or_else(|r| panic!("{:?}", r.report.lines().collect::<Vec<_>>()));
    let effective = loaded.effective();
    assert!(!effective.contains(SECRET) && !effective.contains(key), "{effective}");
    assert!(effective.contains("[redacted]"), "{effective}");
    assert!(!format!("{:?}", loaded.settings).contains(SECRET));
}
