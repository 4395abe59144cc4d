//! Target table: the TOML form of a target.
//!
//! Owns: keys, and bounds as people write them. Does not own: the names of figures, which come from
//! the record ([`Measure`]), and the verdict.

use lab_analysis::amount;
use lab_analysis::record::{Measure, Target, Unit};
use serde::Deserialize;
use serde_json::json;

use super::expand_name;

/// A target as it is in a file. `@tokens@` and `@load@` stand for each token mode and each load.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TargetTable {
    pub(crate) says: String,
    figure: String,
    component: Option<String>,
    name: Option<String>,
    of: String,
    minus: Option<String>,
    over: Option<String>,
    at_most: Option<Bound>,
    at_least: Option<Bound>,
    #[serde(default)]
    surely: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Bound {
    Number(f64),
    Text(String),
}

impl TargetTable {
    /// Names of the variants that the target uses.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.of).chain(&self.minus).chain(&self.over).map(String::as_str)
    }

    /// The target in one token mode under one load.
    ///
    /// # Errors
    /// The wrong key, and the reason.
    pub(crate) fn target(&self, mode: &str, load: &str) -> Result<Target, (&'static str, String)> {
        let name = |text: &String| expand_name(text, mode, load);
        let mut named = json!({ "kind": self.figure });
        for (key, value) in [("component", &self.component), ("name", &self.name)] {
            if let Some(value) = value {
                named[key] = value.as_str().into();
            }
        }
        let figure: Measure = serde_json::from_value(named).map_err(|error| ("figure", error.to_string()))?;
        // A key that the figure does not have would otherwise be ignored silently.
        if self.component.is_some() && figure.component().is_none() {
            return Err(("component", format!("`{}` is not a figure of a component", self.figure)));
        }
        if self.name.is_some() && !matches!(figure, Measure::Count { .. } | Measure::Counter { .. }) {
            return Err(("name", format!("`{}` takes no name; only `count` and `counter` do", self.figure)));
        }
        if self.minus.is_some() && self.over.is_some() {
            return Err((
                "over",
                "cannot be combined with `minus`: a figure is compared by difference or by ratio".into(),
            ));
        }
        let bound = |given: &Option<Bound>| {
            given.as_ref().map(|bound| bound.value(&figure, self.over.is_some())).transpose()
        };
        let at_most = bound(&self.at_most).map_err(|message| ("at_most", message))?;
        let at_least = bound(&self.at_least).map_err(|message| ("at_least", message))?;
        if at_most.is_none() && at_least.is_none() {
            return Err(("at_most", "missing; set `at_most` or `at_least`".to_owned()));
        }
        if self.surely && figure.holds_each_round() {
            let message = format!("remove it: `{}` is checked in every round", self.figure);
            return Err(("surely", message));
        }
        if self.surely && figure.is_of_all_rounds() {
            let message =
                format!("remove it: `{}` is one figure over all rounds and has no interval", self.figure);
            return Err(("surely", message));
        }
        Ok(Target {
            says: name(&self.says),
            of: name(&self.of),
            minus: self.minus.as_ref().map(name),
            over: self.over.as_ref().map(name),
            figure,
            at_most,
            at_least,
            surely: self.surely,
        })
    }
}

impl Bound {
    /// The bound in the unit of the figure; a plain number for a ratio.
    fn value(&self, figure: &Measure, ratio: bool) -> Result<f64, String> {
        let number = |explanation: &str| match self {
            Self::Number(number) if number.is_finite() => Ok(*number),
            Self::Number(number) => Err(format!("{number} is not a valid bound")),
            Self::Text(text) => Err(format!("`{text}` is not a number {explanation}")),
        };
        match (self, figure.unit()) {
            (_, _) if ratio => number("(a ratio of two figures)"),
            (Self::Text(text), Unit::Time) => Ok(amount::duration(text)?.as_secs_f64() * 1e6),
            (Self::Number(number), Unit::Time) => {
                Err(format!("{number} has no unit; write 3us, 25ms or 1.5s"))
            }
            (Self::Text(text), Unit::Share) => {
                let share = text.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok());
                let share = share.filter(|share| (0.0..=100.0).contains(share));
                share.map(|share| share / 100.0).ok_or_else(|| format!("`{text}` is not a share; write 0.1%"))
            }
            (Self::Text(text), Unit::Bytes) => Ok(amount::bytes(text)? as f64),
            (_, Unit::Share | Unit::Bytes | Unit::Number) => number(&format!("({figure})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<Target, (&'static str, String)> {
        let says = format!("says = 'of @tokens@'\nof = 'a/@tokens@/@load@'\n{text}");
        toml::from_str::<TargetTable>(&says).unwrap().target("oidc", "open")
    }

    #[test]
    fn bounds_have_the_unit_of_their_figure() {
        for (text, expected) in [
            ("figure = 'p99'\nat_most = '25ms'", 25_000.0),
            ("figure = 'path-cpu'\nminus = 'b'\nat_most = '3us'", 3.0),
            ("figure = 'path-cpu'\nover = 'b'\nat_most = 2.5", 2.5),
            ("figure = 'errors'\nat_most = 0", 0.0),
            ("figure = 'errors'\nat_most = '0.1%'", 0.001),
            ("figure = 'memory'\ncomponent = 'gateway'\nat_most = '1KiB'", 1024.0),
            ("figure = 'throughput'\nat_most = 5000", 5000.0),
            ("figure = 'count'\nname = 'instructions'\nat_most = 20000", 20_000.0),
        ] {
            let target = target(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            let most = target.at_most.unwrap();
            assert!((most - expected).abs() < 1e-9, "{text}: {most}");
            assert_eq!((target.says.as_str(), target.of.as_str()), ("of oidc", "a/oidc/open"));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, key, words) in [
            ("figure = 'p98'\nat_most = '1ms'", "figure", "p99"),
            ("figure = 'cpu'\nat_most = '1ms'", "figure", "component"),
            ("figure = 'p99'\ncomponent = 'x'\nat_most = '1ms'", "component", "p99"),
            ("figure = 'p99'\nname = 'x'\nat_most = '1ms'", "name", "count"),
            ("figure = 'p99'", "at_most", "at_least"),
            ("figure = 'p99'\nat_most = 25", "at_most", "25ms"),
            ("figure = 'p99'\nat_least = '25'", "at_least", "30s"),
            ("figure = 'p99'\nover = 'b'\nat_most = '25ms'", "at_most", "ratio"),
            ("figure = 'p99'\nover = 'b'\nminus = 'c'\nat_most = 2", "over", "minus"),
            ("figure = 'errors'\nat_most = '1'", "at_most", "0.1%"),
            ("figure = 'throughput'\nat_least = '5k'", "at_least", "5k"),
            ("figure = 'errors'\nat_most = 0\nsurely = true", "surely", "every round"),
            ("figure = 'staleness-p99'\nat_most = '25ms'\nsurely = true", "surely", "no interval"),
        ] {
            let (place, message) = target(text).unwrap_err();
            assert_eq!(place, key, "{text}: {message}");
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}
