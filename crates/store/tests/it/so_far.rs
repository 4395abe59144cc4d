//! Revocation of "everything so far": state read before the event is distinguished from state read
//! after it, even if the nodes' clocks differ.

use std::time::Duration;

use auth::time::Timestamp;
use store::access_tokens::{AccessToken, AppendRevocation, IssueAccessToken};
use store::codes::{IssueCode, Issued};
use store::consents::{Consent, GiveConsent, WithdrawConsent};
use store::families::{Family, RevokeGrants};
use store::groups::{AddGroup, AddMember, RemoveMember};
use store::jwt_status::JwtClaims;
use store::users::{ChangeOwnPassword, RevokeUser, UserRevocation, UserRow};
use store::{Change, Dialect, Revocation, RevocationReach, Store};

use crate::databases::{
    NOW, ORIGINS, add_user, begin_family, digest, family, on_both, password, revocation, tag,
};
use crate::grants::{access, code, is_active};
use crate::people::{begin, session};

const HOUR: Duration = Duration::from_hours(1);

fn so_far(name: &str) -> Revocation {
    Revocation { reach: RevocationReach::UntilDurable, ..revocation(name) }
}

fn end(user: &UserRow, now: Timestamp) -> RevokeUser {
    RevokeUser {
        user_id: user.id.clone(),
        account_change: UserRevocation::Everything,
        revocation: so_far("user"),
        deliver_until: None,
        now,
    }
}

/// Whether a JWT is valid that was signed with state read at `read_at`.
async fn counts(store: &Store, user: &UserRow, read_at: Timestamp) -> bool {
    let claimed = JwtClaims {
        family_id: None,
        user_id: Some(&user.id),
        client_id: "notebook",
        read_at,
        tag: tag("jti"),
        key: tag("key"),
        origins: ORIGINS,
    };
    store.jwt_status(claimed).await.unwrap().unrevoked
}

async fn read(store: &Store, user: &UserRow) -> UserRow {
    store.user(&user.id).await.unwrap().unwrap()
}

on_both! {
    async fn the_time_of_the_log_grows_whatever_clocks_say(database: Database) {
        let store = database.open().await;
        assert_eq!(store.log_time().await.unwrap().as_millis(), 0);
        let (mut times, clocks) = (Vec::new(), [NOW, NOW, NOW.plus(HOUR), NOW, Timestamp::from_millis(5)]);
        for now in clocks {
            store.write(AppendRevocation { revocation: so_far("a"), now }).await.unwrap();
            times.push(store.log_time().await.unwrap());
        }
        let first = NOW.as_millis();
        let later = NOW.plus(HOUR).as_millis();
        let expected = [first, first + 1, later, later + 1, later + 2].map(Timestamp::from_millis);
        assert_eq!(times, expected);
        let told: Vec<_> = store.events(0, 10).await.unwrap().into_iter().map(|e| (e.not_before, e.at)).collect();
        assert_eq!(told, expected.map(Some).into_iter().zip(clocks).collect::<Vec<_>>());
        let denied = store.prove_denied(None, 10).await.unwrap().1;
        assert_eq!(denied[0].not_before, Some(expected[4]), "the last of them counts");
        // Any other event advances log time, but a read does not.
        store.write(AppendRevocation { revocation: revocation("b"), now: NOW }).await.unwrap();
        store.write(store::ProveHead).await.unwrap();
        assert_eq!(store.log_time().await.unwrap().as_millis(), later + 3);
        assert_eq!(store.events(5, 1).await.unwrap()[0].not_before, None);
    }

    async fn an_ending_takes_what_was_read_before_it_and_nothing_else(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        // The same millisecond again and again, and a clock that goes back.
        for now in [NOW, NOW, NOW, Timestamp::from_millis(7)] {
            let before = read(&store, &ada).await;
            assert!(counts(&store, &ada, before.read_at).await);
            assert!(store.write(end(&ada, now)).await.unwrap());
            assert!(!counts(&store, &ada, before.read_at).await, "{before:?}");
            assert!(counts(&store, &ada, read(&store, &ada).await.read_at).await, "at once");
            // Neither a session nor a family nor a token can begin from state read before.
            assert_eq!(store.write(begin(session("late", &before), None)).await.unwrap(), None);
            let late = begin_family(family("late", &before), None, access("late-f", Some(&before)));
            assert!(!store.write(late).await.unwrap());
            assert!(!store.write(IssueAccessToken(access("late", Some(&before)))).await.unwrap());
        }
        let now = read(&store, &ada).await;
        assert!(store.write(begin(session("s", &now), None)).await.unwrap().is_some());
        assert!(store.write(begin_family(family("f", &now), None, access("f", Some(&now)))).await.unwrap());
        assert!(store.write(IssueAccessToken(access("a", Some(&now)))).await.unwrap());
        assert!(is_active(&store, "a", NOW).await && is_active(&store, "f", NOW).await);
    }

    async fn a_password_is_changed_as_what_it_was_when_the_old_one_was_shown(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(begin(session("old", &ada), None)).await.unwrap();
        let change = |name: &str, as_read: &UserRow| ChangeOwnPassword {
            end: RevokeUser { account_change: UserRevocation::Password(password(name)), ..end(&ada, NOW) },
            read_at: as_read.read_at,
            session: session(name, as_read),
        };
        let shown = read(&store, &ada).await;
        assert!(store.write(change("own", &shown)).await.unwrap());
        assert_eq!(store.session(&digest("old"), NOW).await.unwrap(), None);
        assert!(store.session(&digest("own"), NOW).await.unwrap().is_some());
        // A request with the old password was in progress, too.
        assert!(!store.write(change("stolen", &shown)).await.unwrap());
        assert_eq!(store.user_by_login("ada").await.unwrap().unwrap().1, Some(password("own")));
        assert_eq!(store.session(&digest("stolen"), NOW).await.unwrap(), None);
        assert!(store.session(&digest("own"), NOW).await.unwrap().is_some());
    }

    async fn what_shares_a_transaction_with_an_ending_is_before_or_after_it(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        begun_amid(&store, &ada, end(&ada, NOW)).await;
        for n in 0..BEGUN {
            assert!(!is_active(&store, &format!("a{n}"), NOW).await, "{n}");
            assert!(!is_alive(&store, n).await, "{n}");
        }
    }

    async fn what_shares_a_transaction_with_the_end_of_its_client_is_before_or_after_it(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let revocation = Revocation { tags: vec![ORIGINS[0]], ..so_far("client") };
        let revoke = RevokeGrants { client_id: "notebook".into(), user_id: None, revocation, now: NOW };
        begun_amid(&store, &ada, revoke).await;
        for n in 0..BEGUN {
            assert!(!is_active(&store, &format!("a{n}"), NOW).await, "{n}");
            // With overlapping transactions a family may be committed in time.
            assert!(store.dialect() == Dialect::Postgres || !is_alive(&store, n).await, "{n}");
        }
    }

    async fn a_token_does_not_tell_of_a_group_that_was_left_before_it_was_read(database: Database) {
        let stores = database.open_all().await;
        store_group(&stores[0]).await;
        for round in 0..20 {
            let ada = add_user(&stores[0], &format!("ada{round}")).await;
            let add = AddMember { group: "staff".into(), user_id: ada.id.clone() };
            assert!(stores[0].write(add).await.unwrap());
            let mut minted = tokio::task::JoinSet::new();
            for n in 0..12 {
                let (store, ada) = (stores[n % stores.len()].clone(), ada.clone());
                minted.spawn(async move {
                    tokio::time::sleep(Duration::from_micros(300 * n as u64)).await;
                    let account = read(&store, &ada).await;
                    let groups = store.groups_of(&ada.id).await.unwrap();
                    (account.read_at, !groups.is_empty())
                });
            }
            let remove = RemoveMember {
                group: "staff".into(),
                user_id: ada.id.clone(),
                revocation: so_far(&format!("u{round}")),
                // This node's clock is an hour slow or fast.
                now: if round % 2 == 0 { Timestamp::from_millis(NOW.as_millis() - 3_600_000) } else { NOW.plus(HOUR) },
            };
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(stores[round % stores.len()].write(remove).await.unwrap());
            let store = &stores[0];
            for (read_at, member) in minted.join_all().await {
                assert!(!(member && counts(store, &ada, read_at).await), "a member for good: {read_at:?}");
            }
            let last = read(store, &ada).await;
            assert!(counts(store, &ada, last.read_at).await);
        }
    }

    async fn what_a_client_had_so_far_is_void_however_late_it_is_kept(database: Database) {
        let store = database.open().await;
        let early = store.log_time().await.unwrap();
        let ada = add_user(&store, "ada").await;
        let told = Revocation { tags: vec![ORIGINS[0]], ..so_far("client") };
        let revoke = RevokeGrants { client_id: "notebook".into(), user_id: None, revocation: told, now: NOW };
        store.write(revoke).await.unwrap();
        let own = |name: &str, read_at| AccessToken { read_at, ..access(name, None) };
        store.write(IssueAccessToken(own("early", early))).await.unwrap();
        store.write(IssueAccessToken(own("late", store.log_time().await.unwrap()))).await.unwrap();
        assert!(!is_active(&store, "early", NOW).await && is_active(&store, "late", NOW).await);
        let kept = store.access_token(&digest("late")).await.unwrap().unwrap().token;
        assert_eq!(kept, own("late", kept.read_at));
        // Nothing that lives longer can begin from it either.
        assert!(!store.write(begin_family(family("early", &ada), None, access("f", Some(&ada)))).await.unwrap());
        let now = Family { read_at: kept.read_at, ..family("late", &ada) };
        assert!(store.write(begin_family(now, None, access("f", Some(&ada)))).await.unwrap());
    }

    async fn a_code_needs_the_consent_that_it_rests_on(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let issue = |name: &str| {
            let family = Family { client_id: "notebook".into(), ..family(name, &ada) };
            IssueCode { family, origins: ORIGINS, code: code(name), required_consent: Some(vec!["openid".into()]), pushed_request: None }
        };
        assert_eq!(store.write(issue("never")).await.unwrap(), Issued::GrantEnded);
        let of_nothing = |name: &str| IssueCode { required_consent: Some(vec![]), ..issue(name) };
        assert_eq!(store.write(of_nothing("nothing")).await.unwrap(), Issued::GrantEnded, "not even that");
        let consent = Consent {
            user_id: ada.id.clone(), client_id: "notebook".into(), scopes: "openid".into(), given_at: NOW,
        };
        assert!(store.write(GiveConsent { consent, previous_scopes: None }).await.unwrap());
        assert_eq!(store.write(issue("given")).await.unwrap(), Issued::Stored);
        assert_eq!(store.write(of_nothing("less")).await.unwrap(), Issued::Stored);
        let more = IssueCode { required_consent: Some(vec!["openid".into(), "mail".into()]), ..issue("more") };
        assert_eq!(store.write(more).await.unwrap(), Issued::GrantEnded, "that much was never allowed");
        let withdraw = WithdrawConsent {
            user_id: ada.id.clone(), client_id: "notebook".into(), revocation: so_far("consent"), now: NOW,
        };
        assert!(store.write(withdraw).await.unwrap());
        assert_eq!(store.write(issue("withdrawn")).await.unwrap(), Issued::GrantEnded);
        assert_eq!(store.family("withdrawn").await.unwrap(), None);
    }
}

const BEGUN: usize = 60;

/// Begins families concurrently, with a change in between.
async fn begun_amid(store: &Store, user: &UserRow, change: impl Change) {
    let mut writes = tokio::task::JoinSet::new();
    let mut change = Some(change);
    for n in 0..BEGUN {
        let begin = begin_family(family(&format!("f{n}"), user), None, access(&format!("a{n}"), Some(user)));
        let (now, store) = (change.take_if(|_| n == BEGUN / 2), store.clone());
        writes.spawn(async move {
            if let Some(change) = now {
                store.write(change).await.unwrap();
            }
            store.write(begin).await.unwrap();
        });
    }
    writes.join_all().await;
}

async fn is_alive(store: &Store, begun: usize) -> bool {
    let family = store.family(&format!("f{begun}")).await.unwrap();
    family.is_some_and(|family| family.is_alive(NOW))
}

async fn store_group(store: &Store) {
    store.write(AddGroup { id: "staff".into(), name: "staff".into(), now: NOW }).await.unwrap();
}
