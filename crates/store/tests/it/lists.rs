//! Lists: each page is read by an index, in its order, however long the list is.

use std::time::Duration;

use sqlx::{AnyConnection, Connection as _, Executor as _};
use store::families::FamilyFilter;
use store::{clients, groups, sessions, users};

use crate::databases::{Database, NOW, at, on_both, plan};

/// Rows of each table.
const MANY: u32 = 20_000;
/// Members of the small group.
const FEW: u32 = 20;

/// Fills the tables. User `i100000` and those after it have names in another order than their ids, a
/// session each, and a family each of one of fifty clients. All are in the group `all`.
async fn fill(database: &Database) {
    let bytes = if database.url.starts_with("sqlite") { "BLOB" } else { "BYTEA" };
    let (now, later) = (NOW.as_millis(), NOW.plus(Duration::from_hours(9)).as_millis());
    // A digest has 32 bytes.
    let prefix = "d".repeat(26);
    let numbers = format!(
        "WITH RECURSIVE n (k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM n WHERE k < {}) SELECT",
        MANY - 1
    );
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    for statement in [
        format!(
            "INSERT INTO users (id, name, name_key, name_fold, claims, created_at, updated_at, tokens_not_before) {numbers} \
             'i' || (100000 + (k * 7919) % {MANY}), 'U' || (100000 + k), 'u' || (100000 + k), 'u' || (100000 + k), '{{}}', 1, 1, 0 FROM n"
        ),
        format!(
            "INSERT INTO user_groups (id, name, created_at) {numbers} 'g' || k, 'group ' || (100000 + k), 1 FROM n"
        ),
        "INSERT INTO user_groups (id, name, created_at) VALUES ('all', 'all', 1), ('few', 'few', 1)"
            .to_owned(),
        "INSERT INTO group_members (group_id, user_id) SELECT 'all', id FROM users".to_owned(),
        format!(
            "INSERT INTO group_members (group_id, user_id) SELECT 'few', id FROM users ORDER BY name_key LIMIT {FEW}"
        ),
        format!(
            "INSERT INTO clients (id, settings, version, created_at, updated_at) {numbers} 'c' || (100000 + k), '{{}}', 1, 1, 1 FROM n"
        ),
        format!(
            "INSERT INTO sessions (digest, sid, user_id, authenticated_at, methods, agent, address, created_at, seen_at, \
             expires_at) {numbers} CAST('{prefix}' || (100000 + k) AS {bytes}), 's' || (100000 + k), 'i' || (100000 + k), 1, 'pwd', '', '', \
             {now}, {now}, {later} FROM n"
        ),
        format!(
            "INSERT INTO families (id, client_id, user_id, sid, scopes, audiences, details, outlives_session, created_at, \
             expires_at) {numbers} 'f' || (100000 + k), 'c' || (k % 50), 'i' || (100000 + k), 's' || (100000 + k), '', '', '', \
             0, {now}, {later} FROM n"
        ),
    ] {
        connection.execute(sqlx::AssertSqlSafe(statement)).await.unwrap();
    }
    // PostgreSQL has statistics of its tables. Nobody makes them for SQLite.
    if !database.url.starts_with("sqlite") {
        connection.execute("ANALYZE").await.unwrap();
    }
}

/// Whether a plan reads a whole table. The head of a log has one row.
fn reads_a_table(plan: &str) -> bool {
    let reads = |line: &str| line.contains("Seq Scan on ") || line.trim_start().starts_with("SCAN ");
    plan.lines().any(|line| reads(line) && !line.contains("invalidation_head"))
}

fn sorts(plan: &str) -> bool {
    plan.contains("Sort") || plan.contains("TEMP B-TREE")
}

on_both! {
    async fn every_page_is_read_by_an_index(database: Database) {
        let store = database.open().await;
        fill(&database).await;
        let is_sqlite = database.url.starts_with("sqlite");
        let (now, idle_since) = (NOW.as_millis().to_string(), NOW.minus(Duration::from_hours(2)).as_millis().to_string());
        let values = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
        let (user, client) = (Some("i100007"), Some("c7"));
        let family = |user_id, client_id| {
            let text = |text: Option<&str>| text.map_or("NULL".to_owned(), |text| format!("'{text}'"));
            let filter = FamilyFilter { user_id, client_id };
            let (user, client) = (text(user_id), text(client_id));
            (filter.statement(), values(&["'f110000'", &now, "101", &user, &client, &idle_since]))
        };
        let session = |user_id: Option<&str>, value| {
            (sessions::list_statement(user_id), values(&["'s110000'", &now, "101", value]))
        };
        let members = |group| (groups::members_statement(), values(&[group, "'i110000'", "101"]));
        for (name, (statement, values), sqlite, postgres, is_sorted) in [
            ("users", (users::list_statement(), values(&["'u110000'", "101"])), "sqlite_autoindex_users_2", "users_name_key_key", false),
            ("groups", (groups::LIST_STATEMENT.to_owned(), values(&["'group 110000'", "101"])), "sqlite_autoindex_user_groups_2", "user_groups_name_key", false),
            ("members of a large group", members("'all'"), "group_members_group", "group_members_group", false),
            ("members of a small group", members("'few'"), "group_members_group", "group_members_group", false),
            ("clients", (clients::list_statement(), values(&["'c110000'", "101"])), "sqlite_autoindex_clients_1", "clients_pkey", false),
            ("sessions", session(None, "NULL"), "sqlite_autoindex_sessions_2", "sessions_sid_key", false),
            // The few of one user are sorted.
            ("sessions of a user", session(user, "'i100007'"), "sessions_user", "sessions_user", true),
            ("families", family(None, None), "sqlite_autoindex_families_1", "families_pkey", false),
            ("families of a user", family(user, None), "families_user", "families_user", true),
            ("families of a client", family(None, client), "families_client", "families_client", false),
            ("families of both", family(user, client), "families_user", "families_user", true),
        ] {
            let plan = plan(&database, &statement, &values).await;
            assert!(plan.contains(if is_sqlite { sqlite } else { postgres }), "{name}: {plan}");
            assert!(!reads_a_table(&plan), "{name}: {plan}");
            assert!(is_sorted || !sorts(&plan), "{name}: {plan}");
        }

        // The statements are those that read the lists.
        let first = store.users("u110000", 2).await.unwrap();
        assert_eq!(first.iter().map(|user| &*user.name).collect::<Vec<_>>(), ["U110001", "U110002"]);
        let groups = store.groups("group 110000", 2).await.unwrap();
        assert_eq!(groups.iter().map(|group| &*group.name).collect::<Vec<_>>(), ["group 110001", "group 110002"]);
        let members = store.members_of("all", "i110000", 2).await.unwrap();
        assert_eq!(members.iter().map(|user| &*user.id).collect::<Vec<_>>(), ["i110001", "i110002"]);
        assert_eq!(store.members_of("few", "", 100).await.unwrap().len(), FEW as usize);
        let clients = store.clients("c110000", 2).await.unwrap();
        assert_eq!(clients.iter().map(|client| &*client.id).collect::<Vec<_>>(), ["c110001", "c110002"]);
        let sessions = store.sessions(None, "s110000", 2, NOW).await.unwrap();
        assert_eq!(sessions.iter().map(|session| &*session.sid).collect::<Vec<_>>(), ["s110001", "s110002"]);
        let families = store.families(FamilyFilter { client_id: client, user_id: None }, "f110000", 2, at(NOW)).await.unwrap();
        assert_eq!(families.iter().map(|family| &*family.id).collect::<Vec<_>>(), ["f110007", "f110057"]);
    }
}
