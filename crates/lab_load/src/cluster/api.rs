//! API client: writes objects to a Kubernetes API server.
//!
//! Owns: one connection, and the error of a refused call. Does not own: the objects.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};

use super::ClusterSite;
use super::objects::Write;
use crate::fetch::{AsyncClient, Response, encode_request};
use crate::load::{RequestTemplate, Target};

/// Longest wait for a response: a full API server queues requests for up to a minute.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// Largest response in bytes.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// Client with one connection to the API server.
pub(super) struct ApiClient {
    target: Target,
    token: String,
    line: AsyncClient,
}

impl ApiClient {
    pub(super) fn new(site: &ClusterSite) -> Self {
        let line = AsyncClient::new(site.api.clone(), MAX_RESPONSE_BYTES);
        Self { target: site.api.clone(), token: site.token.clone(), line }
    }

    /// Reads a path. Any status is a response.
    pub(super) async fn get(&mut self, path: &str) -> Result<Response, String> {
        self.call(Method::GET, path, "application/json", Bytes::new()).await
    }

    /// Writes an object.
    ///
    /// # Errors
    /// No response, or a refusal: what was written, the status, and what the API server says.
    pub(super) async fn write(&mut self, write: &Write) -> Result<(), String> {
        let (method, path) = (write.method.clone(), &write.path);
        let answer = self.call(method, path, write.content_type, write.body.clone()).await;
        match answer {
            Ok(answer) if answer.status < 300 => Ok(()),
            Ok(answer) => Err(format!("{write}: {} {}", answer.status, message(&answer))),
            Err(why) => Err(format!("{write}: {why}")),
        }
    }

    async fn call(
        &mut self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Response, String> {
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("application/json")),
            (CONTENT_TYPE, HeaderValue::from_static(content_type)),
        ]);
        let template = RequestTemplate {
            method,
            headers,
            body,
            tokens: vec![self.token.clone()],
            ..RequestTemplate::get()
        };
        let target = self.target.at(&self.target.authority, path);
        let request = encode_request(&template, &target)?;
        self.line.send(&request, RESPONSE_TIMEOUT).await
    }
}

/// What the API server says about a refusal: the `message` of its `Status` object.
fn message(answer: &Response) -> String {
    let status: Option<serde_json::Value> = serde_json::from_slice(&answer.content).ok();
    let said = status.as_ref().and_then(|status| status["message"].as_str());
    said.map_or_else(|| answer.excerpt(), str::to_owned)
}
