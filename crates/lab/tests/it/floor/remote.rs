//! Metrics in the Prometheus text format: of remote components, and of local ones that export
//! counters.

use lab::run::run;
use lab::scenario::{Scenario, ScenarioOptions};
use lab::topology::{Running, TopologyOverrides};

use super::{Lab, guarded_topology, parse, server_component};

#[test]
fn a_remote_target_is_loaded_and_its_metrics_become_samples() {
    let lab = Lab::new();
    let here = format!("[load]\nurl = \"http://127.0.0.1:@app.http@/\"\n{}", server_component("app", "", ""));
    let elsewhere =
        Running::start(&parse(&here), &TopologyOverrides::default(), &lab.place(), "elsewhere").unwrap();
    let url = elsewhere.fill("http://127.0.0.1:@app.http@").unwrap();
    let topology = lab.topology(
        "remote",
        &format!(
            "title = \"a cluster\"\n[load]\nurl = \"@app.url@/\"\n[[component]]\nname = \"app\"\nurl = \"{url}\"\n\
             metrics = {{ url = \"{url}/metrics\", labels = {{ container = \"app\" }}, connections = \"requests_total\" }}\n"
        ),
    );
    let scenario = format!(
        "rounds = 1\n[load.open]\narrivals = 'constant'\nrate = 100\nduration = '1500ms'\nwarmup = '0s'\n[[variant]]\ntopology = '{topology}'\n"
    );
    let scenario = Scenario::from_text(&scenario, "mine.toml", &ScenarioOptions::default()).unwrap();
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    let iteration = &record.variants[0].iterations[0];
    assert_eq!(iteration.classes[0].count, 150);
    let component = &iteration.components[0];
    assert_eq!((component.name.as_str(), component.cpu_limit_cores), ("app", Some(0.05)));
    let (first, last) = (component.samples.first().unwrap(), component.samples.last().unwrap());
    // The server counts each request as one millisecond of CPU and one throttled period.
    assert!(
        last.user_ms >= 150 && last.user_ms > first.user_ms && last.throttled_periods.unwrap() >= 150,
        "{first:?} {last:?}"
    );
    assert!(last.connections_opened > first.connections_opened, "{first:?} {last:?}");
}

#[test]
fn what_a_program_counts_of_itself_stands_beside_what_is_seen_of_it() {
    let lab = Lab::new();
    let metrics = "metrics = { url = \"http://127.0.0.1:@front.http@/metrics\", calls = 'requests_total{pod=\"a\"}' }\n";
    let topology = lab.topology("front", &format!("{}{metrics}", guarded_topology("")));
    let scenario = format!(
        "rounds = 1\n[load.open]\narrivals = 'constant'\nrate = 100\nduration = '1500ms'\nwarmup = '0s'\n[[variant]]\ntopology = '{topology}'\n"
    );
    let scenario = Scenario::from_text(&scenario, "mine.toml", &ScenarioOptions::default()).unwrap();
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    let iteration = &record.variants[0].iterations[0];
    assert_eq!(iteration.components.len(), 1, "one component, however many look at it");
    let samples = &iteration.components[0].samples;
    let (first, last) = (samples.first().unwrap(), samples.last().unwrap());
    let calls = last.calls_received.unwrap() - first.calls_received.unwrap();
    // One request is due each 10 ms, and the first sample may be late. The server also counts the
    // requests for its metrics.
    let due = 150 - (first.at_ms / 10).min(140);
    assert!((due - 10..=due + 20).contains(&calls), "{first:?} {last:?}");
    assert!(
        last.rss_bytes > 1 << 20 && last.swap_bytes.is_some() && last.tls_handshakes.is_none(),
        "{last:?}"
    );
    assert!(samples.windows(2).all(|two| two[0].calls_received <= two[1].calls_received));
}
