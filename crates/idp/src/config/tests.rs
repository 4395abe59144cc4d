//! Tests of the parent module.

use super::*;
use crate::{ConfiguredSecret, GrantType, client::config::MAX_GROUPS};

fn client() -> ClientConfig {
    ClientConfig {
        id: "orders".into(),
        secrets: vec![ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into())],
        grants: vec![GrantType::ClientCredentials],
        scopes: vec!["read".into(), "write".into()],
        default_scopes: vec!["read".into()],
        audiences: vec!["https://api.example.com".into()],
        groups: vec!["staff".into()],
        ..ClientConfig::default()
    }
}

fn config() -> Config {
    Config {
        audiences: vec!["https://api.example.com".into()],
        clients: vec![client()],
        ..Config::new("https://login.example.com")
    }
}

#[test]
fn a_good_configuration_passes() {
    let mut config = config();
    config.clients.push(ClientConfig {
        id: "billing".into(),
        access_token_lifetime: Some(Duration::from_mins(1)),
        secrets: vec![
            ConfiguredSecret::Sha256(
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
            ),
            ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into()),
        ],
        ..client()
    });
    let checked = config.check().unwrap();
    let mut lifetimes: Vec<_> =
        checked.clients.configured().map(|c| (c.id().to_owned(), c.access_token_lifetime())).collect();
    lifetimes.sort();
    assert_eq!(
        lifetimes,
        [("billing".to_owned(), Duration::from_mins(1)), ("orders".to_owned(), Duration::from_mins(5))]
    );
    assert_eq!(checked.warnings(), [""; 0]);
}

#[test]
fn a_password_grant_is_warned_of() {
    let mut config = config();
    config.clients[0].grants.push(GrantType::Password);
    let warnings = config.check().unwrap().warnings();
    assert!(warnings[0].contains("\"orders\"") && warnings.len() == 1, "{warnings:?}");
}

#[test]
fn what_is_no_client_is_refused_with_its_reason() {
    let with = |change: fn(&mut ClientConfig)| {
        let mut config = config();
        change(&mut config.clients[0]);
        config.check().map(|_| ()).unwrap_err().to_string()
    };
    let all = GrantType::ALL.to_vec();
    for (change, expected) in [
        (
            (|c| (c.public, c.secrets) = (true, vec![])) as fn(&mut ClientConfig),
            "clients[0].grants: a public client may not use client_credentials",
        ),
        (
            |c| c.public = true,
            "clients[0].secrets: conflicting authentication methods: use secrets, keys or public",
        ),
        (
            |c| c.secrets = vec![],
            "clients[0].secrets: the client has no authentication method: add a secret or keys",
        ),
        (|c| c.keys = Some(serde_json::json!({})), "clients[0].keys: keys are not a JWK set"),
        (
            |c| c.grants = vec![GrantType::RefreshToken],
            "clients[0].grants: refresh_token needs another grant",
        ),
        (|c| c.grants = vec![GrantType::AuthorizationCode], "needs a redirect URI"),
        (|c| c.redirect_uris = vec!["http://app.example/cb".into()], "clients[0].redirect_uris[0]: "),
        (|c| c.backchannel_logout_uri = Some("x".into()), "clients[0].backchannel_logout_uri: "),
        (|c| c.name = Some(String::new()), "clients[0].name: "),
    ] {
        let faults = with(change);
        assert!(faults.contains(expected), "{faults}");
    }
    let mut good = config();
    good.clients[0].grants = all;
    good.clients[0].redirect_uris = vec!["https://app.example/cb".into()];
    assert!(good.check().is_ok());
}

#[test]
fn lifetimes_and_languages_are_checked() {
    let mut config = config();
    config.lifetimes.code = Duration::ZERO;
    config.lifetimes.session_idle = Duration::from_hours(24);
    config.passwords.min_length = 3;
    config.passwords.verified_cache = Some((Duration::from_hours(1), 1));
    let mut languages = ::pages::Languages::default();
    languages.add("fr", "[language]\ndirection = \"ltr\"\n").unwrap();
    config.shell = Shell::new(::pages::Brand::default(), languages).into();
    let text = config.check().unwrap_err().to_string();
    for path in [
        "lifetimes.code: 0 s is out of bounds",
        "lifetimes.session_idle: ",
        "passwords.min_length: ",
        "passwords.remembered: ",
        "languages.fr: words of language fr: key login.title is missing",
    ] {
        assert!(text.contains(path), "{path}: {text}");
    }
}

#[test]
fn a_session_in_use_never_ends_for_having_rested() {
    let mut config = config();
    for (idle, sound) in [(59, false), (60, true)] {
        config.lifetimes.session_idle = Duration::from_secs(idle);
        assert_eq!(config.check().is_ok(), sound, "{idle} s");
    }
    config.lifetimes.session_idle = Duration::from_secs(59);
    let text = config.check().unwrap_err().to_string();
    assert!(text.contains("lifetimes.session_idle: 59 s is out of bounds: use 60 s"), "{text}");
}

#[test]
fn every_fault_is_reported_with_its_path() {
    let config = Config {
        issuer: "http://login.example.com".into(),
        audiences: vec!["a b".into(), "api".into()],
        access_token_lifetime: Duration::from_millis(1500),
        clients: vec![
            ClientConfig {
                id: String::new(),
                secrets: vec![],
                grants: vec![],
                scopes: vec!["a b".into(), "read".into()],
                default_scopes: vec!["write".into()],
                audiences: vec![],
                redirect_uris: vec![],
                groups: vec!["ok".into(), "a\nb".into()],
                access_token_lifetime: Some(Duration::from_secs(86_401)),
                ..ClientConfig::default()
            },
            ClientConfig {
                id: "x".into(),
                secrets: vec![
                    ConfiguredSecret::Plain("short".into()),
                    ConfiguredSecret::Sha256("12".into()),
                    ConfiguredSecret::Plain("KzJ4bXk0cGVyc2lzdGVudA".into()),
                ],
                audiences: vec!["api".into(), "apj".into()],
                groups: vec!["g".into(); MAX_GROUPS + 1],
                ..client()
            },
            ClientConfig { id: "x".into(), audiences: vec!["api".into()], ..client() },
        ],
        ..config()
    };
    let faults = config.check().unwrap_err();
    let paths: Vec<&str> = faults.0.iter().map(|f| f.path.as_str()).collect();
    let expected = [
        "issuer",
        "audiences[0]",
        "access_token_lifetime",
        "clients[0].id",
        "clients[0].secrets",
        "clients[0].grants",
        "clients[0].scopes[0]",
        "clients[0].default_scopes",
        "clients[0].groups[1]",
        "clients[0].access_token_lifetime",
        "clients[1].secrets[0]",
        "clients[1].secrets[1]",
        "clients[1].secrets",
        "clients[1].audiences[1]",
        "clients[1].groups",
        "clients[2].id",
    ];
    assert_eq!(paths, expected);
    let text = faults.to_string();
    assert!(
        text.contains("clients[1].secrets[0]: the client secret is guessable: use 128 random bits"),
        "{text}"
    );
    assert!(!text.contains("short;"), "no secret in a message: {text}");
}

#[test]
fn debug_shows_no_secret() {
    let text = format!("{:?} {:?}", config(), config().check().unwrap());
    assert!(!text.contains("KzJ4"), "{text}");
}
