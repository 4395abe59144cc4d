//! Tests of the import of accounts.

use std::collections::BTreeSet;

use serde_json::json;
use store::account_import::{AccountImportError, ImportCounts};

use super::TestProvider;
use crate::admin::Admin;
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

async fn try_import(
    admin: &Admin<'_>,
    accounts: Vec<ForeignAccount>,
    is_trial: bool,
) -> Result<ImportCounts, ImportFault> {
    let groups: BTreeSet<String> = accounts.iter().flat_map(|account| account.groups.clone()).collect();
    let mut accounts = accounts.into_iter().map(Ok);
    let import = ForeignAccounts { accounts: &mut accounts, groups, source: "a test".into(), is_trial };
    admin.import_accounts(import).await
}

async fn import(admin: &Admin<'_>, accounts: Vec<ForeignAccount>) -> Result<ImportCounts, ImportFault> {
    try_import(admin, accounts, false).await
}

#[tokio::test]
async fn imported_people_log_in_with_the_old_password_and_get_a_new_hash() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let disabled = ForeignAccount { is_disabled: true, ..account("b-1", "bob") };
    let both = || vec![account("a-1", "ada"), disabled.clone()];
    let counts = try_import(&admin, both(), true).await.unwrap();
    assert_eq!((counts.users, counts.disabled, counts.groups, counts.consents), (2, 1, 1, 2));
    assert!(admin.user_id("ada").await.is_err(), "a trial writes nothing");

    let counts_again = import(&admin, both()).await.unwrap();
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
    let Err(ImportFault::Refused(refused)) = import(&admin, vec![account("a-1", "ada"), odd]).await else {
        panic!("it is not refused")
    };
    assert_eq!(refused.total, 6);
    let refused = refused.first;
    let paths: Vec<&str> = refused.iter().map(|one| one.path.rsplit(", ").next().unwrap()).collect();
    assert_eq!(paths.len(), 6, "{paths:?}");
    for path in ["name", "email", "claims", "id", "password"] {
        assert!(paths.contains(&path), "{path}: {paths:?}");
    }
    assert!(refused.iter().any(|one| one.reason.contains("equivalent name")), "two groups never become one");
    assert!(admin.user_id("ada").await.is_err());

    let of_client = import(&admin, vec![account("bare", "ada"), account("a-1", "ada")]).await;
    let Err(ImportFault::Refused(refused)) = of_client else {
        panic!("the subject would be that of a client")
    };
    assert!(
        matches!(&*refused.first, [one] if one.path.ends_with("id") && one.reason.contains("\"bare\"")),
        "{refused:?}"
    );

    bench.user("grace").await;
    let taken = import(&admin, vec![account("g-1", "Grace"), account("a-1", "ada")]).await;
    assert!(
        matches!(&taken, Err(ImportFault::Store(AccountImportError::Conflicts(found))) if found.total == 1),
        "{taken:?}"
    );
    // What is refused and what conflicts are found in one run; the former is told first.
    let client = account("bare", "bob");
    let both = import(&admin, vec![account("g-1", "Grace"), client]).await;
    assert!(matches!(&both, Err(ImportFault::Refused(refused)) if refused.total == 1), "{both:?}");
    let mut rows = vec![Ok(account("a-1", "ada")), Err("line 7: broken".to_owned())].into_iter();
    let groups = ["role:lead".to_owned()].into();
    let broken = ForeignAccounts { accounts: &mut rows, groups, source: "a test".into(), is_trial: false };
    let broken = admin.import_accounts(broken).await;
    assert!(matches!(&broken, Err(ImportFault::Store(AccountImportError::Source(_)))), "{broken:?}");
    let mut rows = vec![Ok(account("a-1", "ada"))].into_iter();
    let groupless = ForeignAccounts {
        accounts: &mut rows,
        groups: BTreeSet::new(),
        source: "a test".into(),
        is_trial: false,
    };
    let groupless = admin.import_accounts(groupless).await;
    assert!(matches!(&groupless, Err(ImportFault::Refused(_))), "a membership is never lost: {groupless:?}");
    assert!(admin.user_id("ada").await.is_err());
}
