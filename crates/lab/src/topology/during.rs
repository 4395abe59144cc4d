//! Actions on a running topology while load lasts.
//!
//! Owns: signals to components, restarts, delayed starts, stops, rewritten files, and the endpoints
//! where credentials are revoked and checked. Does not own: when an action happens.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use lab_load::fetch::client_auth_headers;
use lab_load::load::{Protocol, Target, Trust};
use lab_load::revoke::{ProbeMethod, ProbedPlace, RevocationSite};
use rustix::process::Signal;
use serde::Deserialize;

use super::TopologyError;
use super::description::{Kind, Revocations};
use super::running::Running;
use crate::topology::component::RunningComponent;

/// An action on a component during load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Sends a signal to the component.
    Signal(SignalName),
    /// Ends the component if it still runs, and starts it again.
    Restart,
    /// Starts a component that stands by.
    Start,
    /// Asks the component to end. It must end within this time, with exit code 0.
    End(Duration),
}

/// A component's file that is rewritten during load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRewrite {
    /// File name in the component's folder.
    pub file: String,
    /// Variables of the topology to replace in the file, with their new values.
    pub variables: BTreeMap<String, String>,
}

/// Name of a signal without `SIG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SignalName {
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

impl Action {
    /// Describes the action for a report.
    pub fn describe(self, component: &str) -> String {
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
    pub(crate) fn perform(&mut self, component: &str, act: Action) -> Result<(), TopologyError> {
        let interrupt = self.interrupt.clone();
        let failed = |error: io::Error| TopologyError::Act { action: act.describe(component), error };
        let missing = |message: &str| failed(io::Error::new(io::ErrorKind::NotFound, message));
        let live = self.components.iter_mut().find(|live| live.info.name == component);
        let Some(live) = live else { return Err(missing("the lab did not start it")) };
        if act == Action::Start {
            return if live.is_standby() {
                live.begin(&interrupt)
            } else {
                Err(missing("it is already running"))
            };
        }
        if live.is_standby() {
            return Err(missing("it is on standby: add an earlier event with `start = true`"));
        }
        let Some(process) = &mut live.process else { return Err(missing("the lab did not start it")) };
        match act {
            Action::Signal(signal) => {
                let everybody = matches!(signal, SignalName::Stop | SignalName::Cont | SignalName::Kill);
                live.stopped_on_purpose |= matches!(signal, SignalName::Kill | SignalName::Term);
                process.signal(signal_number(signal), everybody).map_err(failed)
            }
            Action::Restart => {
                process.restart().map_err(failed)?;
                live.wait(&interrupt)
            }
            Action::End(patience) => {
                if process.exit_status().is_some() {
                    return Err(missing("it has already ended"));
                }
                live.end(patience, &interrupt)
            }
            Action::Start => Ok(()),
        }
    }

    /// Rewrites a file of a component.
    pub(crate) fn rewrite_file(&mut self, component: &str, anew: &FileRewrite) -> Result<(), TopologyError> {
        self.write(component, &anew.file, &anew.variables)
    }

    /// Restores the original content of all files.
    pub(crate) fn restore_files(&mut self) -> Result<(), TopologyError> {
        let other = |live: &RunningComponent| {
            let files = live.files.changed.iter();
            files.map(|file| (live.info.name.clone(), file.clone())).collect::<Vec<_>>()
        };
        let others: Vec<_> = self.components.iter().flat_map(other).collect();
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
        let place = self.components.iter().position(|live| live.info.name == component);
        let Some((template, place)) = template.zip(place) else {
            let message = format!("the component has no file `{file}`");
            return Err(TopologyError::invalid_value(
                &self.topology.name,
                format!("component `{component}`"),
                message,
            ));
        };
        let values = &self.components[place].files.values;
        let mut changed = values.clone();
        for (variable, value) in with {
            changed.insert(variable.clone(), self.fill_with(value, values, component)?);
        }
        let (first, text) =
            (self.fill_with(template, values, component)?, self.fill_with(template, &changed, component)?);
        let files = &mut self.components[place].files;
        files.replace(file, &text)?;
        if text == first {
            files.changed.remove(file);
        } else {
            files.changed.insert(file.to_owned());
        }
        Ok(())
    }

    /// Whether the component was ended on purpose and not started since.
    pub(crate) fn is_stopped_on_purpose(&self, component: &str) -> bool {
        self.components.iter().any(|live| live.info.name == component && live.stopped_on_purpose)
    }

    /// Endpoints where credentials of a token mode are revoked and checked. `None` if the topology
    /// does not describe them.
    pub(crate) fn revocation_site(
        &self,
        mode: Option<&str>,
    ) -> Result<Option<RevocationSite>, TopologyError> {
        let (Some(revocations), Some(tokens)) = (&self.topology.revocations, &self.topology.tokens) else {
            return Ok(None);
        };
        let wrong =
            |message: String| TopologyError::invalid_value(&self.topology.name, "revocations", message);
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
        let fields = |client: &str| client_auth_headers(client, &secret).map_err(wrong);
        let trust = tokens.insecure.then_some(Trust::AnyCertificate);
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
        Ok(Some(RevocationSite {
            issue,
            revoke: endpoints(&mut revocations.revoke.iter())?,
            client: fields(client)?,
            bulk_revoke: endpoints(&mut revocations.lists.iter())?,
            operator: revocations.operator.as_deref().map(fields).transpose()?,
            places: self.places(revocations, &endpoint, &fields)?,
        }))
    }

    fn places(
        &self,
        revocations: &Revocations,
        endpoint: &dyn Fn(&String) -> Result<Target, TopologyError>,
        fields: &dyn Fn(&str) -> Result<http::HeaderMap, TopologyError>,
    ) -> Result<Vec<ProbedPlace>, TopologyError> {
        let place = |place: &super::description::RevocationProbe| {
            let (target, question) = match (&place.url, &place.introspection) {
                (Some(url), _) => (self.target(url, None, Protocol::Http1)?, ProbeMethod::Request),
                (None, url) => {
                    let client = revocations.introspecting_client.as_deref().unwrap_or_default();
                    let target = endpoint(url.as_ref().unwrap_or(&String::new()))?;
                    (target, ProbeMethod::Introspection(fields(client)?))
                }
            };
            Ok(ProbedPlace {
                node: place.node.clone(),
                cluster: place.cluster.clone(),
                target,
                method: question,
            })
        };
        revocations.place.iter().map(place).collect()
    }
}

fn signal_number(signal: SignalName) -> Signal {
    match signal {
        SignalName::Stop => Signal::STOP,
        SignalName::Cont => Signal::CONT,
        SignalName::Kill => Signal::KILL,
        SignalName::Term => Signal::TERM,
        SignalName::Hup => Signal::HUP,
    }
}
