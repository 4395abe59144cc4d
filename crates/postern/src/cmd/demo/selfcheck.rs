//! Self check: a plain HTTP client tries the demo and compares the results with the expected ones.

use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, Color, Table};
use http::Method;
use http_engine::url::Url;
use tokio::time::Instant;

use super::browser::Browser;
use super::files::{ADA, BEN, MANAGER, READER};
use crate::client::{Client, Reply, Version};
use crate::cmd::demo::fixture::Fixture;
use crate::cmd::token::{TokenRequest, discover};
use crate::exit::{Failure, Outcome};
use crate::terminal::{ERROR, SUCCESS};

/// How long the gateway may take to fetch the provider's keys.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a revocation may take: the lease of the revocation state.
const REVOCATION_TIMEOUT: Duration = Duration::from_secs(5);

/// A request, its expected result and the actual one.
struct Step {
    description: &'static str,
    expected: &'static str,
    actual: String,
}

/// Runs the self check and prints its results.
pub(super) fn run(fixture: &Fixture) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let steps = runtime.block_on(SelfCheck { fixture, client: Client::default() }.steps())?;
    let differences = steps.iter().filter(|step| step.expected != step.actual).count();
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).enforce_styling();
    table.set_header(
        ["", "what", "expected", "seen"].map(|text| Cell::new(text).add_attribute(Attribute::Bold)),
    );
    for Step { description, expected, actual } in &steps {
        let same = expected == actual;
        let (mark, colour) = if same { ("✓", Color::Green) } else { ("✗", Color::Red) };
        let actual = Cell::new(actual);
        table.add_row([
            Cell::new(mark).fg(colour),
            Cell::new(description),
            Cell::new(expected),
            if same { actual } else { actual.fg(Color::Red) },
        ]);
    }
    anstream::println!("{table}");
    if differences > 0 {
        anstream::println!("{ERROR}{differences} of {} differ{ERROR:#}", steps.len());
        return Ok(Outcome::Negative);
    }
    anstream::println!("{SUCCESS}all {} as expected{SUCCESS:#}", steps.len());
    Ok(Outcome::Success)
}

struct SelfCheck<'a> {
    fixture: &'a Fixture,
    client: Client,
}

/// Header fields of a request.
type Fields<'a> = &'a [(&'a str, &'a str)];

impl SelfCheck<'_> {
    async fn steps(&self) -> Result<Vec<Step>, Failure> {
        let mut steps = Vec::new();
        let mut step = |description, expected, actual| steps.push(Step { description, expected, actual });
        step("the gateway has the provider's keys", "ready", self.ready().await?);
        let files = self.fixture.files();
        let reader = self.token(READER, files.reader.expose()).await?;
        let manager = self.token(MANAGER, files.manager.expose()).await?;
        let (reader, manager) = (format!("Bearer {reader}"), format!("Bearer {manager}"));
        let bearer = [("authorization", &*reader)];

        let reply = self.get(Method::GET, "/", &[]).await?;
        step("a public path, without a credential", "200", status(&reply));
        let reply = self.get(Method::GET, "/orders", &[]).await?;
        let actual = format!("{}, {}", status(&reply), header(&reply, "www-authenticate"));
        step("orders, without a token", "401, Bearer realm=\"demo\"", actual);
        let reply = self.get(Method::GET, "/orders", &bearer).await?;
        let actual = format!("{}, for {}", status(&reply), seen_by_service(&reply, "x-forwarded-user"));
        step("orders, with a token that may read them", "200, for shop", actual);
        let reply = self.client.send(Version::Http2, Method::GET, &self.url("/orders")?, &bearer, "").await;
        step("the same over HTTP/2", "200", status(&reply.map_err(Failure::new)?));
        let reply = self.get(Method::GET, "/orders", &bearer).await?;
        step("the token does not reach the service", "absent", seen_by_service(&reply, "authorization"));
        let forged = [bearer[0], ("x-forwarded-user", "root"), ("X_Forwarded_Groups", "managers")];
        let reply = self.get(Method::GET, "/orders", &forged).await?;
        let actual =
            [seen_by_service(&reply, "x-forwarded-user"), seen_by_service(&reply, "x_forwarded_groups")];
        step("identity headers of the client's own", "shop, absent", actual.join(", "));
        let reply = self.get(Method::DELETE, "/orders/7", &bearer).await?;
        step("deleting an order, with the same token", "403", status(&reply));
        let reply = self.get(Method::DELETE, "/orders/7", &[("authorization", &manager)]).await?;
        let actual = format!("{}, for {}", status(&reply), seen_by_service(&reply, "x-forwarded-groups"));
        step("deleting it with a manager's token", "200, for managers", actual);
        let (signed, _) = reader.rsplit_once('.').unwrap_or_default();
        let (_, signature) = manager.rsplit_once('.').unwrap_or_default();
        let broken = format!("{signed}.{signature}");
        let reply = self.get(Method::GET, "/orders", &[("authorization", &broken)]).await?;
        let error = header(&reply, "www-authenticate").contains("error=\"invalid_token\"");
        let actual = format!("{}{}", status(&reply), if error { ", invalid_token" } else { "" });
        step("a token with another token's signature", "401, invalid_token", actual);
        let reply = self.get(Method::GET, "/orders/..%2fadmin", &bearer).await?;
        step("an ambiguous path", "400", status(&reply));
        let reply = self.get(Method::GET, "/nowhere", &bearer).await?;
        step("a path without a route", "404", status(&reply));
        let metrics = self.client.send(Version::Http1, Method::GET, &self.admin("/metrics")?, &[], "").await;
        let metrics = metrics.map_err(Failure::new)?;
        let metrics = String::from_utf8_lossy(&metrics.body);
        let hits =
            metrics.lines().find_map(|l| l.strip_prefix("postern_cache_lookups_total{result=\"hit\"} "));
        step(
            "the token was verified once, then found in the cache",
            "4 times",
            format!("{} times", hits.unwrap_or("no")),
        );
        self.people(&mut step).await?;
        Ok(steps)
    }

    /// People log in with a browser, and one of them loses the account.
    async fn people(&self, step: &mut impl FnMut(&'static str, &'static str, String)) -> Result<(), Failure> {
        let files = self.fixture.files();
        let (orders, reports) = (self.at("/orders"), self.at("/reports"));
        let mut ben = Browser::new(&self.client);
        let login = ben.open(&orders).await?;
        step("orders, in a browser without a session", "200, Sign in", login.summary());
        let page = ben.log_in(&orders, BEN, files.password(BEN)).await?;
        step("Ben, of the staff, logs in", "200, The service behind Postern", page.summary());
        step("and returns to the page he wanted", "/orders", page.url.replace(&self.at(""), ""));
        step(
            "reports, which are for managers, as Ben",
            "403, You have no access to this page",
            ben.open(&reports).await?.summary(),
        );
        let mut ada = Browser::new(&self.client);
        let page = ada.log_in(&reports, ADA, files.password(ADA)).await?;
        step("reports, as Ada, who is a manager", "200, The service behind Postern", page.summary());
        step("a script of Ben's page asks for orders", "200", ben.fetch(&orders).await?.to_string());
        files.disable_user(BEN).await?;
        let until = Instant::now() + REVOCATION_TIMEOUT;
        let mut status = ben.fetch(&orders).await?;
        while status == 200 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(10)).await;
            status = ben.fetch(&orders).await?;
        }
        step("and again, when an operator has disabled his account", "401", status.to_string());
        step("Ada's session is another matter", "200", ada.fetch(&orders).await?.to_string());
        Ok(())
    }

    /// URL of a path of the gateway.
    fn at(&self, path: &str) -> String {
        self.fixture.gateway() + path
    }

    async fn get(&self, method: Method, target: &str, fields: Fields<'_>) -> Result<Reply, Failure> {
        let reply = self.client.send(Version::Http1, method, &self.url(target)?, fields, "").await;
        reply.map_err(Failure::new)
    }

    fn url(&self, target: &str) -> Result<Url, Failure> {
        Url::parse(&self.at(target)).map_err(|fault| Failure::new(fault.to_string()))
    }

    fn admin(&self, target: &str) -> Result<Url, Failure> {
        Url::parse(&format!("{}{target}", self.fixture.admin()))
            .map_err(|fault| Failure::new(fault.to_string()))
    }

    async fn token(&self, id: &str, secret: &str) -> Result<String, Failure> {
        let endpoint = discover(&self.client, &self.fixture.provider()).await?;
        let request = TokenRequest { id, secret, scope: None, resources: &[], audiences: &[] };
        request.send(&self.client, &endpoint).await?.map_err(Failure::new)
    }

    /// Polls `/readyz` until it reports ready, or until the time limit.
    async fn ready(&self) -> Result<String, Failure> {
        let url = self.admin("/readyz")?;
        let until = Instant::now() + READY_TIMEOUT;
        loop {
            let reply =
                self.client.send(Version::Http1, Method::GET, &url, &[], "").await.map_err(Failure::new)?;
            let text = String::from_utf8_lossy(&reply.body).trim().to_owned();
            if reply.status == 200 || Instant::now() > until {
                return Ok(text);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn status(reply: &Reply) -> String {
    reply.status.as_u16().to_string()
}

fn header(reply: &Reply, name: &str) -> String {
    reply
        .headers
        .get(name)
        .map_or_else(|| "absent".into(), |v| String::from_utf8_lossy(v.as_bytes()).into_owned())
}

/// A header of the request as the service received it, with this exact name in any case.
fn seen_by_service(reply: &Reply, name: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Reflected {
        headers: Vec<(String, String)>,
    }
    let reflected = serde_json::from_slice::<Reflected>(&reply.body);
    let headers = reflected.map(|reflected| reflected.headers).unwrap_or_default();
    let values: Vec<String> =
        headers.into_iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
    if values.is_empty() { "absent".into() } else { values.join(" and ") }
}
