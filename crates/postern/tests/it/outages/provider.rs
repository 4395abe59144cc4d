//! Outages of the services that a provider uses: its database and the receivers of its
//! notifications.

use std::os::unix::fs::PermissionsExt as _;

use http_engine::clock::{Clock as _, SystemClock};

use super::{Switch, each_went_and_came_back_once, server};
use crate::revoked::fixture::{Town, call, post};
use crate::support::{FILES, database_of_its_own, psql};

#[test]
fn a_database_is_away_in_two_lines_for_all_of_a_process() {
    let (url, _) = database_of_its_own("outage");
    let (before, rest) = url.split_once('@').map_or(("", &*url), |(before, rest)| (before, rest));
    let (server, name) = rest.trim_start_matches("postgres://").split_once('/').unwrap();
    let switch = Switch::before(server);
    let before = if before.is_empty() { "postgres://".to_owned() } else { format!("{before}@") };
    let mut town = Town::new("outage-database", 1, &format!("{before}{}/{name}", switch.address));
    let (provider, gateway) = (town.nodes[0].provider.clone(), town.nodes[0].gateway.clone());
    let token = town.nodes[0].token();
    let node = &town.nodes[0];
    assert_eq!(node.status(&token), 200);
    let ask = || {
        node.post("app", "/token", "grant_type=client_credentials");
        node.status(&token);
    };
    switch.is_away(ask);
    let traffic = || {
        post(&provider, "app", "/token", "grant_type=client_credentials");
        call(&gateway, "/", &token);
    };
    each_went_and_came_back_once(&mut town.nodes[0].process, &["database"], traffic);
}

/// Inserts a logout that a client must be notified of, and sometimes revokes a token.
fn occurs(database: &str, provider: &str, turn: u32) {
    let now = SystemClock.now().wall.as_millis();
    let ended = format!(
        "INSERT INTO deliveries (id, client_id, user_id, sid, tries, due_at, expires_at) \
         VALUES ('d{turn}', 'told', 'ada', 's{turn}', 0, {now}, {})",
        now + 3_600_000
    );
    psql(database, &ended);
    if turn % 10 == 1 {
        let answer = post(provider, "app", "/token", "grant_type=client_credentials");
        let (_, rest) = answer.split_once("\"access_token\":\"").unwrap();
        let token = rest.split('"').next().unwrap();
        post(provider, "app", "/revoke", &format!("token={token}"));
    }
}

#[test]
fn whoever_a_provider_tells_is_away_in_two_lines() {
    let (url, _) = database_of_its_own("outage_told");
    let switch = Switch::before(&server(|_| (200, String::new(), String::new())));
    let at = &switch.address;
    let bearer = FILES.write("outage.bearer", "what-they-show-each-other\n");
    std::fs::set_permissions(&bearer, std::fs::Permissions::from_mode(0o600)).unwrap();
    let more = format!(
        "[[provider.client]]\nid = \"told\"\nsecret_files = [\"app.secret\"]\n\
         grants = [\"client_credentials\"]\naudiences = [\"orders\"]\nbackchannel_logout_uri = \"http://{at}/logout\"\n\
         [[provider.event_receiver]]\nname = \"pushed\"\naudience = \"http://{at}\"\n\
         endpoint = \"http://{at}/events\"\nendpoint_token_file = {bearer:?}\n"
    );
    let mut town = Town::with("outage-told", 1, &url, &more);
    let (provider, mut turn) = (town.nodes[0].provider.clone(), 0);
    let mut occurs = || {
        turn += 1;
        occurs(&url, &provider, turn);
    };
    switch.is_away(&mut occurs);
    let dependencies = ["back-channel logout of client told", "event receiver pushed"];
    each_went_and_came_back_once(&mut town.nodes[0].process, &dependencies, occurs);
}
