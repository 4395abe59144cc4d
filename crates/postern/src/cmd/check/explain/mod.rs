//! Explanation: shows step by step what happens to a request, with the code that decides.
//!
//! Flow, as in serving: `Canonical::parse → RouteTable::find → Authenticator → decide → rewrite`.
//! Where a step returns no explanation, the same code runs on smaller inputs: one route at a time,
//! or one condition of a match at a time. This module decides nothing itself.

mod caller;
mod forwarded;

use crate::cmd::check::explain::caller::Caller;
use crate::cmd::check::explain::forwarded::{destination, upstream_head};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use auth::decide::explain::Explanation;
use auth::decide::{Denial, MatchedRoute, Permit, RuleContext, decide_in};
use auth::headers::Repeats;
use auth::policy::route::{AmbiguousRoute, Scope};
use auth::request::{Canonical, Field};
use auth::time::Timestamp;
use auth::token::jwt;
use config::LoadedConfig;
use credentials::authenticate::{AuthenticatorRuntime, Verified};
use credentials::cache::{CacheSecret, Generation};
use credentials::config::KeySource;
use credentials::config::Transmitter;
use credentials::revocation::FollowedIssuers;
use gateway::authorizer;
use gateway::config::{AuthorizerConfig, Config, QuestionSource, Route, UpstreamFields};
use gateway::foreign_page::{self, ForeignAction};
use gateway::review::{ReviewResult, Reviewer};
use gateway::{cors, forward_filter, local_action};
use http_engine::clock::{Clock, ManualClock, Now};
use login::preview::{self, Preview};
use rustls::pki_types::CertificateDer;

use super::auth_response::QueryProtocols;
use super::manifests::{GatewayLookup, Place};
use super::matches;
use super::request::RequestedRequest;
use crate::cmd::check::outline::Outline;
use crate::exit::Failure;

/// What is known about the caller besides the request.
pub(super) struct CallerInput {
    /// Client certificate of the connection.
    pub(super) certificate: Option<CertificateDer<'static>>,
    /// Address of the client.
    pub(super) address: Option<IpAddr>,
    /// JWKS file with the keys of the token's issuer, in place of the configured source.
    pub(super) jwks: Option<PathBuf>,
}

/// Explains what happens to a request. With manifests it may come to a listener of a Gateway.
///
/// # Errors
///
/// Returns a failure when the explanation cannot be made.
pub(super) fn explain(
    mut loaded: LoadedConfig,
    manifests: Option<&GatewayLookup<'_>>,
    question: &RequestedRequest,
    input: CallerInput,
    now: Timestamp,
) -> Result<Outline, Failure> {
    let CallerInput { certificate, address, jwks } = input;
    let mut story = Outline::default();
    let raw = question.raw();
    story.part("request");
    let request = match Canonical::parse(&raw) {
        Ok(request) => request,
        Err(malformed) => {
            story.step(0, Some(false), format_args!("it has no canonical form: {malformed}"));
            story.refuse(
                malformed.status(),
                malformed.code(),
                "no route is matched, and no upstream is reached",
            );
            return Ok(story);
        }
    };
    explain_request(&mut story, question, &request);
    let fields = question.fields();
    let place = match manifests {
        None => Place::File,
        Some(lookup) => lookup.explain_listener(&mut story, &request)?,
    };
    let scope = match place {
        Place::File => Scope::FILE,
        Place::Listener(scope) => {
            // Checks of other proxies come to listeners of the file only.
            loaded.config.listeners = std::iter::empty().collect();
            scope
        }
        Place::Nowhere => return Ok(story),
    };
    let is_queried = QueryProtocols::from_config(&loaded.config).is_some();
    if explain_local_reply(&mut story, &loaded, scope, &request, &fields) {
        return Ok(story);
    }
    let Some(index) = explain_route(&mut story, &loaded, (manifests, scope), &request, &fields) else {
        return Ok(story);
    };
    if let Err(fault) = forward_filter::check_path(loaded.config.route(index), &request) {
        let why = format!("{fault}, and the route has paths = \"strict\"");
        story.refuse(fault.status(), fault.code(), why);
        return Ok(story);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    retain_token_issuer(&mut loaded.config, question, jwks);
    let followed = is_followed(&loaded, question);
    let authenticator = Caller { config: &loaded.config, certificate, now, followed };
    let caller = match runtime.block_on(authenticator.authenticate(&mut story, index, &request, &fields))? {
        Ok(caller) => caller,
        Err(ExplanationEnded) => return Ok(story),
    };
    let route = loaded.config.route(index);
    if let Some(caller) = &caller
        && let Some(action) = foreign_page::foreign_action(
            &loaded.config,
            route,
            &request,
            (&fields, upgrade_protocol(&fields)),
            is_queried,
            caller,
        )
    {
        story.refuse(403, "foreign_origin", explain_foreign_page(action));
        return Ok(story);
    }
    let client = address.map(|address| address.to_canonical());
    let bench = RouteExplainer::new(&loaded, &fields, (now, client), &runtime)?;
    bench.decision(&mut story, index, &request, caller.as_deref());
    Ok(story)
}

/// Explains which route takes the request. `None`: none does, or the one that does is closed.
fn explain_route(
    story: &mut Outline,
    loaded: &LoadedConfig,
    (manifests, scope): (Option<&GatewayLookup<'_>>, Scope),
    request: &Canonical<'_>,
    fields: &[Field<'_>],
) -> Option<usize> {
    let found = match manifests.filter(|_| scope != Scope::FILE) {
        Some(lookup) => lookup.explain_routes(story, scope, request, fields),
        None => match matches::explain_routes(story, loaded, request, fields) {
            Some(index) => Ok(Some(index)),
            None => loaded.config.routing.table().lookup(scope, request, fields, Repeats::Separate),
        },
    };
    match found {
        Err(disputed) => explain_ambiguous_route(story, &disputed),
        Ok(None) => story.refuse(404, "no_route", "no route matches this host and path"),
        Ok(Some(index)) if loaded.config.route(index).is_closed => {}
        Ok(Some(index)) => return Some(index),
    }
    None
}

/// Runtime of the authenticator, as the process would create it.
fn authenticator_runtime(
    now: Timestamp,
    control: &tokio::runtime::Handle,
) -> Result<(AuthenticatorRuntime, Now), Failure> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(now));
    let instant = clock.now();
    let secret = CacheSecret::generate(&aws_lc_rs::rand::SystemRandom::new());
    let surroundings = AuthenticatorRuntime {
        clock,
        control: control.clone(),
        secret: secret.map_err(|_| Failure::new("the system has no random numbers available"))?,
        generation: Generation::default(),
        follows: FollowedIssuers::default(),
    };
    Ok((surroundings, instant))
}

/// Why a page of another site may not do this.
fn explain_foreign_page(action: ForeignAction) -> &'static str {
    match action {
        ForeignAction::WebSocket => {
            "a page of another origin opens a websocket with credentials that the browser adds, and is not in \
             the route's websocket_origins"
        }
        ForeignAction::Request => {
            "a page of another site sends a request with a session, and the route's CORS policy does not \
             permit it credentials"
        }
    }
}

/// The explanation ended before the decision.
struct ExplanationEnded;

fn explain_request(story: &mut Outline, question: &RequestedRequest, request: &Canonical<'_>) {
    let query = request.query().map_or_else(String::new, |query| format!("?{query}"));
    let path = request.forwarded_path();
    let url = format!("{}://{}{path}{query}", request.scheme().as_str(), request.authority());
    story.step(0, Some(true), format_args!("{} {url}", request.method()));
    if url != format!("{}://{}{}", request.scheme().as_str(), question.authority, question.target) {
        story.step(1, None, "this is its canonical form, which is matched, decided and forwarded");
    }
    for reading in request.other_readings() {
        story.step(
            1,
            None,
            format_args!("some servers read the path as {reading}; it must lead to the same decision"),
        );
    }
}

/// Ends the explanation of a request that the login answers itself.
/// Explains a request that the gateway answers itself, whatever the routes permit; `false`: it does
/// not.
fn explain_local_reply(
    story: &mut Outline,
    loaded: &LoadedConfig,
    scope: Scope,
    request: &Canonical<'_>,
    fields: &[Field<'_>],
) -> bool {
    let config = &loaded.config;
    let is_queried = QueryProtocols::from_config(config).is_some();
    // Listeners that only authorize for other proxies do not serve this document: a route decides.
    if !is_queried && forward_filter::is_own_document(config, request) {
        story.serve("by the gateway itself, before the route lookup: the keys of its assertions");
        return true;
    }
    let mut events = loaded.events.iter().filter(|_| !is_queried).flat_map(|events| &events.transmitters);
    if let Some(transmitter) = events.find(|t| t.is_pushed_to(request.authority(), request.path())) {
        explain_event_push(story, transmitter, request.method());
        return true;
    }
    if let Some(login) = &config.login
        && let Some(own) = preview::own_response(login, request, fields, is_queried)
        && (is_queried || !is_login_auth(config, scope, request, fields))
    {
        explain_login_response(story, &own);
        return true;
    }
    if !is_queried && let Some((index, allowed)) = cors::preview(config, scope, request, fields) {
        let name = &config.route(index).name;
        let what = if allowed { "permits" } else { "does not permit" };
        story.serve(format_args!(
            "by the gateway itself: the CORS policy of the route {name} {what} this preflight"
        ));
        return true;
    }
    false
}

/// Whether a route answers in place of the login's `auth`.
fn is_login_auth(config: &Config, scope: Scope, request: &Canonical<'_>, fields: &[Field<'_>]) -> bool {
    let matched = config.routing.table().lookup(scope, request, fields, Repeats::Separate);
    matches!(matched, Ok(Some(index)) if config.route(index).is_login_auth)
}

fn explain_login_response(story: &mut Outline, own: &Preview) {
    if own.status >= 400 {
        return story.refuse(own.status, own.code, own.description);
    }
    story.answer(own.status, format_args!("by the login, before the route lookup: {}", own.description));
}

/// Ends the explanation of a request to the endpoint of security events.
fn explain_event_push(story: &mut Outline, transmitter: &Transmitter, method: &str) {
    if method != "POST" {
        return story.refuse(405, "invalid_request", "security events must be sent with POST");
    }
    let name = transmitter.issuer.config.name();
    story.answer(
        202,
        format_args!("by the gateway itself: accepts security events of {name}, and refuses invalid ones with 401 or 400"),
    );
}

/// Keeps only the issuer of the token, so that no other keys are fetched.
fn retain_token_issuer(config: &mut Config, question: &RequestedRequest, jwks: Option<PathBuf>) {
    let issuer = question.token.as_ref().and_then(|token| {
        let unverified = jwt::parse(token.as_bytes()).ok()?;
        Some(unverified.issuer().to_owned())
    });
    let issuers = &mut Arc::make_mut(&mut config.authentication).issuers;
    issuers.retain(|i| issuer.as_deref().is_some_and(|issuer| i.config.is_issuer(issuer)));
    if let (Some(issuer), Some(file)) = (issuers.first_mut(), jwks) {
        issuer.keys = KeySource::File(file);
    }
}

/// Whether a serving gateway would receive a revocation of the token.
fn is_followed(loaded: &LoadedConfig, question: &RequestedRequest) -> bool {
    let Some(token) = question.token.as_ref() else { return false };
    let Ok(unverified) = jwt::parse(token.as_bytes()) else { return false };
    let issuer = unverified.issuer();
    let own = loaded.provider.as_ref().is_some_and(|provider| provider.config.issuer == issuer);
    let elsewhere = loaded.revocation.followed_issuers.iter().any(|follow| &*follow.issuer == issuer);
    let transmitters = loaded.events.iter().flat_map(|events| &events.transmitters);
    let by_events = transmitters.flat_map(|one| &one.tokens_of).any(|of| &**of == issuer);
    own || elsewhere || by_events
}

/// Explains the decision of a route.
struct RouteExplainer<'b> {
    loaded: &'b LoadedConfig,
    fields: &'b [Field<'b>],
    now: Timestamp,
    client: Option<IpAddr>,
    instant: Now,
    runtime: &'b tokio::runtime::Runtime,
    reviewer: Option<Reviewer>,
}

impl<'b> RouteExplainer<'b> {
    fn new(
        loaded: &'b LoadedConfig,
        fields: &'b [Field<'b>],
        (now, client): (Timestamp, Option<IpAddr>),
        runtime: &'b tokio::runtime::Runtime,
    ) -> Result<Self, Failure> {
        let (surroundings, instant) = authenticator_runtime(now, runtime.handle())?;
        let AuthenticatorRuntime { control, secret, generation, .. } = surroundings;
        let reviewer = loaded
            .config
            .kubernetes
            .as_ref()
            .map(|config| Reviewer::new(config, &control, &secret, generation));
        Ok(Self { loaded, fields, now, client, instant, runtime, reviewer })
    }

    /// Decides by a route's policy as serving does. It repeats the decision until every review is
    /// answered, or one cannot be.
    fn decide_with_reviews<T>(
        &self,
        story: &mut Outline,
        route: usize,
        request: &Canonical<'_>,
        mut decide: impl FnMut(&RuleContext<'_>, &mut Explanation) -> Result<T, Denial>,
    ) -> Result<T, Denial> {
        let mut reviews = Vec::new();
        loop {
            let mut explanation = Explanation::default();
            let outcome = match &self.reviewer {
                None => decide(&RuleContext::without_reviews(self.client), &mut explanation),
                Some(reviewer) => {
                    let known = ReviewResult { reviewer, now: self.instant, reviews: &reviews };
                    let captures = self.loaded.config.routing.table().captures(route, request);
                    let (fields, client) = (self.fields, self.client);
                    decide(&RuleContext { fields, captures, reviews: &known, client }, &mut explanation)
                }
            };
            if let (Err(Denial::ReviewPending(questions)), Some(reviewer)) = (&outcome, &self.reviewer)
                && let Some(answers) =
                    self.runtime.block_on(reviewer.resolve(questions.clone(), || self.instant))
            {
                reviews.extend(answers);
                continue;
            }
            explain_decision(story, &explanation);
            return outcome;
        }
    }

    fn decision(
        &self,
        story: &mut Outline,
        index: usize,
        request: &Canonical<'_>,
        caller: Option<&Verified>,
    ) {
        let (loaded, fields) = (self.loaded, self.fields);
        let route = loaded.config.route(index);
        story.part("decision");
        let facts = caller.map(|caller| &caller.facts);
        let outcome = self.decide_with_reviews(story, index, request, |court, explanation| {
            decide_in(
                court,
                MatchedRoute { index, policy: &route.policy },
                request,
                facts,
                self.now,
                explanation,
            )
        });
        if let Some(protocols) = QueryProtocols::from_config(&loaded.config) {
            return match outcome {
                Ok(_) => protocols.explain_response(story, &loaded.config, route, fields, caller),
                Err(denial) => self.denied(story, route, request, &denial),
            };
        }
        let outcome = outcome.map_err(NotReached::Denied).and_then(|permit| {
            self.explain_authorizer(story, route, request)?;
            self.rewritten(story, permit)
        });
        let permit = match outcome {
            Ok(permit) => permit,
            Err(NotReached::Denied(denial)) => return self.denied(story, route, request, &denial),
            Err(NotReached::Disputed(disputed)) => return explain_ambiguous_route(story, &disputed),
            Err(NotReached::Ambiguous(name)) => {
                let why = format!(
                    "the header {name}, which the authorizer receives, occurs more than once, in another spelling, or is named by connection"
                );
                return story.refuse(400, "ambiguous_header", why);
            }
        };
        if let Some(protocol) =
            upgrade_protocol(fields).filter(|protocol| !forward_filter::may_switch(route, protocol))
        {
            let protocol = String::from_utf8_lossy(protocol);
            let why = format!("the route does not permit switching to {protocol:?}");
            return story.refuse(403, "upgrade_refused", why);
        }
        if let Some(action) = &route.action {
            return story.serve(local_action::describe(action, permit.request()));
        }
        let to = destination(loaded, route);
        let mut lines = upstream_head(permit.request(), loaded, route, fields, caller);
        let mut names = Vec::new();
        for authorizer in authorizers(loaded, route) {
            lines.push(match &authorizer.upstream_fields {
                UpstreamFields::All => "(and all headers from the authorizer)".to_owned(),
                fields => format!("(and headers from the authorizer: {})", fields.names().join(", ")),
            });
            names.push(&*authorizer.name);
        }
        if names.is_empty() {
            return story.permit(to, lines);
        }
        story.permit_if(format!("{to}, if the authorizer {} permits it", names.join(" and that ")), lines);
    }

    /// Ends the explanation of a request that is not permitted: a refusal, or a redirect to the
    /// login.
    fn denied(&self, story: &mut Outline, route: &Route, request: &Canonical<'_>, denial: &Denial) {
        let login = self.loaded.config.login.as_ref().filter(|_| route.login);
        let upgrades = upgrade_protocol(self.fields).is_some();
        match login.and_then(|login| {
            preview::login_redirect((login, route.login_redirect), denial, request, self.fields, upgrades)
        }) {
            None => {
                let answer = denial.answer();
                story.refuse(answer.status, answer.code, answer.text);
            }
            Some(page) => {
                story.refuse(page.status, page.code, page.description);
                if let Some(location) = &page.location {
                    story.remark(format_args!("Location: {location}"));
                }
                let services = self.loaded.config.listeners.iter().filter_map(|l| l.service.authorization());
                if services
                    .filter_map(|service| service.http.as_ref())
                    .any(|http| *http == QuestionSource::XOriginal)
                {
                    story.remark("nginx, which accepts no redirect, gets 401 with that address");
                }
            }
        }
    }

    /// Explains the authorizer of a route that permits the request.
    fn explain_authorizer(
        &self,
        story: &mut Outline,
        route: &Route,
        request: &Canonical<'_>,
    ) -> Result<(), NotReached> {
        for authorizer in authorizers(self.loaded, route) {
            if let Some(name) = authorizer::ambiguous(authorizer, self.fields, &self.loaded.config.strip) {
                return Err(NotReached::Ambiguous(name.into()));
            }
            if let Some(fault) = request.query_start_fault() {
                return Err(NotReached::Denied(Denial::UnreadableQuery(fault)));
            }
            let upstream = &self.loaded.config.routing.upstream(authorizer.upstream).name;
            let question = authorizer::request_line(authorizer, request);
            let name = &authorizer.name;
            let message = format!("the authorizer {name} at upstream {upstream} is queried too: {question}");
            story.step(0, None, message);
            story.step(1, None, "not queried by this command, because a query may have side effects");
        }
        Ok(())
    }

    /// Rewrites the path of a permitted request, if the route does so. All routes that guard the
    /// new path must permit it too.
    fn rewritten<'r>(&self, story: &mut Outline, permit: Permit<'r>) -> Result<Permit<'r>, NotReached> {
        let config = &self.loaded.config;
        let mut explanation = Explanation::default();
        let permit = forward_filter::rewrite(config, permit, self.now, &mut explanation);
        explain_decision(story, &explanation);
        let permit = permit.map_err(NotReached::Denied)?;
        for other in forward_filter::guards(config, &permit, self.fields).map_err(NotReached::Disputed)? {
            let guard @ Route { name, policy, .. } = &**config.route(other);
            let request = permit.request().clone();
            let message =
                format!("{name} guards {} on the same upstream, and must permit it too", request.path());
            story.step(0, None, message);
            let facts = permit.facts();
            self.decide_with_reviews(story, other, &request, |court, explanation| {
                decide_in(
                    court,
                    MatchedRoute { index: other, policy },
                    &request,
                    facts,
                    self.now,
                    explanation,
                )
                .map(|_| ())
            })
            .map_err(NotReached::Denied)?;
            self.explain_authorizer(story, guard, &request)?;
        }
        Ok(permit)
    }
}

/// Ends the explanation of a request whose guarding route is ambiguous.
fn explain_ambiguous_route(story: &mut Outline, disputed: &AmbiguousRoute) {
    match disputed {
        AmbiguousRoute::Path { .. } => story.refuse(400, "ambiguous_path", disputed),
        AmbiguousRoute::Header(_) => story.refuse(400, "ambiguous_header", disputed),
        AmbiguousRoute::Parameter(_) => story.refuse(400, "ambiguous_parameter", disputed),
    }
}

/// Why a request with an authenticated caller does not pass.
enum NotReached {
    Denied(Denial),
    Disputed(AmbiguousRoute),
    /// A header that the authorizer would receive has a second spelling that the service could
    /// read.
    Ambiguous(Box<str>),
}

fn explain_decision(story: &mut Outline, explanation: &Explanation) {
    let mut denying = false;
    for line in explanation.lines() {
        denying = if line.depth == 0 { line.text.starts_with("deny[") } else { denying };
        // A deny rule that does not match is no failure.
        let holds = match (denying, line.depth, line.outcome) {
            (false, _, holds) => holds,
            (true, 0, Some(true)) => Some(false),
            (true, ..) => None,
        };
        story.step(line.depth, holds, &line.text);
    }
}

/// Protocol that a request asks to switch to (RFC 9110 §7.8).
fn upgrade_protocol<'a>(fields: &[Field<'a>]) -> Option<&'a [u8]> {
    let named = |name: &'static str| fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
    let is_requested = named("connection")
        .flat_map(|field| field.value.split(|b| *b == b','))
        .any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    let protocol = named("upgrade").next_back().map(|field| field.value);
    protocol.filter(|protocol| is_requested && !forward_filter::is_version_offer(protocol))
}

/// The authorizers of a route, in the order in which they are queried.
fn authorizers<'l>(loaded: &'l LoadedConfig, route: &Route) -> impl Iterator<Item = &'l AuthorizerConfig> {
    let config = &loaded.config;
    let of_route = |at| config.authorizers.get(at).or_else(|| Some(&**config.routing.authorizer(at)?));
    route.authorizers().filter_map(of_route)
}
