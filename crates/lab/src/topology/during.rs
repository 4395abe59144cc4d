//! Actions on a running topology while load lasts.
//!
//! Owns: signals to components, restarts, delayed starts, stops, rewritten files, and the endpoints
//! where credentials are revoked and checked. Does not own: when an action happens.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use lab_load::fetch::client_fields;
use lab_load::load::{Protocol, Target, Trust};
use lab_load::revoke::{Place, Question, Site};
use rustix::process::Signal;
use serde::Deserialize;

use super::TopologyError;
use super::description::{Kind, Revocations};
use super::running::Running;
use crate::topology::component::Live;

/// An action on a component during load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Sends a signal to the component.
    Signal(Signalled),
    /// Ends the component if it still runs, and starts it again.
    Restart,
    /// Starts a component that stands by.
    Start,
    /// Asks the component to end. It must end within this time, with exit code 0.
    End(Duration),
}

/// A component's file that is rewritten during load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anew {
    /// File name in the component's folder.
    pub file: String,
    /// Variables of the topology to replace in the file, with their new values.
    pub with: BTreeMap<String, String>,
}

/// Name of a signal without `SIG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signalled {
    /// Stops the process and all its children.
    Stop,
    /// Continues the process and all its children.
    Cont,
    /// Kills the process and all its children.
    Kill,
    /// Asks the process to end.
    Term,
    /// Asks the process to reload its configuration.
    Hup,
}

impl Act {
    /// Describes the action for a report.
    pub fn words(self, component: &str) -> String {
        match self {
            Self::Signal(signal) => format!("SIG{} to `{component}`", format!("{signal:?}").to_uppercase()),
            Self::Restart => format!("restart of `{component}`"),
            Self::Start => format!("start of `{component}`"),
            Self::End(_) => format!("stop of `{component}`"),
        }
    }
}

impl Running {
    /// Performs an action on a component. Returns when it is done; after a start, when the
    /// component is ready.
    ///
    /// # Errors
    /// The component is not started here, is not in a state for the action, or the action fails.
    pub(crate) fn act(&mut self, component: &str, act: Act) -> Result<(), TopologyError> {
        let interrupt = self.interrupt.clone();
        let failed = |error: io::Error| TopologyError::Act { what: act.words(component), error };
        let missing = |what: &str| failed(io::Error::new(io::ErrorKind::NotFound, what));
        let live = self.live.iter_mut().find(|live| live.about.name == component);
        let Some(live) = live else { return Err(missing("the lab did not start it")) };
        if act == Act::Start {
            return if live.stands_by() {
                live.begin(&interrupt)
            } else {
                Err(missing("it is already running"))
            };
        }
        if live.stands_by() {
            return Err(missing("it is on standby: add an earlier event with `start = true`"));
        }
        let Some(process) = &mut live.process else { return Err(missing("the lab did not start it")) };
        match act {
            Act::Signal(signal) => {
                let everybody = matches!(signal, Signalled::Stop | Signalled::Cont | Signalled::Kill);
                live.put_down |= matches!(signal, Signalled::Kill | Signalled::Term);
                process.signal(number(signal), everybody).map_err(failed)
            }
            Act::Restart => {
                process.restart().map_err(failed)?;
                live.wait(&interrupt)
            }
            Act::End(patience) => {
                if process.ended().is_some() {
                    return Err(missing("it has already ended"));
                }
                live.end(patience, &interrupt)
            }
            Act::Start => Ok(()),
        }
    }

    /// Rewrites a file of a component.
    pub(crate) fn write_anew(&mut self, component: &str, anew: &Anew) -> Result<(), TopologyError> {
        self.write(component, &anew.file, &anew.with)
    }

    /// Restores the original content of all files.
    pub(crate) fn write_back(&mut self) -> Result<(), TopologyError> {
        let other = |live: &Live| {
            let files = live.files.other.iter();
            files.map(|file| (live.about.name.clone(), file.clone())).collect::<Vec<_>>()
        };
        let others: Vec<_> = self.live.iter().flat_map(other).collect();
        others.iter().try_for_each(|(component, file)| self.write(component, file, &BTreeMap::new()))
    }

    fn write(
        &mut self,
        component: &str,
        file: &str,
        with: &BTreeMap<String, String>,
    ) -> Result<(), TopologyError> {
        let kind = self.topology.component(component).map(|component| &component.kind);
        let template = match kind {
            Some(Kind::Program(program)) => program.files.get(file),
            _ => None,
        };
        let place = self.live.iter().position(|live| live.about.name == component);
        let Some((template, place)) = template.zip(place) else {
            let what = format!("the component has no file `{file}`");
            return Err(TopologyError::value(&self.topology.name, format!("component `{component}`"), what));
        };
        let values = &self.live[place].files.values;
        let mut changed = values.clone();
        for (variable, value) in with {
            changed.insert(variable.clone(), self.fill_with(value, values, component)?);
        }
        let (first, text) =
            (self.fill_with(template, values, component)?, self.fill_with(template, &changed, component)?);
        let files = &mut self.live[place].files;
        files.replace(file, &text)?;
        if text == first {
            files.other.remove(file);
        } else {
            files.other.insert(file.to_owned());
        }
        Ok(())
    }

    /// Whether the component was ended on purpose and not started since.
    pub(crate) fn is_put_down(&self, component: &str) -> bool {
        self.live.iter().any(|live| live.about.name == component && live.put_down)
    }

    /// Endpoints where credentials of a token mode are revoked and checked. `None` if the topology
    /// does not describe them.
    pub(crate) fn site(&self, mode: Option<&str>) -> Result<Option<Site>, TopologyError> {
        let (Some(revocations), Some(tokens)) = (&self.topology.revocations, &self.topology.tokens) else {
            return Ok(None);
        };
        let wrong = |what: String| TopologyError::value(&self.topology.name, "revocations", what);
        let client = mode.and_then(|mode| tokens.mode.get(mode)?.client.as_deref());
        let client = client.ok_or_else(|| {
            wrong(format!(
                "token mode `{}` has no `client` that can get and revoke credentials",
                mode.unwrap_or("none")
            ))
        })?;
        let file = self.fill(tokens.secret_file.as_deref().unwrap_or_default())?;
        let secret = fs::read_to_string(&file);
        let secret = secret.map_err(|error| TopologyError::File { action: "read", path: file, error })?;
        let fields = |client: &str| client_fields(client, &secret).map_err(wrong);
        let trust = tokens.insecure.then_some(Trust::Anything);
        let endpoint = |url: &String| {
            let target = Target::new(&self.fill(url)?, Protocol::Http1, trust.as_ref(), None, None);
            target.map_err(|error| wrong(error.to_string()))
        };
        let endpoints =
            |urls: &mut dyn Iterator<Item = &String>| urls.map(endpoint).collect::<Result<Vec<_>, _>>();
        let issue = if revocations.issue.is_empty() {
            endpoints(&mut tokens.url.iter())?
        } else {
            endpoints(&mut revocations.issue.iter())?
        };
        Ok(Some(Site {
            issue,
            revoke: endpoints(&mut revocations.revoke.iter())?,
            client: fields(client)?,
            lists: endpoints(&mut revocations.lists.iter())?,
            operator: revocations.operator.as_deref().map(fields).transpose()?,
            places: self.places(revocations, &endpoint, &fields)?,
        }))
    }

    fn places(
        &self,
        revocations: &Revocations,
        endpoint: &dyn Fn(&String) -> Result<Target, TopologyError>,
        fields: &dyn Fn(&str) -> Result<http::HeaderMap, TopologyError>,
    ) -> Result<Vec<Place>, TopologyError> {
        let place = |place: &super::description::WatchedPlace| {
            let (target, question) = match (&place.url, &place.introspection) {
                (Some(url), _) => (self.target(url, None, Protocol::Http1)?, Question::Request),
                (None, url) => {
                    let client = revocations.introspecting_client.as_deref().unwrap_or_default();
                    let target = endpoint(url.as_ref().unwrap_or(&String::new()))?;
                    (target, Question::Introspection(fields(client)?))
                }
            };
            Ok(Place { node: place.node.clone(), cluster: place.cluster.clone(), target, question })
        };
        revocations.place.iter().map(place).collect()
    }
}

fn number(signal: Signalled) -> Signal {
    match signal {
        Signalled::Stop => Signal::STOP,
        Signalled::Cont => Signal::CONT,
        Signalled::Kill => Signal::KILL,
        Signalled::Term => Signal::TERM,
        Signalled::Hup => Signal::HUP,
    }
}
