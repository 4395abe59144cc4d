//! Tests of token, family and audit administration.

use std::time::Duration;

use super::{PASSWORD, TestProvider, refused_paths};
use crate::admin::{
    AdminFault, Secret,
    audit::ListEntries,
    tokens::{ListFamilies, RevokeAll, RevokedTokens, TokenKind, TokenList, TokenText},
};

fn text(token: &str) -> TokenText {
    TokenText { token: Secret::new(token.to_owned()) }
}

#[tokio::test]
async fn a_token_is_looked_at_and_revoked_by_its_text() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    let id = bench.user("ada").await;
    for client in ["desk", "safe"] {
        let answer = bench.log_in(client, "ada", PASSWORD).await;
        let (access, refresh) = (answer.text("access_token"), answer.text("refresh_token"));
        let facts = admin.token(&text(&access)).await.unwrap().token.unwrap();
        assert_eq!((facts.kind, &*facts.client_id), (TokenKind::Access, client));
        assert_eq!((facts.user_id.as_deref(), facts.user_name.as_deref()), (Some(&*id), Some("ada")));
        let of_refresh = admin.token(&text(&refresh)).await.unwrap().token.unwrap();
        assert_eq!((of_refresh.kind, of_refresh.family_id), (TokenKind::Refresh, facts.family_id));

        assert_eq!(admin.revoke_token(&text(&access)).await.unwrap().count, 1);
        assert!(!bench.is_active(&access).await && !admin.token(&text(&access)).await.unwrap().active);
        assert!(admin.token(&text(&refresh)).await.unwrap().active, "an access token goes alone");
        let again = bench
            .form(
                "/token",
                client,
                super::SECRET,
                &format!("grant_type=refresh_token&refresh_token={refresh}"),
            )
            .await;
        let (access, refresh) = (again.text("access_token"), again.text("refresh_token"));
        admin.revoke_token(&text(&refresh)).await.unwrap();
        assert!(!bench.is_active(&access).await && !admin.token(&text(&refresh)).await.unwrap().active);
        assert!(matches!(admin.revoke_token(&text(&refresh)).await, Err(AdminFault::NoToken)));
    }
    for nonsense in ["", "nonsense", "a.b.c"] {
        assert!(!admin.token(&text(nonsense)).await.unwrap().active);
        assert!(matches!(admin.revoke_token(&text(nonsense)).await, Err(AdminFault::NoToken)));
    }
}

#[tokio::test]
async fn tokens_that_leaked_are_revoked_together_and_each_is_told_of() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    bench.user("ada").await;
    let mut tokens = Vec::new();
    for client in ["desk", "safe"] {
        for _ in 0..3 {
            tokens.push(bench.log_in(client, "ada", PASSWORD).await.text("access_token"));
        }
        tokens.push(bench.token(client).await);
    }
    let answer = bench.log_in("desk", "ada", PASSWORD).await;
    let of_family = answer.text("access_token");
    tokens.push(answer.text("refresh_token"));
    let kept = bench.log_in("desk", "ada", PASSWORD).await.text("access_token");

    let list = |tokens: &[String]| TokenList {
        tokens: tokens.iter().map(|token| Secret::new(token.clone())).collect(),
        ..TokenList::default()
    };
    let mut leaked = tokens.clone();
    leaked.extend(["nonsense".to_owned(), "a.b.c".to_owned()]);
    let before = admin.verify_audit_log().await.unwrap().entries.unwrap();
    let revoked = admin.revoke_tokens(&list(&leaked)).await.unwrap();
    assert_eq!(revoked, RevokedTokens { count: 9, worthless: 2 });
    for token in tokens.iter().chain([&of_family]) {
        assert!(!bench.is_active(token).await);
    }
    assert!(bench.is_active(&kept).await);
    assert_eq!(admin.verify_audit_log().await.unwrap().entries.unwrap(), before + 9);
    let entries =
        admin.audit_log(&ListEntries { after: Some(before), ..ListEntries::default() }).await.unwrap().items;
    let of = |action: &str| entries.iter().filter(|entry| entry.action == action).count();
    assert_eq!((of("token.revoke"), of("family.revoke")), (8, 1));

    assert_eq!(refused_paths(admin.revoke_tokens(&list(&[])).await), ["tokens"]);
    assert_eq!(refused_paths(admin.revoke_tokens(&list(&vec![kept.clone(); 501])).await), ["tokens"]);
    assert!(bench.is_active(&kept).await, "a list that is refused revokes nothing");
}

#[tokio::test]
async fn tokens_are_revoked_by_name_beside_others_and_told_of_in_one_entry() {
    let bench = TestProvider::start().await;
    let admin = bench.admin();
    bench.user("ada").await;
    let (mut named, mut jtis) = (Vec::new(), Vec::new());
    for client in ["desk", "safe"] {
        for token in
            [bench.log_in(client, "ada", PASSWORD).await.text("access_token"), bench.token(client).await]
        {
            jtis.push(admin.token(&text(&token)).await.unwrap().token.unwrap().jti.unwrap());
            named.push(token);
        }
    }
    let by_text = bench.token("safe").await;
    let kept = [bench.token("desk").await, bench.token("safe").await];
    // No token has this `jti`.
    jtis.push("AAAAAAAAAAAAAAAAAAAAAA".to_owned());

    let refused_at = [0, 2];
    let mut wrong = jtis.clone();
    for at in refused_at {
        wrong[at] = named[at].clone();
    }
    let list = |tokens: &[&String], jtis: &[String]| TokenList {
        tokens: tokens.iter().map(|token| Secret::new((*token).clone())).collect(),
        jtis: jtis.to_vec(),
    };
    let why = admin.revoke_tokens(&list(&[], &wrong)).await;
    assert!(!why.as_ref().unwrap_err().to_string().contains(&named[0]), "a token is not repeated");
    assert_eq!(refused_paths(why), ["jtis[0]", "jtis[2]"]);
    assert!(bench.is_active(&named[1]).await, "a list that is refused revokes nothing");
    assert_eq!(
        refused_paths(admin.revoke_tokens(&list(&[&by_text], &vec![jtis[0].clone(); 500])).await),
        ["tokens"]
    );

    let before = admin.verify_audit_log().await.unwrap().entries.unwrap();
    let revoked = admin.revoke_tokens(&list(&[&by_text, &"nonsense".to_owned()], &jtis)).await.unwrap();
    assert_eq!(revoked, RevokedTokens { count: 6, worthless: 1 });
    for token in named.iter().chain([&by_text]) {
        assert!(!bench.is_active(token).await && !admin.token(&text(token)).await.unwrap().active);
    }
    for token in &kept {
        assert!(bench.is_active(token).await);
    }
    let entries =
        admin.audit_log(&ListEntries { after: Some(before), ..ListEntries::default() }).await.unwrap().items;
    let audited: Vec<_> = entries.iter().map(|entry| (&*entry.action, &*entry.target)).collect();
    assert_eq!((audited.len(), audited[0]), (2, ("token.revoke", "tokens")));
    assert!(jtis.iter().all(|jti| entries[0].detail.contains(jti)));
}

#[tokio::test]
async fn a_family_is_revoked_by_id() {
    let bench = TestProvider::start().await;
    let (admin, id) = (bench.admin(), bench.user("ada").await);
    let access = bench.log_in("desk", "ada", PASSWORD).await.text("access_token");
    let list = |user: &str, client: &str| ListFamilies {
        user: Some(user.into()),
        client: Some(client.into()),
        ..ListFamilies::default()
    };
    assert!(admin.families(&list(&id, "safe")).await.unwrap().items.is_empty());
    let families = admin.families(&list(&id, "desk")).await.unwrap().items;
    assert_eq!(families.len(), 1);
    admin.revoke_family(&families[0].id).await.unwrap();
    assert!(!bench.is_active(&access).await);
    assert!(matches!(
        admin.revoke_family("none").await,
        Err(AdminFault::NotFound { kind: "token family", .. })
    ));
}

#[tokio::test]
async fn all_of_a_client_or_of_a_client_and_a_user_is_revoked() {
    let bench = TestProvider::start().await;
    let (ada, bob) = (bench.user("ada").await, bench.user("bob").await);
    for client in ["desk", "safe"] {
        bench.advance(Duration::from_secs(2));
        let mut tokens = Vec::new();
        for name in ["ada", "bob"] {
            tokens.push(bench.log_in(client, name, PASSWORD).await.text("access_token"));
        }
        tokens.push(bench.token(client).await);
        let active = async || {
            let mut active = Vec::new();
            for token in &tokens {
                active.push(bench.is_active(token).await);
            }
            active
        };
        bench.advance(Duration::from_secs(1));
        assert_eq!(active().await, [true, true, true], "{client}");
        let of_ada = RevokeAll { client: client.into(), user: Some(ada.clone()) };
        assert!(bench.admin().revoke_all(&of_ada).await.unwrap().count > 0);
        assert_eq!(active().await, [false, true, true], "{client}");
        let of_all = RevokeAll { client: client.into(), user: None };
        assert!(bench.admin().revoke_all(&of_all).await.unwrap().count > 0);
        assert_eq!(active().await, [false, false, false], "{client}");
        bench.advance(Duration::from_secs(1));
        assert!(bench.is_active(&bench.token(client).await).await, "{client}: what comes later is good");
    }
    let nobody = RevokeAll { client: "nobody".into(), user: None };
    assert!(matches!(
        bench.admin().revoke_all(&nobody).await,
        Err(AdminFault::NotFound { kind: "client", .. })
    ));
    let entries = bench.audit_entries().await;
    assert_eq!(
        entries.iter().filter(|entry| *entry == "client.revoke client:desk").count(),
        2,
        "{entries:?}"
    );
    drop(bob);
}

#[tokio::test]
async fn the_log_is_read_exported_and_verified() {
    let bench = TestProvider::start().await;
    for name in ["ada", "bob", "cleo"] {
        let add = crate::admin::users::AddUser { name: name.into(), ..Default::default() };
        bench.admin().add_user(add).await.unwrap();
    }
    let list = ListEntries { after: Some(1), limit: Some(1), ..ListEntries::default() };
    let page = bench.admin().audit_log(&list).await.unwrap();
    assert_eq!((page.items[0].seq, page.next.as_deref()), (2, Some("2")));
    assert_eq!(page.items[0].detail, r#"{"name":"bob"}"#);
    let mut lines = Vec::new();
    let kept = |line: &str| {
        lines.push(line.to_owned());
        Ok::<(), AdminFault>(())
    };
    assert_eq!(bench.admin().export_audit_log(0, kept).await.unwrap(), 3);
    let end: serde_json::Value = serde_json::from_str(&lines[2]).unwrap();
    let verdict = bench.admin().verify_audit_log().await.unwrap();
    assert!(verdict.intact && verdict.entries == Some(3));
    assert_eq!(verdict.digest.as_deref(), end["digest"].as_str());
    assert_eq!(
        refused_paths(
            bench.admin().audit_log(&ListEntries { limit: Some(0), ..ListEntries::default() }).await
        ),
        ["limit"]
    );
}

#[tokio::test]
async fn the_api_filters_the_audit_log() {
    let bench = TestProvider::start().await;
    let ada = bench.user("ada").await;
    bench.user("bob").await;
    bench.log_in("desk", "ada", PASSWORD).await;
    let authorization = format!("authorization: Bearer {}\r\n", bench.token("reader").await);
    let list =
        async |query: &str| bench.send("GET", &format!("/admin/v1/audit?{query}"), &authorization, "").await;
    let all = list("user=ada&since=1h&limit=1").await;
    assert_eq!(all.status, 200, "{all:?}");
    assert_eq!((&all.body["items"][0]["action"], &all.body["next"]), (&"user.add".into(), &"1".into()));
    assert_eq!(all.body["items"][0]["at"], "2027-01-15T08:00:00.250Z");
    let issued = list(&format!("user={ada}&client=desk&action=grant.issue")).await;
    assert_eq!(issued.body["items"].as_array().unwrap().len(), 1, "{issued:?}");
    let issued = &issued.body["items"][0];
    assert_eq!((&issued["user_name"], &issued["client_name"]), (&"ada".into(), &"desk".into()));
    for (query, status, word) in
        [("user=nobody", 404, "nobody"), ("since=soon", 422, "since"), ("who=ada", 422, "who")]
    {
        let refused = list(query).await;
        assert_eq!(refused.status, status, "{refused:?}");
        assert!(refused.body.to_string().contains(word), "{refused:?}");
    }
}
