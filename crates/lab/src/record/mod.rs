//! The record of a run: everything that was measured, in one JSON file with a versioned schema.
//!
//! Owns: the shape ([`Record`] and its parts), reading and writing it, what makes a record contradict itself
//! ([`check`]), and the bounds on its size. Does not own: measuring (whoever runs a scenario fills a record) nor any
//! conclusion (they are computed from it, never stored in it, apart from what was found while the run lasted).
//!
//! Flow: fill → [`Record::thin`] → [`Record::write`] → file → [`Record::read`] → analyse, compare, merge, gate,
//! render. Unknown keys, another schema version, and figures that contradict each other are refused when read. Latencies are
//! histograms ([`Distribution`]), so that two generators' figures merge by adding, and no percentile is ever averaged.

mod check;
mod distribution;
mod parts;
mod run;
mod target;

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use check::Contradiction;
pub use distribution::{Distribution, Quantile, UnreadableHistogram};
pub use parts::{
    Class, Component, Doubt, Event, Finding, Flooded, GeneratorUse, Held, Iteration, NamedBy, Outcome, Phase,
    Printed, Revocations, Sample, Slice, Staleness, Stated, Variant,
};
pub use run::{
    Arrivals, Cgroup, Ladder, LoadShape, Machine, Origin, Peer, Reference, Run, Rung, Stage, Sweep,
};
pub use target::{Comparison, Measure, Target, Unit};

/// Largest record that is read, bytes. A run of 64 variants, or of hundreds of rounds, with everything in it stays far below.
pub const MOST_BYTES: u64 = 512 << 20;
/// Most samples of a component, and most slices of a timeline, that a written record holds per iteration.
pub const MOST_POINTS: usize = 600;
/// Most points of all series of a record together: about 30 MiB of JSON.
pub const MOST_POINTS_IN_ALL: usize = 150_000;
/// Fewest points that a series is thinned to.
const LEAST_POINTS: usize = 32;
/// Most histograms of a record: with some hundred buckets each they stay within some ten MiB of memory.
pub const MOST_HISTOGRAMS: usize = 20_000;
/// Most variants of a record.
pub const MOST_VARIANTS: usize = 256;
/// Most iterations of a variant.
pub const MOST_ITERATIONS: usize = 1000;

/// Name and version of the shape. A field is never renamed or given another unit within a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    /// The first version.
    #[serde(rename = "postern-lab/1")]
    V1,
}

/// What a run of the lab measured, or another tool's file says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Name and version of this shape.
    pub schema: Schema,
    /// What ran, where, with what.
    pub run: Run,
    /// What was noticed while the run lasted, what makes its figures doubtful first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// What was measured: one entry per arrangement under test.
    pub variants: Vec<Variant>,
    /// Variants that add one hop after the other: what the cost per hop is computed from.
    #[serde(default)]
    pub ladders: Vec<Ladder>,
    /// Variants that differ only in how much load they get: what the knee is computed from.
    #[serde(default)]
    pub sweeps: Vec<Sweep>,
    /// Variants that are divided by one of them.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// What is wanted of figures.
    #[serde(default)]
    pub targets: Vec<Target>,
    /// Figures published elsewhere that stand beside the measured ones.
    #[serde(default)]
    pub reference: Vec<Reference>,
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system says no.
    #[error("cannot {action} `{path}`: {error}")]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// Which file.
        path: String,
        /// Its words.
        error: std::io::Error,
    },
    /// More than [`MOST_BYTES`].
    #[error("`{path}` has more than {} MiB: no record of the lab is that large", MOST_BYTES >> 20)]
    TooLarge {
        /// Which file.
        path: String,
    },
    /// More than [`MOST_HISTOGRAMS`].
    #[error("`{path}` has more than {MOST_HISTOGRAMS} histograms: split the run")]
    TooMany {
        /// Which file.
        path: String,
    },
    /// It is not JSON of this shape.
    #[error(
        "`{path}` is not a record of the lab (schema postern-lab/1): {error}; files of other tools are taken in with `lab import`"
    )]
    Shape {
        /// Which file.
        path: String,
        /// What does not fit, with line and column.
        error: serde_json::Error,
    },
    /// Its figures contradict each other.
    #[error("`{path}` contradicts itself: {contradiction}")]
    Contradiction {
        /// Which file.
        path: String,
        /// Where.
        contradiction: Contradiction,
    },
}

impl Record {
    /// A record of `run` with nothing measured yet.
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

    /// The JSON schema of the shape, as it is committed.
    pub fn schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self).to_value();
        schema["title"] = "Record of a run of the lab (postern-lab/1)".into();
        schema
    }

    /// The variant of this name.
    pub fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Reads a record from JSON; `path` is what errors call it.
    pub fn parse(json: &[u8], path: &str) -> Result<Self, RecordError> {
        if json.windows(5).filter(|window| window == b"\"hdr\"").count() > MOST_HISTOGRAMS {
            return Err(RecordError::TooMany { path: path.to_owned() });
        }
        let record: Self = serde_json::from_slice(json)
            .map_err(|error| RecordError::Shape { path: path.to_owned(), error })?;
        match record.check() {
            Ok(()) => Ok(record),
            Err(contradiction) => Err(RecordError::Contradiction { path: path.to_owned(), contradiction }),
        }
    }

    /// Reads a record from a file of at most [`MOST_BYTES`].
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        Self::parse(&read_bounded(path)?, &path.display().to_string())
    }

    /// The record as JSON. Fails when it contradicts itself: such a file could not be read again.
    pub fn to_json(&self) -> Result<String, Contradiction> {
        self.check()?;
        let mut json = serde_json::to_string(self).map_err(|error| Contradiction {
            place: "record".to_owned(),
            what: format!("cannot be written as JSON: {error}"),
        })?;
        json.push('\n');
        Ok(json)
    }

    /// Writes the record to a file: all of it, or what was there stays.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let name = || path.display().to_string();
        let json = self
            .to_json()
            .map_err(|contradiction| RecordError::Contradiction { path: name(), contradiction })?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let written = || -> io::Result<()> {
            let mut file = tempfile::Builder::new()
                .prefix(".record-")
                .permissions(Permissions::from_mode(0o644))
                .tempfile_in(folder)?;
            file.write_all(json.as_bytes())?;
            file.persist(path).map_err(|refused| refused.error)?;
            Ok(())
        };
        written().map_err(|error| RecordError::File { action: "write", path: name(), error })
    }

    /// Drops detail until no series has more than [`MOST_POINTS`] points, fewer where there are so many series that all together would have
    /// more than [`MOST_POINTS_IN_ALL`]: samples are thinned, slices are put together two by two. Counts and histograms stay as they are.
    pub fn thin(&mut self) {
        let iterations = || self.variants.iter().flat_map(|variant| &variant.iterations);
        let series = iterations().map(Iteration::series).sum::<usize>().max(1);
        let most = (MOST_POINTS_IN_ALL / series).clamp(LEAST_POINTS, MOST_POINTS);
        for iteration in self.variants.iter_mut().flat_map(|variant| &mut variant.iterations) {
            iteration.thin(most);
        }
    }
}

/// The content of a file of at most [`MOST_BYTES`].
pub(crate) fn read_bounded(path: &Path) -> Result<Vec<u8>, RecordError> {
    let name = || path.display().to_string();
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut content));
    read.map_err(|error| RecordError::File { action: "read", path: name(), error })?;
    if content.len() as u64 > MOST_BYTES {
        return Err(RecordError::TooLarge { path: name() });
    }
    Ok(content)
}
