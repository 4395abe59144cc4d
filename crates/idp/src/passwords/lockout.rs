//! Lockout: slows down password guessing.
//!
//! Owns: how one failure changes a record, and whether a record allows the next attempt. It is
//! pure: records are arguments and results, the store keeps them, the time is an argument.
//!
//! Does not own: the verification, the rows, the response 429 (the endpoint rounds `retry_after` up
//! to seconds).
//!
//! Two records are checked before each attempt, and both count each failure:
//!
//! - the **account's**, found by the account that the name resolves to, so that two spellings of a
//!   name are one;
//! - the **network's** ([`Network`]), with a higher threshold, which detects one client that tries
//!   a few passwords on each of many accounts. Unknown users count here too.
//!
//! From the threshold on, each failure locks for twice as long as the previous one, up to a cap. An
//! attacker can lock out the account's owner for the time of the cap; therefore it is minutes, not
//! days.
//!
//! The number of failures is halved for every quiet period since the last failure or the end of its
//! lock. So one pause does not reset the count of a slow attacker.
//!
//! A success deletes the account's record, but not the network's. Otherwise an attacker with an
//! account of his own could reset the count of his network.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use auth::time::Timestamp;

/// Largest number of failures before the first lock.
pub const MAX_THRESHOLD: u32 = 100_000;
/// Shortest first lock.
pub const MIN_DELAY: Duration = Duration::from_secs(1);
/// Longest lock and longest quiet period.
pub const MAX_DELAY: Duration = Duration::from_hours(24);

/// The failures of one account or network, as the store keeps them. No record means no failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Number of counted failures.
    pub failures: u32,
    /// Time of the first counted failure.
    pub first: Timestamp,
    /// Time of the last failure.
    pub last: Timestamp,
    /// Attempts before this time are refused.
    pub locked_until: Timestamp,
}

/// Whether an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Gate {
    /// The password may be verified.
    Allowed,
    /// Nothing is verified: even the right password is refused.
    Locked {
        /// Time until the lock ends, greater than zero.
        retry_after: Duration,
    },
}

/// Reason why limits are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitFault {
    /// The threshold is out of bounds.
    #[error("lockout threshold {0} out of bounds: use 1 to {MAX_THRESHOLD}")]
    Threshold(u32),
    /// The first lock is out of bounds.
    #[error("first lock of {} s out of bounds: use {} s up to the longest lock", .0.as_secs_f64(), MIN_DELAY.as_secs())]
    Delay(Duration),
    /// The longest lock is out of bounds.
    #[error("longest lock of {} s out of bounds: use at most {} s", .0.as_secs_f64(), MAX_DELAY.as_secs())]
    Cap(Duration),
    /// The quiet period is out of bounds.
    #[error("quiet period of {} s out of bounds: use {} to {} s", .0.as_secs_f64(), MIN_DELAY.as_secs(), MAX_DELAY.as_secs())]
    Quiet(Duration),
    /// The network would be locked before the account.
    #[error(
        "network threshold {network} is not above account threshold {account}: raise it, many users share a network"
    )]
    Order {
        /// Threshold of the network.
        network: u32,
        /// Threshold of the account.
        account: u32,
    },
}

/// Checked limits: when to lock and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    threshold: u32,
    delay: Duration,
    cap: Duration,
    quiet: Duration,
}

impl Limits {
    /// Locks with the `threshold`th failure for `delay`, twice as long with each further one, at
    /// most for `cap`. Halves the failures for each `quiet` period without one.
    ///
    /// # Errors
    /// [`LimitFault`] when a value is out of bounds.
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

    /// Default for accounts: locks from the 5th failure on, 10 s up to 15 min; halved every 15 min.
    pub const ACCOUNT: Self = Self {
        threshold: 5,
        delay: Duration::from_secs(10),
        cap: Duration::from_mins(15),
        quiet: Duration::from_mins(15),
    };
    /// Default for networks: locks from the 50th failure on, 10 s up to 15 min; halved every 15
    /// min.
    pub const NETWORK: Self = Self { threshold: 50, ..Self::ACCOUNT };

    /// Failures of `record` that still count at `now`.
    fn current_failures(&self, record: &Record, now: Timestamp) -> u32 {
        let rest = now.since(record.last.max(record.locked_until));
        let halvings = rest.as_millis() / self.quiet.as_millis();
        u32::try_from(halvings).ok().and_then(|h| record.failures.checked_shr(h)).unwrap_or(0)
    }

    /// The record after one more failure at `now`. A clock that was set back does not reduce the
    /// count.
    pub fn after_failure(&self, record: Option<&Record>, now: Timestamp) -> Record {
        let old = record.map(|r| (r, self.current_failures(r, now))).filter(|&(_, failures)| failures > 0);
        let failures = old.map_or(0, |(_, failures)| failures).saturating_add(1);
        let (first, last, locked) = old
            .map_or((now, now, now), |(r, _)| (r.first.min(now), r.last.max(now), r.locked_until.max(now)));
        let locked_until = match failures.checked_sub(self.threshold) {
            // A failure of an attempt that began before the lock does not shorten the lock.
            Some(beyond) => locked.max(now.plus(self.doubled(beyond))),
            None => old.map_or(now, |(r, _)| r.locked_until),
        };
        Record { failures, first, last, locked_until }
    }

    /// Whether `record` has no effect any more, so that its row may be deleted.
    pub fn is_expired(&self, record: &Record, now: Timestamp) -> bool {
        now >= record.locked_until && self.current_failures(record, now) == 0
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
    /// Combines both limits. The network's threshold must be the higher one.
    ///
    /// # Errors
    /// [`LimitFault::Order`] when it is not.
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

    /// Whether an attempt on this account from this network is allowed at `now`: it is locked
    /// before the end of either lock.
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

/// Addresses whose failures are counted together: one IPv4 address, or one IPv6 /64.
///
/// One subscriber gets a /64 and can use another address for each attempt. An IPv4 /24 would
/// contain many unrelated clients. `Display` is the key of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    /// The network of a client. An IPv4 address written as IPv6 (`::ffff:…`) is an IPv4 address.
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
