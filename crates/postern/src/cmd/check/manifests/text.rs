//! Manifests for people: conditions, a table of routes, and the sum.

use std::fmt::Write as _;

use comfy_table::{Attribute, Cell, Color};

use super::Manifests;
use super::conditions::{Condition, ObjectStatus, StatusPart};
use super::finding::Importance;
use super::routes::{Access, RouteRow};
use crate::cmd::check::overview::new_table;
use crate::terminal::{BOLD, DIM, ERROR, SUCCESS};

/// Conditions and routes, styled with ANSI escapes.
pub(super) fn text(manifests: &Manifests) -> String {
    let mut out = String::new();
    for object in &manifests.objects {
        // Writing to a string cannot fail.
        let _ = write_object(&mut out, object);
    }
    if !manifests.routes.is_empty() {
        let _ = writeln!(out, "{}", table(&manifests.routes));
    }
    out
}

fn write_object(out: &mut String, object: &ObjectStatus) -> std::fmt::Result {
    let place = object.place.as_ref().map(ToString::to_string).unwrap_or_default();
    writeln!(out, "{BOLD}{}{BOLD:#}  {DIM}{place}{DIM:#}", object.key)?;
    for part in &object.parts {
        let pad = if part.about.is_some() { 4 } else { 2 };
        if let Some(about) = &part.about {
            writeln!(out, "  {about}{}", attached(part))?;
        }
        // That something bad is not the case is not worth a word.
        let good = part.conditions.iter().filter(|one| one.is_good && one.status);
        let good: Vec<String> = good.map(said).collect();
        if !good.is_empty() {
            writeln!(out, "{:pad$}{SUCCESS}✓{SUCCESS:#} {}", "", good.join(", "))?;
        }
        for bad in part.conditions.iter().filter(|one| !one.is_good) {
            let colon = if bad.message.is_empty() { "" } else { ": " };
            let (said, reason) = (said(bad), &bad.reason);
            writeln!(out, "{:pad$}{ERROR}✗{ERROR:#} {said} {reason}{colon}{}", "", bad.message)?;
        }
    }
    Ok(())
}

fn attached(part: &StatusPart) -> String {
    match part.attached_routes {
        None => String::new(),
        Some(1) => ", 1 route".to_owned(),
        Some(count) => format!(", {count} routes"),
    }
}

/// The type of a condition, with `not` before it if it is false.
fn said(condition: &Condition) -> String {
    let name = condition.of_type.rsplit('/').next().unwrap_or_default();
    if condition.status { name.to_owned() } else { format!("not {name}") }
}

fn table(rows: &[RouteRow]) -> comfy_table::Table {
    let mut table = new_table(["route", "listener", "requests", "who may", "backends"]);
    for row in rows {
        let mut requests = if row.hosts.is_empty() { vec!["any host".to_owned()] } else { row.hosts.clone() };
        requests.extend(row.requests.iter().cloned());
        let by = if row.policy.starts_with("none") { "policy:" } else { "by" };
        let who = Cell::new([&row.who_may[..], &[format!("{by} {}", row.policy)]].concat().join("\n"));
        table.add_row([
            Cell::new(&row.rule).add_attribute(Attribute::Bold),
            Cell::new(&row.listener),
            Cell::new(requests.join("\n")),
            match row.access {
                Access::Public => who.fg(Color::Yellow),
                Access::Closed => who.fg(Color::Red),
                Access::Protected => who,
            },
            Cell::new(row.backends.join("\n")),
        ]);
    }
    table
}

/// How many findings there are of each importance.
pub(super) fn summary(manifests: &Manifests) -> String {
    let count = |severity: Importance, word: &str| {
        let count = manifests.findings.iter().filter(|one| one.severity == severity).count();
        (count > 0).then(|| format!("{count} {word}{}", if count == 1 { "" } else { "s" }))
    };
    let counts = [
        count(Importance::Error, "error"),
        count(Importance::Warning, "warning"),
        count(Importance::Note, "note"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let objects = manifests.count;
    let objects = format!("{objects} object{}", if objects == 1 { "" } else { "s" });
    if counts.is_empty() { objects } else { format!("{objects}, {}", counts.join(", ")) }
}
