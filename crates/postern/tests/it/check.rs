//! `postern check` and the top-level command line.

use serde_json::{Value, json};

use crate::support::{FILES, Folder, expect, output_text, postern, sources};

/// Writes a fixture into the folder of the files that it names.
fn beside_files(fixture: &str) -> String {
    let text = std::fs::read_to_string(sources().join(fixture)).unwrap();
    let name = fixture.replace('/', "-");
    FILES.write(&name, text).display().to_string()
}

/// Removes what differs between runs.
fn tidy(text: &str) -> String {
    let base = format!("{}/", FILES.0.display());
    let text = text.replace(&base, "");
    text.lines().flat_map(|line| [line.trim_end(), "\n"]).collect()
}

#[test]
fn a_sound_configuration_is_shown_in_a_table() {
    let file = beside_files("sound/everything.toml");
    let output = postern(&["check", "--config", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    expect("check-everything.txt", &tidy(&String::from_utf8(output.stdout).unwrap()));
}

#[test]
fn logins_are_shown() {
    let output = postern(&["check", "--config", &beside_files("sound/login.toml")]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    expect("check-login.txt", &tidy(&String::from_utf8(output.stdout).unwrap()));
}

#[test]
fn faults_are_shown_with_their_lines() {
    let file = beside_files("faulty/references.toml");
    let output = postern(&["check", "--config", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "faults belong on standard error");
    expect("check-references.txt", &tidy(&String::from_utf8(output.stderr).unwrap()));
}

#[test]
fn a_program_reads_what_a_configuration_means() {
    let file = beside_files("sound/warnings.toml");
    let output = postern(&["check", &file, "--output", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    assert!(output.stderr.is_empty(), "warnings are in the object");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&result["file"], &result["valid"]), (&json!(file), &json!(true)));
    let finding = &result["findings"][0];
    assert_eq!(finding["severity"], "warning");
    assert_eq!(finding["key"], "admin.address");
    assert_eq!((&finding["line"], &finding["column"]), (&json!(3), &json!(11)));
    assert!(finding["message"].as_str().unwrap().contains("needs no credentials"), "{finding}");
    assert!(finding["help"].as_str().unwrap().contains("loopback"), "{finding}");
    let overview = &result["overview"];
    let plain = json!({ "kind": "listener", "name": "plain", "text": "0.0.0.0:8080, plain text, HTTP/1.1 and HTTP/2" });
    assert!(overview["settings"].as_array().unwrap().contains(&plain), "{overview}");
    let route = &overview["routes"][0];
    assert_eq!((&route["name"], &route["public"]), (&json!("app"), &json!(false)));
    assert_eq!(route["who_may"][0], "user alice");
    assert_eq!(route["upstream"], json!(["app", "http://127.0.0.1:9000"]));
}

#[test]
fn a_program_reads_the_faults() {
    let output = postern(&["check", "--output", "json", &beside_files("faulty/references.toml")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{}", output_text(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["valid"], false);
    assert_eq!(result["findings"][0]["severity"], "error");
    assert!(result.get("overview").is_none() && result.get("request").is_none());
}

#[test]
fn a_program_reads_why_a_request_is_refused() {
    let file = beside_files("sound/warnings.toml");
    let output = postern(&["check", &file, "--output", "json", "--request", "GET http://app.example/x"]);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let request = &result["request"];
    assert_eq!(request["verdict"], "refused");
    assert_eq!(request["parts"][0]["heading"], "request");
    assert_eq!(
        request["parts"][0]["steps"][0],
        json!({ "depth": 0, "holds": true, "text": "GET http://app.example/x" })
    );
    let answer = &request["answers"][0];
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("refused"), &json!(401)));
    assert_eq!(answer["code"], "unauthenticated");
}

#[test]
fn the_file_is_given_once() {
    let file = beside_files("sound/minimal.toml");
    assert_eq!(postern(&["check", &file]).status.code(), Some(0));
    assert_eq!(postern(&["check", &file, "--config", &file]).status.code(), Some(2));
    assert_eq!(postern(&["check", &file, "--output", "yaml"]).status.code(), Some(2));
}

#[test]
fn colours_are_for_terminals() {
    let file = beside_files("sound/warnings.toml");
    let output = postern(&["check", "--config", &file]);
    assert!(!output_text(&output).contains('\u{1b}'), "{}", output_text(&output));
}

#[test]
fn exit_codes_are_as_documented() {
    let folder = Folder::new("exit-codes");
    let sound = beside_files("sound/minimal.toml");
    let faulty = beside_files("faulty/nothing.toml");
    let missing = folder.0.join("missing.toml").display().to_string();
    let code = |arguments: &[&str]| postern(arguments).status.code();
    assert_eq!(code(&["check", "--config", &sound]), Some(0));
    assert_eq!(code(&["check", "--config", &sound, "--request", "GET http://app.example/"]), Some(0));
    assert_eq!(code(&["check", "--config", &faulty]), Some(1));
    assert_eq!(code(&["check", "--config", &missing]), Some(1));
    assert_eq!(code(&["check", "--config", &sound, "--request", "GET http://app.example/../x"]), Some(1));
    assert_eq!(code(&["serve", "--config", &faulty]), Some(1));
    assert_eq!(code(&["check"]), Some(2));
    assert_eq!(code(&["check", "--config", &sound, "--as", "x"]), Some(2), "--as needs --request");
    assert_eq!(code(&["frobnicate"]), Some(2));
    assert_eq!(code(&[]), Some(2));
    for misspelled in [["--request", "what"], ["--header", "what"], ["--header", "Host: other"]] {
        let mut arguments = vec!["check", "--config", &sound, "--request", "GET http://a/"];
        if misspelled[0] == "--request" {
            arguments.truncate(3);
        }
        arguments.extend(misspelled);
        assert_eq!(code(&arguments), Some(2), "{misspelled:?}");
    }
    assert_eq!(
        code(&["check", "--config", &sound, "--as", "@/missing", "--request", "GET http://a/"]),
        Some(3)
    );
}

#[test]
fn a_listener_that_cannot_be_bound_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = std::fs::read_to_string(sources().join("sound/minimal.toml")).unwrap();
    let text = text.replace("127.0.0.1:8080", &address) + "\n[admin]\nenabled = false\n";
    let file = FILES.write("taken.toml", text).display().to_string();
    let output = postern(&["serve", "--config", &file]);
    assert_eq!(output.status.code(), Some(3));
    let said = output_text(&output);
    assert!(said.contains("\"web\"") && said.contains(&address), "{said}");
}

#[test]
fn help_says_what_there_is() {
    let help = output_text(&postern(&["--help"]));
    for command in ["serve", "demo", "check", "echo", "token"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
        let help = output_text(&postern(&[command, "--help"]));
        assert!(help.contains("Usage:"), "{help}");
    }
    assert!(help.contains("Exit codes:"));
}
