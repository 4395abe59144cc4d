//! Provider flows as the load of a run.

use lab::run::run;
use lab::scenario::{Scenario, ScenarioOptions};
use lab_analysis::record::{Arrivals, Outcome, Variant};

use super::{Lab, guarded_topology, read};

const LOADS: &str = "rounds = 5\nfresh = 'run'\nbaseline = 'a/oauth/@load@'\n\
    [load.few]\nflow = 'password_revoke'\narrivals = 'closed'\nconcurrency = 2\nduration = '300ms'\nwarmup = '100ms'\n\
    [load.many]\nflow = 'password_revoke'\narrivals = 'closed'\nconcurrency = 6\nduration = '300ms'\nwarmup = '100ms'\n";

/// A server that issues tokens to every client and revokes them at `revoke`.
fn provider(revoke: &str) -> String {
    described(&guarded_topology(""), revoke)
}

/// A topology whose component `front` is described as a provider that revokes tokens at `revoke`.
pub(super) fn described(topology: &str, revoke: &str) -> String {
    let provider = format!(
        "[provider]\nname = 'tiny'\norigin = 'http://127.0.0.1:@front.http@'\n\
         endpoints = {{ token = '/token', revoke = '{revoke}' }}\n\
         clients = [{{ id = 'one', secret = '@secret.client@' }}, {{ id = 'other', secret = '@secret.client@' }}]\n\
         users = {{ pattern = 'user{{n}}', count = 3, password = '@secret.person@' }}\n"
    );
    format!("secrets = ['client', 'person']\n{topology}{provider}")
}

fn scenario(lab: &Lab, more: &str, topologies: &[(&str, &str)]) -> Scenario {
    let variants = topologies.iter().map(|(name, text)| {
        format!("[[variant]]\nname = '{name}'\ntopology = '{}'\n", lab.topology(name, text))
    });
    let text = [LOADS, more, &variants.collect::<Vec<_>>().concat()].concat();
    Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Numbers of the rounds that a variant has figures of.
fn measured(variant: &Variant) -> Vec<u32> {
    variant.iterations.iter().map(|iteration| iteration.number).collect()
}

#[test]
fn whole_transactions_fill_the_record() {
    let lab = Lab::new();
    let more = "[[reference]]\nid = 'password-revoke/off/1'\n";
    let scenario = scenario(&lab, more, &[("a", &provider("/revoke")), ("b", &provider("/revoke"))]);
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    assert_eq!(ran.failed, []);
    let record = ran.record;
    assert_eq!(record.variants.len(), 4);
    for variant in &record.variants {
        let load = &variant.load;
        let many = variant.name.ends_with("/many");
        assert_eq!((load.arrivals, load.concurrency), (Arrivals::Closed, Some(if many { 6 } else { 2 })));
        assert_eq!((load.flow.as_str(), load.tokens), ("password_revoke", None));
        // On a busy machine a round may end without a result; it is then reported as missing.
        let mut rounds = [measured(variant), variant.missing.clone()].concat();
        rounds.sort_unstable();
        assert_eq!(rounds, [1, 2, 3, 4, 5]);
        for iteration in &variant.iterations {
            let ok = iteration.count(Outcome::Ok);
            assert!(ok > 0 && iteration.classes.len() == 1, "{:?}", iteration.classes);
            assert_eq!(iteration.latency(Outcome::Ok).unwrap().count(), ok);
            assert!(iteration.warmup_s >= 0.1 && iteration.seconds >= 0.3, "{iteration:?}");
            let on_the_line: u64 = iteration.timeline.iter().map(|slice| slice.ok).sum();
            assert!(on_the_line >= ok, "the timeline has the warm-up too: {on_the_line} {ok}");
            assert!(iteration.generator.as_ref().unwrap().cpu_share.is_some());
            let component = &iteration.components[0];
            assert_eq!(component.name, "front");
            let (first, last) = (component.samples.first().unwrap(), component.samples.last().unwrap());
            let answered = last.connections_opened.unwrap() - first.connections_opened.unwrap();
            assert!(answered <= 6, "virtual users keep their connections: {answered}");
        }
    }
    let over: Vec<&str> = record.comparisons.iter().map(|comparison| comparison.baseline.as_str()).collect();
    assert_eq!(over, ["a/oauth/few", "a/oauth/many"]);
    assert_eq!(record.reference.len(), 4, "one row for each published load");
    let paths = lab::files::write_report(&record, &lab.path("out")).unwrap();
    assert_eq!(lab::files::read_record(&paths[0]).unwrap().comparisons, record.comparisons);
    let report = read(&paths[1]);
    let others = measured(record.variant("b/oauth/many").unwrap());
    let paired = measured(record.variant("a/oauth/many").unwrap());
    let paired = paired.iter().filter(|round| others.contains(round)).count();
    let caption = "Divided by `a/oauth/many` in the same round: median (minimum – maximum)";
    let caption = report.lines().find(|line| line.contains(caption)).expect(&report);
    let sure = caption.contains("; the range contains the true median with 93.75 %");
    // A round may lack one of the four figures, such as CPU time below the clock resolution. The
    // claimed number is then lower.
    assert!(!sure || paired == 5, "{caption}");
}

#[test]
fn a_transaction_that_is_refused_is_counted_by_its_step() {
    let lab = Lab::new();
    let scenario = scenario(&lab, "", &[("a", &provider("/busy"))]);
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    for iteration in record.variants.iter().flat_map(|variant| &variant.iterations) {
        assert_eq!(iteration.count(Outcome::Ok), 0);
        let class = &iteration.classes[0];
        assert_eq!((class.outcome, class.fault.as_deref()), (Outcome::Refused, Some("revoke: status")));
        assert!(class.count > 0 && class.latency.as_ref().unwrap().count() == class.count);
        assert!(class.example.as_ref().unwrap().contains("status 503: not yet"), "{class:?}");
    }
}

#[test]
fn windows_in_which_nothing_ends_are_told() {
    let lab = Lab::new();
    let loads = "rounds = 2\nfresh = 'run'\n[load.few]\nflow = 'password_revoke'\narrivals = 'closed'\nconcurrency = 2\n\
        duration = '300ms'\nwarmup = '100ms'\n";
    let variant = |name: &str, revoke: &str| {
        format!("[[variant]]\nname = '{name}'\ntopology = '{}'\n", lab.topology(name, &provider(revoke)))
    };
    let run = |variants: &str| {
        let scenario =
            Scenario::from_text(&format!("{loads}{variants}"), "mine.toml", &ScenarioOptions::default())
                .unwrap();
        run(&scenario, lab.options(), &lab.interrupt)
    };
    let never = variant("never", "/late?always");
    let ran = run(&format!("{}{never}", variant("soon", "/late"))).unwrap();
    assert_eq!((ran.record.variants.len(), measured(&ran.record.variants[0])), (1, vec![2]));
    assert_eq!(ran.record.variants[0].missing, [1]);
    assert!(!ran.is_complete());
    let told = |name: &str| ran.record.findings.iter().find(|finding| finding.name == name).unwrap();
    let (some, all) = (told("nothing-ended"), told("not-measured"));
    assert_eq!(some.variants, ["soon/oauth"]);
    assert!(some.evidence.ends_with("no request ended in the window of round 1"), "{}", some.evidence);
    assert_eq!(all.variants, ["never/oauth"]);
    assert!(all.evidence.ends_with("no request ended in the window of rounds 1, 2"), "{}", all.evidence);
    assert_eq!(ran.failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["never/oauth"]);
    let error = run(&never).unwrap_err().to_string();
    assert!(
        error.contains("nothing was measured:\nnever/oauth: no request ended in the window of rounds 1, 2"),
        "{error}"
    );
}

#[test]
fn an_interrupt_ends_a_flow_and_leaves_a_partial_record() {
    let lab = Lab::new();
    let text = LOADS.replace("duration = '300ms'", "duration = '1h'");
    let topology = lab.topology("a", &provider("/revoke"));
    let text = format!("{text}[[variant]]\nname = 'a'\ntopology = '{topology}'\n");
    let scenario = Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap();
    let (interrupter, log) = (lab.interrupter.clone(), lab.path("work/1-a/front/log"));
    let asking = std::thread::spawn(move || {
        super::wait_until("load has begun", || read(&log).contains("under load"));
        interrupter.interrupt();
    });
    let ran = run(&scenario, lab.options(), &lab.interrupt);
    asking.join().unwrap();
    match ran {
        Ok(ran) => assert!(ran.record.run.partial && ran.record.variants.len() == 1),
        // No transaction had ended, so nothing was measured, which the error says.
        Err(error) => assert!(error.to_string().contains("interrupted"), "{error}"),
    }
}

#[test]
fn what_a_flow_needs_and_a_topology_lacks_is_told_before_anything_runs() {
    let lab = Lab::new();
    for (topology, words) in [
        (guarded_topology(""), vec!["load `few`", "topology `a`", "has no provider for a flow"]),
        (provider("revoke"), vec!["`endpoints.revoke`", "a path that begins with /"]),
        (provider("/revoke").replace("count = 3", "count = 0"), vec!["`users.count`"]),
    ] {
        let topology = lab.topology("a", &topology);
        let text = format!("{LOADS}[[variant]]\nname = 'a'\ntopology = '{topology}'\n");
        let error =
            Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default()).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
