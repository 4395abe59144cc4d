//! A strict parser of metrics, for both text formats.

use std::collections::{BTreeMap, HashSet};

/// Samples by name and labels as written, such as `up{job="x"}`.
pub type Samples = BTreeMap<String, f64>;

/// Parses a complete exposition; panics at the first violation that a scraper would reject.
pub fn read(text: &str, open_metrics: bool) -> Samples {
    let end = if open_metrics { "# EOF\n" } else { "" };
    let body = text.strip_suffix(end).expect("OpenMetrics ends with EOF");
    assert!(body.ends_with('\n') && !body.contains("\n\n"), "whole lines, none empty");
    let mut reader = Reader { open_metrics, ..Reader::default() };
    for line in body.lines() {
        match line.strip_prefix("# ") {
            Some(meta) => reader.meta(meta),
            None => reader.sample(line),
        }
    }
    reader.check_histograms();
    reader.samples
}

#[derive(Default)]
struct Reader {
    open_metrics: bool,
    families: HashSet<String>,
    family: String,
    kind: String,
    samples: Samples,
    buckets: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Reader {
    fn meta(&mut self, meta: &str) {
        let mut words = meta.splitn(3, ' ');
        let (word, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{name}");
        match word {
            "HELP" => {
                assert!(self.families.insert(name.to_owned()), "{name} comes twice");
                assert!(rest.ends_with('.') && !rest.contains(['\\', '"']), "{rest}");
                name.clone_into(&mut self.family);
            }
            "TYPE" => {
                assert_eq!(name, self.family);
                let counts = rest == "counter" && !self.open_metrics;
                assert_eq!(name.ends_with("_total"), counts, "{name} {rest}");
                rest.clone_into(&mut self.kind);
            }
            "UNIT" => assert!(
                self.open_metrics && name == self.family && name.ends_with(&format!("_{rest}")),
                "{meta}"
            ),
            _ => panic!("{meta}"),
        }
    }

    fn sample(&mut self, line: &str) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let suffix =
            name.strip_prefix(self.family.as_str()).unwrap_or_else(|| panic!("{line} in {}", self.family));
        let expected: &[&str] = match (self.kind.as_str(), self.open_metrics) {
            ("counter", true) => &["_total"],
            ("counter" | "gauge", _) => &[""],
            ("info", true) => &["_info"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            other => panic!("{other:?}"),
        };
        assert!(expected.contains(&suffix), "{line}: {} wants {expected:?}", self.kind);
        assert!(self.kind == "gauge" || value >= 0.0, "{line}");
        if suffix == "_bucket" {
            let (labels, bound) = labels.split_once("le=\"").unwrap();
            let bound = bound.strip_suffix("\"}").unwrap();
            assert!(!self.open_metrics || bound.contains('.') || bound == "+Inf", "{line}");
            let key = format!("{}{{{}}}", self.family, labels.trim_end_matches(','));
            self.buckets.entry(key.replace("{}", "")).or_default().push((bound.parse().unwrap(), value));
        }
        assert!(self.samples.insert(series.to_owned(), value).is_none(), "{series} comes twice");
    }

    /// Checks that bounds and counts ascend, and that the last bound is infinite and counts
    /// everything.
    fn check_histograms(&self) {
        for (series, buckets) in &self.buckets {
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{series} {buckets:?}");
            let (bound, all) = buckets.last().unwrap();
            assert!(bound.is_infinite(), "{series}");
            let (family, labels) = series.split_once('{').unwrap_or((series, ""));
            let brace = if labels.is_empty() { "" } else { "{" };
            let count = self.samples[&format!("{family}_count{brace}{labels}")];
            assert!((count - all).abs() < 0.5, "{series}");
            assert!(self.samples.contains_key(&format!("{family}_sum{brace}{labels}")), "{series}");
        }
    }
}

/// Panics unless the series has this value.
pub fn assert_sample(samples: &Samples, series: &str, value: f64) {
    let found = samples.get(series).unwrap_or_else(|| panic!("{series} is missing"));
    assert!((found - value).abs() < 1e-9, "{series} is {found}, not {value}");
}
