//! Revocations during load, at a server that applies them with a known delay.

use std::collections::BTreeMap;

use lab::run::{RunError, run};
use lab::scenario::{Scenario, ScenarioOptions};
use lab_analysis::offline::gate::{Baseline, Check, Format, May, gate};
use lab_analysis::record::{Finding, IdentifiedBy, Iteration, Measure, Outcome, Record};

use super::{Lab, flows, guarded_topology, read};

/// A server topology, and the places where its tokens are probed: a name and a URL each.
fn revoking(endpoints: &str, places: &[(&str, &str)]) -> String {
    let place = |(name, url): &(&str, &str)| {
        let key = if url.starts_with("introspect") { "introspection" } else { "url" };
        format!(
            "[[revocations.place]]\nnode = \"{name}\"\ncluster = \"a\"\n{key} = \"http://127.0.0.1:@front.http@/{url}\"\n"
        )
    };
    format!(
        "{}[revocations]\nrevoke = [{endpoints}]\nintrospecting_client = \"tester\"\n{}",
        guarded_topology(""),
        places.iter().map(place).collect::<String>()
    )
}

const REVOKE: &str = "\"http://127.0.0.1:@front.http@/revoke\"";
const FAIL: &str = "\"http://127.0.0.1:@front.http@/busy\"";

fn scenario(lab: &Lab, topology: &str, keys: &str) -> Result<Scenario, String> {
    let topology = lab.topology("a", topology);
    let text = format!(
        "rounds = 1\n[load.open]\narrivals = 'constant'\nrate = 50\nduration = '2s'\nwarmup = '0s'\n\
         [load.open.revocations]\nevery = '100ms'\n{keys}\n[[variant]]\ntopology = '{topology}'\n"
    );
    Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).map_err(|error| error.to_string())
}

fn measured(lab: &Lab, topology: &str, keys: &str) -> Record {
    let scenario = scenario(lab, topology, keys).unwrap();
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ran.failed, []);
    ran.record
}

fn iteration(record: &Record) -> &Iteration {
    &record.variants[0].iterations[0]
}

fn finding(record: &Record, name: &str) -> Option<Finding> {
    lab_analysis::diagnose::findings(record).into_iter().find(|finding| finding.name == name)
}

#[test]
fn staleness_is_the_time_by_which_a_place_is_late() {
    let lab = Lab::new();
    let places = [
        ("prompt", "app"),
        ("late", "app?stale=300"),
        ("later", "introspect?stale=400"),
        ("now", "introspect"),
    ];
    let record = measured(&lab, &revoking(REVOKE, &places), "bound = '350ms'");
    let seen = iteration(&record);
    assert_eq!(seen.count(Outcome::Ok), 100, "the load has nothing to do with it");
    let revocations = seen.revocations.as_ref().unwrap();
    assert_eq!((revocations.failed, &revocations.example), (0, &None));
    assert!(revocations.revoked > 0 && revocations.asked >= 8 * revocations.revoked, "{revocations:?}");
    assert!(revocations.cpu_share.is_some());
    assert_eq!((revocations.bound_s, revocations.patience_s), (Some(0.35), 30.0));
    let names: Vec<&str> = seen.staleness.iter().map(|place| place.node.as_str()).collect();
    assert_eq!(names, ["prompt", "late", "later", "now"]);
    for (place, late_ms) in seen.staleness.iter().zip([0, 300, 400, 0]) {
        assert_eq!((place.delay.count(), place.never), (revocations.revoked, 0), "{}", place.node);
        // The last accepted request always begins before the place refuses, however slow the
        // machine is; the histogram rounds up.
        assert!(place.delay.max() <= late_ms * 1_002_000 + 1_000, "{}: {}", place.node, place.delay.max());
        assert!(place.delay.max() >= late_ms * 500_000, "{}: {}", place.node, place.delay.max());
    }
    let found = finding(&record, "stale-beyond-bound")
        .expect("400 ms variants exceed the maximum of the maximum of 350 ms");
    assert!(
        found.evidence.contains("later (cluster a) accepted") && found.evidence.contains("350 ms is allowed")
    );
    assert!(!found.evidence.contains("late accepted"), "{}", found.evidence);
    let check = |figure: Measure, value: f64| Check {
        variant: "a/oauth".to_owned(),
        figure,
        over: None,
        value,
        tolerance: 0.0,
        may: May::Fall,
    };
    let checks = vec![check(Measure::StalenessMax, 350e3), check(Measure::StalenessP99, 500e3)];
    let baseline = Baseline { format: Format::V1, commit: None, counting: BTreeMap::new(), checks };
    let breaches = gate(&record, &baseline).breaches;
    assert!(breaches.len() == 1 && breaches[0].contains("longest staleness of `a/oauth`"), "{breaches:?}");
}

#[test]
fn one_that_is_never_refused_is_counted_and_worse_than_any_time() {
    let lab = Lab::new();
    let places = [("deaf", "app?stale=never"), ("prompt", "app")];
    let record = measured(&lab, &revoking(REVOKE, &places), "patience = '300ms'");
    let seen = iteration(&record);
    let revoked = seen.revocations.as_ref().unwrap().revoked;
    assert_eq!((seen.staleness[0].never, seen.staleness[0].delay.count()), (revoked, 0));
    assert_eq!((seen.staleness[1].never, seen.staleness[1].delay.count()), (0, revoked));
    let found = finding(&record, "stale-beyond-bound").expect("it never ends");
    assert!(
        found.evidence.contains("deaf (cluster a) accepted") && found.evidence.contains("still after 300 ms"),
        "{found:?}"
    );
    assert!(!found.evidence.contains("prompt"), "{found:?}");
    let check = Check {
        variant: "a/oauth".to_owned(),
        figure: Measure::StalenessMax,
        over: None,
        value: 1e9,
        tolerance: 0.0,
        may: May::Fall,
    };
    let baseline =
        Baseline { format: Format::V1, commit: None, counting: BTreeMap::new(), checks: vec![check] };
    assert!(gate(&record, &baseline).breaches[0].contains("infinite"));
    assert!(baseline.with_figures_of(&record).unwrap_err().to_string().contains("infinite"));
}

#[test]
fn a_flow_goes_on_after_its_window_while_credentials_are_revoked() {
    let lab = Lab::new();
    let places = [("deaf", "app?stale=never"), ("prompt", "app")];
    let topology = lab.topology("a", &flows::described(&revoking(REVOKE, &places), "/revoke"));
    let variant =
        |name: &str, more: &str| format!("[[variant]]\nname = '{name}'\ntopology = '{topology}'\n{more}");
    let text = format!(
        "rounds = 1\nbaseline = 'impatient/oauth'\n[load.few]\nflow = 'password_revoke'\narrivals = 'closed'\nconcurrency = 2\n\
         duration = '300ms'\nwarmup = '100ms'\n\
         revocations = {{ every = '50ms', after_window = '700ms', patience = '400ms' }}\n{}{}",
        variant("impatient", "patience = '200ms'\n"),
        variant("patient", "")
    );
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    for (variant, patience_s) in record.variants.iter().zip([0.2, 0.4]) {
        let seen = &variant.iterations[0];
        let revocations = seen.revocations.as_ref().unwrap();
        assert!(revocations.after_window && revocations.revoked > 0, "{revocations:?}");
        assert!((revocations.patience_s - patience_s).abs() < 1e-9, "{revocations:?}");
        assert_eq!((seen.staleness[0].never, seen.staleness[1].never), (revocations.revoked, 0));
        let window_ms = (seen.warmup_s + seen.seconds) * 1e3;
        assert!(seen.timeline.iter().all(|slice| (slice.at_ms as f64) < window_ms), "{:?}", seen.timeline);
        let watched = seen.components[0].samples.last().unwrap().at_ms as f64;
        assert!(watched >= window_ms + 500.0, "load goes on: {watched} {window_ms}");
    }
    let paths = lab::files::write_report(&record, &lab.path("out")).unwrap();
    let report = read(&paths[1]);
    for words in [
        "revoked credentials still accepted",
        "| impatient/oauth | 1 | 1 | 1 | 1 | never refused: ",
        "after the window",
    ] {
        assert!(report.contains(words), "{words}\n{report}");
    }
}

#[test]
fn revocations_that_come_to_nothing_are_told_and_are_an_error_when_all_do() {
    let lab = Lab::new();
    let record = measured(&lab, &revoking(&format!("{REVOKE}, {FAIL}"), &[("prompt", "app")]), "");
    let seen = iteration(&record);
    let revocations = seen.revocations.as_ref().unwrap();
    assert!(revocations.revoked > 0 && revocations.failed > 0, "{revocations:?}");
    assert_eq!(seen.staleness[0].delay.count(), revocations.revoked);
    // Tokens that could not be revoked have an unknown state, so there is no staleness figure.
    assert!(
        lab_analysis::statistics::values_by_iteration(&record.variants[0], &Measure::StalenessMax).is_empty()
    );
    let found = finding(&record, "revocations-failed").unwrap();
    assert!(found.evidence.contains("/busy answered 503: not yet"), "{}", found.evidence);

    let failed = |topology: &str, keys: &str| {
        let scenario = scenario(&lab, topology, keys).unwrap();
        match run(&scenario, lab.options(), &lab.interrupt) {
            Err(RunError::NothingMeasured { failed }) => failed[0].1.clone(),
            other => panic!("{other:?}"),
        }
    };
    let said = failed(&revoking(FAIL, &[("prompt", "app")]), "");
    assert!(said.contains("no credential could be revoked") && said.contains("/busy answered 503"), "{said}");
    // A place that accepts no token has no staleness.
    let said = failed(&revoking(REVOKE, &[("closed", "busy")]), "patience = '200ms'");
    assert!(said.contains("`closed` does not accept a valid credential: answered 503"), "{said}");
}

#[test]
fn a_flood_is_spread_over_its_time_and_told_apart() {
    let lab = Lab::new();
    let listed = |query: &str| {
        let lists =
            format!("lists = [\"http://127.0.0.1:@front.http@/lists{query}\"]\noperator = \"chief\"\n");
        revoking(REVOKE, &[("prompt", "app")])
            .replace("introspecting_client", &format!("{lists}introspecting_client"))
    };
    let flood = "flood = { at = '500ms', tokens = 1200, within = '400ms' }";
    let record = measured(&lab, &listed(""), flood);
    let seen = iteration(&record).revocations.clone().unwrap();
    let told = seen.flood.unwrap();
    assert_eq!((told.revoked, told.failed, told.example), (1200, 0, None));
    // Three lists; the last one is due after two thirds of the time.
    assert_eq!((told.answer.count(), told.within_s, told.by), (3, 0.4, IdentifiedBy::Token));
    assert_eq!(
        (told.refused, told.admitted, told.unclear),
        (0, 0, 0),
        "nobody said by when they are refused"
    );
    assert!((0.26..2.0).contains(&told.took_s), "{}", told.took_s);
    assert!(seen.revoked > 0 && seen.answer.unwrap().count() == seen.revoked);
    let figure = |figure| lab_analysis::statistics::values_by_iteration(&record.variants[0], &figure)[0].1;
    assert!((figure(Measure::Flood) - told.took_s * 1e6).abs() < 1.0 && figure(Measure::RevocationP99) > 0.0);
    let report = read(&lab::files::write_report(&record, &lab.path("out")).unwrap()[1]);
    assert!(report.contains("Bulk revocations") && report.contains("| 1200 | "), "{report}");

    let by_name = "bound = '200ms'\nflood = { at = '500ms', tokens = 1200, within = '400ms', by = 'jti' }";
    let record = measured(&lab, &listed(""), by_name);
    let told = iteration(&record).revocations.clone().unwrap().flood.unwrap();
    assert_eq!((told.revoked, told.failed, told.by), (1200, 0, IdentifiedBy::Jti));
    assert_eq!((told.refused, told.admitted, told.unclear), (100, 0, 0), "a hundred at the only place");
    let report = read(&lab::files::write_report(&record, &lab.path("named")).unwrap()[1]);
    assert!(report.contains("| 1200 by name | ") && report.contains("| 0 of 100 |"), "{report}");
    assert!(finding(&record, "stale-beyond-bound").is_none());
    let record = measured(&lab, &listed("?ignores"), by_name);
    let admitted =
        lab_analysis::statistics::values_by_iteration(&record.variants[0], &Measure::FloodAdmitted);
    assert_eq!(admitted.iter().map(|(_, admitted)| *admitted).collect::<Vec<_>>(), [100.0]);
    let found = finding(&record, "stale-beyond-bound").expect("all of it was acknowledged");
    assert!(found.evidence.contains("100 of 100 from the bulk revocation"), "{}", found.evidence);

    let record = measured(&lab, &listed("?forgets=100"), flood);
    let told = iteration(&record).revocations.as_ref().unwrap().flood.clone().unwrap();
    assert_eq!((told.revoked, told.failed), (900, 300));
    let measured = |measure| lab_analysis::statistics::values_by_iteration(&record.variants[0], &measure);
    assert!(measured(Measure::Flood).is_empty(), "a time in which not all were revoked is none");
    assert_eq!(measured(Measure::StalenessMax).len(), 1, "others were");
    let found = finding(&record, "revocations-failed").unwrap();
    assert!(found.evidence.contains("the provider did not know tokens of a list"), "{}", found.evidence);

    let refused = |topology: &str, keys: &str| scenario(&lab, topology, keys).unwrap_err();
    let error = refused(&revoking(REVOKE, &[("prompt", "app")]), flood);
    assert!(error.contains("has no endpoint that revokes lists of tokens"), "{error}");
    let error = refused(&listed("").replace("operator = \"chief\"\n", ""), flood);
    assert!(error.contains("`lists`") && error.contains("`operator`"), "{error}");
    for (from, to, words) in [
        ("400ms", "4s", "must end before the load"),
        ("1200", "0", "flood.tokens: must be from 1 to"),
        ("500ms", "soon", "flood.at"),
    ] {
        let error = refused(&listed(""), &flood.replace(from, to));
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_a_topology_does_not_say_is_told_before_anything_runs() {
    let lab = Lab::new();
    let error = scenario(&lab, &guarded_topology(""), "").unwrap_err();
    assert!(error.contains("has no [revocations] endpoints"), "{error}");
    for (change, words) in [
        (("url = \"http://127.0.0.1:@front.http@/x\"", ""), "either `url` (a request) or `introspection`"),
        (
            ("url = \"http://127.0.0.1:@front.http@/x\"", "introspection = \"http://127.0.0.1:1/\""),
            "introspecting_client",
        ),
        (("@front.http@/x", "@back.http@/x"), "unknown name `@back.http@`"),
        (
            ("[revocations]\nrevoke = ", "[revocations]\nissue = [\"http://127.0.0.1:@a.b@/\"]\nrevoke = "),
            "@a.b@",
        ),
    ] {
        let sound = revoking(REVOKE, &[("x", "x")]).replace("introspecting_client = \"tester\"\n", "");
        assert!(scenario(&lab, &sound, "").is_ok() && sound.contains(change.0));
        let error = scenario(&lab, &sound.replace(change.0, change.1), "").unwrap_err();
        assert!(error.contains("revocations") && error.contains(words), "{error}");
    }
    for (keys, words) in
        [("patience = 'soon'", "patience: `soon`"), ("bound = '0s'", "bound: must be at least 1ms")]
    {
        let error = scenario(&lab, &revoking(REVOKE, &[("x", "x")]), keys).unwrap_err();
        assert!(error.contains("load.open.revocations") && error.contains(words), "{error}");
    }
}
