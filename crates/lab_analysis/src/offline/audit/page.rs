//! Page: reads result tables from a report in Markdown.
//!
//! Owns: which table is of which kind, and what a row of it contains: figures, or a claim about
//! figures.
//! Does not own: the rules.
//!
//! Four kinds are recognised by their column heads:
//! - iterations of one or several runs;
//! - means of several runs;
//! - growing load;
//! - two columns beside a change in per cent.
//!
//! Other tables and the text are skipped, because what is not understood is no evidence.
//!
//! A run is named after its column without the figure (`OAuth P95`), or after its row. Iterations
//! with the same name in several tables belong to one run.

use super::quantity::{plain, quantities};
use super::table::{
    Claim, ClaimKind, Column, Format, PrintedFigure, Row, RunTable, SweepRow, SweepTable, Tables,
};
use crate::record::Arrivals;

/// A table with the headings above it.
struct Table {
    /// The bold line before the table, then the headings that it is below, the last one first.
    above: Vec<String>,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The tables of a page; `None` when it has no table of results.
pub(super) fn tables(text: &str, file: &str) -> Option<Tables> {
    let mut page = Page { concurrency: concurrency(text), ..Page::default() };
    for table in markdown_tables(text) {
        let _ = page.read_sweep(&table) || page.read_iterations(&table) || page.read_means(&table);
        page.read_changes(&table);
    }
    let Page { runs, sweeps, claims, .. } = page;
    if runs.is_empty() && sweeps.is_empty() && claims.is_empty() {
        return None;
    }
    let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(file);
    let provenance = format!("the tables of `{file}`; its text is not read");
    Some(Tables { format: Format::V1, title: plain(title), provenance, runs, sweeps, claims })
}

/// All tables of the page, in order.
fn markdown_tables(text: &str) -> Vec<Table> {
    let (mut tables, mut headings, mut bold) = (Vec::new(), Vec::<(usize, String)>::new(), None);
    let lines: Vec<&str> = text.lines().collect();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim();
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        if level > 0 && line[level..].starts_with(' ') {
            headings.retain(|(above, _)| *above < level);
            headings.push((level, plain(&line[level..])));
            bold = None;
        } else if line.starts_with("**") && line.ends_with("**") {
            bold = Some(plain(line).trim_end_matches(['.', ':']).to_owned());
        }
        let rule = lines.get(at + 1).map_or("", |line| line.trim());
        let is_rule = rule.contains("---") && rule.chars().all(|letter| "|-: ".contains(letter));
        if line.starts_with('|') && is_rule {
            let rows: Vec<Vec<String>> = lines[at + 2..]
                .iter()
                .take_while(|line| line.trim_start().starts_with('|'))
                .map(|line| cells(line))
                .collect();
            let above = bold.iter().cloned().chain(headings.iter().rev().map(|(_, name)| name.clone()));
            at += 1 + rows.len();
            tables.push(Table { above: above.collect(), head: cells(line), rows });
        }
        at += 1;
    }
    tables
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// The number of workers that a text states, when it states only one: `50 concurrent connections`,
/// `Concurrency: 50`.
fn concurrency(text: &str) -> Option<u32> {
    let mut found: Vec<u32> = Vec::new();
    for line in text.lines().map(|line| plain(line).to_lowercase()) {
        let Some(at) = line.find("concurren") else { continue };
        // The head of a column is no statement: a number has to stand beside the word.
        let before: Vec<&str> = line[..at].split_whitespace().collect();
        let number =
            |word: &str| word.trim_matches(|letter: char| !letter.is_ascii_digit()).parse::<u32>().ok();
        let behind = line[at..].split([' ', ':', '|']).filter(|word| !word.is_empty()).skip(1).take(4);
        found.extend(
            before.last().and_then(|word| number(word)).or_else(|| behind.into_iter().find_map(number)),
        );
    }
    found.dedup();
    match found[..] {
        [one] if one > 0 => Some(one),
        _ => None,
    }
}

/// The figure that a name mentions; `None` when it mentions none.
fn column_in(name: &str) -> Option<Column> {
    let name = name.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if has(&["p50", "median"]) {
        Some(Column::P50S)
    } else if has(&["p95"]) {
        Some(Column::P95S)
    } else if has(&["p99"]) && !has(&["p99.9"]) {
        Some(Column::P99S)
    } else if has(&["throughput", "req/s", "requests/s", "rps", "tps"]) {
        Some(Column::PerS)
    } else if has(&["mean", "average"]) && has(&["latency", "response", "time"]) {
        Some(Column::MeanS)
    } else {
        None
    }
}

/// A name without the figure in it: the run that the figure belongs to.
fn run_name(name: &str) -> String {
    let figures = ["p50", "p95", "p99", "median", "mean", "average", "avg", "latency", "throughput"];
    let words = name.split_whitespace().filter(|word| {
        let word = word.trim_matches(['(', ')']).to_lowercase();
        !figures.contains(&&*word) && !word.contains("req/s") && !word.contains("(ms)")
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Unit in parentheses in a column head; seconds without one.
fn unit_of(head: &str) -> &str {
    if head.contains("(ms)") { "ms" } else { "s" }
}

/// Value of a cell in the unit of its column: seconds, or per second.
fn value(cell: &str, head: &str, column: Column) -> Option<PrintedFigure> {
    let found = quantities(cell).into_iter().next()?;
    if column != Column::PerS {
        return found.seconds(unit_of(head));
    }
    (found.unit.is_empty() || found.unit.contains("/s")).then_some(found.figure)
}

/// A column of a table of iterations.
struct Series {
    index: usize,
    run: String,
    column: Column,
}

#[derive(Default)]
struct Page {
    concurrency: Option<u32>,
    runs: Vec<RunTable>,
    sweeps: Vec<SweepTable>,
    claims: Vec<Claim>,
}

impl Page {
    /// The run with this name; it is created when there is none.
    fn run(&mut self, name: &str) -> &mut RunTable {
        let at = self.runs.iter().position(|run| run.id == name).unwrap_or_else(|| {
            self.runs.push(RunTable {
                id: name.to_owned(),
                title: name.to_owned(),
                arrivals: if self.concurrency.is_some() { Arrivals::Closed } else { Arrivals::Unknown },
                concurrency: self.concurrency,
                requests: None,
                failed: None,
                iterations: Vec::new(),
                mean: None,
                cpu_cores: std::collections::BTreeMap::new(),
                cpu_limit_cores: std::collections::BTreeMap::new(),
            });
            self.runs.len() - 1
        });
        &mut self.runs[at]
    }

    /// Reads a table of growing load: workers, throughput and mean latency in each row. A row
    /// without a name has the name of the row above.
    fn read_sweep(&mut self, table: &Table) -> bool {
        let place =
            |wanted: &dyn Fn(&str) -> bool| table.head.iter().position(|head| wanted(&head.to_lowercase()));
        let of = |column: Column| place(&|head| column_in(head) == Some(column));
        let (Some(workers), Some(rate), Some(mean)) = (
            place(&|head| head.contains("concurren") || head.contains("users")),
            of(Column::PerS),
            of(Column::MeanS),
        ) else {
            return false;
        };
        let samples = place(&|head| head.contains("samples"));
        let errors = place(&|head| head.contains("error"));
        let mut name = String::new();
        let first = self.sweeps.len();
        for row in &table.rows {
            let cell = |at: usize| row.get(at).map_or("", String::as_str);
            if workers > 0 && !plain(cell(0)).is_empty() {
                name = plain(cell(0)).split_whitespace().collect::<Vec<_>>().join(" ");
            }
            let number =
                |at: usize| quantities(cell(at)).into_iter().next().map(|found| found.figure.value());
            let mean_ms = value(cell(mean), &table.head[mean], Column::MeanS).map(|mean| mean.value() * 1e3);
            let (Some(concurrency), Some(per_s), Some(mean_ms)) = (number(workers), number(rate), mean_ms)
            else {
                continue;
            };
            let above = table.above.iter().take(2).cloned();
            let title = above
                .chain(Some(name.clone()))
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(", ");
            let id = format!("table {}: {title}", first + 1);
            if self.sweeps.last().is_none_or(|sweep| sweep.id != id) {
                self.sweeps.push(SweepTable { id, title, run_s: None, rows: Vec::new() });
            }
            let row = SweepRow {
                concurrency: u32::try_from(crate::units::truncated(concurrency)).unwrap_or(u32::MAX),
                samples: samples.and_then(number).map(crate::units::truncated),
                per_s,
                mean_ms,
                error_pct: errors.and_then(number),
                repeats_per_s: Vec::new(),
            };
            self.sweeps.last_mut().into_iter().for_each(|sweep| sweep.rows.push(row.clone()));
        }
        self.sweeps.len() > first
    }

    /// Reads a table of iterations of one or more runs, and the mean below them.
    fn read_iterations(&mut self, table: &Table) -> bool {
        let first = table.head.first().map(|head| plain(head).to_lowercase()).unwrap_or_default();
        if !["iteration", "round", "run", "#"].contains(&&*first) {
            return false;
        }
        let series = self.series(table);
        for row in &table.rows {
            let name = plain(row.first().map_or("", String::as_str)).to_lowercase();
            for one in &series {
                let cell = row.get(one.index).map_or("", String::as_str);
                let Some(figure) = value(cell, &table.head[one.index], one.column) else { continue };
                match name.parse::<usize>() {
                    Ok(number @ 1..=1000) => {
                        let run = self.run(&one.run);
                        run.iterations.resize(run.iterations.len().max(number), Row::default());
                        run.iterations[number - 1].set(one.column, figure.value());
                    }
                    _ if ["average", "mean", "avg"].contains(&&*name) => self.claims.push(Claim {
                        says: format!("{} of {}: {name} {figure} {}", one.column, one.run, one.column.unit()),
                        that: ClaimKind::Mean {
                            run: one.run.clone(),
                            column: one.column,
                            without: Vec::new(),
                            printed: figure,
                        },
                    }),
                    _ => {}
                }
            }
        }
        // A mean without its iterations is no claim about them.
        let known: Vec<String> = self.runs.iter().map(|run| run.id.clone()).collect();
        self.claims
            .retain(|claim| !matches!(&claim.that, ClaimKind::Mean { run, .. } if !known.contains(run)));
        !series.is_empty()
    }

    /// The columns of a table of iterations that have figures, and their runs. A column that
    /// another table has filled already belongs to a run of its own.
    fn series(&self, table: &Table) -> Vec<Series> {
        let above = table.above.iter().find_map(|name| column_in(name));
        let page = table.above.last().cloned().unwrap_or_else(|| "the run".to_owned());
        let mut series = Vec::new();
        for (place, head) in table.head.iter().enumerate().skip(1) {
            let head = plain(head);
            let lower = head.to_lowercase();
            if ["diff", "change", "%", "status", "success", "error", "note"]
                .iter()
                .any(|word| lower.contains(word))
            {
                continue;
            }
            let Some(column) = column_in(&head).or(above) else { continue };
            let mut run = run_name(&head);
            if run.is_empty() {
                run.clone_from(&page);
            }
            let filled = |run: &str| {
                let known = self.runs.iter().find(|known| known.id == run);
                known.is_some_and(|known| !known.column(column, &[]).is_empty())
            };
            if filled(&run) {
                let nearest = table.above.first().cloned().unwrap_or_default();
                run = format!("{run}, {nearest}");
            }
            if !filled(&run) {
                series.push(Series { index: place, run, column });
            }
        }
        series
    }

    /// Reads a table of means of several runs: a name, latencies and throughput in each row.
    fn read_means(&mut self, table: &Table) -> bool {
        let columns: Vec<(usize, Column)> = table
            .head
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(at, head)| Some((at, column_in(head)?)))
            .collect();
        let has = |wanted: Column| columns.iter().any(|(_, column)| *column == wanted);
        if !has(Column::PerS) || !has(Column::P50S) {
            return false;
        }
        for row in &table.rows {
            let name = plain(row.first().map_or("", String::as_str));
            let mut mean = Row::default();
            for (at, column) in &columns {
                let cell = row.get(*at).map_or("", String::as_str);
                if let Some(figure) = value(cell, &table.head[*at], *column) {
                    mean.set(*column, figure.value());
                }
            }
            if !name.is_empty() && mean != Row::default() && self.runs.iter().all(|run| run.id != name) {
                self.run(&name).mean = Some(mean);
            }
        }
        true
    }

    /// Reads two figures of one unit beside a change in per cent. If the figures are shares
    /// themselves, the change may be their difference, so no claim is made.
    fn read_changes(&mut self, table: &Table) {
        let is_change = |head: &String| {
            let head = head.to_lowercase();
            ["change", "% diff", "%diff", "difference"].iter().any(|word| head.contains(word))
        };
        for (at, _) in table.head.iter().enumerate().filter(|(_, head)| is_change(head)) {
            for row in table.rows.iter().filter(|row| row.len() > at && at >= 3) {
                let printed = quantities(&row[at]).into_iter().find(|found| found.unit == "%");
                let (Some(from), Some(to)) =
                    (quantities(&row[1]).into_iter().next(), quantities(&row[2]).into_iter().next())
                else {
                    continue;
                };
                let shares = [&row[1], &row[2]].iter().any(|cell| cell.contains('%'));
                let signed = row[at].contains(['+', '-', '\u{2212}']);
                let Some(printed) = printed.filter(|_| !shares && signed && from.unit == to.unit) else {
                    continue;
                };
                let name = table.above.first().map_or(String::new(), |above| format!("{above}: "));
                let says = format!(
                    "{name}{} {}, from {} to {}: {} %",
                    plain(&table.head[0]),
                    plain(&row[0]),
                    plain(&row[1]),
                    plain(&row[2]),
                    printed.figure
                );
                self.claims.push(Claim {
                    says,
                    that: ClaimKind::Change { from: from.figure, to: to.figure, printed: printed.figure },
                });
            }
        }
    }
}
