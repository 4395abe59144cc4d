//! Import of Locust: its CSV with totals, and its CSV with the totals of each second.

use super::{Content, ErrorContext, ImportError, ParsedFile, ParsedLoad, count_only, line_of};
use crate::record::{Class, Outcome, Slice, StatedFigures, StatedPercentile};

const RULE: &str = "from Locust's own histogram: whole milliseconds, of two digits from 100 ms on";
/// Name of the row over all requests.
const ALL: &str = "Aggregated";
/// Most slices of a timeline.
const MAX_SLICES: usize = 120;

/// Rows of a CSV, by the names of their columns.
struct Table<'a> {
    reader: ::csv::Reader<&'a [u8]>,
    names: ::csv::StringRecord,
}

impl<'a> Table<'a> {
    fn new(content: &'a str, at: &ErrorContext<'_>) -> Result<Self, ImportError> {
        let mut reader = ::csv::Reader::from_reader(content.as_bytes());
        let names = reader.headers().map_err(|error| at.whole(error.to_string()))?.clone();
        Ok(Self { reader, names })
    }

    /// Calls `row` for each row over all requests, with its line.
    fn each(
        mut self,
        at: &ErrorContext<'_>,
        mut row: impl FnMut(&Row<'_>) -> Result<(), ImportError>,
    ) -> Result<(), ImportError> {
        let mut record = ::csv::StringRecord::new();
        while self.reader.read_record(&mut record).map_err(|error| at.whole(error.to_string()))? {
            row(&Row { names: &self.names, fields: &record, at })?;
        }
        Ok(())
    }
}

struct Row<'a> {
    names: &'a ::csv::StringRecord,
    fields: &'a ::csv::StringRecord,
    at: &'a ErrorContext<'a>,
}

impl Row<'_> {
    fn text(&self, name: &str) -> Result<&str, ImportError> {
        let column = self.names.iter().position(|known| known == name);
        let column = column.ok_or_else(|| self.at.line(1, format!("there is no column `{name}`")))?;
        Ok(self.fields.get(column).unwrap_or_default())
    }

    fn is_of_all(&self) -> Result<bool, ImportError> {
        Ok(self.text("Name")? == ALL)
    }

    fn number(&self, name: &str) -> Result<f64, ImportError> {
        let text = self.text(name)?;
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        value.ok_or_else(|| self.malformed(name, text))
    }

    fn count(&self, name: &str) -> Result<u64, ImportError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| self.malformed(name, text))
    }

    fn malformed(&self, name: &str, text: &str) -> ImportError {
        self.at.line(line_of(self.fields), format!("`{text}` is not a number ({name})"))
    }

    /// The columns `50%`, `99.9%` and so on; `N/A` without a response.
    fn percentiles(&self) -> Result<Vec<StatedPercentile>, ImportError> {
        let mut percentiles = Vec::new();
        for name in self.names {
            let Some(percent) = name.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok()) else {
                continue;
            };
            if (0.0..=100.0).contains(&percent) && self.text(name)? != "N/A" {
                let us = self.number(name)? * 1e3;
                percentiles.push(StatedPercentile { share: percent / 100.0, us });
            }
        }
        Ok(percentiles)
    }
}

/// Reads the file that ends in `_stats.csv`.
pub(super) fn totals(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut found = None;
    Table::new(content, at)?.each(at, |row| {
        if row.is_of_all()? {
            let counts = (row.count("Request Count")?, row.count("Failure Count")?);
            let times = [
                row.number("Min Response Time")?,
                row.number("Average Response Time")?,
                row.number("Max Response Time")?,
            ];
            found = Some((counts, row.number("Requests/s")?, times, row.percentiles()?));
        }
        Ok(())
    })?;
    let (counts, per_s, times, percentiles) = found.ok_or_else(|| no_row(at))?;
    if counts.0 == 0 || per_s <= 0.0 {
        return Err(ImportError::Empty { file: at.0.to_owned() });
    }
    Ok(ParsedFile {
        tool: "Locust",
        content: Content::Summary(classes(counts), stated(times, Some(per_s), percentiles)),
        // Locust divides by the time from its start to the last response.
        seconds: counts.0 as f64 / per_s,
        started_unix_s: None,
        load: ParsedLoad::unknown(None),
        notes: notes(counts.1),
    })
}

/// Totals at a time.
struct Moment {
    /// Seconds since 1970.
    at: u64,
    requests: u64,
    failures: u64,
    users: u32,
}

impl Moment {
    /// Whether nothing happens from the moment `before` on: there are no users, and no requests.
    fn is_idle_since(&self, before: &Self) -> bool {
        self.users == 0 && self.requests == before.requests
    }
}

/// Reads the file that ends in `_stats_history.csv`.
pub(super) fn history(content: &str, at: &ErrorContext<'_>) -> Result<ParsedFile, ImportError> {
    let mut moments: Vec<Moment> = Vec::new();
    let (mut single, mut last) = (false, None);
    Table::new(content, at)?.each(at, |row| {
        if !row.is_of_all()? {
            single = true;
            return Ok(());
        }
        let now = Moment {
            at: row.count("Timestamp")?,
            requests: row.count("Total Request Count")?,
            failures: row.count("Total Failure Count")?,
            users: u32::try_from(row.count("User Count")?).unwrap_or(u32::MAX),
        };
        let before = moments.last();
        if before.is_some_and(|before| {
            now.at < before.at || now.requests < before.requests || now.failures < before.failures
        }) {
            let reason = "time or totals are lower than in the row before: the file has more than one run, or its statistics were reset";
            return Err(at.line(line_of(row.fields), reason));
        }
        let times = [
            row.number("Total Min Response Time")?,
            row.number("Total Average Response Time")?,
            row.number("Total Max Response Time")?,
        ];
        last = Some((times, row.percentiles()?, row.number("Total Median Response Time")?));
        // At its end Locust may write a second row for a second. Before the first user it waits, and
        // after the last one it may wait for other things: that is not part of the run.
        moments.pop_if(|before| before.at == now.at || now.requests == 0 && now.is_idle_since(before));
        if !moments.last().is_some_and(|before| now.is_idle_since(before)) {
            moments.push(now);
        }
        Ok(())
    })?;
    let (times, mut percentiles, median) = last.ok_or_else(|| no_row(at))?;
    let (Some(first), Some(end)) = (moments.first(), moments.last()) else { return Err(no_row(at)) };
    if end.requests == 0 || end.at == first.at {
        return Err(at.whole(
            "covers less than a second: import the file that ends in `_stats.csv`, or measure for longer",
        ));
    }
    let counts = (end.requests, end.failures);
    let users = moments.iter().map(|moment| moment.users).max().filter(|users| *users > 0);
    let seconds = (end.at - first.at) as f64;
    let mut notes = notes(counts.1);
    notes.push(
        "the file has times in whole seconds: the length of the run, and so the rate, may be off by one second"
            .to_owned(),
    );
    // With rows of single requests, percentiles are of the last seconds only.
    if single {
        percentiles = vec![StatedPercentile { share: 0.5, us: median * 1e3 }];
        notes.push(
            "with --csv-full-history the file has percentiles of a few seconds each; those of the run are in the file that ends in `_stats.csv`"
                .to_owned(),
        );
    }
    let stated = stated(times, Some(counts.0 as f64 / seconds), percentiles);
    Ok(ParsedFile {
        tool: "Locust",
        content: Content::Course(classes(counts), stated, timeline(&moments)),
        seconds,
        started_unix_s: Some(first.at as f64),
        load: ParsedLoad::unknown(users),
        notes,
    })
}

fn no_row(at: &ErrorContext<'_>) -> ImportError {
    at.whole(format!("there is no row `{ALL}`: the file is cut off, or has only single requests"))
}

/// Classes of all requests and failures.
fn classes((requests, failures): (u64, u64)) -> Vec<Class> {
    let failures = failures.min(requests);
    let mut classes = vec![
        count_only(Outcome::Ok, None, requests - failures),
        count_only(Outcome::Refused, None, failures),
    ];
    classes.retain(|class| class.count > 0);
    classes
}

fn notes(failures: u64) -> Vec<String> {
    let mut notes = vec![
        "Locust keeps whole milliseconds, from 100 ms on two digits, and counts percentiles over good and failed requests alike"
            .to_owned(),
        "Locust does not say how long its users wait between requests".to_owned(),
        "Locust writes its files once a second, and not at its end: the last requests may be missing".to_owned(),
    ];
    if failures > 0 {
        notes.push("failed requests may have had no answer: the file does not say".to_owned());
    }
    notes
}

/// Figures from shortest, mean and longest time in milliseconds.
fn stated(
    [min, mean, max]: [f64; 3],
    per_s: Option<f64>,
    percentiles: Vec<StatedPercentile>,
) -> StatedFigures {
    StatedFigures {
        tool: "Locust".to_owned(),
        rule: RULE.to_owned(),
        mean_us: Some(mean * 1e3),
        min_us: Some(min * 1e3),
        max_us: Some(max * 1e3),
        per_s,
        percentiles,
        sent_percentiles: Vec::new(),
    }
}

/// Differences between successive totals, joined until there are few enough to display.
fn timeline(moments: &[Moment]) -> Vec<Slice> {
    let Some(start) = moments.first().map(|first| first.at) else { return Vec::new() };
    let step = moments.len().div_ceil(MAX_SLICES).max(1);
    let mut kept: Vec<&Moment> = moments.iter().step_by(step).collect();
    kept.extend(moments.last().filter(|last| kept.last().is_some_and(|kept| kept.at < last.at)));
    let slice = |pair: &[&Moment]| {
        let (from, to) = (pair[0], pair[1]);
        let bad = to.failures - from.failures;
        Slice {
            at_ms: (from.at - start).saturating_mul(1000),
            ms: (to.at - from.at).saturating_mul(1000),
            ok: (to.requests - from.requests).saturating_sub(bad),
            bad,
            p50_us: None,
            p99_us: None,
            max_us: None,
        }
    };
    kept.windows(2).map(slice).filter(|slice| slice.ms > 0).collect()
}
