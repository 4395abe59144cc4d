//! `postern lab run`, which measures Postern.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Folder, Running, environment, output_text, postern};

/// A scenario with one process, for both kinds of tokens.
const TINY: &str = r#"
title = "a tiny one"
rounds = 2
fresh = "run"
calibration = "300ms"

[load.closed]
arrivals = "closed"
concurrency = 4
requests = 100
warmup = "100ms"
tokens = 5

[load.open]
arrivals = "poisson"
rate = "20%"
duration = "500ms"
warmup = "100ms"

[[variant]]
topology = ["direct", "fused"]

[[ladder]]
name = "@tokens@"
rungs = [{ adds = "the service", variant = "direct/open" }, { adds = "Postern", variant = "fused/@tokens@/open" }]
"#;

/// From the warning of a build that is not the one to measure.
const SLOW_BUILD: &str = "not fully optimized";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Command lines of all processes that name this folder.
fn below(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(text(folder)) && !line.contains(" lab run ")).collect()
}

#[test]
fn a_scenario_is_measured_and_reported() {
    let folder = Folder::new("lab-run");
    let (scenario, out) = (folder.write("tiny.toml", TINY), folder.0.join("out"));
    let done = postern(&["lab", "run", "--scenario", text(&scenario), "--out", text(&out), "--seed", "3"]);
    let words = output_text(&done);
    assert_eq!(done.status.code(), Some(0), "{words}");
    assert_eq!(words.contains(SLOW_BUILD), env!("POSTERN_OPT_LEVEL") != "3", "{words}");
    for word in
        ["fused/oauth: calibrated at ", "round 2 of 2  fused/oidc/open  ", "! few-iterations", "report.html"]
    {
        assert!(words.contains(word), "{word}\n{words}");
    }
    let record: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let variants = record["variants"].as_array().unwrap();
    let names: Vec<&str> = variants.iter().map(|variant| variant["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "direct/closed",
            "direct/open",
            "fused/oauth/closed",
            "fused/oauth/open",
            "fused/oidc/closed",
            "fused/oidc/open"
        ]
    );
    assert_eq!(record["ladders"].as_array().unwrap().len(), 2);
    // With the commit in an optimized build.
    let version = output_text(&postern(&["--version"]));
    let version = version.trim();
    assert!(version.starts_with(concat!("postern ", env!("CARGO_PKG_VERSION"), " (")), "{version}");
    assert_eq!(
        record["run"]["peers"],
        serde_json::json!([{ "name": "postern", "version": version, "optimization": env!("POSTERN_OPT_LEVEL") }])
    );
    for variant in variants {
        for iteration in variant["iterations"].as_array().unwrap() {
            let classes = iteration["classes"].as_array().unwrap();
            assert_eq!(classes.len(), 1, "{} {classes:?}", variant["name"]);
            assert_eq!(classes[0]["status"], 200);
        }
    }
    let components = variants[2]["iterations"][0]["components"].as_array().unwrap();
    let components: Vec<&str> =
        components.iter().map(|component| component["name"].as_str().unwrap()).collect();
    assert_eq!(components, ["backend", "provider", "gateway"]);
    assert!(std::fs::read_to_string(out.join("report.md")).unwrap().contains("fused/oidc/open"));
    // A hundred requests take only some milliseconds.
    let cpu = cpu_of_report(&out);
    let of = |load: &str| cpu.iter().filter(|cell| cell.variant.ends_with(load)).collect::<Vec<_>>();
    assert!(of("closed").len() >= 5 && of("open").len() >= 5, "{cpu:?}");
    assert!(of("closed").iter().any(|cell| cell.cores == "–" && cell.request == "–"), "{cpu:?}");
}

/// CPU of a component as a report prints it.
#[derive(Debug)]
struct Cpu {
    variant: String,
    component: String,
    cores: String,
    request: String,
}

/// Parses a printed number: `0.143`, `12 345`, `< 0.002`. Times are returned in µs.
fn printed(cell: &str) -> f64 {
    let cell = cell.trim_start_matches("< ");
    let (number, unit) = match cell.rsplit_once(' ') {
        Some((number, unit @ ("µs" | "ms" | "s"))) => (number, unit),
        _ => (cell, ""),
    };
    let scale = match unit {
        "ms" => 1e3,
        "s" => 1e6,
        _ => 1.0,
    };
    number.replace('\u{202f}', "").parse::<f64>().unwrap_or_else(|error| panic!("{cell}: {error}")) * scale
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}

/// Reads the CPU figures of a report and checks them against the samples of its record. Each
/// printed figure must follow from the samples, and each figure that follows must be printed. The
/// rule is repeated here: an error of at most a tenth, or of a hundredth of a core for cores.
fn cpu_of_report(out: &Path) -> Vec<Cpu> {
    let record: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    // Markdown would read `<` as the start of a tag.
    let text = std::fs::read_to_string(out.join("report.md")).unwrap().replace("&lt;", "<");
    let table = text.split("### Components in the measured windows").nth(1).expect("there is such a table");
    let rows =
        table.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.skip(2).map(|line| line.split('|').map(str::trim).collect()).collect();
    let mut all = Vec::new();
    for variant in record["variants"].as_array().unwrap() {
        let name = variant["name"].as_str().unwrap();
        for row in rows.iter().filter(|row| row[1] == name) {
            let (mut cores, mut request) = (Vec::new(), Vec::new());
            for iteration in variant["iterations"].as_array().unwrap() {
                let number = |key: &str| iteration[key].as_f64().unwrap();
                let (from, until) = (
                    (number("warmup_s") * 1e3).floor(),
                    ((number("warmup_s") + number("seconds")) * 1e3).ceil(),
                );
                let components =
                    iteration["components"].as_array().unwrap().iter().chain([&iteration["sender"]]);
                let Some(component) = components.into_iter().find(|component| component["name"] == row[2])
                else {
                    continue;
                };
                let looks = component["samples"].as_array().unwrap().iter();
                let looks: Vec<&Value> =
                    looks.filter(|look| (from..=until).contains(&look["at_ms"].as_f64().unwrap())).collect();
                let (Some(first), Some(last)) = (looks.first(), looks.last()) else { continue };
                let grown = |key: &str| last[key].as_f64().unwrap() - first[key].as_f64().unwrap();
                let (wall, used) = (grown("at_ms") * 1e3, grown("cpu_us"));
                let error = component["cpu_error_us"]
                    .as_f64()
                    .expect("programs that run here say how exact they are counted");
                assert!(error > 0.0 && error <= 100_000.0, "{component}");
                if wall > 0.0 && error <= (0.1 * used).max(0.01 * wall) {
                    cores.push((used / wall, error / wall));
                }
                let classes = iteration["classes"].as_array().unwrap().iter();
                let ended: f64 = classes.map(|class| class["count"].as_f64().unwrap()).sum();
                if wall > 0.0 && error <= 0.1 * used && ended > 0.0 {
                    request.push(used / wall / (ended / number("seconds")) * 1e6);
                }
            }
            let place = format!("{name}, {}: {} and {}", row[2], row[3], row[5]);
            if cores.is_empty() {
                assert_eq!(row[3], "–", "{place}: the looks do not tell");
            } else if cores.iter().all(|(cores, error)| cores < error) {
                let most = median(cores.iter().map(|(cores, error)| cores + error).collect());
                assert!(
                    row[3].starts_with("< ") && (printed(row[3]) / most - 1.0).abs() < 0.06,
                    "{place}: {most}"
                );
            } else {
                let middle = median(cores.iter().map(|(cores, _)| *cores).collect());
                assert!((printed(row[3]) / middle - 1.0).abs() < 0.06, "{place}: {middle}");
            }
            if request.is_empty() {
                assert_eq!(row[5], "–", "{place}: the looks do not tell");
            } else {
                assert!((printed(row[5]) / median(request) - 1.0).abs() < 0.06, "{place}");
            }
            let cell = |at: usize| row[at].to_owned();
            all.push(Cpu { variant: name.to_owned(), component: cell(2), cores: cell(3), request: cell(5) });
        }
    }
    assert!(!all.is_empty(), "{text}");
    for word in ["NaN", "inf ", "e-1", "| -0", "−0 µs", "+0 µs"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
    all
}

/// A quick run of the scenarios that need only Postern. `LAB_QUICK=all` runs every shipped scenario
/// with all of its programs, and `LAB_QUICK=one,overload` runs the named ones.
#[test]
fn a_quick_report_prints_cpu_that_was_measured_and_no_other() {
    let folder = Folder::new("lab-quick");
    let listed = output_text(&postern(&["lab", "run", "--list"]));
    let listed = listed.lines().skip(1).take_while(|line| !line.is_empty());
    let names: Vec<String> =
        listed.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect();
    assert!(names.len() > 10, "{names:?}");
    let wanted = environment("LAB_QUICK");
    let whole = wanted.is_some();
    let wanted: Vec<&str> = wanted.as_deref().unwrap_or("paths").split(',').collect();
    for name in names.iter().filter(|name| wanted.contains(&"all") || wanted.contains(&name.as_str())) {
        let out = folder.0.join(name);
        let mut words = vec!["lab", "run", "--quick", "--scenario", name, "--out", text(&out)];
        if !whole {
            words.extend(["--topology", "direct,fused", "--rounds", "1"]);
        } else if ["one", "knee"].contains(&name.as_str()) {
            words.extend(["--topology", "fused"]);
        }
        let done = postern(&words);
        // This scenario cannot be measured here: its programs are not installed.
        if whole && done.status.code() == Some(3) {
            continue;
        }
        assert!(matches!(done.status.code(), Some(0 | 1)), "{name}: {}", output_text(&done));
        let cpu = cpu_of_report(&out);
        // On a busy machine samples are late and prove less, but some prove enough.
        assert!(whole || cpu.iter().any(|cell| cell.component != "backend" && cell.cores != "–"), "{cpu:?}");
    }
}

/// The gateway in a comparison with peers, over each protocol. One of its two targets cannot be
/// met.
const PEER: &str = r#"
rounds = 2
baseline = "plain/oidc"

[load.closed]
arrivals = "closed"
concurrency = 4
streams = 2
requests = 100
warmup = "100ms"
hold = { manner = "idle", connections = 10 }

[[variant]]
name = "plain"
topology = "peer-postern"

[[variant]]
name = "h2"
topology = "peer-postern"
protocol = "h2"
variables = { entry = "https://127.0.0.1:@gateway.tls@/" }

[[target]]
says = "no request fails"
figure = "errors"
of = "h2/@tokens@"
at_most = 0

[[target]]
says = "nothing takes any time"
figure = "p50"
of = "plain/@tokens@"
at_most = "0ms"
"#;

#[test]
fn a_target_that_is_missed_ends_the_run_with_1() {
    let folder = Folder::new("lab-targets");
    let (scenario, out) = (folder.write("peer.toml", PEER), folder.0.join("out"));
    let done = postern(&["lab", "run", "--scenario", text(&scenario), "--out", text(&out)]);
    let words = output_text(&done);
    assert_eq!(done.status.code(), Some(1), "{words}");
    assert!(words.contains("nothing takes any time (P50 of `plain/oidc`)"), "{words}");
    assert!(words.contains("1 of 2 targets are met") && !words.contains("no request fails ("), "{words}");
    let record: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    for (variant, protocol) in record["variants"].as_array().unwrap().iter().zip(["http/1.1", "h2"]) {
        assert_eq!(variant["load"]["protocol"], protocol);
        for iteration in variant["iterations"].as_array().unwrap() {
            let classes = iteration["classes"].as_array().unwrap();
            assert_eq!((classes.len(), &classes[0]["count"]), (1, &100.into()), "{classes:?}");
            assert_eq!(iteration["held"]["open_at_end"], 10);
            assert_eq!(iteration["held"]["statuses"], serde_json::json!({ "200": 10 }));
        }
    }
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("Divided by `plain/oidc` in the same round"), "{report}");
}

/// New configurations, a faulty one, and a second process on the same port.
const CHANGES: &str = r#"
rounds = 1

[load.changes]
arrivals = "constant"
rate = 200
duration = "5s"
warmup = "500ms"
event = [
    { at = "500ms", every = "150ms", times = 20, component = "gateway", signal = "HUP", file = "peer-postern.toml", with = [
        { max_requests = "1025" },
        { max_requests = "1024" },
    ] },
    { at = "4500ms", component = "gateway", signal = "HUP", file = "peer-postern.toml", with = { max_requests = "'many'" } },
]

[load.takeover]
arrivals = "constant"
rate = 200
duration = "4s"
warmup = "500ms"
event = [{ at = "1s", component = "successor", start = true }, { at = "1s", component = "gateway", end = "60s" }]

[[variant]]
topology = "takeover"

[[target]]
says = "no request fails"
figure = "errors"
of = "takeover/oidc/@load@"
at_most = 0

[[target]]
says = "configurations are applied"
figure = "counter"
component = "gateway"
name = "applied"
of = "takeover/oidc/changes"
at_least = 2

[[target]]
says = "the bad one is refused"
figure = "counter"
component = "gateway"
name = "refused"
of = "takeover/oidc/changes"
at_least = 1

[[target]]
says = "the other process serves"
figure = "counter"
component = "successor"
name = "requests"
of = "takeover/oidc/takeover"
at_least = 1
"#;

#[test]
fn configurations_a_bad_one_and_a_new_process_cost_no_request() {
    let folder = Folder::new("lab-changes");
    let (scenario, out) = (folder.write("changes.toml", CHANGES), folder.0.join("out"));
    let done = postern(&["lab", "run", "--scenario", text(&scenario), "--out", text(&out), "--keep"]);
    let words = output_text(&done);
    assert_eq!(done.status.code(), Some(0), "{words}");
    assert!(words.contains("5 of 5 targets are met"), "{words}");
    let record: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let iteration = |at: usize| &record["variants"][at]["iterations"][0];
    assert_eq!(iteration(0)["events"].as_array().unwrap().len(), 21);
    let component = |name: &str| {
        let all = iteration(1)["components"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap()
    };
    let last = |name: &str| component(name)["samples"].as_array().unwrap().last().unwrap()["at_ms"].as_u64();
    // The first process has samples until its end, the second since its start.
    assert!(last("gateway") < last("successor") && component("gateway")["ended"] == false);
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("SIGHUP to `gateway`, `peer-postern.toml` rewritten, 21 times from"), "{report}");
}

#[test]
fn a_signal_ends_everything_and_what_was_measured_is_reported() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let folder = Folder::new(&format!("lab-run{signal}"));
        let long = TINY.replace("requests = 100", "duration = \"1h\"");
        let (scenario, out) = (folder.write("long.toml", long), folder.0.join("out"));
        let words = ["--scenario", text(&scenario), "--topology", "fused", "--keep", "--out", text(&out)];
        let mut running = Running::start(&[&["lab", "run"][..], &words].concat());
        // Both kinds of tokens are calibrated. Then a load begins that would take an hour.
        running.wait_for("fused/oidc: calibrated at ");
        std::thread::sleep(Duration::from_secs(1));
        assert!(!below(&out).is_empty(), "programs run");
        running.signal(signal);
        running.wait_for("! partial: ");
        assert_eq!(running.ended(), Some(1));
        let until = Instant::now() + Duration::from_secs(10);
        while !below(&out).is_empty() {
            assert!(Instant::now() < until, "{:?}", below(&out));
            std::thread::sleep(Duration::from_millis(10));
        }
        let record: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
        assert_eq!(record["run"]["partial"], true);
        assert_eq!(record["variants"][0]["iterations"].as_array().unwrap().len(), 1);
    }
}

/// A provider with its database, in two clusters, under complete sign-ins.
const SIGN_INS: &str = r#"
title = "sign-ins"
rounds = 1

[load.code]
flow = "code_consent"
arrivals = "closed"
concurrency = 4
duration = "4s"
warmup = "100ms"
timeout = "60s"

[load.password]
flow = "password_revoke"
arrivals = "closed"
concurrency = 4
duration = "4s"
warmup = "100ms"
timeout = "60s"

[[variant]]
topology = "idp-multi"
tokens = "oidc"
variables = { connector = "postgres" }
"#;

#[test]
fn a_provider_of_two_clusters_is_measured_by_its_flows() {
    let folder = Folder::new("lab-run-identity");
    let (scenario, out) = (folder.write("sign-ins.toml", SIGN_INS), folder.0.join("out"));
    let done = postern(&["lab", "run", "--scenario", text(&scenario), "--keep", "--out", text(&out)]);
    let words = output_text(&done);
    assert_eq!(done.status.code(), Some(0), "{words}");
    let record: Value = serde_json::from_slice(&std::fs::read(out.join("report.json")).unwrap()).unwrap();
    let variants = record["variants"].as_array().unwrap();
    let flows: Vec<_> = variants.iter().map(|variant| variant["load"]["flow"].as_str().unwrap()).collect();
    assert_eq!(flows, ["code_consent", "password_revoke"]);
    for variant in variants {
        assert_eq!(variant["labels"]["connector"], "postgres");
        // CPU per request counts the processes that sign-ins reach, not the gateway in front of the
        // service.
        let path = ["front", "node-a1", "node-a2", "node-b1", "node-b2", "postgres"];
        assert_eq!(variant["path"], serde_json::json!(path));
        let iteration = &variant["iterations"][0];
        let classes = iteration["classes"].as_array().unwrap();
        let good =
            classes.len() == 1 && classes[0]["outcome"] == "ok" && classes[0]["count"].as_u64() > Some(0);
        assert!(good, "{}: {classes:?}", variant["name"]);
        let components = iteration["components"].as_array().unwrap();
        let names: Vec<_> = components.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            [
                "backend",
                "postgres",
                "node-a1",
                "node-a2",
                "node-b1",
                "node-b2",
                "front",
                "gateway-a",
                "gateway-b"
            ]
        );
        let used = |name: &str| {
            let component = components.iter().find(|one| one["name"] == name).unwrap();
            let samples = component["samples"].as_array().unwrap();
            let cpu = |at: usize| {
                samples[at]["user_ms"].as_u64().unwrap() + samples[at]["system_ms"].as_u64().unwrap()
            };
            cpu(samples.len() - 1) - cpu(0)
        };
        // Every node handles sign-ins, and the database works for them.
        assert!(["node-a1", "node-a2", "node-b1", "node-b2", "postgres"].iter().all(|name| used(name) > 0));
    }
    // Gateways were ready when they followed the provider.
    let log = std::fs::read_to_string(out.join("work/1-idp-multi/gateway-b/gateway.toml")).unwrap();
    assert!(log.contains("revocation.secret_file = "), "{log}");
}
