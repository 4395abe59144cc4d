//! Rates: how many requests per second a load offers.
//!
//! Owns: absolute rates, relative rates, and their course over time, as they are in a file. Does
//! not own: when each request is due ([`lab_load::load`]), and the measured rate that a share
//! refers to.

use std::fmt;
use std::time::Duration;

use lab_analysis::amount;
use serde::Deserialize;

/// Highest rate in requests per second.
const MAX_RATE: f64 = 1e7;

/// Request rate over the time of a load.
#[derive(Debug, Clone, PartialEq)]
pub enum RateProfile {
    /// A constant rate.
    Steady(Rate),
    /// Consecutive stages, each with its own rates.
    Stages(Vec<RateStage>),
}

impl RateProfile {
    /// All rates that occur.
    pub(crate) fn rates(&self) -> Vec<Rate> {
        match self {
            Self::Steady(rate) => vec![*rate],
            Self::Stages(stages) => stages.iter().flat_map(|stage| [stage.from, stage.to]).collect(),
        }
    }
}

/// A constant rate, or a linear change between two rates, for a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateStage {
    /// Rate at its start.
    pub from: Rate,
    /// Rate at its end.
    pub to: Rate,
    /// Duration of the stage.
    pub duration: Duration,
}

/// Request rate, absolute or relative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Requests per second.
    PerSecond(f64),
    /// Share of what the slowest variant of the scenario serves to a closed loop.
    OfSlowest(f64),
}

/// A rate as it is in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum RateTable {
    Number(f64),
    Text(String),
}

/// Parses steps of the form `RATE@TIME` or `RATE..RATE@TIME`.
///
/// # Errors
/// Description of the wrong step.
pub(super) fn stages(steps: &[String]) -> Result<Vec<RateStage>, String> {
    let stage = |text: &String| {
        let wrong = || {
            format!(
                "`{text}` is not a step; write RATE@TIME or RATE..RATE@TIME, such as \"500@10s\" or \"10%..120%@60s\""
            )
        };
        let (rates, time) = text.split_once('@').ok_or_else(wrong)?;
        let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
        // A step with rate 0 is a pause.
        let rate = |text: &str| match text.trim().parse::<f64>() {
            Ok(rate) if (0.0..=MAX_RATE).contains(&rate) => Ok(Rate::PerSecond(rate)),
            Ok(_) => Err(wrong()),
            Err(_) => RateTable::Text(text.trim().to_owned()).rate().map_err(|_| wrong()),
        };
        let duration = amount::duration(time.trim()).ok().filter(|time| !time.is_zero()).ok_or_else(wrong)?;
        Ok(RateStage { from: rate(from)?, to: rate(to)?, duration })
    };
    let all: Vec<RateStage> = steps.iter().map(stage).collect::<Result<_, String>>()?;
    let sends = |stage: &RateStage| [stage.from, stage.to].iter().any(|rate| *rate != Rate::PerSecond(0.0));
    if all.iter().any(sends) { Ok(all) } else { Err("needs at least one rate above 0".to_owned()) }
}

impl fmt::Display for RateTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(rate) => write!(f, "{rate}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl RateTable {
    /// Converts to a rate.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    pub(super) fn rate(&self) -> Result<Rate, (&'static str, String)> {
        let wrong = || {
            let message = "must be requests per second (up to 10000000), or a share from 1% to 1000% of what the slowest variant serves";
            ("rate", message.to_owned())
        };
        match self {
            Self::Number(rate) if *rate > 0.0 && *rate <= MAX_RATE => Ok(Rate::PerSecond(*rate)),
            Self::Number(_) => Err(wrong()),
            Self::Text(text) => {
                let share: f64 =
                    text.strip_suffix('%').and_then(|share| share.trim().parse().ok()).ok_or_else(wrong)?;
                if (1.0..=1000.0).contains(&share) {
                    Ok(Rate::OfSlowest(share / 100.0))
                } else {
                    Err(wrong())
                }
            }
        }
    }
}
