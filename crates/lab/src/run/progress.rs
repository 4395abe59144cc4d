//! Progress output: what a scenario run prints on standard error.
//!
//! Uses plain escape sequences of ECMA-48, and only on a terminal.
//!
//! Owns: log lines, a status line on a terminal and, on request, a dashboard twice a second. Does
//! not own: the displayed state ([`super::view`]).

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lab_analysis::formatting;
use lab_analysis::record::{Iteration, Outcome, ProfileRound};
use lab_analysis::statistics::Figure;

use super::view::{View, ViewState};
use crate::scenario::Scenario;

/// Time between two redraws.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);
/// Width of a bar in columns.
const BAR_WIDTH: usize = 24;
/// Characters of the throughput graph, from low to high.
const SPARK_CHARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How much progress output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgressOutput {
    /// No progress output.
    Off,
    /// One line per load and, on a terminal, a status line.
    Lines,
    /// Dashboard with throughput, percentiles, CPU and throttling of each component, twice a
    /// second. Same as `Lines` without a terminal.
    Live,
}

/// Reports the progress of a run.
pub(super) struct Progress {
    show: ProgressOutput,
    terminal: bool,
    view: View,
    drawing: Option<JoinHandle<()>>,
}

impl Progress {
    pub(super) fn new(show: ProgressOutput) -> Self {
        Self { show, terminal: std::io::stderr().is_terminal(), view: View::default(), drawing: None }
    }

    pub(super) fn view(&self) -> View {
        self.view.clone()
    }

    pub(super) fn begin(&mut self, scenario: &Scenario) {
        let loads = scenario.arrangements.iter().flat_map(|arrangement| &arrangement.loads);
        let all =
            loads.map(|load| scenario.loads[load].rounds_of(scenario.rounds)).fold(0, u32::saturating_add);
        let mut state = self.view.lock();
        state.rounds = scenario.rounds;
        state.all = all;
        drop(state);
        let quick = if scenario.quick { " (quick)" } else { "" };
        self.line(&format!(
            "{}{quick}{}",
            scenario.title,
            formatting::expected_duration(scenario.min_duration())
        ));
        if !self.terminal || self.show == ProgressOutput::Off {
            return;
        }
        let (view, live) = (self.view.clone(), self.show == ProgressOutput::Live);
        self.drawing = std::thread::Builder::new()
            .name("draw".to_owned())
            .spawn(move || redraw_until_done(&view, live))
            .ok();
    }

    pub(super) fn starting(&self, name: &str) {
        self.view.start_phase(&format!("{name}: starting"), 0, None);
    }

    pub(super) fn show_measuring(&self, name: &str, round: u32, length: Option<Duration>) {
        self.view.start_phase(name, round, length);
    }

    pub(super) fn log_calibration(&self, name: &str, per_s: f64) {
        self.line(&format!("{name}: calibrated at {} requests/s", formatting::digits(per_s)));
    }

    pub(super) fn failed(&self, name: &str, why: &str) {
        self.line(&format!("{name}: excluded: {why}"));
    }

    /// Prints the result of one load. `unit` is requests or transactions.
    pub(super) fn measured(&self, name: &str, round: u32, iteration: &Iteration, unit: &str) {
        self.log_iteration(name, round, &summary(iteration, unit));
    }

    pub(super) fn nothing_ended(&self, name: &str, round: u32) {
        self.log_iteration(name, round, "no request ended in the window");
    }

    fn log_iteration(&self, name: &str, round: u32, summary: &str) {
        let rounds = {
            let mut state = self.view.lock();
            state.done += 1;
            state.rounds
        };
        self.line(&format!("round {round} of {rounds}  {name}  {summary}"));
    }

    pub(super) fn log_counts(&self, name: &str, instructions: f64, allocations: f64) {
        self.line(&format!("{name}  {instructions} instructions and {allocations} allocations per request"));
    }

    pub(super) fn log_profile(&self, name: &str, profile: &ProfileRound) {
        let mut notes: Vec<&str> =
            profile.components.iter().flat_map(|component| &component.notes).map(String::as_str).collect();
        notes.dedup();
        let rate = formatting::digits(profile.per_s);
        let mut line = format!("{name}  profiled in an additional round, at {rate}/s");
        for note in notes {
            let _ = write!(line, "; {note}");
        }
        self.line(&line);
    }

    /// Stops the drawing thread and clears the status line.
    pub(super) fn end(&mut self) {
        self.view.lock().over = true;
        if let Some(drawing) = self.drawing.take() {
            drawing.thread().unpark();
            // A failure of the drawing thread does not affect the run.
            let _ = drawing.join();
        }
    }

    /// Prints lines of progress, for parts of a run that know no [`Progress`].
    pub(super) fn printer(&self) -> Box<dyn Fn(&str) + Send + Sync> {
        let (show, terminal) = (self.show, self.terminal);
        Box::new(move |text| print_line(show, terminal, text))
    }

    fn line(&self, text: &str) {
        print_line(self.show, self.terminal, text);
    }
}

fn print_line(show: ProgressOutput, terminal: bool, text: &str) {
    if show == ProgressOutput::Off {
        return;
    }
    let mut out = std::io::stderr().lock();
    // On a terminal, clear the status line below; the drawing thread draws it again.
    let clear = if terminal { "\r\x1b[J" } else { "" };
    let _ = writeln!(out, "{clear}{text}");
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// One-line summary of an iteration.
fn summary(iteration: &Iteration, unit: &str) -> String {
    let mut text = String::new();
    let good = iteration.count(Outcome::Ok);
    let _ = write!(text, "{} {unit}/s", formatting::digits(good as f64 / iteration.seconds));
    for (figure, name) in [(Figure::P50, "p50"), (Figure::P99, "p99")] {
        if let Some(micros) = figure.value(iteration) {
            let _ = write!(text, "  {name} {}", formatting::time(micros));
        }
    }
    let bad = iteration.count(Outcome::Refused) + iteration.count(Outcome::Failed) + iteration.unsent;
    if bad > 0 {
        let _ = write!(text, "  {} failed or refused", formatting::count(bad));
    }
    for component in &iteration.components {
        if let Some(share) = throttled(component) {
            let _ = write!(
                text,
                "  {} throttled in {} of 100 periods",
                component.name,
                formatting::digits(share * 100.0)
            );
        }
    }
    text
}

/// Share of CPU periods in which the component was throttled; `None` if it never was.
fn throttled(component: &lab_analysis::record::Component) -> Option<f64> {
    let (first, last) = (component.samples.first()?, component.samples.last()?);
    let periods = last.periods?.saturating_sub(first.periods?);
    let throttled_periods = last.throttled_periods?.saturating_sub(first.throttled_periods?);
    (throttled_periods > 0 && periods > 0).then(|| throttled_periods as f64 / periods as f64)
}

/// Redraws until the run ends. The cursor returns to the start each time, so that the next log line
/// overwrites the picture.
fn redraw_until_done(view: &View, live: bool) {
    loop {
        let (text, over) = {
            let state = view.lock();
            (if live { dashboard(&state) } else { progress_line(&state) }, state.over)
        };
        let mut out = std::io::stderr().lock();
        if over {
            let _ = write!(out, "\r\x1b[J");
            return;
        }
        let lines = text.matches('\n').count();
        let back = if lines > 0 { format!("\x1b[{lines}A") } else { String::new() };
        let _ = write!(out, "\r\x1b[J{text}{back}\r").and_then(|()| out.flush());
        drop(out);
        std::thread::park_timeout(REDRAW_INTERVAL);
    }
}

/// Status line: progress of the run.
fn progress_line(state: &ViewState) -> String {
    let filled = (state.done as usize * BAR_WIDTH).checked_div(state.all as usize).unwrap_or(0);
    let mut text = format!(
        "[{}{}] {}/{}  {}",
        "#".repeat(filled),
        "-".repeat(BAR_WIDTH - filled),
        state.done,
        state.all,
        state.activity
    );
    if state.round > 0 {
        let _ = write!(text, ", round {} of {}", state.round, state.rounds);
    }
    if let Some(since) = state.since {
        let _ = write!(text, "  {} s", since.elapsed().as_secs());
    }
    truncate(&text)
}

/// Dashboard: progress, throughput, percentiles, and each component.
fn dashboard(state: &ViewState) -> String {
    let mut text = progress_line(state);
    text.push('\n');
    if let (Some(since), Some(length)) = (state.since, state.length) {
        let left = length.saturating_sub(Instant::now().saturating_duration_since(since));
        let _ = writeln!(text, "  {:.0} s left", left.as_secs_f64().ceil());
    }
    let rates: Vec<f64> = state.slices.iter().map(|slice| slice.ok as f64 * 1e3 / slice.ms as f64).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let heights =
        rates.iter().map(|rate| SPARK_CHARS[lab_analysis::units::index(rate / most.max(1.0) * 7.0).min(7)]);
    let _ = writeln!(
        text,
        "{}",
        truncate(&format!(
            "  throughput  {}  {}/s",
            heights.collect::<String>(),
            formatting::digits(rates.last().copied().unwrap_or(0.0))
        ))
    );
    let last = state.slices.last();
    let time = |micros: Option<f64>| micros.map_or_else(|| "–".to_owned(), formatting::time);
    let bad: u64 = state.slices.iter().map(|slice| slice.bad).sum();
    let _ = writeln!(
        text,
        "  latency     p50 {}  p99 {}  max {}   failed or refused {bad}",
        time(last.and_then(|slice| slice.p50_us)),
        time(last.and_then(|slice| slice.p99_us)),
        time(last.and_then(|slice| slice.max_us)),
    );
    for (name, watch) in &state.components {
        let cores = watch.cores().unwrap_or(0.0);
        let scale = watch.limit.unwrap_or(1.0).max(0.001);
        let filled = lab_analysis::units::index((cores / scale * BAR_WIDTH as f64).round()).min(BAR_WIDTH);
        let mut line =
            format!("  {name:<16} {}{} {cores:.3} cores", "█".repeat(filled), "·".repeat(BAR_WIDTH - filled));
        if let Some(limit) = watch.limit {
            let _ = write!(line, " of {limit}");
        }
        if let Some(last) = &watch.last {
            let _ = write!(line, "  {} MiB", last.rss_bytes >> 20);
        }
        if let Some(share) = watch.throttled() {
            let _ = write!(line, "  throttled in {:.0} % of periods", share * 100.0);
        }
        let _ = writeln!(text, "{}", truncate(&line));
    }
    text
}

/// Truncates to 100 columns, so that a line is not wrapped by a terminal of usual width.
fn truncate(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use lab_analysis::record::{Component, Sample, Slice};

    #[test]
    fn the_picture_shows_throughput_latency_cpu_and_throttling() {
        let view = View::default();
        view.start_phase("3x/oauth", 2, Some(Duration::from_secs(10)));
        for (index, ok) in [10, 40, 80].into_iter().enumerate() {
            let at_ms = index as u64 * 100;
            view.push_slice(&Slice {
                at_ms,
                ms: 100,
                ok,
                bad: 1,
                p50_us: Some(1500.0),
                p99_us: Some(2e6),
                max_us: Some(3e6),
            });
        }
        let look = |at_ms, user_ms, throttled| Sample {
            at_ms,
            user_ms,
            rss_bytes: 64 << 20,
            periods: Some(at_ms / 100),
            throttled_periods: Some(throttled),
            ..Sample::default()
        };
        view.update_components([&Component {
            name: "authentication".to_owned(),
            cpu_limit_cores: Some(0.05),
            memory_limit_bytes: None,
            cpu_error_us: None,
            samples: vec![look(0, 0, 0), look(500, 25, 4), look(1000, 50, 9)],
            counters: BTreeMap::new(),
            ended: false,
        }]);
        let mut seen = view.lock();
        (seen.rounds, seen.done, seen.all) = (5, 3, 12);
        let shown = dashboard(&seen);
        for word in [
            "3/12  3x/oauth, round 2 of 5",
            "▁▄█  800",
            "p50 1.5",
            "failed or refused 3",
            "0.050 cores of 0.05  64 MiB",
            "throttled in 100 %",
        ] {
            assert!(shown.contains(word), "{word}\n{shown}");
        }
        assert!(progress_line(&seen).starts_with("[######------------------] 3/12"));
        assert!(shown.lines().all(|line| line.chars().count() <= 100));
    }
}
