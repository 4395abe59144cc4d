//! Revocation of users whose clients know them by pairwise subjects.

use super::fixture::{Node, Town, until};
use crate::support::{output_text, postern};

/// Clients that send users' passwords: the shortest way to a token of a user.
fn clients() -> String {
    let client = |id: &str, form: &str, more: &str| {
        format!(
            "[[provider.client]]\nid = \"{id}\"\nsecret_files = [\"app.secret\"]\ngrants = [\"password\"]\n\
             scopes = [\"openid\"]\naudiences = [\"orders\"]\naccess_token = \"{form}\"\n\
             access_token_lifetime = \"1h\"\n{more}"
        )
    };
    let sector = |name: &str| format!("subject = \"pairwise\"\nsector = \"{name}\"\n");
    [
        client("public", "jwt", ""),
        client("shop", "jwt", &sector("shop.example")),
        client("bank", "jwt", &sector("bank.example")),
        client("bank-opaque", "opaque", &sector("bank.example")),
    ]
    .concat()
}

fn admin(town: &Town, arguments: &[&str], input: &str) {
    let config = town.folder.0.join("node-0.toml");
    let file = town.folder.write("input", input);
    let file = file.to_str().unwrap();
    let arguments: Vec<&str> = arguments.iter().map(|&a| if a == "INPUT" { file } else { a }).collect();
    let output = postern(&[&["admin", "--config", config.to_str().unwrap()], &*arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", output_text(&output));
}

fn token_of(node: &Node, client: &str, user: &str) -> String {
    let form =
        format!("grant_type=password&username={user}&password=plough%20the%20winter%20dunes&scope=openid");
    let answer = node.post(client, "/token", &form);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    body["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_user_who_is_revoked_is_refused_under_every_subject() {
    let town = Town::with("pairwise", 1, "sqlite://postern.db?mode=rwc", &clients());
    for user in ["ada", "bob"] {
        admin(&town, &["user", "add", user, "--password-file", "INPUT"], "plough the winter dunes\n");
    }
    let (node, elsewhere) = (&town.nodes[0], town.remote_gateway(""));
    let clients = ["public", "shop", "bank", "bank-opaque"];
    let tokens = |user| clients.map(|client| token_of(node, client, user));
    let (of_ada, of_bob) = (tokens("ada"), tokens("bob"));
    for gateway in [node, &elsewhere] {
        for token in of_ada.iter().chain(&of_bob) {
            assert_eq!(gateway.status(token), 200);
        }
    }
    admin(&town, &["user", "revoke", "ada"], "");
    for gateway in [node, &elsewhere] {
        for (client, token) in clients.iter().zip(&of_ada) {
            until(|| gateway.status(token) == 401, client);
        }
        for token in &of_bob {
            assert_eq!(gateway.status(token), 200, "of another user");
        }
    }
    // What the user gets afterwards is valid, at a gateway that starts later too.
    let later = town.remote_gateway("");
    for (old, new) in of_ada.iter().zip(&tokens("ada")) {
        assert_eq!((later.status(old), later.status(new), elsewhere.status(new)), (401, 200, 200));
    }
}
