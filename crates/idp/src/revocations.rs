//! What is told when something ends: which credentials are void, and for how long that has to be remembered.
//!
//! Owns: the [`Revocation`] of each kind of ending, and the changes that end all a user has. Does not own: the rows that end
//! with it (each change of the store says which), telling clients ([`crate::logout`]) and others ([`crate::signals`]).

use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use store::{
    Revocation, RevocationReach, Tag,
    security_events::OccurrenceKey,
    users::{EndUser, StoredPassword, UserRevocation},
};

use crate::{lifetime::MAX_ACCESS_TOKEN, provider::Provider, secrets::TagSubject};

/// How long a client that does not answer is told of an ended session: its own session is over by then.
pub const DELIVERED_WITHIN: Duration = Duration::from_hours(12);

/// All that carries the tag, whenever it was made: what ends never begins again.
fn whole(tag: Tag, reason: &'static str, now: Timestamp) -> Revocation {
    let until = now.plus(MAX_ACCESS_TOKEN);
    Revocation { tags: vec![tag], reason, reach: RevocationReach::Whole, until, occurrence: None }
}

/// All that carries one of the tags and rests on what was read before this is durable.
pub(crate) fn so_far(tags: Vec<Tag>, reason: &'static str, now: Timestamp) -> Revocation {
    let until = now.plus(MAX_ACCESS_TOKEN);
    Revocation { tags, reason, reach: RevocationReach::SoFar, until, occurrence: None }
}

/// Nothing is void; what caches know of it is old.
pub(crate) fn stale(tag: Tag, reason: &'static str, now: Timestamp) -> Revocation {
    Revocation { tags: vec![tag], reason, reach: RevocationReach::NOTHING, until: now, occurrence: None }
}

/// The same of a user, whose claims are others now.
pub(crate) fn changed(
    provider: &Provider,
    user_id: &str,
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let told = stale(provider.secrets().tag(TagSubject::User(user_id)), reason, now);
    Revocation { occurrence: of_user(provider, EventKind::TokenClaimsChange, user_id), ..told }
}

/// One access token, which would have expired then, or has: what it let in may still be open somewhere, so that it is told of in any case.
pub(crate) fn access_token(
    provider: &Provider,
    jti: &str,
    expires_at: Timestamp,
    reason: &'static str,
) -> Revocation {
    let tags = vec![provider.secrets().tag(TagSubject::Token(jti))];
    let occurrence = provider.occurrence(EventKind::SessionRevoked, |what| what.jti = Some(jti.to_owned()));
    Revocation {
        tags,
        reason,
        reach: RevocationReach::Whole,
        until: expires_at.max(provider.now()),
        occurrence,
    }
}

/// One access token of which nobody says when it would have expired.
pub(crate) fn named_token(
    provider: &Provider,
    jti: &str,
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    access_token(provider, jti, now.plus(MAX_ACCESS_TOKEN), reason)
}

/// A family with all its tokens.
pub(crate) fn family(provider: &Provider, id: &str, reason: &'static str) -> Revocation {
    let told = whole(provider.secrets().tag(TagSubject::Family(id)), reason, provider.now());
    let occurrence =
        provider.occurrence(EventKind::SessionRevoked, |what| what.granted_by = Some(id.to_owned()));
    Revocation { occurrence, ..told }
}

/// A session with all that was granted in it.
pub(crate) fn session(
    provider: &Provider,
    (user_id, sid): (&str, &str),
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let told = whole(provider.secrets().tag(TagSubject::Session(sid)), reason, now);
    let occurrence = provider.occurrence(EventKind::SessionRevoked, |what| {
        what.user_id = Some(user_id.to_owned());
        what.sid = Some(sid.to_owned());
    });
    Revocation { occurrence, ..told }
}

/// All that a client was granted by a user so far.
pub(crate) fn consent(
    provider: &Provider,
    (user_id, client_id): (&str, &str),
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let told = so_far(vec![provider.secrets().tag(TagSubject::Consent(user_id, client_id))], reason, now);
    let occurrence = provider.occurrence(EventKind::SessionRevoked, |what| {
        what.user_id = Some(user_id.to_owned());
        what.client_id = Some(client_id.to_owned());
    });
    Revocation { occurrence, ..told }
}

/// Everything of a user so far, because of that.
pub(crate) fn user(
    provider: &Provider,
    (user_id, kind): (&str, EventKind),
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let told = so_far(vec![provider.secrets().tag(TagSubject::User(user_id))], reason, now);
    Revocation { occurrence: of_user(provider, kind, user_id), ..told }
}

fn of_user(provider: &Provider, kind: EventKind, user_id: &str) -> Option<OccurrenceKey> {
    provider.occurrence(kind, |what| what.user_id = Some(user_id.to_owned()))
}

/// Ends all of a user's sessions and tokens.
pub(crate) fn end_user(
    provider: &Provider,
    user_id: &str,
    ending: UserRevocation,
    reason: &'static str,
    now: Timestamp,
) -> EndUser {
    let kind = match ending {
        UserRevocation::Password(_) => EventKind::CredentialChange,
        UserRevocation::Disabled => EventKind::AccountDisabled,
        UserRevocation::Everything => EventKind::SessionRevoked,
    };
    EndUser {
        user_id: user_id.to_owned(),
        ending,
        revocation: user(provider, (user_id, kind), reason, now),
        deliver_until: Some(now.plus(DELIVERED_WITHIN)),
        now,
    }
}

/// Gives a user another password: everything that was begun with the old one ends.
pub(crate) fn change_password(provider: &Provider, user_id: &str, password: StoredPassword) -> EndUser {
    end_user(provider, user_id, UserRevocation::Password(password), "password changed", provider.now())
}
