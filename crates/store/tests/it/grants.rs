//! Codes, refresh tokens, access tokens and their families.

use std::time::Duration;

use auth::time::Timestamp;
use store::access_tokens::{AccessToken, AppendRevocation, IssueAccessToken, RevokeAccessToken, RevokeByJti};
use store::codes::{Code, IssueCode, Issued};
use store::deliveries::{QueueDelivery, RemoveDelivery, TakeDueDeliveries};
use store::device_codes::{
    DecideDeviceCode, DeviceCode, IssueDeviceCode, PollDeviceCode, PollResult, RedeemDeviceCode,
};
use store::families::{Family, OwnedFamily, RevokeFamily};
use store::pushed_requests::PushRequest;
use store::redeem::{BeginFamily, Redeem, RedeemResult, SecretKind, Successors};
use store::refresh_tokens::RefreshToken;
use store::replay_guard::UseOnce;
use store::sessions::{EndSession, SessionRow};
use store::users::UserRow;
use store::{Revocation, Store, StoreError};

use crate::databases::{
    NOW, ORIGINS, add_user, alive_families, at, begin_family, digest, family, on_both, revocation, tag,
};
use crate::people::{begin, session};

const CODE_LIFE: Duration = Duration::from_mins(1);

pub(crate) fn code(name: &str) -> Code {
    Code {
        digest: digest(name),
        redirect_uri: "https://app.example/callback".into(),
        challenge: Some("challenge".into()),
        nonce: Some("nonce".into()),
        issued_at: NOW,
        expires_at: NOW.plus(CODE_LIFE),
        kept_until: NOW.plus(Duration::from_mins(30)),
    }
}

pub(crate) fn access(name: &str, user: Option<&UserRow>) -> AccessToken {
    AccessToken {
        digest: digest(name),
        jti: format!("jti-{name}"),
        client_id: "notebook".into(),
        user_id: user.map(|u| u.id.clone()),
        scopes: "openid".into(),
        audiences: "notebook".into(),
        details: "{}".into(),
        issued_at: NOW,
        expires_at: NOW.plus(Duration::from_mins(5)),
        read_at: user.map_or(Timestamp::from_millis(0), |u| u.read_at),
        origins: ORIGINS,
    }
}

pub(crate) fn refresh(name: &str) -> RefreshToken {
    RefreshToken { digest: digest(name), issued_at: NOW, expires_at: NOW.plus(Duration::from_hours(1)) }
}

fn redeem_code(name: &str, successor: &str, user: &UserRow, now: Timestamp) -> Redeem {
    let (refresh, access) =
        (refresh(&format!("r-{successor}")), access(&format!("a-{successor}"), Some(user)));
    Redeem {
        kind: SecretKind::Code,
        digest: digest(name),
        successors: Successors { refresh: Some(refresh), access: Some(access) },
        on_replay: revocation("family"),
        at: at(now),
    }
}

pub(crate) fn device(name: &str, user_code: &str) -> DeviceCode {
    DeviceCode {
        digest: digest(name),
        user_code: digest(user_code),
        client_id: "notebook".into(),
        scopes: "openid".into(),
        audiences: "notebook".into(),
        interval: Duration::from_secs(5),
        issued_at: NOW,
        expires_at: NOW.plus(Duration::from_mins(5)),
        kept_until: NOW.plus(Duration::from_mins(30)),
    }
}

pub(crate) fn redeem_device(name: &str, successor: &str, user: &UserRow, now: Timestamp) -> RedeemDeviceCode {
    RedeemDeviceCode {
        digest: digest(name),
        family: family(&format!("f-{successor}"), user),
        origins: ORIGINS,
        successors: redeem_code(name, successor, user, now).successors,
        on_replay: revocation("family"),
        now,
    }
}

pub(crate) fn redeem_refresh(name: &str, successor: &str, now: Timestamp) -> Redeem {
    Redeem {
        kind: SecretKind::RefreshToken,
        digest: digest(name),
        successors: Successors { refresh: Some(refresh(successor)), access: None },
        on_replay: revocation("family"),
        at: at(now),
    }
}

pub(crate) async fn is_active(store: &Store, name: &str, now: Timestamp) -> bool {
    store.access_token(&digest(name)).await.unwrap().is_some_and(|standing| standing.is_active(now))
}

fn owned(id: &str, user: &UserRow) -> OwnedFamily {
    OwnedFamily { family: family(id, user), user: Some(user.clone()) }
}

on_both! {
    async fn a_code_is_redeemed_once_and_a_second_time_costs_the_family(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        assert_eq!(store.write(IssueCode { family: family("f", &ada), origins: ORIGINS, code: code("c"), required_consent: None, pushed_request: None }).await.unwrap(), Issued::Stored);
        assert_eq!(store.code(&digest("c")).await.unwrap(), Some((code("c"), owned("f", &ada))));

        assert_eq!(store.write(redeem_code("c", "1", &ada, NOW)).await.unwrap(), RedeemResult::Redeemed);
        assert!(is_active(&store, "a-1", NOW).await);
        assert_eq!(store.head().await.unwrap().seq, 0);
        assert_eq!(store.write(redeem_code("c", "2", &ada, NOW)).await.unwrap(), RedeemResult::Replayed { revoked: true });
        assert!(!is_active(&store, "a-1", NOW).await, "what the first got is void");
        assert_eq!(store.access_token(&digest("a-2")).await.unwrap(), None, "the second got nothing");
        assert_eq!(store.write(redeem_refresh("r-1", "r-2", NOW)).await.unwrap(), RedeemResult::Invalid);
        assert_eq!(store.write(redeem_code("c", "3", &ada, NOW)).await.unwrap(), RedeemResult::Replayed { revoked: false });
        let events = store.events(0, 10).await.unwrap();
        assert_eq!((events.len(), events[0].seq, &*events[0].tags), (1, 1, &[tag("family")][..]), "told once");
    }

    async fn a_code_is_worth_nothing_from_its_expiry_on(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        assert_eq!(store.write(IssueCode { family: family("f", &ada), origins: ORIGINS, code: code("c"), required_consent: None, pushed_request: None }).await.unwrap(), Issued::Stored);
        let at = |now| redeem_code("c", "1", &ada, now);
        assert_eq!(store.write(at(NOW.plus(CODE_LIFE))).await.unwrap(), RedeemResult::Invalid);
        assert_eq!(store.write(redeem_code("unknown", "1", &ada, NOW)).await.unwrap(), RedeemResult::Invalid);
        let just_before = NOW.plus(CODE_LIFE).minus(Duration::from_millis(1));
        assert_eq!(store.write(at(just_before)).await.unwrap(), RedeemResult::Redeemed);
    }

    async fn a_refresh_token_rotates(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let issue = begin_family(family("f", &ada), Some(refresh("r1")), access("a", Some(&ada)));
        store.write(issue).await.unwrap();
        assert_eq!(store.refresh_token(&digest("r1")).await.unwrap(), Some((refresh("r1"), owned("f", &ada))));
        assert_eq!(store.write(redeem_refresh("r1", "r2", NOW)).await.unwrap(), RedeemResult::Redeemed);
        assert_eq!(store.write(redeem_refresh("r2", "r3", NOW)).await.unwrap(), RedeemResult::Redeemed);
        assert!(is_active(&store, "a", NOW).await);
        assert_eq!(store.write(redeem_refresh("r1", "r4", NOW)).await.unwrap(), RedeemResult::Replayed { revoked: true }, "stolen");
        assert_eq!(store.write(redeem_refresh("r3", "r5", NOW)).await.unwrap(), RedeemResult::Invalid);
        assert!(!is_active(&store, "a", NOW).await);
        assert_eq!(store.refresh_token(&digest("r4")).await.unwrap(), None);
        let (_, OwnedFamily { family, .. }) = store.refresh_token(&digest("r3")).await.unwrap().unwrap();
        assert!(!family.is_alive(NOW) && family.revoked_at == Some(NOW));
    }

    async fn what_ends_with_its_session_is_not_redeemed_afterwards(database: Database) {
        const MINUTE: Duration = Duration::from_mins(1);
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let passing = |id: &str, sid: &str| Family { sid: Some(format!("sid-{sid}")), ..family(id, &ada) };
        for name in ["idle", "short", "used", "swept", "closed"] {
            let ends = if name == "short" || name == "swept" { NOW.plus(5 * MINUTE) } else { NOW.plus(Duration::from_hours(9)) };
            store.write(begin(SessionRow { expires_at: ends, ..session(name, &ada) }, None)).await.unwrap();
            let lasting = Family { outlives_session: true, ..passing(&format!("lasting-{name}"), name) };
            for (family, token) in [(passing(name, name), name.to_owned()), (lasting, format!("l-{name}"))] {
                let successors = Successors { refresh: Some(RefreshToken { expires_at: NOW.plus(Duration::from_hours(8)), ..refresh(&token) }), access: None };
                assert!(store.write(BeginFamily { family, origins: ORIGINS, successors }).await.unwrap());
            }
        }
        let redeem = async |name: &str, next: &str, now| store.write(redeem_refresh(name, next, now)).await.unwrap();
        let hour_later = NOW.plus(Duration::from_hours(1));
        let shown = async |now| {
            let mut all: Vec<_> = store.session_families_of(&ada.id, at(now), 10).await.unwrap().into_iter().map(|f| f.id).collect();
            all.sort();
            all
        };
        assert_eq!(shown(NOW).await, ["closed", "idle", "short", "swept", "used"]);
        // Expiry of the tokens.
        assert_eq!(redeem("short", "s1", NOW.plus(5 * MINUTE).minus(Duration::from_millis(1))).await, RedeemResult::Redeemed);
        assert_eq!(redeem("s1", "s2", NOW.plus(5 * MINUTE)).await, RedeemResult::Invalid);
        // The session is deleted.
        store.delete_expired(NOW.plus(5 * MINUTE), Duration::from_hours(1)).await.unwrap();
        assert_eq!(store.session_by_sid("sid-swept").await.unwrap(), None);
        assert_eq!(redeem("swept", "w1", NOW.plus(MINUTE)).await, RedeemResult::Invalid);
        // The session is ended.
        let end = EndSession { sid: "sid-closed".into(), user_id: ada.id.clone(), revocation: revocation("closed"), deliver_until: None, now: NOW };
        assert!(store.write(end).await.unwrap());
        assert_eq!(redeem("closed", "c1", NOW.plus(MINUTE)).await, RedeemResult::Invalid);
        // The browser does not use the session, but a refresh counts as a use.
        let next = Successors { refresh: Some(RefreshToken { expires_at: NOW.plus(Duration::from_hours(8)), ..refresh("u1") }), access: None };
        assert_eq!(store.write(Redeem { successors: next, ..redeem_refresh("used", "u1", hour_later) }).await.unwrap(), RedeemResult::Redeemed);
        assert_eq!(store.session_by_sid("sid-used").await.unwrap().unwrap().last_used_at, hour_later);
        let idle = NOW.plus(Duration::from_hours(2));
        assert_eq!(redeem("l-idle", "li", idle.minus(Duration::from_millis(1))).await, RedeemResult::Redeemed);
        assert_eq!(shown(idle).await, ["used"]);
        assert_eq!(redeem("idle", "i1", idle).await, RedeemResult::Invalid, "what outlives it does not use it");
        assert_eq!(redeem("u1", "u2", idle).await, RedeemResult::Redeemed);
        let alive: Vec<_> = alive_families(&store, &ada, idle).await.into_iter().map(|f| f.id).collect();
        assert_eq!(alive, ["lasting-closed", "lasting-idle", "lasting-short", "lasting-swept", "lasting-used", "used"]);
        for name in ["l-short", "l-swept", "l-closed", "l-used"] {
            assert_eq!(redeem(name, &format!("{name}1"), idle).await, RedeemResult::Redeemed, "{name}");
        }
    }

    async fn of_a_thousand_attempts_one_succeeds(database: Database) {
        let stores = database.open_all().await;
        let ada = add_user(&stores[0], "ada").await;
        assert_eq!(stores[0].write(IssueCode { family: family("f", &ada), origins: ORIGINS, code: code("c"), required_consent: None, pushed_request: None }).await.unwrap(), Issued::Stored);
        let issue = begin_family(family("g", &ada), Some(refresh("r")), access("a", Some(&ada)));
        stores[0].write(issue).await.unwrap();
        let mut seen = Vec::new();
        // A hundred at a time: more would not be answered in time on a busy machine.
        for first in (0..1000).step_by(100) {
            let mut attempts = tokio::task::JoinSet::new();
            for n in first..first + 100 {
                let (store, ada) = (stores[n % stores.len()].clone(), ada.clone());
                attempts.spawn(async move {
                    let code = store.write(redeem_code("c", &format!("{n}"), &ada, NOW));
                    let refresh = store.write(redeem_refresh("r", &format!("s-{n}"), NOW));
                    let (code, refresh) = tokio::join!(code, refresh);
                    (code.unwrap(), refresh.unwrap())
                });
            }
            seen.extend(attempts.join_all().await);
        }
        for of in [|s: &(RedeemResult, RedeemResult)| s.0, |s: &(RedeemResult, RedeemResult)| s.1] {
            let count = |what| seen.iter().filter(|s| of(s) == what).count();
            let replayed = [true, false].map(|revoked| count(RedeemResult::Replayed { revoked }));
            assert_eq!((count(RedeemResult::Redeemed), replayed), (1, [1, 998]), "one attempt revokes the family");
        }
        let told: Vec<_> = stores[0].events(0, 10).await.unwrap().into_iter().flat_map(|event| event.tags).collect();
        assert_eq!(told.len(), 2, "each family is revoked once");
        assert_eq!(alive_families(&stores[0], &ada, NOW).await, []);
        let survivors = active_successors(&stores[0], 1000).await;
        assert_eq!(survivors, 0, "the one that succeeded is void as well");
    }

    async fn tokens_are_revoked_by_name_however_many_they_are(database: Database) {
        let store = database.open().await;
        let names: Vec<String> = (0..300).map(|n| format!("{n}")).collect();
        for name in names.iter().step_by(7).map(String::as_str).chain(["kept"]) {
            let token = AccessToken { jti: name.to_owned(), ..access(name, None) };
            store.write(IssueAccessToken(token)).await.unwrap();
        }
        // One `jti` appears twice.
        let jtis: Vec<String> = names.iter().chain([&names[7]]).cloned().collect();
        let revocations = jtis.iter().map(|jti| revocation(jti)).collect();
        store.write(RevokeByJti { jtis, revocations, now: NOW }).await.unwrap();
        for name in names.iter().step_by(7) {
            assert!(!is_active(&store, name, NOW).await, "{name}");
        }
        assert!(is_active(&store, "kept", NOW).await);
        let told: Vec<_> = store.events(0, 10).await.unwrap().into_iter().map(|event| event.tags.len()).collect();
        assert_eq!((told.len(), told.iter().sum::<usize>()), (5, 301));
        assert_eq!(store.prove_denied(None, 1000).await.unwrap().1.len(), 300);
    }

    async fn a_token_is_revoked_by_its_own_client(database: Database) {
        let store = database.open().await;
        store.write(IssueAccessToken(access("a", None))).await.unwrap();
        let revoke = |client: &str| RevokeAccessToken {
            digest: digest("a"), client_id: client.into(), revocation: revocation("a"), now: NOW,
        };
        let before = store.access_token(&digest("a")).await.unwrap().unwrap();
        assert!(before.is_active(NOW) && before.as_of.seq == 0);
        assert!(!before.is_active(before.token.expires_at), "expired is now >= exp");
        assert!(!store.write(revoke("another")).await.unwrap());
        assert!(is_active(&store, "a", NOW).await);
        assert!(store.write(revoke("notebook")).await.unwrap());
        assert!(!store.write(revoke("notebook")).await.unwrap(), "told once");
        let after = store.access_token(&digest("a")).await.unwrap().unwrap();
        assert!(!after.is_active(NOW) && after.as_of.seq == 1);
        assert_eq!(store.access_token(&digest("unknown")).await.unwrap(), None);
    }

    async fn a_family_is_revoked_with_all_its_tokens(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let issue = begin_family(family("f", &ada), Some(refresh("r")), access("a", Some(&ada)));
        store.write(issue).await.unwrap();
        let revoke = RevokeFamily { id: "f".into(), revocation: revocation("f"), now: NOW };
        assert!(store.write(revoke.clone()).await.unwrap());
        assert!(!store.write(revoke).await.unwrap());
        assert!(!is_active(&store, "a", NOW).await);
        assert_eq!(store.write(redeem_refresh("r", "r2", NOW)).await.unwrap(), RedeemResult::Invalid);
    }

    async fn what_is_over_is_swept_and_nothing_else(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        assert_eq!(store.write(IssueCode { family: family("f", &ada), origins: ORIGINS, code: code("c"), required_consent: None, pushed_request: None }).await.unwrap(), Issued::Stored);
        store.write(IssueAccessToken(access("a", Some(&ada)))).await.unwrap();
        let short = Revocation { until: NOW.plus(CODE_LIFE), ..revocation("x") };
        store.write(AppendRevocation { revocation: short, now: NOW }).await.unwrap();
        let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
        let swept = store.delete_expired(NOW, hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (0, 0));
        let swept = store.delete_expired(NOW.plus(Duration::from_mins(29)), hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (1, 0), "the access token");
        let used = redeem_code("c", "1", &ada, NOW);
        assert_eq!(store.write(used).await.unwrap(), RedeemResult::Redeemed, "codes are remembered for longer");
        let swept = store.delete_expired(NOW.plus(hour), hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (3, 1), "code, access and refresh token");
        let swept = store.delete_expired(NOW.plus(day), hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (2, 0), "the family, and the denial, which clocks that are wrong may need for longer");
        assert_eq!(store.head().await.unwrap().seq, 1, "the head stays");
    }

    async fn a_pushed_request_is_answered_once(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let push = PushRequest {
            digest: digest("p"), client_id: "notebook".into(), parameters: "{}".into(), expires_at: NOW.plus(CODE_LIFE),
        };
        store.write(push).await.unwrap();
        for _ in 0..2 {
            let seen = store.pushed_request(&digest("p"), "notebook", NOW).await.unwrap();
            assert_eq!(seen.as_deref(), Some("{}"), "pages look at it as often as they need");
        }
        assert_eq!(store.pushed_request(&digest("p"), "another", NOW).await.unwrap(), None);
        assert_eq!(store.pushed_request(&digest("p"), "notebook", NOW.plus(CODE_LIFE)).await.unwrap(), None);
        let issue = |name: &str, pushed: &str| IssueCode {
            family: family(name, &ada), origins: ORIGINS, code: code(name), required_consent: None, pushed_request: Some(digest(pushed)),
        };
        assert_eq!(store.write(issue("x", "unknown")).await.unwrap(), Issued::RequestUsed);
        assert_eq!(store.write(issue("c", "p")).await.unwrap(), Issued::Stored);
        assert_eq!(store.write(issue("d", "p")).await.unwrap(), Issued::RequestUsed, "one code for one request");
        assert_eq!(store.pushed_request(&digest("p"), "notebook", NOW).await.unwrap(), None);
        assert_eq!(store.code(&digest("d")).await.unwrap(), None);
    }

    async fn a_device_waits_for_a_decision(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let device = device("d", "u");
        store.write(IssueDeviceCode(device.clone())).await.unwrap();
        let same = store.write(IssueDeviceCode(DeviceCode { digest: digest("e"), ..device.clone() })).await;
        assert!(matches!(same, Err(StoreError::Taken("the user code"))), "{same:?}");
        assert_eq!(store.device_code(&digest("u"), NOW).await.unwrap(), Some(device.clone()));
        assert_eq!(store.device_code(&digest("u"), device.expires_at).await.unwrap(), None);

        let second = |n| NOW.plus(Duration::from_secs(n));
        let poll = |n| PollDeviceCode { digest: digest("d"), client_id: "notebook".into(), now: second(n) };
        assert_eq!(store.write(poll(0)).await.unwrap(), PollResult::Pending);
        assert_eq!(store.write(poll(4)).await.unwrap(), PollResult::TooSoon, "it waits 10 s from now on");
        assert_eq!(store.write(poll(13)).await.unwrap(), PollResult::TooSoon, "15 s");
        assert_eq!(store.write(poll(28)).await.unwrap(), PollResult::Pending);
        let other = PollDeviceCode { client_id: "another".into(), ..poll(60) };
        assert_eq!(store.write(other).await.unwrap(), PollResult::Unknown);

        let decide = |approved| DecideDeviceCode {
            user_code: digest("u"), approved, user_id: ada.id.clone(), sid: "sid-1".into(), details: "{}".into(),
            now: second(30),
        };
        assert_eq!(store.write(redeem_device("d", "early", &ada, second(30))).await.unwrap(), RedeemResult::Invalid);
        assert!(store.write(decide(true)).await.unwrap());
        assert!(!store.write(decide(false)).await.unwrap(), "decided once");
        assert_eq!(store.device_code(&digest("u"), NOW).await.unwrap(), None);
        let approved = PollResult::Approved { user_id: ada.id.clone(), sid: "sid-1".into(), details: "{}".into() };
        assert_eq!(store.write(poll(45)).await.unwrap(), approved);

        assert_eq!(store.write(redeem_device("d", "1", &ada, second(45))).await.unwrap(), RedeemResult::Redeemed);
        assert!(is_active(&store, "a-1", second(45)).await);
        assert_eq!(store.write(redeem_device("d", "2", &ada, second(46))).await.unwrap(), RedeemResult::Replayed { revoked: true });
        assert!(!is_active(&store, "a-1", second(46)).await, "a replay costs the family");
        // The device itself may come after its code has expired, when a thief has redeemed it: the
        // replay is detected all the same.
        assert_eq!(store.write(poll(600)).await.unwrap(), approved);
        assert_eq!(store.write(redeem_device("d", "3", &ada, second(600))).await.unwrap(), RedeemResult::Replayed { revoked: false });
    }

    async fn a_device_that_comes_too_late_hears_that(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let device = device("d", "u");
        store.write(IssueDeviceCode(device.clone())).await.unwrap();
        let decide = DecideDeviceCode {
            user_code: digest("u"), approved: true, user_id: ada.id.clone(), sid: "s".into(), details: "{}".into(),
            now: NOW,
        };
        assert!(store.write(decide).await.unwrap());
        let poll = PollDeviceCode { digest: digest("d"), client_id: "notebook".into(), now: device.expires_at };
        assert_eq!(store.write(poll).await.unwrap(), PollResult::Expired);
        assert_eq!(store.write(redeem_device("d", "1", &ada, device.expires_at)).await.unwrap(), RedeemResult::Invalid);
    }

    async fn a_device_hears_a_refusal(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(IssueDeviceCode(device("d", "u"))).await.unwrap();
        let decide = DecideDeviceCode {
            user_code: digest("u"), approved: false, user_id: ada.id.clone(), sid: "s".into(), details: "{}".into(),
            now: NOW,
        };
        assert!(store.write(decide).await.unwrap());
        let poll = PollDeviceCode { digest: digest("d"), client_id: "notebook".into(), now: NOW };
        assert_eq!(store.write(poll).await.unwrap(), PollResult::Denied);
        assert_eq!(store.write(redeem_device("d", "1", &ada, NOW)).await.unwrap(), RedeemResult::Invalid);
    }

    async fn what_may_be_used_once_is_used_once(database: Database) {
        let stores = database.open_all().await;
        let mut uses = tokio::task::JoinSet::new();
        for n in 0..50 {
            let store = stores[n % stores.len()].clone();
            uses.spawn(async move {
                store.write(UseOnce { digest: digest("jti"), until: NOW.plus(CODE_LIFE) }).await.unwrap()
            });
        }
        assert_eq!(uses.join_all().await.into_iter().filter(|first| *first).count(), 1);
    }

    async fn what_is_due_is_taken_by_one(database: Database) {
        let stores = database.open_all().await;
        for n in 0..60 {
            let deliver = QueueDelivery {
                id: format!("d{n:02}"), client_id: "notebook".into(), user_id: "u".into(), sid: "s".into(),
                due_at: NOW.plus(Duration::from_secs(n / 30)), expires_at: NOW.plus(Duration::from_hours(1)),
            };
            stores[0].write(deliver).await.unwrap();
        }
        let take = |seconds, limit| TakeDueDeliveries {
            limit, except: vec![], retry_after: Duration::from_secs(10), now: NOW.plus(Duration::from_secs(seconds)),
        };
        let mut nodes = tokio::task::JoinSet::new();
        for n in 0..8 {
            let (store, take) = (stores[n % stores.len()].clone(), take(0, 10));
            nodes.spawn(async move { store.write(take).await.unwrap() });
        }
        let mut taken: Vec<_> = nodes.join_all().await.into_iter().flatten().map(|d| (d.id, d.attempts)).collect();
        // Two nodes may have selected the same rows, so that one of them got fewer.
        taken.extend(stores[0].write(take(0, 30)).await.unwrap().into_iter().map(|d| (d.id, d.attempts)));
        taken.sort();
        assert_eq!(taken, (0..30).map(|n| (format!("d{n:02}"), 1)).collect::<Vec<_>>());
        stores[0].write(RemoveDelivery { id: "d00".into() }).await.unwrap();
        assert_eq!(stores[0].write(take(9, 100)).await.unwrap().len(), 30, "the later ones");
        assert_eq!(stores[0].write(take(10, 100)).await.unwrap().len(), 29, "nobody said they were heard");
        assert_eq!(stores[0].write(take(29, 100)).await.unwrap().len(), 30);
        assert_eq!(stores[0].write(take(30, 100)).await.unwrap().len(), 29, "put off for twice as long");
        assert_eq!(stores[0].write(take(3600, 100)).await.unwrap(), [], "too late");
    }

    async fn what_is_due_to_the_others_is_taken(database: Database) {
        let store = database.open().await;
        for client in ["a", "b", "c"] {
            for n in 0..3 {
                let deliver = QueueDelivery {
                    id: format!("{client}{n}"), client_id: client.into(), user_id: "u".into(), sid: "s".into(),
                    due_at: NOW, expires_at: NOW.plus(Duration::from_hours(1)),
                };
                store.write(deliver).await.unwrap();
            }
        }
        for (except, limit, taken) in [
            (&["a", "c"][..], 2, &["b0", "b1"][..]),
            (&["a"], 9, &["b2", "c0", "c1", "c2"]),
            (&["a", "b", "c", "unknown"], 9, &[]),
            (&[], 9, &["a0", "a1", "a2"]),
        ] {
            let except = except.iter().map(|&client| client.to_owned()).collect();
            let take = TakeDueDeliveries { limit, except, retry_after: Duration::from_secs(10), now: NOW };
            let due = store.write(take).await.unwrap();
            let mut ids: Vec<_> = due.iter().map(|delivery| &*delivery.id).collect();
            ids.sort_unstable();
            assert_eq!(ids, taken);
        }
    }

    async fn a_digest_is_taken_once(database: Database) {
        let store = database.open().await;
        store.write(IssueAccessToken(access("a", None))).await.unwrap();
        let again = store.write(IssueAccessToken(access("a", None))).await;
        assert!(matches!(again, Err(StoreError::Taken(_))), "{again:?}");
    }
}

/// Number of valid access tokens among those that the attempts would have received.
async fn active_successors(store: &Store, attempts: usize) -> usize {
    let mut active = 0;
    for n in 0..attempts {
        active += usize::from(is_active(store, &format!("a-{n}"), NOW).await);
    }
    active
}
