//! Mails with account links: who gets one, when, and what is recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::rand::SystemRandom;
use idp::admin::{Admin, AdminFault, links::NewLink, users::AddUser, users::UserChange};
use idp::mailer::MailConfig;
use idp::{Config, Provider};
use mail::{Encryption, SmtpServer, SmtpSettings};
use serde_json::{Value, json};
use store::{Epoch, Store};

use crate::{
    browser::Browser,
    logs::Log,
    played::{Act, Played, Received, Security},
    server::{Server, TestClock},
    wire::{Answer, encode},
    world::{self, PASSWORD, RecordedPosts, TestAuthorizationRequest, World},
};

const OWN: &str = "seven quiet otters drum";

fn mail(played: &Played) -> MailConfig {
    let settings = SmtpSettings {
        host: "localhost".into(),
        port: played.address.port(),
        encryption: Encryption::Implicit,
        ca_pem: Some(played.ca_pem.clone().into_bytes()),
        credentials: None,
        from: "Example <login@example.com>".into(),
        timeout: Duration::from_secs(10),
    };
    MailConfig { server: SmtpServer::new(settings).unwrap(), self_service_reset: true }
}

/// A provider with a mail server.
async fn world(played: &Played) -> World {
    let mail = mail(played);
    Box::pin(World::with(move |issuer: &str| Config { mail: Some(mail.clone()), ..world::config(issuer) }))
        .await
}

fn admin(world: &World) -> Admin<'_> {
    Admin::new(&world.server.provider, "operator:test")
}

/// Asks for a reset link, as a person does on the sign-in page.
async fn ask(browser: &mut Browser<'_>, login: &str) -> Answer {
    let form = browser.get("/forgot-password").await.form("/forgot-password");
    browser.send(&form, &[("login", login)]).await
}

/// Runs maintenance until the condition holds.
async fn maintain_until(provider: &Arc<Provider>, done: impl AsyncFn() -> bool) {
    let tended = tokio::spawn(idp::maintain(provider.clone()));
    let began = Instant::now();
    while !done().await {
        assert!(began.elapsed() < Duration::from_secs(20), "not in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tended.abort();
    let _ = tended.await;
}

/// Runs maintenance until no mail is due and nothing more is recorded.
async fn deliver(world: &World) {
    let provider = &world.server.provider;
    let tended = tokio::spawn(idp::maintain(provider.clone()));
    let began = Instant::now();
    let (mut before, mut since) = (usize::MAX, Instant::now());
    loop {
        assert!(began.elapsed() < Duration::from_secs(30), "not in time");
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = entries(provider).await.len();
        let is_due = provider.store().is_mail_due(world.server.clock.now()).await.unwrap();
        if is_due || now != before {
            (before, since) = (now, Instant::now());
        } else if since.elapsed() > Duration::from_millis(1200) {
            break;
        }
    }
    tended.abort();
    let _ = tended.await;
}

/// Runs maintenance, after which the server has this many mails. Returns the last one.
async fn received(world: &World, played: &Played, count: usize) -> Received {
    deliver(world).await;
    assert_eq!(played.mails().len(), count);
    played.mails().pop().unwrap()
}

/// Actions about mails and resets in the audit log, with their details.
async fn entries(provider: &Provider) -> Vec<(String, Value)> {
    let log = provider.store().audit_log(0).await.unwrap();
    let is_ours = |action: &str| ["reset.", "mail.", "user."].iter().any(|group| action.starts_with(group));
    let entry = |record: store::audit::AuditRecord| {
        let detail = serde_json::from_str(&record.entry.detail).unwrap_or(Value::Null);
        (record.entry.action, detail)
    };
    log.into_iter().map(entry).filter(|(action, _)| is_ours(action)).collect()
}

async fn actions(provider: &Provider) -> Vec<String> {
    entries(provider).await.into_iter().map(|(action, _)| action).collect()
}

/// The link in a mail.
fn link(mail: &Received) -> String {
    let text = mail.text();
    text.lines().find(|line| line.contains("/set-password?token=")).expect("a link").to_owned()
}

async fn by_password(world: &World, name: &str, password: &str) -> u16 {
    let body = format!("grant_type=password&username={name}&password={}&scope=openid", encode(password));
    world.call("/token", "legacy", &body).await.status
}

#[tokio::test]
async fn a_forgotten_password_is_reset_by_mail() {
    let played = Played::start(Security::Implicit, None).await;
    let world = world(&played).await;
    let provider = &world.server.provider;
    let mut elsewhere = world.browser();
    world.code(&mut elsewhere, &TestAuthorizationRequest::new("app")).await;

    let mut ada = world.browser();
    ada.language = Some("de");
    let sign_in = ada.get("/account").await;
    let sign_in = ada.follow(sign_in).await;
    assert!(sign_in.text().contains("Passwort vergessen?"), "{}", sign_in.text());
    let asked = ask(&mut ada, "Ada").await;
    assert!(asked.location().contains("/forgot-password?done=1"));
    let done = ada.follow(asked).await;
    assert!(done.status == 200 && done.text().contains("Postfach"), "{}", done.text());

    let mail = received(&world, &played, 1).await;
    assert_eq!(mail.to, ["<ada@example.com>"]);
    assert!(
        mail.text().contains("Passwort für das Konto") || mail.text().contains("neues Passwort"),
        "{}",
        mail.text()
    );
    let url = link(&mail);
    let form = ada.get(&url).await.form("/set-password");
    assert_eq!(ada.submit(&form, &[("new", OWN), ("again", OWN)]).await.status, 303);
    assert_eq!(
        (by_password(&world, "ada", PASSWORD).await, by_password(&world, "ada", OWN).await),
        (400, 200)
    );
    let page = elsewhere.get("/account").await;
    assert!(elsewhere.follow(page).await.text().contains("action=\"/login\""), "the session has ended");
    assert_eq!(ada.get(&url).await.status, 400, "it works once");

    let all = entries(provider).await;
    let names: Vec<&str> = all.iter().map(|(action, _)| action.as_str()).collect();
    assert_eq!(names, ["reset.request", "mail.send", "user.password"]);
    assert_eq!(all[0].1, json!({ "address": "0.0.0.0", "user_name": "ada" }));
    assert_eq!((&all[1].1["origin"], &all[1].1["tries"]), (&json!("user"), &json!(1)));
    let token = url.rsplit('=').next().unwrap();
    assert!(all.iter().all(|(_, detail)| !detail.to_string().contains(token)));
    let counts: Vec<_> =
        provider.mail_samples().iter().map(|sample| (sample.outcome, sample.count)).collect();
    assert_eq!(counts, [("sent", 1), ("failed", 0), ("given_up", 0)]);
}

#[tokio::test]
async fn everybody_gets_the_same_answer_and_few_get_a_mail() {
    let played = Played::start(Security::Implicit, None).await;
    let world = world(&played).await;
    let (provider, store) = (&world.server.provider, world.server.provider.store());
    let operator = admin(&world);
    let add = |name: &str| AddUser {
        name: name.into(),
        email: Some(format!("{name}@example.com")),
        email_verified: true,
        ..AddUser::default()
    };
    operator.add_user(add("passwordless")).await.unwrap();
    let password = Some(idp::admin::Secret::new(PASSWORD.to_owned()));
    let unverified = AddUser { email_verified: false, password: password.clone(), ..add("unverified") };
    operator.add_user(unverified).await.unwrap();
    let disabled =
        operator.add_user(AddUser { password: password.clone(), ..add("disabled") }).await.unwrap();
    operator.disable_user(&disabled.user.id).await.unwrap();
    operator.add_user(AddUser { password, ..add("locked") }).await.unwrap();
    for _ in 0..5 {
        by_password(&world, "locked", "wrong").await;
    }

    let mut answers = Vec::new();
    for login in [
        "passwordless",
        "unverified",
        "unverified@example.com",
        "disabled",
        "locked",
        "nobody",
        "hunter2 secret",
    ] {
        let mut browser = world.browser();
        let asked = ask(&mut browser, login).await;
        let page = browser.follow(asked).await;
        answers.push((login, page.status, page.text().to_owned()));
    }
    for (login, status, text) in &answers {
        assert_eq!((*status, text), (200, &answers[0].2), "{login}");
    }
    deliver(&world).await;
    provider.write_failures(true).await.unwrap();
    assert!(played.mails().is_empty() && played.connections() == 0);
    let mut reasons: Vec<(String, String)> = Vec::new();
    for (action, detail) in entries(provider).await {
        if action == "reset.refuse" {
            let text = |key: &str| detail[key].as_str().unwrap_or_default().to_owned();
            reasons.push((text("user_name"), text("reason")));
        }
    }
    reasons.sort();
    let expected = [
        ("", "unknown_name"),
        ("disabled", "account_disabled"),
        ("locked", "account_locked"),
        ("passwordless", "no_password"),
        ("unverified", "no_verified_address"),
    ];
    assert_eq!(reasons, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    let log = store.audit_log(0).await.unwrap();
    assert!(
        log.iter().all(|record| !record.entry.detail.contains("hunter2")),
        "what was typed is not written"
    );
}

#[tokio::test]
async fn requests_are_limited_for_a_name_and_for_a_network() {
    let played = Played::start(Security::Implicit, None).await;
    let world = world(&played).await;
    let mut browser = world.browser();
    for login in ["ada", "nobody"] {
        let mut statuses = Vec::new();
        for _ in 0..6 {
            let answer = ask(&mut browser, login).await;
            assert_eq!(answer.status == 429, answer.field("retry-after").is_some());
            statuses.push(answer.status);
        }
        assert_eq!(statuses, [303, 303, 303, 303, 303, 429], "{login}");
    }
    deliver(&world).await;
    let before = played.mails().len();
    assert!(before <= 5, "{before}");
    // Another spelling is the same account; its mails are counted together.
    world.server.clock.advance(Duration::from_secs(1));
    ask(&mut browser, "ada@example.com").await;
    deliver(&world).await;
    assert_eq!(played.mails().len(), before, "the account has had enough");
    let mut network = 0;
    for n in 0..60 {
        network += usize::from(ask(&mut browser, &format!("name{n}")).await.status == 429);
    }
    assert!(network > 0, "a network is locked, too");
}

#[tokio::test]
async fn a_mail_waits_for_the_server_and_for_another_node() {
    let log = Log::default();
    let level = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG);
    let subscriber = level.with_ansi(false).with_writer(log.clone()).finish();
    // As in `logs`: with only one subscriber, lines of other tests' threads disable it.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let played = Played::start(Security::Implicit, None).await;
    let mail = mail(&played);
    let clock = TestClock::new();
    let folder = tempfile::tempdir().unwrap();
    let url = store::sqlite_url(&folder.path().join("provider.db"));
    let store = Store::open(&url, Epoch([1; 16])).await.unwrap();
    let configured = move |issuer: &str| Config { mail: Some(mail.clone()), ..world::config(issuer) };
    let told = RecordedPosts::default();
    let parts = (store, folder);
    let server = Box::pin(Server::on(parts, "", clock, configured, SystemRandom::new(), told.clone())).await;
    let world = Box::pin(World::populate(server, told)).await;
    let provider = &world.server.provider;

    played.act(Act::Close);
    let mut ada = world.browser();
    ask(&mut ada, "ada").await;
    maintain_until(provider, async || provider.mail_samples()[1].count >= 1).await;
    assert!(played.connections() >= 1 && played.mails().is_empty());
    assert!(!provider.store().is_mail_due(world.server.clock.now()).await.unwrap(), "there is a pause");
    played.act(Act::Message("451 4.3.0 try again"));
    world.server.clock.advance(Duration::from_mins(1));
    maintain_until(provider, async || provider.mail_samples()[1].count >= 2).await;
    played.act(Act::Accept);
    world.server.clock.advance(Duration::from_mins(2));
    let mail = received(&world, &played, 1).await;
    assert!(mail.data.contains("Message-ID: <"), "{}", mail.data);
    assert_eq!(ada.get(&link(&mail)).await.status, 200);
    assert_eq!(entries(provider).await.last().unwrap().1["tries"], 3);
    let log = log.take();
    let lines = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!((lines("dependency unavailable"), lines("dependency available again")), (1, 1), "{log}");
    assert!(log.contains("mails wait and are sent later") && log.contains("failures=1"), "{log}");
    assert!(log.contains("mail deferred by the server") && log.contains("mail sent"), "{log}");
    let token = link(&mail).rsplit('=').next().unwrap().to_owned();
    assert!(!log.contains(&token) && !log.contains("ada@example.com"), "{log}");
}

#[tokio::test]
async fn what_a_server_refuses_is_given_up_and_recorded_without_the_link() {
    let played = Played::start(Security::Implicit, None).await;
    let world = world(&played).await;
    let provider = &world.server.provider;
    let mut ada = world.browser();
    played.act(Act::Recipient("550 5.1.1 no such user"));
    ask(&mut ada, "ada").await;
    deliver(&world).await;
    let all = entries(provider).await;
    let (action, detail) = all.last().unwrap();
    assert_eq!(action, "mail.fail");
    assert!(detail["reason"].as_str().unwrap().contains("550"), "{detail}");
    assert_eq!(provider.mail_samples()[2].count, 1);
    world.server.clock.advance(Duration::from_hours(2));
    deliver(&world).await;
    assert_eq!(entries(provider).await.len(), all.len(), "there is no other attempt");

    played.act(Act::Close);
    ask(&mut ada, "ada").await;
    maintain_until(provider, async || provider.mail_samples()[1].count >= 1).await;
    world.server.clock.advance(Duration::from_hours(1));
    deliver(&world).await;
    let (action, detail) = entries(provider).await.pop().unwrap();
    assert_eq!((&*action, &detail["reason"]), ("mail.fail", &json!("expired")));
}

#[tokio::test]
async fn an_operator_sends_invitations_and_resets() {
    let played = Played::start(Security::StartTls, None).await;
    let world = {
        let server = SmtpServer::new(SmtpSettings {
            host: "localhost".into(),
            port: played.address.port(),
            encryption: Encryption::StartTls,
            ca_pem: Some(played.ca_pem.clone().into_bytes()),
            credentials: None,
            from: "login@example.com".into(),
            timeout: Duration::from_secs(10),
        });
        let mail = MailConfig { server: server.unwrap(), self_service_reset: false };
        Box::pin(World::with(move |issuer: &str| Config {
            mail: Some(mail.clone()),
            ..world::config(issuer)
        }))
        .await
    };
    let operator = admin(&world);
    let new = NewLink { mail: true, ..NewLink::default() };
    let eve = operator.add_user(AddUser { name: "eve".into(), ..AddUser::default() }).await.unwrap().user.id;
    let refused = operator.invite_user(&eve, &new).await;
    assert!(
        matches!(&refused, Err(AdminFault::Conflict(why)) if why.contains("no e-mail address")),
        "{refused:?}"
    );
    let change = UserChange {
        email: Some(Some("eve@example.com".into())),
        claims: Some(serde_json::from_value(json!({ "locale": "de-AT" })).unwrap()),
        ..UserChange::default()
    };
    operator.change_user(&eve, change).await.unwrap();
    let sent = operator.invite_user(&eve, &new).await.unwrap();
    assert_eq!(
        (sent.url, sent.mailed_to.as_deref()),
        (None, Some("eve@example.com")),
        "not verified, but an operator's word"
    );
    let mail = received(&world, &played, 1).await;
    assert!(mail.encrypted && mail.text().contains("Ihr Benutzername ist eve"), "{}", mail.text());
    let mut browser = world.browser();
    let form = browser.get(&link(&mail)).await.form("/set-password");
    assert_eq!(browser.submit(&form, &[("new", OWN), ("again", OWN)]).await.status, 303);
    assert_eq!(by_password(&world, "eve", OWN).await, 200);

    // A second link replaces the first one, and the mail that would bring it.
    operator.create_reset_link(&eve, &new).await.unwrap();
    operator.create_reset_link(&eve, &new).await.unwrap();
    let mail = received(&world, &played, 2).await;
    assert_eq!(browser.get(&link(&mail)).await.status, 200);
    let tested = operator.send_test_mail("ops@example.com").await.unwrap();
    assert!(tested.server.starts_with("localhost:") && tested.reply.starts_with("250 "), "{tested:?}");
    played.act(Act::Recipient("550 5.1.1 no such user"));
    let refused = operator.send_test_mail("nobody@example.com").await.unwrap_err().to_string();
    assert!(refused.contains("550") && refused.contains("localhost:"), "{refused}");

    let page = browser.get("/forgot-password").await;
    assert_eq!(page.status, 404, "self-service is off");
    let sign_in = world.browser().get("/account").await;
    assert!(!world.browser().follow(sign_in).await.text().contains("/forgot-password"));
    let names = actions(&world.server.provider).await;
    assert!(
        names.iter().any(|name| name == "user.invite") && names.iter().any(|name| name == "mail.send"),
        "{names:?}"
    );
}

#[tokio::test]
async fn without_a_mail_server_nothing_is_offered() {
    let world = World::new().await;
    let new = NewLink { mail: true, ..NewLink::default() };
    let refused = admin(&world).create_reset_link(&world.ada.id, &new).await;
    assert!(
        matches!(&refused, Err(AdminFault::Conflict(why)) if why.contains("[provider.mail]")),
        "{refused:?}"
    );
    assert_eq!(world.browser().get("/forgot-password").await.status, 404);
    assert!(world.server.provider.mail_samples().is_empty());
}

#[tokio::test]
async fn a_user_who_must_change_the_password_may_do_it_by_mail() {
    let played = Played::start(Security::Implicit, None).await;
    let world = world(&played).await;
    let provider = &world.server.provider;
    let change = UserChange { must_change_password: Some(true), ..UserChange::default() };
    admin(&world).change_user(&world.ada.id, change).await.unwrap();
    let mut ada = world.browser();
    ask(&mut ada, "ada").await;
    let mail = received(&world, &played, 1).await;
    let form = ada.get(&link(&mail)).await.form("/set-password");
    assert_eq!(ada.submit(&form, &[("new", OWN), ("again", OWN)]).await.status, 303);
    assert_eq!(by_password(&world, "ada", OWN).await, 200, "the requirement is met");
    assert!(provider.store().user(&world.ada.id).await.unwrap().unwrap().must_change_password_at.is_none());
}

#[tokio::test]
async fn a_copy_of_the_database_has_no_link() {
    let played = Played::start(Security::Implicit, None).await;
    let world = world(&played).await;
    played.act(Act::Close);
    let new = NewLink { mail: true, ..NewLink::default() };
    admin(&world).create_reset_link(&world.ada.id, &new).await.unwrap();
    let mut ada = world.browser();
    ask(&mut ada, "hunter2 secret").await;
    let mut copy = Vec::new();
    world.server.provider.store().export(&mut copy).await.unwrap();
    let copy = String::from_utf8(copy).unwrap();
    assert!(copy.contains("mail_queue") && !copy.contains("hunter2"));
    played.act(Act::Accept);
    let mail = received(&world, &played, 1).await;
    assert!(!copy.contains(link(&mail).rsplit('=').next().unwrap()));
}
