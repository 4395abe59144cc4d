//! What is done to a topology while load lasts.
//!
//! Owns: signals to components and starting them anew, and where credentials are revoked and asked about. Does not own: when it happens.

use std::fs;
use std::io;

use rustix::process::Signal;
use serde::Deserialize;

use super::TopologyError;
use super::description::Revocations;
use super::running::{Running, wait_until_ready};
use crate::fetch::client_fields;
use crate::load::{Protocol, Target, Trust};
use crate::revoke::{Place, Question, Site};

/// Something that is done to a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// It is sent a signal.
    Signal(Signalled),
    /// It is ended where it still runs, and started again.
    Restart,
}

/// A signal, by its name without `SIG`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signalled {
    /// It and all it started stand still.
    Stop,
    /// They go on.
    Cont,
    /// They end at once.
    Kill,
    /// It is asked to end.
    Term,
    /// It is asked to read its configuration again.
    Hup,
}

impl Act {
    /// In words, for whoever reads what happened.
    pub fn words(self, component: &str) -> String {
        match self {
            Self::Signal(signal) => format!("SIG{} to `{component}`", format!("{signal:?}").to_uppercase()),
            Self::Restart => format!("restart of `{component}`"),
        }
    }
}

impl Running {
    /// Does something to a component; returns when it is done, after a start when it is ready.
    pub(crate) fn act(&mut self, component: &str, act: Act) -> Result<(), TopologyError> {
        let interrupt = self.interrupt.clone();
        let live = self.live.iter_mut().find(|live| live.about.name == component);
        let failed = |error: io::Error| TopologyError::Act { what: act.words(component), error };
        let missing = || failed(io::Error::new(io::ErrorKind::NotFound, "it was not started here"));
        let Some(live) = live else { return Err(missing()) };
        let Some(process) = &mut live.process else { return Err(missing()) };
        match act {
            Act::Signal(signal) => {
                let everybody = matches!(signal, Signalled::Stop | Signalled::Cont | Signalled::Kill);
                live.put_down |= matches!(signal, Signalled::Kill | Signalled::Term);
                process.signal(number(signal), everybody).map_err(failed)
            }
            Act::Restart => {
                process.restart().map_err(failed)?;
                live.put_down = false;
                live.about.root.iter().for_each(|root| root.set(process.pid()));
                wait_until_ready(component, &live.ready, process, &interrupt)
            }
        }
    }

    /// Where credentials of a mode are revoked and asked about; `None` where the topology does not say.
    pub(crate) fn site(&self, mode: Option<&str>) -> Result<Option<Site>, TopologyError> {
        let (Some(revocations), Some(tokens)) = (&self.topology.revocations, &self.topology.tokens) else {
            return Ok(None);
        };
        let wrong = |what: String| TopologyError::value(&self.topology.name, "revocations", what);
        let client = mode.and_then(|mode| tokens.mode.get(mode)?.client.as_deref());
        let client = client.ok_or_else(|| {
            wrong(format!(
                "the token mode `{}` has no client that could get and revoke credentials",
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
                (Some(url), _) => (self.target(url, Protocol::Http1)?, Question::Request),
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
