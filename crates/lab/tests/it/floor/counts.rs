//! Counts per request: what is counted, that it is the difference of two runs, and what happens
//! without the tool.

use lab::run::{Options, run};
use lab::scenario::{Scenario, ScenarioOptions};
use lab_analysis::record::Outcome;

use super::{Lab, guarded_topology, programs};

const COUNTS: &str = "rounds = 1\nfresh = 'run'\n\
    [load.known]\narrivals = 'closed'\nconcurrency = 1\nrequests = 5\nwarmup = '0s'\n\
    [load.nobody]\narrivals = 'closed'\nconcurrency = 1\nrequests = 5\nwarmup = '0s'\npath = '/other?x=1'\ntokens = 0\n\
    [counts]\ncomponent = 'front'\nrequests = [5, 45]\n";

fn scenario(lab: &Lab, variants: &[(&str, &str)]) -> Scenario {
    let variants = variants.iter().map(|(name, environment)| {
        format!(
            "[[variant]]\nname = '{name}'\ntopology = '{}'\n",
            lab.topology(name, &guarded_topology(environment))
        )
    });
    let text = format!("{COUNTS}{}", variants.collect::<String>());
    Scenario::from_text(&text, "mine.toml", &ScenarioOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_a_request_costs_is_counted_beside_what_is_measured() {
    let lab = Lab::new();
    // A million steps per response, and none; a refusal needs none either.
    let scenario = scenario(&lab, &[("idle", ""), ("busy", ", LAB_TEST_WORK = \"1000\"")]);
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    assert_eq!(ran.failed, []);
    let count = |variant: &str, name: &str| ran.record.variant(variant).unwrap().counters[name];
    let (idle, busy) = (count("idle/oauth/known", "instructions"), count("busy/oauth/known", "instructions"));
    assert!(idle > 1_000.0 && busy - idle > 1_000_000.0, "{idle} {busy}");
    let refused = count("busy/oauth/nobody", "instructions");
    assert!(refused > 1_000.0 && refused < 1_000_000.0, "a refusal does not work: {refused}");
    // A server that formats strings allocates memory several times per response.
    let memory = count("idle/oauth/known", "allocations");
    assert!((3.0..300.0).contains(&memory), "{memory}");
    let iteration = &ran.record.variant("busy/oauth/nobody").unwrap().iterations[0];
    assert_eq!(iteration.count(Outcome::Refused), 5, "requests without a token");
    assert_eq!(ran.record.variant("busy/oauth/nobody").unwrap().load.tokens, Some(0));
    let depends = &ran.record.run.counting;
    assert!(depends["compiler"].starts_with("rustc version"), "{depends:?}");
    assert!(depends["valgrind"].starts_with("valgrind-"), "{depends:?}");
    assert_eq!(depends["architecture"], std::env::consts::ARCH);
}

#[test]
fn without_the_tool_the_error_names_its_package() {
    let lab = Lab::new();
    let own = programs().with("valgrind", lab.path("nowhere"));
    let options = Options { programs: own, ..lab.options() };
    let ran = run(&scenario(&lab, &[("idle", "")]), options, &lab.interrupt).unwrap();
    let [(name, why)] = ran.failed.as_slice() else { panic!("{:?}", ran.failed) };
    assert_eq!(name, "idle/oauth");
    assert!(
        why.contains("component `front` needs `valgrind`, which is not an executable file at")
            && why.contains("install the package valgrind"),
        "{why}"
    );
    let variant = ran.record.variant("idle/oauth/known").unwrap();
    assert!(variant.counters.is_empty() && variant.iterations.len() == 1, "what was measured stays");
}

#[test]
fn requests_that_end_differently_have_no_cost_in_common() {
    let lab = Lab::new();
    // First all requests succeed; later every seventh fails.
    let scenario = scenario(&lab, &[("moody", ", LAB_TEST_MOODY = \"yes\"")]);
    let ran = run(&scenario, lab.options(), &lab.interrupt).unwrap();
    let [(_, why)] = ran.failed.as_slice() else { panic!("{:?}", ran.failed) };
    assert!(why.contains("`moody/oauth/known` had different results") && why.contains("503"), "{why}");
}
