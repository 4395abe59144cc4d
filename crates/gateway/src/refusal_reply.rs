//! Refusal reply: the response to a refused request.
//!
//! Owns: which form a refusal gets (a page for a browser, otherwise a problem document), and the id
//! by which the log names the request. Does not own: the table of refusals ([`crate::refusal`]), the
//! content of a page ([`crate::error_page`]).

use std::borrow::Cow;

use http_engine::local_reply::LocalReply;

use crate::error_page::ErrorView;
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::worker::{ActiveConfig, Worker};

/// Added to the detail of a forbidden request whose caller has more groups than its token contains.
const GROUPS_ELSEWHERE: &str =
    "the token has too many groups to list them, so rules about groups do not match";

/// The response to a request that is refused.
pub(crate) fn refusal_reply(
    refusal: &Refusal,
    worker: &Worker,
    running: &ActiveConfig,
    record: &mut RequestRecord,
) -> LocalReply {
    let config = &*running.config;
    let id = worker.request_id(record).hex();
    let route = record.route.map(|at| config.route(at));
    let detail = route.and_then(|route| route.denied_detail.as_deref()).filter(|_| refusal.is_forbidden());
    let groups_elsewhere =
        record.caller.as_ref().is_some_and(|caller| caller.facts.identity.groups_elsewhere)
            && refusal.is_forbidden();
    let noted = groups_elsewhere
        .then(|| format!("{}; {GROUPS_ELSEWHERE}", detail.map_or_else(|| refusal.text(), Cow::Borrowed)));
    let mut reply = refusal.answer(&config.authentication.realm, noted.as_deref().or(detail), id.as_str());
    if let Some(wants) = &record.wants_page {
        let account = record.rare().and_then(|rare| rare.signed_in.as_ref()).filter(|_| reply.status == 403);
        let edits = record.response_edits.as_deref();
        let view = ErrorView { detail, groups_elsewhere, request_id: id.as_str(), account, edits };
        config.pages.render(wants, &mut reply, &view);
    }
    reply
}
