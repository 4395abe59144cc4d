//! Event table: the TOML form of events on components during load.
//!
//! Owns: keys, their permitted values, and the expansion of repeated events. Does not own: whether
//! a topology has the component ([`super::table`]), and performing the events ([`crate::run`]).

use std::collections::BTreeMap;
use std::time::Duration;

use lab_analysis::amount;
use lab_load::load::Stop;
use serde::Deserialize;

use crate::topology::{Action, FileRewrite, SignalName};

/// Largest number of events of a load: each is stored in the record.
const MAX_EVENTS: usize = 10_000;
/// Longest time that a component may take to end.
const MAX_STOP_TIMEOUT: Duration = Duration::from_mins(10);

/// An event on a component during load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedEvent {
    /// Time since the start of the iteration, including the warm-up.
    pub at: Duration,
    /// Name of the component in the topology.
    pub component: String,
    /// File of the component that is rewritten before the action.
    pub file_rewrite: Option<FileRewrite>,
    /// Action on the component; `None` if only a file is rewritten.
    pub action: Option<Action>,
}

impl PlannedEvent {
    /// Describes the event for a report.
    pub fn describe(&self) -> String {
        let act = self.action.map(|act| act.describe(&self.component));
        match (act, &self.file_rewrite) {
            (Some(act), Some(anew)) => format!("{act}, `{}` rewritten", anew.file),
            (Some(act), None) => act,
            (None, Some(anew)) => format!("`{}` of `{}` rewritten", anew.file, self.component),
            (None, None) => String::new(),
        }
    }
}

/// An event as it is in a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventTable {
    at: String,
    every: Option<String>,
    times: Option<u32>,
    component: String,
    signal: Option<SignalName>,
    #[serde(default)]
    restart: bool,
    #[serde(default)]
    start: bool,
    end: Option<String>,
    file: Option<String>,
    with: Option<FileVariables>,
}

/// Variables, or several sets of them that are used in turn.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "expected variables, `{ NAME = \"VALUE\" }`, or a list of such tables that are used in turn"
)]
enum FileVariables {
    Always(BTreeMap<String, String>),
    InTurn(Vec<BTreeMap<String, String>>),
}

/// Expands all events of a load, sorted by time. Events at the same time keep the order of the
/// file.
///
/// # Errors
/// The wrong key, and the reason.
pub(super) fn planned_events(
    events: Vec<EventTable>,
    warmup: Duration,
    stop: Stop,
) -> Result<Vec<PlannedEvent>, String> {
    let mut all = Vec::new();
    for event in events {
        all.extend(event.planned()?);
    }
    if all.len() > MAX_EVENTS {
        return Err(format!("{} events exceed the maximum of {MAX_EVENTS}", all.len()));
    }
    all.sort_by_key(|event| event.at);
    if let (Some(last), Stop::After(duration)) = (all.last(), stop)
        && last.at >= warmup + duration
    {
        return Err(format!(
            "at: the load ends after {} s (with warm-up), but the last event is due after {} s",
            (warmup + duration).as_secs_f64(),
            last.at.as_secs_f64()
        ));
    }
    Ok(all)
}

impl EventTable {
    fn planned(self) -> Result<Vec<PlannedEvent>, String> {
        let time =
            |key: &str, text: &str| amount::duration(text).map_err(|message| format!("{key}: {message}"));
        let at = time("at", &self.at)?;
        let end = self.end.as_deref().map(|text| time("end", text)).transpose()?;
        if end.is_some_and(|end| end.is_zero() || end > MAX_STOP_TIMEOUT) {
            return Err("end: must be a time above 0 and up to 10m".to_owned());
        }
        let acts = [
            self.signal.map(Action::Signal),
            self.restart.then_some(Action::Restart),
            self.start.then_some(Action::Start),
            end.map(Action::End),
        ];
        let mut acts = acts.into_iter().flatten();
        let act = acts.next();
        if acts.next().is_some() || (act.is_none() && self.file.is_none()) {
            return Err(
                "needs exactly one of `signal` (STOP, CONT, KILL, TERM, HUP), `restart = true`, `start = true` or \
                 `end = \"30s\"` (it must end within that time), each with or without a `file`; or only a `file`"
                    .to_owned(),
            );
        }
        let (every, times) =
            match (self.every.as_deref().map(|text| time("every", text)).transpose()?, self.times) {
                (None, None) => (Duration::ZERO, 1),
                (Some(every), Some(times @ 1..)) if !every.is_zero() => (every, times),
                _ => return Err("every: needs both `every` and `times`, each above 0".to_owned()),
            };
        if times as usize > MAX_EVENTS {
            return Err(format!("times: must be from 1 to {MAX_EVENTS}"));
        }
        if times > 1 && (self.start || end.is_some()) {
            return Err("times: `start` and `end` cannot be repeated".to_owned());
        }
        let turns = match (&self.file, self.with) {
            (None, None) => Vec::new(),
            (Some(_), Some(FileVariables::Always(with))) => vec![with],
            (Some(_), Some(FileVariables::InTurn(turns))) => turns,
            (Some(file), None) => {
                return Err(format!(
                    "with: missing; without it `{file}` does not change; add variables of the topology, `with = {{ NAME = \"VALUE\" }}`"
                ));
            }
            (None, Some(_)) => {
                return Err("with: needs a `file` to rewrite".to_owned());
            }
        };
        if self.file.is_some() && (turns.is_empty() || turns.iter().any(BTreeMap::is_empty)) {
            return Err("with: has no variables".to_owned());
        }
        if turns.len() > times as usize {
            return Err(format!(
                "with: has {} entries, but only {times} would be used: increase `times`",
                turns.len()
            ));
        }
        let mut turns = turns.iter().cycle();
        let plan = |number: u32| PlannedEvent {
            at: at + every * number,
            component: self.component.clone(),
            file_rewrite: self
                .file
                .clone()
                .zip(turns.next().cloned())
                .map(|(file, with)| FileRewrite { file, variables: with }),
            action: act,
        };
        Ok((0..times).map(plan).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, seconds: u64) -> Result<Vec<PlannedEvent>, String> {
        #[derive(Deserialize)]
        struct Table {
            event: Vec<EventTable>,
        }
        let table: Table = toml::from_str(&format!("event = [{text}]")).map_err(|error| error.to_string())?;
        planned_events(table.event, Duration::from_secs(1), Stop::After(Duration::from_secs(seconds)))
    }

    #[test]
    fn an_event_repeats_and_takes_its_variables_in_turn() {
        let text = "{ at = '1s', every = '300ms', times = 3, component = 'a', signal = 'HUP', file = 'x', with = [{ n = '1' }, { n = '2' }] },\
                    { at = '1300ms', component = 'b', start = true }";
        let all = read(text, 10).unwrap();
        let seen: Vec<_> = all
            .iter()
            .map(|event| {
                let with = event.file_rewrite.as_ref().map(|anew| anew.variables["n"].as_str());
                (event.at.as_millis(), event.component.as_str(), with)
            })
            .collect();
        let expected =
            [(1000, "a", Some("1")), (1300, "a", Some("2")), (1300, "b", None), (1600, "a", Some("1"))];
        assert_eq!(seen, expected);
        assert_eq!(all[0].describe(), "SIGHUP to `a`, `x` rewritten");
        let file = read("{ at = '1s', component = 'a', file = 'x', with = { n = '1' } }", 10).unwrap();
        assert_eq!((file[0].action, file[0].describe().as_str()), (None, "`x` of `a` rewritten"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_key() {
        let a = "component = 'a'";
        for (text, words) in [
            (format!("at = '1s', {a}"), "exactly one of `signal`"),
            (format!("at = '1s', {a}, start = true, restart = true"), "exactly one of `signal`"),
            (format!("at = '1s', {a}, restart = true, every = '1s'"), "needs both `every` and `times`"),
            (format!("at = '1s', {a}, restart = true, times = 2"), "needs both `every` and `times`"),
            (format!("at = '1s', {a}, restart = true, every = '0s', times = 2"), "each above 0"),
            (format!("at = '1s', {a}, restart = true, every = '1ms', times = 10001"), "from 1 to 10000"),
            (format!("at = '1s', {a}, start = true, every = '1s', times = 2"), "cannot be repeated"),
            (format!("at = '1s', {a}, end = 'soon'"), "end: `soon`"),
            (format!("at = '1s', {a}, end = '0s'"), "end: must be a time above 0"),
            (format!("at = '1s', {a}, file = 'x'"), "`x` does not change"),
            (format!("at = '1s', {a}, file = 'x', with = {{}}"), "has no variables"),
            (format!("at = '1s', {a}, file = 'x', with = []"), "has no variables"),
            (format!("at = '1s', {a}, file = 'x', with = 7"), "expected variables"),
            (format!("at = '1s', {a}, file = 'x', with = [{{ n = '1' }}, {{ n = '2' }}]"), "2 entries"),
            (format!("at = '1s', {a}, signal = 'HUP', with = {{ n = '1' }}"), "needs a `file`"),
            (format!("at = '1s', {a}, signal = 'HUP', every = '5s', times = 3"), "due after 11 s"),
        ] {
            let message = read(&format!("{{ {text} }}"), 10).unwrap_err();
            assert!(message.contains(words), "{text}\n{message}");
        }
    }
}
