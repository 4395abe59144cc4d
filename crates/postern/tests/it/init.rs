//! `postern init`: what it writes is accepted, and serves.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{Folder, Running, exchange, get, output_text};
use dataplane::ports::free;

/// Runs `postern init` in a folder, with nobody at the terminal.
fn init(folder: &Folder, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
    command.current_dir(&folder.0).arg("init").args(more).stdin(Stdio::null()).output().unwrap()
}

fn with_cluster_files(folder: &Folder) {
    let authority = rcgen::generate_simple_self_signed(vec!["cluster.test".into()]).unwrap();
    folder.write("ca.crt", authority.cert.pem());
    for name in ["token", "secret"] {
        let path = folder.write(name, "a-secret-of-some-length");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn every_provider_and_every_caller_gets_a_sound_configuration() {
    const CLUSTER: &[&str] = &["--ca", "ca.crt", "--token-file", "token"];
    let providers: [(&str, &[&str]); 8] = [
        ("keycloak", &["--issuer", "https://sso.example/realms/staff"]),
        (
            "entra",
            &["--issuer", "https://login.microsoftonline.com/8f1d9c2e-0000-4000-8000-00000000000a/v2.0"],
        ),
        ("okta", &["--issuer", "https://company.okta.com/oauth2/default"]),
        ("google", &[]),
        ("dex", &["--issuer", "https://dex.example"]),
        ("openshift", CLUSTER),
        ("kubernetes", CLUSTER),
        ("own", &["--issuer", "https://login.example"]),
    ];
    let folder = Folder::new("init");
    with_cluster_files(&folder);
    let mut count = 0;
    for (provider, more) in providers {
        for callers in ["people", "programs", "both"] {
            if provider == "kubernetes" && callers != "programs" {
                continue;
            }
            for group in [None, Some("st\"aff")] {
                count += 1;
                let out = format!("{provider}-{callers}-{}", group.is_some());
                let mut words = vec!["--for", provider, "--callers", callers, "--out", &out];
                words.extend(["--upstream", "http://127.0.0.1:3000", "--url", "https://app.example"]);
                words.extend(["--client-id", "system:serviceaccount:a:b", "--client-secret-file", "secret"]);
                words.extend(group.iter().flat_map(|group| ["--group", group]));
                words.extend(more);
                // The files of the cluster are named as they are given.
                let place = folder.0.join(&out);
                std::fs::create_dir_all(&place).unwrap();
                for name in ["ca.crt", "token"] {
                    std::fs::copy(folder.0.join(name), place.join(name)).unwrap();
                }
                let output = init(&folder, &words);
                let said = output_text(&output);
                assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
                assert!(!said.contains("warning"), "{words:?}: {said}");
                let text = std::fs::read_to_string(place.join("postern.toml")).unwrap();
                assert!(text.contains("[[route]]") && !text.lines().any(|line| line.len() > 120), "{text}");
                let has_people = callers != "programs";
                assert_eq!(text.contains("login = true"), has_people, "{text}");
                assert_eq!(place.join("login.keys").exists(), has_people);
            }
        }
    }
    assert_eq!(count, 2 * (7 * 3 + 1));
}

/// What `postern init` writes, whatever its check finds: the files of a pod are not here.
fn written(folder: &Folder, out: &str, words: &[&str]) -> String {
    let words = [words, &["--upstream", "http://127.0.0.1:3000", "--out", out]].concat();
    let output = init(folder, &words);
    let text = std::fs::read_to_string(folder.0.join(out).join("postern.toml"));
    text.unwrap_or_else(|error| panic!("{error}: {}", output_text(&output)))
}

#[test]
fn it_listens_where_its_clients_come_from() {
    let folder = Folder::new("init-places");
    with_cluster_files(&folder);
    let addresses = |text: &str| -> Vec<String> {
        let all = text.lines().filter_map(|line| line.strip_prefix("address = "));
        all.map(|address| address.trim_matches('"').to_owned()).collect()
    };
    let cluster = ["--for", "kubernetes"];
    let in_pod = written(&folder, "pod", &cluster);
    assert_eq!(addresses(&in_pod), ["0.0.0.0:9911", "0.0.0.0:8080"]);
    let outside = [&cluster[..], &["--ca", "../ca.crt", "--token-file", "../token"]].concat();
    assert_eq!(addresses(&written(&folder, "outside", &outside)), ["127.0.0.1:9901", "127.0.0.1:8080"]);
    let own = ["--for", "own", "--callers", "programs"];
    let of_others = [&own[..], &["--url", "http://api.internal:3100", "--issuer", "http://id.internal:3200"]];
    let of_others = written(&folder, "others", &of_others.concat());
    assert_eq!(addresses(&of_others), ["127.0.0.1:9901", "0.0.0.0:3100", "0.0.0.0:3200"]);
    let behind_a_proxy = [&own[..], &["--url", "https://api.example", "--issuer", "https://id.example"]];
    let behind_a_proxy = written(&folder, "proxy", &behind_a_proxy.concat());
    assert_eq!(addresses(&behind_a_proxy), ["127.0.0.1:9901", "127.0.0.1:8080", "127.0.0.1:9000"]);
    assert!(behind_a_proxy.contains("database = \"sqlite://provider.db?mode=rwc\""), "{behind_a_proxy}");
}

#[test]
fn a_provider_for_other_machines_has_a_url_that_they_reach() {
    let folder = Folder::new("init-issuer");
    let words = ["--for", "own", "--upstream", "http://127.0.0.1:3000", "--out", "own"];
    let output = init(&folder, &[&words[..], &["--url", "https://app.example"]].concat());
    let said = output_text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--issuer") && said.contains("https://login.example"), "{said}");
    assert!(!folder.0.join("own").exists());
}

#[test]
fn secrets_are_for_the_owner_and_no_file_is_replaced() {
    let folder = Folder::new("init-twice");
    let words = ["--for", "own", "--upstream", "http://127.0.0.1:3000"];
    assert_eq!(init(&folder, &words).status.code(), Some(0));
    let keys = std::fs::read_to_string(folder.0.join("login.keys")).unwrap();
    for name in ["login.keys", "client.secret"] {
        let mode = std::fs::metadata(folder.0.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let again = init(&folder, &words);
    assert_eq!(again.status.code(), Some(3), "{}", output_text(&again));
    assert!(output_text(&again).contains("exists, and nothing is written"), "{}", output_text(&again));
    assert_eq!(std::fs::read_to_string(folder.0.join("login.keys")).unwrap(), keys);
}

#[test]
fn what_is_missing_or_wrong_is_named_by_its_flag() {
    let folder = Folder::new("init-faults");
    with_cluster_files(&folder);
    let keycloak = ["--for", "keycloak", "--issuer", "https://sso.example/realms/a"];
    let whole = [&keycloak[..], &["--client-id", "a", "--client-secret-file", "secret"]].concat();
    let upstream = ["--upstream", "http://127.0.0.1:1"];
    for (words, expected) in [
        (vec![], "give --for: who identifies the callers"),
        (keycloak.to_vec(), "give --upstream"),
        (
            [&["--for", "keycloak"][..], &upstream].concat(),
            "give --issuer: URL of the provider, such as https://sso.example",
        ),
        ([&keycloak[..], &upstream].concat(), "give --client-id"),
        (
            [&keycloak[..], &upstream, &["--client-id", "a", "--client-secret-file", "none"]].concat(),
            "none: there is no such file",
        ),
        ([&whole[..], &upstream, &["--url", "http://app.example"]].concat(), "use https"),
        ([&whole[..], &upstream, &["--url", "https://app.example/a"]].concat(), "without a path"),
        ([&whole[..], &["--upstream", "app"]].concat(), "--upstream app"),
        (
            [&["--for", "kubernetes", "--callers", "people"][..], &upstream].concat(),
            "people do not sign in at the API server",
        ),
    ] {
        let output = init(&folder, &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(expected), "{words:?}: {}", output_text(&output));
        assert!(!folder.0.join("postern.toml").exists(), "nothing is written");
    }
}

/// Replaces the fixed address of the admin listener.
fn with_free_admin(folder: &Path) -> String {
    let path = folder.join("postern.toml");
    let text = std::fs::read_to_string(&path).unwrap().replace("127.0.0.1:9901", &free());
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_gateway_with_its_own_provider_serves_people_and_programs() {
    let folder = Folder::new("init-own");
    let (gateway, provider) = (free(), free());
    let [url, issuer] = [&gateway, &provider].map(|address| format!("http://{address}"));
    let mut echo = Running::start(&["echo", "--listen", "127.0.0.1:0"]);
    let line = echo.wait_for("http://");
    let upstream = format!("http://{}", crate::support::address_in(&line, "http://"));
    let words =
        ["--for", "own", "--callers", "both", "--upstream", &upstream, "--url", &url, "--issuer", &issuer];
    let output = init(&folder, &words);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(output_text(&output).contains("user add YOU"), "{}", output_text(&output));
    let configuration = with_free_admin(&folder.0);
    let mut running = Running::spawn(
        Command::new(env!("CARGO_BIN_EXE_postern")).current_dir(&folder.0).args(["serve", &configuration]),
    );
    running.wait_for("provider listening");
    let browser = "GET / HTTP/1.1\r\nHost: HOST\r\nAccept: text/html\r\nSec-Fetch-Mode: navigate\r\n\
                   Sec-Fetch-Dest: document\r\nConnection: close\r\n\r\n";
    let answer = exchange(&gateway, &browser.replace("HOST", &gateway));
    assert!(answer.starts_with("HTTP/1.1 302") && answer.contains("/oauth2/start?rd="), "{answer}");
    let answer = get(&gateway, "/oauth2/start");
    assert!(answer.starts_with("HTTP/1.1 302") && answer.contains(&issuer), "{answer}");
    assert!(get(&gateway, "/").starts_with("HTTP/1.1 401"));
    let token = Command::new(env!("CARGO_BIN_EXE_postern"))
        .current_dir(&folder.0)
        .args(["token", "--issuer", &issuer, "--client-id", "app", "--client-secret", "@client.secret"])
        .output()
        .unwrap();
    assert!(token.status.success(), "{}", output_text(&token));
    let token = String::from_utf8(token.stdout).unwrap();
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {gateway}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        token.trim()
    );
    let answer = exchange(&gateway, &request);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
