//! Overview of what a configuration means: one line for each setting, and one row for each route.
//!
//! Owns: both output forms. The text is for people; the JSON has the same sentences, so that
//! a program that reads it can quote them. Does not own: the configuration and its checks.

mod routes;
mod settings;

use std::fmt::Write as _;

use config::LoadedConfig;
use serde::Serialize;

use crate::cmd::check::overview::routes::RouteRow;
pub(super) use crate::cmd::check::overview::routes::{new_table, who_may};
use crate::cmd::check::overview::settings::Setting;
use crate::terminal::{BOLD, DIM};

/// What a configuration means.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    /// Listeners, issuers, upstreams and so on, in the order in which requests meet them.
    settings: Vec<Setting>,
    /// The routes, in the order of the file.
    routes: Vec<RouteRow>,
}

impl Overview {
    pub(super) fn new(loaded: &LoadedConfig) -> Self {
        Self { settings: settings::describe(loaded), routes: routes::describe(loaded) }
    }

    /// The text, styled with ANSI escapes. The caller removes them where they are not wanted.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for Setting { kind, name, text } in &self.settings {
            let gap = if name.is_empty() { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{DIM}{kind:<10}{DIM:#} {BOLD}{name}{BOLD:#}{gap}{text}");
        }
        if !self.routes.is_empty() {
            let _ = writeln!(out, "{}", routes::table(&self.routes));
        }
        out
    }
}
