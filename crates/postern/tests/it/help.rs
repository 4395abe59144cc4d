//! Runs every example of every `--help` exactly as it is printed, in a folder with the files that
//! it names.
//!
//! Services of an example have substitutes: the issuer is a provider that serves during the test.
//! `lab run` only prints what it would run (`--check`), because measuring takes a minute and needs
//! programs that may be missing.

use std::collections::VecDeque;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::{FILES, Folder, Running, environment, output_text, postern, repository, sources};
use dataplane::ports::free;

const SECRET: &str = "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=";

/// Help texts of all commands, each with the words of its command.
fn helps() -> Vec<(Vec<String>, String)> {
    let mut waiting = VecDeque::from([Vec::<String>::new()]);
    let mut helps = Vec::new();
    while let Some(command) = waiting.pop_front() {
        let words: Vec<&str> = command.iter().map(String::as_str).chain(["--help"]).collect();
        let help = output_text(&postern(&words));
        let listed = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let listed = listed.lines().take_while(|line| line.starts_with("  "));
        // The continuation of a description has a larger indentation.
        let names =
            listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
        let below =
            names.filter(|name| *name != "help").map(|name| [&command[..], &[name.to_owned()]].concat());
        waiting.extend(below);
        helps.push((command, help));
    }
    helps
}

/// Commands that were renamed.
const FORMER: [&[&str]; 5] = [
    &["admin", "coherence"],
    &["admin", "follow-secret"],
    &["admin", "session", "end"],
    &["admin", "token", "look"],
    &["admin", "user", "end"],
];

#[test]
fn no_command_has_a_former_name() {
    let helps = helps();
    assert!(
        helps.iter().any(|(words, _)| *words == ["admin", "revocation", "secret"]),
        "the commands were not found"
    );
    for former in FORMER {
        assert!(!helps.iter().any(|(words, _)| words == former), "{former:?}");
    }
}

/// The examples of a help text, in order: lines that begin with the program or assign its output,
/// without their description.
fn examples(help: &str) -> Vec<String> {
    // A line that continues.
    let parts: Vec<&str> = help.split("\\\n").map(str::trim).collect();
    let whole = parts.join(" ");
    let is_one = |line: &&str| {
        line.starts_with("postern ")
            || line.split_once("=$(postern ").is_some_and(|(name, _)| !name.contains(' '))
    };
    let command = |line: &str| line.split("  ").next().unwrap_or_default().to_owned();
    whole.lines().map(str::trim).filter(is_one).map(command).collect()
}

/// A folder with the files that the examples name, and a provider that serves.
struct Place {
    folder: Folder,
    address: String,
    admin: String,
    _serving: Running,
}

impl Place {
    fn new() -> Self {
        let (folder, address, admin) = (Folder::new("help"), free(), free());
        let secret = folder.write("provider.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n");
        std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        folder.write("secret", SECRET);
        folder.write("secret.txt", SECRET);
        folder.write("client.secret", SECRET);
        folder.write("deployment.yaml", include_str!("../../../migrate/tests/it/notebook.yaml"));
        folder.write("policies.yaml", include_str!("../../../migrate/tests/it/istio.yaml"));
        folder.write("envoy.yaml", include_str!("../../../migrate/tests/it/envoy-jwt.yaml"));
        std::fs::create_dir(folder.0.join("manifests")).unwrap();
        for name in ["gateway.yaml", "routes.yaml", "policies.yaml"] {
            let file = sources().join("manifests/sound").join(name);
            std::fs::copy(file, folder.0.join("manifests").join(name)).unwrap();
        }
        let operator = std::fs::read_to_string(sources().join("manifests/postern.toml")).unwrap();
        folder.write("gateway.toml", operator);
        for name in ["jwks.json", "token"] {
            std::fs::copy(FILES.0.join(name), folder.0.join(name)).unwrap();
        }
        std::fs::create_dir(folder.0.join("export")).unwrap();
        for name in ["shop-realm.json", "shop-users-0.json", "shop-users-1.json", "shop-users-2.json"] {
            let file = repository().join("crates/migrate/tests/it/keycloak").join(name);
            std::fs::copy(file, folder.0.join("export").join(name)).unwrap();
        }
        folder.write("login.yaml", include_str!("../../../migrate/tests/it/oauth2-proxy.yaml"));
        folder.write("shop.json", r#"{"grants":["client_credentials"],"audiences":["orders"]}"#);
        let config = format!(
            "[server]\nreload_on_change = false\n[admin]\naddress = \"{admin}\"\n\
             [[listener]]\nname = \"web\"\naddress = \"{}\"\n\
             [provider]\nissuer = \"http://{address}\"\naddress = \"{address}\"\naudiences = [\"orders\"]\n\
             database = \"sqlite://postern.db?mode=rwc\"\nsecret_file = \"provider.secret\"\n\
             [[provider.client]]\nid = \"me\"\nsecret_files = [\"secret\"]\n\
             grants = [\"client_credentials\"]\naudiences = [\"orders\"]\nscopes = [\"orders:read\"]\n\
             [[issuer]]\nname = \"own\"\nissuer = \"http://{address}\"\naudiences = [\"orders\"]\n\
             [[upstream]]\nname = \"app\"\nendpoints = [\"http://127.0.0.1:9\"]\n\
             [[route]]\nname = \"app\"\nupstream = \"app\"\npolicy = {{ allow = [{{ authenticated = true }}] }}\n",
            free()
        );
        let config = folder.write("postern.toml", config);
        let serving = Running::start(&["serve", "--config", config.to_str().unwrap()]);
        let place = Self { folder, address, admin, _serving: serving };
        place.wait_until_it_serves();
        let token =
            place.run("postern token --issuer https://id.example --client-id me --client-secret @secret");
        assert!(token.status.success(), "{}", output_text(&token));
        place.folder.write("token.jwt", &token.stdout);
        place.measured();
        place
    }

    fn wait_until_it_serves(&self) {
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while std::net::TcpStream::connect(&self.address).is_err() {
            assert!(std::time::Instant::now() < until, "the provider listens");
            std::thread::yield_now();
        }
    }

    /// Records of runs, with the variants of scenario `paths`.
    fn measured(&self) {
        let fixtures = repository().join("crates/lab_analysis/tests/it/offline/fixtures");
        std::fs::copy(fixtures.join("hey.csv"), self.folder.0.join("hey.csv")).unwrap();
        let done = self.run("postern lab import hey.csv --concurrency 50 --out run");
        assert!(done.status.success(), "{}", output_text(&done));
        let file = self.folder.0.join("run/report.json");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let mut one = record["variants"][0].clone();
        cpu_of_a_gateway(&mut one);
        let planned = output_text(&self.run("postern lab run --scenario paths --check"));
        let names = planned.lines().filter_map(|line| {
            line.strip_prefix("  ")?.split_once(", ")?.1.ends_with(" rounds").then_some(line)
        });
        let variant = |line: &str| {
            let name = line.trim().split_once(", ").unwrap().0;
            let mut variant = one.clone();
            (variant["name"], variant["counters"]) = (name.into(), json!({"instructions": 20_000.0}));
            variant
        };
        record["variants"] = names.map(variant).collect();
        assert!(record["variants"].as_array().unwrap().len() > 10, "{planned}");
        for run in ["run", "a", "b", "reports/first"] {
            std::fs::create_dir_all(self.folder.0.join(run)).unwrap();
            self.folder.write(&format!("{run}/report.json"), record.to_string());
        }
        for baseline in ["base.json", "lab.baseline.json"] {
            let done = self.run(&format!("postern lab gate run/report.json --baseline {baseline} --update"));
            assert!(done.status.success(), "{}", output_text(&done));
        }
        self.folder.write("report.md", "# One run\n\n| Iteration | P50 |\n|---|---|\n| 1 | 2.00s |\n| 2 | 2.02s |\n| Average | 2.01s |\n");
        self.folder.write(
            "mine.toml",
            "title = \"mine\"\nrounds = 2\n[load.closed]\narrivals = \"closed\"\nconcurrency = 4\nrequests = 100\n[[variant]]\ntopology = [\"fused\", \"3x\"]\n",
        );
    }

    /// Runs a line with a shell.
    fn run(&self, line: &str) -> Output {
        let program = Path::new(env!("CARGO_BIN_EXE_postern")).parent().unwrap();
        let path = format!("{}:{}", program.display(), environment("PATH").unwrap_or_default());
        let line = line.replace("https://id.example", &format!("http://{}", self.address));
        let line = line.replace("127.0.0.1:9901", &self.admin);
        Command::new("sh").args(["-c", &line]).current_dir(&self.folder.0).env("PATH", path).output().unwrap()
    }
}

/// Adds a gateway, which used half of a core, to a variant in JSON.
fn cpu_of_a_gateway(variant: &mut Value) {
    let iteration = &mut variant["iterations"][0];
    let window_ms = (iteration["seconds"].as_f64().unwrap() * 1e3).floor();
    let window_ms: u64 = format!("{window_ms:.0}").parse().unwrap();
    let sample = |at_ms: u64| json!({"at_ms": at_ms, "user_ms": at_ms / 2, "system_ms": 0, "rss_bytes": 1});
    iteration["components"] = json!([{
        "name": "gateway", "cpu_limit_cores": null, "memory_limit_bytes": null, "cpu_error_us": 0,
        "samples": [sample(0), sample(window_ms)],
    }]);
    variant["path"] = json!(["gateway", "backend"]);
}

/// Exit code of an example: 1 for a negative answer, otherwise 0.
fn expected(example: &str) -> i32 {
    let says_no = [
        // The request has no token.
        "postern check postern.toml --request 'GET https://app.example/orders'",
        // The published reports contain claims that do not follow from their data, and the example
        // uses them.
        "postern lab audit",
        "postern lab audit tables.json",
    ];
    i32::from(says_no.contains(&example))
}

#[test]
fn every_example_of_every_help_does_what_it_says() {
    let place = Place::new();
    let (mut ran, mut failed) = (Vec::new(), Vec::new());
    for (command, help) in helps() {
        // A variable that one line assigns is available in the following lines.
        let mut named = String::new();
        for example in examples(&help) {
            let measures = example.starts_with("postern lab run ") && !example.contains("--list");
            let line = if measures { format!("{example} --check") } else { example.clone() };
            let done = place.run(&format!("{named}{line}"));
            let code = done.status.code();
            if code != Some(expected(&example)) {
                failed.push(format!(
                    "of `postern {} --help`: {example}\nended with {code:?}: {}",
                    command.join(" "),
                    output_text(&done)
                ));
            }
            if !example.starts_with("postern ") {
                named = format!("{named}{example}; ");
            }
            ran.push(example);
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    for command in [
        "check",
        "token",
        "admin",
        "lab run",
        "lab import",
        "lab compare",
        "lab history",
        "lab size",
        "lab gate",
        "lab audit",
        "lab report",
    ] {
        assert!(
            ran.iter().any(|example| example.contains(&format!("postern {command} "))),
            "{command}: {ran:?}"
        );
    }
}

#[test]
fn an_example_is_told_from_its_description_and_from_prose() {
    let help = "Start with `postern demo`.\n\nExamples:\n  postern a b       what it does\n  postern c \\\n    | postern d --as -\n  X=$(postern e)\n  curl x\n\
                  postern f \"$X\"\n";
    assert_eq!(
        examples(help),
        ["postern a b", "postern c | postern d --as -", "X=$(postern e)", "postern f \"$X\""]
    );
}
