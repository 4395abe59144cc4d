//! Data of former versions of the schema, for tests of upgrades and copies.

use store::Store;
use store::clients::AddClient;

use crate::databases::NOW;

/// From the latest version back to version 9.
pub(crate) const BACK_TO_VERSION_9: [&str; 21] = [
    "DROP INDEX users_unfolded",
    "DROP INDEX users_name_fold",
    "DROP INDEX users_email_fold",
    "ALTER TABLE users DROP COLUMN name_fold",
    "ALTER TABLE users DROP COLUMN email_fold",
    "ALTER TABLE users DROP COLUMN must_change_password_at",
    "DROP TABLE mail_queue",
    "DROP TABLE account_links",
    "DROP TABLE names_given",
    "DROP TABLE audit_receivers",
    "DROP TABLE audit_tail",
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

/// Adds clients as the previous version wrote them.
pub(crate) async fn add_introspecting(store: &Store) {
    for (id, settings) in [
        (
            "gateway",
            r#"{"name":"\"introspects\":true","grants":["client_credentials"],"introspects":true,"access_token":"jwt"}"#,
        ),
        ("shop", r#"{"name":"\"introspects\":true","grants":["client_credentials"],"access_token":"jwt"}"#),
    ] {
        store.write(AddClient { id: id.into(), settings: settings.into(), now: NOW }).await.unwrap();
    }
}

/// Checks what these clients have become.
pub(crate) async fn introspect_as_before(store: &Store) {
    let settings = async |id| store.client(id).await.unwrap().unwrap().settings;
    let all = r#"{"name":"\"introspects\":true","grants":["client_credentials"],"introspects":true,"access_token":"jwt"}"#;
    assert_eq!(settings("gateway").await, all, "the version before reads it");
    let shop = r#"{"name":"\"introspects\":true","grants":["client_credentials"],"access_token":"jwt"}"#;
    assert_eq!(settings("shop").await, shop, "a text is left alone");
}
