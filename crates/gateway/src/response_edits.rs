//! Response edits: which fields of a response change, by the configuration of its route.
//!
//! Owns: the edits that a request gets. Does not own: their effect ([`http_engine::field_edits`]),
//! CORS ([`crate::cors`]).

use std::sync::Arc;

use auth::headers::TemplateValues;
use auth::request::{Field, Scheme};
use http_engine::field_edits::FieldEdits;

use crate::config::{Config, FieldOperation, ResponseHeaders, Route};
use crate::cors;

/// The edits for a response without a route.
pub(crate) fn without_route(config: &Config, scheme: Scheme) -> Option<Arc<FieldEdits>> {
    config.response_headers.as_ref().map(|headers| headers.for_scheme(scheme).clone())
}

/// The edits for the response of a route. `values`: what is known about the caller; a field that
/// needs more is not set.
pub(crate) fn of_route(
    route: &Route,
    scheme: Scheme,
    fields: &[Field<'_>],
    values: &TemplateValues<'_>,
) -> Option<Arc<FieldEdits>> {
    with_changes((route, route.response_headers.as_ref()), scheme, fields, values)
}

/// The edits for the response of a route with these changes: its own, or those of the one of its
/// upstreams that received the request.
pub(crate) fn with_changes(
    (route, changes): (&Route, Option<&ResponseHeaders>),
    scheme: Scheme,
    fields: &[Field<'_>],
    values: &TemplateValues<'_>,
) -> Option<Arc<FieldEdits>> {
    let constant = changes.map(|headers| headers.for_scheme(scheme));
    let from_caller = changes.map_or(&[][..], |headers| &headers.from_caller);
    if route.cors.is_none() && from_caller.is_empty() {
        return constant.cloned();
    }
    let mut edits = constant.map_or_else(FieldEdits::default, |edits| FieldEdits::clone(edits));
    for (operation, name, template) in from_caller {
        match (template.render(values), operation) {
            (Some(value), FieldOperation::Set) => edits.set.push((name.clone(), value.into())),
            (Some(value), FieldOperation::Add) => edits.added.push((name.clone(), value.into())),
            // Nobody else may state what the configuration says about the caller.
            (None, FieldOperation::Set) => edits.removed.push(name.clone()),
            (None, FieldOperation::Add) => {}
        }
    }
    if let Some(policy) = &route.cors {
        cors::edit_response(policy, fields, &mut edits);
    }
    Some(Arc::new(edits))
}

impl ResponseHeaders {
    fn for_scheme(&self, scheme: Scheme) -> &Arc<FieldEdits> {
        match scheme {
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        }
    }
}
