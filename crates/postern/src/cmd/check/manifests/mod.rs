//! Manifests of a Kubernetes cluster: what a process with the configuration would make of them, and
//! what it would tell the cluster about each object.
//!
//! Owns: reading files, what is assumed about objects that only the cluster has, wording and the JSON
//! form. Does not own: conditions and routes, which are those of the code that serves (`controller`,
//! `cluster`).
//!
//! Flow: files → [`objects`] → [`state`] (with [`assumptions`]) → conditions, faults and routes.

mod assumptions;
mod conditions;
mod faults;
mod files;
mod finding;
mod lookup;
mod node;
mod objects;
mod routes;
mod state;
mod text;

use std::path::PathBuf;

use auth::time::Timestamp;
use cluster::policy::BodyChecker;
use config::LoadedConfig;
use controller::names::Interner;
use gateway::config::Routing;
use serde::Serialize;

use self::conditions::ObjectStatus;
use self::finding::{Finding, Importance};
pub(super) use self::lookup::{GatewayLookup, Place};
use self::objects::Namespaces;
use self::routes::RouteRow;
use self::state::State;
use crate::exit::Failure;

/// What follows from manifests.
#[derive(Serialize)]
pub(super) struct Manifests {
    /// Whether no finding is an error.
    valid: bool,
    /// Number of objects that were read.
    count: usize,
    findings: Vec<Finding>,
    /// What the cluster would be told about each object.
    objects: Vec<ObjectStatus>,
    routes: Vec<RouteRow>,
    #[serde(skip)]
    state: State,
}

/// Reads and checks manifests. `namespace` is that of objects that name none.
///
/// # Errors
/// Returns a failure if a file cannot be read, or the configuration has no table for a cluster.
pub(super) fn check(
    loaded: &LoadedConfig,
    paths: &[PathBuf],
    namespace: &str,
    now: Timestamp,
) -> Result<Manifests, Failure> {
    let settings = loaded.gateway_api.as_ref().ok_or_else(|| {
        Failure::usage(
            "-f: the configuration has no table `[gateway_api]`, so no process with it reads objects",
        )
    })?;
    let mut findings = Vec::new();
    let written = files::read(paths, &mut findings)?;
    let mut interner = Interner::default();
    let namespaces = Namespaces { default: namespace, served: &settings.namespaces };
    let bodies = BodyChecker::new(loaded.route_checker.clone());
    let check = |body: &_| bodies.check_fields(body, now);
    let objects = objects::read(written, &namespaces, &check, &mut interner, &mut findings);
    let state = state::derive(loaded, settings, &objects, &mut interner, (&bodies, now))?;
    let list = conditions::collect(&state, &objects, &mut findings);
    faults::collect(&state, &objects, settings, &mut findings);
    findings.extend(state.assumptions.notes.iter().map(|note| Finding::note(note.clone())));
    findings.sort_by_key(|one| (one.severity, one.place.is_none(), one.place.clone()));
    findings.dedup();
    Ok(Manifests {
        valid: findings.iter().all(|finding| finding.severity != Importance::Error),
        count: objects.written.len(),
        findings,
        objects: list,
        routes: routes::collect(&state),
        state,
    })
}

impl Manifests {
    /// Whether the cluster would be told of no fault.
    pub(super) fn is_valid(&self) -> bool {
        self.valid
    }

    /// The routes of the file and of the manifests.
    pub(super) fn routing(&self) -> Routing {
        self.state.compiled.routing.clone()
    }

    /// The findings for a terminal.
    pub(super) fn findings(&self) -> String {
        self.findings.iter().map(|finding| format!("{finding}\n")).collect::<Vec<_>>().concat()
    }

    /// Conditions and routes for a terminal.
    pub(super) fn text(&self) -> String {
        text::text(self)
    }

    /// How many objects and findings there are.
    pub(super) fn summary(&self) -> String {
        text::summary(self)
    }
}
