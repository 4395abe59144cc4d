//! Outbound requests of the provider: logout notifications to clients, and security events to
//! receivers.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_engine::outbound_proxy::OutboundProxies;
use http_engine::url::Url;
use idp::{OutboundClient, PendingResponse, PostRequest};

use crate::client::{Client, Version};

/// Time limit of one exchange.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(5);

/// HTTP/1.1 client, over TLS with the system's certificate authorities. Each exchange uses its own
/// connection. Redirects are not followed, and response bodies have a size limit.
pub(super) struct Https {
    client: Arc<Client>,
}

impl Https {
    /// A client that uses these proxies.
    pub(super) fn new(proxies: OutboundProxies) -> Self {
        Self { client: Arc::new(Client::through(proxies)) }
    }
}

impl OutboundClient for Https {
    fn post(&self, post: PostRequest) -> PendingResponse {
        let client = self.client.clone();
        Box::pin(async move {
            let PostRequest { url, content_type, authorization, body } = post;
            let parsed = Url::parse(&url).map_err(|fault| format!("{url}: {fault}"))?;
            let mut fields = vec![("content-type", content_type)];
            fields.extend(authorization.as_ref().map(|shown| ("authorization", shown.as_str())));
            let exchange = client.send(Version::Http1, Method::POST, &parsed, &fields, body);
            match tokio::time::timeout(EXCHANGE_TIMEOUT, exchange).await {
                Ok(reply) => reply.map(|reply| reply.status.as_u16()),
                Err(_) => Err(format!("{url}: no response within {} s", EXCHANGE_TIMEOUT.as_secs())),
            }
        })
    }
}
