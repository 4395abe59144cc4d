//! Import of wrk and wrk2: their text reports.

use super::{Content, ErrorContext, ImportError, ParsedFile, ParsedLoad, count_only};
use crate::formatting;
use crate::record::{Class, Outcome, StatedFigures, StatedPercentile};

const RULE: &str = "from wrk's own histogram of microseconds";
/// Name of the tool with wrk's output format that sends at a rate.
const PACED: &str = "wrk2";

/// Reads wrk's text report, with or without `--latency`.
pub(super) fn text(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut report = ParsedReport::default();
    for (number, line) in content.lines().enumerate().map(|(number, line)| (number + 1, line.trim())) {
        report.line(line).ok_or_else(|| at.line(number, format!("`{line}` is not as wrk writes it")))?;
    }
    let (all, seconds) = report.requests.ok_or_else(|| at.whole("there is no line `N requests in T`"))?;
    // wrk2 does not print its rate.
    let paced = content.contains("Thread calibration:");
    let refused = report.refused.min(all);
    // Responses that took longer than the limit are among all.
    let late = if paced { 0 } else { report.timeouts.min(all - refused) };
    let mut classes = vec![
        count_only(Outcome::Ok, None, all - refused - late),
        count_only(Outcome::Refused, None, refused),
    ];
    classes.extend(report.errors);
    classes.push(Class { fault: Some("timeout".to_owned()), ..count_only(Outcome::Failed, None, late) });
    classes.retain(|class| class.count > 0);
    let mut notes =
        vec!["wrk counts percentiles over good and refused answers alike, and names no statuses".to_owned()];
    if late > 0 {
        notes.push(
            "its timeouts are responses that came after the limit; percentiles leave them out".to_owned(),
        );
    } else if report.timeouts > 0 {
        notes.push(format!(
            "wrk2 counted {} timeouts: each connection that waits counts again at each check, so that they are no number of requests, and are not counted here",
            report.timeouts
        ));
    }
    if report.percentiles.is_empty() {
        notes.push("without --latency wrk prints no percentiles".to_owned());
    }
    if !report.sent_percentiles.is_empty() {
        let of = |printed: &StatedPercentile| {
            format!("P{} {}", (printed.share * 1e5).round() / 1e3, formatting::time(printed.us))
        };
        let all: Vec<String> = report.sent_percentiles.iter().map(of).collect();
        notes.push(format!(
            "percentiles count from when requests were due; from when they were really sent (uncorrected) they are {}",
            all.join(", ")
        ));
    }
    let (tool, load) = if paced {
        (PACED, ParsedLoad::unknown(report.connections))
    } else {
        ("wrk", ParsedLoad::closed(report.connections))
    };
    let stated = StatedFigures {
        tool: tool.to_owned(),
        rule: RULE.to_owned(),
        mean_us: report.mean_us,
        min_us: None,
        max_us: report.max_us,
        per_s: report.per_s,
        percentiles: report.percentiles,
        sent_percentiles: report.sent_percentiles,
    };
    let content = Content::Summary(classes, stated);
    Ok(ParsedFile { tool, content, seconds, started_unix_s: None, load, notes })
}

#[derive(Default)]
struct ParsedReport {
    connections: Option<u32>,
    mean_us: Option<f64>,
    max_us: Option<f64>,
    percentiles: Vec<StatedPercentile>,
    requests: Option<(u64, f64)>,
    refused: u64,
    timeouts: u64,
    errors: Vec<Class>,
    per_s: Option<f64>,
    /// Percentiles from the moment at which requests were sent.
    sent_percentiles: Vec<StatedPercentile>,
    distribution: Distribution,
}

/// The distribution that the current lines belong to.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    #[default]
    None,
    /// wrk's only distribution; in wrk2 the one from when requests were due.
    Recorded,
    /// wrk2's distribution from when requests were sent (`--u_latency`).
    Uncorrected,
}

impl ParsedReport {
    /// Reads a line; `None` when it begins like one of wrk's but continues in another way.
    fn line(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, "threads", "and", connections, "connections"] => {
                self.connections = Some(connections.parse().ok()?);
            }
            ["Latency", "Distribution", rest @ ..] => {
                let uncorrected = rest.contains(&"Uncorrected");
                self.distribution =
                    if uncorrected { Distribution::Uncorrected } else { Distribution::Recorded };
            }
            ["Latency", mean, _, most, _] => {
                (self.mean_us, self.max_us) = (Some(time(mean)?), Some(time(most)?));
            }
            [share, value] if self.distribution != Distribution::None && share.ends_with('%') => {
                let share: f64 = share.trim_end_matches('%').parse().ok()?;
                let printed = StatedPercentile { share: share / 100.0, us: time(value)? };
                match self.distribution {
                    Distribution::Uncorrected => self.sent_percentiles.push(printed),
                    _ => self.percentiles.push(printed),
                }
            }
            [count, "requests", "in", seconds, ..] => {
                self.requests = Some((count.parse().ok()?, time(seconds.trim_end_matches(','))? / 1e6));
            }
            ["Non-2xx", "or", "3xx", "responses:", count] => self.refused = count.parse().ok()?,
            ["Requests/sec:", rate] => self.per_s = Some(rate.parse().ok()?),
            ["Socket", "errors:", rest @ ..] => {
                for pair in rest.chunks(2) {
                    let [name, count] = pair else { return None };
                    let count = count.trim_end_matches(',').parse().ok()?;
                    if *name == "timeout" {
                        self.timeouts = count;
                        continue;
                    }
                    let class = count_only(Outcome::Failed, None, count);
                    self.errors.push(Class { fault: Some((*name).to_owned()), ..class });
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// Parses `2.65ms`, `880.00us`, `1.10s` or `2.00m` into µs.
fn time(text: &str) -> Option<f64> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let value: f64 = text[..split].parse().ok()?;
    let unit = match &text[split..] {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    Some(value * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_wrks_units() {
        for (text, us) in [("880.00us", 880.0), ("2.65ms", 2650.0), ("1.10s", 1.1e6), ("2.00m", 120e6)] {
            assert!((time(text).unwrap() - us).abs() < 1e-6, "{text}");
        }
        assert_eq!(time("7"), None);
        assert_eq!(time("7.0ns"), None);
    }
}
