//! Load that enters at several places, and what is done to components while it lasts.

use lab::record::{Outcome, Record};
use lab::run::run;
use lab::scenario::{Scenario, Wish};

use super::{Lab, guarded, serving};

fn measured(lab: &Lab, topology: &str, head: &str, load: &str) -> Record {
    let topology = lab.topology("a", topology);
    let text = format!("{head}\n[load.a]\n{load}\n[[variant]]\ntopology = '{topology}'\n");
    let scenario =
        Scenario::from_text(&text, "mine.toml", &Wish::default()).unwrap_or_else(|e| panic!("{e}"));
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ran.failed, []);
    ran.record
}

#[test]
fn several_entrances_share_a_load_and_one_record() {
    let lab = Lab::new();
    let topology = format!(
        "[load]\nurls = [\"http://127.0.0.1:@one.http@/\", \"http://127.0.0.1:@two.http@/other\"]\n{}{}",
        serving("one", "", ""),
        serving("two", "", "")
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
    // The second round finds it as the first one left it.
    let record = measured(&lab, &guarded(""), "rounds = 2\nfresh = 'run'", load);
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
    let record = measured(&lab, &guarded(", LAB_TEST_WORK = \"300\""), "rounds = 1", load);
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
    let topology = lab.topology("a", &guarded(""));
    for (event, words) in [
        (
            "{ at = '1s', component = 'broker', signal = 'STOP' }",
            "component `broker`, which topology `a` does not start; it starts front",
        ),
        ("{ at = 'soon', component = 'front', signal = 'STOP' }", "load.a.event: at: `soon`"),
        ("{ at = '1s', component = 'front', signal = 'PIPE' }", "unknown variant `PIPE`"),
        ("{ at = '1s', component = 'front' }", "either `signal`"),
        ("{ at = '1s', component = 'front', signal = 'STOP', restart = true }", "either `signal`"),
    ] {
        let text = format!(
            "rounds = 1\n[load.a]\narrivals = 'closed'\nconcurrency = 1\nrequests = 1\nevent = [{event}]\n[[variant]]\ntopology = '{topology}'\n"
        );
        let error = Scenario::from_text(&text, "mine.toml", &Wish::default()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}
