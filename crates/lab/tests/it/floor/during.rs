//! Events: load that enters at several places, and actions on components during load.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use lab::run::run;
use lab::scenario::{Scenario, ScenarioOptions};
use lab_analysis::offline::report::sheet;
use lab_analysis::record::{Outcome, Record};

use super::{Lab, guarded_topology, read, server_component};

fn measured(lab: &Lab, topology: &str, head: &str, load: &str) -> Record {
    let topology = lab.topology("a", topology);
    let text = format!("{head}\n[load.a]\n{load}\n[[variant]]\ntopology = '{topology}'\n");
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
        .unwrap_or_else(|e| panic!("{e}"));
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ran.failed, []);
    ran.record
}

#[test]
fn several_entrances_share_a_load_and_one_record() {
    let lab = Lab::new();
    let topology = format!(
        "[load]\nurls = [\"http://127.0.0.1:@one.http@/\", \"http://127.0.0.1:@two.http@/other\"]\n{}{}",
        server_component("one", "", ""),
        server_component("two", "", "")
    );
    for (load, each) in [
        ("arrivals = 'constant'\nrate = 100\nduration = '1500ms'\nwarmup = '0s'", 75),
        ("arrivals = 'closed'\nconcurrency = 4\nrequests = 200\nwarmup = '0s'", 100),
    ] {
        let record = measured(&lab, &topology, "rounds = 1", load);
        let iteration = &record.variants[0].iterations[0];
        let by_status: Vec<_> = iteration.classes.iter().map(|class| (class.status, class.count)).collect();
        assert_eq!(by_status, [(Some(200), each), (Some(204), each)], "{load}");
        assert_eq!(iteration.latency(Outcome::Ok).unwrap().count(), 2 * each);
        let slices: u64 = iteration.timeline.iter().map(|slice| slice.ok).sum();
        assert_eq!(slices, 2 * each, "the timeline is that of both");
        let opened = |name: &str| {
            let component = iteration.components.iter().find(|component| component.name == name).unwrap();
            component.samples.last().unwrap().threads
        };
        assert!(opened("one") > 1 && opened("two") > 1, "each has connections of its own");
    }
}

#[test]
fn a_component_that_is_made_to_stand_still_goes_on_by_itself_when_load_is_over() {
    let lab = Lab::new();
    let load = "arrivals = 'closed'\nconcurrency = 2\nduration = '1500ms'\nwarmup = '0s'\n\
                event = [{ at = '900ms', component = 'front', signal = 'CONT' }, { at = '200ms', component = 'front', signal = 'STOP' },\n\
                         { at = '1400ms', component = 'front', signal = 'STOP' }]";
    // The second round begins in the state that the first one left.
    let record = measured(&lab, &guarded_topology(""), "rounds = 2\nfresh = 'run'", load);
    for iteration in &record.variants[0].iterations {
        let events: Vec<&str> = iteration.events.iter().map(|event| event.what.as_str()).collect();
        let stop = "SIGSTOP to `front`";
        assert_eq!(events, [stop, "SIGCONT to `front`", stop], "in the order of time");
        assert!(iteration.events[0].at_ms >= 200 && iteration.events[1].at_ms >= 900);
        let longest = iteration.latency(Outcome::Ok).unwrap().max();
        assert!(longest >= 300_000_000, "nobody answered meanwhile: {longest}");
        assert!(!iteration.components[0].ended);
    }
}

#[test]
fn a_component_that_is_killed_and_started_again_is_watched_on() {
    let lab = Lab::new();
    let load = "arrivals = 'constant'\nrate = 100\nduration = '4s'\nwarmup = '0s'\n\
                event = [{ at = '500ms', component = 'front', signal = 'KILL' }, { at = '1s', component = 'front', restart = true }]";
    let record = measured(&lab, &guarded_topology(", LAB_TEST_WORK = \"300\""), "rounds = 1", load);
    let iteration = &record.variants[0].iterations[0];
    assert_eq!(iteration.events.len(), 2);
    assert_eq!(iteration.events[1].what, "restart of `front`");
    assert!(iteration.count(Outcome::Failed) > 0, "nobody was there for a while");
    let back = iteration.events[1].at_ms;
    let after =
        iteration.timeline.iter().filter(|slice| slice.at_ms > back).map(|slice| slice.ok).sum::<u64>();
    assert!(after > 0, "it answers again");
    let component = &iteration.components[0];
    assert!(!component.ended);
    let last = component.samples.last().unwrap();
    assert!(last.at_ms > back && last.rss_bytes > 0, "{last:?}");
    let before = component.samples.iter().rfind(|sample| sample.at_ms <= back).unwrap();
    assert!(last.user_ms + last.system_ms > before.user_ms + before.system_ms, "{before:?} {last:?}");
}

#[test]
fn what_cannot_be_done_to_a_topology_is_told_before_anything_runs() {
    let lab = Lab::new();
    let topology = lab.topology("a", &guarded_topology(""));
    for (event, words) in [
        (
            "{ at = '1s', component = 'broker', signal = 'STOP' }",
            "component `broker`, but topology `a` does not start it; it starts front",
        ),
        ("{ at = 'soon', component = 'front', signal = 'STOP' }", "load.a.event: at: `soon`"),
        ("{ at = '1s', component = 'front', signal = 'PIPE' }", "unknown variant `PIPE`"),
        ("{ at = '1s', component = 'front' }", "needs exactly one of `signal`"),
        (
            "{ at = '1s', component = 'front', signal = 'STOP', restart = true }",
            "needs exactly one of `signal`",
        ),
    ] {
        let text = format!(
            "rounds = 1\n[load.a]\narrivals = 'closed'\nconcurrency = 1\nrequests = 1\nevent = [{event}]\n[[variant]]\ntopology = '{topology}'\n"
        );
        let error =
            Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

/// Two servers: the second one is on standby. The first one is guarded, has a file, and counts its
/// requests.
fn with_standby(more: &str) -> String {
    let metrics = |name: &str| {
        format!(
            "{more}metrics = {{ url = \"http://127.0.0.1:@{name}.http@/metrics\", counters = {{ requests = \"requests_total\" }} }}\n"
        )
    };
    format!(
        "title = \"a server, and one that stands by\"\n[variables]\nlevel = \"1\"\nunused = \"x\"\n\
         [load]\nurl = \"http://127.0.0.1:@front.http@/app\"\n{}{}",
        server_component("front", &format!("files = {{ \"a.txt\" = \"a.txt\" }}\n{}", metrics("front")), ""),
        server_component("other", &format!("standby = true\n{}", metrics("other")), "")
    )
}

#[test]
fn a_file_is_written_anew_in_turn_and_is_as_before_when_load_is_over() {
    let lab = Lab::new();
    fs::write(lab.path("a.txt"), "level @level@ on @port.http@\n").unwrap();
    let file = lab.path("work/1-a/front/a.txt");
    // The test reads the file itself while the load lasts.
    let seen = std::thread::scope(|scope| {
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let file = &file;
        let watching = scope.spawn(move || {
            let mut seen = BTreeSet::new();
            while end.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
                let text = read(file);
                seen.extend(text.split(" on ").next().map(str::to_owned));
            }
            seen
        });
        let load = "arrivals = 'closed'\nconcurrency = 2\nduration = '2s'\nwarmup = '0s'\n\
                    event = [{ at = '100ms', every = '300ms', times = 5, component = 'front', signal = 'CONT', file = 'a.txt',\n\
                               with = [{ level = '2' }, { level = 'three @front.http@' }] }]";
        let record = measured(&lab, &with_standby(""), "rounds = 1", load);
        drop(ended);
        let iteration = &record.variants[0].iterations[0];
        let whats: Vec<&str> = iteration.events.iter().map(|event| event.what.as_str()).collect();
        assert_eq!(whats, ["SIGCONT to `front`, `a.txt` rewritten"; 5]);
        assert!(iteration.events[4].at_ms >= 1300);
        assert_eq!(iteration.count(Outcome::Failed), 0);
        let text = sheet(&record).markdown();
        assert!(text.contains("SIGCONT to `front`, `a.txt` rewritten, 5 times from "), "{text}");
        watching.join().unwrap()
    });
    let port = |word: &str| word.strip_prefix("level three ").is_some_and(|port| port.parse::<u16>().is_ok());
    assert!(seen.contains("level 2") && seen.iter().any(|text| port(text)), "{seen:?}");
    let text = read(&file);
    assert!(text.starts_with("level 1 on ") && text.ends_with('\n'), "{text}");
    assert!(!lab.path("work/1-a/front/.a.txt.new").exists());
}

#[test]
fn one_that_stands_by_is_started_by_an_event_and_its_counters_are_in_the_record() {
    let lab = Lab::new();
    fs::write(lab.path("a.txt"), "@level@").unwrap();
    let load = "arrivals = 'constant'\nrate = 100\nduration = '3s'\nwarmup = '0s'\n\
                event = [{ at = '1s', component = 'other', start = true }, { at = '1s', component = 'other', signal = 'CONT' }]";
    let record = measured(&lab, &with_standby(""), "rounds = 2", load);
    for iteration in &record.variants[0].iterations {
        let whats: Vec<&str> = iteration.events.iter().map(|event| event.what.as_str()).collect();
        assert_eq!(whats, ["start of `other`", "SIGCONT to `other`"]);
        let [front, other] = &iteration.components[..] else { panic!("{:?}", iteration.components) };
        assert!(front.counters["requests"] >= 200, "{:?}", front.counters);
        // Only the lab sends it requests, for its counters; each of them counts.
        assert!((1..100).contains(&other.counters["requests"]), "{:?}", other.counters);
        let first = [front, other].map(|component| component.samples[0].at_ms);
        assert!(first[0] < 1000 && first[1] >= 1000, "{first:?}");
        assert!(!front.ended && !other.ended);
    }
    let text = sheet(&record).markdown();
    assert!(text.contains("| a | other | requests |"), "{text}");
}

#[test]
fn a_component_that_is_asked_to_end_has_to_end_well() {
    let lab = Lab::new();
    let shell = |trap: &str| {
        format!(
            "[[component]]\nname = \"side\"\nprogram = \"/bin/sh\"\n\
             arguments = [\"-c\", \"trap '{trap}' TERM; echo told >@work@/ready; while :; do sleep 0.02; done\"]\n"
        )
    };
    let load = |end: &str| {
        format!(
            "arrivals = 'constant'\nrate = 50\nduration = '3s'\nwarmup = '0s'\nevent = [{{ at = '1500ms', component = 'side', end = '{end}' }}]"
        )
    };
    let run_with = |trap: &str, end: &str| {
        let topology = lab.topology("a", &format!("{}{}", guarded_topology(""), shell(trap)));
        let text = format!("rounds = 1\n[load.a]\n{}\n[[variant]]\ntopology = '{topology}'\n", load(end));
        let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
        run(&scenario, lab.options(), &lab.interrupt)
    };
    let record = run_with("sleep 0.3; exit 0", "20s").unwrap().record;
    let iteration = &record.variants[0].iterations[0];
    let whats: Vec<&str> = iteration.events.iter().map(|event| event.what.as_str()).collect();
    assert_eq!(whats, ["stop of `side`", "`side` ended"]);
    assert!(iteration.events[1].at_ms >= iteration.events[0].at_ms + 300);
    assert!(iteration.components.iter().all(|component| !component.ended), "it was made to");
    assert!(record.findings.iter().all(|finding| finding.name != "component-ended"));
    for (trap, end, words) in [
        ("echo I will not; exit 3", "20s", vec!["`side` ended (exit code 3)", "I will not"]),
        ("echo not yet", "300ms", vec!["`side` did not end within 0.3 s of the stop signal", "not yet"]),
    ] {
        let error = run_with(trap, end).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn who_stands_by_cannot_be_meant_otherwise() {
    let lab = Lab::new();
    fs::write(lab.path("a.txt"), "@level@").unwrap();
    let topology = lab.topology("a", &with_standby(""));
    let load = |events: &str| {
        format!("arrivals = 'constant'\nrate = 50\nduration = '2s'\nwarmup = '0s'\nevent = [{events}]\n")
    };
    let start = "{ at = '100ms', component = 'other', start = true }";
    let read = |head: &str, loads: &str, tail: &str| {
        let text = format!("{head}\n{loads}\n[[variant]]\ntopology = '{topology}'\n{tail}");
        Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
            .map_err(|error| error.to_string())
    };
    let target = |figure: &str| {
        format!("[[target]]\nsays = 'x'\nof = 'a'\nat_least = 1\nfigure = 'counter'\n{figure}\n")
    };
    let one = |events: &str| format!("[load.a]\n{}", load(events));
    for (head, loads, tail, words) in [
        (
            "rounds = 1",
            one("{ at = '1s', component = 'front', start = true }"),
            String::new(),
            "component `front`, but topology `a` starts it with the others: set `standby = true`",
        ),
        (
            "rounds = 1",
            one(&format!("{start}, {start}")),
            String::new(),
            "`other` is started twice in variant `a`",
        ),
        (
            "rounds = 1",
            format!("[load.b]\n{}[load.c]\n{}", load(start), load(start)),
            String::new(),
            "load.c.event: `other` is started twice",
        ),
        (
            "rounds = 2\nfresh = 'run'",
            one(start),
            String::new(),
            "`other` would already run in the second round",
        ),
        (
            "rounds = 1",
            one("{ at = '1s', component = 'front', file = 'b.txt', with = { level = '2' } }"),
            String::new(),
            "component `front` has no file `b.txt`; it has a.txt",
        ),
        (
            "rounds = 1",
            one("{ at = '1s', component = 'front', file = 'a.txt', with = { depth = '2' } }"),
            String::new(),
            "unknown variable `depth`; available: level, unused",
        ),
        (
            "rounds = 1",
            one("{ at = '1s', component = 'front', file = 'a.txt', with = { unused = '2' } }"),
            String::new(),
            "`a.txt` does not use `@unused@`",
        ),
        (
            "rounds = 1",
            one("{ at = '1s', component = 'front', file = 'a.txt', with = { level = '@nobody@' } }"),
            String::new(),
            "level: unknown name `@nobody@`",
        ),
        (
            "rounds = 1",
            one(start),
            target("component = 'front'\nname = 'answers'"),
            "component `front` of topology `a` has no counter `answers`; it has requests",
        ),
        ("rounds = 1", one(start), target("component = 'front'"), "missing field `name`"),
    ] {
        let said = read(head, &loads, &tail).unwrap_err();
        assert!(said.contains(words), "{said}");
    }
    // A fault in the order of events shows only at run time.
    let early = one("{ at = '100ms', component = 'other', signal = 'CONT' }");
    let error = run(&read("rounds = 1", &early, "").unwrap(), lab.options(), &lab.interrupt).unwrap_err();
    assert!(error.to_string().contains("SIGCONT to `other` failed: it is on standby"), "{error}");
}
