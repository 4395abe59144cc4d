//! Who is reviewed: how a caller is named in the cluster.
//!
//! Owns: user name, groups and further attributes of a review. Does not own: what the review is
//! about (the parent).

use std::borrow::Cow;

use super::ReviewImpossible;
use crate::identity::Identity;

/// Prefix of the names that Kubernetes reserves.
const RESERVED: &str = "system:";
/// Group in which Kubernetes puts every authenticated user.
const AUTHENTICATED: &str = "system:authenticated";

/// How callers are named in the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReviewSubject {
    /// Which of the caller's names is used.
    pub name: NameSource,
    /// Prefix for the name of a caller that the cluster itself does not know.
    pub user_prefix: Box<str>,
    /// Prefix for the groups of a caller that the cluster itself does not know.
    pub group_prefix: Box<str>,
    /// Names of the token authorities that belong to this cluster: names from them are used
    /// unchanged.
    pub own_authorities: Vec<Box<str>>,
}

/// Which name of a caller is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NameSource {
    /// The user name, or the subject if there is none.
    #[default]
    User,
    /// The subject of the credential.
    Subject,
    /// The e-mail address; a caller without one is denied.
    Email,
}

/// A user name, and groups.
pub(super) type UserAndGroups<'q> = (Cow<'q, str>, Cow<'q, [Box<str>]>);

/// The `extra` attributes that a token authority of the cluster returned besides name and groups.
pub(super) fn extra_attributes(identity: &Identity) -> Vec<(&str, &[Box<str>])> {
    let claims = identity.claims.iter();
    claims.filter_map(|(path, values)| Some((path.strip_prefix("extra.")?, &**values))).collect()
}

impl ReviewSubject {
    /// Whether the caller was named by the cluster itself.
    pub(super) fn is_own(&self, identity: &Identity) -> bool {
        self.own_authorities.iter().any(|own| **own == *identity.issuer)
    }

    pub(super) fn user_and_groups<'q>(
        &self,
        identity: &'q Identity,
    ) -> Result<UserAndGroups<'q>, ReviewImpossible> {
        let name = match self.name {
            NameSource::User => Some(identity.display_name()),
            NameSource::Subject => Some(&*identity.subject),
            NameSource::Email => identity.email.as_deref(),
        };
        let name = name.filter(|name| !name.is_empty()).ok_or(ReviewImpossible::Caller)?;
        if self.is_own(identity) {
            return Ok((Cow::Borrowed(name), Cow::Borrowed(&identity.groups)));
        }
        let prefixed = |prefix: &str, name: &'q str| match prefix {
            "" => Cow::Borrowed(name),
            prefix => Cow::Owned(format!("{prefix}{name}")),
        };
        let user = prefixed(&self.user_prefix, name);
        if user.starts_with(RESERVED) {
            return Err(ReviewImpossible::Caller);
        }
        // Permissions are only additive in Kubernetes: leaving out a group grants nothing.
        let groups = identity.groups.iter().map(|group| prefixed(&self.group_prefix, group));
        let groups = groups.filter(|group| !group.starts_with(RESERVED)).map(|group| Box::from(&*group));
        Ok((user, Cow::Owned(groups.chain([AUTHENTICATED.into()]).collect())))
    }
}
