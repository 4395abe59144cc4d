//! Statistics: intervals, verdicts, outliers, changes over time, the knee and the cost of a hop,
//! computed from figures.
//!
//! Owns: the statistics on plain numbers, the figures of an iteration that they apply to
//! ([`Figure`]), and how both are written ([`display`]).
//! Does not own: the record, nor conclusions from figures ([`crate::diagnose`]).
//!
//! Every function is pure and uses no random numbers: the same figures always give the same result.
//!
//! The unit of evidence is the *iteration*, never the request. Requests of one iteration share its
//! conditions (caches, neighbours, temperature), so ten thousand of them are one observation of a
//! percentile. Iterations of two variants that ran next to each other are compared as pairs. This
//! removes slow drift of the machine from the difference.

mod attribution;
mod change_point;
mod core_wait;
mod cpu;
pub(crate) mod display;
mod equivalence;
mod figures;
mod held_memory;
mod knee;
mod little;
mod measure;
mod median;
mod outlier;
mod sign;
mod stacks;
mod staleness;
mod streams;

pub use attribution::{Attribution, HopCost, attribute};
pub use change_point::{
    ChangePoint, MAX_CHANGE_VALUES, MIN_CHANGE_VALUES, MIN_SIDE, SIGNIFICANCE, change_points,
};
pub use core_wait::CoreWait;
pub use cpu::CpuUse;
pub use equivalence::{Effect, Equivalence, Scale, compare_paired, compare_paired_among};
pub(crate) use figures::window;
pub use figures::{Figure, figures, paired, paired_figures, pooled};
pub use held_memory::HeldMemory;
pub use knee::{Knee, SweepPoint, Trend, find_knee, trend};
pub use little::{LittleCheck, little};
pub use measure::{ComparedTo, values_by_iteration, values_by_round};
pub use median::{Interval, MIN_OBSERVATIONS, interval, median, paired_difference, paired_ratio};
pub use outlier::{Outlier, outliers};
pub use sign::SignTest;
pub(crate) use stacks::{CallNode, OTHERS};
pub use stacks::{FunctionChange, FunctionTime, function_changes, functions};
pub use staleness::{ScopeStaleness, staleness_by_scope};
pub use streams::StreamFigure;
