//! What runs elsewhere: a URL, and metrics in the Prometheus text format.

use lab::run::run;
use lab::scenario::{Scenario, Wish};
use lab::topology::{Change, Running};

use super::{Lab, parse, serving};

#[test]
fn a_remote_target_is_loaded_and_its_metrics_become_samples() {
    let lab = Lab::new();
    let here = format!("[load]\nurl = \"http://127.0.0.1:@app.http@/\"\n{}", serving("app", "", ""));
    let elsewhere = Running::start(&parse(&here), &Change::default(), &lab.place(), "elsewhere").unwrap();
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
    let scenario = Scenario::from_text(&scenario, "mine.toml", &Wish::default()).unwrap();
    let record = run(&scenario, lab.options(), &lab.interrupt).unwrap().record;
    let iteration = &record.variants[0].iterations[0];
    assert_eq!(iteration.classes[0].count, 150);
    let component = &iteration.components[0];
    assert_eq!((component.name.as_str(), component.cpu_limit_cores), ("app", Some(0.05)));
    let (first, last) = (component.samples.first().unwrap(), component.samples.last().unwrap());
    // The server counts each request as a millisecond of CPU and a throttled period.
    assert!(
        last.user_ms - first.user_ms >= 150 && last.throttled_periods.unwrap() >= 150,
        "{first:?} {last:?}"
    );
    assert!(last.connections_opened > first.connections_opened, "{first:?} {last:?}");
}
