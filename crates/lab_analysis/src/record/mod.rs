//! Record: everything that a run measured, in one JSON file with a versioned schema.
//!
//! Owns: the shape ([`Record`] and its parts), its form in JSON, what makes a record contradict
//! itself ([`check`]), and the bounds on its detail.
//! Does not own: files. Nor measuring, because the runner of a scenario fills the record. Nor any
//! conclusion: conclusions are computed from a record. Only findings made during the run are
//! stored.
//!
//! 1. The runner fills a record and [`Record::thin`] bounds its detail.
//! 2. [`Record::to_json`] gives the content of a file and [`Record::parse`] reads it. Parsing
//!    refuses unknown keys, another schema version, and figures that contradict each other.
//! 3. Other modules analyse, compare, merge, gate and render the record.
//!
//! Latencies are histograms ([`Distribution`]), so the figures of two generators merge by addition
//! and no percentile is ever averaged.

mod changes;
mod check;
mod distribution;
mod finding;
mod parts;
mod profile;
mod run;
mod streams;
mod target;

pub use changes::{Changes, SCRAPE_WINDOW, ScrapeWindows, Scrapes};
pub use check::Contradiction;
pub use distribution::{Distribution, Quantile, UnreadableHistogram};
pub use finding::{Doubt, Finding};
pub use parts::{
    BulkRevocation, Class, Component, Event, GeneratorUse, HeldConnections, IdentifiedBy, Iteration, Outcome,
    Phase, Revocations, Sample, Slice, Staleness, StatedFigures, StatedPercentile, Variant,
};
pub use profile::{
    Activity, ActivityThreads, ComponentProfile, FoldedStack, MAX_FRAMES, MAX_STACKS, ProfileRound,
    StackProfile, StackSource, ThreadUse,
};
pub use run::{
    Arrivals, Cgroup, Ladder, LoadShape, Machine, Origin, Peer, Reference, Run, Rung, Stage, Sweep,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use streams::{Stall, StreamKind, Streams};
pub use target::{Comparison, Measure, Target, Unit};

/// Most samples of a component, and most slices of a timeline, that a written record holds per
/// iteration.
pub const MAX_POINTS: usize = 600;
/// Most points of all series of a record together: about 30 MiB of JSON.
pub const MAX_POINTS_TOTAL: usize = 150_000;
/// Fewest points that a series is thinned to.
const MIN_POINTS: usize = 32;
/// Most histograms of a record. With some hundred buckets each they take some tens of MiB of
/// memory.
pub const MAX_HISTOGRAMS: usize = 20_000;
/// Most variants of a record.
pub const MAX_VARIANTS: usize = 256;
/// Most iterations of a variant.
pub const MAX_ITERATIONS: usize = 1000;

/// Name and version of the shape. A field is never renamed or given another unit within a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    /// Version 1 of the shape.
    #[serde(rename = "postern-lab/1")]
    V1,
}

/// What a run of the lab measured, or what another tool's file contains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Name and version of this shape.
    pub schema: Schema,
    /// The run: what was measured, where, and with which programs.
    pub run: Run,
    /// Findings made during the run, the most serious first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What was measured: one entry per arrangement under test.
    pub variants: Vec<Variant>,
    /// Variants that add one hop after the other: the cost per hop is computed from them.
    #[serde(default)]
    pub ladders: Vec<Ladder>,
    /// Variants that differ only in their load: the knee is computed from them.
    #[serde(default)]
    pub sweeps: Vec<Sweep>,
    /// Variants whose figures are divided by those of one of them.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// Targets that the figures have to meet.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Figures published elsewhere, which reports show beside the measured ones.
    #[serde(default)]
    pub reference: Vec<Reference>,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file has more than [`MAX_HISTOGRAMS`].
    #[error("`{path}` has more than {MAX_HISTOGRAMS} histograms: split the run")]
    TooMany {
        /// Path of the file.
        path: String,
    },
    /// The file is not JSON of this shape.
    #[error(
        "`{path}` is not a record of the lab (schema postern-lab/1): {error}; import files of other tools with `lab import`"
    )]
    Shape {
        /// Path of the file.
        path: String,
        /// The mismatch, with line and column.
        error: serde_json::Error,
    },
    /// The figures of the record contradict each other.
    #[error("`{path}` contradicts itself: {contradiction}")]
    Contradiction {
        /// Path of the file.
        path: String,
        /// The contradiction and its place in the record.
        contradiction: Contradiction,
    },
}

impl Record {
    /// Creates a record of `run` without measurements.
    pub fn new(run: Run) -> Self {
        Self {
            schema: Schema::V1,
            run,
            findings: Vec::new(),
            variants: Vec::new(),
            ladders: Vec::new(),
            sweeps: Vec::new(),
            comparisons: Vec::new(),
            targets: Vec::new(),
            reference: Vec::new(),
        }
    }

    /// JSON schema of the shape, as it is committed in `record.schema.json`.
    pub fn schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self).to_value();
        schema["title"] = "Record of a run of the lab (postern-lab/1)".into();
        schema
    }

    /// The variant with this name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Reads a record from JSON; errors name it `path`.
    pub fn parse(json: &[u8], path: &str) -> Result<Self, RecordError> {
        if json.windows(5).filter(|window| window == b"\"hdr\"").count() > MAX_HISTOGRAMS {
            return Err(RecordError::TooMany { path: path.to_owned() });
        }
        let record: Self = serde_json::from_slice(json)
            .map_err(|error| RecordError::Shape { path: path.to_owned(), error })?;
        match record.check() {
            Ok(()) => Ok(record),
            Err(contradiction) => Err(RecordError::Contradiction { path: path.to_owned(), contradiction }),
        }
    }

    /// The record as JSON. Fails when the record contradicts itself: such a file could not be read
    /// again.
    pub fn to_json(&self) -> Result<String, Contradiction> {
        self.check()?;
        let mut json = serde_json::to_string(self).map_err(|error| Contradiction {
            place: "record".to_owned(),
            reason: format!("cannot be written as JSON: {error}"),
        })?;
        json.push('\n');
        Ok(json)
    }

    /// Drops detail until no series has more than [`MAX_POINTS`] points. The limit is lower when
    /// all series together would have more than [`MAX_POINTS_TOTAL`].
    ///
    /// Samples are thinned and slices are merged two by two. Counts and histograms stay as they
    /// are.
    pub fn thin(&mut self) {
        let iterations = || self.variants.iter().flat_map(|variant| &variant.iterations);
        let series = iterations().map(Iteration::series_count).sum::<usize>().max(1);
        let most = (MAX_POINTS_TOTAL / series).clamp(MIN_POINTS, MAX_POINTS);
        for iteration in self.variants.iter_mut().flat_map(|variant| &mut variant.iterations) {
            iteration.thin(most);
        }
    }
}
