//! What follows from figures: intervals, verdicts, outliers, the knee, the cost of a hop.
//!
//! Owns: the statistics, on plain numbers, and the figures of an iteration they are applied to ([`Figure`]). Does not own: words
//! for people, nor the record. Every function is pure, and none draws anything by lot: the same figures always say the same.
//!
//! The unit of evidence is the *iteration*, never the request: requests of one iteration share its weather (caches, neighbours,
//! temperature), so ten thousand of them are one observation of a percentile. Iterations of two variants that ran next to
//! each other are compared as pairs, which takes slow drift of the machine out of the difference.

mod attribution;
mod cpu;
mod equivalence;
mod figures;
mod knee;
mod little;
mod measure;
mod median;
mod outlier;
mod staleness;

pub use attribution::{Attribution, Share, attribute};
pub use cpu::CpuUse;
pub use equivalence::{Effect, Equivalence, Scale, compare_paired};
pub(crate) use figures::window;
pub use figures::{Figure, figures, paired, pooled};
pub use knee::{Course, Knee, Load, course, find_knee};
pub use little::{LittleCheck, little};
pub use measure::{Beside, by_round, measured};
pub use median::{Interval, LEAST_PAIRS, interval, median, paired_difference, paired_ratio};
pub use outlier::{Outlier, outliers};
pub use staleness::{StalePlace, staleness_by_place};
