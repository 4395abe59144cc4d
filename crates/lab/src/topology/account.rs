//! Account: a Unix account for programs that refuse to run as root, such as PostgreSQL.
//!
//! Owns: looking up the account, and changing the owner of files. Does not own: switching to it.
//! `setpriv` does that just before the program starts, so that no code of the lab runs between fork
//! and exec.

use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

/// Account database of this machine.
const ACCOUNTS: &str = "/etc/passwd";

/// User ID and primary group ID of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// Looks up the account with this name. Returns `None` if the lab does not run as root: it
    /// cannot switch, and does not need to.
    ///
    /// # Errors
    /// [`ACCOUNTS`] cannot be read or has no such account.
    pub(super) fn find(name: &str) -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        Self::parse(&fs::read_to_string(ACCOUNTS)?, name).map(Some).ok_or_else(|| {
            let message = format!("the program must not run as root, and {ACCOUNTS} has no account `{name}`");
            io::Error::new(io::ErrorKind::NotFound, message)
        })
    }

    fn parse(accounts: &str, name: &str) -> Option<Self> {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let number = |at: usize| line.split(':').nth(at)?.parse().ok();
        Some(Self { user: number(2)?, group: number(3)? })
    }

    /// Arguments of `setpriv` that switch to this account.
    pub(super) fn arguments(self) -> [String; 3] {
        [format!("--reuid={}", self.user), format!("--regid={}", self.group), "--clear-groups".to_owned()]
    }

    /// Makes this account the owner of a file or a folder.
    pub(super) fn chown(self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.user), Some(self.group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0::/root:/bin/sh\npostgres-old:x:7:8::/:/bin/sh\npostgres:x:101:104:a,b:/:/bin/sh\nbroken:x:y:1\n";
        assert_eq!(Account::parse(accounts, "postgres"), Some(Account { user: 101, group: 104 }));
        assert_eq!(Account::parse(accounts, "postgre"), None);
        assert_eq!(Account::parse(accounts, "broken"), None);
    }
}
