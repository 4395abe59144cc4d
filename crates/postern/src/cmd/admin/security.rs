//! `postern admin session`, `key`, `token` and `audit`.

use std::io::{BufWriter, Write as _};

use idp::admin::AdminFault;
use idp::admin::audit::{AuditEntry, AuditVerdict, ListEntries};
use idp::admin::followers::Refusal;
use idp::admin::keys::{KeyStage, KeyView, ListKeys, RotateKey};
use idp::admin::sessions::{ListSessions, SessionView};
use idp::admin::tokens::{
    FamilyView, ListFamilies, MAX_TOKENS, RevokedTokens, TokenKind, TokenList, TokenText, TokenView,
};

use super::list::{ListPart, PagePart, show_part};
use super::{Done, Fault, input, show};
use crate::cmd::admin::backup;
use crate::cmd::admin::context::AdminContext;
use crate::exit::{Failure, Outcome};

/// Commands for sessions.
#[derive(Debug, clap::Subcommand)]
pub(super) enum SessionVerb {
    /// Show the users that are logged in, and their sessions; a search looks at sids, user IDs,
    /// addresses and browsers.
    List {
        /// Only sessions of this user: name, e-mail address or ID.
        #[arg(long, value_name = "USER", allow_hyphen_values = true)]
        user: Option<String>,
        #[command(flatten)]
        part: ListPart,
    },
    /// Sign a session out and revoke what was granted in it.
    Revoke {
        /// Its identifier, as `list` shows it.
        #[arg(allow_hyphen_values = true)]
        sid: String,
    },
}

pub(super) async fn sessions(desk: &AdminContext, verb: SessionVerb) -> Done {
    let admin = desk.admin();
    match verb {
        SessionVerb::List { user, part } => {
            let page = async |PagePart { search, limit, after }| {
                admin.sessions(&ListSessions { user: user.clone(), search, limit, after }).await
            };
            let row = |session: &SessionView| {
                let SessionView { sid, user_id, address, agent, seen_at, expires_at, .. } = session.clone();
                [sid, user_id, address, agent, show::time(seen_at), show::time(expires_at)]
            };
            let heading = ["sid", "user", "address", "browser", "last used", "ends"];
            show_part(desk, &part.read(page).await?, |part| show::table(heading, part.items.iter().map(row)))
        }
        SessionVerb::Revoke { sid } => {
            admin.end_session(&sid).await?;
            Ok(desk.report_change(&(), &format!("session {sid} is ended"))?)
        }
    }
}

/// Commands for keys.
#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyVerb {
    /// Show the keys that sign, the next ones, and retired ones; a search looks at kids, algorithms and
    /// `active`, `next` or `retired`.
    List {
        #[command(flatten)]
        part: ListPart,
    },
    /// Make the next key of an algorithm sign.
    Rotate {
        /// ES256, RS256 or `EdDSA`.
        algorithm: String,
    },
    /// Revoke a leaked key: its signatures become invalid, and its successor signs at once.
    Revoke {
        /// Its identifier, as `list` shows it.
        #[arg(allow_hyphen_values = true)]
        kid: String,
    },
}

pub(super) async fn keys(desk: &AdminContext, verb: KeyVerb) -> Done {
    let admin = desk.admin();
    match verb {
        KeyVerb::List { part } => {
            let page = async |PagePart { search, limit, after }| {
                admin.list_keys(&ListKeys { search, limit, after }).await
            };
            show_part(desk, &part.read(page).await?, |part| key_table(&part.items))
        }
        KeyVerb::Rotate { algorithm } => {
            let keys = admin.rotate_key(&RotateKey { algorithm: algorithm.clone() }).await?;
            Ok(desk.report_change(
                &keys,
                &format!("the next {algorithm} key signs; all nodes use it within seconds"),
            )?)
        }
        KeyVerb::Revoke { kid } => {
            let keys = admin.revoke_key(&kid).await?;
            Ok(desk.report_change(&keys, &format!("key {kid} is revoked; all nodes are notified at once"))?)
        }
    }
}

fn key_table(keys: &[KeyView]) -> String {
    let row = |key: &KeyView| {
        let stage = match key.stage {
            KeyStage::Active => "signs".into(),
            KeyStage::Next => format!("next, ready {}", show::optional_time(key.ready_at)),
            KeyStage::Retired => format!("retired, removed {}", show::optional_time(key.gone_at)),
        };
        [key.algorithm.clone(), stage, show::time(key.since), key.kid.clone()]
    };
    show::table(["algorithm", "state", "since", "kid"], keys.iter().map(row))
}

/// Commands for tokens. A token is read from a file, so that no list of processes shows it.
#[derive(Debug, clap::Subcommand)]
pub(super) enum TokenVerb {
    /// Show whether a token is valid, and its contents.
    Inspect {
        /// File with the token, or - for standard input.
        file: String,
    },
    /// Revoke a token, or many: an access token alone, a refresh token with its family.
    Revoke {
        /// File with the token, or with one per line, or - for standard input.
        file: String,
        /// The file contains identifiers of access tokens (`jti`); they are revoked even if no such
        /// token is known.
        #[arg(long)]
        jti: bool,
    },
    /// Show active families: the tokens of one authorization each; a search looks at IDs of families,
    /// clients, users and sessions, at scopes and at audiences.
    Families {
        /// Only those on behalf of this user: name, e-mail address or ID.
        #[arg(long, value_name = "USER", allow_hyphen_values = true)]
        user: Option<String>,
        /// Only those of this client: ID or name.
        #[arg(long, value_name = "CLIENT", allow_hyphen_values = true)]
        client: Option<String>,
        #[command(flatten)]
        part: ListPart,
    },
    /// Revoke a family with all its tokens.
    RevokeFamily {
        /// Its identifier, as `families` shows it.
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
}

pub(super) async fn tokens(desk: &AdminContext, verb: TokenVerb) -> Done {
    let admin = desk.admin();
    match verb {
        TokenVerb::Inspect { file } => {
            let view = admin.token(&TokenText { token: input::token(&file)? }).await?;
            desk.show(&view, token_text)?;
            Ok(if view.active { Outcome::Success } else { Outcome::Negative })
        }
        TokenVerb::Revoke { file, jti: true } => {
            let jtis = input::names(&file)?;
            let lists = jtis.chunks(MAX_TOKENS);
            let lists = lists.map(|some| TokenList { jtis: some.to_vec(), ..TokenList::default() });
            revoke_all(desk, jtis.len(), lists).await
        }
        TokenVerb::Revoke { file, jti: false } => {
            let tokens = input::tokens(&file)?;
            if let [token] = &tokens[..] {
                let revoked = admin.revoke_token(&TokenText { token: token.clone() }).await?;
                return Ok(desk.report_change(&revoked, "the token is revoked")?);
            }
            let lists = tokens.chunks(MAX_TOKENS);
            let lists = lists.map(|some| TokenList { tokens: some.to_vec(), ..TokenList::default() });
            revoke_all(desk, tokens.len(), lists).await
        }
        TokenVerb::Families { user, client, part } => {
            let page = async |PagePart { search, limit, after }| {
                let (user, client) = (user.clone(), client.clone());
                admin.families(&ListFamilies { user, client, search, limit, after }).await
            };
            let row = |family: &FamilyView| {
                let FamilyView { id, client_id, user_id, scopes, created_at, expires_at, .. } =
                    family.clone();
                let user = user_id.unwrap_or_default();
                [id, client_id, user, scopes, show::time(created_at), show::time(expires_at)]
            };
            let heading = ["id", "client", "user", "scopes", "granted", "ends"];
            show_part(desk, &part.read(page).await?, |part| show::table(heading, part.items.iter().map(row)))
        }
        TokenVerb::RevokeFamily { id } => {
            admin.revoke_family(&id).await?;
            Ok(desk.report_change(&(), &format!("family {id} is revoked"))?)
        }
    }
}

async fn revoke_all(desk: &AdminContext, tokens: usize, lists: impl Iterator<Item = TokenList>) -> Done {
    let mut all = RevokedTokens { count: 0, worthless: 0 };
    for list in lists {
        let revoked = desk.admin().revoke_tokens(&list).await;
        let RevokedTokens { count, worthless } = revoked.inspect_err(|_| {
            let seen = all.count + all.worthless;
            anstream::eprintln!("{seen} of {tokens} tokens were processed, {} of them revoked", all.count);
        })?;
        all.count += count;
        all.worthless += worthless;
    }
    let RevokedTokens { count, worthless } = all;
    let description = match worthless {
        0 => format!("{count} tokens are revoked"),
        _ => {
            format!("{count} tokens are revoked; {worthless} others were unknown, expired or revoked before")
        }
    };
    Ok(desk.report_change(&all, &description)?)
}

fn token_text(view: &TokenView) -> String {
    let Some(token) = &view.token else {
        return match &view.refused {
            None => "the token is not valid: it is unknown, expired or revoked\n".into(),
            Some(Refusal { everywhere: true, not_yet, .. }) if not_yet.is_empty() => {
                "the token was revoked, and is refused everywhere\n".into()
            }
            Some(Refusal { not_yet, within: None, .. }) => format!(
                "the token was revoked, and is refused everywhere; consumers without a confirmation and without a lease: {}\n",
                not_yet.join(", ")
            ),
            Some(Refusal { not_yet, within: Some(within), .. }) => format!(
                "the token was revoked; consumers that have not confirmed yet: {}; they refuse it in {within} s\n",
                not_yet.join(", ")
            ),
        };
    };
    let kind = match token.kind {
        TokenKind::Access => "access token",
        TokenKind::Refresh => "refresh token",
    };
    show::list(&[
        ("kind", kind.into()),
        ("client", token.client_id.clone()),
        ("user", token.user_name.clone().or_else(|| token.user_id.clone()).unwrap_or_default()),
        ("scopes", token.scopes.clone()),
        ("audiences", token.audiences.clone()),
        ("session", token.sid.clone().unwrap_or_default()),
        ("family", token.family_id.clone().unwrap_or_default()),
        ("jti", token.jti.clone().unwrap_or_default()),
        ("made", show::time(token.issued_at)),
        ("ends", show::time(token.expires_at)),
    ])
}

/// Which entries of the audit log to show.
#[derive(Debug, clap::Args)]
pub(super) struct AuditFilter {
    /// Only entries about this user: name, e-mail address or ID; a deleted account by its ID.
    #[arg(long, value_name = "USER", allow_hyphen_values = true)]
    user: Option<String>,
    /// Only entries about this client: ID or name; a deleted one by its ID.
    #[arg(long, value_name = "CLIENT", allow_hyphen_values = true)]
    client: Option<String>,
    /// Only actions of this actor: `user:ID`, `client:ID`, `operator:NAME` or `anonymous`.
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    /// Only entries with this action, such as `login.failure`.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only entries since a time (RFC 3339), or of the last `90s`, `15m`, `2h` or `7d`.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only entries before this time, in the same forms.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    #[command(flatten)]
    part: ListPart,
}

/// Commands for the audit log.
#[derive(Debug, clap::Subcommand)]
pub(super) enum AuditVerb {
    /// Show entries, the oldest first; a search looks at actors, actions, targets, names and details.
    /// Long details are cut here, but complete in JSON and in an export.
    List(AuditFilter),
    /// Write entries as JSON, one per line, the oldest first.
    Export {
        /// A new file, or - for standard output.
        file: String,
        /// Only entries after this number.
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        after: u64,
    },
    /// Verify that the log is unchanged.
    Verify,
}

/// The details of an entry without the names, which have columns of their own.
fn without_names(detail: &str) -> String {
    let Ok(serde_json::Value::Object(mut members)) = serde_json::from_str(detail) else {
        return detail.to_owned();
    };
    members.remove("user_name");
    members.remove("client_name");
    if members.is_empty() { String::new() } else { serde_json::Value::Object(members).to_string() }
}

/// Parses the position in the audit log.
fn number(after: &str) -> Result<u64, AdminFault> {
    after.parse().map_err(|_| {
        AdminFault::refused("after", format!("{after:?} is not the number of an entry: use 0 or more"))
    })
}

pub(super) async fn audit(desk: &AdminContext, verb: AuditVerb) -> Done {
    let admin = desk.admin();
    match verb {
        AuditVerb::List(filter) => {
            let AuditFilter { user, client, actor, action, since, until, part } = filter;
            let all = ListEntries { user, client, actor, action, since, until, ..ListEntries::default() };
            let page = async |PagePart { search, limit, after }| {
                let after = after.as_deref().map(number).transpose()?;
                admin.audit_log(&ListEntries { search, limit, after, ..all.clone() }).await
            };
            let row = |entry: &AuditEntry| {
                let AuditEntry { seq, at, actor, action, target, user_name, client_name, detail, .. } =
                    entry.clone();
                let named = |name: Option<String>| name.unwrap_or_default();
                let (user, client) = (named(user_name), named(client_name));
                [
                    seq.to_string(),
                    show::time(at),
                    actor,
                    action,
                    target,
                    user,
                    client,
                    show::cut(without_names(&detail)),
                ]
            };
            let heading = ["number", "when", "who", "what", "to whom", "user", "client", "detail"];
            show_part(desk, &part.read(page).await?, |part| show::table(heading, part.items.iter().map(row)))
        }
        AuditVerb::Export { file, after } => {
            let mut out = BufWriter::new(backup::OutputTarget::open(&file)?);
            let unwritten =
                |error: std::io::Error| Fault::from(Failure::new(format!("cannot write to {file}: {error}")));
            let count =
                admin.export_audit_log(after, |line| writeln!(out, "{line}").map_err(unwritten)).await?;
            out.into_inner().map_err(|error| unwritten(error.into_error()))?.finish()?;
            anstream::eprintln!("{count} entries written");
            Ok(Outcome::Success)
        }
        AuditVerb::Verify => {
            let verdict = admin.verify_audit_log().await?;
            let intact = verdict.intact;
            desk.show(&verdict, verdict_text)?;
            Ok(if intact { Outcome::Success } else { Outcome::Negative })
        }
    }
}

fn verdict_text(verdict: &AuditVerdict) -> String {
    let AuditVerdict { entries, last, expired, digest, broken_at, .. } = verdict;
    let (Some(entries), Some(last), Some(digest)) = (entries, last, digest) else {
        let at = broken_at.unwrap_or_default();
        return format!(
            "the audit log was changed: entry {at} or an earlier one was changed or is missing\n"
        );
    };
    let expired = match expired {
        None => String::new(),
        Some(expired) => format!("; those up to {expired} have expired, as the log records"),
    };
    format!(
        "the audit log is unchanged: {entries} entries{expired}, the last digest is\n{digest}\n\
         store it in another place, and compare entry {last} with it later\n"
    )
}
