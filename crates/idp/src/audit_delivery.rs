//! Delivery of the audit log to its receivers.
//!
//! Owns: the choice of the node that delivers, order, retries, the file. Does not own: the receivers
//! ([`crate::audit_receivers`]), the format of an entry ([`crate::admin::audit`]), positions (the
//! store).
//!
//! Flow: `maintenance: deliver → TakeAuditReceiver → entries after its position → file or POST →
//! ReleaseAuditReceiver`.
//!
//! Each receiver gets every entry at least once, in the order of the log. One node delivers to a
//! receiver at a time. The position moves when the receiver has confirmed, or when the lines of a
//! file are on disk. After a crash between the two, the entries are sent again; their `seq` shows
//! it. No entry is given up before it expires ([`crate::audit_retention`]).

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use store::{
    StoreError,
    audit::{AuditFilter, AuditRecord},
    audit_receivers::{ReleaseAuditReceiver, TakeAuditReceiver},
    security_events::{ReleaseReceiver, TakeReceiver},
};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::admin::audit::AuditEntry;
use crate::audit_receivers::{AuditDestination, AuditFormat, AuditReceiver};
use crate::provider::{PostRequest, Provider};

/// How long one node holds a receiver.
const HOLD_TIME: Duration = Duration::from_mins(1);
/// How long of that time it starts deliveries; one in progress then ends before the hold does.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Most entries in one body.
const BATCH: u32 = 200;
/// Most bytes in one body, unless a single entry is longer.
const MAX_BODY: usize = 256 * 1024;
/// Pause after the first failure; doubled by each further one.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest pause between attempts.
const LAST_RETRY: Duration = Duration::from_mins(5);
/// Permissions of a new file: it names users and their addresses.
const FILE_MODE: u32 = 0o640;

/// Delivers pending entries to all receivers.
pub(crate) async fn deliver(provider: &Arc<Provider>) -> Result<(), StoreError> {
    let mut under_way = JoinSet::new();
    for receiver in &provider.audit_receivers().all {
        let (provider, receiver) = (provider.clone(), receiver.clone());
        under_way.spawn(async move { deliver_to(&provider, &receiver).await });
    }
    under_way.join_all().await.into_iter().collect()
}

async fn deliver_to(provider: &Provider, receiver: &AuditReceiver) -> Result<(), StoreError> {
    let (store, name) = (provider.store(), &receiver.name);
    let Some(state) = store.audit_receiver(name).await? else { return Ok(()) };
    provider.audit_receivers().record_lag(name, state.head.saturating_sub(state.seq));
    if state.head <= state.seq || provider.now() < state.due_at {
        return Ok(());
    }
    let take = TakeReceiver { receiver: name.clone(), lease: HOLD_TIME, now: provider.now() };
    let Some(taken) = store.write(TakeAuditReceiver(take)).await? else { return Ok(()) };
    let began = Instant::now();
    let (mut position, mut has_failed) = (taken.seq, false);
    while began.elapsed() < SEND_TIME {
        let entries = store.audit_entries(&AuditFilter::default(), position, BATCH).await?;
        if entries.is_empty() {
            break;
        }
        let batch = Batch::of(entries);
        let count = batch.count;
        let result = send(provider, receiver, &batch).await.map(|()| count);
        provider.audit_receivers().record_attempt(name, &result);
        if result.is_err() {
            has_failed = true;
            break;
        }
        position = batch.last;
    }
    let failures = match (has_failed, position > taken.seq) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => taken.failures.saturating_add(1),
    };
    let pause = match failures {
        0 => Duration::ZERO,
        failures => (FIRST_RETRY * 2_u32.saturating_pow((failures - 1).min(20))).min(LAST_RETRY),
    };
    let release = ReleaseReceiver {
        receiver: name.clone(),
        from: taken.seq,
        to: position,
        failures,
        due_at: provider.now().plus(pause),
    };
    store.write(ReleaseAuditReceiver(release)).await?;
    provider.audit_receivers().record_lag(name, state.head.saturating_sub(position));
    Ok(())
}

/// Consecutive entries that are sent together.
struct Batch {
    /// One JSON object each.
    objects: Vec<String>,
    /// Number of the last entry.
    last: u64,
    count: u64,
}

impl Batch {
    /// As many of the entries, which are at least one, as fit into a body.
    fn of(entries: Vec<AuditRecord>) -> Self {
        let (mut objects, mut last, mut bytes) = (Vec::with_capacity(entries.len()), 0, 0);
        for recorded in entries {
            let seq = recorded.seq;
            // Texts and numbers can always be serialized.
            let object = serde_json::to_string(&AuditEntry::from(recorded)).unwrap_or_default();
            bytes += object.len() + 1;
            if bytes > MAX_BODY && !objects.is_empty() {
                break;
            }
            objects.push(object);
            last = seq;
        }
        Self { count: objects.len() as u64, objects, last }
    }

    fn lines(&self) -> String {
        let mut lines = self.objects.join("\n");
        lines.push('\n');
        lines
    }

    fn array(&self) -> String {
        format!("[{}]", self.objects.join(","))
    }
}

/// Sends entries. The error is the reason for the log.
async fn send(provider: &Provider, receiver: &AuditReceiver, batch: &Batch) -> Result<(), String> {
    match &receiver.destination {
        AuditDestination::File(path) => {
            let (path, lines) = (path.clone(), batch.lines());
            let shown = path.display().to_string();
            let written = tokio::task::spawn_blocking(move || append(&path, &lines)).await;
            let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
            written.map_err(|error| {
                format!("{shown}: {error} (does the directory exist, and may this user write there?)")
            })
        }
        AuditDestination::Endpoint { url, bearer, format } => {
            let (content_type, body) = match format {
                AuditFormat::JsonLines => ("application/x-ndjson", batch.lines()),
                AuditFormat::JsonArray => ("application/json", batch.array()),
            };
            let authorization = Some(Zeroizing::new(format!("Bearer {}", *bearer.0)));
            let post = PostRequest { url: url.clone(), content_type, authorization, body };
            match provider.outbound().post(post).await {
                Ok(200..=299) => Ok(()),
                Ok(status) => Err(format!("responded with status {status}")),
                Err(why) => Err(why),
            }
        }
    }
}

/// Appends lines to a file and waits until they are on disk. The file is opened each time, so it may
/// be renamed at any time. A line that a crash has cut is ended first.
fn append(path: &Path, lines: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).read(true).mode(FILE_MODE).open(path)?;
    let mut text = String::new();
    let length = file.seek(SeekFrom::End(0))?;
    if length > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(lines);
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    if length > 0 {
        return Ok(());
    }
    // The name of a new file must be on disk too, or a crash loses the lines with the file.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_crash_has_cut_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        append(&path, "{\"seq\":1}\n").unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"se").unwrap();
        append(&path, "{\"seq\":2}\n").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"seq\":1}\n{\"se\n{\"seq\":2}\n");
    }

    #[test]
    fn a_body_has_a_limit_but_at_least_one_entry() {
        let entry = |seq: u64, length: usize| AuditRecord {
            seq,
            entry: store::audit::AuditEntry {
                detail: "x".repeat(length),
                ..store::audit::AuditEntry::new("a", "b", "c", auth::time::Timestamp::from_secs(1))
            },
            digest: store::StoredDigest([0; 32]),
        };
        let batch = Batch::of(vec![entry(1, MAX_BODY), entry(2, 1)]);
        assert_eq!((batch.count, batch.last), (1, 1));
        let batch = Batch::of(vec![entry(1, 1), entry(2, 1), entry(3, MAX_BODY)]);
        assert_eq!((batch.count, batch.last), (2, 2));
        assert_eq!(batch.lines().lines().count(), 2);
        let array: serde_json::Value = serde_json::from_str(&batch.array()).unwrap();
        assert_eq!((&array[0]["seq"], &array[1]["seq"]), (&1.into(), &2.into()));
    }
}
