//! The messages of `io.prometheus.client`, as a scraper decodes them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) help: Option<String>,
    #[prost(int32, optional, tag = "3")]
    pub(crate) r#type: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) metric: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metric {
    #[prost(message, repeated, tag = "1")]
    pub(crate) label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    pub(crate) gauge: Option<Value>,
    #[prost(message, optional, tag = "3")]
    pub(crate) counter: Option<Value>,
    #[prost(message, optional, tag = "7")]
    pub(crate) histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LabelPair {
    #[prost(string, optional, tag = "1")]
    pub(crate) name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub(crate) value: Option<String>,
}

/// A counter or gauge.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(double, optional, tag = "1")]
    pub(crate) value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(crate) sample_sum: Option<f64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) bucket: Vec<Bucket>,
    #[prost(sint32, optional, tag = "5")]
    pub(crate) schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    pub(crate) zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    pub(crate) zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    pub(crate) positive_delta: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Bucket {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) cumulative_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(crate) upper_bound: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct BucketSpan {
    #[prost(sint32, optional, tag = "1")]
    pub(crate) offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    pub(crate) length: Option<u32>,
}

impl Metric {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.label.iter().find(|pair| pair.name() == name)?.value.as_deref()
    }
}

impl Histogram {
    /// Index and count of each native bucket.
    pub(crate) fn native(&self) -> Vec<(i32, i64)> {
        let mut counts = self.positive_delta.iter().scan(0, |count, delta| {
            *count += delta;
            Some(*count)
        });
        let mut next = 0;
        let mut buckets = Vec::new();
        for span in &self.positive_span {
            next += span.offset();
            for _ in 0..span.length() {
                buckets.push((next, counts.next().expect("a delta for each bucket of a span")));
                next += 1;
            }
        }
        assert_eq!(counts.next(), None, "a bucket of a span for each delta");
        buckets
    }
}

/// Families, each after its length.
pub(crate) fn decode(mut bytes: &[u8]) -> Vec<MetricFamily> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(MetricFamily::decode_length_delimited(&mut bytes).expect("a message"));
    }
    all
}
