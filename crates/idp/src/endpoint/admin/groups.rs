//! Administration endpoints for groups and their members.

use axum::{http::Method, response::Response};

use super::{ErrorBody, OperationInput, Route, access::Right, call::Call, created, no_content, ok};
use crate::admin::{
    AdminFault, Page,
    groups::{AddGroup, GroupView, ListNames},
    users::UserView,
};

pub(super) fn routes() -> Vec<Route> {
    use OperationInput::{Body, Nothing, Query};
    use Right::{Read, Write};
    vec![
        Route::new(Method::GET, "/groups", Read, Query, list_groups),
        Route::new(Method::POST, "/groups", Write, Body, add_group),
        Route::new(Method::DELETE, "/groups/{name}", Write, Nothing, delete_group),
        Route::new(Method::GET, "/groups/{name}/members", Read, Query, list_members),
        Route::new(Method::PUT, "/groups/{name}/members/{user}", Write, Nothing, add_member),
        Route::new(Method::DELETE, "/groups/{name}/members/{user}", Write, Nothing, remove_member),
    ]
}

/// Lists groups, ordered by name.
#[utoipa::path(get, path = "/groups", tag = "groups", params(ListNames),
    responses((status = 200, description = "a page of groups", body = Page<GroupView>)))]
async fn list_groups(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().groups(&call.query::<ListNames>()?).await?))
}

/// Creates a group.
#[utoipa::path(post, path = "/groups", tag = "groups", request_body = AddGroup,
    responses((status = 201, description = "created", body = GroupView),
        (status = 409, description = "name already in use", body = ErrorBody)))]
async fn add_group(call: Call) -> Result<Response, AdminFault> {
    Ok(created(&call.admin().add_group(call.body::<AddGroup>()?).await?))
}

/// Deletes a group and revokes the tokens of its members.
#[utoipa::path(delete, path = "/groups/{name}", tag = "groups",
    params(("name" = String, Path, description = "name or id of the group")),
    responses((status = 204, description = "deleted"), (status = 404, description = "not found", body = ErrorBody)))]
async fn delete_group(call: Call) -> Result<Response, AdminFault> {
    call.admin().delete_group(call.path_parameter("name")).await?;
    Ok(no_content())
}

/// Lists the members of a group, ordered by id.
#[utoipa::path(get, path = "/groups/{name}/members", tag = "groups",
    params(("name" = String, Path, description = "name or id of the group"), ListNames),
    responses((status = 200, description = "a page of accounts", body = Page<UserView>),
        (status = 404, description = "group not found", body = ErrorBody)))]
async fn list_members(call: Call) -> Result<Response, AdminFault> {
    Ok(ok(&call.admin().members(call.path_parameter("name"), &call.query::<ListNames>()?).await?))
}

/// Adds a user to a group. An existing member stays.
#[utoipa::path(put, path = "/groups/{name}/members/{user}", tag = "groups",
    params(("name" = String, Path, description = "name or id of the group"), ("user" = String, Path, description = "id, name or email address of the user")),
    responses((status = 204, description = "the user is a member"),
        (status = 404, description = "group or user not found", body = ErrorBody),
        (status = 409, description = "group or user deleted concurrently", body = ErrorBody)))]
async fn add_member(call: Call) -> Result<Response, AdminFault> {
    call.admin().add_member(call.path_parameter("name"), &call.user("user").await?).await?;
    Ok(no_content())
}

/// Removes a user from a group and revokes the user's tokens.
#[utoipa::path(delete, path = "/groups/{name}/members/{user}", tag = "groups",
    params(("name" = String, Path, description = "name or id of the group"), ("user" = String, Path, description = "id, name or email address of the user")),
    responses((status = 204, description = "the user is not a member"),
        (status = 404, description = "group, user or membership not found", body = ErrorBody)))]
async fn remove_member(call: Call) -> Result<Response, AdminFault> {
    call.admin().remove_member(call.path_parameter("name"), &call.user("user").await?).await?;
    Ok(no_content())
}
