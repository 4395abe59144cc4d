//! Logging in with a password: the guard, the verification, the consequences.
//!
//! Owns: [`Logins`], which answers one question, whether this name and password are somebody's, and keeps count of the wrong
//! answers; and judging and hashing new ones. Does not own: what ends with an old one ([`crate::revocations`]), sessions ([`crate::session`]), pages, the `password` grant.
//!
//! ```text
//! who is it (name or address) → records of account and network → locked? nothing is computed
//!   → remembered? → else the password threads → right: still not locked? forget the account's failures, upgrade an old hash
//!                                             → wrong: both records grow
//! ```
//!
//! An unknown name, a closed account and a wrong password take the same time and get the same answer: an unknown name has a record, too.
//! The records are looked at again when a password was found right, so that many guesses at once are as many as one after the other: those
//! that were found wrong meanwhile are counted.

use std::{net::IpAddr, sync::Arc, time::Duration};

use auth::time::Timestamp;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use store::{
    Store, StoreError,
    attempts::{Attempts, ForgetAttempts, RecordAttempt},
    users::{StoredPassword, UpgradePassword, UserRow},
};

use crate::{
    Entropy,
    config::CheckedPasswords,
    passwords::{
        Password, Pool, PoolError, Verdict,
        lockout::{Gate, Limits, Network, Policy, Record},
        pool::PoolFault,
        rules::{Person as Described, Refusal, Rules},
        verified::{Verified, VerifiedFault},
    },
    secrets::Secrets,
};

/// How the account page and the forms call it (`amr`, RFC 8176).
pub const METHOD: &str = "pwd";
/// How well a password proves who somebody is (`acr`): the first level; there is no second yet.
pub const ACR: &str = "1";
/// How long after its last entry a record of failures is deleted at the earliest.
const KEPT: Duration = Duration::from_hours(25);
/// How often a record is written that another node wrote meanwhile.
const TRIES: usize = 8;

/// Why nobody is logged in.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginFault {
    /// Name or password is wrong, or the account is closed.
    #[error("wrong user name or password")]
    Wrong,
    /// Too many wrong ones: nothing was looked at.
    #[error("account or network locked for {} s", .0.as_secs())]
    Locked(Duration),
    /// The threads that hash.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session could not be begun; holds why.
    #[error("{0}")]
    Session(String),
}

impl From<LoginFault> for crate::oauth::error::OAuthFault {
    fn from(fault: LoginFault) -> Self {
        match fault {
            LoginFault::Wrong => Self::LoginFailed,
            LoginFault::Locked(after) => Self::LoginLocked(after),
            LoginFault::Pool(error) => error.into(),
            LoginFault::Store(error) => error.into(),
            LoginFault::Session(why) => Self::Store(why),
        }
    }
}

/// Why a password is not set.
#[derive(Debug, thiserror::Error)]
pub enum SetFault {
    /// It may not be.
    #[error("{0}")]
    Refused(Refusal),
    /// More than [`crate::passwords::password::MAX_PASSWORD`] bytes.
    #[error(transparent)]
    TooLong(#[from] crate::passwords::PasswordTooLong),
    /// The threads that hash.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why no passwords can be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LoginsFault {
    /// The threads that hash.
    #[error(transparent)]
    Threads(#[from] PoolFault),
    /// The memory of right passwords.
    #[error(transparent)]
    Remembered(#[from] VerifiedFault),
}

/// Passwords and what guards them.
pub struct Logins {
    pool: Pool,
    rules: Rules,
    min_length: usize,
    policy: Policy,
    verified: Option<Verified>,
}

impl Logins {
    pub(crate) fn start(checked: &CheckedPasswords, entropy: &Arc<dyn Entropy>) -> Result<Self, LoginsFault> {
        let CheckedPasswords { parameters, pool, rules, min_length, policy, remembered } = *checked;
        let pool = Pool::start(pool, parameters, entropy.clone())?;
        let verified =
            remembered.map(|(lifetime, entries)| Verified::new(lifetime, entries, &**entropy)).transpose()?;
        Ok(Self { pool, rules, min_length, policy, verified })
    }

    /// Fewest characters of a new password.
    pub fn min_length(&self) -> usize {
        self.min_length
    }

    /// The threads that hash.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Forgets which passwords were right a moment ago, for one account: call it with every change of it.
    pub fn forget(&self, user_id: &str) {
        if let Some(verified) = &self.verified {
            verified.forget(user_id);
        }
    }

    pub(crate) fn sweep(&self, now: Timestamp) {
        if let Some(verified) = &self.verified {
            verified.sweep(now);
        }
    }

    /// Who has this name (or verified address) and this password, asked from this address.
    pub async fn verify(
        &self,
        (store, secrets): (&Store, &Secrets),
        name: &str,
        password: Password,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<UserRow, LoginFault> {
        let known = store.user_by_login(name).await?;
        let account = match &known {
            Some((user, _)) => account_subject(&user.id),
            None => nobody_subject(secrets, name),
        };
        let subjects = [account, format!("network {}", Network::of(from))];
        let mut had_failures = self.admitted(store, &subjects, now).await?;
        let stored = known.as_ref().and_then(|(_, stored)| stored.as_ref());
        let user = known.as_ref().map(|(user, _)| user);
        let (verdict, hashed) = self.compare(user, stored, &password, now).await?;
        match (known, verdict) {
            (Some((user, stored)), Verdict::Right { outdated }) if user.disabled_at.is_none() => {
                if hashed {
                    had_failures = self.admitted(store, &subjects, now).await?;
                }
                self.succeeded(store, &user, stored, password, outdated, had_failures).await?;
                Ok(user)
            }
            _ => {
                let [account, network] = subjects;
                tracing::info!(account, network, "login failed");
                count(store, account, self.policy.account(), now).await?;
                count(store, network, self.policy.network(), now).await?;
                Err(LoginFault::Wrong)
            }
        }
    }

    /// Whether somebody may try, as the records of account and network say, and then whether the account's has failures.
    async fn admitted(
        &self,
        store: &Store,
        [account, network]: &[String; 2],
        now: Timestamp,
    ) -> Result<bool, LoginFault> {
        let attempts = [store.attempts(account).await?, store.attempts(network).await?];
        let [of_account, of_network] = attempts.map(|attempts| attempts.map(|a| record(&a)));
        match self.policy.decide(of_account.as_ref(), of_network.as_ref(), now) {
            Gate::Allowed => Ok(of_account.is_some()),
            Gate::Locked { retry_after } => {
                tracing::warn!(account, network, "login refused: locked");
                Err(LoginFault::Locked(retry_after))
            }
        }
    }

    /// Whether somebody may guess on: what is counted beside passwords, such as codes that are typed.
    pub(crate) async fn gate(&self, store: &Store, subject: &str, now: Timestamp) -> Result<(), LoginFault> {
        let record = store.attempts(subject).await?.map(|attempts| record(&attempts));
        match self.policy.decide(record.as_ref(), None, now) {
            Gate::Allowed => Ok(()),
            Gate::Locked { retry_after } => Err(LoginFault::Locked(retry_after)),
        }
    }

    /// A guess was wrong.
    pub(crate) async fn failed(
        &self,
        store: &Store,
        subject: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        count(store, subject, self.policy.account(), now).await
    }

    /// What the password is worth, and whether it took a hash, and time, to find out.
    async fn compare(
        &self,
        user: Option<&UserRow>,
        stored: Option<&StoredPassword>,
        password: &Password,
        now: Timestamp,
    ) -> Result<(Verdict, bool), PoolError> {
        if let (Some(verified), Some(user), Some(stored)) = (&self.verified, user, stored)
            && verified.holds(&user.id, &stored.phc, password, now)
        {
            return Ok((Verdict::Right { outdated: false }, false));
        }
        let verdict = self.pool.verify(password.clone(), stored.map(|s| s.phc.clone())).await?;
        if let (Some(verified), Some(user), Some(stored)) = (&self.verified, user, stored) {
            verified.remember(&user.id, &stored.phc, password, verdict, now);
        }
        Ok((verdict, true))
    }

    async fn succeeded(
        &self,
        store: &Store,
        user: &UserRow,
        stored: Option<StoredPassword>,
        password: Password,
        outdated: bool,
        had_failures: bool,
    ) -> Result<(), LoginFault> {
        if had_failures {
            store.write(ForgetAttempts { subject: account_subject(&user.id) }).await?;
        }
        if let (true, Some(from)) = (outdated, stored) {
            // the login holds whatever becomes of this; the next one tries again
            match self.pool.hash(password).await {
                Ok(phc) => {
                    let upgrade = UpgradePassword { user_id: user.id.clone(), from, to_phc: phc.encode() };
                    if let Err(error) = store.write(upgrade).await
                        && !error.is_outage()
                    {
                        tracing::warn!(%error, user = user.id, "an old password hash could not be replaced");
                    }
                }
                Err(error) => tracing::info!(%error, user = user.id, "an old password hash stays for now"),
            }
        }
        Ok(())
    }

    /// Whether a password may be set for somebody.
    pub async fn judge(&self, password: &Password, name: &str, email: Option<&str>) -> Result<(), SetFault> {
        let described = Described { user_name: name, address: email, words: &[] };
        self.pool.judge(self.rules, password.clone(), described).await?.map_err(SetFault::Refused)
    }

    /// The hash of a password that may be set.
    pub async fn hash(
        &self,
        password: &Password,
        name: &str,
        email: Option<&str>,
        now: Timestamp,
    ) -> Result<StoredPassword, SetFault> {
        self.judge(password, name, email).await?;
        let phc = self.pool.hash(password.clone()).await?.encode();
        Ok(StoredPassword { phc, changed_at: now })
    }
}

/// What an account's failures are counted under.
pub(crate) fn account_subject(user_id: &str) -> String {
    format!("account {user_id}")
}

/// What failures are counted under where there is no such account. Its name is kept as a digest: people type passwords there.
fn nobody_subject(secrets: &Secrets, name: &str) -> String {
    // As names are compared: another spelling is no other try.
    let digest = secrets.digest_of(&["login name", &store::names::folded(name)]);
    format!("nobody {}", URL_SAFE_NO_PAD.encode(digest.0))
}

fn record(attempts: &Attempts) -> Record {
    Record {
        failures: attempts.failures,
        first: attempts.first_at,
        last: attempts.last_at,
        locked_until: attempts.locked_until,
    }
}

/// One more failure. Nodes may count at the same time: each counts on top of what the other wrote.
async fn count(store: &Store, subject: String, limits: &Limits, now: Timestamp) -> Result<(), StoreError> {
    for _ in 0..TRIES {
        let from = store.attempts(&subject).await?;
        let next = limits.after_failure(from.as_ref().map(record).as_ref(), now);
        let to = Attempts {
            failures: next.failures,
            first_at: next.first,
            last_at: next.last,
            locked_until: next.locked_until,
            expires_at: next.last.max(next.locked_until).plus(KEPT),
        };
        if store.write(RecordAttempt { subject: subject.clone(), from, to }).await? {
            return Ok(());
        }
    }
    // so many at once: one of them has counted, and the lock comes with the next
    tracing::warn!(subject, "a failed login could not be counted: others were counted at the same time");
    Ok(())
}
