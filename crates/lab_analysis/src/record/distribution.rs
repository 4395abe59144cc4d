//! Distribution: a latency histogram that can be stored, added to others, and queried for any
//! percentile.
//!
//! Owns: the bounds of the histogram, its compressed form in JSON, and the readable figures beside
//! it.
//! Does not own: the units of reports.
//!
//! Values are nanoseconds. The figures beside the histogram are in µs, for readers that use other
//! tools. They are compared with the histogram when a file is read, so one cannot be changed
//! without the other.
//!
//! In memory a distribution holds only the buckets with a count. A record has thousands of
//! distributions, and most use a few hundred buckets of many thousand.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::units::{index, micros, truncated};

/// Shortest value that is distinguished from 0, ns.
const MIN_NANOS: u64 = 1000;
/// Longest value, ns: an hour. A longer one counts as an hour.
const MAX_NANOS: u64 = 3_600_000_000_000;
/// Most significant digits that a histogram keeps.
const MAX_DIGITS: u8 = 4;
/// Most characters of a stored histogram. One with an hour's range and four digits, every bucket in
/// use, is shorter.
const MAX_CHARACTERS: usize = 4 << 20;
/// Most bytes of a histogram after decompression.
const MAX_PAYLOAD: u32 = 8 << 20;
/// Most values of a histogram. The sum of the counts has to fit; no measurement has more.
const MAX_VALUES: u64 = 1 << 50;

/// A share of all values: 0.99 is the 99th percentile.
pub type Quantile = f64;

/// Latencies in nanoseconds, from 1 µs to an hour.
#[derive(Clone, PartialEq, Eq)]
pub struct Distribution {
    digits: u8,
    total: u64,
    buckets: Vec<Bucket>,
}

/// A range of values that the histogram does not distinguish.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bucket {
    lowest: u64,
    highest: u64,
    count: u64,
}

/// Why stored text is not a distribution.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the histogram {0}")]
pub struct UnreadableHistogram(Cow<'static, str>);

impl Distribution {
    /// Creates a distribution of values in ns, with `digits` significant digits (1 to 4). The load
    /// driver records 3; 4 keeps what other tools print. A value longer than an hour counts as an
    /// hour.
    pub fn of(values: impl IntoIterator<Item = u64>, digits: u8) -> Self {
        let mut scratch = empty_histogram(digits);
        values.into_iter().for_each(|nanos| scratch.saturating_record(nanos));
        Self::from(&scratch)
    }

    /// Adds every value of `other`. The result has the larger number of digits of the two.
    pub fn add(&mut self, other: &Self) {
        let digits = self.digits.max(other.digits);
        let mut scratch = empty_histogram(digits);
        for part in [&*self, other] {
            for bucket in &part.buckets {
                // The middle of a coarser bucket stands for its values.
                let whole = part.digits == digits;
                let value = if whole { bucket.highest } else { bucket.middle() };
                scratch.saturating_record_n(value, bucket.count);
            }
        }
        *self = Self::from(&scratch);
    }

    /// Number of values in the distribution.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Whether the distribution has no values.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// The value that the given share of all values does not exceed, ns; 0 without values.
    pub fn quantile(&self, quantile: Quantile) -> u64 {
        // 0.07 × 100 is a little more than 7 in floating point; it still means the seventh value.
        let exact = quantile.clamp(0.0, 1.0) * self.total as f64;
        let rank = truncated((exact - exact * 1e-12).ceil()).max(1);
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|bucket| {
            seen += bucket.count;
            seen >= rank
        });
        bucket.or(self.buckets.last()).map_or(0, |bucket| bucket.highest)
    }

    /// The value that the given share of all values does not exceed, µs; 0 without values.
    pub fn micros(&self, quantile: Quantile) -> f64 {
        micros(self.quantile(quantile))
    }

    /// Arithmetic mean, ns; 0 without values.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.buckets.iter().map(|bucket| bucket.middle() as f64 * bucket.count as f64).sum();
        if self.is_empty() { 0.0 } else { sum / self.total as f64 }
    }

    /// Longest value, ns; 0 without values.
    pub fn max(&self) -> u64 {
        self.buckets.last().map_or(0, |bucket| bucket.highest)
    }

    /// Shortest value, ns; 0 without values.
    pub fn min(&self) -> u64 {
        self.buckets.first().map_or(0, |bucket| bucket.lowest)
    }

    /// Number of values that are longer than `nanos`, as far as the histogram distinguishes them.
    pub fn count_above(&self, nanos: u64) -> u64 {
        self.buckets.iter().filter(|bucket| bucket.lowest > nanos).map(|bucket| bucket.count).sum()
    }

    /// Cumulative distribution: a share of the values and the ns that it does not exceed, one point
    /// per bucket.
    pub fn curve(&self) -> impl Iterator<Item = (Quantile, u64)> {
        let mut seen = 0;
        self.buckets.iter().map(move |bucket| {
            seen += bucket.count;
            (seen as f64 / self.total as f64, bucket.highest)
        })
    }

    /// Counts in `bins` equal parts of the range from 0 to `until` ns. A longer value counts in the
    /// last part.
    pub fn bins(&self, bins: usize, until: u64) -> Vec<u64> {
        let mut counted = vec![0; bins.max(1)];
        let width = until.max(1) as f64 / counted.len() as f64;
        let last = counted.len() - 1;
        for bucket in &self.buckets {
            counted[index(bucket.middle() as f64 / width).min(last)] += bucket.count;
        }
        counted
    }

    fn histogram(&self) -> Histogram<u64> {
        let mut histogram = empty_histogram(self.digits);
        self.buckets.iter().for_each(|bucket| histogram.saturating_record_n(bucket.highest, bucket.count));
        histogram
    }

    /// Encodes the histogram as text: HDR histogram version 2, deflated, in base64.
    fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&self.histogram(), &mut bytes).expect("memory takes every byte");
        STANDARD.encode(bytes)
    }

    fn decode(text: &str) -> Result<Self, UnreadableHistogram> {
        let unreadable = |why: String| UnreadableHistogram(Cow::Owned(why));
        if text.len() > MAX_CHARACTERS {
            return Err(UnreadableHistogram("is too long for its range".into()));
        }
        let bytes = STANDARD.decode(text).map_err(|error| unreadable(format!("is not base64: {error}")))?;
        check_bounds(&bytes)?;
        let read: Result<Histogram<u64>, _> = Deserializer::new().deserialize(&mut bytes.as_slice());
        let histogram =
            read.map_err(|error| unreadable(format!("is not a deflated HDR histogram, version 2: {error}")))?;
        if histogram.len() > MAX_VALUES {
            return Err(UnreadableHistogram("counts more values than allowed".into()));
        }
        Ok(Self::from(&histogram))
    }
}

/// Refuses a histogram with other bounds than the lab's: it could not be added to the lab's, and
/// might need more memory. The bounds are in the inflated header, which is checked before memory is
/// allocated from them.
fn check_bounds(bytes: &[u8]) -> Result<(), UnreadableHistogram> {
    // The compressed form starts with a cookie and a length, then zlib. The header inside: cookie,
    // length, offset, digits, lowest, highest.
    let head = inflate_head(bytes.get(8..).unwrap_or_default());
    let word = |at: usize| head.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
    let long = |at: usize| head.get(at..at + 8).and_then(|long| long.try_into().ok()).map(u64::from_be_bytes);
    let (Some(length), Some(digits), Some(lowest), Some(highest)) = (word(4), word(12), long(16), long(24))
    else {
        return Err(UnreadableHistogram("is truncated".into()));
    };
    let digits_known = (1..=u32::from(MAX_DIGITS)).contains(&digits);
    if length > MAX_PAYLOAD || !digits_known || (lowest, highest) != (MIN_NANOS, MAX_NANOS) {
        return Err(UnreadableHistogram(
            "has another range or precision than the lab's (1 µs to 1 h in ns, up to four digits)".into(),
        ));
    }
    Ok(())
}

fn inflate_head(deflated: &[u8]) -> Vec<u8> {
    use std::io::Read as _;
    let mut head = Vec::new();
    // Data that cannot be inflated gives too few bytes, which the caller refuses.
    let _ = flate2::read::ZlibDecoder::new(deflated).take(40).read_to_end(&mut head);
    head
}

/// A histogram with the lab's bounds.
fn empty_histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(MIN_NANOS, MAX_NANOS, digits.clamp(1, MAX_DIGITS))
        .expect("the bounds are constants")
}

impl Bucket {
    fn middle(&self) -> u64 {
        self.lowest + (self.highest - self.lowest) / 2
    }
}

impl From<&Histogram<u64>> for Distribution {
    /// Converts a histogram of nanoseconds, as the load driver records it.
    fn from(histogram: &Histogram<u64>) -> Self {
        let buckets = histogram.iter_recorded().map(|step| Bucket {
            lowest: histogram.lowest_equivalent(step.value_iterated_to()),
            highest: step.value_iterated_to(),
            count: step.count_at_value(),
        });
        Self { digits: histogram.sigfig(), total: histogram.len(), buckets: buckets.collect() }
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values, p50 {} ns, max {} ns", self.count(), self.quantile(0.5), self.max())
    }
}

/// A distribution as it is stored in a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Distribution")]
#[serde(deny_unknown_fields)]
struct StoredDistribution {
    /// Number of values.
    count: u64,
    /// Arithmetic mean, µs.
    mean_us: f64,
    /// Median of the values, µs.
    p50_us: f64,
    /// 95th percentile, µs.
    p95_us: f64,
    /// 99th percentile, µs.
    p99_us: f64,
    /// Longest value, µs.
    max_us: f64,
    /// HDR histogram of nanoseconds, version 2, deflated, in base64; the figures above follow from
    /// it.
    hdr: String,
}

impl StoredDistribution {
    fn of(distribution: &Distribution, hdr: String) -> Self {
        Self {
            count: distribution.count(),
            mean_us: (distribution.mean() / 100.0).round() / 10.0,
            p50_us: distribution.micros(0.5),
            p95_us: distribution.micros(0.95),
            p99_us: distribution.micros(0.99),
            max_us: micros(distribution.max()),
            hdr,
        }
    }

    fn figures(&self) -> [(&'static str, f64); 6] {
        [
            ("count", self.count as f64),
            ("mean_us", self.mean_us),
            ("p50_us", self.p50_us),
            ("p95_us", self.p95_us),
            ("p99_us", self.p99_us),
            ("max_us", self.max_us),
        ]
    }
}

impl Serialize for Distribution {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        StoredDistribution::of(self, self.encode()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let stored = StoredDistribution::deserialize(deserializer)?;
        let distribution = Self::decode(&stored.hdr).map_err(D::Error::custom)?;
        let own = StoredDistribution::of(&distribution, String::new());
        for ((name, says), (_, is)) in stored.figures().into_iter().zip(own.figures()) {
            // A tenth of a microsecond is the last digit that is stored.
            if (says - is).abs() > 0.2 + is.abs() * 1e-9 {
                return Err(D::Error::custom(format!("`{name}` is {says}, but its histogram gives {is}")));
            }
        }
        Ok(distribution)
    }
}

impl JsonSchema for Distribution {
    fn schema_name() -> Cow<'static, str> {
        "Distribution".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        StoredDistribution::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn percentiles_are_those_of_the_values() {
        let of = Distribution::of((1..=100).map(|ms| ms * MS), 4);
        for (share, ms) in [(0.0, 1.0), (0.07, 7.0), (0.5, 50.0), (0.95, 95.0), (0.99, 99.0), (1.0, 100.0)] {
            let is = of.quantile(share) as f64 / 1e6;
            // The finest bucket is half a microsecond wide.
            assert!((is - ms).abs() < ms * 1e-4 + 0.000_512, "{share}: {is} for {ms}");
        }
        assert!((of.mean() / 50.5e6 - 1.0).abs() < 1e-4);
        assert_eq!(of.count(), 100);
        let between = Distribution::of((0..100).map(|ms| ms * MS + MS / 2), 4);
        assert_eq!(between.bins(10, 100 * MS), [10; 10]);
        assert_eq!(between.bins(4, 40 * MS), [10, 10, 10, 70], "what is longer counts in the last");
    }

    #[test]
    fn nothing_is_zero() {
        let none = Distribution::of([], 3);
        assert_eq!((none.count(), none.quantile(0.5), none.max(), none.min()), (0, 0, 0, 0));
        assert!(none.mean().abs() < f64::EPSILON && none.curve().next().is_none());
        let read: Distribution = serde_json::from_value(serde_json::to_value(&none).unwrap()).unwrap();
        assert_eq!(read, none);
    }

    #[test]
    fn a_figure_that_does_not_follow_from_the_histogram_is_refused() {
        let mut stored = serde_json::to_value(Distribution::of([5 * MS, 7 * MS], 3)).unwrap();
        stored["p99_us"] = 6000.0.into();
        let error = serde_json::from_value::<Distribution>(stored).unwrap_err().to_string();
        assert!(error.contains("`p99_us` is 6000"), "{error}");
    }

    #[test]
    fn text_that_is_no_histogram_of_ours_says_why() {
        let mut huge = Histogram::<u64>::new_with_bounds(1, u64::MAX / 2, 5).unwrap();
        huge.record(5).unwrap();
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&huge, &mut bytes).unwrap();
        for (hdr, why) in [
            ("%", "not base64"),
            ("AAAA", "truncated"),
            (STANDARD.encode(&bytes).as_str(), "another range or precision"),
        ] {
            let error = Distribution::decode(hdr).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let whole = Distribution::of([MS], 3).encode();
        assert!(Distribution::decode(&whole[..whole.len() / 8 * 4]).is_err());
    }

    proptest! {
        // Each case allocates megabytes for a histogram.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(0_u64..MAX_NANOS * 2, 0..200), digits in 1_u8..5) {
            let of = Distribution::of(values, digits);
            let read: Distribution = serde_json::from_str(&serde_json::to_string(&of).unwrap()).unwrap();
            prop_assert_eq!(read, of);
        }

        #[test]
        fn parts_add_up_to_the_whole(
            left in prop::collection::vec(0_u64..100_000 * MS, 0..200),
            right in prop::collection::vec(0_u64..100_000 * MS, 0..200),
        ) {
            let mut added = Distribution::of(left.iter().copied(), 3);
            added.add(&Distribution::of(right.iter().copied(), 3));
            prop_assert_eq!(added, Distribution::of(left.into_iter().chain(right), 3));
        }

        #[test]
        fn a_percentile_is_within_the_digits_of_the_sorted_value(
            mut values in prop::collection::vec(2_000_u64..100_000 * MS, 1..300), share in 0.0_f64..1.0
        ) {
            let of = Distribution::of(values.iter().copied(), 4);
            values.sort_unstable();
            let rank = index((share * values.len() as f64).ceil()).max(1);
            let exact = values[rank - 1] as f64;
            prop_assert!((of.quantile(share) as f64 / exact - 1.0).abs() < 1e-4 + 512.0 / exact);
        }
    }
}
