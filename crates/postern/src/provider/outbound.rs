//! The provider's way to clients, which it tells of logouts.

use std::sync::Arc;
use std::time::Duration;

use gateway::url::Url;
use http::Method;
use idp::{Answered, Outbound};

use crate::client::{Client, Version};

/// How long one exchange may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// HTTP/1.1, over TLS with the system's authorities. Each exchange has a connection of its own, redirects are answers like
/// others, and answers are read to a bound.
#[derive(Default)]
pub(super) struct Https {
    client: Arc<Client>,
}

impl Outbound for Https {
    fn post_form(&self, url: &str, body: String) -> Answered {
        let (client, url) = (self.client.clone(), url.to_owned());
        Box::pin(async move {
            let url = Url::parse(&url).map_err(|fault| format!("{url}: {fault}"))?;
            let form = [("content-type", "application/x-www-form-urlencoded")];
            let exchange = client.send(Version::Http1, Method::POST, &url, &form, body);
            match tokio::time::timeout(DEADLINE, exchange).await {
                Ok(reply) => reply.map(|reply| reply.status.as_u16()),
                Err(_) => Err(format!("{url}: no answer within {} s", DEADLINE.as_secs())),
            }
        })
    }
}
