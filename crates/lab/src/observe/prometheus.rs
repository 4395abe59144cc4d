//! Figures of what runs elsewhere, in the Prometheus text format.
//!
//! Owns: reading the format (exposition format 0.0.4, and what `OpenMetrics` shares with it) and what its usual names mean for a component:
//! `container_*` of the kubelet, `process_*` of client libraries. Does not own: who is asked, and when. Counters of several series that
//! have the labels are added up, because a program may be several containers.

use std::collections::BTreeMap;

use crate::record::Sample;
use crate::units::whole;

/// One line: a name, labels and a number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, String>,
    value: f64,
    /// When it was read, ms since 1970, where that is said: by the kubelet, which reads every ten seconds or so and tells the same until then.
    stamp: Option<i64>,
}

/// Names of counters that have no usual one: `NAME`, or `NAME{label="value"}`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Named<'a> {
    /// Accepted connections.
    pub(crate) connections: Option<&'a str>,
    /// Received requests.
    pub(crate) calls: Option<&'a str>,
    /// TLS handshakes.
    pub(crate) handshakes: Option<&'a str>,
}

/// What the metrics of a component say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// Absent when they do not tell its CPU.
    pub(crate) sample: Option<Sample>,
    /// The counters that were named, with nothing else in it.
    pub(crate) counters: Sample,
    pub(crate) cpu_limit_cores: Option<f64>,
    pub(crate) memory_limit_bytes: Option<u64>,
    /// When its CPU was read, ms since 1970, where that is said.
    pub(crate) stamp: Option<i64>,
}

/// Whether a text names a counter.
pub(crate) fn is_name(text: &str) -> bool {
    let one = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let named = line(&format!("{text} 0")).is_some_and(|line| line.name.chars().all(one));
    named && if text.contains('{') { text.ends_with('}') } else { text.chars().all(one) }
}

/// The lines of a text that can be read; others are passed over, as the format demands of readers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(line)
}

fn line(text: &str) -> Option<Line<'_>> {
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
    (!name.is_empty() && value.is_finite()).then_some(Line { name, labels, value, stamp })
}

/// Labels up to the closing brace, and what follows it.
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

/// What a text says about the component whose samples have these labels.
pub(crate) fn seen(text: &str, wanted: &BTreeMap<String, String>, named: Named<'_>, at_ms: u64) -> Seen {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let mut stamp = None;
    // Quota and period of each container: limits add up, and periods do not.
    let mut limits: BTreeMap<BTreeMap<&str, String>, [f64; 2]> = BTreeMap::new();
    for line in lines(text) {
        let meant = wanted.iter().all(|(name, value)| line.labels.get(name.as_str()) == Some(value));
        // The kubelet also sums a pod up, and tells of the container that holds its network.
        let container = !line.name.starts_with("container_")
            || line.labels.get("container").is_none_or(|name| !name.is_empty() && name != "POD");
        if meant && container {
            *sums.entry(line.name).or_default() += line.value;
            match line.name {
                "container_cpu_usage_seconds_total" => stamp = stamp.max(line.stamp),
                "container_spec_cpu_quota" => limits.entry(line.labels).or_default()[0] = line.value,
                "container_spec_cpu_period" => limits.entry(line.labels).or_default()[1] = line.value,
                _ => {}
            }
        }
    }
    let sum = |name: &str| sums.get(name).copied().filter(|value| *value >= 0.0);
    let count = |name: &str| sum(name).map(whole);
    let counter = |name: Option<&str>| counter(text, wanted, name?);
    let counters = Sample {
        at_ms,
        connections_opened: counter(named.connections),
        calls_received: counter(named.calls),
        tls_handshakes: counter(named.handshakes),
        ..Sample::default()
    };
    let millis = |name: &str| sum(name).map(|seconds| whole(seconds * 1e3));
    let (user, system) =
        match (millis("container_cpu_user_seconds_total"), millis("container_cpu_system_seconds_total")) {
            (Some(user), Some(system)) => (Some(user), system),
            _ => (
                millis("container_cpu_usage_seconds_total").or_else(|| millis("process_cpu_seconds_total")),
                0,
            ),
        };
    let memory =
        count("container_memory_working_set_bytes").or_else(|| count("process_resident_memory_bytes"));
    let cores = |[quota, period]: [f64; 2]| (quota > 0.0 && period > 0.0).then(|| quota / period);
    Seen {
        sample: user.map(|user_ms| Sample {
            user_ms,
            system_ms: system,
            rss_bytes: memory.unwrap_or(0),
            threads: count("container_threads").unwrap_or(0),
            periods: count("container_cpu_cfs_periods_total"),
            throttled_periods: count("container_cpu_cfs_throttled_periods_total"),
            throttled_ms: millis("container_cpu_cfs_throttled_seconds_total"),
            ..counters.clone()
        }),
        counters,
        // One without a limit may use what it likes, and so may all of them together.
        cpu_limit_cores: limits.into_values().map(cores).sum::<Option<f64>>().filter(|cores| *cores > 0.0),
        memory_limit_bytes: count("container_spec_memory_limit_bytes").filter(|bytes| *bytes > 0),
        stamp,
    }
}

/// The sum of the series of a counter that have all labels of the component and of its name; `None` when there is none.
pub(crate) fn counter(text: &str, wanted: &BTreeMap<String, String>, name: &str) -> Option<u64> {
    let selector = format!("{name} 0");
    let selector = line(&selector)?;
    let meant = |line: &Line<'_>| {
        line.name == selector.name
            && wanted.iter().all(|(name, value)| line.labels.get(name.as_str()) == Some(value))
            && selector.labels.iter().all(|(name, value)| line.labels.get(name) == Some(value))
    };
    let series = lines(text).filter(meant).map(|line| line.value);
    series.reduce(|sum, value| sum + value).filter(|sum| *sum >= 0.0).map(whole)
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
            let _ = seen(&text, &BTreeMap::new(), Named { calls: Some(&text), ..Named::default() }, 0);
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
        assert_eq!(super::seen(text, &labels, Named::default(), 7).stamp, Some(1_700_000_000_000));
        let seen = seen(text, &labels, Named::default(), 7);
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
        let limit = |text: &str| seen(text, &labels, Named::default(), 0).cpu_limit_cores;
        assert_eq!(limit(&format!("{}{}", pod("x", 50_000), pod("y", 50_000))), Some(1.0));
        assert_eq!(limit(&pod("x", 50_000)), Some(0.5));
        assert_eq!(limit("container_cpu_usage_seconds_total{container=\"a\"} 3\n"), None);
    }

    #[test]
    fn a_program_tells_of_itself() {
        let text = "process_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 4096\naccepted_total{l=\"a\"} 3\naccepted_total{l=\"b\"} 4\n";
        let named = Named {
            connections: Some("accepted_total"),
            calls: Some("accepted_total{l=\"b\"}"),
            handshakes: Some("no_such_total"),
        };
        let seen_here = |text| seen(text, &BTreeMap::new(), named, 0);
        let Seen { sample, counters, .. } = seen_here(text);
        let sample = sample.unwrap();
        assert_eq!((sample.user_ms, sample.rss_bytes, sample.connections_opened), (1500, 4096, Some(7)));
        assert_eq!((sample.calls_received, sample.tls_handshakes), (Some(4), None));
        assert_eq!(
            (counters.connections_opened, counters.calls_received, counters.user_ms),
            (Some(7), Some(4), 0)
        );
        assert_eq!(seen_here("nothing_of_use 1\n"), Seen::default());
        assert_eq!(seen_here("accepted_total{l=\"b\"} 4\n").sample, None, "its CPU is not known");
    }
}
