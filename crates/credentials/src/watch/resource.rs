//! Watched resources, and the subjects of their events.

use super::Mark;
use super::event::{Change, Object};
use crate::cache::{NameCell, NameKind, WatchVersions};

/// Prefix of the user names of service accounts.
const ACCOUNT: &str = "system:serviceaccount:";
/// Prefix of `OpenShift`'s tokens, and of the names of their objects.
const SHA256: &str = "sha256~";

/// A watched resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Rights within a namespace.
    Roles,
    /// Rights in the whole cluster.
    ClusterRoles,
    /// Assignments of rights within a namespace.
    RoleBindings,
    /// Assignments of rights in the whole cluster.
    ClusterRoleBindings,
    /// Accounts of programs.
    ServiceAccounts,
    /// Access tokens of users, on `OpenShift`.
    OAuthAccessTokens,
}

impl Resource {
    /// The resources that affect answers to access reviews.
    pub const REVIEWS: [Self; 4] =
        [Self::Roles, Self::RoleBindings, Self::ClusterRoles, Self::ClusterRoleBindings];

    /// Its name in the API, in the plural.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Roles => "roles",
            Self::ClusterRoles => "clusterroles",
            Self::RoleBindings => "rolebindings",
            Self::ClusterRoleBindings => "clusterrolebindings",
            Self::ServiceAccounts => "serviceaccounts",
            Self::OAuthAccessTokens => "oauthaccesstokens",
        }
    }

    /// API path of its group and version.
    pub(super) const fn group(self) -> &'static str {
        match self {
            Self::Roles | Self::ClusterRoles | Self::RoleBindings | Self::ClusterRoleBindings => {
                "/apis/rbac.authorization.k8s.io/v1"
            }
            Self::ServiceAccounts => "/api/v1",
            Self::OAuthAccessTokens => "/apis/oauth.openshift.io/v1",
        }
    }

    /// The permission that a role must grant for the watch.
    pub(super) fn required_permission(self) -> String {
        let group = self.group().trim_start_matches("/apis/").trim_end_matches("/v1");
        let group = if self == Self::ServiceAccounts { "" } else { group };
        format!("`list` and `watch` on `{}` of the API group {group:?}", self.as_str())
    }

    /// Whether some servers lack the resource.
    pub(super) fn is_optional(self) -> bool {
        self == Self::OAuthAccessTokens
    }

    /// The name that an event invalidates permanently: the `uid` of a token's account, or the
    /// token's own name.
    pub(super) fn deleted_name(self, change: Change, object: &Object) -> Option<&str> {
        match self {
            _ if change != Change::Deleted => None,
            Self::ServiceAccounts => object.uid(),
            Self::OAuthAccessTokens => object.name(),
            _ => None,
        }
    }

    /// The names that an event is about; `None`: it affects no cached answer.
    pub(super) fn mark_for(self, change: Change, object: &Object, board: &WatchVersions) -> Option<Mark> {
        let deleted = change == Change::Deleted;
        let (name, namespace) = (object.name(), object.namespace());
        match self {
            Self::ClusterRoles | Self::ClusterRoleBindings => Some(Mark::All),
            // Without a namespace the subject is unknown.
            Self::Roles | Self::RoleBindings => Some(match namespace {
                Some(namespace) => Mark::One(board.cell(NameKind::Namespace, namespace)),
                None => Mark::All,
            }),
            Self::ServiceAccounts => deleted.then(|| match (namespace, name) {
                (Some(namespace), Some(name)) => {
                    Mark::One(board.cell(NameKind::User, &format!("{ACCOUNT}{namespace}:{name}")))
                }
                _ => Mark::All,
            }),
            Self::OAuthAccessTokens => deleted.then(|| match name {
                Some(name) => Mark::One(board.cell(NameKind::Token, name)),
                None => Mark::All,
            }),
        }
    }
}

/// The cells for events about a token's user and about the token.
pub(super) fn cells_of_token(board: &WatchVersions, user: &str, token: &[u8]) -> [NameCell; 2] {
    let user = board.cell(NameKind::User, user);
    let token = object_of(token).map_or(user, |name| board.cell(NameKind::Token, &name));
    [user, token]
}

/// The cells for events about a user's rights in a namespace.
pub(super) fn cells_of_review<'b>(
    board: &'b WatchVersions,
    user: &str,
    namespace: Option<&str>,
) -> impl Iterator<Item = NameCell> + use<'b> {
    let account = user.starts_with(ACCOUNT).then(|| board.cell(NameKind::User, user));
    let namespace = namespace.map(|namespace| board.cell(NameKind::Namespace, namespace));
    account.into_iter().chain(namespace)
}

/// The name of the object that represents a token on `OpenShift`: the digest of the part after the
/// prefix.
pub(super) fn object_of(token: &[u8]) -> Option<String> {
    use aws_lc_rs::digest::{SHA256 as ALGORITHM, digest};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let secret = token.strip_prefix(SHA256.as_bytes())?;
    Some(format!("{SHA256}{}", URL_SAFE_NO_PAD.encode(digest(&ALGORITHM, secret))))
}

#[cfg(test)]
mod tests {
    use super::super::event::{WatchEvent, read};
    use super::*;
    use crate::cache::CacheSecret;

    fn mark(resource: Resource, board: &WatchVersions, line: &str) -> Option<Mark> {
        match read(line.as_bytes()).unwrap() {
            WatchEvent::Changed(change, object) => resource.mark_for(change, &object, board),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_event_concerns_its_namespace_its_holder_or_everybody() {
        let board = WatchVersions::new(&CacheSecret::new([1; 16]));
        let line = |kind: &str| {
            format!(
                r#"{{"type":"{kind}","object":{{"metadata":{{"name":"x","namespace":"team","resourceVersion":"7"}}}}}}"#
            )
        };
        let team = Mark::One(board.cell(NameKind::Namespace, "team"));
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            for resource in [Resource::Roles, Resource::RoleBindings] {
                assert_eq!(mark(resource, &board, &line(kind)), Some(team));
            }
            for resource in [Resource::ClusterRoles, Resource::ClusterRoleBindings] {
                assert_eq!(mark(resource, &board, &line(kind)), Some(Mark::All));
            }
        }
        let account = Mark::One(board.cell(NameKind::User, "system:serviceaccount:team:x"));
        assert_eq!(mark(Resource::ServiceAccounts, &board, &line("DELETED")), Some(account));
        assert_eq!(mark(Resource::ServiceAccounts, &board, &line("MODIFIED")), None);
        assert_eq!(mark(Resource::OAuthAccessTokens, &board, &line("ADDED")), None);
        let bare = r#"{"type":"DELETED","object":{"metadata":{"resourceVersion":"7"}}}"#;
        for resource in [Resource::Roles, Resource::ServiceAccounts, Resource::OAuthAccessTokens] {
            assert_eq!(mark(resource, &board, bare), Some(Mark::All), "whose is not said: everybody's");
        }
    }

    #[test]
    fn a_tokens_object_is_named_by_its_digest() {
        // printf %s secret | openssl dgst -sha256 -binary | basenc --base64url
        let name = "sha256~K7gNU3sdo-OL0wNhqoVWhr3g6s1xYv72ol_pe_Unols";
        assert_eq!(object_of(b"sha256~secret").as_deref(), Some(name));
        assert_eq!(object_of(b"secret"), None);
        let board = WatchVersions::new(&CacheSecret::new([1; 16]));
        let line = format!(
            r#"{{"type":"DELETED","object":{{"metadata":{{"name":"{name}","resourceVersion":"7"}}}}}}"#
        );
        let [user, token] = cells_of_token(&board, "ada", b"sha256~secret");
        assert_eq!(mark(Resource::OAuthAccessTokens, &board, &line), Some(Mark::One(token)));
        assert_ne!(user, token);
    }
}
