//! Exposition: the formats of a scrape.
//!
//! Owns: the Prometheus text format 0.0.4, `OpenMetrics` 1.0, and the choice of a format. Does not
//! own: which metric families exist ([`super::scrape`]), the messages of the protobuf format
//! ([`super::protobuf`]).
//!
//! No metrics library is used, because the counters are in per-worker shards. One pass over them
//! serves every format, also for scrapers (or people with curl) that know only the oldest one.

use std::fmt::Write as _;

use super::exponential::ExponentialTotal;
use super::protobuf::{MetricType, ProtobufWriter};

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text exposition 0.0.4.
    Text,
    /// `OpenMetrics` 1.0.
    OpenMetrics,
}

/// A format of a scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exposition {
    /// Lines of text.
    Text(Format),
    /// Messages of Prometheus' `io.prometheus.client`, each after its length. The only format with
    /// native histograms.
    Protobuf,
}

impl Exposition {
    /// The format that an `Accept` field (RFC 9110 §12.5.1) prefers; [`Format::Text`] without the
    /// field, or if it names none. Never refuses a request.
    pub fn negotiate(accept: Option<&str>) -> Self {
        let (mut text, mut open, mut protobuf) = (0, 0, 0);
        for item in accept.unwrap_or_default().split(',') {
            let mut parts = item.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version, mut proto, mut encoding) = (1000, None, None, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                let value = value.trim_start().trim_matches('"');
                match name.trim_end().to_ascii_lowercase().as_str() {
                    "q" => quality = thousandths(value),
                    "version" => version = Some(value),
                    "proto" => proto = Some(value),
                    "encoding" => encoding = Some(value),
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/vnd.google.protobuf"
                    if proto == Some("io.prometheus.client.MetricFamily")
                        && encoding == Some("delimited") =>
                {
                    protobuf = protobuf.max(quality);
                }
                "application/openmetrics-text" if version.is_none_or(|v| v == "1.0.0") => {
                    open = open.max(quality);
                }
                "text/plain" if version.is_none_or(|v| v == "0.0.4") => text = text.max(quality),
                "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        if protobuf > 0 && protobuf >= open && protobuf >= text {
            Self::Protobuf
        } else if open > 0 && open >= text {
            Self::Text(Format::OpenMetrics)
        } else {
            Self::Text(Format::Text)
        }
    }

    /// The `Content-Type` of this format.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text(Format::Text) => "text/plain; version=0.0.4; charset=utf-8",
            Self::Text(Format::OpenMetrics) => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// A quality value (RFC 9110 §12.4.2) in thousandths; an invalid one counts as 0.
fn thousandths(value: &str) -> u32 {
    match value.parse::<f32>() {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=1000")]
        Ok(q) if q.is_finite() => (q.clamp(0.0, 1.0) * 1000.0) as u32,
        _ => 0,
    }
}

/// Type of a metric family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A counter; the name of its samples ends with `_total`.
    Counter,
    /// A value that can increase and decrease.
    Gauge,
    /// Cumulative counts of values per upper bound.
    Histogram,
    /// The labels carry the information, the value is 1.
    Info,
}

/// Value of a sample.
#[derive(Debug, Clone, Copy)]
pub enum Number {
    /// An integer, for counts.
    Integer(u64),
    /// A floating-point number, for measurements.
    Float(f64),
}

impl Number {
    /// The number as floating point, which every sample is to a scraper.
    fn as_f64(self) -> f64 {
        match self {
            Self::Integer(n) => n as f64,
            Self::Float(n) => n,
        }
    }
}

impl From<u64> for Number {
    fn from(n: u64) -> Self {
        Self::Integer(n)
    }
}

impl From<f64> for Number {
    fn from(n: f64) -> Self {
        Self::Float(n)
    }
}

/// Label names and values of one sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Writes metric families in sequence.
pub struct Encoder(Output);

enum Output {
    Text(TextWriter),
    Protobuf(ProtobufWriter),
}

impl Encoder {
    pub(super) fn new(format: Format) -> Self {
        Self(Output::Text(TextWriter { out: String::with_capacity(32 * 1024), format }))
    }

    pub(super) fn protobuf() -> Self {
        Self(Output::Protobuf(ProtobufWriter::default()))
    }

    /// Starts a family. `name` has no `_total`; its unit, if any, is its last word.
    pub fn family(&mut self, name: &'static str, kind: FamilyKind, help: &'static str) -> Family<'_> {
        debug_assert!(!name.ends_with("_total"), "{name}: _total is appended automatically");
        let suffix = match kind {
            FamilyKind::Counter => "_total",
            FamilyKind::Info => "_info",
            FamilyKind::Gauge | FamilyKind::Histogram => "",
        };
        match &mut self.0 {
            Output::Text(text) => text.begin_family([name, suffix], kind, help),
            Output::Protobuf(protobuf) => {
                let kind = match kind {
                    FamilyKind::Counter => MetricType::Counter,
                    FamilyKind::Gauge | FamilyKind::Info => MetricType::Gauge,
                    FamilyKind::Histogram => MetricType::Histogram,
                };
                protobuf.begin_family([name, suffix], kind, help);
            }
        }
        Family { output: &mut self.0, name, suffix }
    }

    /// Ends the exposition and returns it.
    pub(super) fn finish(self) -> Vec<u8> {
        match self.0 {
            Output::Text(text) => text.finish().into_bytes(),
            Output::Protobuf(protobuf) => protobuf.finish(),
        }
    }
}

struct TextWriter {
    out: String,
    format: Format,
}

impl TextWriter {
    fn begin_family(&mut self, [name, suffix]: [&str; 2], kind: FamilyKind, help: &str) {
        let word = match (kind, self.format) {
            (FamilyKind::Counter, _) => "counter",
            (FamilyKind::Gauge, _) | (FamilyKind::Info, Format::Text) => "gauge",
            (FamilyKind::Info, Format::OpenMetrics) => "info",
            (FamilyKind::Histogram, _) => "histogram",
        };
        // the older format describes the samples, the newer one the family
        let described = if self.format == Format::Text { suffix } else { "" };
        let _ = writeln!(self.out, "# HELP {name}{described} {help}");
        let _ = writeln!(self.out, "# TYPE {name}{described} {word}");
        if self.format == Format::OpenMetrics && kind != FamilyKind::Info {
            for unit in ["seconds", "bytes"] {
                if name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')) {
                    let _ = writeln!(self.out, "# UNIT {name} {unit}");
                }
            }
        }
    }

    fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    fn labels(&mut self, labels: Labels<'_>, more: Option<(&str, f64)>) {
        let mut separator = '{';
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            self.out.push(separator);
            self.out.push_str(name);
            self.out.push_str("=\"");
            self.label_value(value);
            self.out.push('"');
            separator = ',';
        }
        if let Some((name, bound)) = more {
            self.out.push(separator);
            self.out.push_str(name);
            self.out.push_str("=\"");
            self.number(bound.into());
            // OpenMetrics requires bounds as floats, so that a series is always written the same
            // way
            if self.format == Format::OpenMetrics && bound.is_finite() && bound.fract() == 0.0 {
                self.out.push_str(".0");
            }
            self.out.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.out.push('}');
        }
    }

    fn label_value(&mut self, value: &str) {
        if !value.bytes().any(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
            return self.out.push_str(value);
        }
        for c in value.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
    }

    fn number(&mut self, number: Number) {
        match number {
            Number::Integer(n) => self.out.push_str(itoa::Buffer::new().format(n)),
            Number::Float(n) if n == f64::INFINITY => self.out.push_str("+Inf"),
            Number::Float(n) if n == f64::NEG_INFINITY => self.out.push_str("-Inf"),
            Number::Float(n) => drop(write!(self.out, "{n}")),
        }
    }

    fn line(&mut self, name: [&str; 2], labels: Labels<'_>, bound: Option<f64>, value: Number) {
        self.out.push_str(name[0]);
        self.out.push_str(name[1]);
        self.labels(labels, bound.map(|bound| ("le", bound)));
        self.out.push(' ');
        self.number(value);
        self.out.push('\n');
    }

    fn histogram(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        (count, sum): (u64, f64),
    ) {
        for (bound, below) in buckets {
            self.line([name, "_bucket"], labels, Some(bound), below.into());
        }
        self.line([name, "_bucket"], labels, Some(f64::INFINITY), count.into());
        self.line([name, "_sum"], labels, None, sum.into());
        self.line([name, "_count"], labels, None, count.into());
    }
}

/// A metric family that is being written. A label without a value is not written: to a scraper it is
/// the same as none.
pub struct Family<'e> {
    output: &'e mut Output,
    name: &'static str,
    suffix: &'static str,
}

impl Family<'_> {
    /// Writes one sample of a counter, gauge or info.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Into<Number>) {
        match self.output {
            Output::Text(text) => text.line([self.name, self.suffix], labels, None, value.into()),
            Output::Protobuf(protobuf) => protobuf.sample(labels, value.into().as_f64()),
        }
    }

    /// Writes one histogram: finite bounds in seconds with cumulative counts, then total count and
    /// sum.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        buckets: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        match self.output {
            Output::Text(text) => text.histogram(self.name, labels, buckets, (count, sum)),
            Output::Protobuf(protobuf) => protobuf.histogram(labels, buckets, (count, sum), None),
        }
    }

    /// Writes one histogram: in text a few of its buckets, otherwise all of them.
    pub(super) fn exponential_histogram(&mut self, labels: Labels<'_>, total: &ExponentialTotal) {
        let (buckets, all) = (total.text_buckets(), (total.count(), total.sum_seconds()));
        match self.output {
            Output::Text(text) => text.histogram(self.name, labels, buckets, all),
            Output::Protobuf(protobuf) => protobuf.histogram(labels, buckets, all, Some(total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(format: Format) -> String {
        let mut encoder = Encoder::new(format);
        let mut family = encoder.family("a_seconds", FamilyKind::Counter, "Time.");
        family.sample(&[("route", "x\"y\\z\n"), ("class", "2xx")], 1.5);
        let mut family = encoder.family("b_bytes", FamilyKind::Gauge, "Room.");
        family.sample(&[], 7);
        let mut family = encoder.family("c", FamilyKind::Info, "What runs.");
        family.sample(&[("version", "1")], 1);
        let mut family = encoder.family("d_seconds", FamilyKind::Histogram, "Durations.");
        family.histogram(&[("phase", "parse")], [(0.000_1, 1), (1.0, 2)].into_iter(), 3, 4.25);
        String::from_utf8(encoder.finish()).unwrap()
    }

    #[test]
    fn prometheus_text() {
        let expected = r#"# HELP a_seconds_total Time.
# TYPE a_seconds_total counter
a_seconds_total{route="x\"y\\z\n",class="2xx"} 1.5
# HELP b_bytes Room.
# TYPE b_bytes gauge
b_bytes 7
# HELP c_info What runs.
# TYPE c_info gauge
c_info{version="1"} 1
# HELP d_seconds Durations.
# TYPE d_seconds histogram
d_seconds_bucket{phase="parse",le="0.0001"} 1
d_seconds_bucket{phase="parse",le="1"} 2
d_seconds_bucket{phase="parse",le="+Inf"} 3
d_seconds_sum{phase="parse"} 4.25
d_seconds_count{phase="parse"} 3
"#;
        assert_eq!(sample(Format::Text), expected);
    }

    #[test]
    fn openmetrics() {
        let expected = r#"# HELP a_seconds Time.
# TYPE a_seconds counter
# UNIT a_seconds seconds
a_seconds_total{route="x\"y\\z\n",class="2xx"} 1.5
# HELP b_bytes Room.
# TYPE b_bytes gauge
# UNIT b_bytes bytes
b_bytes 7
# HELP c What runs.
# TYPE c info
c_info{version="1"} 1
# HELP d_seconds Durations.
# TYPE d_seconds histogram
# UNIT d_seconds seconds
d_seconds_bucket{phase="parse",le="0.0001"} 1
d_seconds_bucket{phase="parse",le="1.0"} 2
d_seconds_bucket{phase="parse",le="+Inf"} 3
d_seconds_sum{phase="parse"} 4.25
d_seconds_count{phase="parse"} 3
# EOF
"#;
        assert_eq!(sample(Format::OpenMetrics), expected);
    }

    #[test]
    fn a_label_without_a_value_is_not_written() {
        let mut encoder = Encoder::new(Format::Text);
        let mut family = encoder.family("a", FamilyKind::Gauge, "Numbers.");
        family.sample(&[("set", ""), ("gateway", "ns/gw")], 1);
        family.sample(&[("set", "")], 2);
        let text = String::from_utf8(encoder.finish()).unwrap();
        assert!(text.ends_with("\na{gateway=\"ns/gw\"} 1\na 2\n"), "{text}");
    }

    #[test]
    fn the_better_liked_form_is_chosen() {
        const TEXT: Exposition = Exposition::Text(Format::Text);
        const OPEN: Exposition = Exposition::Text(Format::OpenMetrics);
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
            application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let protobuf =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        let native = format!("{protobuf};q=0.7,{prometheus}");
        for (accept, format) in [
            (None, TEXT),
            (Some(""), TEXT),
            (Some("*/*"), TEXT),
            (Some("text/html"), TEXT),
            (Some(prometheus), OPEN),
            (Some(&native), Exposition::Protobuf),
            (Some(&format!("{protobuf};q=0.1,{prometheus}")), OPEN),
            (Some(&format!("{protobuf};q=0")), TEXT),
            (Some(&protobuf.replace("delimited", "text")), TEXT),
            (Some("application/vnd.google.protobuf"), TEXT),
            (Some("application/openmetrics-text"), OPEN),
            (Some("Application/OpenMetrics-Text; Version=\"1.0.0\" ; Q=0.2"), OPEN),
            (Some("application/openmetrics-text;version=0.0.1"), TEXT),
            (Some("application/openmetrics-text;q=0"), TEXT),
            (Some("application/openmetrics-text;q=x"), TEXT),
            (Some("application/openmetrics-text;q=0.1, text/*;q=0.9"), TEXT),
            (Some("application/openmetrics-text;q=NaN"), TEXT),
        ] {
            assert_eq!(Exposition::negotiate(accept), format, "{accept:?}");
        }
    }
}
