//! Failure log: sign-ins and grants that failed, on their way to the audit log.
//!
//! Owns: which groups of entries are written ([`AuditEvents`]); counting of equal failures. Does
//! not own: writing ([`crate::maintenance`]), what counts as a failure.
//!
//! Anyone can cause failures, as many as they like. So a failure is counted in memory, and no
//! request writes one. Once a second the maintenance writes what is new. The same failure again
//! within a minute is counted, and the count is one entry at the end of that minute. Entries of a
//! minute and remembered failures have limits, and what exceeds them is one entry with a count.
//!
//! A name that no account has is not recorded: users type passwords there. Those attempts are
//! counted by network. Known and unknown names take the same steps, so their responses take the
//! same time.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::Duration,
};

use auth::time::Timestamp;
use parking_lot::Mutex;
use store::audit::AuditEntry;

use crate::audit_draft::{AuditDraft, Subject};
use crate::passwords::lockout::Network;

/// Action of a sign-in that failed.
pub(crate) const LOGIN_FAILURE: &str = "login.failure";
/// Action of a lock that began after failures.
pub(crate) const LOGIN_LOCK: &str = "login.lock";
/// Action of a request for a reset link that leads to no mail.
pub(crate) const RESET_REFUSE: &str = "reset.refuse";
/// Action of a token request that was refused.
pub(crate) const GRANT_REFUSE: &str = "grant.refuse";

/// How long equal failures are counted before the next entry.
const WINDOW: Duration = Duration::from_mins(1);
/// Most entries in one window.
const MAX_ENTRIES: u32 = 300;
/// Most failures that are remembered at once.
const MAX_REMEMBERED: usize = 10_000;
/// Most entries that wait for a database that takes no changes.
const MAX_UNWRITTEN: usize = 1_000;

/// Which groups of entries are written to the audit log. Changes by operators and users,
/// revocations, and secrets that are redeemed twice are always written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a group of its own")]
pub struct AuditEvents {
    /// Sign-ins, failed sign-ins, locks, sign-outs.
    pub logins: bool,
    /// Consents that users give or deny, and decisions about devices.
    pub consents: bool,
    /// Grants that are issued to clients, and token requests that are refused.
    pub grants: bool,
    /// Each refresh of a grant.
    pub refreshes: bool,
    /// Each token that a client gets for itself.
    pub client_credentials: bool,
}

impl Default for AuditEvents {
    fn default() -> Self {
        Self { logins: true, consents: true, grants: true, refreshes: false, client_credentials: false }
    }
}

/// A failure. Failures that are equal but for their address and time are counted together.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) action: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) user: Option<Subject>,
    pub(crate) client: Option<Subject>,
    pub(crate) address: IpAddr,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    action: &'static str,
    reason: &'static str,
    user: Option<String>,
    client: Option<String>,
    /// Refused grants are counted by client, wherever its nodes are.
    network: Option<Network>,
}

impl Key {
    fn of(failure: &Failure) -> Self {
        let id = |subject: &Option<Subject>| subject.as_ref().map(|subject| subject.id.clone());
        Self {
            action: failure.action,
            reason: failure.reason,
            user: id(&failure.user),
            client: id(&failure.client),
            network: (failure.action != GRANT_REFUSE).then(|| Network::of(failure.address)),
        }
    }
}

struct Counted {
    failure: Failure,
    /// Failures without an entry so far.
    count: u32,
    last_at: Timestamp,
    /// When an entry was last taken; `None`: there is none yet.
    taken_at: Option<Timestamp>,
}

#[derive(Default)]
struct State {
    counted: HashMap<Key, Counted>,
    /// Failures beyond the limits, by action.
    beyond: BTreeMap<&'static str, u32>,
    /// Begin of the window in which `entries` are counted.
    window: Option<Timestamp>,
    entries: u32,
    unwritten: Vec<AuditEntry>,
}

/// Failures that are not in the audit log yet.
pub(crate) struct FailureLog {
    events: AuditEvents,
    state: Mutex<State>,
}

impl FailureLog {
    pub(crate) fn new(events: AuditEvents) -> Self {
        Self { events, state: Mutex::default() }
    }

    /// Which groups of entries are written.
    pub(crate) fn events(&self) -> AuditEvents {
        self.events
    }

    /// Counts a failure, if its group is written.
    pub(crate) fn record(&self, failure: Failure, now: Timestamp) {
        let is_written = if failure.action == GRANT_REFUSE { self.events.grants } else { self.events.logins };
        if !is_written {
            return;
        }
        let mut state = self.state.lock();
        let key = Key::of(&failure);
        if let Some(counted) = state.counted.get_mut(&key) {
            counted.count = counted.count.saturating_add(1);
            (counted.last_at, counted.failure.address) = (now, failure.address);
        } else if state.counted.len() < MAX_REMEMBERED {
            state.counted.insert(key, Counted { failure, count: 1, last_at: now, taken_at: None });
        } else {
            *state.beyond.entry(failure.action).or_default() += 1;
        }
    }

    /// The entries to write now. With `all` also those that would wait for the end of their window.
    pub(crate) fn take(&self, now: Timestamp, all: bool) -> Vec<AuditEntry> {
        let mut state = self.state.lock();
        let mut entries = std::mem::take(&mut state.unwritten);
        let State { counted, beyond, window, entries: taken, .. } = &mut *state;
        let is_over = |begin: Timestamp| now.since(begin) >= WINDOW;
        if window.is_none_or(is_over) {
            let is_next = window.is_some();
            (*window, *taken) = (Some(now), 0);
            if is_next && !all {
                entries.extend(
                    std::mem::take(beyond).into_iter().map(|(action, count)| rest(action, count, now)),
                );
            }
        }
        for counted in counted.values_mut() {
            if counted.count == 0 || !(all || counted.taken_at.is_none_or(is_over)) {
                continue;
            }
            if *taken < MAX_ENTRIES || all {
                *taken += 1;
                entries.push(entry(counted));
            } else {
                *beyond.entry(counted.failure.action).or_default() += counted.count;
            }
            (counted.count, counted.taken_at) = (0, Some(now));
        }
        entries.sort_by_key(|entry| entry.at);
        counted.retain(|_, counted| counted.count > 0 || counted.taken_at.is_some_and(|at| !is_over(at)));
        if all {
            entries
                .extend(std::mem::take(beyond).into_iter().map(|(action, count)| rest(action, count, now)));
        }
        entries
    }

    /// Takes back entries that could not be written.
    pub(crate) fn restore(&self, entries: Vec<AuditEntry>) {
        let mut state = self.state.lock();
        let room = MAX_UNWRITTEN.saturating_sub(state.unwritten.len());
        if entries.len() > room {
            tracing::warn!(
                entries = entries.len() - room,
                "failed sign-ins and grants not recorded, database takes no changes"
            );
        }
        state.unwritten.extend(entries.into_iter().take(room));
    }
}

fn entry(counted: &Counted) -> AuditEntry {
    let Counted { failure, count, last_at, .. } = counted;
    let network = format!("network:{}", Network::of(failure.address));
    let (actor, target) = match (&failure.client, &failure.user) {
        (Some(client), user) if failure.action == GRANT_REFUSE => {
            let client = format!("client:{}", client.id);
            (client.clone(), user.as_ref().map_or(client, |user| format!("user:{}", user.id)))
        }
        (_, Some(user)) => ("anonymous".to_owned(), format!("user:{}", user.id)),
        (_, None) => ("anonymous".to_owned(), network),
    };
    AuditDraft::new(actor, failure.action, target, *last_at)
        .user(failure.user.as_ref())
        .client(failure.client.as_ref())
        .with("reason", failure.reason)
        .with("address", failure.address.to_string())
        .with("count", *count)
        .finish()
}

/// The entry for failures beyond the limits.
fn rest(action: &str, count: u32, now: Timestamp) -> AuditEntry {
    AuditDraft::new("anonymous", action, "provider", now)
        .with("reason", "too many different failures to list each")
        .with("count", count)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    fn failure(user: Option<usize>, last: u8) -> Failure {
        Failure {
            action: LOGIN_FAILURE,
            reason: "wrong_password",
            user: user.map(|n| Subject { id: format!("u{n}"), name: format!("n{n}") }),
            client: None,
            address: IpAddr::from([192, 0, 2, last]),
        }
    }

    fn counts(entries: &[AuditEntry]) -> Vec<u64> {
        let count = |entry: &AuditEntry| {
            let detail: serde_json::Value = serde_json::from_str(&entry.detail).unwrap();
            detail["count"].as_u64().unwrap()
        };
        entries.iter().map(count).collect()
    }

    #[test]
    fn equal_failures_of_a_minute_are_two_entries() {
        let log = FailureLog::new(AuditEvents::default());
        log.record(failure(Some(1), 1), NOW);
        assert_eq!(counts(&log.take(NOW, false)), [1]);
        for second in 1..=20 {
            log.record(failure(Some(1), 1), NOW.plus(Duration::from_secs(second)));
        }
        assert_eq!(log.take(NOW.plus(Duration::from_secs(30)), false), []);
        let entries = log.take(NOW.plus(WINDOW), false);
        assert_eq!(counts(&entries), [20]);
        assert_eq!(entries[0].at, NOW.plus(Duration::from_secs(20)));
        assert_eq!((entries[0].target.as_str(), entries[0].user_id.as_deref()), ("user:u1", Some("u1")));
        assert_eq!(log.take(NOW.plus(WINDOW * 2), false), []);
        assert!(log.state.lock().counted.is_empty(), "nothing is remembered for longer");
        log.record(failure(Some(1), 1), NOW.plus(WINDOW * 2));
        log.record(failure(Some(1), 2), NOW.plus(WINDOW * 2));
        assert_eq!(counts(&log.take(NOW.plus(WINDOW * 2), false)), [1, 1], "another network");
    }

    #[test]
    fn a_flood_is_bounded_and_counted() {
        let log = FailureLog::new(AuditEvents::default());
        let flood = MAX_REMEMBERED + 500;
        for user in 0..flood {
            log.record(failure(Some(user), 1), NOW);
        }
        let first = log.take(NOW, false);
        assert_eq!(first.len(), MAX_ENTRIES as usize);
        assert_eq!(log.take(NOW.plus(Duration::from_secs(1)), false), []);
        let rest = log.take(NOW.plus(WINDOW), false);
        assert_eq!(counts(&rest), [(flood - MAX_ENTRIES as usize) as u64]);
        assert_eq!((rest[0].target.as_str(), &rest[0].user_id), ("provider", &None));
        // Unknown names of one network are one failure.
        for _ in 0..flood {
            log.record(failure(None, 1), NOW.plus(WINDOW * 3));
        }
        let unknown = log.take(NOW.plus(WINDOW * 3), false);
        assert_eq!(counts(&unknown), [flood as u64]);
        assert_eq!(unknown[0].target, "network:192.0.2.1/32");
    }

    #[test]
    fn what_is_not_written_waits_and_a_group_may_be_off() {
        let log = FailureLog::new(AuditEvents::default());
        log.record(failure(None, 1), NOW);
        let entries = log.take(NOW, false);
        log.restore(entries.clone());
        assert_eq!(log.take(NOW, false), entries);
        log.record(failure(None, 1), NOW);
        assert_eq!(counts(&log.take(NOW, true)), [1], "a process that ends writes all");
        let silent = FailureLog::new(AuditEvents { logins: false, ..AuditEvents::default() });
        silent.record(failure(None, 1), NOW);
        silent.record(Failure { action: GRANT_REFUSE, ..failure(None, 1) }, NOW);
        assert_eq!(silent.take(NOW, true).len(), 1);
    }
}
