//! Revocation concurrent with grants, and the notification of clients.

use std::time::Duration;

use store::access_tokens::{AppendRevocation, IssueAccessToken};
use store::codes::{IssueCode, Issued};
use store::deliveries::{Delivery, RemoveDelivery, TakeDueDeliveries};
use store::device_codes::{DecideDeviceCode, IssueDeviceCode};
use store::families::Family;
use store::groups::{AddGroup, AddMember, DeleteGroup, Deleted};
use store::jwt_status::{JwtClaims, JwtStatus};
use store::pushed_requests::PushRequest;
use store::redeem::RedeemResult;
use store::sessions::{BeginSession, EndSession, SessionRow};
use store::users::{DeleteUser, RevokeUser, UserRevocation, UserRow};
use store::{RevocationReach, Store, StoreError};

use crate::databases::{
    NOW, ORIGINS, add_user, alive_families, begin_family, digest, family, on_both, revocation, tag,
};
use crate::grants::{access, code, device, is_active, redeem_device, redeem_refresh, refresh};
use crate::people::{begin, session};

const LATER: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// A family of the session `sid-name`.
fn within(id: &str, user: &UserRow, name: &str) -> Family {
    Family { sid: Some(format!("sid-{name}")), ..family(id, user) }
}

fn of_client(client: &str, family: Family) -> IssueCode {
    let code = code(&family.id);
    IssueCode {
        family: Family { client_id: client.into(), ..family },
        origins: ORIGINS,
        code,
        required_consent: None,
        pushed_request: None,
    }
}

fn end_session(name: &str, user: &UserRow) -> EndSession {
    EndSession {
        sid: format!("sid-{name}"),
        user_id: user.id.clone(),
        revocation: revocation(name),
        deliver_until: Some(NOW.plus(HOUR)),
        now: NOW.plus(LATER),
    }
}

fn end_user(user: &UserRow, ending: UserRevocation) -> RevokeUser {
    RevokeUser {
        user_id: user.id.clone(),
        account_change: ending,
        revocation: revocation("user"),
        deliver_until: Some(NOW.plus(HOUR)),
        now: NOW.plus(LATER),
    }
}

async fn due(store: &Store) -> Vec<Delivery> {
    let take = TakeDueDeliveries { limit: 100, except: vec![], retry_after: LATER, now: NOW.plus(LATER) };
    let mut due = store.write(take).await.unwrap();
    due.sort_by(|a, b| a.id.cmp(&b.id));
    due
}

fn delivery(client: &str, user: &UserRow, name: &str) -> Delivery {
    Delivery {
        id: format!("sid-{name}/{client}"),
        client_id: client.into(),
        user_id: user.id.clone(),
        sid: format!("sid-{name}"),
        attempts: 1,
    }
}

on_both! {
    async fn nothing_is_granted_in_what_has_ended(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(begin(session("s", &ada), None)).await.unwrap();
        let push = PushRequest {
            digest: digest("p"), client_id: "notebook".into(), parameters: "{}".into(), expires_at: NOW.plus(LATER),
        };
        store.write(push).await.unwrap();
        store.write(IssueDeviceCode(device("d", "u"))).await.unwrap();
        let decide = DecideDeviceCode {
            user_code: digest("u"), approved: true, user_id: ada.id.clone(), sid: "sid-s".into(), details: "{}".into(),
            now: NOW,
        };
        assert!(store.write(decide).await.unwrap());
        assert!(store.write(end_session("s", &ada)).await.unwrap());

        let issue = IssueCode { pushed_request: Some(digest("p")), ..of_client("notebook", within("f", &ada, "s")) };
        assert_eq!(store.write(issue).await.unwrap(), Issued::GrantEnded);
        let pushed = store.pushed_request(&digest("p"), "notebook", NOW).await.unwrap();
        assert!(pushed.is_some(), "it is not used up");
        let in_session = begin_family(within("f", &ada, "s"), Some(refresh("r")), access("a", Some(&ada)));
        assert!(!store.write(in_session).await.unwrap());
        let mut redeem = redeem_device("d", "1", &ada, NOW);
        redeem.family = within("f", &ada, "s");
        assert_eq!(store.write(redeem).await.unwrap(), RedeemResult::Invalid);
        assert_eq!(store.family("f").await.unwrap(), None);
        assert_eq!(store.access_token(&digest("a")).await.unwrap(), None);

        let alive = begin_family(family("g", &ada), Some(refresh("r")), access("a", Some(&ada)));
        assert!(store.write(alive).await.unwrap());
        assert!(store.write(end_user(&ada, UserRevocation::Everything)).await.unwrap());
        assert!(!store.write(IssueAccessToken(access("a", Some(&ada)))).await.unwrap(), "made before everything ended");
        let late = Family { read_at: store.log_time().await.unwrap(), ..family("h", &ada) };
        assert_eq!(store.write(of_client("notebook", late)).await.unwrap(), Issued::Stored);
        assert!(store.write(end_user(&ada, UserRevocation::Disabled)).await.unwrap());
        let late = Family { read_at: store.log_time().await.unwrap(), ..family("i", &ada) };
        assert_eq!(store.write(of_client("notebook", late)).await.unwrap(), Issued::GrantEnded);
        assert_eq!(store.write(redeem_refresh("r", "r2", NOW)).await.unwrap(), RedeemResult::Invalid);
        let late = SessionRow { created_at: NOW.plus(HOUR), ..session("t", &ada) };
        assert_eq!(store.write(begin(late, None)).await.unwrap(), None);
        assert_eq!(store.session_by_sid("sid-t").await.unwrap(), None);
    }

    async fn no_code_survives_the_session_that_ends_beside_it(database: Database) {
        let stores = database.open_all().await;
        let ada = add_user(&stores[0], "ada").await;
        for round in 0..60 {
            let name = format!("{round}");
            stores[0].write(begin(session(&name, &ada), None)).await.unwrap();
            let mut racers = tokio::task::JoinSet::new();
            for n in 0..4 {
                let store = stores[n % stores.len()].clone();
                let issue = of_client("notebook", within(&format!("f-{name}-{n}"), &ada, &name));
                racers.spawn(async move { store.write(issue).await.unwrap() });
            }
            let end = stores[round % stores.len()].write(end_session(&name, &ada));
            let (issued, ended) = tokio::join!(racers.join_all(), end);
            assert!(ended.unwrap() && !issued.contains(&Issued::RequestUsed));
            let alive = alive_families(&stores[0], &ada, NOW).await;
            assert_eq!(alive, [], "round {round}");
            let told = due(&stores[0]).await.len();
            assert_eq!(told, usize::from(issued.contains(&Issued::Stored)), "round {round}");
            stores[0].write(RemoveDelivery { id: format!("sid-{name}/notebook") }).await.unwrap();
        }
    }

    async fn no_token_survives_the_account_that_ends_beside_it(database: Database) {
        let stores = database.open_all().await;
        for round in 0..40 {
            let ada = add_user(&stores[0], &format!("ada-{round}")).await;
            let mut racers = tokio::task::JoinSet::new();
            for n in 0..4 {
                let store = stores[n % stores.len()].clone();
                let name = format!("{round}-{n}");
                let issue = begin_family(family(&name, &ada), Some(refresh(&name)), access(&name, Some(&ada)));
                racers.spawn(async move { store.write(issue).await.map(|_| ()) });
            }
            let (store, end) = (stores[round % stores.len()].clone(), end_user(&ada, UserRevocation::Disabled));
            racers.spawn(async move { store.write(end).await.map(|_| ()) });
            let ended: Result<Vec<()>, StoreError> = racers.join_all().await.into_iter().collect();
            ended.unwrap();
            assert_eq!(alive_families(&stores[0], &ada, NOW).await, [], "round {round}");
            for n in 0..4 {
                assert!(!is_active(&stores[0], &format!("{round}-{n}"), NOW.plus(LATER)).await);
            }
        }
    }

    async fn an_account_goes_while_it_is_used(database: Database) {
        let stores = database.open_all().await;
        for round in 0..20 {
            let ada = add_user(&stores[0], &format!("ada-{round}")).await;
            let name = |kind: &str| format!("{kind}-{round}");
            stores[0].write(begin(session(&name("s"), &ada), None)).await.unwrap();
            let issue = |kind: &str| begin_family(within(&name(kind), &ada, &name("s")), Some(refresh(&name(&format!("r{kind}")))), access(&name(kind), Some(&ada)));
            assert!(stores[0].write(issue("f")).await.unwrap());
            let mut redeem = redeem_refresh(&name("rf"), &name("rg"), NOW);
            redeem.successors.access = Some(access(&name("b"), Some(&ada)));
            let (one, other) = (stores[0].clone(), stores[stores.len() - 1].clone());
            let delete = DeleteUser {
                user_id: ada.id.clone(), revocation: revocation("user"), deliver_until: None, now: NOW,
            };
            let granted = async { (one.write(issue("a")).await, one.write(redeem).await) };
            let ((issued, redeemed), deleted) = tokio::join!(granted, other.write(delete));
            assert!(deleted.unwrap());
            issued.expect("granted or not");
            assert!(!matches!(redeemed.unwrap(), RedeemResult::Replayed { .. }));
            assert_eq!(alive_families(&stores[0], &ada, NOW).await, []);
            for kind in ["a", "b", "f"] {
                assert_eq!(stores[0].access_token(&digest(&name(kind))).await.unwrap(), None);
            }
        }
    }

    async fn whoever_was_a_member_is_void_when_the_group_goes(database: Database) {
        let stores = database.open_all().await;
        for round in 0..40 {
            let group = format!("g-{round}");
            stores[0].write(AddGroup { id: group.clone(), name: group.clone(), now: NOW }).await.unwrap();
            let mut racers = tokio::task::JoinSet::new();
            for n in 0..4 {
                let name = format!("{round}-{n}");
                let user = add_user(&stores[0], &name).await;
                let issue = IssueAccessToken(access(&name, Some(&user)));
                assert!(stores[0].write(issue).await.unwrap());
                let store = stores[n % stores.len()].clone();
                let add = AddMember { group: group.clone(), user_id: user.id };
                racers.spawn(async move {
                    match store.write(add).await {
                        Ok(added) => (name, added),
                        Err(StoreError::MissingReference) => (name, false),
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            let members = (0..4).map(|n| format!("id-{round}-{n}")).collect();
            let revocations = vec![revocation("g")];
            let delete = DeleteGroup { name: group, members, revocations, now: NOW.plus(LATER) };
            assert_eq!(stores[round % stores.len()].write(delete).await.unwrap(), Deleted::Now);
            for (name, added) in racers.join_all().await {
                assert_eq!(is_active(&stores[0], &name, NOW).await, !added, "{name}");
            }
        }
    }

    async fn clients_of_an_ended_session_are_told_once(database: Database) {
        let store = database.open().await;
        let (ada, eve) = (add_user(&store, "ada").await, add_user(&store, "eve").await);
        for (name, user) in [("s", &ada), ("t", &ada), ("e", &eve)] {
            store.write(begin(session(name, user), None)).await.unwrap();
        }
        for (id, client, user, name) in [
            ("1", "notebook", &ada, "s"), ("2", "notebook", &ada, "s"), ("3", "mail", &ada, "s"),
            ("4", "mail", &ada, "t"), ("5", "mail", &eve, "e"),
        ] {
            let lasting = Family { outlives_session: id == "3", ..within(id, user, name) };
            assert_eq!(store.write(of_client(client, lasting)).await.unwrap(), Issued::Stored);
        }
        assert_eq!(due(&store).await, []);
        assert!(store.write(end_session("s", &ada)).await.unwrap());
        assert_eq!(due(&store).await, [delivery("mail", &ada, "s"), delivery("notebook", &ada, "s")]);
        assert!(store.write(end_user(&ada, UserRevocation::Everything)).await.unwrap());
        assert_eq!(due(&store).await, [delivery("mail", &ada, "t")]);
        let quiet = EndSession { deliver_until: None, ..end_session("e", &eve) };
        assert!(store.write(quiet).await.unwrap());
        assert_eq!(due(&store).await, []);
    }

    async fn clients_are_told_however_long_ago_they_got_something(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        for name in ["s", "t"] {
            store.write(begin(session(name, &ada), None)).await.unwrap();
            let brief = Family { expires_at: NOW.plus(LATER), ..within(name, &ada, name) };
            assert_eq!(store.write(of_client("notebook", brief)).await.unwrap(), Issued::Stored);
        }
        assert_eq!(store.delete_expired(NOW.plus(HOUR), HOUR).await.unwrap().expired, 2, "the codes");
        assert!(store.write(end_session("s", &ada)).await.unwrap());
        assert_eq!(due(&store).await, [delivery("notebook", &ada, "s")]);
        assert!(store.family("s").await.unwrap().is_some());
        store.delete_expired(NOW.plus(HOUR), HOUR).await.unwrap();
        assert_eq!(store.family("s").await.unwrap(), None, "its session is over");
        assert!(store.family("t").await.unwrap().is_some());
        store.delete_expired(NOW.plus(24 * HOUR), HOUR).await.unwrap();
        assert_eq!(store.family("t").await.unwrap(), None, "its session has expired");
    }

    async fn who_logs_in_again_keeps_the_session(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(begin(session("a", &ada), None)).await.unwrap();
        assert_eq!(store.write(of_client("notebook", within("f", &ada, "a"))).await.unwrap(), Issued::Stored);
        let later = NOW.plus(LATER);
        let again = SessionRow {
            authenticated_at: later, methods: "pwd otp".into(), acr: Some("2".into()), created_at: later,
            last_used_at: later, expires_at: later.plus(HOUR), ..session("b", &ada)
        };
        let begun = store.write(begin(again.clone(), Some("a"))).await.unwrap();
        assert_eq!(begun.as_deref(), Some("sid-a"));
        assert_eq!(store.session(&digest("a"), NOW).await.unwrap(), None, "a new login, a new cookie");
        let kept = SessionRow { sid: "sid-a".into(), created_at: NOW, ..again };
        assert_eq!(store.sessions_of(&ada.id, NOW).await.unwrap(), [kept]);
        assert!(store.family("f").await.unwrap().unwrap().is_alive(NOW));
        assert_eq!((due(&store).await, store.head().await.unwrap().seq), (vec![], 0));

        let expired = SessionRow { created_at: later.plus(HOUR), ..session("c", &ada) };
        let begun = store.write(begin(expired, Some("b"))).await.unwrap();
        assert_eq!(begun.as_deref(), Some("sid-c"), "what has expired does not come back");
    }

    async fn who_logs_in_instead_ends_the_session(database: Database) {
        let store = database.open().await;
        let (ada, eve) = (add_user(&store, "ada").await, add_user(&store, "eve").await);
        store.write(begin(session("a", &ada), None)).await.unwrap();
        assert_eq!(store.write(of_client("notebook", within("f", &ada, "a"))).await.unwrap(), Issued::Stored);
        let instead = |session| BeginSession {
            revocation: Some(revocation("a")), deliver_until: Some(NOW.plus(HOUR)), ..begin(session, Some("a"))
        };
        let closed = SessionRow { user_id: "nobody".into(), ..session("n", &eve) };
        assert_eq!(store.write(instead(closed)).await.unwrap(), None);
        assert!(store.session(&digest("a"), NOW).await.unwrap().is_some(), "nothing changed");

        let begun = store.write(instead(session("b", &eve))).await.unwrap();
        assert_eq!(begun.as_deref(), Some("sid-b"));
        assert_eq!(store.session(&digest("a"), NOW).await.unwrap(), None);
        assert!(!store.family("f").await.unwrap().unwrap().is_alive(NOW));
        assert_eq!(due(&store).await, [delivery("notebook", &ada, "a")]);
        assert_eq!(store.events(0, 9).await.unwrap()[0].tags, [tag("a")]);
        let read_at = store.log_time().await.unwrap();
        assert_eq!(store.sessions_of(&eve.id, NOW).await.unwrap(), [SessionRow { read_at, ..session("b", &eve) }]);
    }

    async fn a_claim_stands_until_what_it_names_ends(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(begin(session("s", &ada), None)).await.unwrap();
        for id in ["f", "g"] {
            assert_eq!(store.write(of_client("notebook", within(id, &ada, "s"))).await.unwrap(), Issued::Stored);
        }
        let claimed = JwtClaims {
            family_id: Some("f"), user_id: Some(&ada.id), client_id: "configured", read_at: NOW, tag: tag("jti"),
            key: tag("key"), origins: ORIGINS,
        };
        let standing = store.jwt_status(claimed).await.unwrap();
        let expected = JwtStatus {
            unrevoked: true, user_name: Some("ada".into()), sid: Some("sid-s".into()), as_of: store.head().await.unwrap(),
        };
        assert_eq!(standing, expected);
        let of_client = JwtClaims { family_id: None, user_id: None, ..claimed };
        let expected = JwtStatus { user_name: None, sid: None, ..expected };
        assert_eq!(store.jwt_status(of_client).await.unwrap(), expected);
        for unknown in [
            JwtClaims { family_id: Some("none"), ..claimed },
            JwtClaims { user_id: Some("nobody"), ..claimed },
        ] {
            assert!(!store.jwt_status(unknown).await.unwrap().unrevoked);
        }
        let before = store::Revocation { reach: RevocationReach::IssuedBefore(NOW.plus(LATER)), ..revocation("jti") };
        store.write(AppendRevocation { revocation: before, now: NOW }).await.unwrap();
        let standing = store.jwt_status(of_client).await.unwrap();
        assert_eq!((standing.unrevoked, standing.as_of.seq), (false, 1));
        for origins in [[tag("jti"), tag("consent")], [tag("client"), tag("jti")]] {
            let of_denied = JwtClaims { tag: tag("other"), origins, ..of_client };
            assert!(!store.jwt_status(of_denied).await.unwrap().unrevoked, "what it follows from is denied");
        }
        let of_leaked = JwtClaims { tag: tag("other"), key: tag("jti"), ..of_client };
        assert!(!store.jwt_status(of_leaked).await.unwrap().unrevoked, "its key is");
        let late = JwtClaims { read_at: NOW.plus(LATER), ..claimed };
        assert!(store.jwt_status(late).await.unwrap().unrevoked);
        let other = JwtClaims { tag: tag("other"), ..claimed };
        assert!(store.jwt_status(other).await.unwrap().unrevoked);
        assert!(store.write(end_session("s", &ada)).await.unwrap());
        assert!(!store.jwt_status(other).await.unwrap().unrevoked);
        let alone = JwtClaims { family_id: None, ..other };
        assert!(store.jwt_status(alone).await.unwrap().unrevoked);
        assert!(store.write(end_user(&ada, UserRevocation::Everything)).await.unwrap());
        assert!(!store.jwt_status(alone).await.unwrap().unrevoked);
        let fresh = JwtClaims { read_at: store.log_time().await.unwrap(), ..alone };
        assert!(store.jwt_status(fresh).await.unwrap().unrevoked);
    }
}
