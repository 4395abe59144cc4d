//! Complete runs: the content of the record, a failing variant, and an interrupt.

use lab::run::{RunError, run};
use lab::scenario::{Scenario, ScenarioOptions};
use lab_analysis::offline::targets::{TargetResult, judge};
use lab_analysis::record::{Arrivals, Iteration, Outcome};

use super::{Lab, guarded_topology, read, wait_until};

const LOADS: &str = "rounds = 3\ncalibration = '300ms'\n\
    [load.closed]\narrivals = 'closed'\nconcurrency = 4\nrequests = 200\nwarmup = '100ms'\ntokens = 3\n\
    [load.open]\narrivals = 'poisson'\nrate = '20%'\nduration = '600ms'\nwarmup = '100ms'\nconnections = 8\n";

fn scenario(lab: &Lab, more: &str, topologies: &[(&str, &str)]) -> Scenario {
    let variants = topologies.iter().map(|(name, text)| {
        format!("[[variant]]\nname = '{name}'\ntopology = '{}'\n", lab.topology(name, text))
    });
    let text = [LOADS, more, &variants.collect::<Vec<_>>().concat()].concat();
    Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_run_fills_the_record() {
    let lab = Lab::new();
    let slow = guarded_topology(", LAB_TEST_WORK = \"30\"");
    let ladder = "[[ladder]]\nname = 'l, @load@'\nrungs = [{ adds = 'a', variant = 'a/@tokens@/@load@' }, { adds = 'b', variant = 'b/@tokens@/@load@' }]\n\
        [[reference]]\nid = '2x-opaque'\nbeside = 'a/oauth/closed'\n";
    let scenario = scenario(&lab, ladder, &[("a", &guarded_topology("")), ("b", &slow)]);
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    assert_eq!(ran.failed, []);
    assert!(ran.is_complete());
    let record = ran.record;
    let names: Vec<&str> = record.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert_eq!(names, ["a/oauth/closed", "a/oauth/open", "b/oauth/closed", "b/oauth/open"]);
    assert_eq!(
        record.ladders.iter().map(|ladder| ladder.name.as_str()).collect::<Vec<_>>(),
        ["l, closed", "l, open"]
    );
    assert_eq!(record.reference[0].beside.as_deref(), Some("a/oauth/closed"));
    assert_eq!(
        (record.run.commit.as_deref(), record.run.seed, record.run.partial),
        (Some("0123"), Some(1), false)
    );
    assert!(record.run.configuration.as_ref().is_some_and(|digest| digest.len() == 32));
    assert!(record.run.machines[0].cores >= 1 && record.run.machines[0].memory_bytes > 1 << 20);
    for variant in &record.variants {
        let numbers: Vec<u32> = variant.iterations.iter().map(|iteration| iteration.number).collect();
        assert_eq!(numbers, [1, 2, 3], "{}", variant.name);
        let closed = variant.load.arrivals == Arrivals::Closed;
        assert_eq!(variant.load.tokens, Some(if closed { 3 } else { 1 }));
        assert_eq!(variant.load.rate_per_s.is_some(), !closed);
        for iteration in &variant.iterations {
            let ok = iteration.count(Outcome::Ok);
            assert!(if closed { ok == 200 } else { ok > 0 }, "{}: {ok}", variant.name);
            assert_eq!(iteration.latency(Outcome::Ok).unwrap().count(), ok);
            assert_eq!(iteration.service.as_ref().unwrap().count(), ok);
            assert!(iteration.mean_in_flight.unwrap() > 0.0 && iteration.generator.is_some());
            let on_the_line: u64 = iteration.timeline.iter().map(|slice| slice.ok).sum();
            assert!(on_the_line >= ok, "the timeline has the warm-up too: {on_the_line} {ok}");
            let component = &iteration.components[0];
            assert_eq!(component.name, "front");
            let (first, last) = (component.samples.first().unwrap(), component.samples.last().unwrap());
            assert!(component.samples.len() >= 2 && last.at_ms >= first.at_ms);
            assert!(last.rss_bytes > 1 << 20 && last.threads >= 1, "{last:?}");
            assert!(last.connections_opened.unwrap() >= 4, "{last:?}");
            assert_eq!(
                (iteration.phases[0].component.as_str(), iteration.phases[0].name.as_str()),
                ("front", "app")
            );
            assert_eq!(iteration.phases[0].duration.count(), ok);
            assert!((iteration.phases[0].duration.micros(0.5) - 1500.0).abs() < 2.0);
        }
    }
    // The rate is a share of what the slower variant serves: both get the same.
    let rates: Vec<_> = record.variants.iter().filter_map(|variant| variant.load.rate_per_s).collect();
    assert!((rates[0] - rates[1]).abs() < f64::EPSILON && rates[0] > 10.0, "{rates:?}");
    let paths = lab::files::write_report(&record, &lab.path("out")).unwrap();
    assert_eq!(lab::files::read_record(&paths[0]).unwrap().variants.len(), 4);
    assert!(read(&paths[1]).contains("b/oauth/open") && read(paths.last().unwrap()).contains("<svg"));
}

#[test]
fn a_load_of_stages_offers_each_for_its_time() {
    let lab = Lab::new();
    let text = format!(
        "rounds = 1\n[load.a]\narrivals = 'constant'\nsteps = ['50@1s', '0@1s', '50..250@2s']\nwarmup = '500ms'\n[[variant]]\ntopology = '{}'\n",
        lab.topology("a", &guarded_topology(""))
    );
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    let (load, iteration) = (&record.variants[0].load, &record.variants[0].iterations[0]);
    assert_eq!(load.rate_per_s, Some(87.5), "on average");
    assert_eq!(load.stages.len(), 3);
    // 50, none, and 300 in the ramp.
    let ok = iteration.count(Outcome::Ok);
    assert!((348..=351).contains(&ok), "{ok}");
    let within = |from: u64, until: u64| -> u64 {
        let slices = iteration.timeline.iter().filter(|slice| (from..until).contains(&slice.at_ms));
        slices.map(|slice| slice.ok).sum()
    };
    assert!(within(1700, 2400) <= 1 && within(3500, 4500) > within(2500, 3500), "{:?}", iteration.timeline);
    let text = lab_analysis::offline::report::sheet(&record).markdown();
    assert!(
        text.contains("## Stage by stage") && text.contains("| 50.0 to 250/s for 2.00 s | 150 |"),
        "{text}"
    );
    assert!(!text.contains("`pauses`") && !text.contains("`stalls`"), "the silence was asked for: {text}");
}

#[test]
fn growing_rates_are_a_sweep() {
    let lab = Lab::new();
    let text = format!(
        "rounds = 1\ncalibration = '300ms'\n[load.offered]\narrivals = 'poisson'\nrates = ['5%', '10%', 700]\nduration = '500ms'\nwarmup = '100ms'\n\
         [[variant]]\nname = 'it'\ntopology = '{}'\n",
        lab.topology("a", &guarded_topology(""))
    );
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
    assert_eq!(scenario.variants(), ["it/oauth/offered-5%", "it/oauth/offered-10%", "it/oauth/offered-700"]);
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    let rates: Vec<f64> = record.variants.iter().filter_map(|variant| variant.load.rate_per_s).collect();
    // Shares are rounded to two digits.
    assert!((rates[1] / rates[0] - 2.0).abs() < 0.2 && (rates[2] - 700.0).abs() < 1e-9, "{rates:?}");
    assert_eq!(record.sweeps.len(), 1);
    assert_eq!(record.sweeps[0].variants, scenario.variants());
    record.check().unwrap();
    let text = lab_analysis::offline::report::sheet(&record).markdown();
    let growing = text.split("## Growing load").nth(1).unwrap();
    assert!(growing.contains("| 700/s |"), "{growing}");
}

#[test]
fn rounds_are_interleaved_in_an_order_that_the_seed_gives() {
    let lab = Lab::new();
    let text = guarded_topology("");
    let topologies = [("a", text.as_str()), ("b", &text), ("c", &text), ("d", &text)];
    for (name, text) in topologies {
        lab.topology(name, text);
    }
    let order = |fresh: &str, seed: u64| -> Vec<Vec<String>> {
        let text = format!(
            "rounds = 2\nfresh = '{fresh}'\n[load.a]\narrivals = 'constant'\nrate = 50\nrequests = 5\nwarmup = '0s'\n[[variant]]\ntopology = [{}]\n",
            topologies
                .map(|(name, _)| format!("'{}'", lab.path(&format!("{name}.toml")).display()))
                .join(", ")
        );
        let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
        let options = lab::run::Options { seed, ..lab.options() };
        let record = run(&scenario, options, &lab.interrupt).unwrap().record;
        (0..2)
            .map(|round| {
                let mut starts: Vec<(u64, String)> = record
                    .variants
                    .iter()
                    .map(|variant| (variant.iterations[round].start_ms, variant.name.clone()))
                    .collect();
                starts.sort();
                starts.into_iter().map(|(_, name)| name).collect()
            })
            .collect()
    };
    let fresh = order("round", 5);
    assert_eq!(fresh[0], ["a/oauth", "b/oauth", "c/oauth", "d/oauth"]);
    assert_eq!(order("run", 5), fresh, "the same seed gives the same order, fresh or not");
    let others: Vec<_> = (6..9).map(|seed| order("run", seed)[1].clone()).collect();
    assert!(others.iter().any(|other| *other != fresh[0]), "later rounds have another order: {others:?}");
}

#[test]
fn one_that_fails_is_named_and_the_others_go_on() {
    let lab = Lab::new();
    let absent = guarded_topology("").replace("floor::server::serve", "floor::server::nobody");
    let ending = guarded_topology(", LAB_TEST_LAST = \"150\"");
    let scenario =
        scenario(&lab, "", &[("good", &guarded_topology("")), ("absent", &absent), ("ending", &ending)]);
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    let failed: Vec<&str> = ran.failed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(failed, ["absent/oauth", "ending/oauth"]);
    assert!(ran.failed[0].1.contains("`front` ended (exit code 0)"), "{}", ran.failed[0].1);
    assert!(
        ran.failed[1].1.contains("exit code 3") && ran.failed[1].1.contains("that was the last one"),
        "{}",
        ran.failed[1].1
    );
    let good = ran.record.variant("good/oauth/open").unwrap();
    assert_eq!((good.iterations.len(), good.missing.len()), (3, 0));
    let findings: Vec<_> =
        ran.record.findings.iter().filter(|finding| finding.name == "not-measured").collect();
    assert_eq!(findings.len(), 2);
    assert!(findings[0].evidence.contains("`front` ended"), "{}", findings[0].evidence);
    assert!(ran.record.to_json().is_ok() && !ran.is_complete());
}

#[test]
fn rounds_that_an_arrangement_did_not_get_to_are_missing() {
    let lab = Lab::new();
    // Before the load there are about twenty requests, and each round has a hundred: the server
    // ends in the second round.
    let ending = lab.topology("ending", &guarded_topology(", LAB_TEST_LAST = \"170\""));
    let text = format!(
        "rounds = 4\nfresh = 'run'\n[load.closed]\narrivals = 'closed'\nconcurrency = 1\nrequests = 100\nwarmup = '0s'\n\
         [load.once]\narrivals = 'closed'\nconcurrency = 1\nrequests = 10\nwarmup = '0s'\nrounds = 1\n\
         [[variant]]\nname = 'ending'\ntopology = '{ending}'\n\
         [[target]]\nsays = 'it answers'\nfigure = 'p50'\nof = 'ending/oauth/@load@'\nat_most = '1h'\n"
    );
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    let missing = |name: &str| ran.record.variant(name).unwrap().missing.clone();
    assert_eq!((missing("ending/oauth/closed"), missing("ending/oauth/once")), (vec![2, 3, 4], vec![]));
    let met: Vec<bool> = judge(&ran.record).iter().map(TargetResult::is_met).collect();
    assert_eq!(met, [false, true], "{:?}", judge(&ran.record));
}

/// Load for a second without a warm-up, on a server that answers one request at a time slowly, in
/// 900 ms.
fn on_a_slow_server(lab: &Lab, load: &str) -> Iteration {
    let topology = lab.topology("a", &guarded_topology(""));
    let text = format!(
        "rounds = 1\n[load.a]\nduration = '1s'\nwarmup = '0s'\npath = '/one-slow'\n{load}\n[[variant]]\ntopology = '{topology}'\n"
    );
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    let told = lab_analysis::diagnose::findings(&record);
    assert!(!told.iter().any(|finding| finding.evidence.contains("its own report")), "{told:?}");
    record.variants[0].iterations[0].clone()
}

#[test]
fn a_closed_loop_that_waits_for_its_last_answers_is_not_limited_by_the_generator() {
    let lab = Lab::new();
    // Finished workers wait for the last one. They are idle in the window, but none was while
    // requests were left to send.
    let iteration = on_a_slow_server(&lab, "arrivals = 'closed'\nconcurrency = 6");
    assert!(iteration.seconds > 1.0, "{}", iteration.seconds);
}

#[test]
fn what_is_never_answered_makes_no_window_longer() {
    let lab = Lab::new();
    let iteration =
        on_a_slow_server(&lab, "arrivals = 'constant'\nrate = 30\nconnections = 30\ntimeout = '600ms'");
    assert!(
        iteration.count(Outcome::Failed) > 0 && iteration.count(Outcome::Ok) > 0,
        "{:?}",
        iteration.classes
    );
    let answers = iteration.timeline.iter().filter(|slice| slice.ok > 0);
    let last = answers.map(|slice| slice.at_ms + slice.ms).max().unwrap();
    assert!(iteration.seconds * 1e3 <= last.max(1000) as f64, "{} {last}", iteration.seconds);
}

#[test]
fn when_nothing_can_be_measured_the_error_says_why_of_each() {
    let lab = Lab::new();
    let broken = guarded_topology("").replace("program = \"server\"", "program = \"no-such-program\"");
    let scenario = scenario(&lab, "", &[("a", &broken)]);
    let error = run(&scenario, lab.options(), &lab.interrupt).unwrap_err();
    assert!(matches!(error, RunError::NothingMeasured { .. }));
    assert!(error.to_string().contains("a/oauth: component `front` needs `no-such-program`"), "{error}");
}

#[test]
fn what_lacks_a_program_is_told_before_anything_starts() {
    let lab = Lab::new();
    let broken = guarded_topology("").replace("program = \"server\"", "program = \"no-such-program\"");
    let scenario = scenario(&lab, "", &[("good", &guarded_topology("")), ("a", &broken)]);
    lab.interrupter.interrupt();
    let Err(RunError::NothingMeasured { failed }) = run(&scenario, lab.options(), &lab.interrupt) else {
        panic!("it was to end at once")
    };
    assert_eq!(failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a/oauth"]);
}

#[test]
fn logs_of_what_failed_are_kept() {
    let lab = Lab::new();
    let absent = guarded_topology("").replace("floor::server::serve", "floor::server::nobody");
    let scenario = scenario(&lab, "", &[("a", &absent)]);
    let options = lab::run::Options { keep: None, ..lab.options() };
    let error = run(&scenario, options, &lab.interrupt).unwrap_err().to_string();
    let log =
        error.split_whitespace().find(|word| word.ends_with("/front/log:")).unwrap().trim_end_matches(':');
    assert!(read(log.as_ref()).contains("running 0 tests"), "{error}");
    let folder = std::path::Path::new(log).ancestors().nth(3).unwrap();
    assert!(folder.file_name().unwrap().to_str().unwrap().starts_with("postern-lab-"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_interrupt_ends_load_and_programs_and_leaves_a_partial_record() {
    let lab = Lab::new();
    let text = guarded_topology("");
    let topology = lab.topology("a", &text);
    let long = format!(
        "rounds = 5\n[load.open]\narrivals = 'constant'\nrate = 100\nduration = '1h'\nwarmup = '0s'\n[[variant]]\ntopology = '{topology}'\n"
    );
    let scenario = Scenario::from_text(&long, "mine.toml", &ScenarioOptions::default()).unwrap();
    let begun = lab.path("work/1-a/front/log");
    let ran = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&scenario, lab.options(), &lab.interrupt).unwrap());
        wait_until("load goes through it", || read(&begun).contains("under load"));
        lab.interrupter.interrupt();
        running.join().unwrap()
    });
    assert!(ran.record.run.partial && !ran.is_complete());
    assert_eq!(ran.record.variants[0].missing, [0; 0], "it did not get to them");
    let iterations = &ran.record.variants[0].iterations;
    assert_eq!(iterations.len(), 1);
    let (ok, seconds) = (iterations[0].count(Outcome::Ok), iterations[0].seconds);
    assert!(ok > 0 && seconds < 600.0, "{ok} in {seconds}");
    assert!(lab_analysis::diagnose::findings(&ran.record).iter().any(|finding| finding.name == "partial"));
}
