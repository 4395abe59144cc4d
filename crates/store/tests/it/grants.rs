//! Codes, refresh tokens, access tokens and their families.

use std::time::Duration;

use auth::time::Timestamp;
use store::access_tokens::{AccessToken, IssueAccessToken, Revoke, RevokeAccessToken};
use store::codes::{Code, IssueCode};
use store::families::RevokeFamily;
use store::redeem::{Once, Redeem, Redeemed, Successors};
use store::refresh_tokens::RefreshToken;
use store::users::User;
use store::{Revocation, Store, StoreError};

use crate::databases::{NOW, add_user, digest, family, on_both, revocation, tag};

const CODE_LIFE: Duration = Duration::from_mins(1);

fn code(name: &str) -> Code {
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

fn access(name: &str, user: Option<&User>) -> AccessToken {
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
    }
}

fn refresh(name: &str) -> RefreshToken {
    RefreshToken { digest: digest(name), issued_at: NOW, expires_at: NOW.plus(Duration::from_hours(1)) }
}

fn redeem_code(name: &str, successor: &str, user: &User, now: Timestamp) -> Redeem {
    let (refresh, access) =
        (refresh(&format!("r-{successor}")), access(&format!("a-{successor}"), Some(user)));
    Redeem {
        what: Once::Code,
        digest: digest(name),
        successors: Successors { refresh: Some(refresh), access: Some(access) },
        on_replay: revocation("family"),
        now,
    }
}

fn redeem_refresh(name: &str, successor: &str, now: Timestamp) -> Redeem {
    Redeem {
        what: Once::RefreshToken,
        digest: digest(name),
        successors: Successors { refresh: Some(refresh(successor)), access: None },
        on_replay: revocation("family"),
        now,
    }
}

async fn is_active(store: &Store, name: &str, now: Timestamp) -> bool {
    store.access_token(&digest(name)).await.unwrap().is_some_and(|standing| standing.is_active(now))
}

on_both! {
    async fn a_code_is_redeemed_once_and_a_second_time_costs_the_family(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(IssueCode { family: family("f", &ada), code: code("c") }).await.unwrap();
        assert_eq!(store.code(&digest("c")).await.unwrap(), Some((code("c"), family("f", &ada))));

        assert_eq!(store.write(redeem_code("c", "1", &ada, NOW)).await.unwrap(), Redeemed::Now);
        assert!(is_active(&store, "a-1", NOW).await);
        assert_eq!(store.head().await.unwrap().seq, 0);
        assert_eq!(store.write(redeem_code("c", "2", &ada, NOW)).await.unwrap(), Redeemed::Before);
        assert!(!is_active(&store, "a-1", NOW).await, "what the first got is void");
        assert_eq!(store.access_token(&digest("a-2")).await.unwrap(), None, "the second got nothing");
        assert_eq!(store.write(redeem_refresh("r-1", "r-2", NOW)).await.unwrap(), Redeemed::Dead);
        assert_eq!(store.write(redeem_code("c", "3", &ada, NOW)).await.unwrap(), Redeemed::Before);
        let events = store.events(0, 10).await.unwrap();
        assert_eq!((events.len(), events[0].seq, &*events[0].tags), (1, 1, &[tag("family")][..]), "told once");
    }

    async fn a_code_is_worth_nothing_from_its_expiry_on(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(IssueCode { family: family("f", &ada), code: code("c") }).await.unwrap();
        let at = |now| redeem_code("c", "1", &ada, now);
        assert_eq!(store.write(at(NOW.plus(CODE_LIFE))).await.unwrap(), Redeemed::Dead);
        assert_eq!(store.write(redeem_code("unknown", "1", &ada, NOW)).await.unwrap(), Redeemed::Dead);
        let just_before = NOW.plus(CODE_LIFE).minus(Duration::from_millis(1));
        assert_eq!(store.write(at(just_before)).await.unwrap(), Redeemed::Now);
    }

    async fn a_refresh_token_rotates(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let issue = IssueAccessToken {
            token: access("a", Some(&ada)), family: Some((family("f", &ada), Some(refresh("r1")))),
        };
        store.write(issue).await.unwrap();
        assert_eq!(store.refresh_token(&digest("r1")).await.unwrap(), Some((refresh("r1"), family("f", &ada))));
        assert_eq!(store.write(redeem_refresh("r1", "r2", NOW)).await.unwrap(), Redeemed::Now);
        assert_eq!(store.write(redeem_refresh("r2", "r3", NOW)).await.unwrap(), Redeemed::Now);
        assert!(is_active(&store, "a", NOW).await);
        assert_eq!(store.write(redeem_refresh("r1", "r4", NOW)).await.unwrap(), Redeemed::Before, "stolen");
        assert_eq!(store.write(redeem_refresh("r3", "r5", NOW)).await.unwrap(), Redeemed::Dead);
        assert!(!is_active(&store, "a", NOW).await);
        assert_eq!(store.refresh_token(&digest("r4")).await.unwrap(), None);
        let (_, family) = store.refresh_token(&digest("r3")).await.unwrap().unwrap();
        assert!(!family.is_alive(NOW) && family.revoked_at == Some(NOW));
    }

    async fn of_a_thousand_attempts_one_succeeds(database: Database) {
        let stores = database.open_all().await;
        let ada = add_user(&stores[0], "ada").await;
        stores[0].write(IssueCode { family: family("f", &ada), code: code("c") }).await.unwrap();
        let issue = IssueAccessToken {
            token: access("a", Some(&ada)), family: Some((family("g", &ada), Some(refresh("r")))),
        };
        stores[0].write(issue).await.unwrap();
        let mut attempts = tokio::task::JoinSet::new();
        for n in 0..1000 {
            let (store, ada) = (stores[n % stores.len()].clone(), ada.clone());
            attempts.spawn(async move {
                let code = store.write(redeem_code("c", &format!("{n}"), &ada, NOW));
                let refresh = store.write(redeem_refresh("r", &format!("s-{n}"), NOW));
                let (code, refresh) = tokio::join!(code, refresh);
                (code.unwrap(), refresh.unwrap())
            });
        }
        let seen = attempts.join_all().await;
        for of in [|s: &(Redeemed, Redeemed)| s.0, |s: &(Redeemed, Redeemed)| s.1] {
            let count = |what| seen.iter().filter(|s| of(s) == what).count();
            assert_eq!((count(Redeemed::Now), count(Redeemed::Before)), (1, 999));
        }
        assert_eq!(stores[0].head().await.unwrap().seq, 2, "each family is revoked once");
        assert_eq!(stores[0].families_of(&ada.id, NOW, 10).await.unwrap(), []);
        let survivors = active_successors(&stores[0], 1000).await;
        assert_eq!(survivors, 0, "the one that succeeded is void as well");
    }

    async fn a_token_is_revoked_by_its_own_client(database: Database) {
        let store = database.open().await;
        store.write(IssueAccessToken { token: access("a", None), family: None }).await.unwrap();
        let revoke = |client: &str| RevokeAccessToken {
            digest: digest("a"), client_id: client.into(), revocation: revocation("a"), now: NOW,
        };
        let before = store.access_token(&digest("a")).await.unwrap().unwrap();
        assert!(before.is_active(NOW) && before.as_of == 0);
        assert!(!before.is_active(before.token.expires_at), "expired is now >= exp");
        assert!(!store.write(revoke("another")).await.unwrap());
        assert!(is_active(&store, "a", NOW).await);
        assert!(store.write(revoke("notebook")).await.unwrap());
        assert!(!store.write(revoke("notebook")).await.unwrap(), "told once");
        let after = store.access_token(&digest("a")).await.unwrap().unwrap();
        assert!(!after.is_active(NOW) && after.as_of == 1);
        assert_eq!(store.access_token(&digest("unknown")).await.unwrap(), None);
    }

    async fn a_family_is_revoked_with_all_its_tokens(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        let issue = IssueAccessToken {
            token: access("a", Some(&ada)), family: Some((family("f", &ada), Some(refresh("r")))),
        };
        store.write(issue).await.unwrap();
        let revoke = RevokeFamily { id: "f".into(), revocation: revocation("f"), now: NOW };
        assert!(store.write(revoke.clone()).await.unwrap());
        assert!(!store.write(revoke).await.unwrap());
        assert!(!is_active(&store, "a", NOW).await);
        assert_eq!(store.write(redeem_refresh("r", "r2", NOW)).await.unwrap(), Redeemed::Dead);
    }

    async fn what_is_over_is_swept_and_nothing_else(database: Database) {
        let store = database.open().await;
        let ada = add_user(&store, "ada").await;
        store.write(IssueCode { family: family("f", &ada), code: code("c") }).await.unwrap();
        store.write(IssueAccessToken { token: access("a", Some(&ada)), family: None }).await.unwrap();
        let short = Revocation { until: NOW.plus(CODE_LIFE), ..revocation("x") };
        store.write(Revoke { revocation: short, now: NOW }).await.unwrap();
        let (hour, day) = (Duration::from_hours(1), Duration::from_hours(24));
        let swept = store.sweep(NOW, hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (0, 0));
        let swept = store.sweep(NOW.plus(Duration::from_mins(29)), hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (2, 0), "the access token and the denial");
        let used = redeem_code("c", "1", &ada, NOW);
        assert_eq!(store.write(used).await.unwrap(), Redeemed::Now, "codes are remembered for longer");
        let swept = store.sweep(NOW.plus(hour), hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (3, 1), "code, access and refresh token");
        let swept = store.sweep(NOW.plus(day), hour).await.unwrap();
        assert_eq!((swept.expired, swept.events), (1, 0), "the family");
        assert_eq!(store.head().await.unwrap().seq, 1, "the head stays");
    }

    async fn a_digest_is_taken_once(database: Database) {
        let store = database.open().await;
        store.write(IssueAccessToken { token: access("a", None), family: None }).await.unwrap();
        let again = store.write(IssueAccessToken { token: access("a", None), family: None }).await;
        assert!(matches!(again, Err(StoreError::Taken(_))), "{again:?}");
    }
}

/// How many of the access tokens that the attempts would have got are worth something.
async fn active_successors(store: &Store, attempts: usize) -> usize {
    let mut active = 0;
    for n in 0..attempts {
        active += usize::from(is_active(store, &format!("a-{n}"), NOW).await);
    }
    active
}
