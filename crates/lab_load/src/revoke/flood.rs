//! Revocation flood: revokes a large number of credentials in a short time, as after a leak.
//!
//! Owns: obtaining the tokens before the load begins, the token lists that are sent to the
//! provider's admin API (`POST {"tokens": […]}` or `{"jtis": […]}`), and probes of some tokens
//! before and after. Does not own: the single revocations at the same time
//! ([`super::memory_growth`]), which show the effect of a flood on others.
//!
//! 1. Tokens are issued. Some are probed at each place until accepted, so that they are cached.
//! 2. Lists as large as the admin API accepts are built.
//! 3. List k of n is sent when k/n of the time has passed; several are in progress at the same
//!    time.
//! 4. The total duration and the response time of each list are recorded.
//! 5. After the last response plus the bound, the same tokens are probed again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use lab_analysis::record::{BulkRevocation, Distribution, IdentifiedBy};
use lab_analysis::units::{count, nanos};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::DIGITS;
use super::memory_growth::{ProbeResult, RevocationRun, pick_target};
use crate::fetch::{access_token, form_request};
use crate::load::RequestTemplate;

/// Token request for the scope that permits revoking tokens of other clients.
const ADMIN_TOKEN_REQUEST: &str = "grant_type=client_credentials&scope=postern%3Aadmin";
/// Token requests in progress at the same time.
const MAX_CONCURRENT_TOKEN_REQUESTS: usize = 32;
/// Lists in progress at the same time.
const MAX_CONCURRENT_LISTS: usize = 8;
/// Largest number of tokens in a list.
const MAX_TOKENS_PER_LIST: usize = 500;
/// Largest size of a list in bytes: the admin API accepts bodies of at most 64 KiB.
const MAX_LIST_BYTES: usize = 60 * 1024;
/// Largest number of tokens that are probed at each place.
const MAX_PROBED_TOKENS: usize = 100;

/// Time, size and speed of a flood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flood {
    /// Start of the flood, relative to the start of revocations.
    pub at: Duration,
    /// Number of tokens to revoke.
    pub tokens: u32,
    /// Time over which the lists are spread, if the provider is fast enough.
    pub within: Duration,
    /// How the tokens are identified in a list.
    pub identified_by: IdentifiedBy,
}

/// A flood that is ready to be sent.
pub(super) struct PreparedFlood {
    flood: Flood,
    /// Request bodies, each with its number of tokens.
    bodies: Vec<(Bytes, u64)>,
    operator: String,
    /// Tokens that are probed before and after the flood.
    probed: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum List<'t> {
    Tokens(&'t [String]),
    Jtis(&'t [String]),
}

#[derive(Deserialize)]
struct Revoked {
    count: u64,
}

/// Obtains the tokens and builds the lists.
///
/// # Errors
/// A token cannot be obtained, is not accepted everywhere, or has no `jti` although one is needed.
pub(super) async fn prepare(course: &Rc<RevocationRun>, flood: Flood) -> Result<PreparedFlood, String> {
    let Some(operator) = &course.site.operator else {
        return Err("the topology has no `operator` client that can revoke lists of tokens".to_owned());
    };
    let at = pick_target(&course.site.issue, 0);
    let answer = course.exchange(at, &form_request(operator.clone(), ADMIN_TOKEN_REQUEST.to_owned())).await?;
    if answer.status != 200 {
        return Err(format!("no admin token from {}: {}: {}", at.url, answer.status, answer.excerpt()));
    }
    let operator = access_token(&answer)?;
    let (next, tokens) = (Rc::new(Cell::new(0_u64)), Rc::new(RefCell::new(Vec::new())));
    let mut tasks = JoinSet::new();
    for _ in 0..MAX_CONCURRENT_TOKEN_REQUESTS {
        let (course, next, tokens) = (Rc::clone(course), Rc::clone(&next), Rc::clone(&tokens));
        tasks.spawn_local(async move {
            while next.get() < u64::from(flood.tokens) {
                let number = next.replace(next.get() + 1);
                let token = course.issue(pick_target(&course.site.issue, number)).await?;
                tokens.borrow_mut().push(token);
            }
            Ok::<(), String>(())
        });
    }
    while let Some(result) = tasks.join_next().await {
        result.map_err(|error| error.to_string())??;
    }
    let tokens = tokens.take();
    let some: Vec<String> = tokens
        .iter()
        .step_by((tokens.len() / MAX_PROBED_TOKENS).max(1))
        .take(MAX_PROBED_TOKENS)
        .cloned()
        .collect();
    wait_until_accepted(course, &some).await?;
    let bodies = match flood.identified_by {
        IdentifiedBy::Token => request_bodies(&tokens, List::Tokens),
        IdentifiedBy::Jti => {
            let jtis: Result<Vec<_>, _> = tokens.iter().map(|token| jti(token)).collect();
            request_bodies(&jtis?, List::Jtis)
        }
    };
    Ok(PreparedFlood { flood, bodies: bodies?, operator, probed: some })
}

/// Builds the smallest number of lists that the admin API accepts.
fn request_bodies<'t>(
    texts: &'t [String],
    list: impl Fn(&'t [String]) -> List<'t>,
) -> Result<Vec<(Bytes, u64)>, String> {
    let longest = texts.iter().map(String::len).max().unwrap_or(0);
    // Each text has two quotes and a comma.
    let together = (MAX_LIST_BYTES / (longest + 3)).clamp(1, MAX_TOKENS_PER_LIST);
    let body = |some| serde_json::to_vec(&list(some)).map_err(|error| error.to_string());
    texts.chunks(together).map(|some| Ok((Bytes::from(body(some)?), count(some.len())))).collect()
}

/// The `jti` of a token (RFC 7519 §4.1.7); only a JWT has one.
fn jti(token: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Named {
        jti: String,
    }
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let named = claims.and_then(|claims| serde_json::from_slice::<Named>(&claims).ok());
    named
        .map(|named| named.jti)
        .ok_or_else(|| "tokens are not JWTs with a `jti`, which a flood by jti needs".to_owned())
}

impl PreparedFlood {
    /// Sends the lists; `first` is the start of revocations.
    pub(super) async fn send(self, course: Rc<RevocationRun>, first: Instant) -> BulkRevocation {
        tokio::time::sleep_until((first + self.flood.at).into()).await;
        let begun = Instant::now();
        let (within, lists) = (self.flood.within, Rc::new(self));
        let next = Rc::new(Cell::new(0_usize));
        let mut sending = JoinSet::new();
        for _ in 0..MAX_CONCURRENT_LISTS {
            let (course, lists, next) = (Rc::clone(&course), Rc::clone(&lists), Rc::clone(&next));
            sending.spawn_local(async move {
                let mut sent = Vec::new();
                loop {
                    let number = next.replace(next.get() + 1);
                    let Some((body, tokens)) = lists.bodies.get(number) else { return sent };
                    let due = within.mul_f64(number as f64 / lists.bodies.len() as f64);
                    tokio::time::sleep_until((begun + due).into()).await;
                    let sent_at = Instant::now();
                    let revoked = revoke(&course, number, body.clone(), &lists.operator).await;
                    sent.push((*tokens, revoked, sent_at.elapsed()));
                }
            });
        }
        let mut sent = Vec::new();
        while let Some(by_one) = sending.join_next().await {
            // A panic in a task is propagated to the thread that is joined.
            sent.extend(by_one.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        let took = begun.elapsed();
        let lists = &lists;
        let [refused, admitted, unclear] = match course.pace.bound {
            Some(bound) => {
                tokio::time::sleep(bound).await;
                probe_tokens(&course, &lists.probed).await
            }
            None => [0; 3],
        };
        let wanted = |(tokens, ..): &(u64, Result<u64, String>, Duration)| *tokens;
        let revoked: u64 = sent.iter().filter_map(|(_, revoked, _)| revoked.as_ref().ok()).sum();
        BulkRevocation {
            revoked,
            failed: sent.iter().map(wanted).sum::<u64>() - revoked,
            example: sent.iter().find_map(|(_, revoked, _)| revoked.as_ref().err().cloned()),
            within_s: within.as_secs_f64(),
            took_s: took.as_secs_f64(),
            by: lists.flood.identified_by,
            refused,
            admitted,
            unclear,
            answer: Distribution::of(sent.iter().map(|(.., waited)| nanos(*waited)), DIGITS),
        }
    }
}

/// Probes each place for each token until it is accepted.
async fn wait_until_accepted(course: &Rc<RevocationRun>, tokens: &[String]) -> Result<(), String> {
    let probes = course.at_every_place(|course, place| {
        let tokens = tokens.to_vec();
        async move {
            for token in &tokens {
                course.wait_until_accepted(&course.site.places[place], token).await?;
            }
            Ok(())
        }
    });
    probes.await.into_iter().collect()
}

/// Probes each place once for each token. Returns the numbers of refused, accepted and inconclusive
/// probes.
async fn probe_tokens(course: &Rc<RevocationRun>, tokens: &[String]) -> [u64; 3] {
    let probes = course.at_every_place(|course, place| {
        let tokens = tokens.to_vec();
        async move {
            let mut results = [0; 3];
            for token in &tokens {
                results[match course.probe(&course.site.places[place], token).await {
                    ProbeResult::Refused => 0,
                    ProbeResult::Accepted => 1,
                    ProbeResult::Inconclusive(_) => 2,
                }] += 1;
            }
            results
        }
    });
    probes
        .await
        .into_iter()
        .fold([0; 3], |sum: [u64; 3], place| std::array::from_fn(|at| sum[at] + place[at]))
}

/// Sends one list. Returns the number of revoked tokens.
async fn revoke(course: &RevocationRun, number: usize, body: Bytes, operator: &str) -> Result<u64, String> {
    let at = pick_target(&course.site.bulk_revoke, count(number));
    let json = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    let flow = RequestTemplate {
        method: Method::POST,
        headers: json,
        body,
        tokens: vec![operator.to_owned()],
        ..RequestTemplate::get()
    };
    let answer = course.exchange(at, &flow).await?;
    if answer.status != 200 {
        return Err(format!("{} answered {}: {}", at.url, answer.status, answer.excerpt()));
    }
    let revoked = serde_json::from_slice::<Revoked>(&answer.content);
    revoked.map(|revoked| revoked.count).map_err(|error| format!("{}: {error}", at.url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_as_long_as_they_may_be() {
        let tokens = |length: usize, number: usize| vec!["t".repeat(length); number];
        let lengths = |tokens: Vec<String>| {
            let bodies = request_bodies(&tokens, List::Tokens).unwrap();
            assert!(bodies.iter().all(|(body, _)| body.len() <= 64 * 1024));
            bodies.into_iter().map(|(_, tokens)| tokens).collect::<Vec<_>>()
        };
        assert_eq!(lengths(tokens(43, 1200)), [500, 500, 200]);
        assert_eq!(lengths(tokens(700, 100)), [87, 13]);
        assert_eq!(lengths(tokens(70_000, 0)), [0_u64; 0]);
        assert_eq!(request_bodies(&tokens(3, 2), List::Tokens).unwrap()[0].0, r#"{"tokens":["ttt","ttt"]}"#);
        assert_eq!(request_bodies(&tokens(3, 1), List::Jtis).unwrap()[0].0, r#"{"jtis":["ttt"]}"#);
    }

    #[test]
    fn a_jwt_says_its_name() {
        let token = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(jti(&token(r#"{"sub":"a","jti":"n"}"#)).unwrap(), "n");
        for other in [token(r#"{"sub":"a"}"#), token("[]"), "pst_opaque".to_owned(), String::new()] {
            assert!(jti(&other).unwrap_err().contains("`jti`"), "{other}");
        }
    }
}
