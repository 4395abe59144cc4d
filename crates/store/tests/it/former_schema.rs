//! Statements that undo later versions of the schema, for tests of upgrades.

/// From the latest version back to version 9.
pub(crate) const BACK_TO_VERSION_9: [&str; 19] = [
    "DROP INDEX users_unfolded",
    "DROP INDEX users_name_fold",
    "DROP INDEX users_email_fold",
    "ALTER TABLE users DROP COLUMN name_fold",
    "ALTER TABLE users DROP COLUMN email_fold",
    "ALTER TABLE users DROP COLUMN must_change_password_at",
    "DROP TABLE account_links",
    "DROP TABLE names_given",
    "DROP TABLE audit_receivers",
    "DROP TABLE login_endings",
    "DROP TABLE login_endings_head",
    "DROP INDEX audit_log_user",
    "DROP INDEX audit_log_client",
    "DROP INDEX audit_log_actor",
    "DROP INDEX audit_log_action",
    "DROP INDEX audit_log_at",
    "ALTER TABLE audit_log DROP COLUMN user_id",
    "ALTER TABLE audit_log DROP COLUMN client_id",
    "DELETE FROM _sqlx_migrations WHERE version > 9",
];
