//! Groups and their members.

use axum::{http::Method, response::Response};

use super::{ErrorBody, Route, Takes, access::Right, call::Call, done, found, made};
use crate::admin::{
    AdminFault, Page,
    groups::{AddGroup, GroupView, ListNames},
    users::UserView,
};

pub(super) fn routes() -> Vec<Route> {
    use Right::{Read, Write};
    use Takes::{Body, Nothing, Query};
    vec![
        Route::new(Method::GET, "/groups", Read, Query, list_groups),
        Route::new(Method::POST, "/groups", Write, Body, add_group),
        Route::new(Method::DELETE, "/groups/{name}", Write, Nothing, delete_group),
        Route::new(Method::GET, "/groups/{name}/members", Read, Query, list_members),
        Route::new(Method::PUT, "/groups/{name}/members/{user}", Write, Nothing, add_member),
        Route::new(Method::DELETE, "/groups/{name}/members/{user}", Write, Nothing, remove_member),
    ]
}

/// Groups in the order of their names.
#[utoipa::path(get, path = "/groups", tag = "groups", params(ListNames),
    responses((status = 200, description = "a page of groups", body = Page<GroupView>)))]
async fn list_groups(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().groups(&call.query::<ListNames>()?).await?))
}

/// Makes a group.
#[utoipa::path(post, path = "/groups", tag = "groups", request_body = AddGroup,
    responses((status = 201, description = "made", body = GroupView),
        (status = 409, description = "there is one of this name", body = ErrorBody)))]
async fn add_group(call: Call) -> Result<Response, AdminFault> {
    Ok(made(&call.admin().add_group(call.body::<AddGroup>()?).await?))
}

/// Deletes a group. Its members' tokens are void.
#[utoipa::path(delete, path = "/groups/{name}", tag = "groups",
    params(("name" = String, Path, description = "of the group")),
    responses((status = 204, description = "deleted"), (status = 404, description = "there is none", body = ErrorBody)))]
async fn delete_group(call: Call) -> Result<Response, AdminFault> {
    call.admin().delete_group(call.part("name")).await?;
    Ok(done())
}

/// Who is in a group, in the order of their names.
#[utoipa::path(get, path = "/groups/{name}/members", tag = "groups",
    params(("name" = String, Path, description = "of the group"), ListNames),
    responses((status = 200, description = "a page of accounts", body = Page<UserView>),
        (status = 404, description = "there is no such group", body = ErrorBody)))]
async fn list_members(call: Call) -> Result<Response, AdminFault> {
    Ok(found(&call.admin().members(call.part("name"), &call.query::<ListNames>()?).await?))
}

/// Puts a user into a group. Who is in it already stays.
#[utoipa::path(put, path = "/groups/{name}/members/{user}", tag = "groups",
    params(("name" = String, Path, description = "of the group"), ("user" = String, Path, description = "id of the user")),
    responses((status = 204, description = "in it"),
        (status = 404, description = "there is no such group or user", body = ErrorBody),
        (status = 409, description = "one of them was deleted meanwhile", body = ErrorBody)))]
async fn add_member(call: Call) -> Result<Response, AdminFault> {
    call.admin().add_member(call.part("name"), call.part("user")).await?;
    Ok(done())
}

/// Takes a user out of a group. Their tokens are void.
#[utoipa::path(delete, path = "/groups/{name}/members/{user}", tag = "groups",
    params(("name" = String, Path, description = "of the group"), ("user" = String, Path, description = "id of the user")),
    responses((status = 204, description = "not in it any more"),
        (status = 404, description = "there is no such group, user or member", body = ErrorBody)))]
async fn remove_member(call: Call) -> Result<Response, AdminFault> {
    call.admin().remove_member(call.part("name"), call.part("user")).await?;
    Ok(done())
}
