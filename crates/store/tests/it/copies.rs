//! Backups: exporting a whole database and importing it into another.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use sqlx::{AnyConnection, Connection as _, Row as _};
use store::access_tokens::{AppendRevocation, IssueAccessToken};
use store::audit::{AuditEntry, Audited};
use store::audit_receivers::RegisterAuditReceiver;
use store::backup::{BackupContents, BackupError, Imported};
use store::clients::AddClient;
use store::codes::{IssueCode, Issued};
use store::consents::{Consent, GiveConsent};
use store::deliveries::QueueDelivery;
use store::device_codes::IssueDeviceCode;
use store::families::Family;
use store::login_attempts::{Attempts, RecordAttempt};
use store::login_sessions::{BeginLoginSession, LoginSessionRow};
use store::security_events::{Acknowledge, Occurrence, RegisterReceiver, StoreSharedSecret};
use store::sessions::SessionRow;
use store::users::{AddUser, UserRow};
use store::{Epoch, LogHead, MigrationNotes, Revocation, Store, StoreError};
use store::{
    groups::{AddGroup, AddMember},
    key_ring::ReplaceKeyRing,
};
use store::{pushed_requests::PushRequest, replay_guard::UseOnce};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::account_links::issue as issue_link;
use crate::databases::{
    Database, NOW, ORIGINS, add_user, begin_family, digest, family, on_both, password, revocation, tag, user,
};
use crate::former_schema::{BACK_TO_VERSION_9, add_introspecting, introspect_as_before};
use crate::grants::{access, code, device, is_active, redeem_refresh, refresh};
use crate::login_sessions::login_session;
use crate::mail_queue::queue_typed;
use crate::people::{begin, session};

const HOUR: Duration = Duration::from_hours(1);
/// The epoch of a database that was imported.
const RESTORED: Epoch = Epoch([9; 16]);
/// Characters that an encoding could get wrong.
const TEXT: &str = "\"quoted\", \\, \r\n\t\u{2028} äöü 𝄞 {\"sha256\":[]} ''";

/// Fills every table, two of them with several pages.
async fn fill(store: &Store) {
    let mut ada = user("ada");
    ada.email = Some("Ada@example.com".into());
    ada.email_verified_at = Some(NOW);
    ada.claims = TEXT.into();
    store.write(AddUser { user: ada.clone(), password: Some(password("$argon2id$")) }).await.unwrap();
    add_user(store, "eve").await;
    assert!(issue_link(store, "link").await);
    queue_typed(store, "mail").await;
    let entry = AuditEntry {
        actor: "operator:root".into(),
        action: "group.add".into(),
        target: "group:staff".into(),
        detail: TEXT.into(),
        at: NOW,
        user_id: None,
        client_id: None,
    };
    let add = AddGroup { id: "g".into(), name: "staff".into(), now: NOW };
    store.write(Audited { change: add, entry: entry.clone() }).await.unwrap();
    let join = AddMember { group: "staff".into(), user_id: ada.id.clone() };
    store.write(Audited { change: join, entry }).await.unwrap();
    let to =
        Attempts { failures: 3, first_at: NOW, last_at: NOW, locked_until: NOW, expires_at: Timestamp::MAX };
    store.write(RecordAttempt { subject: TEXT.into(), previous: None, next: to }).await.unwrap();
    store.write(AddClient { id: "notebook".into(), settings: TEXT.into(), now: NOW }).await.unwrap();
    store.write(begin(SessionRow { acr: None, ..session("s", &ada) }, None)).await.unwrap();
    let bound = |id: &str| Family { sid: Some("sid-s".into()), ..family(id, &ada) };
    let issue = IssueCode {
        family: bound("f"),
        origins: ORIGINS,
        code: code("c"),
        required_consent: None,
        pushed_request: None,
    };
    assert_eq!(store.write(issue).await.unwrap(), Issued::Stored);
    let issue = begin_family(bound("g"), Some(refresh("r")), access("a", Some(&ada)));
    assert!(store.write(issue).await.unwrap());
    store.write(IssueAccessToken(access("b", None))).await.unwrap();
    store.write(IssueDeviceCode(device("d", "u"))).await.unwrap();
    let push = PushRequest {
        digest: digest("p"),
        client_id: "notebook".into(),
        parameters: TEXT.into(),
        expires_at: NOW.plus(HOUR),
    };
    store.write(push).await.unwrap();
    let deliver = QueueDelivery {
        id: "d".into(),
        client_id: "notebook".into(),
        user_id: ada.id.clone(),
        sid: "sid-s".into(),
        due_at: NOW,
        expires_at: NOW.plus(HOUR),
    };
    store.write(deliver).await.unwrap();
    fill_log(store).await;
    store.write(StoreSharedSecret([7; 64])).await.unwrap();
    let ring = ReplaceKeyRing { from: None, content: (0..=255).collect(), revocation: None, now: NOW };
    assert!(store.write(ring).await.unwrap());
    store.write(BeginLoginSession(login_session("l"))).await.unwrap();
    let of_session = LoginSessionRow { sid: Some(digest("sid")), ..login_session("m") };
    store.write(BeginLoginSession(of_session)).await.unwrap();
    fill_pages(store, &ada).await;
}

/// Fills the tables of revocations and their receivers.
async fn fill_log(store: &Store) {
    for n in 0..3 {
        store.write(AppendRevocation { revocation: revocation(&format!("t{n}")), now: NOW }).await.unwrap();
    }
    for receiver in ["r", "s"] {
        store.write(RegisterReceiver { receiver: receiver.into(), now: NOW }).await.unwrap();
        store.write(RegisterAuditReceiver { receiver: receiver.into(), now: NOW }).await.unwrap();
    }
    for n in 0..2 {
        let what = Occurrence {
            user_id: Some(TEXT.into()),
            sid: Some(TEXT.into()),
            ..Occurrence::new(EventKind::SessionRevoked)
        };
        let told = Revocation { occurrence: Some(what), ..revocation(&format!("o{n}")) };
        store.write(AppendRevocation { revocation: told, now: NOW }).await.unwrap();
    }
    let heard = store.head().await.unwrap().seq;
    store.write(Acknowledge { receiver: "r".into(), acknowledged: vec![heard], before: NOW }).await.unwrap();
}

/// Fills two tables with several pages.
async fn fill_pages(store: &Store, ada: &UserRow) {
    let mut writes = tokio::task::JoinSet::new();
    for n in 0..1_203 {
        let (store, user_id) = (store.clone(), ada.id.clone());
        writes.spawn(async move {
            let once = UseOnce { digest: digest(&format!("jti-{n}")), until: NOW };
            assert!(store.write(once).await.unwrap());
            let client_id = format!("client-{n}");
            let consent = Consent { user_id, client_id, scopes: "openid".into(), given_at: NOW };
            store.write(GiveConsent { consent, previous_scopes: None }).await
        });
    }
    assert!(writes.join_all().await.into_iter().all(|given| given.is_ok()));
}

pub(crate) async fn export(store: &Store) -> Vec<u8> {
    let mut copy = Vec::new();
    let exported = store.export(&mut copy).await.unwrap();
    let lines = copy.split(|byte| *byte == b'\n').count() as u64 - 1;
    assert_eq!(exported.rows, lines - 2 - tables(&copy).len() as u64, "but for header, tables and end");
    copy
}

pub(crate) async fn import(store: &Store, copy: &[u8]) -> Result<Imported, BackupError> {
    store.import(&mut &copy[..], RESTORED, |_| Ok(vec![])).await
}

/// The tables of a copy with their columns.
fn tables(copy: &[u8]) -> Vec<(String, Vec<String>)> {
    let lines = copy.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
    lines
        .filter_map(|line| {
            let line: serde_json::Value = serde_json::from_slice(line).unwrap();
            let columns = line.get("columns")?.as_array()?;
            let columns = columns.iter().map(|column| column.as_str().unwrap().to_owned()).collect();
            Some((line.get("table")?.as_str()?.to_owned(), columns))
        })
        .collect()
}

/// The lines that two copies of the same data share: all but the epoch and what depends on it.
fn facts(copy: &[u8]) -> Vec<String> {
    let lines: Vec<&str> = std::str::from_utf8(copy).unwrap().lines().collect();
    let head = 1 + lines.iter().position(|line| line.contains(r#""table":"invalidation_head""#)).unwrap();
    let with_epoch = [0, head, lines.len() - 1];
    let others = lines.iter().enumerate().filter(|(at, _)| !with_epoch.contains(at));
    others.map(|(_, line)| (*line).to_owned()).collect()
}

/// The copy with another schema version in its header.
fn of_schema(copy: &str, version: u64) -> String {
    let (before, rest) = copy.split_once(r#""schema":"#).expect("the header says the version");
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    format!(r#"{before}"schema":{version}{rest}"#)
}

/// The given lines of a copy, with a trailer that matches them.
pub(crate) fn sealed<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    let (mut text, mut counts, mut table) = (String::new(), serde_json::Map::new(), String::new());
    for line in lines.filter(|line| !line.contains("sha256\":\"")) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(name) = value.get("table") {
            name.as_str().unwrap().clone_into(&mut table);
            counts.insert(table.clone(), 0.into());
        } else if value.is_array() {
            counts[&table] = (counts[&table].as_u64().unwrap() + 1).into();
        }
        text += line;
        text += "\n";
    }
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let hex: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    text + &serde_json::json!({ "rows": counts, "sha256": hex.concat() }).to_string() + "\n"
}

async fn is_untouched(store: &Store, epoch: Epoch) {
    assert_eq!(store.head().await.unwrap(), LogHead { epoch, seq: 0 });
    assert_eq!(store.users("", 9).await.unwrap(), []);
    assert_eq!(store.audit_log(0).await.unwrap(), []);
}

/// Copies one database into another and checks the result.
async fn goes_over(from: &Database, to: &Database) {
    let (old, new) = (from.open().await, to.open().await);
    fill(&old).await;
    let copy = export(&old).await;
    let imported = import(&new, &copy).await.unwrap();
    assert_eq!(imported.head, LogHead { epoch: RESTORED, seq: 5 });
    assert_eq!(new.head().await.unwrap(), imported.head, "another history, the same number");
    let again = export(&new).await;
    assert_eq!(facts(&again), facts(&copy));
    assert_ne!(again, copy, "the epoch");

    assert_eq!(new.events(0, 9).await.unwrap(), old.events(0, 9).await.unwrap());
    assert_eq!(new.key_ring().await.unwrap(), old.key_ring().await.unwrap());
    assert_eq!(new.user_by_login("ada@example.com").await.unwrap(), old.user_by_login("ada").await.unwrap());
    assert_eq!(new.session(&digest("s"), NOW).await.unwrap(), old.session(&digest("s"), NOW).await.unwrap());
    for name in ["l", "m"] {
        let kept = old.login_session(&digest(name), NOW).await.unwrap();
        assert!(kept.is_some() && new.login_session(&digest(name), NOW).await.unwrap() == kept, "{name}");
    }
    assert_eq!(new.attempts(TEXT).await.unwrap().unwrap().expires_at, Timestamp::MAX);
    assert!(new.verify_audit_log().await.unwrap().is_ok_and(|log| log.last == 2));

    // The imported database works like the original.
    assert!(is_active(&new, "a", NOW).await);
    let redeemed = new.write(redeem_refresh("r", "r2", NOW)).await.unwrap();
    assert_eq!(redeemed, store::redeem::RedeemResult::Redeemed);
    new.write(AppendRevocation { revocation: revocation("next"), now: NOW }).await.unwrap();
    let next = &new.events(5, 9).await.unwrap()[0];
    assert_eq!((next.seq, &*next.tags), (6, &[tag("next")][..]));
    let entry = AuditEntry {
        actor: "system".into(),
        action: "x".into(),
        target: "y".into(),
        detail: "{}".into(),
        at: NOW,
        user_id: None,
        client_id: None,
    };
    new.write(entry).await.unwrap();
    assert!(new.verify_audit_log().await.unwrap().is_ok_and(|log| log.last == 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_becomes_a_server() {
    goes_over(&Database::sqlite(), &Database::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_becomes_a_file() {
    goes_over(&Database::postgres().await, &Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_table_and_column_is_copied() {
    let database = Database::sqlite();
    let store = database.open().await;
    fill(&store).await;
    let copy = export(&store).await;
    let mut connection = AnyConnection::connect(&database.url).await.unwrap();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_%' ESCAPE '\\' \
                 AND name NOT LIKE 'sqlite%' AND name NOT IN ('followers', 'names_given', 'login_endings', 'login_endings_head') ORDER BY rowid";
    let mut there = Vec::new();
    for row in sqlx::query(names).fetch_all(&mut connection).await.unwrap() {
        let name: String = row.get(0);
        let columns = sqlx::query("SELECT name FROM pragma_table_info($1) ORDER BY cid").bind(&name);
        let columns = columns.fetch_all(&mut connection).await.unwrap();
        there.push((name, columns.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>()));
    }
    assert_eq!(tables(&copy), there);
    let last = std::str::from_utf8(&copy).unwrap().lines().last().unwrap();
    let counts: serde_json::Value = serde_json::from_str(last).unwrap();
    for (name, _) in there {
        assert!(counts["rows"][&name].as_u64().unwrap() > 0, "{name}: the test fills it");
    }
}

on_both! {
    async fn a_copy_is_of_one_moment(database: Database) {
        let stores = database.open_all().await;
        let writer = stores[stores.len() - 1].clone();
        let writing = tokio::spawn(async move {
            for n in 0..400 {
                let told = AppendRevocation { revocation: revocation(&format!("t{n}")), now: NOW };
                writer.write(told).await.unwrap();
            }
        });
        while !writing.is_finished() {
            let copy = export(&stores[0]).await;
            let header: serde_json::Value = serde_json::from_slice(copy.split(|b| *b == b'\n').next().unwrap()).unwrap();
            let trailer = std::str::from_utf8(&copy).unwrap().lines().last().unwrap();
            let trailer: serde_json::Value = serde_json::from_str(trailer).unwrap();
            for table in ["invalidation_log", "denials"] {
                assert_eq!(trailer["rows"][table], header["seq"], "{table}");
            }
        }
        writing.await.unwrap();
    }

    async fn a_copy_that_is_not_whole_is_refused(database: Database) {
        let store = database.open().await;
        let source = Database::sqlite().open().await;
        add_user(&source, "ada").await;
        source.write(AppendRevocation { revocation: revocation("t"), now: NOW }).await.unwrap();
        let copy = export(&source).await;
        for length in (0..copy.len()).step_by(31).chain([copy.len() - 1]) {
            let refused = import(&store, &copy[..length]).await.unwrap_err();
            assert!(matches!(refused, BackupError::Truncated(_) | BackupError::NotACopy), "{length}: {refused}");
        }
        let whole = copy.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        for length in whole.filter(|length| *length < copy.len()) {
            let refused = import(&store, &copy[..length]).await.unwrap_err();
            assert!(matches!(refused, BackupError::Truncated(_)), "{length}: {refused}");
        }
        for (at, byte) in copy.iter().enumerate().step_by(5) {
            let mut changed = copy.clone();
            changed[at] = byte ^ 1;
            let refused = import(&store, &changed).await;
            assert!(refused.is_err(), "byte {at}: {refused:?}");
        }
        let longer = [&copy[..], b"x"].concat();
        assert!(matches!(import(&store, &longer).await, Err(BackupError::TrailingData(_))));
        is_untouched(&store, crate::databases::EPOCH).await;
        import(&store, &copy).await.unwrap();
        let read_at = store.log_time().await.unwrap();
        assert_eq!(store.user("id-ada").await.unwrap(), Some(UserRow { read_at, ..user("ada") }));
    }

    async fn what_is_wrong_is_named_with_its_line(database: Database) {
        let store = database.open().await;
        let source = Database::sqlite().open().await;
        for name in ["ada", "eve"] {
            add_user(&source, name).await;
        }
        let copy = String::from_utf8(export(&source).await).unwrap();
        let line = 1 + copy.lines().position(|line| line.starts_with(r#"["id-ada""#)).unwrap();
        let heads = |line: &&str| !line.contains("audit_head") && !line.starts_with("[1,0,");
        for (changed, expected) in [
            ("no copy\n".to_owned(), "line 1: not a copy of Postern's store: choose a file written by the export".to_owned()),
            ("{\"format\":\"other\"}\n".to_owned(), "line 1: not a copy of Postern's store: choose a file written by the export".to_owned()),
            (of_schema(&copy, 77), "line 1: the copy has schema version 77".into()),
            (copy.replacen(r#"["id-ada""#, r#"["id-eva""#, 1), format!("line {}: digest", copy.lines().count())),
            (copy.replacen(r#"["id-ada""#, r#"["id-eve""#, 1), format!("lines {line} to {}: ", line + 1)),
            (copy.replacen(r#"["id-ada""#, r"[7", 1), format!("line {line}: column id: value of the wrong type")),
            (copy.replacen(r#"["id-ada","#, "[", 1), format!("line {line}: number of values differs from the number of columns")),
            (copy.replacen(r#"["id-ada""#, r#"["id-ada"#, 1), format!("line {line}: invalid JSON at column")),
            (copy.replacen(r#""table":"users""#, r#""table":"x""#, 1), format!("line {}: unknown table \"x\"", line - 1)),
            (copy.replacen(r#""name_key""#, r#""x""#, 1), format!("line {}: table users: missing or unknown columns", line - 1)),
            (sealed(copy.lines().filter(heads)), format!("line {}: the copy has no row of table audit_head", copy.lines().count() - 3)),
            (copy.replacen(r#"{"columns""#, r#"{"rows""#, 1), "line 2: table invalidation_head: missing or unknown columns".into()),
        ] {
            let refused = import(&store, changed.as_bytes()).await.unwrap_err().to_string();
            assert!(refused.starts_with(&expected), "{refused}, not {expected}");
        }
        is_untouched(&store, crate::databases::EPOCH).await;
    }

    async fn a_copy_of_the_version_before_is_read(database: Database) {
        let store = database.open().await;
        let source = Database::sqlite().open().await;
        let ada = add_user(&source, "ada").await;
        let copy = String::from_utf8(export(&source).await).unwrap();
        let newer = ["login_sessions", "occurrences", "event_receivers", "event_acknowledgements", "event_secret", "audit_receivers", "account_links", "mail_queue", "audit_tail"];
        let is_newer = |line: &str| newer.iter().any(|name| line.contains(&format!("\"table\":\"{name}\"")));
        let without = copy.lines().filter(|line| !is_newer(line) && *line != "[1,0,null,0]");
        let before = of_schema(&sealed(without), 1);
        let before = before.replacen(r#","not_before","until""#, "", 1);
        let before = before.replacen(r#""seq","incarnation","at"]"#, r#""seq"]"#, 1);
        let before = before.replacen(",0,null,0]", ",0]", 1);
        let before = before.replacen(r#","name_fold","email_fold","must_change_password_at""#, "", 1);
        let before = before.replacen(r#",0,"ada",null,null]"#, ",0]", 1);
        let before = before.replacen(r#","read_at","client_tag","consent_tag""#, "", 1);
        let before = before.replacen(r#","read_at""#, "", 1);
        let before = before.replacen(r#""digest","user_id","client_id"]"#, r#""digest"]"#, 1);
        // Ada's tokens are revoked up to that time.
        let row = before.lines().find(|line| line.starts_with(r#"["id-ada""#)).unwrap();
        let ended = format!("{},{}]", row.strip_suffix(",0]").unwrap(), NOW.as_millis());
        let before = sealed(before.replacen(row, &ended, 1).lines());
        assert!(before.contains(r#""schema":1"#) && !before.contains("login_sessions"));
        assert!(!before.contains(r#""until""#) && !before.contains("read_at") && !before.contains("incarnation"));
        import(&store, before.as_bytes()).await.unwrap();
        assert_eq!(store.user(&ada.id).await.unwrap(), Some(UserRow { tokens_not_before: NOW, read_at: NOW, ..ada.clone() }));
        assert!(store.write(IssueAccessToken(access("a", Some(&UserRow { read_at: NOW, ..ada })))).await.unwrap());
        store.write(BeginLoginSession(login_session("l"))).await.unwrap();
        assert_eq!(store.login_session(&digest("l"), NOW).await.unwrap(), Some(login_session("l")));
    }

    async fn clients_of_a_copy_of_before_introspect_as_they_did(database: Database) {
        let store = database.open().await;
        let source = Database::sqlite().open().await;
        add_introspecting(&source).await;
        let copy = String::from_utf8(export(&source).await).unwrap();
        let before = sealed(of_schema(&copy, 9).lines());
        let imported = import(&store, before.as_bytes()).await.unwrap();
        assert_eq!(imported.migrated.introspecting, ["gateway"]);
        introspect_as_before(&store).await;
        let of_now = Database::sqlite().open().await;
        assert_eq!(import(&of_now, copy.as_bytes()).await.unwrap().migrated, MigrationNotes::default(), "it is told once");
    }

    async fn clients_of_a_database_of_before_introspect_as_they_did(database: Database) {
        let before = database.open().await;
        assert_eq!(*before.migrated(), MigrationNotes::default(), "a new one has none");
        add_introspecting(&before).await;
        before.close().await;
        let mut connection = AnyConnection::connect(&database.url).await.unwrap();
        for undo in BACK_TO_VERSION_9 {
            sqlx::query(undo).execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
        let next = database.open().await;
        assert_eq!(next.migrated().introspecting, ["gateway"]);
        let note = next.migrated().note().unwrap();
        assert!(note.contains(": gateway;") && note.contains("\"all\""), "{note}");
        introspect_as_before(&next).await;
        assert_eq!(*database.open().await.migrated(), MigrationNotes::default(), "it is told once");
    }

    async fn a_copy_is_not_added_to_a_database(database: Database) {
        let copy = export(&Database::sqlite().open().await).await;
        let store = database.open().await;
        import(&store, &copy).await.expect("an empty one, into an empty one");
        add_user(&store, "ada").await;
        let refused = import(&store, &copy).await.unwrap_err();
        assert!(matches!(refused, BackupError::NotEmpty("users")), "{refused}");
        assert_eq!(store.head().await.unwrap().epoch, RESTORED);
        let told = database.open().await;
        told.write(AppendRevocation { revocation: revocation("t"), now: NOW }).await.unwrap();
        let refused = import(&told, &copy).await.unwrap_err();
        assert!(refused.to_string().starts_with("the database is not empty: "), "{refused}");
    }

    async fn a_copy_is_accepted_before_it_is_there(database: Database) {
        let source = Database::sqlite().open().await;
        add_user(&source, "ada").await;
        let ring = ReplaceKeyRing { from: None, content: b"sealed".to_vec(), revocation: None, now: NOW };
        assert!(source.write(ring).await.unwrap());
        let copy = export(&source).await;
        let store = database.open().await;
        let mut seen = None;
        let decline = |copied: &BackupContents| {
            seen = Some(copied.clone());
            Err("not this one".to_owned())
        };
        let refused = store.import(&mut &copy[..], RESTORED, decline).await.unwrap_err();
        assert!(matches!(&refused, BackupError::Rejected(why) if why == "not this one"), "{refused}");
        let copied = seen.unwrap();
        assert_eq!(copied.key_ring.as_deref(), Some(&b"sealed"[..]));
        is_untouched(&store, crate::databases::EPOCH).await;

        let entry = AuditEntry {
            actor: "operator:root".into(),
            action: "database.restore".into(),
            target: "database".into(),
            detail: "{}".into(),
            at: NOW,
            user_id: None,
            client_id: None,
        };
        let imported = store.import(&mut &copy[..], RESTORED, |_| Ok(vec![entry.clone()])).await.unwrap();
        assert_eq!(imported.rows, copied.rows);
        let log = store.audit_log(0).await.unwrap();
        assert!(log.len() == 1 && log[0].entry == entry, "{log:?}");
        assert!(store.verify_audit_log().await.unwrap().is_ok_and(|log| log.last == 1));
    }
}

/// A proxy to the database that cuts a connection at a given statement, before or after the server
/// has executed it.
struct Cut {
    url: String,
    at: At,
}

/// A statement, and whether it still reaches the server.
type At = Arc<Mutex<Option<(&'static [u8], bool)>>>;

impl Cut {
    async fn before(database: &Database) -> Self {
        let (_, rest) = database.url.split_once('@').unwrap();
        let (server, path) = rest.split_once('/').unwrap();
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("postgres://postern@{}/{path}", listener.local_addr().unwrap());
        let at = At::default();
        let seen = at.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass(client, server, seen.clone()));
            }
        });
        Self { url, at }
    }

    /// From now on cuts a connection at this statement. `done`: after the server has executed it,
    /// but before its answer.
    fn cut(&self, statement: &'static [u8], done: bool) {
        *self.at.lock().unwrap() = Some((statement, done));
    }
}

/// Forwards both directions until the cut.
async fn pass(mut client: TcpStream, mut server: TcpStream, at: At) {
    let (mut asked, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                let at = *at.lock().unwrap();
                let said = |what: &[u8]| asked[..read].windows(what.len()).any(|part| part == what);
                let cut = at.filter(|(statement, _)| said(statement));
                if cut.is_some_and(|(_, done)| !done) || server.write_all(&asked[..read]).await.is_err() {
                    return;
                }
                if cut.is_some() {
                    // The server has executed the statement once it answers; the answer is dropped.
                    let _ = server.read(&mut answer).await;
                    return;
                }
            }
            read = server.read(&mut answer) => {
                let Ok(read @ 1..) = read else { return };
                if client.write_all(&answer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whether_a_copy_is_there_that_was_not_answered_is_not_known() {
    let source = Database::sqlite().open().await;
    add_user(&source, "ada").await;
    let copy = export(&source).await;
    for done in [true, false] {
        let database = Database::postgres().await;
        let way = Cut::before(&database).await;
        let store = Store::open(&way.url, crate::databases::EPOCH).await.unwrap();
        way.cut(b"COMMIT", done);
        let unclear = import(&store, &copy).await.unwrap_err();
        assert!(
            matches!(unclear, BackupError::CommitUnknown(StoreError::Unavailable(_))),
            "{done}: {unclear}"
        );
        let there = database.open().await.user_by_login("ada").await.unwrap();
        assert_eq!(there.is_some(), done, "and a check the database name tells");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_does_not_refuse_the_copy() {
    let source = Database::sqlite().open().await;
    add_user(&source, "ada").await;
    let copy = export(&source).await;
    let database = Database::postgres().await;
    let way = Cut::before(&database).await;
    let store = Store::open(&way.url, crate::databases::EPOCH).await.unwrap();
    way.cut(b"INSERT INTO users", false);
    let failed = import(&store, &copy).await.unwrap_err();
    assert!(matches!(failed, BackupError::Database(StoreError::Unavailable(_))), "{failed}");
    is_untouched(&database.open().await, crate::databases::EPOCH).await;
}
