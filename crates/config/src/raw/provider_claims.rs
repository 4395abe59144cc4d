//! Tables of attributes of users, and of the claims that tokens of the provider contain.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Attribute of users.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// Name in the user's record: 1 to 64 letters, digits and `_ . : / -`. Not the name of a
    /// standard claim.
    pub name: String,
    /// Type of its values.
    #[serde(default, rename = "type")]
    pub kind: AttributeType,
    /// Permitted values, for `string` and `string_list`. Default: any text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
    /// Names that users see, by language: `{ en = "Department", de = "Abteilung" }`. Default: `name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the user may do with it on the account page. Operators may see and change every
    /// attribute.
    #[serde(default)]
    pub user: UserAccess,
}

/// Type of an attribute's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttributeType {
    /// A text of at most 1024 characters.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
    /// A list of at most 128 texts.
    StringList,
}

/// What a user may do with an attribute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UserAccess {
    /// The account page does not show it.
    #[default]
    None,
    /// The account page shows it.
    View,
    /// The account page shows it, and the user may change it. Do not base rules on such an
    /// attribute: its value is what the user claims.
    Edit,
}

/// Claim of tokens. One of `attribute`, `groups`, `group_prefix` and `value` says where its value
/// comes from.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderClaim {
    /// Name of the claim, or the names that lead to it through nested objects, such as
    /// `["realm_access", "roles"]`. Not a standard claim. But `groups` may be replaced by other
    /// names of the user's groups.
    pub claim: ClaimPath,
    /// The value is that of this attribute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// The value depends on the user's groups: it is that of the first entry whose group the user
    /// is in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupValue>,
    /// The values are the names of the user's groups that begin with this text, without it. Always
    /// a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_prefix: Option<String>,
    /// The value itself: a text, a whole number, true or false, or a list of texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<ClaimValue>,
    /// Value for users in none of `groups`. Default: they have no such claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether all entries of `groups` that apply give a list of values, not only the first one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub multiple: bool,
    /// The claim needs one of these scopes. Empty: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Tokens and responses that contain the claim. Introspection returns what access tokens
    /// contain.
    #[serde(default = "all_tokens")]
    pub tokens: Vec<ClaimTarget>,
}

fn all_tokens() -> Vec<ClaimTarget> {
    vec![ClaimTarget::Access, ClaimTarget::Id, ClaimTarget::Userinfo]
}

/// Name of a claim, or the names that lead to it through nested objects.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ClaimPath {
    /// A claim at the top of the token. A dot or a slash is part of the name.
    Name(String),
    /// The names of nested objects, then that of the claim.
    Nested(Vec<String>),
}

/// Fixed value of a claim.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ClaimValue {
    /// A text.
    String(String),
    /// A whole number.
    Integer(i64),
    /// True or false.
    Boolean(bool),
    /// A list of texts.
    StringList(Vec<String>),
}

/// Value of a claim for members of a group.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupValue {
    /// Name of the group.
    pub group: String,
    /// The value for its members.
    pub value: String,
}

/// Kind of token or response that contains a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClaimTarget {
    /// JWT access tokens, and the introspection of access tokens.
    Access,
    /// ID tokens.
    Id,
    /// Responses of the userinfo endpoint.
    Userinfo,
}
