//! Account import: many accounts of another provider in one transaction.

use std::time::Instant;

use store::account_import::{
    AccountImportError, ImportConflict, ImportCounts, ImportEnd, ImportedConsent, ImportedRow, ImportedUser,
    MAX_CONFLICTS,
};
use store::audit::AuditEntry;
use store::clients::AddClient;
use store::consents::Consent;
use store::groups::AddGroup;
use store::name_conflicts::ConflictingAccount;
use store::users::{AddUser, UserRow};
use store::{Store, StoreError};

use crate::databases::{NOW, add_user, on_both, password, told, user};

fn row(name: &str) -> ImportedUser {
    ImportedUser {
        user: user(name),
        password: Some(password("$pbkdf2-sha512$i=1,l=64$c2FsdA$aGFzaA")),
        groups: vec!["staff".into()],
        consents: Vec::new(),
    }
}

fn with_email(name: &str, email: &str) -> ImportedUser {
    let mut row = row(name);
    row.user.email = Some(email.to_owned());
    row
}

fn group(name: &str) -> ImportedRow {
    ImportedRow::Group { id: format!("g-{name}"), name: name.to_owned() }
}

fn entry() -> AuditEntry {
    AuditEntry {
        actor: "operator:root".into(),
        action: "import".into(),
        target: "realm:shop".into(),
        detail: "{}".into(),
        client_id: None,
        user_id: None,
        at: NOW,
    }
}

async fn import(
    store: &Store,
    rows: Vec<ImportedRow>,
    end: ImportEnd,
) -> Result<ImportCounts, AccountImportError> {
    store.import_accounts(&mut rows.into_iter().map(Ok), NOW, |_| end).await
}

async fn commit(store: &Store, rows: Vec<ImportedRow>) -> Result<ImportCounts, AccountImportError> {
    import(store, rows, ImportEnd::Commit(vec![entry()])).await
}

fn users(users: Vec<ImportedUser>) -> Vec<ImportedRow> {
    let users = users.into_iter().map(|user| ImportedRow::User(Box::new(user)));
    [group("staff")].into_iter().chain(users).collect()
}

fn account(id: &str, name: &str) -> ConflictingAccount {
    ConflictingAccount { id: id.into(), name: name.into() }
}

async fn conflicts(store: &Store, rows: Vec<ImportedRow>) -> Vec<ImportConflict> {
    match commit(store, rows).await {
        Err(AccountImportError::Conflicts(conflicts)) => {
            assert_eq!(conflicts.total, conflicts.first.len() as u64);
            conflicts.first
        }
        other => panic!("{other:?}"),
    }
}

/// Accounts as a large realm has them: name, address, claims, a hash, three of twenty groups.
fn realm(count: u32) -> impl Iterator<Item = Result<ImportedRow, String>> + Send {
    let hash = "$argon2id$v=19$m=7168,t=5,p=1$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc";
    let people = (0..count).map(move |n| {
        let mut row = with_email(&format!("person-{n}"), &format!("Person.{n}@example.com"));
        row.user.email_verified_at = Some(NOW);
        row.user.claims = format!(r#"{{"given_name":"Person","family_name":"Number {n}","locale":"de"}}"#);
        row.password = Some(password(hash));
        row.groups = [n % 20, (n + 1) % 20, (n + 7) % 20].map(|group| format!("group {group}")).to_vec();
        Ok(ImportedRow::User(Box::new(row)))
    });
    (0..20).map(|n| Ok(group(&format!("group {n}")))).chain(people)
}

on_both! {
    async fn an_import_adds_everything_with_one_audit_entry(database: Database) {
        let store = database.open().await;
        store.write(AddGroup { id: "old".into(), name: "staff".into(), now: NOW }).await.unwrap();
        let mut ada = with_email("Ada", "ada@example.com");
        ada.groups.push("role:admin".into());
        ada.consents.push(ImportedConsent { client_id: "shop".into(), scopes: "openid email".into(), given_at: NOW });
        let mut bob = row("bob");
        bob.password = None;
        bob.user.disabled_at = Some(NOW);
        let mut rows = vec![group("staff"), group("role:admin")];
        rows.extend([ada.clone(), bob].map(|user| ImportedRow::User(Box::new(user))));
        let counts = commit(&store, rows).await.unwrap();
        let expected = ImportCounts {
            users: 2, passwords: 1, disabled: 1, groups: 1, memberships: 3, consents: 1,
            joined: ["staff".to_owned()].into(),
        };
        assert_eq!(counts, expected, "the group \"staff\" exists already");
        let (found, stored) = store.user_by_login("ADA").await.unwrap().unwrap();
        assert_eq!(UserRow { read_at: ada.user.read_at, ..found }, ada.user);
        assert_eq!(stored, ada.password);
        assert!(store.user("id-bob").await.unwrap().unwrap().disabled_at.is_some());
        assert_eq!(store.groups_of("id-Ada").await.unwrap(), ["role:admin", "staff"]);
        assert_eq!(store.group("staff").await.unwrap().unwrap().id, "old");
        let consent = Consent { user_id: "id-Ada".into(), client_id: "shop".into(), scopes: "openid email".into(), given_at: NOW };
        assert_eq!(store.consents_of("id-Ada").await.unwrap(), [consent]);
        let entries = store.audit_log(0).await.unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].entry, entry());
    }

    async fn a_dry_run_checks_and_changes_nothing(database: Database) {
        let store = database.open().await;
        let rows = || users(vec![row("ada"), row("bob")]);
        let counts = import(&store, rows(), ImportEnd::RollBack).await.unwrap();
        assert_eq!((counts.users, counts.groups), (2, 1));
        assert_eq!(store.users("", 10).await.unwrap(), []);
        assert_eq!(store.group("staff").await.unwrap(), None);
        assert_eq!(commit(&store, rows()).await.unwrap(), counts, "a dry run leaves nothing behind");
        add_user(&store, "eve").await;
    }

    async fn all_conflicts_are_found_and_nothing_is_written(database: Database) {
        let store = database.open().await;
        add_user(&store, "Zo\u{eb}").await;
        let mut mail = user("mail");
        mail.email = Some("Ada@example.com".into());
        store.write(AddUser { user: mail, password: None }).await.unwrap();
        store.write(AddClient { id: "robot".into(), settings: "{}".into(), now: NOW }).await.unwrap();
        let mut as_client = row("r2d2");
        as_client.user.id = "robot".into();
        let mut again = row("new name");
        again.user.id = "id-mail".into();
        let rows = users(vec![
            row("fine"),
            row("ZOE\u{308}"),
            row("ADA\u{ff20}example.com"),
            with_email("other", "fine"),
            as_client,
            again,
            with_email("self@example.com", "Self@Example.com"),
        ]);
        let found = conflicts(&store, rows).await;
        let expected = [
            ImportConflict::Name(account("id-ZOE\u{308}", "ZOE\u{308}"), account("id-Zo\u{eb}", "Zo\u{eb}")),
            ImportConflict::Name(
                account("id-ADA\u{ff20}example.com", "ADA\u{ff20}example.com"),
                account("id-mail", "Ada@example.com"),
            ),
            ImportConflict::Address(account("id-other", "fine"), account("id-fine", "fine")),
            ImportConflict::SameId(account("robot", "r2d2")),
            ImportConflict::SameId(account("id-mail", "new name")),
        ];
        assert_eq!(found, expected);
        assert_eq!(store.user("id-fine").await.unwrap(), None);
        assert_eq!(store.audit_log(0).await.unwrap(), []);
    }

    async fn a_conflict_is_found_across_batches(database: Database) {
        let store = database.open().await;
        let mut people: Vec<ImportedUser> = (0..300).map(|n| row(&format!("p{n}"))).collect();
        people.push(with_email("late", "P0"));
        let found = conflicts(&store, users(people)).await;
        assert_eq!(found, [ImportConflict::Address(account("id-late", "P0"), account("id-p0", "p0"))]);
        assert_eq!(store.users("", 10).await.unwrap(), []);
    }

    async fn conflicts_are_counted_and_the_first_are_listed(database: Database) {
        let store = database.open().await;
        let people = || users((0..300).map(|n| row(&format!("p{n}"))).collect());
        let counts = commit(&store, people()).await.unwrap();
        assert!(counts.joined.is_empty(), "the group is new");
        match commit(&store, people()).await {
            Err(AccountImportError::Conflicts(conflicts)) => {
                assert_eq!((conflicts.total, conflicts.first.len()), (300, MAX_CONFLICTS));
                assert_eq!(conflicts.first[0], ImportConflict::SameId(account("id-p0", "p0")));
            }
            other => panic!("{other:?}"),
        }
        // A group that nobody joins is none of those that are joined.
        let counts = commit(&store, vec![group("staff")]).await.unwrap();
        assert_eq!(counts, ImportCounts::default());
    }

    async fn rows_that_cannot_be_read_end_the_import(database: Database) {
        let store = database.open().await;
        let mut rows = users(vec![row("ada")]).into_iter().map(Ok).chain([Err("line 7: broken".to_owned())]);
        let refused = store.import_accounts(&mut rows, NOW, |_| panic!("there is nothing to decide")).await;
        assert!(matches!(&refused, Err(AccountImportError::Source(why)) if why == "line 7: broken"), "{refused:?}");
        let mut stray = row("ada");
        stray.groups = vec!["nowhere".into()];
        let refused = commit(&store, users(vec![stray])).await;
        assert!(matches!(&refused, Err(AccountImportError::UnknownGroup(name)) if name == "nowhere"), "{refused:?}");
        let mut twice = row("ada");
        twice.groups = vec!["staff".into(), "staff".into()];
        let refused = commit(&store, users(vec![twice])).await;
        assert!(matches!(refused, Err(AccountImportError::Database(StoreError::Taken(_)))), "{refused:?}");
        assert_eq!(store.users("", 10).await.unwrap(), []);
        assert_eq!(commit(&store, users(vec![row("ada")])).await.unwrap().users, 1, "the connection is usable");
    }

    async fn a_large_realm_is_imported_in_a_minute(database: Database) {
        let count: u32 = told("POSTERN_TEST_IMPORT").map_or(2_000, |count| count.parse().unwrap());
        let store = database.open().await;
        let began = Instant::now();
        let counts = store.import_accounts(&mut realm(count), NOW, |_| ImportEnd::Commit(vec![entry()])).await.unwrap();
        // Shown by `--nocapture`.
        eprintln!("{:?}: {count} accounts in {:?}", store.dialect(), began.elapsed());
        assert_eq!((counts.users, counts.memberships), (u64::from(count), 3 * u64::from(count)));
        let (last, _) = store.user_by_login(&format!("person.{}@EXAMPLE.com", count - 1)).await.unwrap().unwrap();
        assert_eq!(store.groups_of(&last.id).await.unwrap().len(), 3);
    }
}
