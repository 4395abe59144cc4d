//! Names and addresses: each is assigned once in all equivalent spellings, and those from before
//! the comparison forms remain usable.

use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};
use store::groups::AddGroup;
use store::name_conflicts::NameConflict;
use store::users::{AddUser, ChangeUser, UserRow};
use store::{Store, StoreError};

use crate::databases::{Database, NOW, add_user, on_both, revocation, user};

/// "Nora" in full-width letters.
const WIDE: &str = "\u{ff2e}\u{ff4f}\u{ff52}\u{ff41}";

fn addressed(id: &str, name: &str, email: &str) -> UserRow {
    UserRow { id: id.into(), email: Some(email.into()), email_verified_at: Some(NOW), ..user(name) }
}

async fn add(store: &Store, user: UserRow) -> Result<(), StoreError> {
    store.write(AddUser { user, password: None }).await
}

fn change(from: &UserRow, name: &str, email: Option<&str>) -> ChangeUser {
    ChangeUser {
        from: from.clone(),
        name: name.into(),
        email: email.map(Into::into),
        email_verified_at: from.email_verified_at,
        claims: r#"{"nickname":"changed"}"#.into(),
        revocation: revocation("changed"),
        now: NOW,
    }
}

fn is_taken<T: std::fmt::Debug>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Taken("the user's name or address")))
}

async fn who(store: &Store, login: &str) -> Option<String> {
    store.user_by_login(login).await.unwrap().map(|(user, _)| user.id)
}

/// Inserts rows as a program wrote them that did not know comparison forms.
async fn written_before(database: &Database, rows: &[(&str, &str, Option<&str>)]) {
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    for (id, name, email) in rows {
        let insert = "INSERT INTO users (id, name, name_key, email, email_key, email_verified_at, claims, created_at, \
                      updated_at, tokens_not_before) VALUES ($1, $2, $3, $4, $5, 1, '{}', 1, 1, 0)";
        let insert = sqlx::query(insert).bind(*id).bind(*name).bind(name.to_lowercase());
        let insert = insert.bind(email.map(str::to_owned)).bind(email.map(str::to_lowercase));
        transaction.execute(insert).await.unwrap();
    }
    transaction.commit().await.unwrap();
    connection.close().await.unwrap();
}

/// Renames a user as such a program does: the form of the former name remains.
async fn renamed_before(database: &Database, id: &str, name: &str) {
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let update = sqlx::query("UPDATE users SET name = $2, name_key = $3 WHERE id = $1");
    connection.execute(update.bind(id).bind(name).bind(name.to_lowercase())).await.unwrap();
    connection.close().await.unwrap();
}

/// Number of committed transactions, known once all connections are closed; always 0 for SQLite.
async fn commits(database: &Database) -> i64 {
    if database.url.starts_with("sqlite") {
        return 0;
    }
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let ask = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    connection.fetch_one(ask).await.unwrap().get(0)
}

/// Names whose form differs from the name, more than one page of them.
fn odd(count: usize) -> Vec<(String, String)> {
    (0..count).map(|n| (format!("{n:05}"), format!("zoe\u{308}{n}"))).collect()
}

fn borrowed(rows: &[(String, String)]) -> Vec<(&str, &str, Option<&str>)> {
    rows.iter().map(|(id, name)| (&**id, &**name, None)).collect()
}

on_both! {
    async fn all_accounts_with_a_name_or_address_are_named(database: Database) {
        let store = database.open().await;
        let unverified = UserRow { email_verified_at: None, ..addressed("1", "ada", "ada@x.example") };
        add(&store, unverified).await.unwrap();
        store.close().await;
        written_before(&database, &[("2", "Nora", None), ("3", WIDE, None), ("4", "eve", Some("nora"))]).await;
        let store = database.open().await;
        let named = async |text: &str| {
            let users = store.users_named(text).await.unwrap();
            let mut ids: Vec<_> = users.into_iter().map(|user| user.id).collect();
            ids.sort();
            ids.join(" ")
        };
        for (text, ids) in [
            ("ADA", "1"),
            ("Ada@x.example", "1"),
            ("ada\u{ff20}x.example", "1"),
            ("nora", "2"),
            (WIDE, "3"),
            ("eve", "4"),
            // The form of two names and one address, and no exact name or address.
            ("\u{ff4e}ora", "2 3 4"),
            ("x", ""),
        ] {
            assert_eq!(named(text).await, ids, "{text:?}");
        }
        renamed_before(&database, "3", "cleo").await;
        assert_eq!((named(WIDE).await.as_str(), named("cleo").await.as_str()), ("2 4", "3"), "a former name");
    }

    async fn forms_are_filled_in_by_the_page(database: Database) {
        database.open().await.close().await;
        let rows = odd(1200);
        written_before(&database, &borrowed(&rows)).await;
        let before = commits(&database).await;
        let store = database.open().await;
        for n in [0, 499, 500, 1199] {
            assert_eq!(who(&store, &format!("ZO\u{cb}{n}")).await, Some(format!("{n:05}")));
        }
        let mut copy = Vec::new();
        store.export(&mut copy).await.unwrap();
        store.close().await;
        let took = commits(&database).await - before;
        assert!(took < 200, "{took} transactions for 1200 names");
        let bare = String::from_utf8(copy).unwrap();
        let bare: Vec<String> = bare.lines().map(|line| match line.split_once(",0,\"zo\u{eb}") {
            Some((row, _)) => format!("{row},0,null,null,null]"),
            None => line.to_owned(),
        }).collect();
        let copy = crate::copies::sealed(bare.iter().map(String::as_str));
        assert_eq!(copy.matches(",0,null,null,null]").count(), 1200);
        let other = Database::sqlite().open().await;
        other.import(&mut copy.as_bytes(), crate::databases::EPOCH, |_| Ok(Vec::new())).await.unwrap();
        assert_eq!(who(&other, "ZO\u{cb}1199").await.as_deref(), Some("01199"));
    }

    async fn a_name_that_the_version_before_gave_is_judged_by_itself(database: Database) {
        let store = database.open().await;
        add_user(&store, "Zo\u{eb}").await;
        add_user(&store, "bob").await;
        renamed_before(&database, "id-Zo\u{eb}", "eve").await;
        renamed_before(&database, "id-bob", WIDE).await;
        assert!(is_taken(&add(&store, UserRow { id: "1".into(), ..user("EVE") }).await));
        add(&store, UserRow { id: "2".into(), ..user("zoe\u{308}") }).await.expect("nobody has it any more");
        add(&store, UserRow { id: "3".into(), ..user("bob") }).await.expect("nobody has it any more");
        assert_eq!(who(&store, "BOB").await.as_deref(), Some("3"));
        assert_eq!(store.name_conflicts().await.unwrap(), []);
        let taken = add(&store, UserRow { id: "4".into(), ..user("nora") }).await;
        assert!(is_taken(&taken), "forms that do not fit are mended where names are looked at: {taken:?}");
        assert_eq!(who(&store, "nora").await.as_deref(), Some("id-bob"));
    }

    async fn conflicts_are_found_among_many(database: Database) {
        database.open().await.close().await;
        let mut rows: Vec<(String, String, String)> =
            (0..2100).map(|n| (format!("{n:05}"), format!("u{n}@example.com"), format!("u{n}@example.com"))).collect();
        rows[2099].2 = "u7@EXAMPLE.org".into();
        rows[3].1 = "u7@example.ORG".into();
        rows[2050].1 = WIDE.into();
        rows[4].1 = "nora".into();
        let rows: Vec<_> = rows.iter().map(|(id, name, email)| (&**id, &**name, Some(&**email))).collect();
        written_before(&database, &rows).await;
        let store = database.open().await;
        let told: Vec<String> = store.name_conflicts().await.unwrap().iter().map(NameConflict::to_string).collect();
        assert_eq!(told, [
            "users \"nora\" (00004) and \"\\u{ff2e}\\u{ff4f}\\u{ff52}\\u{ff41}\" (02050) have equivalent names and can sign in only with \
             the exact spelling: rename one of them",
            "the name of user \"u7@example.ORG\" (00003) is the address of user \"u7@EXAMPLE.org\" (02099), who cannot sign in \
             with it: rename the first",
        ]);
    }

    async fn a_name_is_given_once_however_it_is_spelt(database: Database) {
        let store = database.open().await;
        add_user(&store, "Nora").await;
        add_user(&store, "Zo\u{eb}").await;
        let bob = add_user(&store, "bob").await;
        for spelling in ["nORA", WIDE, "Zoe\u{308}", "ZOE\u{308}"] {
            let added = add(&store, UserRow { id: "2".into(), ..user(spelling) }).await;
            assert!(is_taken(&added), "{spelling:?}: {added:?}");
            let renamed = store.write(change(&bob, spelling, None)).await;
            assert!(is_taken(&renamed), "{spelling:?}: {renamed:?}");
        }
        assert_eq!(who(&store, "Zoe\u{308}").await.as_deref(), Some("id-Zo\u{eb}"));
        assert_eq!(who(&store, WIDE).await.as_deref(), Some("id-Nora"));
        assert_eq!(store.user_by_name(WIDE).await.unwrap().unwrap().name, "Nora");
        assert_eq!(who(&store, "no\u{200b}ra").await, None, "what is refused is nobody's");
        assert_eq!(store.name_conflicts().await.unwrap(), []);
    }

    async fn a_name_is_no_others_address(database: Database) {
        let store = database.open().await;
        add(&store, addressed("1", "nora", "Nora@Example.com")).await.unwrap();
        let bob = add_user(&store, "bob@example.com").await;
        for (name, email) in [
            ("nora@example.com", None),
            ("NORA\u{ff20}example.com", None),
            ("eve", Some("Bob@Example.com")),
            ("eve", Some("bob\u{ff20}example.com")),
        ] {
            let added = add(&store, UserRow { email: email.map(Into::into), ..user(name) }).await;
            assert!(is_taken(&added), "{name} {email:?}: {added:?}");
        }
        let renamed = store.write(change(&bob, "nora@example.com", None)).await;
        assert!(is_taken(&renamed), "{renamed:?}");
        let nora = store.user("1").await.unwrap().unwrap();
        let moved = store.write(change(&nora, "nora", Some("bob@example.com"))).await;
        assert!(is_taken(&moved), "{moved:?}");
        assert!(store.write(change(&nora, "nora@example.com", Some("nora@example.com"))).await.unwrap(), "both may be one's own");
    }

    async fn nodes_that_give_one_name_at_once_give_it_to_one(database: Database) {
        let stores = database.open_all().await;
        for round in 0..20 {
            let text = format!("n{round}@example.com");
            let mut nodes = tokio::task::JoinSet::new();
            for n in 0..4 {
                let store = stores[n % stores.len()].clone();
                let id = format!("{round}-{n}");
                let user = if n < 2 { UserRow { id, ..user(&text) } } else { addressed(&id, &format!("p{round}-{n}"), &text) };
                nodes.spawn(async move { add(&store, user).await });
            }
            let added = nodes.join_all().await;
            assert_eq!(added.iter().filter(|added| added.is_ok()).count(), 1, "{added:?}");
            assert_eq!(added.iter().filter(|added| is_taken(added)).count(), 3, "{added:?}");
        }
    }

    async fn what_was_given_before_is_told_of_and_goes_on(database: Database) {
        database.open().await.close().await;
        let rows = [
            ("1", "nora", None),
            ("2", WIDE, None),
            ("3", "no\u{200b}ra", Some("zoe\u{308}@example.com")),
            ("4", "ada", Some("ada@example.com")),
            ("5", "Ada@example.com", None),
            ("6", "zoe\u{308}", None),
        ];
        written_before(&database, &rows).await;
        let store = database.open().await;
        store.write(AddGroup { id: "g".into(), name: "st\u{200b}aff".into(), now: NOW }).await.unwrap();
        let told: Vec<String> = store.name_conflicts().await.unwrap().iter().map(NameConflict::to_string).collect();
        assert_eq!(told, [
            "users \"nora\" (1) and \"\\u{ff2e}\\u{ff4f}\\u{ff52}\\u{ff41}\" (2) have equivalent names and can sign in only with \
             the exact spelling: rename one of them",
            "the name of user \"Ada@example.com\" (5) is the address of user \"ada@example.com\" (4), who cannot sign in \
             with it: rename the first",
            "the name of user \"no\\u{200b}ra\" (3) is no longer allowed: the character U+200B is not allowed (RFC 8264): remove \
             it; rename the user",
            "the name of group \"st\\u{200b}aff\" is no longer allowed: the character U+200B is not allowed (RFC 8264): \
             remove it; create another group",
        ]);
        for (id, name, _) in rows {
            let kept = store.user(id).await.unwrap().unwrap();
            assert_eq!(kept.name, name, "nothing is changed");
            assert_eq!(who(&store, name).await.as_deref(), Some(id), "{name:?}");
            assert!(store.write(change(&kept, name, kept.email.as_deref())).await.unwrap(), "{name:?} can be changed otherwise");
            assert_eq!(who(&store, name).await.as_deref(), Some(id), "{name:?}");
        }
        assert_eq!(who(&store, "Zo\u{eb}").await.as_deref(), Some("6"), "a spelling that only one has");
        assert_eq!(who(&store, "zo\u{eb}@example.com").await.as_deref(), Some("3"));
        assert!(is_taken(&add(&store, UserRow { id: "7".into(), ..user("Zo\u{eb}") }).await));
        let wide = store.user("2").await.unwrap().unwrap();
        assert!(store.write(change(&wide, "nora.wide", None)).await.unwrap());
        assert_eq!(store.name_conflicts().await.unwrap().len(), 3);
    }

    async fn a_copy_brings_names_of_before(database: Database) {
        let source = Database::sqlite();
        source.open().await.close().await;
        written_before(&source, &[("1", "zoe\u{308}", None), ("2", "zo\u{eb}", None)]).await;
        let mut copy = Vec::new();
        // Exported before any program has added the forms.
        let from = source.open().await;
        from.export(&mut copy).await.unwrap();
        let copy = String::from_utf8(copy).unwrap();
        let (bare, folded) = (",0,null,null,null]", ",0,\"zo\u{eb}\",null,null]");
        assert_eq!(copy.matches(folded).count(), 2, "{copy}");
        let copy = crate::copies::sealed(copy.replace(folded, bare).lines());
        let store = database.open().await;
        store.import(&mut copy.as_bytes(), crate::databases::EPOCH, |_| Ok(Vec::new())).await.unwrap();
        assert_eq!(store.name_conflicts().await.unwrap().len(), 1);
        assert!(is_taken(&add(&store, UserRow { id: "3".into(), ..user("ZO\u{cb}") }).await));
    }
}
