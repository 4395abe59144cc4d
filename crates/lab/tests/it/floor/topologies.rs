//! Topologies: start, readiness, tokens, the check before load, and the end with all child
//! processes.

use std::collections::BTreeSet;
use std::process::Command;

use lab::topology::{ProgramFinder, Running, Topology, TopologyOverrides};

use super::{Lab, alive, guarded_topology, parse, read, server_component, wait_until};

fn start(lab: &Lab, text: &str) -> Result<Running, String> {
    Running::start(&parse(text), &TopologyOverrides::default(), &lab.place(), "run")
        .map_err(|error| error.to_string())
}

/// A shell component that logs its start and its stop signal.
fn logging_component(name: &str) -> String {
    let script = format!(
        "trap 'echo end {name} >>@run@/order; exit 0' TERM; echo start {name} >>@run@/order; echo up; while :; do sleep 0.05; done"
    );
    format!(
        "[[component]]\nname = \"{name}\"\nprogram = \"/bin/sh\"\narguments = [\"-c\", \"\"\"{script}\"\"\"]\n"
    )
}

const NOWHERE: &str = "[load]\nurl = \"http://127.0.0.1:1/\"\n";

#[test]
fn components_start_in_order_and_end_in_the_reverse_one() {
    let lab = Lab::new();
    let text =
        [NOWHERE, &logging_component("one"), &logging_component("two"), &logging_component("three")].concat();
    let running = start(&lab, &text).unwrap();
    let order = lab.path("work/run/order");
    wait_until("all have begun", || read(&order).lines().count() == 3);
    let pids: Vec<u32> = running.processes().into_iter().map(|(_, pid)| pid).collect();
    drop(running);
    let ends: Vec<String> = read(&order).lines().skip(3).map(str::to_owned).collect();
    assert_eq!(ends, ["end three", "end two", "end one"]);
    assert!(pids.into_iter().all(|pid| !alive(pid)));
}

#[test]
fn what_a_component_started_ends_with_it_even_in_a_session_of_its_own() {
    let lab = Lab::new();
    // One child ignores the stop signal; the other has left the process group, as a daemon does.
    let script = "trap '' TERM; (trap '' TERM; sleep 600) & echo $! >@run@/grouped; setsid sleep 600 & wait; sleep 600";
    let component = format!(
        "[[component]]\nname = \"a\"\nprogram = \"/bin/sh\"\narguments = [\"-c\", \"\"\"{script}\"\"\"]\n"
    );
    let running = start(&lab, &[NOWHERE, &component].concat()).unwrap();
    let root = running.processes()[0].1;
    let family = || -> BTreeSet<u32> {
        let said = Command::new("ps").args(["-eo", "pid=,ppid="]).output().unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        let pairs: Vec<(u32, u32)> = text
            .lines()
            .filter_map(|line| {
                let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap());
                Some((numbers.next()?, numbers.next()?))
            })
            .collect();
        let mut found = BTreeSet::from([root]);
        for _ in 0..4 {
            let more = pairs.iter().filter(|(_, parent)| found.contains(parent)).map(|(pid, _)| *pid);
            found.extend(more.collect::<Vec<_>>());
        }
        found
    };
    wait_until("both are there", || family().len() >= 3);
    let all = family();
    drop(running);
    wait_until("everybody has ended", || all.iter().all(|pid| !alive(*pid)));
}

#[test]
fn a_panic_ends_them_as_well() {
    let lab = Lab::new();
    let pids = std::sync::Mutex::new(Vec::new());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let running =
            start(&lab, &[NOWHERE, &logging_component("one"), &logging_component("two")].concat()).unwrap();
        pids.lock().unwrap().extend(running.processes().into_iter().map(|(_, pid)| pid));
        let order = lab.path("work/run/order");
        wait_until("both have begun", || read(&order).lines().count() == 2);
        // Bypasses every error handler and the panic message on the test's output.
        std::panic::resume_unwind(Box::new("for the test"));
    }));
    assert!(panicked.is_err());
    let pids = pids.into_inner().unwrap();
    assert_eq!(pids.len(), 2);
    assert!(pids.into_iter().all(|pid| !alive(pid)));
    assert!(read(&lab.path("work/run/order")).ends_with("end two\nend one\n"));
}

#[test]
fn names_stand_for_ports_files_and_folders() {
    let lab = Lab::new();
    std::fs::write(lab.path("own.cfg"), "port @front.http@ user me@example.org run @run@").unwrap();
    let keys = "files = { \"own.cfg\" = \"own.cfg\" }\nready = { http = \"http://127.0.0.1:@front.http@/\" }";
    let text =
        format!("[load]\nurl = \"http://127.0.0.1:@front.http@/\"\n{}", server_component("front", keys, ""));
    let topology = Topology::read(&lab.topology("mine", &text)).unwrap();
    let mut running = Running::start(&topology, &TopologyOverrides::default(), &lab.place(), "run").unwrap();
    running.check(None).unwrap();
    let port = running.fill("@front.http@").unwrap();
    let written = read(&lab.path("work/run/front/own.cfg"));
    assert!(written.starts_with(&format!("port {port} user me@example.org run /")), "{written}");
    assert!(running.fill("@back.http@").is_err());
}

#[test]
fn one_that_does_its_work_is_waited_for_and_cores_and_the_signal_to_end_are_as_told() {
    let (lab, core) = (Lab::new(), super::usable_core());
    let first = "[[component]]\nname = \"first\"\nprogram = \"/bin/sh\"\nonce = true\n\
                 arguments = [\"-c\", \"sleep 0.2; echo done >@run@/done\"]\n";
    let script =
        "trap 'echo int >@run@/signal; exit 0' INT; cat @run@/done >@run@/seen; while :; do sleep 0.05; done";
    let second = format!(
        "[[component]]\nname = \"second\"\nprogram = \"/bin/bash\"\ncores = [{core}]\nstop_signal = \"int\"\n\
         arguments = [\"-c\", \"\"\"{script}\"\"\"]\n"
    );
    let running = start(&lab, &[NOWHERE, first, &second].concat()).unwrap();
    wait_until("the second has seen what the first did", || read(&lab.path("work/run/seen")) == "done\n");
    let (name, pid) = running.processes().remove(0);
    assert_eq!(name, "second");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains(&format!("Cpus_allowed_list:\t{core}\n")), "{status}");
    drop(running);
    assert_eq!(read(&lab.path("work/run/signal")), "int\n");
    // A program that exits with an error is an error, and so is a core that does not exist.
    let failing = first.replace("echo done >@run@/done", "exit 4");
    assert!(
        start(&lab, &[NOWHERE, &failing].concat()).err().unwrap().contains("`first` ended (exit code 4)")
    );
    let nowhere = second.replace(&format!("cores = [{core}]"), "cores = [1000]");
    assert!(start(&lab, &[NOWHERE, &nowhere].concat()).err().unwrap().contains("core 1000 is not available"));
}

#[test]
fn tokens_are_different_ones_and_the_way_through_is_checked() {
    let lab = Lab::new();
    let mut running = start(&lab, &guarded_topology("")).unwrap();
    let tokens = running.tokens(Some("oauth"), 5).unwrap();
    assert_eq!(tokens.iter().collect::<BTreeSet<_>>().len(), 5);
    running.check(Some(&tokens[0])).unwrap();
    let error = running.tokens(Some("saml"), 1).unwrap_err().to_string();
    assert!(error.contains("unknown token mode `saml`; available: oauth"), "{error}");
    // A gateway that accepts every request does not measure authentication.
    let open = guarded_topology("").replace(", LAB_TEST_GUARDED = \"yes\"", "");
    let error = start(&lab, &open).unwrap().check(Some("token-1")).unwrap_err().to_string();
    assert!(error.contains("without a token, which must be refused"), "{error}");
}

#[test]
fn a_component_that_ends_is_told_with_its_last_words_and_takes_the_others_along() {
    let lab = Lab::new();
    let broken = "[[component]]\nname = \"broken\"\nprogram = \"/bin/sh\"\nports = [\"http\"]\n\
                  arguments = [\"-c\", \"echo one; echo no such database >&2; exit 7\"]\n";
    let error = start(&lab, &[NOWHERE, &logging_component("one"), broken].concat()).err().unwrap();
    assert!(
        error.contains("`broken` ended (exit code 7)") && error.contains("    no such database"),
        "{error}"
    );
    assert!(error.contains("broken/log"), "{error}");
    let order = read(&lab.path("work/run/order"));
    assert!(order.ends_with("end one\n") || order.is_empty(), "{order}");
}

#[test]
fn a_component_that_does_not_become_ready_is_told_with_its_last_answer() {
    let lab = Lab::new();
    let keys = "ready = { http = \"http://127.0.0.1:@front.http@/busy\", timeout = \"400ms\" }";
    let error = start(&lab, &[NOWHERE, &server_component("front", keys, "")].concat()).err().unwrap();
    assert!(
        error.contains("`front` was not ready within 0.4 s") && error.contains("answers 503: not yet"),
        "{error}"
    );
}

#[test]
fn what_is_missing_is_named_with_how_to_get_it() {
    let lab = Lab::new();
    let component =
        |program: &str| format!("{NOWHERE}[[component]]\nname = \"a\"\nprogram = \"{program}\"\n");
    let error = start(&lab, &component("no-such-program")).err().unwrap();
    assert!(
        error.contains("needs `no-such-program`") && error.contains("--program no-such-program=PATH"),
        "{error}"
    );
    let own = format!("{}[programs.no-such-program]\nget = \"ask Ada\"\n", component("no-such-program"));
    assert!(start(&lab, &own).err().unwrap().contains("ask Ada"));
    let place = lab::topology::Workdir::new(
        &lab.path("work"),
        ProgramFinder::default().with("envoy", "/nowhere/envoy".into()),
        lab.interrupt.clone(),
    );
    let error =
        Running::start(&parse(&component("envoy")), &TopologyOverrides::default(), &place.unwrap(), "run");
    let error = error.err().unwrap().to_string();
    assert!(
        error.contains("not an executable file at /nowhere/envoy") && error.contains("Envoy project"),
        "{error}"
    );
}

#[test]
fn an_interrupt_ends_the_wait_for_readiness() {
    let lab = Lab::new();
    let keys = "ready = { http = \"http://127.0.0.1:@front.http@/busy\", timeout = \"1h\" }";
    let text = [NOWHERE, &server_component("front", keys, "")].concat();
    let error = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| start(&lab, &text).err().unwrap());
        wait_until("the component runs", || lab.path("work/run/front/log").exists());
        lab.interrupter.interrupt();
        waiting.join().unwrap()
    });
    assert_eq!(error, "interrupted");
}

#[test]
fn a_component_can_work_several_times_keep_what_it_prints_and_share_secrets() {
    let lab = Lab::new();
    let text = format!(
        "secrets = [\"one\"]\n{NOWHERE}[[component]]\nname = \"first\"\nprogram = \"/bin/sh\"\nonce = true\ntimes = 3\n\
         stdout = \"said\"\narguments = [\"-c\", \"echo @n@ @secret.one@ @port.x@; echo aside >&2\"]\nports = [\"x\"]\n"
    );
    let running = start(&lab, &text).unwrap();
    let fill = |name: &str| running.fill(name).unwrap();
    let (secret, port) = (fill("@secret.one@"), fill("@first.x@"));
    let expected = [1, 2, 3].map(|time| format!("{time} {secret} {port}\n")).concat();
    assert_eq!(read(&lab.path("work/run/first/said")), expected);
    assert_eq!(read(&lab.path("work/run/first/log")), "aside\naside\naside\n");
    assert_eq!(read(std::path::Path::new(&fill("@secret_file.one@"))).trim(), secret);
    // 32 bytes, without characters that have a meaning in a URL or a configuration.
    assert!(secret.len() == 44 && !secret.contains(['+', '/']), "{secret}");
    assert!(running.processes().is_empty(), "the process has ended");
    drop(running);
    // Another run in the same folder begins with an empty one and a new secret.
    let again = start(&lab, &text).unwrap();
    assert_ne!(again.fill("@secret.one@").unwrap(), secret);
    assert_eq!(read(&lab.path("work/run/first/said")).lines().count(), 3);
}

#[test]
fn root_gives_a_component_the_account_that_it_wants() {
    let lab = Lab::new();
    let component = "[[component]]\nname = \"a\"\nprogram = \"/bin/sh\"\nonce = true\nuser = \"nobody\"\nstdout = \"who\"\n\
                     files = { \"own.cfg\" = \"own.cfg\" }\narguments = [\"-c\", \"id -un; cat @file.own.cfg@ && echo mine >@work@/mine\"]\n";
    std::fs::write(lab.path("own.cfg"), "its file\n").unwrap();
    // Other accounts must be able to enter this folder, like the lab's own folders.
    std::fs::set_permissions(lab.path("."), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let topology = Topology::read(&lab.topology("mine", &[NOWHERE, component].concat())).unwrap();
    let _running = Running::start(&topology, &TopologyOverrides::default(), &lab.place(), "run").unwrap();
    let me = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let who = if me.trim() == "root" { "nobody" } else { me.trim() };
    assert_eq!(read(&lab.path("work/run/a/who")), format!("{who}\nits file\n"));
    assert_eq!(read(&lab.path("work/run/a/mine")), "mine\n");
    if me.trim() == "root" {
        let unknown = component.replace("nobody", "nobody-at-all");
        let error = start(
            &lab,
            &[
                NOWHERE,
                &unknown
                    .replace("files = { \"own.cfg\" = \"own.cfg\" }\n", "")
                    .replace("@file.own.cfg@", "x"),
            ]
            .concat(),
        );
        let error = error.err().unwrap();
        assert!(
            error.contains("component `a`: user") && error.contains("no account `nobody-at-all`"),
            "{error}"
        );
    }
}

#[test]
fn readiness_can_be_a_word() {
    let lab = Lab::new();
    let ready = |says: &str| {
        let keys = format!(
            "ready = {{ http = \"http://127.0.0.1:@front.http@/\", says = \"{says}\", timeout = \"2s\" }}"
        );
        start(&lab, &[NOWHERE, &server_component("front", &keys, "")].concat())
    };
    let error = ready("something else").err().unwrap();
    assert!(error.contains("component `front` was not ready within 2 s"), "{error}");
}
