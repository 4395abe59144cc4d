//! `postern admin`, from the command line to the database, while a provider serves.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Folder, Running, exchange, output_text};
use dataplane::ports::free;

const SECRET: &str = "wSvLnKOe0sJdSAkBXj4uFaMUVPYVnR1gkUK2cTnkJ4w=";
const PASSWORD: &str = "violet-umbrella-orbit";

/// Configuration of a provider in its own folder.
struct Place {
    folder: Folder,
    address: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let address = free();
        let folder = Folder::new(&format!("admin-{name}"));
        folder.write("desk.secret", SECRET);
        let place = Self { folder, address };
        let secret = place.folder.write("provider.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n");
        std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        place.configure("postern.toml", "postern.db", "secret_file = \"provider.secret\"");
        place
    }

    fn configure(&self, file: &str, database: &str, secret: &str) -> PathBuf {
        let address = &self.address;
        let admin = free();
        let text = format!(
            "[server]\nreload_on_change = false\n[admin]\naddress = \"{admin}\"\n\
             [provider]\nissuer = \"http://{address}\"\naddress = \"{address}\"\naudiences = [\"orders\"]\n\
             database = \"sqlite://{database}?mode=rwc\"\n{secret}\n\
             [[provider.client]]\nid = \"desk\"\nsecret_files = [\"desk.secret\"]\n\
             grants = [\"client_credentials\", \"password\"]\naudiences = [\"orders\"]\nscopes = [\"openid\"]\n"
        );
        if !self.folder.0.join("provider.secret").exists() {
            let secret =
                self.folder.write("provider.secret", "bM1CmSc0bM7vUjY0kX7V0o2Yxg1bI8cV8l2n0Rr2v6A=\n");
            std::fs::set_permissions(secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        self.folder.write(file, text)
    }

    fn path(&self, name: &str) -> String {
        self.folder.0.join(name).display().to_string()
    }

    /// Runs a command with standard input.
    fn with(&self, config: &str, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
        command.args(["admin", "--config", &self.path(config), "--operator", "grace"]).args(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn admin(&self, arguments: &[&str]) -> Output {
        self.with("postern.toml", arguments, "")
    }

    /// Runs a command that must succeed. Returns its standard output.
    fn did(&self, arguments: &[&str]) -> String {
        let output = self.admin(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", output_text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.did(&[&["--output", "json"], arguments].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Runs a command that must be refused. Returns its output.
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.admin(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", output_text(&output));
        output_text(&output)
    }

    fn form(&self, path: &str, form: &str) -> Value {
        let (address, secret) = (&self.address, SECRET.replace('=', "%3D"));
        let form = format!("client_id=desk&client_secret={secret}&{form}");
        let answer = exchange(
            address,
            &format!(
                "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
                 Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
                form.len()
            ),
        );
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    fn log_in(&self, user: &str, password: &str) -> Value {
        self.form("/token", &format!("grant_type=password&username={user}&password={password}&scope=openid"))
    }

    fn is_active(&self, token: &str) -> bool {
        self.form("/introspect", &format!("token={token}"))["active"].as_bool().unwrap()
    }

    fn serve(&self, config: &str) -> Running {
        let mut process = Running::start(&["serve", "--config", &self.path(config)]);
        process.wait_for("provider listening");
        process
    }
}

#[test]
fn an_operator_opens_and_closes_accounts_beside_a_provider_that_serves() {
    let place = Place::new("users");
    let file = place.folder.write("password", format!("{PASSWORD}\nwhat follows does not count\n"));
    let _serving = place.serve("postern.toml");
    let added = place.admin(&[
        "user",
        "add",
        "ada",
        "--email",
        "ada@example.com",
        "--password-file",
        file.to_str().unwrap(),
    ]);
    let shown = output_text(&added);
    assert!(added.status.success() && added.stdout.is_empty() && shown.contains("user ada is "), "{shown}");
    assert!(!shown.contains(PASSWORD));
    let token = place.log_in("ada", PASSWORD)["access_token"].as_str().unwrap().to_owned();
    assert!(place.is_active(&token));

    let text = place.folder.write("token", &token);
    let look = place.did(&["token", "inspect", text.to_str().unwrap()]);
    assert!(look.contains("ada") && look.contains("desk") && !look.contains(&token), "{look}");
    place.did(&["user", "disable", "ada"]);
    assert!(!place.is_active(&token));
    assert_eq!(place.log_in("ada", PASSWORD)["error"], "invalid_grant");
    let output = place.with("postern.toml", &["token", "inspect", "-"], &token);
    assert_eq!(output.status.code(), Some(1), "{}", output_text(&output));
    place.did(&["user", "enable", "ada"]);
    assert!(!place.is_active(&token), "nothing comes back");

    let made = place.did(&["user", "password", "ada", "--generate-password"]);
    assert_eq!(made.lines().count(), 1, "the password and nothing else: {made:?}");
    assert_eq!(place.log_in("ada", PASSWORD)["error"], "invalid_grant");
    assert!(place.log_in("ada", made.trim())["access_token"].is_string());

    place.did(&["group", "add", "staff"]);
    place.did(&["group", "add-member", "staff", "ada"]);
    let shown = place.did(&["user", "show", "ada"]);
    assert!(shown.contains("groups           staff") && shown.contains("(not verified)"), "{shown}");
    let id = place.json(&["user", "show", "ada"])["user"]["id"].as_str().unwrap().to_owned();
    place.did(&["user", "change", &id, "--verified", "true", "--name", "lovelace"]);
    assert_eq!(place.json(&["user", "list"])["items"][0]["name"], "lovelace");
    let made = place.json(&["user", "list"])["items"][0]["created_at"].as_str().unwrap().to_owned();
    assert!(made.len() == 24 && made.contains('T') && made.ends_with('Z'), "{made}");
    assert!(place.did(&["group", "members", "staff"]).contains("lovelace"));
    let log = place.json(&["audit", "list"]);
    let is_change = |entry: &&Value| !entry["action"].as_str().unwrap().starts_with("grant.");
    let mut changes = log["items"].as_array().unwrap().iter().filter(is_change);
    assert!(
        changes.all(|entry| entry["actor"] == "operator:grace" || entry["action"] == "login.failure"),
        "{log}"
    );
    assert_eq!(log["items"][0]["action"], "user.add");
    place.did(&["user", "delete", "lovelace"]);
    let shown = place.did(&["audit", "list", "--user", &id, "--since", "1h", "--action", "user.delete"]);
    assert!(shown.contains("user.delete") && shown.contains("lovelace"), "{shown}");
    let none = place.did(&["audit", "list", "--until", "2020-01-01T00:00:00Z"]);
    assert_eq!(none, "none\n");
    assert_eq!(place.did(&["user", "list"]), "none\n");
}

#[test]
fn tokens_that_leaked_are_revoked_from_a_file() {
    let place = Place::new("leak");
    let password = place.folder.write("password", PASSWORD);
    let _serving = place.serve("postern.toml");
    place.did(&["user", "add", "ada", "--password-file", password.to_str().unwrap()]);
    let log_in = || place.log_in("ada", PASSWORD)["access_token"].as_str().unwrap().to_owned();
    let tokens: Vec<_> = (0..3).map(|_| log_in()).collect();
    let kept = log_in();
    let file = place.folder.write("leaked", format!("{}\n\n  {}\r\n{}", tokens[0], tokens[1], tokens[2]));
    let output = place.with("postern.toml", &["token", "revoke", file.to_str().unwrap()], "");
    assert!(
        output.status.success() && output_text(&output).contains("3 tokens are revoked"),
        "{}",
        output_text(&output)
    );
    assert!(tokens.iter().all(|token| !place.is_active(token)) && place.is_active(&kept));
    // Some are already revoked, others are unknown.
    let list = format!("{}\n{}\nnonsense", tokens[0], log_in());
    let revoked = place.with("postern.toml", &["--output", "json", "token", "revoke", "-"], &list);
    let told: serde_json::Value = serde_json::from_slice(&revoked.stdout).unwrap();
    assert_eq!(
        told,
        serde_json::json!({ "count": 2, "worthless": 1 }),
        "a JWT that is revoked again is no worse"
    );
    let empty = place.refused(3, &["token", "revoke", "/dev/null"]);
    assert!(empty.contains("write one token per line"), "{empty}");

    // By the identifier that a log shows.
    let noted = log_in();
    let look = place.with("postern.toml", &["--output", "json", "token", "inspect", "-"], &noted);
    let look: serde_json::Value = serde_json::from_slice(&look.stdout).unwrap();
    let jti = look["token"]["jti"].as_str().unwrap();
    let named = place.with("postern.toml", &["token", "revoke", "--jti", "-"], jti);
    assert!(
        named.status.success() && output_text(&named).contains("1 tokens are revoked"),
        "{}",
        output_text(&named)
    );
    assert!(!place.is_active(&noted) && place.is_active(&kept));
    // A faulty file revokes nothing, wherever the fault is.
    let of_kept = place.with("postern.toml", &["--output", "json", "token", "inspect", "-"], &kept);
    let of_kept: serde_json::Value = serde_json::from_slice(&of_kept.stdout).unwrap();
    let of_kept = of_kept["token"]["jti"].as_str().unwrap();
    let list = format!("{}{kept}\n", format!("{of_kept}\n\n").repeat(600));
    let mistaken = place.with("postern.toml", &["token", "revoke", "--jti", "-"], &list);
    let why = output_text(&mistaken);
    assert!(
        mistaken.status.code() == Some(3)
            && why.contains("line 1201 of standard input is not a token identifier"),
        "{why}"
    );
    assert!(!why.contains(&kept) && place.is_active(&kept), "{why}");
    let many = place.with("postern.toml", &["token", "revoke", "--jti", "-"], &list.replace(&kept, ""));
    assert!(
        output_text(&many).contains("600 tokens are revoked") && !place.is_active(&kept),
        "{}",
        output_text(&many)
    );
}

#[test]
fn what_is_refused_says_why_and_how_it_ends() {
    let place = Place::new("refusals");
    place.did(&["user", "add", "ada"]);
    let weak = place.with("postern.toml", &["user", "password", "ada", "--password-file", "-"], "password\n");
    assert!(
        weak.status.code() == Some(1) && output_text(&weak).contains("refused: password: "),
        "{}",
        output_text(&weak)
    );
    for (code, arguments, text) in [
        (1, &["user", "show", "bob"][..], "user \"bob\" not found"),
        (1, &["user", "add", "ADA"], "is already in use"),
        (1, &["user", "add", "bob", "--email", "nowhere"], "local@domain with one @"),
        (1, &["client", "disable", "desk"], "is defined in the configuration"),
        (1, &["client", "show", "none"], "client \"none\" not found"),
        (1, &["key", "rotate", "ES256"], "next key too recent"),
        (1, &["key", "rotate", "HS256"], "use ES256, RS256 or EdDSA"),
        (1, &["session", "revoke", "none"], "session \"none\" not found"),
        (1, &["token", "revoke-family", "none"], "token family \"none\" not found"),
        (2, &["user", "change", "ada"], "required"),
        (2, &["user", "add", "bob", "--password-file", "x", "--generate-password"], "cannot be used with"),
        (
            3,
            &["user", "add", "bob", "--password-file", "/nowhere/x"],
            "cannot read the password from /nowhere/x",
        ),
        (
            3,
            &["user", "password", "ada", "--password-file", "/dev/null"],
            "the first line of /dev/null is empty",
        ),
        (3, &["restore", "/nowhere/x"], "cannot read /nowhere/x"),
    ] {
        let shown = place.refused(code, arguments);
        assert!(shown.contains(text), "{arguments:?}: {shown}");
    }
    let alone = Command::new(env!("CARGO_BIN_EXE_postern")).args(["admin", "user", "list"]).output().unwrap();
    assert!(
        alone.status.code() == Some(2) && output_text(&alone).contains("--config"),
        "{}",
        output_text(&alone)
    );
    let gateway = crate::support::sources().join("sound/minimal.toml");
    let gateway = ["admin", "--config", gateway.to_str().unwrap(), "user", "list"];
    let none = Command::new(env!("CARGO_BIN_EXE_postern")).args(gateway).output().unwrap();
    assert_ne!(none.status.code(), Some(0), "{}", output_text(&none));
}

#[test]
fn lists_are_searched_and_shown_in_parts() {
    let place = Place::new("lists");
    for name in ["ada", "Bob Builder", "cleo", "dora"] {
        place.did(&["user", "add", name]);
    }
    let first = place.admin(&["user", "list", "--limit", "2"]);
    let shown = output_text(&first);
    assert!(shown.contains("ada") && shown.contains("Bob Builder") && !shown.contains("cleo"), "{shown}");
    assert!(shown.contains("more follow: --after 'Bob Builder'"), "{shown}");
    let names = |arguments: &[&str]| {
        let list = place.json(&[&["user", "list"][..], arguments].concat());
        let names =
            list["items"].as_array().unwrap().iter().map(|user| user["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>().join(", "), list["next"].as_str().map(str::to_owned))
    };
    assert_eq!(names(&["--after", "Bob Builder"]), ("cleo, dora".into(), None));
    assert_eq!(names(&["--search", "B BUILD"]), ("Bob Builder".into(), None));
    assert_eq!(names(&["--limit", "3"]), ("ada, Bob Builder, cleo".into(), Some("cleo".into())));
    assert_eq!(names(&["--all"]), ("ada, Bob Builder, cleo, dora".into(), None));
    assert!(place.refused(1, &["user", "list", "--limit", "0"]).contains("limit: limit too small"));
    assert!(place.refused(2, &["user", "list", "--limit", "1", "--all"]).contains("--all"));
    assert!(place.refused(1, &["audit", "list", "--after", "x"]).contains("is not the number of an entry"));

    let settings = r#"{"name":"The shop","grants":["client_credentials"],"audiences":["orders"]}"#;
    let settings = place.folder.write("shop.json", settings);
    place.did(&["client", "add", "shop-1", "--settings", settings.to_str().unwrap()]);
    assert!(place.did(&["client", "show", "the shop"]).contains("shop-1"));
    assert_eq!(place.json(&["client", "list", "--search", "THE SHOP"])["items"][0]["id"], "shop-1");
    place.did(&["group", "add", "staff"]);
    let staff = place.json(&["group", "list"])["items"][0]["id"].as_str().unwrap().to_owned();
    place.did(&["group", "add-member", &staff, "dora"]);
    assert!(place.did(&["group", "members", &staff, "--search", "DORA"]).contains("dora"));
    place.did(&["client", "disable", "The shop"]);
    let log = place.json(&["audit", "list", "--client", "The shop", "--search", "disable"]);
    assert_eq!(log["items"][0]["target"], "client:shop-1", "{log}");
    for list in [&["session", "list"][..], &["key", "list"], &["token", "families"], &["group", "list"]] {
        let none = place.json(&[list, &["--search", "no such text", "--limit", "5"]].concat());
        assert_eq!(none["items"].as_array().map(Vec::len), Some(0), "{list:?}: {none}");
    }
}

/// One of 64 base64url identifiers begins with a hyphen.
#[test]
fn what_is_named_may_begin_with_a_hyphen() {
    let place = Place::new("hyphens");
    for (arguments, text) in [
        (&["user", "show", "-hQ"][..], "user \"-hQ\" not found"),
        (&["user", "change", "-_w", "--verified", "true"], "user \"-_w\" not found"),
        (&["user", "disable", "--wait", "--b"], "user \"--b\" not found"),
        (&["group", "add-member", "staff", "-hQ"], "-hQ"),
        (&["client", "show", "-hQ"], "client \"-hQ\" not found"),
        (&["client", "revoke", "desk", "--user", "-hQ"], "user \"-hQ\" not found"),
        (&["session", "list", "--user", "-hQ"], "user \"-hQ\" not found"),
        (&["session", "revoke", "-hQ"], "session \"-hQ\" not found"),
        (&["token", "families", "--user", "-hQ"], "user \"-hQ\" not found"),
        (&["token", "revoke-family", "--b"], "family \"--b\" not found"),
        (&["key", "revoke", "-hQ"], "-hQ"),
    ] {
        let shown = place.refused(1, arguments);
        assert!(shown.contains(text), "{arguments:?}: {shown}");
    }
    assert!(place.did(&["user", "show", "--help"]).contains("Usage: "));
}

#[test]
fn clients_keys_and_the_log_are_administered() {
    let place = Place::new("clients");
    let settings =
        place.folder.write("shop.json", r#"{"grants":["client_credentials"],"audiences":["orders"]}"#);
    let settings = settings.to_str().unwrap();
    let secret = place.did(&["client", "add", "shop", "--settings", settings]);
    assert!(secret.starts_with("pcs_") && secret.lines().count() == 1, "{secret}");
    let shown = place.json(&["client", "show", "shop"]);
    assert_eq!((&shown["version"], &shown["configured"]), (&1.into(), &false.into()));
    place.did(&["client", "replace", "shop", "--settings", settings, "--version", "1"]);
    let late = place.refused(1, &["client", "replace", "shop", "--settings", settings, "--version", "1"]);
    assert!(late.contains("has version 2, not 1"), "{late}");
    assert_ne!(place.did(&["client", "secret", "shop"]), secret);
    let list = place.did(&["client", "list"]);
    assert!(list.contains("configuration") && list.contains("version 3"), "{list}");
    place.did(&["client", "revoke", "shop"]);
    place.did(&["client", "delete", "shop"]);

    let keys = place.json(&["key", "list"]);
    let of = |stage: &str| {
        let mut items = keys["items"].as_array().unwrap().iter();
        items.find(|key| key["stage"] == stage && key["algorithm"] == "ES256").unwrap()["kid"]
            .as_str()
            .unwrap()
    };
    place.did(&["key", "revoke", of("active")]);
    assert!(place.did(&["key", "list"]).contains(of("next")));

    let log = place.path("audit.jsonl");
    place.did(&["audit", "export", &log]);
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let lines = std::fs::read_to_string(&log).unwrap();
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["action"], "key.revoke");
    assert!(place.did(&["audit", "verify"]).contains(last["digest"].as_str().unwrap()));
    assert!(!lines.contains("pcs_"), "{lines}");
}

#[test]
fn a_backup_becomes_a_database_again() {
    let place = Place::new("backup");
    place.configure("other.toml", "other.db", "secret_file = \"provider.secret\"");
    let early = place.refused(3, &["backup", &place.path("early")]);
    assert!(early.contains("there is no database"), "{early}");
    let added = place.with("postern.toml", &["user", "add", "ada", "--password-file", "-"], PASSWORD);
    assert!(added.status.success(), "{}", output_text(&added));
    let copy = place.path("copy");
    let done = place.admin(&["backup", &copy]);
    assert!(
        done.status.success() && output_text(&done).contains("provider.secret"),
        "{}",
        output_text(&done)
    );
    assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(place.refused(3, &["backup", &copy]).contains("already exists"));
    assert!(place.refused(1, &["restore", &copy]).contains("the database is not empty"));
    let streamed = place.admin(&["backup", "-"]);
    assert!(
        streamed.stdout.starts_with(b"{\"format\":") || streamed.stdout.starts_with(b"{"),
        "{}",
        output_text(&streamed)
    );

    let text = std::fs::read_to_string(&copy).unwrap();
    let cut = place.with("other.toml", &["restore", "-"], &text[..text.len() / 2]);
    assert!(
        cut.status.code() == Some(1) && output_text(&cut).contains("nothing was restored"),
        "{}",
        output_text(&cut)
    );
    let restored = place.with("other.toml", &["restore", &copy], "");
    assert!(
        restored.status.success() && output_text(&restored).contains("rows restored"),
        "{}",
        output_text(&restored)
    );
    let epoch = |text: &str| {
        let mut lines = text.lines().skip_while(|line| !line.contains("\"invalidation_head\""));
        lines.nth(1).unwrap().to_owned()
    };
    let again = place.with("other.toml", &["backup", "-"], "");
    assert_ne!(epoch(&text), epoch(&String::from_utf8(again.stdout).unwrap()), "a history of its own");

    let _serving = place.serve("other.toml");
    assert!(place.log_in("ada", PASSWORD)["access_token"].is_string(), "the user is still there");
    let verdict = place.with("other.toml", &["--output", "json", "audit", "verify"], "");
    assert!(verdict.status.success(), "{}", output_text(&verdict));
    let log = place.with("other.toml", &["audit", "list"], "");
    assert!(
        output_text(&log).contains("database.restore") && output_text(&log).contains("operator:grace"),
        "{}",
        output_text(&log)
    );
}

#[test]
fn a_backup_with_another_secret_is_told_apart() {
    let place = Place::new("secret");
    place.did(&["user", "add", "ada"]);
    let copy = place.path("copy");
    place.did(&["backup", &copy]);
    place.configure("other.toml", "other.db", "");
    let secret = place.folder.0.join("other.db.secret");
    let none = place.with("other.toml", &["restore", &copy], "");
    assert!(
        none.status.code() == Some(3) && output_text(&none).contains("put the secret of the backup"),
        "{}",
        output_text(&none)
    );
    std::fs::write(&secret, "sPf6+jr9AWqgv7caKskT3PFDwsi8v5jOk96uPwMQOHQ=\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let other = place.with("other.toml", &["restore", &copy], "");
    assert!(
        other.status.code() == Some(1) && output_text(&other).contains("is not that of the backup"),
        "{}",
        output_text(&other)
    );
    // Nothing was restored before: with the right secret it is.
    std::fs::copy(place.folder.0.join("provider.secret"), &secret).unwrap();
    let restored = place.with("other.toml", &["restore", &copy], "");
    assert!(
        restored.status.success() && output_text(&restored).contains("rows restored"),
        "{}",
        output_text(&restored)
    );
}

#[test]
fn links_are_mailed_if_there_is_a_mail_server() {
    let place = Place::new("mail");
    let password = place.folder.write("password", PASSWORD);
    place.did(&["user", "add", "ada", "--password-file", password.to_str().unwrap()]);
    let missing = place.refused(1, &["mail", "test", "ops@example.com"]);
    assert!(missing.contains("no mail server is configured: add [provider.mail]"), "{missing}");
    assert!(place.refused(1, &["user", "reset-link", "ada", "--mail"]).contains("[provider.mail]"));
    assert!(place.did(&["user", "reset-link", "ada"]).contains("/set-password?token="));

    // No server listens there.
    let server = free();
    let text = std::fs::read_to_string(place.path("postern.toml")).unwrap();
    let mail =
        format!("[provider.mail]\nserver = \"{server}\"\ntls = \"none\"\nfrom = \"login@example.com\"\n");
    place.folder.write("postern.toml", format!("{text}{mail}"));
    let unreachable = place.refused(1, &["mail", "test", "ops@example.com"]);
    assert!(unreachable.contains(&format!("mail server {server}: ")), "{unreachable}");
    assert!(place.refused(1, &["user", "reset-link", "ada", "--mail"]).contains("has no e-mail address"));
    place.did(&["user", "change", "ada", "--email", "ada@example.com"]);
    let output = place.admin(&["user", "reset-link", "ada", "--mail"]);
    let shown = output_text(&output);
    assert!(output.status.success() && output.stdout.is_empty(), "{shown}");
    assert!(shown.contains("the running provider sends it to ada@example.com"), "{shown}");
    let link = place.json(&["user", "reset-link", "ada", "--mail"]);
    assert_eq!((&link["mailed_to"], &link["url"]), (&"ada@example.com".into(), &Value::Null));
    assert!(output_text(&place.admin(&["audit", "list", "--action", "user.reset_link"])).contains("mail"));

    let mut serving = Running::start(&["serve", "--config", &place.path("postern.toml")]);
    let line = serving.wait_for("dependency unavailable");
    assert!(line.contains(&format!("mail server {server}")) && line.contains("sent later"), "{line}");
}

#[test]
fn the_file_stands_before_the_noun() {
    let place = Place::new("file");
    place.configure("configuration", "postern.db", "secret_file = \"provider.secret\"");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postern"));
        command.current_dir(&place.folder.0).arg("admin").args(words).output().unwrap()
    };
    for words in [
        &["postern.toml", "user", "list"][..],
        &["--operator", "grace", "--wait", "postern.toml", "user", "list"],
        &["--wait", "./postern.toml", "user", "list"],
        &["configuration", "user", "list"],
        &["--output", "json", "configuration", "user", "list"],
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", output_text(&output));
    }
    for (words, expected) in [
        (&["--wait", "usr", "list"][..], "unrecognized subcommand 'usr'"),
        (&["postern.toml", "--config", "postern.toml", "user", "list"], "cannot be used multiple times"),
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(output_text(&output).contains(expected), "{words:?}: {}", output_text(&output));
    }
}
