//! Why a fact could not be read or kept.

use std::sync::Arc;

/// An answer of the database that is no fact.
///
/// Whoever asked on behalf of a client answers 503 to all but [`StoreError::Taken`]: nothing is known about the state
/// then, and a write may or may not have been made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, does not answer in time, or ended the connection.
    #[error("the database is not available: {0}")]
    Unavailable(Arc<sqlx::Error>),
    /// More writes are waiting than may.
    #[error("too many writes are waiting for the database")]
    Busy,
    /// The disk is full.
    #[error("the database has no room left: {0}")]
    Full(Arc<sqlx::Error>),
    /// What should be unique is taken.
    #[error("{0} is taken already")]
    Taken(&'static str),
    /// What the row refers to does not exist (any more).
    #[error("the row refers to one that does not exist")]
    Dangling,
    /// A statement was refused, or a row does not have the form it was written in.
    #[error("the database and this program do not understand each other: {0}")]
    Mismatch(Arc<sqlx::Error>),
    /// A transaction had to give way to another one; it has no effect and may be tried again.
    #[error("the transaction gave way to another one")]
    GaveWay,
}

impl StoreError {
    /// Whether the same change may succeed when it is made once more.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        matches!(self, Self::GaveWay)
    }

    /// Whether this change alone is at fault, so that others of the same transaction may still succeed.
    pub(crate) fn is_of_one_change(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::Dangling | Self::Mismatch(_) | Self::GaveWay)
    }

    /// Whether the database says that it failed itself. Others of the same transaction may succeed, but not for anything that was asked.
    pub(crate) fn is_of_the_database(&self) -> bool {
        match self {
            Self::Mismatch(error) => {
                let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
                code.is_some_and(|code| is_internal(&code))
            }
            _ => false,
        }
    }

    /// Whether the database is away, overloaded or without room, rather than that it said no to what was asked. The store has said so in the
    /// log, once for all who meet it; nobody else needs to.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Busy | Self::Full(_) => true,
            Self::Mismatch(_) => self.is_of_the_database(),
            Self::Taken(_) | Self::Dangling | Self::GaveWay => false,
        }
    }

    /// What went wrong while a transaction was made durable: unless it certainly gave way, it may have been made, and
    /// must not be made again.
    #[must_use]
    pub(crate) fn at_commit(self) -> Self {
        match self {
            Self::Mismatch(error) => Self::Unavailable(error),
            other => other,
        }
    }

    /// Names what was taken, where the caller knows better than the constraint's name.
    #[must_use]
    pub(crate) fn naming(self, what: &'static str) -> Self {
        match self {
            Self::Taken(_) => Self::Taken(what),
            other => other,
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let Some(database) = error.as_database_error() else {
            return match error {
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::AnyDriverError(_)
                | sqlx::Error::Configuration(_) => Self::Mismatch(Arc::new(error)),
                _ => Self::Unavailable(Arc::new(error)),
            };
        };
        if database.is_unique_violation() {
            return Self::Taken("the name");
        }
        if database.is_foreign_key_violation() {
            return Self::Dangling;
        }
        let code = database.code();
        match code.as_deref().map(class) {
            Some(Class::GaveWay) => Self::GaveWay,
            Some(Class::Full) => Self::Full(Arc::new(error)),
            Some(Class::Unavailable) => Self::Unavailable(Arc::new(error)),
            Some(Class::Other) | None => Self::Mismatch(Arc::new(error)),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Class {
    GaveWay,
    Full,
    Unavailable,
    Other,
}

/// What an error code says: five characters are PostgreSQL's (its manual, appendix A), a number is SQLite's (its
/// extended result codes, whose lowest byte is the primary one).
fn class(code: &str) -> Class {
    if code.len() == 5 {
        return match code {
            "40001" | "40P01" => Class::GaveWay,
            "53100" => Class::Full,
            // A lock was not to be had, a transaction rested for too long, a server that was demoted refuses writes.
            "55P03" | "25P03" | "25006" => Class::Unavailable,
            // Out of resources, cut off by an administrator or starting up, connection lost, the system failed.
            _ if ["53", "57", "08", "58"].iter().any(|class| code.starts_with(class)) => Class::Unavailable,
            _ => Class::Other,
        };
    }
    match code.parse::<u32>().map(|code| code & 0xff) {
        // SQLITE_FULL
        Ok(13) => Class::Full,
        // BUSY, LOCKED, NOMEM, READONLY, INTERRUPT, IOERR, CORRUPT, CANTOPEN, PROTOCOL, NOTADB
        Ok(5 | 6 | 7 | 8 | 9 | 10 | 11 | 14 | 15 | 26) => Class::Unavailable,
        _ => Class::Other,
    }
}

/// PostgreSQL's internal errors: something is damaged, or a limit of the system that it does not know was met.
fn is_internal(code: &str) -> bool {
    code.len() == 5 && code.starts_with("XX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_postgresql() {
        for (code, expected) in [
            ("40001", Class::GaveWay),
            ("40P01", Class::GaveWay),
            ("53100", Class::Full),
            ("53300", Class::Unavailable),
            ("57P01", Class::Unavailable),
            ("57014", Class::Unavailable),
            ("08006", Class::Unavailable),
            ("25006", Class::Unavailable),
            ("55P03", Class::Unavailable),
            ("42P01", Class::Other),
            ("XX000", Class::Other),
            ("22001", Class::Other),
        ] {
            assert_eq!(class(code), expected, "{code}");
        }
    }

    #[test]
    fn what_the_database_says_of_itself() {
        assert!(is_internal("XX000") && is_internal("XX002"));
        assert!(!is_internal("42P01") && !is_internal("1") && !is_internal("XX"));
        assert!(!StoreError::Taken("x").is_of_the_database() && !StoreError::GaveWay.is_of_the_database());
    }

    #[test]
    fn codes_of_sqlite_with_and_without_their_extension() {
        for (code, expected) in [
            ("5", Class::Unavailable),
            ("517", Class::Unavailable),
            ("10", Class::Unavailable),
            ("778", Class::Unavailable),
            ("13", Class::Full),
            ("8", Class::Unavailable),
            ("1", Class::Other),
            ("1299", Class::Other),
            ("nonsense", Class::Other),
        ] {
            assert_eq!(class(code), expected, "{code}");
        }
    }

    #[test]
    fn what_spoils_one_change_is_not_what_spoils_all() {
        let lost = || StoreError::from(sqlx::Error::PoolTimedOut);
        assert!(matches!(lost(), StoreError::Unavailable(_)) && !lost().is_of_one_change());
        assert!(StoreError::Taken("x").is_of_one_change() && !StoreError::Taken("x").is_worth_retrying());
        let unclear = || StoreError::from(sqlx::Error::ColumnNotFound("x".into()));
        assert!(unclear().is_of_one_change() && !unclear().at_commit().is_of_one_change());
        assert!(StoreError::GaveWay.is_of_one_change() && StoreError::GaveWay.is_worth_retrying());
        assert_eq!(
            StoreError::Taken("x").naming("the name of it").to_string(),
            "the name of it is taken already"
        );
    }
}
