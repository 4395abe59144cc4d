//! Restart-only keys: what a process reports about them when it reads its configuration again.

use std::os::unix::fs::PermissionsExt as _;

use config::{EffectiveConfig, RestartOnly};

use crate::support::{FILES, load, minimal_and};

const START: &str = r#"
[server]
workers = 2
[admin]
address = "127.0.0.1:9901"
[access_log]
format = "json"
output = "stdout"
[telemetry]
log = "info"
log_format = "text"
otlp_endpoint = "https://127.0.0.1:4318/?key=hunter2"
otlp_headers_file = "restart-headers.txt"
otlp_ca = "restart-ca.pem"
service = "edge"
trace_ratio = 0.5
"#;

/// The effective configuration of a process that started with [`START`] and gets another text.
fn under(start: &RestartOnly, text: &str) -> EffectiveConfig {
    let loaded = load(text).unwrap_or_else(|r| panic!("{:?}", r.report.lines().collect::<Vec<_>>()));
    let in_force = start.effective_config(&loaded);
    let shown = load(&in_force.text).unwrap_or_else(|r| panic!("{:?}", r.report.lines().collect::<Vec<_>>()));
    assert!(
        in_force.text.ends_with(&shown.effective()),
        "what is shown is a configuration, {}",
        in_force.text
    );
    assert!(!in_force.text.contains("hunter2"), "{}", in_force.text);
    in_force
}

/// Creates the files that [`START`] names.
fn files() {
    let content = |name: &str| std::fs::read(FILES.0.join(name)).unwrap();
    FILES.write("restart-headers.txt", "Authorization: Bearer hunter2\n");
    FILES.write("restart-ca.pem", content("ca.pem"));
}

#[test]
fn what_waits_for_a_restart_is_named_and_shown_as_it_is_in_force() {
    files();
    let start_text = minimal_and(START);
    let start = RestartOnly::from_loaded(&load(&start_text).ok().unwrap());
    let unchanged = under(&start, &start_text);
    assert_eq!(
        unchanged,
        EffectiveConfig { text: load(&start_text).ok().unwrap().effective(), postponed: vec![] }
    );

    for (key, old, new) in [
        ("server.workers", "workers = 2", "workers = 3"),
        ("admin.enabled", "[admin]", "[admin]\nenabled = false"),
        ("admin.address", "127.0.0.1:9901", "127.0.0.1:9902"),
        ("access_log.format", "format = \"json\"", "format = \"text\""),
        ("access_log.output", "\"stdout\"", "\"stderr\""),
        ("telemetry.log", "\"info\"", "\"debug\""),
        ("telemetry.log_format", "log_format = \"text\"", "log_format = \"json\""),
        ("telemetry.otlp_endpoint", "4318", "4319"),
        ("telemetry.otlp_endpoint", "key=hunter2", "key=other"),
        ("telemetry.otlp_headers_file", "restart-headers.txt", "headers.txt"),
        ("telemetry.otlp_headers_file", "otlp_headers_file = \"restart-headers.txt\"\n", ""),
        ("telemetry.otlp_ca", "restart-ca.pem", "cert.pem"),
        ("telemetry.otlp_ca", "otlp_ca = \"restart-ca.pem\"\n", ""),
        ("telemetry.service", "\"edge\"", "\"core\""),
        ("telemetry.trace_ratio", "0.5", "0.25"),
    ] {
        assert!(start_text.contains(old), "{old}");
        let EffectiveConfig { text, postponed } = under(&start, &start_text.replacen(old, new, 1));
        assert_eq!(postponed, [key], "{new}");
        let note = format!("# changed in the file, applied after a restart: {key}\n\n");
        assert_eq!(text, note + &unchanged.text, "{key} is shown as it is in force");
    }

    let (workers, service) = (("workers = 2", "workers = 3"), ("\"edge\"", "\"core\""));
    let both = start_text.replace(workers.0, workers.1).replace(service.0, service.1);
    assert_eq!(under(&start, &both).postponed, ["server.workers", "telemetry.service"]);
}

#[test]
fn where_a_provider_is_waits_for_a_restart_and_what_it_is_told_does_not() {
    let text = "[provider]\nissuer = \"https://login.example\"\naddress = \"127.0.0.1:9000\"\n\
                trusted_proxies = [\"10.0.0.1\"]\ndatabase = \"sqlite://a.db\"\nsecret_file = \"provider.secret\"\n";
    FILES.write("restart.url", "sqlite://c.db");
    let start = RestartOnly::from_loaded(&load(text).ok().unwrap());
    assert!(under(&start, &text.replace("10.0.0.1", "10.0.0.2")).postponed.is_empty());
    assert!(under(&start, &format!("{text}[pages.brand]\nname = \"Other\"\n")).postponed.is_empty());
    for (old, new, keys) in [
        ("9000", "9001", &["provider.address"][..]),
        ("a.db", "b.db", &["provider.database"]),
        ("secret_file = \"provider.secret\"\n", "", &["provider.secret_file"]),
    ] {
        assert_eq!(under(&start, &text.replace(old, new)).postponed, keys, "{new}");
    }
    let file = text.replace("database = \"sqlite://a.db\"", "database_file = \"restart.url\"");
    let start = RestartOnly::from_loaded(&load(&file).ok().unwrap());
    FILES.write("restart.url", "sqlite://d.db");
    assert_eq!(under(&start, &file).postponed, ["provider.database_file"]);
    assert_eq!(under(&start, &minimal_and("")).postponed, ["provider"], "one that goes stays until then");
}

#[test]
fn what_needs_no_restart_is_shown_as_the_file_says() {
    let start_text = minimal_and("[telemetry]\nlog = \"warn\"\n");
    let start = RestartOnly::from_loaded(&load(&start_text).ok().unwrap());
    let more =
        "server_timing_to = [\"127.0.0.1\"]\n[server]\nreload_on_change = false\ndrain_timeout = \"1s\"\n";
    let changed = start_text.replace("public = true", "public = true\nmethods = [\"GET\"]") + more;
    let EffectiveConfig { text, postponed } = under(&start, &changed);
    assert!(postponed.is_empty());
    assert_eq!(text, load(&changed).ok().unwrap().effective());
}

#[test]
fn files_of_the_collector_that_change_under_their_name_wait_too() {
    let text = minimal_and(
        "[telemetry]\notlp_endpoint = \"https://127.0.0.1:4318\"\notlp_headers_file = \"changing.txt\"\notlp_ca = \"changing.pem\"\n",
    );
    let content = |name: &str| std::fs::read(FILES.0.join(name)).unwrap();
    FILES.write("changing.txt", "X-Key: one\n");
    FILES.write("changing.pem", content("ca.pem"));
    let start = RestartOnly::from_loaded(&load(&text).ok().unwrap());
    FILES.write("changing.txt", "X-Key: two\n");
    assert_eq!(under(&start, &text).postponed, ["telemetry.otlp_headers_file"]);
    FILES.write("changing.pem", content("cert.pem"));
    assert_eq!(under(&start, &text).postponed, ["telemetry.otlp_headers_file", "telemetry.otlp_ca"]);
}

#[test]
fn files_of_brokers_that_change_under_their_name_wait_too() {
    let text = minimal_and(
        "[revocation]\nbrokers = [\"tls://broker.example\"]\nuser = \"us\"\npassword_file = \"changing.password\"\n\
         ca = \"changing-broker.pem\"\ncertificate = \"changing-us.pem\"\nkey = \"changing-us.key\"\n",
    );
    let content = |name: &str| std::fs::read(FILES.0.join(name)).unwrap();
    private("changing.password", "one\n");
    FILES.write("changing-broker.pem", content("ca.pem"));
    FILES.write("changing-us.pem", content("cert.pem"));
    FILES.write("changing-us.key", content("key.pem"));
    let start = RestartOnly::from_loaded(&load(&text).ok().unwrap());
    assert!(under(&start, &text).postponed.is_empty());
    private("changing.password", "two\n");
    assert_eq!(under(&start, &text).postponed, ["revocation.password_file"]);
    FILES.write("changing-broker.pem", content("cert.pem"));
    assert_eq!(under(&start, &text).postponed, ["revocation.ca", "revocation.password_file"]);
    FILES.write("changing-us.pem", content("ca.pem"));
    FILES.write("changing-us.key", content("other-key.pem"));
    let all = ["revocation.ca", "revocation.certificate", "revocation.key", "revocation.password_file"];
    assert_eq!(under(&start, &text).postponed, all);
    let token = "[revocation]\nbrokers = [\"nats://broker.example\"]\ntoken_file = \"changing.password\"\n";
    let start = RestartOnly::from_loaded(&load(&minimal_and(token)).ok().unwrap());
    private("changing.password", "three\n");
    assert_eq!(under(&start, &minimal_and(token)).postponed, ["revocation.token_file"]);
}

/// Writes a file that only its owner can read.
fn private(name: &str, content: &str) {
    let path = FILES.write(name, content);
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn what_transmitters_push_with_does_not_wait_and_their_other_files_do() {
    let text = minimal_and(
        "[[issuer]]\nname = \"one\"\nissuer = \"https://one.example\"\naudiences = [\"a\"]\njwks_file = \"jwks.json\"\n\
         [security_events]\ndatabase_file = \"changing-events.url\"\n\
         [[security_events.transmitter]]\nname = \"push\"\nissuer = \"https://one.example\"\naudiences = [\"a\"]\n\
         jwks_file = \"jwks.json\"\nendpoint = \"https://app.example/events\"\nendpoint_token_file = \"changing.bearer\"\n\
         [[security_events.transmitter]]\nname = \"poll\"\nissuer = \"https://one.example\"\naudiences = [\"a\"]\n\
         jwks_file = \"jwks.json\"\npoll_url = \"https://one.example/poll\"\npoll_token_file = \"bearer.token\"\n\
         ca = \"changing-events.pem\"\n",
    );
    let content = |name: &str| std::fs::read(FILES.0.join(name)).unwrap();
    private("changing-events.url", "sqlite://events.db");
    private("changing.bearer", "what-it-shows-at-first\n");
    private("moved.bearer", "what-it-shows-elsewhere\n");
    FILES.write("changing-events.pem", content("ca.pem"));
    let start = RestartOnly::from_loaded(&load(&text).ok().unwrap());
    private("changing.bearer", "what-it-shows-later\n");
    assert!(under(&start, &text).postponed.is_empty());
    let moved = text.replace("changing.bearer", "moved.bearer");
    let EffectiveConfig { text: shown, postponed } = under(&start, &moved);
    assert!(postponed.is_empty() && shown.contains("\"moved.bearer\""), "{shown}");
    let elsewhere = moved.replace("app.example/events", "app.example/other");
    let EffectiveConfig { text: shown, postponed } = under(&start, &elsewhere);
    assert_eq!(postponed, ["security_events"]);
    assert!(shown.contains("app.example/events") && shown.contains("\"moved.bearer\""), "{shown}");
    let renamed = moved.replace("\"push\"", "\"pull\"");
    let EffectiveConfig { text: shown, postponed } = under(&start, &renamed);
    assert_eq!(postponed, ["security_events"]);
    assert!(shown.contains("\"push\"") && shown.contains("\"changing.bearer\""), "{shown}");
    FILES.write("changing-events.pem", content("cert.pem"));
    assert_eq!(under(&start, &text).postponed, ["security_events.transmitter.ca"]);
    private("changing-events.url", "sqlite://others.db");
    let both = ["security_events.database_file", "security_events.transmitter.ca"];
    assert_eq!(under(&start, &text).postponed, both);
}

#[test]
fn files_of_a_databases_url_that_change_under_their_name_wait_too() {
    let text = "[provider]\nissuer = \"https://login.example\"\nsecret_file = \"provider.secret\"\n\
                database = \"postgres://us@db.example/us?sslmode=verify-full&sslrootcert=changing-database.pem\"\n";
    let content = |name: &str| std::fs::read(FILES.0.join(name)).unwrap();
    FILES.write("changing-database.pem", content("ca.pem"));
    let start = RestartOnly::from_loaded(&load(text).ok().unwrap());
    assert!(under(&start, text).postponed.is_empty());
    FILES.write("changing-database.pem", content("cert.pem"));
    assert_eq!(under(&start, text).postponed, ["provider.database"]);
}
