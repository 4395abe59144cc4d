//! Revocations: log entries that say which credentials become invalid, and how long to keep them.
//!
//! Owns: the [`Revocation`] for each kind of event, and the changes that revoke everything of a
//! user.
//!
//! Does not own: the rows that are deleted or marked with it (each change of the store says which),
//! notification of clients ([`crate::logout`]) and receivers ([`crate::signals`]).

use std::time::Duration;

use auth::time::Timestamp;
use auth::token::security_event::EventKind;
use store::{
    Revocation, RevocationReach, Tag,
    security_events::Occurrence,
    users::{RevokeUser, StoredPassword, UserRevocation},
};

use crate::{lifetime::MAX_ACCESS_TOKEN, provider::Provider, secrets::TagSubject};

/// How long delivery of a logout to an unresponsive client is retried; after that the client's own
/// session has ended.
pub const DELIVERED_WITHIN: Duration = Duration::from_hours(12);

/// Revokes everything that carries the tag, whenever issued: the subject never becomes valid again.
fn revoke_always(tag: Tag, reason: &'static str, now: Timestamp) -> Revocation {
    let until = now.plus(MAX_ACCESS_TOKEN);
    Revocation { tags: vec![tag], reason, reach: RevocationReach::All, until, occurrence: None }
}

/// Revokes everything that carries one of the tags and is based on state read before the event is
/// durable.
pub(crate) fn revoke_issued_so_far(tags: Vec<Tag>, reason: &'static str, now: Timestamp) -> Revocation {
    let until = now.plus(MAX_ACCESS_TOKEN);
    Revocation { tags, reason, reach: RevocationReach::UntilDurable, until, occurrence: None }
}

/// Revokes nothing; caches discard what they know of the tag.
pub(crate) fn stale(tag: Tag, reason: &'static str, now: Timestamp) -> Revocation {
    Revocation { tags: vec![tag], reason, reach: RevocationReach::STALE_ONLY, until: now, occurrence: None }
}

/// As [`stale`], for a user whose claims changed.
pub(crate) fn user_changed(
    provider: &Provider,
    user_id: &str,
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let revocation = stale(provider.secrets().tag(TagSubject::User(user_id)), reason, now);
    Revocation { occurrence: user_occurrence(provider, EventKind::TokenClaimsChange, user_id), ..revocation }
}

/// Revokes one access token with this expiry. An expired token is announced too, because an
/// exchange that it authorized may still be open.
pub(crate) fn access_token(
    provider: &Provider,
    jti: &str,
    expires_at: Timestamp,
    reason: &'static str,
) -> Revocation {
    let tags = vec![provider.secrets().tag(TagSubject::Token(jti))];
    let occurrence =
        provider.occurrence(EventKind::SessionRevoked, |occurrence| occurrence.jti = Some(jti.to_owned()));
    Revocation {
        tags,
        reason,
        reach: RevocationReach::All,
        until: expires_at.max(provider.now()),
        occurrence,
    }
}

/// Revokes one access token whose expiry is unknown.
pub(crate) fn access_token_by_jti(
    provider: &Provider,
    jti: &str,
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    access_token(provider, jti, now.plus(MAX_ACCESS_TOKEN), reason)
}

/// Revokes a token family with all its tokens.
pub(crate) fn family(provider: &Provider, id: &str, reason: &'static str) -> Revocation {
    let revocation = revoke_always(provider.secrets().tag(TagSubject::Family(id)), reason, provider.now());
    let occurrence = provider
        .occurrence(EventKind::SessionRevoked, |occurrence| occurrence.granted_by = Some(id.to_owned()));
    Revocation { occurrence, ..revocation }
}

/// Revokes a session with everything granted in it.
pub(crate) fn session(
    provider: &Provider,
    (user_id, sid): (&str, &str),
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let revocation = revoke_always(provider.secrets().tag(TagSubject::Session(sid)), reason, now);
    let occurrence = provider.occurrence(EventKind::SessionRevoked, |occurrence| {
        occurrence.user_id = Some(user_id.to_owned());
        occurrence.sid = Some(sid.to_owned());
    });
    Revocation { occurrence, ..revocation }
}

/// Revokes everything that a user granted to a client so far.
pub(crate) fn consent(
    provider: &Provider,
    (user_id, client_id): (&str, &str),
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let revocation = revoke_issued_so_far(
        vec![provider.secrets().tag(TagSubject::Consent(user_id, client_id))],
        reason,
        now,
    );
    let occurrence = provider.occurrence(EventKind::SessionRevoked, |occurrence| {
        occurrence.user_id = Some(user_id.to_owned());
        occurrence.client_id = Some(client_id.to_owned());
    });
    Revocation { occurrence, ..revocation }
}

/// Revokes everything of a user so far, for this kind of event.
pub(crate) fn user(
    provider: &Provider,
    (user_id, kind): (&str, EventKind),
    reason: &'static str,
    now: Timestamp,
) -> Revocation {
    let revocation =
        revoke_issued_so_far(vec![provider.secrets().tag(TagSubject::User(user_id))], reason, now);
    Revocation { occurrence: user_occurrence(provider, kind, user_id), ..revocation }
}

fn user_occurrence(provider: &Provider, kind: EventKind, user_id: &str) -> Option<Occurrence> {
    provider.occurrence(kind, |occurrence| occurrence.user_id = Some(user_id.to_owned()))
}

/// Ends all sessions and revokes all tokens of a user.
pub(crate) fn end_user(
    provider: &Provider,
    user_id: &str,
    ending: UserRevocation,
    reason: &'static str,
    now: Timestamp,
) -> RevokeUser {
    let kind = match ending {
        UserRevocation::Password(_) | UserRevocation::TemporaryPassword(_) => EventKind::CredentialChange,
        UserRevocation::Disabled => EventKind::AccountDisabled,
        UserRevocation::Everything => EventKind::SessionRevoked,
    };
    RevokeUser {
        user_id: user_id.to_owned(),
        account_change: ending,
        revocation: user(provider, (user_id, kind), reason, now),
        deliver_until: Some(now.plus(DELIVERED_WITHIN)),
        now,
    }
}

/// Replaces a user's password and revokes everything that began with the old one.
pub(crate) fn change_password(provider: &Provider, user_id: &str, password: StoredPassword) -> RevokeUser {
    end_user(provider, user_id, UserRevocation::Password(password), "password changed", provider.now())
}
