//! How wrong passwords slow a guesser down.
//!
//! Owns: what one failure makes of a record, and whether a record lets the next attempt pass. Pure: records come
//! in and go out, the store keeps them, time is an argument.
//! Does not own: the verification, the rows, the answer 429 (the endpoint rounds `retry_after` up to seconds).
//!
//! Two records are asked before each attempt, and both count each failure:
//!
//! - the **account's**, found by the account the name resolves to, so that two spellings of a name are one;
//! - the **network's** ([`Network`]), with a higher threshold, which catches one caller that tries a few passwords
//!   on each of many accounts. Unknown users count here too.
//!
//! From the threshold on, each failure locks for twice as long as the one before, up to a cap. The cap is what a
//! stranger can cost an account's owner, who is locked out with him; that is why it is minutes, not days.
//! Failures are forgotten by halves: one half for every quiet period since the last failure or the end of its
//! lock. So a slow guesser is not back at zero by waiting once.
//!
//! A success deletes the account's record, not the network's: a guesser with one account of his own would
//! otherwise wash himself clean with it.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use auth::time::Timestamp;

/// Most failures before the first lock.
pub const MAX_THRESHOLD: u32 = 100_000;
/// Shortest first lock.
pub const MIN_DELAY: Duration = Duration::from_secs(1);
/// Longest lock and longest quiet period.
pub const MAX_DELAY: Duration = Duration::from_hours(24);

/// The failures of one account or network, as the store keeps them. No record means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Failures that are not forgotten yet.
    pub failures: u32,
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// Attempts are refused before this instant.
    pub locked_until: Timestamp,
}

/// Whether an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Gate {
    /// Verify the password.
    Allowed,
    /// Do not verify anything: not even the right password is right now.
    Locked {
        /// Time until the lock ends: more than nothing.
        retry_after: Duration,
    },
}

/// Why limits are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitFault {
    /// Threshold out of bounds.
    #[error("a lock after {0} wrong passwords: take 1 to {MAX_THRESHOLD}")]
    Threshold(u32),
    /// First lock out of bounds.
    #[error("a first lock of {} s: take {} s up to the longest lock", .0.as_secs_f64(), MIN_DELAY.as_secs())]
    Delay(Duration),
    /// Longest lock out of bounds.
    #[error("a longest lock of {} s: take at most {} s", .0.as_secs_f64(), MAX_DELAY.as_secs())]
    Cap(Duration),
    /// Quiet period out of bounds.
    #[error("wrong passwords forgotten after {} s: take {} to {} s", .0.as_secs_f64(), MIN_DELAY.as_secs(), MAX_DELAY.as_secs())]
    Quiet(Duration),
    /// The network would be locked before the account.
    #[error(
        "a network is locked after {network} wrong passwords, an account after {account}: take more for the network, many people share one"
    )]
    Order {
        /// The network's threshold.
        network: u32,
        /// The account's threshold.
        account: u32,
    },
}

/// When to lock and for how long, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    threshold: u32,
    delay: Duration,
    cap: Duration,
    quiet: Duration,
}

impl Limits {
    /// Lock with the `threshold`th failure for `delay`, twice as long with each further one, at most for `cap`;
    /// forget half of the failures for each `quiet` period without one.
    pub fn new(threshold: u32, delay: Duration, cap: Duration, quiet: Duration) -> Result<Self, LimitFault> {
        if !(1..=MAX_THRESHOLD).contains(&threshold) {
            return Err(LimitFault::Threshold(threshold));
        }
        if cap > MAX_DELAY {
            return Err(LimitFault::Cap(cap));
        }
        if !(MIN_DELAY..=cap).contains(&delay) {
            return Err(LimitFault::Delay(delay));
        }
        if !(MIN_DELAY..=MAX_DELAY).contains(&quiet) {
            return Err(LimitFault::Quiet(quiet));
        }
        Ok(Self { threshold, delay, cap, quiet })
    }

    /// For an account by default: from the 5th failure on, 10 s up to 15 min, halved every 15 min.
    pub const ACCOUNT: Self = Self {
        threshold: 5,
        delay: Duration::from_secs(10),
        cap: Duration::from_mins(15),
        quiet: Duration::from_mins(15),
    };
    /// For a network by default: from the 50th failure on, 10 s up to 15 min, halved every 15 min.
    pub const NETWORK: Self = Self { threshold: 50, ..Self::ACCOUNT };

    /// Failures of `record` that are not forgotten at `now`.
    fn remembered(&self, record: &Record, now: Timestamp) -> u32 {
        let rest = now.since(record.last.max(record.locked_until));
        let halvings = rest.as_millis() / self.quiet.as_millis();
        u32::try_from(halvings).ok().and_then(|h| record.failures.checked_shr(h)).unwrap_or(0)
    }

    /// The record after one more failure at `now`. A clock that went back forgets nothing.
    pub fn after_failure(&self, record: Option<&Record>, now: Timestamp) -> Record {
        let old = record.map(|r| (r, self.remembered(r, now))).filter(|&(_, failures)| failures > 0);
        let failures = old.map_or(0, |(_, failures)| failures).saturating_add(1);
        let (first, last, locked) = old
            .map_or((now, now, now), |(r, _)| (r.first.min(now), r.last.max(now), r.locked_until.max(now)));
        let locked_until = match failures.checked_sub(self.threshold) {
            // a failure of an attempt that was under way when the lock began shortens nothing
            Some(beyond) => locked.max(now.plus(self.doubled(beyond))),
            None => old.map_or(now, |(r, _)| r.locked_until),
        };
        Record { failures, first, last, locked_until }
    }

    /// Whether `record` says nothing any more, so that its row may be deleted.
    pub fn forgotten(&self, record: &Record, now: Timestamp) -> bool {
        now >= record.locked_until && self.remembered(record, now) == 0
    }

    /// `delay` × 2^`times`, at most `cap`.
    fn doubled(&self, times: u32) -> Duration {
        let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
        self.delay.saturating_mul(factor).min(self.cap)
    }
}

/// The limits of accounts and of networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    account: Limits,
    network: Limits,
}

impl Policy {
    /// The network's threshold must be the higher one.
    pub fn new(account: Limits, network: Limits) -> Result<Self, LimitFault> {
        if network.threshold <= account.threshold {
            let (network, account) = (network.threshold, account.threshold);
            return Err(LimitFault::Order { network, account });
        }
        Ok(Self { account, network })
    }

    /// The limits of an account.
    pub fn account(&self) -> &Limits {
        &self.account
    }

    /// The limits of a network.
    pub fn network(&self) -> &Limits {
        &self.network
    }

    /// Whether an attempt on this account from this network may be made at `now`: locked means `now` is before
    /// the end of either lock.
    pub fn decide(&self, account: Option<&Record>, network: Option<&Record>, now: Timestamp) -> Gate {
        let until = account.into_iter().chain(network).map(|r| r.locked_until).max();
        match until {
            Some(until) if now < until => Gate::Locked { retry_after: until.since(now) },
            _ => Gate::Allowed,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { account: Limits::ACCOUNT, network: Limits::NETWORK }
    }
}

/// Whose failures are counted together: one address of IPv4, one /64 of IPv6.
///
/// A /64 is what one subscriber gets, who may use another of its addresses for each attempt. With IPv4 a /24
/// would be hundreds of strangers. Its `Display` is the key of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    /// The network of a caller. An IPv4 address written as IPv6 (`::ffff:…`) is an IPv4 address.
    pub fn of(caller: IpAddr) -> Self {
        Self(match caller.to_canonical() {
            v4 @ IpAddr::V4(_) => v4,
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(v4) => write!(f, "{v4}/32"),
            IpAddr::V6(v6) => write!(f, "{v6}/64"),
        }
    }
}

#[cfg(test)]
mod tests;
