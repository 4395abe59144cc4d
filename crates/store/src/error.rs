//! Store errors: why data could not be read or written.

use std::sync::Arc;

/// A failed read or change.
///
/// The caller of a request answers 503 to every variant except [`StoreError::Taken`]. The state is
/// unknown then, and a change may or may not have been made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached, does not answer in time, or closed the connection.
    #[error("database unavailable: {0}")]
    Unavailable(Arc<sqlx::Error>),
    /// The queue of waiting changes is full.
    #[error("too many changes are waiting for the database: retry later")]
    Busy,
    /// The disk of the database is full.
    #[error("the database's disk is full: {0}")]
    Full(Arc<sqlx::Error>),
    /// A unique value, named here, is already in use.
    #[error("{0} is already in use: choose another")]
    Taken(&'static str),
    /// A row that the new row references does not exist, or no longer exists.
    #[error("the row references one that does not exist")]
    MissingReference,
    /// The database refused a statement, or a row does not have the form in which it was written.
    #[error("unexpected answer of the database: {0}")]
    Mismatch(Arc<sqlx::Error>),
    /// The transaction was aborted in favour of another one (deadlock or serialization failure). It
    /// has no effect and may be retried.
    #[error("the transaction was aborted in favour of another: retry")]
    Aborted,
}

impl StoreError {
    /// Whether the same change may succeed when it is retried.
    pub(crate) fn is_worth_retrying(&self) -> bool {
        matches!(self, Self::Aborted)
    }

    /// Whether only this change caused the failure, so that other changes of the same transaction
    /// may succeed on their own.
    pub(crate) fn is_single_change_fault(&self) -> bool {
        matches!(self, Self::Taken(_) | Self::MissingReference | Self::Mismatch(_) | Self::Aborted)
    }

    /// Whether the database reports an internal error of its own. Other changes of the transaction
    /// may still succeed, but the failure says nothing about what was requested.
    pub(crate) fn is_internal_error(&self) -> bool {
        match self {
            Self::Mismatch(error) => {
                let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
                code.is_some_and(|code| is_internal(&code))
            }
            _ => false,
        }
    }

    /// Whether the database is unavailable, overloaded or full, as opposed to having refused the
    /// request. The store logs each outage once; callers need not log it.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Busy | Self::Full(_) => true,
            Self::Mismatch(_) => self.is_internal_error(),
            Self::Taken(_) | Self::MissingReference | Self::Aborted => false,
        }
    }

    /// The error of a commit. Unless the transaction was certainly aborted, it may have been
    /// committed and must not be retried.
    #[must_use]
    pub(crate) fn into_commit_error(self) -> Self {
        match self {
            Self::Mismatch(error) => Self::Unavailable(error),
            other => other,
        }
    }

    /// Names the unique value, where the caller knows a better name than the generic one.
    #[must_use]
    pub(crate) fn with_name(self, name: &'static str) -> Self {
        match self {
            Self::Taken(_) => Self::Taken(name),
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
            return Self::MissingReference;
        }
        let code = database.code();
        match code.as_deref().map(classify) {
            Some(Class::Aborted) => Self::Aborted,
            Some(Class::Full) => Self::Full(Arc::new(error)),
            Some(Class::Unavailable) => Self::Unavailable(Arc::new(error)),
            Some(Class::Other) | None => Self::Mismatch(Arc::new(error)),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Class {
    Aborted,
    Full,
    Unavailable,
    Other,
}

/// Classifies an error code. Five characters are PostgreSQL's SQLSTATE (PostgreSQL manual, appendix
/// A). A number is SQLite's extended result code, whose lowest byte is the primary code.
fn classify(code: &str) -> Class {
    if code.len() == 5 {
        return match code {
            "40001" | "40P01" => Class::Aborted,
            "53100" => Class::Full,
            // Lock not available, idle transaction terminated, write refused by a demoted server.
            "55P03" | "25P03" | "25006" => Class::Unavailable,
            // Classes: insufficient resources, operator intervention (shutdown, starting up),
            // connection failure, system error.
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

/// PostgreSQL's internal errors: data corruption, or a limit of the operating system that the
/// server does not recognise.
fn is_internal(code: &str) -> bool {
    code.len() == 5 && code.starts_with("XX")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_postgresql() {
        for (code, expected) in [
            ("40001", Class::Aborted),
            ("40P01", Class::Aborted),
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
            assert_eq!(classify(code), expected, "{code}");
        }
    }

    #[test]
    fn what_the_database_says_of_itself() {
        assert!(is_internal("XX000") && is_internal("XX002"));
        assert!(!is_internal("42P01") && !is_internal("1") && !is_internal("XX"));
        assert!(!StoreError::Taken("x").is_internal_error() && !StoreError::Aborted.is_internal_error());
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
            assert_eq!(classify(code), expected, "{code}");
        }
    }

    #[test]
    fn what_spoils_one_change_is_not_what_spoils_all() {
        let lost = || StoreError::from(sqlx::Error::PoolTimedOut);
        assert!(matches!(lost(), StoreError::Unavailable(_)) && !lost().is_single_change_fault());
        assert!(
            StoreError::Taken("x").is_single_change_fault() && !StoreError::Taken("x").is_worth_retrying()
        );
        let unclear = || StoreError::from(sqlx::Error::ColumnNotFound("x".into()));
        assert!(
            unclear().is_single_change_fault() && !unclear().into_commit_error().is_single_change_fault()
        );
        assert!(StoreError::Aborted.is_single_change_fault() && StoreError::Aborted.is_worth_retrying());
        assert_eq!(
            StoreError::Taken("x").with_name("the name of it").to_string(),
            "the name of it is already in use: choose another"
        );
    }
}
