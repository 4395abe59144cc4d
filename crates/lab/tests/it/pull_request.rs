//! The recipe for pull requests (examples/ci): the scenario can be read, and the script posts one
//! comment, tried against a server in the shape of the API.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use lab::scenario::{Scenario, ScenarioOptions};
use lab_analysis::offline::compare::{Side, Terms, compare};
use lab_analysis::test_support::sample;
use serde_json::{Value, json};

fn recipe() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/ci").canonicalize().unwrap()
}

/// A request as the server received it.
#[derive(Debug)]
struct Received {
    /// Method and target.
    line: String,
    authorization: String,
    body: Value,
}

/// A server that responds with these statuses and bodies, in order.
fn api(responses: Vec<(u16, Value)>) -> (String, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for (status, body) in responses {
            let (mut stream, _) = listener.accept().unwrap();
            let received = read(&mut stream);
            let body = body.to_string();
            let length = body.len();
            let head =
                format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
            let _ = sender.send(received);
        }
    });
    (url, requests)
}

fn read(stream: &mut TcpStream) -> Received {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    let end = |bytes: &[u8]| bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
    let head_end = loop {
        if let Some(end) = end(&bytes) {
            break end;
        }
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "a request ended in its head");
        bytes.extend_from_slice(&part[..read]);
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(name));
        line.map_or(String::new(), |line| line[name.len()..].trim().to_owned())
    };
    let length = field("content-length:").parse().unwrap_or(0);
    while bytes.len() < head_end + length {
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "a request ended in its body");
        bytes.extend_from_slice(&part[..read]);
    }
    Received {
        line: head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned(),
        authorization: field("authorization:"),
        body: serde_json::from_slice(&bytes[head_end..]).unwrap_or_default(),
    }
}

/// A job of a workflow: a folder with a program that prints this comparison.
struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new(comparison: &str, event: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("postern");
        std::fs::write(folder.path().join("comparison.md"), comparison).unwrap();
        let script =
            "#!/bin/sh\nprintf '%s\\n' \"$*\" > \"${0%/*}/arguments\"\ncat \"${0%/*}/comparison.md\"\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(folder.path().join("event.json"), event.to_string()).unwrap();
        Self { folder }
    }

    fn of_pull_request(comparison: &str) -> Self {
        Self::new(comparison, &json!({"pull_request": {"number": 7}}))
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// Runs the script against an API, with these variables besides those of a runner.
    fn run(&self, url: &str, more: &[(&str, &str)]) -> Output {
        let path = |name: &str| self.folder.path().join(name);
        Command::new(recipe().join("post-comparison"))
            .args(["run/report.json", "--a", "base/oidc/open", "--b", "head/oidc/open"])
            .env_remove("GITHUB_TOKEN")
            .env("POSTERN", path("postern"))
            .env("GITHUB_EVENT_PATH", path("event.json"))
            .env("GITHUB_STEP_SUMMARY", path("summary.md"))
            .env("GITHUB_REPOSITORY", "owner/name")
            .env("GITHUB_API_URL", url)
            .env("no_proxy", "127.0.0.1")
            .envs(more.iter().copied())
            .output()
            .unwrap()
    }
}

const TOKEN: [(&str, &str); 1] = [("GITHUB_TOKEN", "secret-token")];

/// A real comparison.
fn comparison() -> String {
    let record = sample::record(1);
    let side = |name| Side { name, file: "report.json", record: &record, variant: Some(name) };
    compare(side("gateway"), side("fused/oidc"), Terms { margin: 0.05 }).unwrap().markdown()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_first_run_writes_a_comment_and_the_summary() {
    let job = Job::of_pull_request(&comparison());
    let others = json!([{"id": 1, "body": "looks good"}, {"id": 2, "body": null}]);
    let (url, received) = api(vec![(200, others), (201, json!({"id": 3}))]);
    let done = job.run(&url, &TOKEN);
    assert!(done.status.success(), "{}", text(&done));
    assert_eq!(job.read("arguments"), "lab compare run/report.json --a base/oidc/open --b head/oidc/open\n");
    assert_eq!(job.read("summary.md"), comparison());
    let [list, write] = [received.recv().unwrap(), received.recv().unwrap()];
    assert_eq!(list.line, "GET /repos/owner/name/issues/7/comments?per_page=100&page=1");
    assert_eq!(list.authorization, "Bearer secret-token");
    assert_eq!(write.line, "POST /repos/owner/name/issues/7/comments");
    let body = write.body["body"].as_str().unwrap();
    assert_eq!(body, format!("<!-- postern lab compare: lab -->\n{}", comparison()));
    assert!(!text(&done).contains("secret-token"));
}

#[test]
fn a_later_run_replaces_its_comment_wherever_it_is() {
    let job = Job::of_pull_request(&comparison());
    let page: Vec<Value> = (0..100).map(|id| json!({"id": id, "body": "x"})).collect();
    let own = json!([
        {"id": 200, "body": "<!-- postern lab compare: other -->\n"},
        {"id": 201, "body": "<!-- postern lab compare: tls -->\nformer"},
    ]);
    let (url, received) = api(vec![(200, json!(page)), (200, own), (200, json!({}))]);
    let done = job.run(&url, &[TOKEN[0], ("COMMENT", "tls")]);
    assert!(done.status.success(), "{}", text(&done));
    let lines: Vec<String> = received.iter().take(3).map(|one| one.line).collect();
    assert!(lines[1].ends_with("&page=2"), "{lines:?}");
    assert_eq!(lines[2], "PATCH /repos/owner/name/issues/comments/201");
}

#[test]
fn a_token_that_may_only_read_leaves_the_summary() {
    let job = Job::of_pull_request(&comparison());
    let (url, _received) = api(vec![(200, json!([])), (403, json!({"message": "not accessible"}))]);
    let done = job.run(&url, &TOKEN);
    assert!(done.status.success(), "{}", text(&done));
    assert!(text(&done).contains("the token may not write a comment (status 403)"), "{}", text(&done));
    assert_eq!(job.read("summary.md"), comparison());
    let done = job.run("http://127.0.0.1:9", &[]);
    assert!(done.status.success() && text(&done).contains("no GITHUB_TOKEN"), "{}", text(&done));
    let push = Job::new(&comparison(), &json!({"ref": "refs/heads/main"}));
    let done = push.run("http://127.0.0.1:9", &TOKEN);
    assert!(done.status.success() && text(&done).contains("no pull request"), "{}", text(&done));
}

#[test]
fn what_fails_is_an_error() {
    let job = Job::of_pull_request(&comparison());
    let (url, _received) = api(vec![(500, json!({"message": "broken"}))]);
    let done = job.run(&url, &TOKEN);
    assert!(
        !done.status.success() && text(&done).contains("status 500, {\"message\":\"broken\"}"),
        "{}",
        text(&done)
    );
    let done = job.run("http://127.0.0.1:9", &TOKEN);
    assert!(!done.status.success() && text(&done).contains("no response from the API"), "{}", text(&done));
    std::fs::write(job.folder.path().join("postern"), "#!/bin/sh\necho 'no such variant' >&2\nexit 3\n")
        .unwrap();
    let done = job.run(&url, &TOKEN);
    assert_eq!(done.status.code(), Some(3), "{}", text(&done));
}

#[test]
fn a_comparison_that_is_too_long_for_a_comment_is_cut_at_a_line() {
    let line = "| € | figure |\n";
    let long = line.repeat(10_000);
    let job = Job::of_pull_request(&long);
    let (url, received) = api(vec![(200, json!([])), (201, json!({}))]);
    let done = job.run(&url, &TOKEN);
    assert!(done.status.success(), "{}", text(&done));
    let write = received.iter().nth(1).unwrap();
    let body = write.body["body"].as_str().unwrap();
    assert!(body.len() < 65_536 && body.contains("the summary of the job has all of it"), "{}", body.len());
    let rows = body.lines().skip_while(|row| !row.starts_with('|'));
    assert!(rows.clone().count() > 3000 && rows.into_iter().all(|row| row == line.trim_end()));
    assert_eq!(job.read("summary.md"), long);
}

#[test]
fn the_scenario_measures_both_sides() {
    let folder = recipe();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let text = read("pull-request.toml").replace(".github/lab", folder.to_str().unwrap());
    let scenario = Scenario::from_text(&text, "pull-request.toml", &ScenarioOptions::default()).unwrap();
    let variants = ["base/oidc/closed", "base/oidc/open", "head/oidc/closed", "head/oidc/open"];
    assert_eq!(scenario.variants(), variants);
    let workflow = read("lab-compare.yaml");
    assert!(workflow.contains("--a base/oidc/open --b head/oidc/open"), "names of the scenario");
    let sides = ["base", "head"].map(|side| {
        let words = [("base of the pull request", "SIDE"), ("pull request", "SIDE"), (side, "SIDE")];
        words.iter().fold(read(&format!("{side}.toml")), |text, (word, by)| text.replace(word, by))
    });
    assert_eq!(sides[0], sides[1], "they differ in the program only");
}
