//! Checks `[provider.audit]` and `[[provider.audit_receiver]]`: the groups of entries, how long they
//! are kept, and who receives the audit log.

use std::path::Path;
use std::time::Duration;

use idp::AuditEvents;
use idp::audit_receivers::{AuditDestination, AuditFormat, AuditReceiver};

use super::super::super::fault::KeyPath;
use super::super::super::raw::{self, AuditEvent};
use super::super::super::scalar::Timespan;
use super::super::{Context, check_unique};
use super::receivers;

/// Shortest time for which entries are kept: they expire once a day.
const SHORTEST_KEEP: Duration = Duration::from_hours(24);

/// The groups of entries.
pub(super) fn events(raw: &raw::Audit) -> AuditEvents {
    let has = |event| raw.events.contains(&event);
    AuditEvents {
        logins: has(AuditEvent::Logins),
        consents: has(AuditEvent::Consents),
        grants: has(AuditEvent::Grants),
        refreshes: has(AuditEvent::Refreshes),
        client_credentials: has(AuditEvent::ClientCredentials),
    }
}

/// How long entries are kept; `None`: for ever.
pub(super) fn keep(raw: &raw::Audit, path: &KeyPath, context: &mut Context<'_>) -> Option<Duration> {
    let Timespan(keep) = raw.keep.0?;
    if keep < SHORTEST_KEEP {
        let message = format!("{} is too short", raw.keep);
        let hint = "write at least \"1d\", or \"unlimited\"; to record less, name fewer `events`";
        context.faults.add(&path.key("keep"), message, hint);
    }
    Some(keep)
}

/// The receivers that have no fault.
pub(super) fn receivers(
    raw: &raw::Provider,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Vec<AuditReceiver> {
    let all = raw.audit_receiver.iter().enumerate();
    let all: Vec<(KeyPath, &raw::AuditReceiver)> =
        all.map(|(at, one)| (path.key("audit_receiver").index(at), one)).collect();
    let names = all.iter().map(|(path, one)| (path.clone(), &one.name));
    check_unique(names, "audit receivers", &mut context.faults);
    all.iter().filter_map(|(path, raw)| read_receiver(raw, path, context)).collect()
}

fn read_receiver(
    raw: &raw::AuditReceiver,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<AuditReceiver> {
    let destination = match (&raw.file, &raw.endpoint) {
        (Some(file), None) => to_file(raw, file, path, context)?,
        (None, Some(endpoint)) => {
            let is_valid = receivers::is_endpoint_valid(endpoint, &path.key("endpoint"), context);
            let token_file = raw.endpoint_token_file.as_deref();
            let bearer = receivers::token(token_file, "endpoint_token_file", path, context)?;
            let format = match raw.format {
                raw::AuditFormat::JsonLines => AuditFormat::JsonLines,
                raw::AuditFormat::JsonArray => AuditFormat::JsonArray,
            };
            is_valid.then(|| AuditDestination::Endpoint { url: endpoint.clone(), bearer, format })?
        }
        (Some(_), Some(_)) => {
            let hint = "keep one of them; a second receiver may have the other";
            context.faults.add(&path.key("endpoint"), "`file` and `endpoint` exclude each other", hint);
            return None;
        }
        (None, None) => {
            let hint = "write `file = \"/var/log/postern/audit.jsonl\"`, or an `endpoint`";
            context.faults.add(path, "missing key `file` or `endpoint`", hint);
            return None;
        }
    };
    Some(AuditReceiver { name: raw.name.0.clone(), destination })
}

fn to_file(
    raw: &raw::AuditReceiver,
    file: &Path,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> Option<AuditDestination> {
    if raw.endpoint_token_file.is_some() {
        let message = "the key has no effect: entries are written to a file";
        context.faults.add(&path.key("endpoint_token_file"), message, "remove it, or `file`");
    }
    if raw.format != raw::AuditFormat::JsonLines {
        let message = "a file has one JSON object per line";
        context.faults.add(&path.key("format"), message, "remove the key");
    }
    if file.as_os_str().is_empty() || file.as_os_str().as_encoded_bytes().ends_with(b"/") {
        let message = format!("{:?} is not a file", file.display().to_string());
        context.faults.add(&path.key("file"), message, "write the path of a file");
        return None;
    }
    Some(AuditDestination::File(context.reader.resolve(file)))
}
