//! Prometheus metrics: figures of a component from the Prometheus text format.
//!
//! Counters of all series with the selected labels are summed, because a program may run in several
//! containers.
//!
//! Owns:
//! - the parser (exposition format 0.0.4, and what `OpenMetrics` has in common with it);
//! - the meaning of usual metric names (`container_*` of the kubelet, `process_*` of client
//!   libraries);
//! - the continuation of counters after a restart.
//!
//! Does not own: which endpoints are scraped, and when.

use std::collections::BTreeMap;

use lab_analysis::record::Sample;
use lab_analysis::units::truncated;

/// One sample line: a name, labels and a number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricLine<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
    /// Timestamp in ms since 1970, if there is one. The kubelet sets it: it reads about every ten
    /// seconds and repeats the value until then.
    stamp: Option<i64>,
}

/// Counters without a usual name: `NAME`, or `NAME{label="value"}`.
#[derive(Debug, Clone, Copy, Default)]
pub struct CounterNames<'a> {
    /// Counter of accepted connections.
    pub connections: Option<&'a str>,
    /// Counter of received requests.
    pub calls: Option<&'a str>,
    /// Counter of TLS handshakes.
    pub handshakes: Option<&'a str>,
}

/// Figures of a component in one metrics text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScrapedMetrics {
    /// Usage sample; `None` if the metrics have no CPU time.
    pub sample: Option<Sample>,
    /// Only the named counters; all other fields are empty.
    pub counters: Sample,
    /// Limit of the CPU in cores; `None` without one.
    pub cpu_limit_cores: Option<f64>,
    /// Limit of the memory in bytes; `None` without one.
    pub memory_limit_bytes: Option<u64>,
    /// Timestamp of the CPU time, in ms since 1970, if there is one.
    pub stamp: Option<i64>,
}

/// Totals of a component's counters over consecutive scrapes.
#[derive(Debug, Default)]
pub struct CounterTotals(BTreeMap<String, BTreeMap<BTreeMap<String, String>, Series>>);

/// One series of a counter.
#[derive(Debug, Default)]
struct Series {
    /// Sum of the final values before restarts of the program.
    completed: f64,
    /// Value in the last scrape.
    last: f64,
}

impl CounterTotals {
    /// Updates a counter with its current lines and returns its total.
    ///
    /// Each series continues separately. A value that is lower than before means that the program
    /// was restarted. A series that is missing (a container that the kubelet did not read) keeps
    /// its value. Returns `None` if no line has the counter now.
    fn update<'a>(&mut self, name: &str, lines: impl Iterator<Item = &'a MetricLine<'a>>) -> Option<f64> {
        let mut lines = lines.filter(|line| line.value >= 0.0).peekable();
        lines.peek()?;
        let known = self.0.entry(name.to_owned()).or_default();
        for line in lines {
            let labels = line.labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            let series = known.entry(labels.collect()).or_default();
            if line.value < series.last {
                series.completed += series.last;
            }
            series.last = line.value;
        }
        Some(known.values().map(|series| series.completed + series.last).sum())
    }

    /// Total of the counter `name`: the sum of its series that have all labels of the component and
    /// of the name. `None` if there is no such series now.
    pub fn counter(&mut self, text: &str, wanted: &BTreeMap<String, String>, name: &str) -> Option<u64> {
        let selector = format!("{name} 0");
        let selector = line(&selector)?;
        let named = |line: &MetricLine<'_>| {
            selector.labels.iter().all(|(name, value)| line.labels.get(name) == Some(value))
        };
        let meant: Vec<MetricLine<'_>> = lines(text)
            .filter(|line| line.name == selector.name && line.has_labels(wanted) && named(line))
            .collect();
        self.update(name, meant.iter()).map(truncated)
    }
}

/// Whether the text is a valid counter name.
pub fn is_name(text: &str) -> bool {
    let one = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let named = line(&format!("{text} 0")).is_some_and(|line| line.name.chars().all(one));
    named && if text.contains('{') { text.ends_with('}') } else { text.chars().all(one) }
}

impl MetricLine<'_> {
    /// Whether the line has all these labels.
    fn has_labels(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted.iter().all(|(name, value)| self.labels.get(name.as_str()) == Some(value))
    }

    /// Whether the line belongs to a container of a program. The kubelet also reports pod sums, and
    /// the container that holds the pod's network namespace.
    fn is_container(&self) -> bool {
        !self.name.starts_with("container_")
            || self.labels.get("container").is_none_or(|name| !name.is_empty() && name != "POD")
    }
}

/// Lines of the text that can be parsed. Others are skipped, as the format requires.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = MetricLine<'_>> {
    text.lines().filter_map(line)
}

fn line(text: &str) -> Option<MetricLine<'_>> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return None;
    }
    let end = text.find(|letter: char| letter == '{' || letter.is_ascii_whitespace())?;
    let (name, rest) = text.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (BTreeMap::new(), rest),
    };
    let mut rest = rest.split_ascii_whitespace();
    let value: f64 = rest.next()?.parse().ok()?;
    let stamp = rest.next().and_then(|stamp| stamp.parse().ok());
    (!name.is_empty() && value.is_finite()).then_some(MetricLine { name, labels, value, stamp })
}

/// Parses labels up to the closing brace. Returns them and the rest of the line.
fn labels(text: &str) -> Option<(BTreeMap<&str, String>, &str)> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once('=')?;
        let mut letters = after.trim_start().strip_prefix('"')?.char_indices();
        let inside = after.trim_start().strip_prefix('"')?;
        let mut value = String::new();
        let end = loop {
            match letters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name.trim(), value);
        rest = &inside[end + 1..];
    }
}

/// Parses the figures of the component whose samples have the labels `wanted`. `counters` holds its
/// totals until then.
pub fn parse_metrics(
    text: &str,
    wanted: &BTreeMap<String, String>,
    named: CounterNames<'_>,
    at_ms: u64,
    counters: &mut CounterTotals,
) -> ScrapedMetrics {
    let meant: Vec<MetricLine<'_>> =
        lines(text).filter(|line| line.has_labels(wanted) && line.is_container()).collect();
    let of = |name: &'static str| meant.iter().filter(move |line| line.name == name);
    let gauge = |name| {
        let sum = of(name).map(|line| line.value).reduce(|sum, value| sum + value);
        sum.filter(|sum| *sum >= 0.0).map(truncated)
    };
    let mut own = |name: Option<&str>| counters.counter(text, wanted, name?);
    let scraped = Sample {
        at_ms,
        connections_opened: own(named.connections),
        calls_received: own(named.calls),
        tls_handshakes: own(named.handshakes),
        ..Sample::default()
    };
    let mut count = |name| counters.update(name, of(name)).map(truncated);
    let periods = count("container_cpu_cfs_periods_total");
    let throttled_periods = count("container_cpu_cfs_throttled_periods_total");
    let mut millis = |name| counters.update(name, of(name)).map(|seconds| truncated(seconds * 1e3));
    let throttled_ms = millis("container_cpu_cfs_throttled_seconds_total");
    let both = millis("container_cpu_user_seconds_total").zip(millis("container_cpu_system_seconds_total"));
    let mut together =
        || millis("container_cpu_usage_seconds_total").or_else(|| millis("process_cpu_seconds_total"));
    let cpu = both.or_else(|| Some((together()?, 0)));
    let memory =
        gauge("container_memory_working_set_bytes").or_else(|| gauge("process_resident_memory_bytes"));
    ScrapedMetrics {
        sample: cpu.map(|(user_ms, system_ms)| Sample {
            user_ms,
            system_ms,
            rss_bytes: memory.unwrap_or(0),
            threads: gauge("container_threads").unwrap_or(0),
            periods,
            throttled_periods,
            throttled_ms,
            ..scraped.clone()
        }),
        counters: scraped,
        cpu_limit_cores: cpu_limit(&meant),
        memory_limit_bytes: gauge("container_spec_memory_limit_bytes").filter(|bytes| *bytes > 0),
        stamp: of("container_cpu_usage_seconds_total").filter_map(|line| line.stamp).max(),
    }
}

/// Cores that all containers may use together. If one has no limit, the sum has no limit (`None`).
fn cpu_limit(lines: &[MetricLine<'_>]) -> Option<f64> {
    // Quota and period of each container. Only the quotients can be summed, not the quotas.
    let mut limits: BTreeMap<&BTreeMap<&str, String>, [f64; 2]> = BTreeMap::new();
    for line in lines {
        match line.name {
            "container_spec_cpu_quota" => limits.entry(&line.labels).or_default()[0] = line.value,
            "container_spec_cpu_period" => limits.entry(&line.labels).or_default()[1] = line.value,
            _ => {}
        }
    }
    let cores = |[quota, period]: [f64; 2]| (quota > 0.0 && period > 0.0).then(|| quota / period);
    limits.into_values().map(cores).sum::<Option<f64>>().filter(|cores| *cores > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_the_format_says() {
        let text = "# HELP a b\na 1\nb_total{x=\"1\",y=\"a \\\"b\\\\ }\\n\"} 2.5e3 1700000000000\n\nc{} NaN\nbroken{x=1} 3\nd{,z=\"\"}7\ne +Inf\n";
        let read: Vec<_> = lines(text).collect();
        assert_eq!(
            read.iter().map(|line| (line.name, line.value)).collect::<Vec<_>>(),
            [("a", 1.0), ("b_total", 2500.0), ("d", 7.0)]
        );
        assert_eq!(read[1].labels["y"], "a \"b\\ }\n");
    }

    #[test]
    fn counters_are_named_with_or_without_labels() {
        let names = ["a", "a:b_total", "a{b=\"c d\"}", "a{b=\"c\",d=\"e\"}"];
        assert_eq!(names.map(is_name), [true; 4]);
        assert_eq!(["", "a b", "a{b=c}", "a 1", "a{b=\"c\"} 7", "{a=\"b\"}", "a-b"].map(is_name), [false; 7]);
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_is_read_or_passed_over(text in r#"[a-c_]{0,3}[{]?[a-b="\\, }n]{0,12}[}]? ?[0-9.eE+-]{0,6}\n?.{0,20}"#) {
            for line in lines(&text) {
                proptest::prop_assert!(line.value.is_finite());
            }
            let named = CounterNames { calls: Some(&text), ..CounterNames::default() };
            let _ = parse_metrics(&text, &BTreeMap::new(), named, 0, &mut CounterTotals::default());
            let _ = is_name(&text);
        }
    }

    #[test]
    fn a_container_is_told_from_its_pod_and_its_neighbours() {
        let text = r#"
container_cpu_usage_seconds_total{container="proxy",pod="a"} 12.5 1700000000000
container_cpu_usage_seconds_total{container="",pod="a"} 20
container_cpu_usage_seconds_total{container="POD",pod="a"} 1
container_cpu_usage_seconds_total{container="other",pod="a"} 7
container_cpu_cfs_periods_total{container="proxy",pod="a"} 100
container_cpu_cfs_throttled_periods_total{container="proxy",pod="a"} 40
container_cpu_cfs_throttled_seconds_total{container="proxy",pod="a"} 3.25
container_spec_cpu_quota{container="proxy",pod="a"} 5000
container_spec_cpu_period{container="proxy",pod="a"} 100000
container_memory_working_set_bytes{container="proxy",pod="a"} 1.048576e+06
container_spec_memory_limit_bytes{container="proxy",pod="a"} 0
"#;
        let labels = [("container".to_owned(), "proxy".to_owned())].into();
        let seen = parse_metrics(text, &labels, CounterNames::default(), 7, &mut CounterTotals::default());
        assert_eq!(seen.stamp, Some(1_700_000_000_000));
        let expected = Sample {
            at_ms: 7,
            user_ms: 12_500,
            rss_bytes: 1 << 20,
            periods: Some(100),
            throttled_periods: Some(40),
            throttled_ms: Some(3250),
            ..Sample::default()
        };
        assert_eq!(
            (seen.sample, seen.cpu_limit_cores, seen.memory_limit_bytes),
            (Some(expected), Some(0.05), None)
        );
    }

    #[test]
    fn limits_of_several_containers_add_up() {
        let pod = |name: &str, quota: u32| {
            format!(
                "container_cpu_usage_seconds_total{{container=\"a\",pod=\"{name}\"}} 3\n\
                 container_spec_cpu_quota{{container=\"a\",pod=\"{name}\"}} {quota}\n\
                 container_spec_cpu_period{{container=\"a\",pod=\"{name}\"}} 100000\n"
            )
        };
        let labels: BTreeMap<String, String> = [("container".to_owned(), "a".to_owned())].into();
        let limit = |text: &str| {
            parse_metrics(text, &labels, CounterNames::default(), 0, &mut CounterTotals::default())
                .cpu_limit_cores
        };
        assert_eq!(limit(&format!("{}{}", pod("x", 50_000), pod("y", 50_000))), Some(1.0));
        assert_eq!(limit(&pod("x", 50_000)), Some(0.5));
        assert_eq!(limit("container_cpu_usage_seconds_total{container=\"a\"} 3\n"), None);
    }

    #[test]
    fn a_program_tells_of_itself() {
        let text = "process_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 4096\naccepted_total{l=\"a\"} 3\naccepted_total{l=\"b\"} 4\n";
        let named = CounterNames {
            connections: Some("accepted_total"),
            calls: Some("accepted_total{l=\"b\"}"),
            handshakes: Some("no_such_total"),
        };
        let seen_here = |text| parse_metrics(text, &BTreeMap::new(), named, 0, &mut CounterTotals::default());
        let ScrapedMetrics { sample, counters, .. } = seen_here(text);
        let sample = sample.unwrap();
        assert_eq!((sample.user_ms, sample.rss_bytes, sample.connections_opened), (1500, 4096, Some(7)));
        assert_eq!((sample.calls_received, sample.tls_handshakes), (Some(4), None));
        assert_eq!(
            (counters.connections_opened, counters.calls_received, counters.user_ms),
            (Some(7), Some(4), 0)
        );
        assert_eq!(seen_here("nothing_of_use 1\n"), ScrapedMetrics::default());
        assert_eq!(seen_here("accepted_total{l=\"b\"} 4\n").sample, None, "its CPU is not known");
    }

    #[test]
    fn a_program_that_is_started_anew_counts_on() {
        let mut counters = CounterTotals::default();
        let named = CounterNames { calls: Some("calls_total"), ..CounterNames::default() };
        let mut look = |cpu: f64, calls: &str| {
            let text = format!("process_cpu_seconds_total {cpu}\n{calls}");
            let seen = parse_metrics(&text, &BTreeMap::new(), named, 0, &mut counters);
            (seen.sample.unwrap().user_ms, seen.counters.calls_received)
        };
        assert_eq!(look(90.0, "calls_total 1000"), (90_000, Some(1000)));
        assert_eq!(look(90.5, "calls_total 1200"), (90_500, Some(1200)));
        assert_eq!(
            look(0.25, "calls_total 7"),
            (90_750, Some(1207)),
            "what it had counted, and what it has since"
        );
        assert_eq!(look(0.5, "other_total 7"), (91_000, None));
        assert_eq!(look(1.0, "calls_total 30"), (91_500, Some(1230)));
    }

    #[test]
    fn a_pod_that_one_answer_lacks_is_not_counted_twice() {
        let labels: BTreeMap<String, String> = [("container".to_owned(), "a".to_owned())].into();
        let mut counters = CounterTotals::default();
        let mut look = |pods: &[(&str, u64)]| {
            let lines = pods.iter().map(|(pod, seconds)| {
                format!("container_cpu_usage_seconds_total{{container=\"a\",pod=\"{pod}\"}} {seconds}\n")
            });
            let seen =
                parse_metrics(&lines.collect::<String>(), &labels, CounterNames::default(), 0, &mut counters);
            seen.sample.map(|sample| sample.user_ms / 1000)
        };
        assert_eq!(look(&[("x", 500), ("y", 300)]), Some(800));
        assert_eq!(look(&[("x", 510)]), Some(810), "y is where it was");
        assert_eq!(look(&[]), None);
        assert_eq!(look(&[("x", 520), ("y", 320)]), Some(840));
        // One of them is restarted, and a third one is added.
        assert_eq!(look(&[("x", 2), ("y", 330), ("z", 5)]), Some(857));
    }
}
