//! Other load generators: real ones, and scripts in place of a failing one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use lab::run::{Options, RunError, run};
use lab::scenario::{Scenario, ScenarioOptions};
use lab::topology::ProgramFinder;
use lab_analysis::record::Outcome;
use lab_analysis::statistics::Figure;

use super::{Lab, guarded_topology, programs, read, wait_until};

const LOAD: &str = "[load.a]\narrivals = 'closed'\nconcurrency = 3\nduration = '1s'\nwarmup = '0s'\n";

fn scenario(lab: &Lab, load: &str, generators: &[&str]) -> Result<Scenario, String> {
    let topology = lab.topology("a", &guarded_topology(", LAB_TEST_WORK = \"5\""));
    let variant = |name: &&str| {
        format!("[[variant]]\nname = '{name}'\ntopology = '{topology}'\ngenerator = '{name}'\n")
    };
    let text = format!("rounds = 1\n{load}{}", generators.iter().map(variant).collect::<String>());
    Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).map_err(|error| error.to_string())
}

/// Options with a script in place of wrk.
fn with_script(lab: &Lab, script: &str) -> Options {
    let path: PathBuf = lab.path("wrk");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let programs: ProgramFinder = programs().with("wrk", path);
    Options { programs, ..lab.options() }
}

#[test]
fn the_same_is_seen_by_each_and_each_is_watched() {
    let lab = Lab::new();
    let load = LOAD.replace("'0s'", "'1s'") + "every_request = true\n";
    let scenario = scenario(&lab, &load, &["postern", "hey", "h2load"]).unwrap();
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    assert_eq!(ran.failed, []);
    let peers: Vec<&str> = ran.record.run.peers.iter().map(|peer| peer.name.as_str()).collect();
    assert_eq!(peers, ["h2load", "hey", "server"]);
    for variant in &ran.record.variants {
        let name = &variant.name;
        let iteration = &variant.iterations[0];
        assert!(iteration.count(Outcome::Ok) > 20, "{name}: {:?}", iteration.classes);
        assert_eq!(iteration.count(Outcome::Refused), 0, "{name}: the token is sent");
        assert!(Figure::P50.value(iteration).unwrap() > 0.0, "{name}");
        // Only the warm-up is subtracted. If the first request waits for a core, the window begins
        // later.
        let (seconds, warmup) = (iteration.seconds, iteration.warmup_s);
        assert!(seconds > 0.0 && seconds < 1.5 && warmup >= 0.9, "{name}: {seconds} s after {warmup} s");
        assert!(seconds + warmup > 1.6, "{name}: {seconds} s after {warmup} s");
        let components: Vec<&str> = iteration.components.iter().map(|component| &*component.name).collect();
        assert_eq!(components, ["front"], "{name}");
        let generator = iteration.sender.as_ref().unwrap();
        assert!(
            generator.name == "generator"
                && !generator.ended
                && generator.samples.iter().any(|sample| sample.rss_bytes > 0),
            "{name}"
        );
        // It may use too little CPU in a second for a figure per request.
        assert!(generator.cpu_error_us.is_some_and(|error| error > 0), "{name}");
        assert_eq!(variant.labels["generator"], *name.split('/').next().unwrap());
    }
}

#[test]
fn one_that_is_missing_or_fails_is_named_and_why() {
    let lab = Lab::new();
    let gone = Options { programs: programs().with("wrk", lab.path("nowhere")), ..lab.options() };
    let why = |options: Options| match run(&scenario(&lab, LOAD, &["wrk"]).unwrap(), options, &lab.interrupt)
    {
        Err(RunError::NothingMeasured { failed }) => failed[0].1.clone(),
        other => panic!("{other:?}"),
    };
    let missing = why(gone);
    assert!(missing.contains("`generator` needs `wrk`") && missing.contains("package wrk"), "{missing}");
    let failing = why(with_script(&lab, "echo 'unable to connect' >&2; exit 3"));
    assert!(failing.contains("`wrk` ended with") && failing.contains("unable to connect"), "{failing}");
    let strange = why(with_script(&lab, "echo hello"));
    assert!(strange.contains("cannot import the output of the load generator: `wrk`"), "{strange}");
}

#[test]
fn one_that_is_under_way_is_ended_with_the_run() {
    let lab = Lab::new();
    let pid = lab.path("pid");
    let options =
        with_script(&lab, &format!("[ \"$1\" = -v ] && exit; sleep 600 & echo $! > {}; wait", pid.display()));
    let scenario = scenario(&lab, LOAD, &["wrk"]).unwrap();
    let error = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&scenario, options, &lab.interrupt));
        wait_until("it was started", || !read(&pid).trim().is_empty());
        lab.interrupter.interrupt();
        running.join().unwrap().unwrap_err()
    });
    assert!(matches!(error, RunError::NothingMeasured { .. }), "{error}");
    let pid = read(&pid).trim().parse().unwrap();
    wait_until("what the script started is ended", || !super::alive(pid));
}

#[test]
fn what_another_generator_cannot_send_is_said_before() {
    let lab = Lab::new();
    for (change, words) in [
        (("'closed'\nconcurrency = 3", "'poisson'\nrate = 5"), "a load of hey must be a closed loop"),
        (("duration = '1s'", "requests = 5"), "must last whole seconds"),
        (("duration = '1s'", "duration = '1500ms'"), "must last whole seconds"),
        (("'0s'", "'200ms'"), "must last whole seconds"),
        (("'0s'", "'0s'\ntimeout = '300ms'"), "needs a `timeout` of whole seconds"),
        (("'0s'", "'0s'\ntokens = 2"), "can have at most one token"),
    ] {
        assert!(LOAD.contains(change.0));
        let said = scenario(&lab, &LOAD.replace(change.0, change.1), &["hey"]).unwrap_err();
        assert!(
            said.contains(words) && said.contains("variant `hey`: generator: load `a`"),
            "{change:?}\n{said}"
        );
        assert!(scenario(&lab, &LOAD.replace(change.0, change.1), &["postern"]).is_ok());
    }
    let over = |keys: &str| {
        let topology = lab.topology("b", &guarded_topology("").replace("[load]", keys));
        let text = format!(
            "rounds = 1\n{LOAD}[[variant]]\nname = 'v'\ntopology = '{topology}'\ngenerator = 'wrk'\n"
        );
        let read = |more: &str| {
            let read =
                Scenario::from_text(&format!("{text}{more}"), "mine.toml", &ScenarioOptions::default());
            read.map(drop).map_err(|error| error.to_string())
        };
        (read(""), read("protocol = 'h2'\n"), read("protocol = 'http/1.1'\n"))
    };
    for (keys, plain, http2, http1) in
        [("[load]", true, false, true), ("[load]\nprotocol = 'h2'", false, false, true)]
    {
        let (a, b, c) = over(keys);
        assert_eq!((a.is_ok(), b.is_ok(), c.is_ok()), (plain, http2, http1), "{keys}: {a:?} {b:?} {c:?}");
        assert!(b.unwrap_err().contains("with HTTP/1.1 and without TLS"));
    }
    let unknown = scenario(&lab, LOAD, &["ab"]).unwrap_err();
    assert!(unknown.contains("unknown variant `ab`") && unknown.contains("h2load"), "{unknown}");
}

#[test]
fn a_load_can_be_sent_in_the_first_rounds_only() {
    let lab = Lab::new();
    let topology = lab.topology("a", &guarded_topology(""));
    let text = format!(
        "rounds = 3\n[load.few]\nrounds = 1\narrivals = 'closed'\nconcurrency = 1\nrequests = 5\nwarmup = '0s'\n\
         [load.all]\narrivals = 'closed'\nconcurrency = 1\nrequests = 5\nwarmup = '0s'\n[[variant]]\nname = 'v'\ntopology = '{topology}'\n"
    );
    for fresh in ["round", "run", "together"] {
        let text = format!("fresh = '{fresh}'\n{text}");
        let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
        let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
        let rounds = |name: &str| -> Vec<u32> {
            let variant = ran.record.variant(name).unwrap();
            variant.iterations.iter().map(|iteration| iteration.number).collect()
        };
        assert_eq!((rounds("v/oauth/few"), rounds("v/oauth/all")), (vec![1], vec![1, 2, 3]), "{fresh}");
    }
}

#[test]
fn variables_say_where_load_enters() {
    let text = "rounds = 1\n[load.a]\narrivals = 'closed'\nconcurrency = 3\nduration = '1s'\n\
        [[variant]]\ntopology = 'peer-nginx'\ngenerator = 'wrk'\n";
    let read = |text: &str| {
        Scenario::from_text(text, "mine.toml", &ScenarioOptions::default()).map_err(|error| error.to_string())
    };
    assert_eq!(read(text).map(|scenario| scenario.variants().len()), Ok(1));
    let tls = format!("{text}variables = {{ entry = 'https://127.0.0.1:@gateway.http@/' }}\n");
    assert!(read(&tls).unwrap_err().contains("without TLS"), "{:?}", read(&tls).err());
}

#[test]
fn it_runs_on_the_cores_that_it_is_given() {
    let (lab, core) = (Lab::new(), super::usable_core());
    let told = lab.path("cores");
    let script =
        format!("[ \"$1\" = -v ] || grep Cpus_allowed_list /proc/$$/status > {}; exit 3", told.display());
    let topology = lab.topology("a", &guarded_topology(""));
    let read_with = |generator: &str, limits: &str| {
        let text = format!(
            "rounds = 1\n{LOAD}[[variant]]\ntopology = '{topology}'\ngenerator = '{generator}'\nlimits = {{ {limits} }}\n"
        );
        Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
            .map_err(|error| error.to_string())
    };
    let limits = format!("generator = {{ cores = [{core}] }}, front = {{ cores = [{core}] }}");
    let on_one = read_with("wrk", &limits).unwrap();
    run(&on_one, with_script(&lab, &script), &lab.interrupt).unwrap_err();
    assert_eq!(read(&told).split_whitespace().last(), Some(&*core.to_string()), "{}", read(&told));
    for (generator, limits, words) in [
        ("wrk", "generator = { cores = [9999] }", "core 9999 is not available to this process"),
        ("postern", "generator = { cores = [9999] }", "core 9999 is not available to this process"),
        ("postern", "front = { cores = [9999] }", "core 9999 is not available to this process"),
    ] {
        let scenario = read_with(generator, limits).unwrap();
        let error = run(&scenario, with_script(&lab, "exit 0"), &lab.interrupt).unwrap_err().to_string();
        assert!(error.contains(words), "{generator}, {limits}: {error}");
    }
    let wrong = read_with("wrk", "generator = { memory = '64MiB' }").unwrap_err();
    assert!(wrong.contains("limits.generator: the load generator can only have `cores`"), "{wrong}");
    let unknown = read_with("postern", "somebody = { cores = [0] }").unwrap_err();
    assert!(unknown.contains("no component `somebody`"), "{unknown}");
}
