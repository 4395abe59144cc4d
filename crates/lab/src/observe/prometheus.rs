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
}

/// What the metrics of a component say.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// Absent when they do not tell its CPU.
    pub(crate) sample: Option<Sample>,
    pub(crate) cpu_limit_cores: Option<f64>,
    pub(crate) memory_limit_bytes: Option<u64>,
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
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    (!name.is_empty() && value.is_finite()).then_some(Line { name, labels, value })
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

/// What a text says about the component whose samples have these labels; `connections` names its counter of accepted connections.
pub(crate) fn seen(
    text: &str,
    wanted: &BTreeMap<String, String>,
    connections: Option<&str>,
    at_ms: u64,
) -> Seen {
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    for line in lines(text) {
        let named = wanted.iter().all(|(name, value)| line.labels.get(name.as_str()) == Some(value));
        // The kubelet also sums a pod up, and tells of the container that holds its network.
        let container = !line.name.starts_with("container_")
            || line.labels.get("container").is_none_or(|name| !name.is_empty() && name != "POD");
        if named && container {
            *sums.entry(line.name).or_default() += line.value;
        }
    }
    let sum = |name: &str| sums.get(name).copied().filter(|value| *value >= 0.0);
    let count = |name: &str| sum(name).map(whole);
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
    let quota = sum("container_spec_cpu_quota").zip(sum("container_spec_cpu_period"));
    Seen {
        sample: user.map(|user_ms| Sample {
            at_ms,
            user_ms,
            system_ms: system,
            rss_bytes: memory.unwrap_or(0),
            threads: count("container_threads").unwrap_or(0),
            connections_opened: connections.and_then(count),
            periods: count("container_cpu_cfs_periods_total"),
            throttled_periods: count("container_cpu_cfs_throttled_periods_total"),
            throttled_ms: millis("container_cpu_cfs_throttled_seconds_total"),
            ..Sample::default()
        }),
        cpu_limit_cores: quota
            .filter(|(quota, period)| *quota > 0.0 && *period > 0.0)
            .map(|(quota, period)| quota / period),
        memory_limit_bytes: count("container_spec_memory_limit_bytes").filter(|bytes| *bytes > 0),
    }
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

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_is_read_or_passed_over(text in r#"[a-c_]{0,3}[{]?[a-b="\\, }n]{0,12}[}]? ?[0-9.eE+-]{0,6}\n?.{0,20}"#) {
            for line in lines(&text) {
                proptest::prop_assert!(line.value.is_finite());
            }
            let _ = seen(&text, &BTreeMap::new(), Some("a"), 0);
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
        let seen = seen(text, &labels, None, 7);
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
    fn a_program_tells_of_itself() {
        let text = "process_cpu_seconds_total 1.5\nprocess_resident_memory_bytes 4096\naccepted_total{l=\"a\"} 3\naccepted_total{l=\"b\"} 4\n";
        let sample = seen(text, &BTreeMap::new(), Some("accepted_total"), 0).sample.unwrap();
        assert_eq!((sample.user_ms, sample.rss_bytes, sample.connections_opened), (1500, 4096, Some(7)));
        assert_eq!(seen("nothing_of_use 1\n", &BTreeMap::new(), None, 0), Seen::default());
    }
}
