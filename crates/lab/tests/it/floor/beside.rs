//! Load options and variant overrides: held connections, open files, tokens that the lab signs,
//! programs that run side by side.

use std::collections::BTreeMap;

use lab::run::run;
use lab::scenario::{Scenario, ScenarioOptions};
use lab::topology::{Running, TopologyOverrides};
use lab_analysis::offline::report::sheet;
use lab_analysis::record::Measure;

use super::{Lab, guarded_topology, parse, read, server_component, wait_until};

fn scenario(text: &str) -> Scenario {
    Scenario::from_text(text, "mine.toml", &ScenarioOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn connections_are_held_while_load_lasts_and_the_record_says_what_became_of_them() {
    let lab = Lab::new();
    let topology = lab.topology("a", &guarded_topology(""));
    let load = "arrivals = 'closed'\nconcurrency = 2\nrequests = 100\nwarmup = '0s'";
    let text = format!(
        "rounds = 2\n[load.alone]\n{load}\n[load.idle]\n{load}\nhold = {{ manner = 'idle', connections = 20 }}\n\
         [load.slow]\n{load}\nhold = {{ manner = 'slow-loris', connections = 10, interval = '50ms' }}\n\
         [[variant]]\ntopology = '{topology}'\n"
    );
    let record = run(&scenario(&text), lab.options(), &lab.interrupt).unwrap().record;
    let held = |variant: &str| record.variant(variant).unwrap().iterations[1].held.clone();
    assert_eq!(held("a/oauth/alone"), None);
    let idle = held("a/oauth/idle").unwrap();
    assert_eq!(
        (idle.manner.as_str(), idle.asked, idle.opened, idle.open_at_end, idle.closed_by_server),
        ("idle", 20, 20, 20, 0)
    );
    assert_eq!((idle.statuses, idle.lifetime_max_us), (BTreeMap::from([(200, 20)]), None));
    // If no connection was closed, the longest time that they were open counts.
    let longest = lab_analysis::statistics::values_by_iteration(
        record.variant("a/oauth/idle").unwrap(),
        &Measure::HeldLongest,
    );
    assert_eq!(Some(longest[1].1), idle.open_longest_us);
    assert!(longest[1].1 > 0.0);
    assert!(idle.memory_before["front"] > 1 << 20);
    let slow = held("a/oauth/slow").unwrap();
    assert_eq!((slow.open_at_end, slow.statuses.len()), (10, 0));
    let text = sheet(&record).markdown();
    let section = text.split("## Held connections").nth(1).unwrap();
    assert!(section.contains("| a/oauth/idle | idle | 20 | 20 | 20 | 0 |"), "{section}");
    assert!(section.contains("| a/oauth/slow | front | 10 |"), "{section}");
}

#[test]
fn programs_that_run_together_are_new_in_each_round_and_a_load_goes_through_all_in_turn() {
    let lab = Lab::new();
    let names = ["a", "b"].map(|name| lab.topology(name, &guarded_topology("")));
    let load = "arrivals = 'constant'\nrate = 50\nrequests = 5\nwarmup = '0s'\n";
    let text = format!(
        "rounds = 2\nfresh = 'together'\n[load.first]\n{load}[load.second]\n{load}[[variant]]\ntopology = ['{}', '{}']\nload = ['second', 'first']\n",
        names[0], names[1]
    );
    let record = run(&scenario(&text), lab.options(), &lab.interrupt).unwrap().record;
    for round in 0..2 {
        let mut starts: Vec<(u64, &str)> = record
            .variants
            .iter()
            .map(|v| (v.iterations[round].start_ms, v.labels["load"].as_str()))
            .collect();
        starts.sort_unstable();
        let loads: Vec<&str> = starts.into_iter().map(|(_, load)| load).collect();
        assert_eq!(loads, ["second", "second", "first", "first"]);
    }
    let started = (1..).take_while(|number| {
        ["a", "b"].iter().any(|name| lab.path(&format!("work/{number}-{name}")).is_dir())
    });
    assert_eq!(started.count(), 4);
}

#[test]
fn a_component_may_open_as_many_files_as_is_said() {
    let lab = Lab::new();
    let text = "[load]\nurl = \"http://127.0.0.1:1/\"\n[[component]]\nname = \"a\"\nprogram = \"/bin/sh\"\nopen_files = 99\n\
        arguments = [\"-c\", \"ulimit -n >@run@/files; while :; do sleep 0.05; done\"]\n";
    let limit = |name: &str, change: &TopologyOverrides| {
        let running = Running::start(&parse(text), change, &lab.place(), name).unwrap();
        let file = lab.path(&format!("work/{name}/files"));
        wait_until("it has told its limit", || read(&file).ends_with('\n'));
        drop(running);
        read(&file)
    };
    assert_eq!(limit("topology", &TopologyOverrides::default()), "99\n");
    let change = TopologyOverrides {
        open_files: BTreeMap::from([("a".to_owned(), 77)]),
        ..TopologyOverrides::default()
    };
    assert_eq!(limit("scenario", &change), "77\n");
}

#[test]
fn whoever_believes_any_signature_is_not_measured() {
    let lab = Lab::new();
    let text = |environment: &str| {
        format!(
            "[load]\nurl = \"http://127.0.0.1:@front.http@/app\"\n[tokens.mode.oidc]\nbytes = 700\n\
             claims = {{ iss = \"https://issuer.test\" }}\n{}",
            server_component("front", "", environment)
        )
    };
    let checked = |environment: &str| {
        let started =
            Running::start(&parse(&text(environment)), &TopologyOverrides::default(), &lab.place(), "run");
        let mut running = started.unwrap();
        let tokens = running.tokens(Some("oidc"), 2).unwrap();
        assert!(tokens[0] != tokens[1] && tokens[0].matches('.').count() == 2);
        let keys = running.fill("@token_keys@").unwrap();
        assert!(read(keys.as_ref()).contains("\"RS256\""));
        running.check(Some(&tokens[0])).map_err(|error| error.to_string())
    };
    let said = checked(", LAB_TEST_GUARDED = \"yes\"").unwrap_err();
    assert!(said.contains("answered 200 to a token with a changed signature"), "{said}");
    let said = checked("").unwrap_err();
    assert!(said.contains("answered 200 to a request without a token"), "{said}");
}

#[test]
fn a_profile_is_taken_in_a_round_of_its_own() {
    let lab = Lab::new();
    let topology = lab.topology("a", &guarded_topology(""));
    let text = format!(
        "rounds = 2\nprofile = true\n[load.closed]\narrivals = 'closed'\nconcurrency = 2\nduration = '1s'\nwarmup = '100ms'\n\
         [[variant]]\ntopology = '{topology}'\n"
    );
    let record = run(&scenario(&text), lab.options(), &lab.interrupt).unwrap().record;
    let variant = &record.variants[0];
    assert_eq!(variant.iterations.len(), 2, "its figures are not among the measured rounds");
    let profile = variant.profile.as_ref().unwrap();
    assert_eq!(profile.round, 3);
    assert!(profile.per_s > 0.0 && profile.mean_us.is_some(), "{profile:?}");
    let front = profile.component("front").unwrap();
    assert!(!front.activities.is_empty() && !front.threads.is_empty(), "{front:?}");
    assert!(front.activities.iter().all(|kind| kind.at_rest.is_some()), "{:?}", front.activities);
    assert!(front.off_cpu.is_some(), "from one source or the other: {:?}", front.notes);
    // Where `perf` is not permitted, the profile says so.
    assert!(front.on_cpu.is_some() || !front.notes.is_empty());
    assert_eq!(read(&lab.path("work/cpu-clock.perf")), "", "its files are removed");
    assert!(sheet(&record).markdown().contains("## Profiles"));
}
