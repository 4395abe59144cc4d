//! Attributes of users, and claims from them, in the form that `idp` takes.

use idp::attributes as attribute;
use idp::claim_mapping as mapping;

use super::super::super::raw;

pub(super) fn attributes(raw: &[raw::Attribute]) -> Vec<attribute::Attribute> {
    let read = |raw: &raw::Attribute| attribute::Attribute {
        name: raw.name.clone(),
        kind: match raw.kind {
            raw::AttributeType::String => attribute::AttributeType::String,
            raw::AttributeType::Integer => attribute::AttributeType::Integer,
            raw::AttributeType::Boolean => attribute::AttributeType::Boolean,
            raw::AttributeType::StringList => attribute::AttributeType::StringList,
        },
        values: raw.values.clone(),
        labels: raw.labels.clone(),
        user: match raw.user {
            raw::UserAccess::None => attribute::UserAccess::None,
            raw::UserAccess::View => attribute::UserAccess::View,
            raw::UserAccess::Edit => attribute::UserAccess::Edit,
        },
    };
    raw.iter().map(read).collect()
}

pub(super) fn claims(raw: &[raw::ProviderClaim]) -> Vec<mapping::ClaimMapping> {
    raw.iter().map(claim).collect()
}

fn claim(raw: &raw::ProviderClaim) -> mapping::ClaimMapping {
    let group = |entry: &raw::GroupValue| mapping::GroupValue {
        group: entry.group.clone(),
        value: entry.value.clone(),
    };
    let target = |target: &raw::ClaimTarget| match target {
        raw::ClaimTarget::Access => mapping::ClaimTarget::Access,
        raw::ClaimTarget::Id => mapping::ClaimTarget::Id,
        raw::ClaimTarget::Userinfo => mapping::ClaimTarget::Userinfo,
    };
    mapping::ClaimMapping {
        claim: match &raw.claim {
            raw::ClaimPath::Name(name) => mapping::ClaimPath::Name(name.clone()),
            raw::ClaimPath::Nested(names) => mapping::ClaimPath::Nested(names.clone()),
        },
        attribute: raw.attribute.clone(),
        groups: raw.groups.iter().map(group).collect(),
        group_prefix: raw.group_prefix.clone(),
        value: raw.value.as_ref().map(|value| match value {
            raw::ClaimValue::String(text) => text.as_str().into(),
            raw::ClaimValue::Integer(number) => (*number).into(),
            raw::ClaimValue::Boolean(flag) => (*flag).into(),
            raw::ClaimValue::StringList(texts) => texts.as_slice().into(),
        }),
        default: raw.default.clone(),
        multiple: raw.multiple,
        scopes: raw.scopes.clone(),
        tokens: raw.tokens.iter().map(target).collect(),
    }
}
