//! Tests of the import of accounts.

use std::collections::BTreeSet;

use serde_json::json;
use store::account_import::AccountImportError;

use super::TestProvider;
use crate::admin::import::{ForeignAccount, ForeignAccounts, ImportFault, PasswordHash};

/// `password`, hashed with Python's hashlib.
const PBKDF2: &str = "$pbkdf2-sha256$i=1000,l=64$c29tZXNhbHRzb21lc2FsdA$\
     s5LQUeAEZUMuFVrnmF3OMNPXs3QWnF8SO/5BXmCj6QRRoqV45sk0paBc59MTSTbnRiqZ2rZHiLqodQ/j4M4wFA";

fn account(id: &str, name: &str) -> ForeignAccount {
    ForeignAccount {
        id: id.into(),
        name: name.into(),
        email: Some(format!("{id}@example.com")),
        email_verified: true,
        claims: serde_json::Map::new(),
        created_at: None,
        is_disabled: false,
        must_change_password: false,
        password: Some(PasswordHash { phc: PBKDF2.into(), changed_at: None }),
        groups: vec!["role:lead".into()],
        consents: vec![("web".into(), vec!["openid".into(), "email".into()], None)],
    }
}

fn import(accounts: Vec<ForeignAccount>) -> ForeignAccounts {
    ForeignAccounts { accounts, groups: BTreeSet::new(), source: "a test".into(), is_trial: false }
}

#[tokio::test]
async fn imported_people_log_in_with_the_old_password_and_get_a_new_hash() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let disabled = ForeignAccount { is_disabled: true, ..account("b-1", "bob") };
    let trial = ForeignAccounts { is_trial: true, ..import(vec![account("a-1", "ada"), disabled.clone()]) };
    let counts = admin.import_accounts(trial).await.unwrap();
    assert_eq!((counts.users, counts.disabled, counts.groups, counts.consents), (2, 1, 1, 2));
    assert!(admin.user_id("ada").await.is_err(), "a trial writes nothing");

    let counts_again = admin.import_accounts(import(vec![account("a-1", "ada"), disabled])).await.unwrap();
    assert_eq!(counts_again, counts);
    assert_eq!(bench.audit_entries().await, ["user.import users"]);
    assert_eq!(bench.log_in("desk", "ada", "passwore").await.status, 400);
    assert_eq!(bench.log_in("desk", "ada", "password").await.status, 200);
    let (user, stored) = bench.provider.store().user_by_login("ada").await.unwrap().unwrap();
    assert_eq!(user.id, "a-1", "the `sub` of before");
    assert!(stored.unwrap().phc.starts_with("$argon2id$v=19$m=7168,t=5,p=1$"), "replaced by the login");
    assert_eq!(bench.log_in("desk", "a-1@example.com", "password").await.status, 200);
    assert_eq!(bench.log_in("desk", "bob", "password").await.status, 400, "disabled");
    assert_eq!(admin.user("a-1").await.unwrap().groups, ["role:lead"]);
}

#[tokio::test]
async fn every_value_that_is_refused_is_listed_and_nothing_is_written() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let mut odd = account("", "no\u{200b}ra");
    odd.email = Some("nobody".into());
    odd.claims.insert("department".into(), json!("undeclared"));
    odd.password = Some(PasswordHash { phc: PBKDF2.replace("i=1000", "i=9000000"), changed_at: None });
    odd.groups = vec!["Zu\u{308}rich".into(), "Z\u{fc}rich".into()];
    let Err(ImportFault::Refused(refused)) =
        admin.import_accounts(import(vec![account("a-1", "ada"), odd])).await
    else {
        panic!("it is not refused")
    };
    let paths: Vec<&str> = refused.iter().map(|one| one.path.rsplit(", ").next().unwrap()).collect();
    assert_eq!(paths.len(), 6, "{paths:?}");
    for path in ["name", "email", "claims", "id", "password"] {
        assert!(paths.contains(&path), "{path}: {paths:?}");
    }
    assert!(refused.iter().any(|one| one.reason.contains("equivalent name")), "two groups never become one");
    assert!(admin.user_id("ada").await.is_err());

    let of_client = admin.import_accounts(import(vec![account("bare", "ada")])).await;
    let Err(ImportFault::Refused(refused)) = of_client else {
        panic!("the subject would be that of a client")
    };
    assert!(
        matches!(&*refused, [one] if one.path.ends_with("id") && one.reason.contains("\"bare\"")),
        "{refused:?}"
    );

    bench.user("grace").await;
    let taken = admin.import_accounts(import(vec![account("g-1", "Grace"), account("a-1", "ada")])).await;
    assert!(
        matches!(&taken, Err(ImportFault::Store(AccountImportError::Conflicts(found))) if found.len() == 1),
        "{taken:?}"
    );
    assert!(admin.user_id("ada").await.is_err());
}
