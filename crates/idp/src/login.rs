//! Login with a password: lockout, verification, and the update of failure counts.
//!
//! Owns: [`Logins`], which checks a name and a password and counts failures, and the check and hash
//! of new passwords.
//!
//! Does not own: what a password change revokes ([`crate::revocations`]), sessions
//! ([`crate::session`]), pages, the `password` grant.
//!
//! ```text
//! who is it (name or address) → records of account and network → locked? nothing is computed
//!   → remembered? → else the password threads → right: still not locked? forget the account's failures, upgrade an old hash
//!                                             → wrong: both records grow
//! ```
//!
//! An unknown name, a disabled account and a wrong password take the same time and get the same
//! response; an unknown name has a record too.
//!
//! After a match the records are read again, which also counts failures that finished meanwhile. So
//! many concurrent attempts are limited like sequential ones.

use std::{net::IpAddr, sync::Arc, time::Duration};

use auth::time::Timestamp;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use store::{
    Store, StoreError,
    audit::{AuditEntry, Audited},
    login_attempts::{Attempts, DeleteAttempts, RecordAttempt},
    users::{StoredPassword, UpgradePassword, UserRow},
};

use crate::{
    Entropy,
    audit_draft::{AuditDraft, Subject},
    config::CheckedPasswords,
    failure_log::{Failure, FailureLog, LOGIN_FAILURE, LOGIN_LOCK},
    passwords::{
        Password, Pool, PoolError, Verdict,
        lockout::{Gate, Limits, Network, Policy, Record},
        pool::PoolFault,
        rules::{Refusal, Rules, UserData as Described},
        verified::{VerifiedFault, VerifiedPasswords},
    },
    secrets::Secrets,
};

/// `amr` of a password login (RFC 8176).
pub const METHOD: &str = "pwd";
/// `acr` of a password login: level 1, the only level so far.
pub const ACR: &str = "1";
/// How long a record of failures is kept after its last entry, at least.
const RECORD_RETENTION: Duration = Duration::from_hours(25);
/// Attempts to write a record that another node changed concurrently.
const MAX_ATTEMPTS: usize = 8;

/// Reason why a login fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoginFault {
    /// Name or password is wrong, or the account is disabled.
    #[error("wrong user name or password")]
    Wrong,
    /// Too many failures: nothing was verified. Holds the time until the lock ends.
    #[error("account or network locked for {} s", .0.as_secs())]
    Locked(Duration),
    /// The password is right, but the user must choose a new one before any session or token.
    #[error("the user must choose a new password first")]
    PasswordChangeRequired(Box<UserRow>),
    /// The hashing threads are busy or failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The session could not begin; holds the reason.
    #[error("{0}")]
    Session(String),
}

impl From<LoginFault> for crate::oauth::error::OAuthFault {
    fn from(fault: LoginFault) -> Self {
        match fault {
            LoginFault::Wrong => Self::LoginFailed,
            LoginFault::Locked(after) => Self::LoginLocked(after),
            LoginFault::PasswordChangeRequired(_) => Self::PasswordChangeRequired,
            LoginFault::Pool(error) => error.into(),
            LoginFault::Store(error) => error.into(),
            LoginFault::Session(why) => Self::Store(why),
        }
    }
}

/// Reason why a new password is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SetFault {
    /// The rules for new passwords refuse it.
    #[error("{0}")]
    Refused(Refusal),
    /// It has more than [`crate::passwords::password::MAX_PASSWORD`] bytes.
    #[error(transparent)]
    TooLong(#[from] crate::passwords::PasswordTooLong),
    /// The hashing threads are busy or failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why [`Logins`] does not start.
#[derive(Debug, thiserror::Error)]
pub enum LoginsFault {
    /// The hashing threads did not start.
    #[error(transparent)]
    Threads(#[from] PoolFault),
    /// The cache of verified passwords could not be created.
    #[error(transparent)]
    Remembered(#[from] VerifiedFault),
}

/// Where a sign-in comes from.
#[derive(Debug, Clone)]
pub struct LoginOrigin {
    /// Address of the browser or client.
    pub(crate) address: IpAddr,
    /// The client that started it, if known.
    pub(crate) client: Option<Subject>,
}

/// One attempt to sign in.
struct Attempt<'a> {
    /// The account that the name resolves to.
    user: Option<Subject>,
    origin: &'a LoginOrigin,
    now: Timestamp,
}

impl Attempt<'_> {
    /// A failure for the audit log, of the account or of the network.
    fn failure(&self, action: &'static str, reason: &'static str, of_account: bool) -> Failure {
        Failure {
            action,
            reason,
            user: self.user.clone().filter(|_| of_account),
            client: self.origin.client.clone(),
            address: self.origin.address,
        }
    }

    /// The entry for the success that ends a lockout. `None`: the account was not locked.
    fn unlock_entry(&self, before: &Record) -> Option<AuditEntry> {
        let user = self.user.as_ref().filter(|_| before.locked_until > before.first)?;
        let draft = AuditDraft::by_user(user, "login.unlock", format!("user:{}", user.id), self.now);
        Some(draft.client(self.origin.client.as_ref()).with("failures", before.failures).finish())
    }
}

/// Verification of passwords, with lockout, rules and the cache of verified passwords.
pub struct Logins {
    failures: Arc<FailureLog>,
    pool: Pool,
    rules: Rules,
    min_length: usize,
    policy: Policy,
    verified: Option<VerifiedPasswords>,
}

impl Logins {
    pub(crate) fn start(
        checked: &CheckedPasswords,
        entropy: &Arc<dyn Entropy>,
        failures: Arc<FailureLog>,
    ) -> Result<Self, LoginsFault> {
        let CheckedPasswords { parameters, pool, rules, min_length, policy, verified_cache: remembered } =
            *checked;
        let pool = Pool::start(pool, parameters, entropy.clone())?;
        let verified = remembered
            .map(|(lifetime, entries)| VerifiedPasswords::new(lifetime, entries, &**entropy))
            .transpose()?;
        Ok(Self { failures, pool, rules, min_length, policy, verified })
    }

    /// Fewest characters of a new password.
    pub fn min_length(&self) -> usize {
        self.min_length
    }

    /// The pool of hashing threads.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Removes the cached password of an account. Call this with every change of the account.
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

    /// Authenticates a user by login name (or verified address) and password. A failure is recorded
    /// for the audit log.
    ///
    /// # Errors
    /// [`LoginFault::Wrong`] for a wrong name or password or a disabled account,
    /// [`LoginFault::Locked`] when account or network is locked,
    /// [`LoginFault::PasswordChangeRequired`] after the right password of a user who must choose a
    /// new one, otherwise the failure of pool or
    /// store.
    pub async fn verify(
        &self,
        (store, secrets): (&Store, &Secrets),
        name: &str,
        password: Password,
        origin: &LoginOrigin,
        now: Timestamp,
    ) -> Result<UserRow, LoginFault> {
        let known = store.user_by_login(name).await?;
        let account = match &known {
            Some((user, _)) => account_subject(&user.id),
            None => unknown_name_subject(secrets, name),
        };
        let subjects = [account, format!("network {}", Network::of(origin.address))];
        let attempt = Attempt { user: known.as_ref().map(|(user, _)| Subject::of_user(user)), origin, now };
        let mut failed_before = self.check_lockout(store, &subjects, &attempt).await?;
        let stored = known.as_ref().and_then(|(_, stored)| stored.as_ref());
        let user = known.as_ref().map(|(user, _)| user);
        let (verdict, hashed) = self.compare(user, stored, &password, now).await?;
        match (known, verdict) {
            (Some((user, stored)), Verdict::Right { is_outdated: outdated })
                if user.disabled_at.is_none() =>
            {
                if hashed {
                    failed_before = self.check_lockout(store, &subjects, &attempt).await?;
                }
                if let Some(before) = failed_before {
                    let change = DeleteAttempts { subject: account_subject(&user.id) };
                    match attempt.unlock_entry(&before).filter(|_| self.failures.events().logins) {
                        Some(entry) => store.write(Audited { change, entry }).await?,
                        None => store.write(change).await?,
                    }
                }
                if let (true, Some(from)) = (outdated, stored) {
                    self.upgrade_hash(store, &user, from, password).await;
                }
                match user.must_change_password_at {
                    Some(_) => Err(LoginFault::PasswordChangeRequired(Box::new(user))),
                    None => Ok(user),
                }
            }
            (known, _) => {
                let [account, network] = subjects;
                tracing::info!(account, network, "login failed");
                let reason = match known {
                    None => "unknown_name",
                    Some((user, _)) if user.disabled_at.is_some() => "account_disabled",
                    Some(_) => "wrong_password",
                };
                self.failures.record(attempt.failure(LOGIN_FAILURE, reason, true), now);
                let account_locked = record_failure(store, account, self.policy.account(), now).await?;
                let network_locked = record_failure(store, network, self.policy.network(), now).await?;
                // The lock of an unknown name is counted too, so both kinds take the same time.
                for (locked, reason, of_account) in
                    [(account_locked, "account_locked", true), (network_locked, "network_locked", false)]
                {
                    if locked && !(of_account && attempt.user.is_none()) {
                        self.failures.record(attempt.failure(LOGIN_LOCK, reason, of_account), now);
                    }
                }
                Err(LoginFault::Wrong)
            }
        }
    }

    /// Checks that neither account nor network is locked. Returns the failures of the account.
    async fn check_lockout(
        &self,
        store: &Store,
        [account, network]: &[String; 2],
        attempt: &Attempt<'_>,
    ) -> Result<Option<Record>, LoginFault> {
        let attempts = [store.attempts(account).await?, store.attempts(network).await?];
        let [of_account, of_network] = attempts.map(|attempts| attempts.map(|a| record(&a)));
        match self.policy.decide(of_account.as_ref(), of_network.as_ref(), attempt.now) {
            Gate::Allowed => Ok(of_account),
            Gate::Locked { retry_after } => {
                tracing::warn!(account, network, "login refused, account or network locked");
                let locked = of_account.is_some_and(|account| attempt.now < account.locked_until);
                let reason = if locked { "account_locked" } else { "network_locked" };
                self.failures.record(attempt.failure(LOGIN_FAILURE, reason, locked), attempt.now);
                Err(LoginFault::Locked(retry_after))
            }
        }
    }

    /// Checks that a subject other than an account is not locked, for example a source of user
    /// codes.
    pub(crate) async fn check_subject(
        &self,
        store: &Store,
        subject: &str,
        now: Timestamp,
    ) -> Result<(), LoginFault> {
        let record = store.attempts(subject).await?.map(|attempts| record(&attempts));
        match self.policy.decide(record.as_ref(), None, now) {
            Gate::Allowed => Ok(()),
            Gate::Locked { retry_after } => Err(LoginFault::Locked(retry_after)),
        }
    }

    /// Counts a failed attempt of such a subject. Returns whether it locks the subject.
    pub(crate) async fn count_failure(
        &self,
        store: &Store,
        subject: String,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        record_failure(store, subject, self.policy.account(), now).await
    }

    /// As [`Self::count_failure`], with the higher threshold of networks.
    pub(crate) async fn count_network_failure(
        &self,
        store: &Store,
        subject: String,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        record_failure(store, subject, self.policy.network(), now).await
    }

    /// Compares the password. Returns the verdict, and whether it took a hash and therefore time.
    async fn compare(
        &self,
        user: Option<&UserRow>,
        stored: Option<&StoredPassword>,
        password: &Password,
        now: Timestamp,
    ) -> Result<(Verdict, bool), PoolError> {
        if let (Some(verified), Some(user), Some(stored)) = (&self.verified, user, stored)
            && verified.contains(&user.id, &stored.phc, password, now)
        {
            return Ok((Verdict::Right { is_outdated: false }, false));
        }
        let verdict = self.pool.verify(password.clone(), stored.map(|s| s.phc.clone())).await?;
        if let (Some(verified), Some(user), Some(stored)) = (&self.verified, user, stored) {
            verified.insert(&user.id, &stored.phc, password, verdict, now);
        }
        Ok((verdict, true))
    }

    /// Replaces an outdated hash. The login succeeds even if this fails; the next login tries
    /// again.
    async fn upgrade_hash(&self, store: &Store, user: &UserRow, from: StoredPassword, password: Password) {
        match self.pool.hash(password).await {
            Ok(phc) => {
                let upgrade = UpgradePassword { user_id: user.id.clone(), from, to_phc: phc.encode() };
                if let Err(error) = store.write(upgrade).await
                    && !error.is_outage()
                {
                    tracing::warn!(%error, user = user.id, "password hash upgrade failed");
                }
            }
            Err(error) => tracing::info!(%error, user = user.id, "password hash upgrade postponed"),
        }
    }

    /// Checks whether a password may be set for a user.
    ///
    /// # Errors
    /// [`SetFault::Refused`] when the rules refuse it, [`SetFault::Pool`] when the pool fails.
    pub async fn check_new_password(
        &self,
        password: &Password,
        name: &str,
        email: Option<&str>,
    ) -> Result<(), SetFault> {
        let described = Described { user_name: name, address: email, words: &[] };
        self.pool.check_rules(self.rules, password.clone(), described).await?.map_err(SetFault::Refused)
    }

    /// Hash of a password, if it may be set.
    ///
    /// # Errors
    /// As for [`Logins::check_new_password`].
    pub async fn hash(
        &self,
        password: &Password,
        name: &str,
        email: Option<&str>,
        now: Timestamp,
    ) -> Result<StoredPassword, SetFault> {
        self.check_new_password(password, name, email).await?;
        let phc = self.pool.hash(password.clone()).await?.encode();
        Ok(StoredPassword { phc, changed_at: now })
    }
}

/// Key of the failure record of an account.
pub(crate) fn account_subject(user_id: &str) -> String {
    format!("account {user_id}")
}

/// Key of the failure record of an unknown name. It holds a digest of the name, because users
/// sometimes type passwords there.
fn unknown_name_subject(secrets: &Secrets, name: &str) -> String {
    // Names are compared in folded form, so another spelling is the same attempt.
    let digest = secrets.digest_of(&["login name", &store::names::comparison_form(name)]);
    format!("nobody {}", URL_SAFE_NO_PAD.encode(digest.0))
}

/// Key of the record of requests for a reset link with this name, which may be that of no account.
pub(crate) fn reset_subject(secrets: &Secrets, typed: &str) -> String {
    let digest = secrets.digest_of(&["reset request", &store::names::comparison_form(typed)]);
    format!("reset requests of {}", URL_SAFE_NO_PAD.encode(digest.0))
}

fn record(attempts: &Attempts) -> Record {
    Record {
        failures: attempts.failures,
        first: attempts.first_at,
        last: attempts.last_at,
        locked_until: attempts.locked_until,
    }
}

/// Counts one failure. Nodes may count concurrently: each adds to what the other wrote. Returns
/// whether a lock begins or becomes longer.
async fn record_failure(
    store: &Store,
    subject: String,
    limits: &Limits,
    now: Timestamp,
) -> Result<bool, StoreError> {
    for _ in 0..MAX_ATTEMPTS {
        let from = store.attempts(&subject).await?;
        let next = limits.after_failure(from.as_ref().map(record).as_ref(), now);
        let to = Attempts {
            failures: next.failures,
            first_at: next.first,
            last_at: next.last,
            locked_until: next.locked_until,
            expires_at: next.last.max(next.locked_until).plus(RECORD_RETENTION),
        };
        if store.write(RecordAttempt { subject: subject.clone(), previous: from, next: to }).await? {
            let before = from.map_or(now, |from| from.locked_until.max(now));
            return Ok(next.locked_until > before);
        }
    }
    // With this many concurrent failures one was counted; the next failure applies the lock.
    tracing::warn!(subject, "login failure not counted, too many concurrent failures");
    Ok(false)
}
