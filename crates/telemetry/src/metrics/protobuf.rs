//! Prometheus' protobuf exposition: a message `io.prometheus.client.MetricFamily` per family, each
//! after its length.
//!
//! Owns: the wire format of these messages. Field numbers are those of
//! `io/prometheus/client/metrics.proto` of `prometheus/client_model`; a test decodes the output.
//! Messages are written directly: a scrape has tens of thousands, and values of generated types would
//! allocate each of their labels. Does not own: what is written.
//!
//! It is the only format with native histograms. A histogram here has both: its native buckets, and
//! the classic ones for a scraper that does not store native histograms.

use prost::encoding::encode_varint;

use super::exponential::{BUCKETS, ExponentialTotal, FIRST, SCHEMA, zero_threshold};

/// The enumeration `MetricType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 4,
}

/// Wire types.
const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

/// Fields of `MetricFamily`.
const FAMILY_NAME: u64 = 1;
const FAMILY_HELP: u64 = 2;
const FAMILY_TYPE: u64 = 3;
const FAMILY_METRIC: u64 = 4;
/// Fields of `Metric`.
const METRIC_LABEL: u64 = 1;
const METRIC_GAUGE: u64 = 2;
const METRIC_COUNTER: u64 = 3;
const METRIC_HISTOGRAM: u64 = 7;
/// Fields of `LabelPair`.
const LABEL_NAME: u64 = 1;
const LABEL_VALUE: u64 = 2;
/// The field of `Gauge` and of `Counter`.
const VALUE: u64 = 1;
/// Fields of `Histogram`.
const SAMPLE_COUNT: u64 = 1;
const SAMPLE_SUM: u64 = 2;
const BUCKET: u64 = 3;
const NATIVE_SCHEMA: u64 = 5;
const ZERO_THRESHOLD: u64 = 6;
const ZERO_COUNT: u64 = 7;
const POSITIVE_SPAN: u64 = 12;
const POSITIVE_DELTA: u64 = 13;
/// Fields of `Bucket`.
const CUMULATIVE_COUNT: u64 = 1;
const UPPER_BOUND: u64 = 2;
/// Fields of `BucketSpan`.
const SPAN_OFFSET: u64 = 1;
const SPAN_LENGTH: u64 = 2;

/// Writes families in sequence. Every buffer but the first is empty between two messages.
#[derive(Default)]
pub(super) struct ProtobufWriter {
    out: Vec<u8>,
    /// Name, help and type of the family, until its first metric.
    head: Vec<u8>,
    family: Vec<u8>,
    metric: Vec<u8>,
    value: Vec<u8>,
    part: Vec<u8>,
    kind: u64,
}

impl ProtobufWriter {
    /// Starts a family. It is not written if nothing is in it.
    pub(super) fn begin_family(&mut self, name: [&str; 2], kind: MetricType, help: &str) {
        self.end_family();
        self.head.clear();
        bytes(&mut self.head, FAMILY_NAME, name.concat().as_bytes());
        bytes(&mut self.head, FAMILY_HELP, help.as_bytes());
        number(&mut self.head, FAMILY_TYPE, kind as u64);
        self.kind = if kind == MetricType::Counter { METRIC_COUNTER } else { METRIC_GAUGE };
    }

    fn end_family(&mut self) {
        if !self.family.is_empty() {
            let length = self.head.len() + self.family.len();
            encode_varint(length as u64, &mut self.out);
            self.out.append(&mut self.head);
            self.out.append(&mut self.family);
        }
    }

    /// Writes one sample of a counter or gauge.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        double(&mut self.value, VALUE, value);
        self.end_metric(labels, self.kind);
    }

    /// Writes one histogram: finite bounds with cumulative counts, total count and sum. `native` has
    /// the same durations in more buckets.
    pub(super) fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        buckets: impl Iterator<Item = (f64, u64)>,
        (count, sum): (u64, f64),
        native: Option<&ExponentialTotal>,
    ) {
        number(&mut self.value, SAMPLE_COUNT, count);
        double(&mut self.value, SAMPLE_SUM, sum);
        for (bound, below) in buckets.chain([(f64::INFINITY, count)]) {
            number(&mut self.part, CUMULATIVE_COUNT, below);
            double(&mut self.part, UPPER_BOUND, bound);
            message(&mut self.value, BUCKET, &mut self.part);
        }
        if let Some(total) = native {
            self.native_buckets(total.counts());
        }
        self.end_metric(labels, METRIC_HISTOGRAM);
    }

    /// Writes runs of buckets that are not empty, and the difference of each count to the former.
    fn native_buckets(&mut self, buckets: &[u64; BUCKETS]) {
        number(&mut self.value, NATIVE_SCHEMA, zigzag(SCHEMA.into()));
        double(&mut self.value, ZERO_THRESHOLD, zero_threshold());
        let (zero, others) = buckets.split_first().unwrap_or((&0, &[]));
        number(&mut self.value, ZERO_COUNT, *zero);
        let mut before = 0i64;
        // A number of the first bucket; then of buckets since the last run.
        let mut offset = i64::from(FIRST) + 1;
        for run in others.chunk_by(|a, b| (*a > 0) == (*b > 0)) {
            let length = run.len() as u64;
            if run[0] == 0 {
                offset += i64::try_from(length).unwrap_or(0);
                continue;
            }
            number(&mut self.part, SPAN_OFFSET, zigzag(offset));
            number(&mut self.part, SPAN_LENGTH, length);
            message(&mut self.value, POSITIVE_SPAN, &mut self.part);
            offset = 0;
        }
        for count in others.iter().filter(|count| **count > 0) {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            number(&mut self.value, POSITIVE_DELTA, zigzag(count - before));
            before = count;
        }
    }

    /// Adds the value to the family, under its labels.
    fn end_metric(&mut self, labels: &[(&str, &str)], field: u64) {
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            bytes(&mut self.part, LABEL_NAME, name.as_bytes());
            bytes(&mut self.part, LABEL_VALUE, value.as_bytes());
            message(&mut self.metric, METRIC_LABEL, &mut self.part);
        }
        message(&mut self.metric, field, &mut self.value);
        message(&mut self.family, FAMILY_METRIC, &mut self.metric);
    }

    /// Ends the last family, and returns everything.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.end_family();
        self.out
    }
}

fn key(out: &mut Vec<u8>, field: u64, wire: u64) {
    encode_varint(field << 3 | wire, out);
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    key(out, field, VARINT);
    encode_varint(value, out);
}

fn double(out: &mut Vec<u8>, field: u64, value: f64) {
    key(out, field, FIXED_64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(out, field, LENGTH_DELIMITED);
    encode_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Moves a message into a field of another.
fn message(out: &mut Vec<u8>, field: u64, inner: &mut Vec<u8>) {
    bytes(out, field, inner);
    inner.clear();
}

/// A signed number as `sint32` and `sint64` have it: small ones, also negative, are short.
fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}
