//! What is told when something ends: which credentials are void, and for how long that has to be remembered.
//!
//! Owns: the [`Revocation`] of each kind of ending, and the changes that end all a user has. Does not own: the rows that end
//! with it (each change of the store says which), telling clients ([`crate::logout`]).

use std::time::Duration;

use auth::time::Timestamp;
use store::{
    Revocation, Tag,
    users::{EndUser, Ending, StoredPassword},
};

use crate::{lifetime::MAX_ACCESS_TOKEN, provider::Provider, secrets::Subject};

/// How long a client that does not answer is told of an ended session: its own session is over by then.
pub const DELIVERED_WITHIN: Duration = Duration::from_hours(12);

/// All that carries the tag, whenever it was made: what ends never begins again.
fn whole(tag: Tag, reason: &'static str, now: Timestamp) -> Revocation {
    Revocation { tags: vec![tag], reason, not_before: None, until: now.plus(MAX_ACCESS_TOKEN) }
}

/// All that carries one of the tags and was made before now.
pub(crate) fn so_far(tags: Vec<Tag>, reason: &'static str, now: Timestamp) -> Revocation {
    Revocation { tags, reason, not_before: Some(now), until: now.plus(MAX_ACCESS_TOKEN) }
}

/// Nothing is void; what caches know of it is old.
pub(crate) fn stale(tag: Tag, reason: &'static str, now: Timestamp) -> Revocation {
    Revocation { tags: vec![tag], reason, not_before: Some(Timestamp::from_millis(0)), until: now }
}

/// One access token, which would have expired then.
pub(crate) fn access_token(
    provider: &Provider,
    jti: &str,
    expires_at: Timestamp,
    reason: &'static str,
) -> Revocation {
    let tags = vec![provider.secrets().tag(Subject::Token(jti))];
    Revocation { tags, reason, not_before: None, until: expires_at }
}

/// A family with all its tokens.
pub(crate) fn family(provider: &Provider, id: &str, reason: &'static str) -> Revocation {
    whole(provider.secrets().tag(Subject::Family(id)), reason, provider.now())
}

/// A session with all that was granted in it.
pub(crate) fn session(provider: &Provider, sid: &str, reason: &'static str, now: Timestamp) -> Revocation {
    whole(provider.secrets().tag(Subject::Session(sid)), reason, now)
}

/// All that a client was granted by a user so far.
pub(crate) fn consent(provider: &Provider, user_id: &str, client_id: &str, now: Timestamp) -> Revocation {
    so_far(vec![provider.secrets().tag(Subject::Consent(user_id, client_id))], "consent withdrawn", now)
}

/// Everything of a user so far.
pub(crate) fn user(provider: &Provider, user_id: &str, reason: &'static str, now: Timestamp) -> Revocation {
    so_far(vec![provider.secrets().tag(Subject::User(user_id))], reason, now)
}

/// Ends all of a user's sessions and tokens.
pub(crate) fn end_user(
    provider: &Provider,
    user_id: &str,
    ending: Ending,
    reason: &'static str,
    now: Timestamp,
) -> EndUser {
    EndUser {
        user_id: user_id.to_owned(),
        ending,
        revocation: user(provider, user_id, reason, now),
        deliver_until: Some(now.plus(DELIVERED_WITHIN)),
        now,
    }
}

/// Gives a user another password: everything that was begun with the old one ends.
pub(crate) fn change_password(provider: &Provider, user_id: &str, password: StoredPassword) -> EndUser {
    end_user(provider, user_id, Ending::Password(password), "password changed", provider.now())
}
