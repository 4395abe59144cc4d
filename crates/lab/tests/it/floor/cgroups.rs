//! Limits by control groups if this machine permits them; otherwise the error message.

use lab::run::run;
use lab::scenario::{Scenario, ScenarioOptions};
use lab::topology::{Running, TopologyOverrides};
use lab_load::cgroup::{Hierarchy, Limits};

use super::{Lab, alive, parse, server_component, wait_until};

fn can_limit() -> bool {
    let limits = Limits { cpu_millicores: Some(100), memory_bytes: None };
    Hierarchy::detect().group("probe", limits).is_ok()
}

fn limited(limit: &str, environment: &str) -> String {
    let load = "[load]\nurl = \"http://127.0.0.1:@front.http@/\"\n";
    format!("{load}{}", server_component("front", &format!("cpu_limit = \"{limit}\""), environment))
}

#[test]
fn a_limited_component_runs_in_its_group_or_the_error_says_what_is_missing() {
    let lab = Lab::new();
    let started =
        Running::start(&parse(&limited("200m", "")), &TopologyOverrides::default(), &lab.place(), "run");
    if !can_limit() {
        let error = started.err().unwrap().to_string();
        assert!(error.contains("cannot limit component `front`") && error.contains("systemd-run"), "{error}");
        return;
    }
    let running = started.unwrap();
    let pid = running.processes()[0].1;
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = groups
        .lines()
        .find_map(|line| line.split(':').nth(2).filter(|path| path.contains("postern-lab-")))
        .unwrap()
        .to_owned();
    assert!(group.ends_with("-front"), "{groups}");
    drop(running);
    wait_until("the component has ended", || !alive(pid));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let left =
        mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    assert!(
        left.into_iter()
            .all(|mount| !std::path::Path::new(mount).join(group.trim_start_matches('/')).exists()),
        "the group is removed"
    );
}

#[test]
fn a_limit_that_is_used_up_is_found_with_the_rate_that_it_implies() {
    let lab = Lab::new();
    // Some milliseconds of CPU per request and a tenth of a core permit about ten requests a second
    // on any machine.
    let topology = lab.topology("limited", &limited("100m", ", LAB_TEST_WORK = \"1000\""));
    let scenario = format!(
        "rounds = 1\n[load.closed]\narrivals = 'closed'\nconcurrency = 4\nduration = '3s'\nwarmup = '500ms'\n[[variant]]\nname = 'a'\ntopology = '{topology}'\n"
    );
    let scenario = Scenario::from_text(&scenario, "mine.toml", &ScenarioOptions::default()).unwrap();
    let ran = run(&scenario, lab.options(), &lab.interrupt);
    if !can_limit() {
        let error = ran.err().unwrap().to_string();
        assert!(error.contains("nothing was measured") && error.contains("systemd-run"), "{error}");
        return;
    }
    let record = ran.unwrap().record;
    let iteration = &record.variants[0].iterations[0];
    let component = &iteration.components[0];
    assert_eq!(component.cpu_limit_cores, Some(0.1));
    let last = component.samples.last().unwrap();
    assert!(last.throttled_periods.unwrap() > 4 && last.throttled_ms.unwrap() > 100, "{last:?}");
    let findings = lab_analysis::diagnose::findings(&record);
    let found = findings.iter().find(|finding| finding.name == "throttled").expect("the throttle is named");
    assert!(
        found.evidence.contains("`front` used up its 0.1 cores")
            && found.evidence.contains("requests/s, measured"),
        "{}",
        found.evidence
    );
}

#[test]
fn a_program_that_is_ended_for_want_of_memory_is_counted() {
    let lab = Lab::new();
    // Its child process allocates all memory and is killed; the server continues.
    let server = server_component("front", "memory_limit = \"96MiB\"", "");
    let server = server.replace("program = \"server\"", "program = \"/bin/sh\"").replace(
        "arguments = [",
        &format!("arguments = [\"-c\", \"(sleep 1; tail /dev/zero) & exec {} \\\"$@\\\"\", \"sh\", ", own()),
    );
    let topology =
        lab.topology("hungry", &format!("[load]\nurl = \"http://127.0.0.1:@front.http@/\"\n{server}"));
    let scenario = format!(
        "rounds = 1\n[load.open]\narrivals = 'constant'\nrate = 20\nduration = '6s'\nwarmup = '0s'\n[[variant]]\ntopology = '{topology}'\n"
    );
    let scenario = Scenario::from_text(&scenario, "mine.toml", &ScenarioOptions::default()).unwrap();
    let ran = run(&scenario, lab.options(), &lab.interrupt);
    let limits = Limits { cpu_millicores: None, memory_bytes: Some(96 << 20) };
    if Hierarchy::detect().group("probe", limits).is_err() {
        assert!(ran.err().unwrap().to_string().contains("systemd-run"));
        return;
    }
    let record = ran.unwrap().record;
    let samples = &record.variants[0].iterations[0].components[0].samples;
    assert_eq!(samples.first().unwrap().oom_kills, Some(0));
    assert_eq!(samples.last().unwrap().oom_kills, Some(1), "{:?}", samples.last());
    let findings = lab_analysis::diagnose::findings(&record);
    let found = findings.iter().find(|finding| finding.name == "out-of-memory").expect("it is named");
    assert!(found.evidence.contains("`front` 1 times"), "{}", found.evidence);
}

fn own() -> String {
    std::env::current_exe().unwrap().display().to_string()
}
