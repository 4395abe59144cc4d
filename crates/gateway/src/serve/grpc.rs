//! gRPC calls on a stream of an authorization listener.
//!
//! Owns: reading the call's message within its deadline, running the pipeline, sending the reply.
//! Does not own: the content of the messages ([`crate::ext_authz`]).

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_engine::head::HeadFault;
use http_engine::http_stream::{Fill, HttpStream as _, HttpStreamError};
use http_engine::http2::stream::Http2Body as Bodies;
use telemetry::phases::Phase;
use tokio::time::Instant;

use crate::envoy_authz::grpc;
use crate::error_page::WantsPage;
use crate::ext_authz::{self, CheckCall, CheckError};
use crate::forward_auth::OriginalRequestError;
use crate::pipeline::lookups::{LookupNeeded, Lookups};
use crate::pipeline::{Admission, admit, authorization};
use crate::record::RequestRecord;
use crate::refusal::Refusal;
use crate::refusal_reply::refusal_reply;
use crate::serve::http2::{Client, StreamTask};
use crate::worker::ActiveConfig;

/// A gRPC call that ends without a message: its status and text.
#[derive(Debug, Clone, Copy)]
struct Failed(i32, &'static str);

/// Why a call has no usable check.
enum NoCheck {
    /// The call did not complete: no reply can be sent as a message.
    Failed(Failed),
    /// The call gets a refusal as its reply.
    Refused(Refusal),
}

impl StreamTask {
    /// The gRPC method that a request calls, if this listener serves checks over gRPC. A listener
    /// for checks over HTTP has no calls: there the client controls the content type, and the proxy
    /// would read the 200 of a call as a permission.
    pub(super) fn grpc_method(&self, request: &Request<RecvStream>) -> Option<CheckCall> {
        let content_type = request.headers().get(http::header::CONTENT_TYPE);
        let is_call =
            self.peer.listener().service.authorization().is_some_and(|service| service.http.is_none())
                && request.method() == http::Method::POST
                && content_type.is_some_and(|content_type| grpc::is_grpc(content_type.as_bytes()));
        if is_call { ext_authz::call(request.uri().path()) } else { None }
    }

    /// Answers a gRPC call.
    pub(super) async fn call(
        &self,
        call: CheckCall,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        running: &Rc<ActiveConfig>,
        record: &mut RequestRecord,
    ) -> Client {
        let (head, body) = request.into_parts();
        let mut client = Client {
            respond,
            bodies: Bodies::new(None, Some(body)),
            responded: false,
            head_request: false,
            is_grpc: false,
        };
        let answer = match call {
            CheckCall::Check => self.check(&head, &mut client, running, record).await,
            CheckCall::Health => {
                record.own_content();
                Ok(ext_authz::serving())
            }
        };
        if answer.is_err() {
            record.call_failed();
        }
        // Fails when the caller is gone; the log records the intended reply.
        let _ = client.reply(answer);
        client
    }

    /// Decides about the original request of the call.
    async fn check(
        &self,
        head: &Parts,
        client: &mut Client,
        running: &Rc<ActiveConfig>,
        record: &mut RequestRecord,
    ) -> Result<Bytes, Failed> {
        let timeout = head.headers.get("grpc-timeout").and_then(|text| grpc::timeout(text.as_bytes()));
        // One limit for all waiting in this call. A time too far ahead to represent means no limit.
        let until = ext_authz::wait_limit(timeout).and_then(|patience| Instant::now().checked_add(patience));
        let refuse = |refusal: &Refusal, record: &mut RequestRecord| {
            let answer = refusal_reply(refusal, &self.worker, running, record);
            record.local_reply(&answer, false);
            Ok(ext_authz::denied(&answer, record.renewed_cookie()))
        };
        // Nothing is read from an untrusted peer.
        if authorization(running, &self.peer).is_none() {
            return refuse(&Refusal::UntrustedPeer, record);
        }
        let unreadable = |fault: CheckError| {
            tracing::debug!(%fault, peer = %self.peer.address, "authorization check refused");
            match fault {
                CheckError::Message | CheckError::NoHttp => {
                    Refusal::UnclearCheck(OriginalRequestError::Message)
                }
                CheckError::NotText => Refusal::Head(HeadFault::FieldLine),
                CheckError::TooManyFields => Refusal::Head(HeadFault::TooManyFields),
            }
        };
        let question = match self.question(&mut client.bodies).await {
            Err(NoCheck::Failed(failed)) => return Err(failed),
            Err(NoCheck::Refused(refusal)) => return refuse(&refusal, record),
            Ok(message) => ext_authz::CheckQuestion::decode(message),
        };
        let question = match question {
            Ok(question) => question,
            Err(fault) => return refuse(&unreadable(fault), record),
        };
        let most = self.peer.listener().limits.header_fields;
        let fields = match question.fields(most) {
            Ok(fields) => fields,
            Err(fault) => return refuse(&unreadable(fault), record),
        };
        let inbound = match question.original_request(&fields) {
            Ok(inbound) => inbound,
            Err(fault) => return refuse(&unreadable(fault), record),
        };
        record.wants_page = WantsPage::read(&fields);
        let mut lookups = Lookups::default();
        loop {
            match admit(&self.worker, running, &self.peer, &inbound, &lookups, record) {
                Admission::PermitCheck(voucher) => {
                    record.check_permitted();
                    return Ok(ext_authz::allowed(*voucher, running, &fields, record));
                }
                Admission::Answer(answer) => {
                    record.local_reply(&answer, false);
                    return Ok(ext_authz::denied(&answer, record.renewed_cookie()));
                }
                // No body is passed: a check contains no client body that is read here.
                Admission::Serve(served) => {
                    let serving = served.answer(Vec::new());
                    let answer = match until {
                        Some(until) => tokio::time::timeout_at(until, serving).await.ok(),
                        None => Some(serving.await),
                    };
                    let late = Refusal::AuthUnavailable { retry_after: 1 };
                    let answer =
                        answer.unwrap_or_else(|| refusal_reply(&late, &self.worker, running, record));
                    record.end(Phase::Authenticate);
                    record.local_reply(&answer, false);
                    return Ok(ext_authz::denied(&answer, record.renewed_cookie()));
                }
                Admission::Wait(needed) => {
                    let phase = needed.phase();
                    lookups = self.run_lookup(needed, lookups, running, until).await;
                    record.end(phase);
                }
                // A listener of this kind never forwards.
                Admission::Forward(_) => {
                    return Err(Failed(grpc::UNIMPLEMENTED, "this listener does not forward"));
                }
            }
        }
    }

    /// Runs a lookup until the deadline. A lookup that takes longer continues without this call:
    /// later calls need its result, and would have to start again.
    async fn run_lookup(
        &self,
        needed: LookupNeeded,
        lookups: Lookups,
        running: &Rc<ActiveConfig>,
        until: Option<Instant>,
    ) -> Lookups {
        let late = lookups.timed_out(&needed, running);
        let (worker, running) = (self.worker.clone(), running.clone());
        let finding = tokio::task::spawn_local(async move {
            let mut lookups = lookups;
            lookups.run(needed, &worker, &running).await;
            lookups
        });
        let lookups = match until {
            Some(until) => tokio::time::timeout_at(until, finding).await.ok(),
            None => Some(finding.await),
        };
        // A task that panicked has no result.
        lookups.and_then(Result::ok).unwrap_or(late)
    }

    /// Reads the message of a call. An unreadable message is refused like any other check. A gRPC
    /// status other than OK would be a failure to the proxy, and some proxies are configured to let
    /// requests pass on failure.
    async fn question(&self, bodies: &mut Bodies) -> Result<Bytes, NoCheck> {
        let deadline = self.worker.deadlines.register();
        deadline.set(self.peer.listener().timeouts.header);
        let mut whole = BytesMut::new();
        loop {
            let more = poll_fn(|cx| match bodies.poll_fill(cx) {
                Poll::Ready(Ok(Fill::Data(data))) => {
                    whole.extend_from_slice(data);
                    Poll::Ready(Ok(Some(data.len())))
                }
                Poll::Ready(Ok(Fill::End(_))) => Poll::Ready(Ok(None)),
                Poll::Ready(Err(_)) => {
                    Poll::Ready(Err(Failed(grpc::INVALID_ARGUMENT, "the call was aborted")))
                }
                Poll::Pending => deadline
                    .poll_due(cx)
                    .map(|()| Err(Failed(grpc::DEADLINE_EXCEEDED, "the call did not arrive in time"))),
            });
            let Some(n) = more.await.map_err(NoCheck::Failed)? else { break };
            bodies.consume(n);
            if whole.len() > ext_authz::MAX_QUESTION {
                return Err(NoCheck::Refused(Refusal::Head(HeadFault::TooLarge)));
            }
        }
        grpc::message(&whole.freeze()).map_err(|framed| {
            tracing::debug!(?framed, peer = %self.peer.address, "authorization check refused");
            NoCheck::Refused(Refusal::UnclearCheck(OriginalRequestError::Message))
        })
    }
}

impl Client {
    /// Sends the reply to a gRPC call.
    fn reply(&mut self, answer: Result<Bytes, Failed>) -> Result<(), HttpStreamError> {
        let mut response = Response::new(());
        response
            .headers_mut()
            .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let message = match answer {
            Ok(message) => message,
            Err(Failed(status, text)) => {
                response.headers_mut().extend(grpc::trailers(status, text));
                self.respond.send_response(response, true)?;
                return Ok(());
            }
        };
        let mut send = self.respond.send_response(response, false)?;
        send.send_data(grpc::framed(&message), false)?;
        send.send_trailers(grpc::trailers(grpc::OK, ""))?;
        Ok(())
    }
}
