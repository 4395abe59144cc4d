//! `OpenAPI` document (version 3.1) of the administration API, generated from the operations and
//! their types.
//!
//! Attributes beside each operation describe it. What all operations have in common is added here
//! from [`super::table`]: the required scope and the possible errors.

use utoipa::{
    OpenApi,
    openapi::{
        self, ContentBuilder, Ref, RefOr, ResponseBuilder,
        security::{ClientCredentials, Flow, OAuth2, Scopes, SecurityRequirement, SecurityScheme},
        server::Server,
    },
};

use super::{
    ADMIN_READ_SCOPE, ADMIN_SCOPE, ErrorBody, OperationInput, PATH, Route, clients, groups, security, users,
};
use crate::issuer::Issuer;
use crate::paths;

/// Name of the security scheme in the document.
const SCHEME: &str = "token";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postern administration",
        version = "1",
        description = "Users, groups, clients, sessions, keys and tokens of the provider. Send an access token of the client \
                       itself (client credentials grant) whose audiences contain the issuer. Lists are paged: send `next` of one \
                       page as `after` of the next request. Times are in UTC, as in RFC 3339.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(ErrorBody)),
    paths(
        users::list_users,
        users::add_user,
        users::show_user,
        users::change_user,
        users::delete_user,
        users::set_password,
        users::invite_user,
        users::create_reset_link,
        users::disable_user,
        users::enable_user,
        users::unlock_user,
        users::end_user,
        users::list_sessions,
        users::show_session,
        users::end_session,
        groups::list_groups,
        groups::add_group,
        groups::delete_group,
        groups::list_members,
        groups::add_member,
        groups::remove_member,
        clients::list_clients,
        clients::add_client,
        clients::show_client,
        clients::replace_client,
        clients::delete_client,
        clients::rotate_secret,
        clients::disable_client,
        clients::enable_client,
        security::list_keys,
        security::rotate_key,
        security::revoke_key,
        security::inspect_token,
        security::revoke_token,
        security::revoke_tokens,
        security::revoke_all,
        security::list_families,
        security::revoke_family,
        security::list_followers,
        security::wait_for_followers,
        security::list_entries,
        security::verify_entries,
    )
)]
struct ApiDocument;

/// Builds the document for one issuer.
pub fn document(issuer: &Issuer) -> openapi::OpenApi {
    let mut document = ApiDocument::openapi();
    document.servers = Some(vec![Server::new(issuer.endpoint(PATH))]);
    let scopes = Scopes::from_iter([
        (ADMIN_SCOPE, "read and change everything"),
        (ADMIN_READ_SCOPE, "read everything"),
    ]);
    let flow = ClientCredentials::new(issuer.endpoint(paths::TOKEN), scopes);
    let scheme = SecurityScheme::OAuth2(OAuth2::new([Flow::ClientCredentials(flow)]));
    document.components.get_or_insert_default().add_security_scheme(SCHEME, scheme);
    for route in super::table() {
        let item = document.paths.paths.get_mut(route.path);
        if let Some(operation) = item.and_then(|item| operation(item, &route)) {
            operation.security = Some(vec![SecurityRequirement::new(SCHEME, [route.right.scope()])]);
            for (status, description) in common_errors(&route) {
                let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
                let refusal = ResponseBuilder::new()
                    .description(description)
                    .content("application/json", content)
                    .build();
                operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(refusal));
            }
        }
    }
    document
}

/// Errors that every operation may return.
fn common_errors(route: &Route) -> Vec<(&'static str, &'static str)> {
    let mut all = vec![
        ("400", "the request cannot be read"),
        ("401", "the token is missing or not valid here"),
        ("403", "the token lacks the scope"),
        ("408", "the body did not arrive in time"),
        ("413", "the body is larger than 64 KiB"),
        ("422", "values are refused: see `faults`"),
        ("500", "internal error: see the provider's log"),
        ("503", "the database is unavailable or the provider is overloaded: try again after `Retry-After`"),
    ];
    if takes_names(route.path) {
        all.push(("404", "there is no such user, client or group"));
        all.push(("409", "a name is ambiguous: the description lists the ids"));
    }
    if route.input == OperationInput::Body {
        all.push(("415", "the body is not declared as application/json"));
    }
    all
}

/// Whether an operation takes a user or a client, by id or name.
fn takes_names(path: &str) -> bool {
    let lists = ["/sessions", "/families", "/audit", "/tokens/revoke-all"];
    lists.contains(&path) || ["/users/{", "/clients/{", "{user}"].iter().any(|part| path.contains(part))
}

/// The operation of a route in the document.
fn operation<'d>(item: &'d mut openapi::PathItem, route: &Route) -> Option<&'d mut openapi::path::Operation> {
    match route.method.as_str() {
        "GET" => item.get.as_mut(),
        "POST" => item.post.as_mut(),
        "PUT" => item.put.as_mut(),
        "PATCH" => item.patch.as_mut(),
        "DELETE" => item.delete.as_mut(),
        _ => None,
    }
}
