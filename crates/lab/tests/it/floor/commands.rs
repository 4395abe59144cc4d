//! Command `lab run`: executed with the arguments of a command line.

use std::fs;
use std::time::{Duration, Instant};

use clap::Parser;
use lab::cli::{Arguments, CommandOutcome, run};

use super::{Lab, guarded_topology, programs, read};

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn lab(words: &[&str]) -> Result<(CommandOutcome, String), String> {
    let words = ["lab", "run"].iter().chain(words);
    let program = Program::try_parse_from(words).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    let ending = run(&program.arguments, &programs(), &mut out).map_err(|error| error.to_string())?;
    Ok((ending, String::from_utf8(out).unwrap()))
}

#[test]
fn what_ships_is_listed() {
    let (_, said) = lab(&["--list"]).unwrap();
    for word in [
        "paths",
        "cpu-limit",
        "slow-backend",
        "counts",
        "envoy-3x",
        "edge → authentication → authorization → backend",
        "(oauth, oidc)",
    ] {
        assert!(said.contains(word), "{word}\n{said}");
    }
}

#[test]
fn what_would_run_is_told_without_running_it() {
    let folder = Lab::new();
    let topology = "[load]\nurl = \"@there.url@/app\"\n[tokens.mode.oidc]\nfile = \"no-such-file\"\n\
        [[component]]\nname = \"there\"\nurl = \"http://192.0.2.1\"\n[[component]]\nname = \"here\"\nprogram = \"no-such-program\"\n";
    let topology = folder.topology("both", topology);
    let (ending, said) = lab(&["--check", "--topology", &topology]).unwrap();
    assert_eq!(ending, CommandOutcome::Success);
    for word in [
        "there: at http://192.0.2.1",
        "here: program no-such-program",
        "would be excluded: component `here` needs `no-such-program`",
        "@there.url@/app",
        "both/oidc/open, 5 rounds",
        "takes at least 2 min",
    ] {
        assert!(said.contains(word), "{word}\n{said}");
    }
    fs::write(&topology, "[load]\nurl = \"@their.url@/app\"\n").unwrap();
    let error = lab(&["--check", "--topology", &topology]).unwrap_err();
    assert!(error.contains("their.url"), "{error}");
}

#[test]
fn faults_of_the_command_line_and_of_files_say_what_instead() {
    let folder = Lab::new();
    let bad = folder.path("bad.toml");
    fs::write(&bad, "rounds = 1\n[load.a]\narrival = 'closed'\n").unwrap();
    for (words, expected) in [
        (vec![], "--scenario"),
        (
            vec!["--scenario", "pahts"],
            "unknown scenario `pahts`: not a file, and not a built-in one; available: one, knee, paths",
        ),
        (vec!["--scenario", "one", "--topology", "fusd"], "unknown topology `fusd`"),
        (vec!["--scenario", "paths", "--topology", "fusd"], "has no topology `fusd`; it has 2x, 3x"),
        (vec!["--scenario", "paths", "--rounds", "0"], "0 is not in 1..=1000"),
        (vec!["--scenario", "paths", "--program", "envoy"], "write NAME=PATH"),
        (vec!["--scenario", bad.to_str().unwrap()], "unknown field `arrival`"),
    ] {
        let error = lab(&words).unwrap_err();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_told_before_anything_runs() {
    let folder = Lab::new();
    let topology = folder.topology("mine", &guarded_topology(""));
    let out = folder.path("a-file");
    fs::write(&out, "kept").unwrap();
    let started = Instant::now();
    let error = lab(&["--topology", &topology, "--quick", "--out", out.to_str().unwrap()]).unwrap_err();
    assert!(error.contains("a-file") && error.contains("cannot write into"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(2), "nothing was measured");
    assert_eq!(read(&out), "kept");
}

#[test]
fn one_topology_is_measured_and_reported() {
    let folder = Lab::new();
    let topology = folder.topology("mine", &guarded_topology(""));
    let out = folder.path("out");
    let words = [
        "--topology",
        &topology,
        "--quick",
        "--rounds",
        "1",
        "--keep",
        "--seed",
        "9",
        "--commit",
        "abc",
        "--out",
        out.to_str().unwrap(),
    ];
    let (ending, said) = lab(&words).unwrap();
    assert_eq!(ending, CommandOutcome::Success);
    assert!(
        said.contains("! quick: ")
            && said.ends_with("report.html\n")
            && said.starts_with("configurations and logs: "),
        "{said}"
    );
    let record = lab::files::read_record(&out.join("report.json")).unwrap();
    assert_eq!(
        record.variants.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(),
        ["mine/oauth/closed", "mine/oauth/open"]
    );
    assert_eq!(
        (record.run.seed, record.run.quick, record.run.scenario.as_deref()),
        (Some(9), true, Some("one"))
    );
    assert!(read(&out.join("report.md")).contains("mine/oauth/open"));
    assert!(out.join("work/1-mine/front/log").exists());
}
