//! A great many credentials revoked in a short time, as after a leak.
//!
//! Owns: getting them before load begins, the lists of them that are sent to the provider's administration (`POST {"tokens": […]}`, or `{"jtis": […]}`), and
//! trying some of them before and afterwards. Does not own: the single revocations beside it ([`super::course`]), by which one sees what a flood does to others.
//!
//! Flow: tokens are issued, and some of them accepted at each place, so that they are cached → lists as large as the administration takes → list k of n is sent when k/n of the time is over, several at once →
//! how long it took, and how long each list waited for its answer → when the bound is over after the last answer, those are tried again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::DIGITS;
use super::course::{Course, Said, chosen};
use crate::fetch::{access_token, posting};
use crate::load::RequestTemplate;
use crate::record::{Distribution, Flooded, NamedBy};
use crate::units::{count, nanos};

/// What gives the right to revoke others' tokens.
const SCOPE: &str = "grant_type=client_credentials&scope=postern%3Aadmin";
/// Tokens that are asked for at once.
const ASKING: usize = 32;
/// Lists under way at once.
const SENDING: usize = 8;
/// Most tokens of a list,
const TOGETHER: usize = 500;
/// and most bytes: a body has 64 KiB at most.
const BYTES: usize = 60 * 1024;
/// Tokens that are tried at each place.
const TRIED: usize = 100;

/// When, how many, and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flood {
    /// From the beginning of revocations on.
    pub at: Duration,
    /// Tokens that are revoked.
    pub tokens: u32,
    /// Time over which they are spread, if the provider can.
    pub within: Duration,
    /// What the provider is told of them.
    pub by: NamedBy,
}

/// What is ready to be sent.
pub(super) struct Lists {
    flood: Flood,
    /// Each with its number of tokens.
    bodies: Vec<(Bytes, u64)>,
    operator: String,
    /// Tokens that are tried.
    some: Vec<String>,
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

/// Gets the tokens.
pub(super) async fn prepare(course: &Rc<Course>, flood: Flood) -> Result<Lists, String> {
    let Some(operator) = &course.site.operator else {
        return Err("the topology does not say who may revoke tokens by the list".to_owned());
    };
    let at = chosen(&course.site.issue, 0);
    let answer = course.exchange(at, &posting(operator.clone(), SCOPE.to_owned())).await?;
    if answer.status != 200 {
        return Err(format!(
            "no right to administer from {}: {}: {}",
            at.url,
            answer.status,
            answer.beginning()
        ));
    }
    let operator = access_token(&answer)?;
    let (next, tokens) = (Rc::new(Cell::new(0_u64)), Rc::new(RefCell::new(Vec::new())));
    let mut asking = JoinSet::new();
    for _ in 0..ASKING {
        let (course, next, tokens) = (Rc::clone(course), Rc::clone(&next), Rc::clone(&tokens));
        asking.spawn_local(async move {
            while next.get() < u64::from(flood.tokens) {
                let number = next.replace(next.get() + 1);
                let token = course.issue(chosen(&course.site.issue, number)).await?;
                tokens.borrow_mut().push(token);
            }
            Ok::<(), String>(())
        });
    }
    while let Some(asked) = asking.join_next().await {
        asked.map_err(|error| error.to_string())??;
    }
    let tokens = tokens.take();
    let some: Vec<String> =
        tokens.iter().step_by((tokens.len() / TRIED).max(1)).take(TRIED).cloned().collect();
    accepted(course, &some).await?;
    let bodies = match flood.by {
        NamedBy::Token => bodies(&tokens, List::Tokens),
        NamedBy::Jti => {
            let jtis: Result<Vec<_>, _> = tokens.iter().map(|token| jti(token)).collect();
            bodies(&jtis?, List::Jtis)
        }
    };
    Ok(Lists { flood, bodies: bodies?, operator, some })
}

/// As few lists as the administration takes.
fn bodies<'t>(
    texts: &'t [String],
    list: impl Fn(&'t [String]) -> List<'t>,
) -> Result<Vec<(Bytes, u64)>, String> {
    let longest = texts.iter().map(String::len).max().unwrap_or(0);
    // A text stands between quotes and before a comma.
    let together = (BYTES / (longest + 3)).clamp(1, TOGETHER);
    let body = |some| serde_json::to_vec(&list(some)).map_err(|error| error.to_string());
    texts.chunks(together).map(|some| Ok((Bytes::from(body(some)?), count(some.len())))).collect()
}

/// The name of a token, which only a JWT says itself (RFC 7519 §4.1.7).
fn jti(token: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Named {
        jti: String,
    }
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let named = claims.and_then(|claims| serde_json::from_slice::<Named>(&claims).ok());
    named
        .map(|named| named.jti)
        .ok_or_else(|| "tokens are no JWTs with a `jti`: a flood by name needs these".to_owned())
}

impl Lists {
    /// Sends them; `first` is when revocations begin.
    pub(super) async fn send(self, course: Rc<Course>, first: Instant) -> Flooded {
        tokio::time::sleep_until((first + self.flood.at).into()).await;
        let begun = Instant::now();
        let (within, lists) = (self.flood.within, Rc::new(self));
        let next = Rc::new(Cell::new(0_usize));
        let mut sending = JoinSet::new();
        for _ in 0..SENDING {
            let (course, lists, next) = (Rc::clone(&course), Rc::clone(&lists), Rc::clone(&next));
            sending.spawn_local(async move {
                let mut sent = Vec::new();
                loop {
                    let number = next.replace(next.get() + 1);
                    let Some((body, tokens)) = lists.bodies.get(number) else { return sent };
                    let due = within.mul_f64(number as f64 / lists.bodies.len() as f64);
                    tokio::time::sleep_until((begun + due).into()).await;
                    let asked = Instant::now();
                    let revoked = revoke(&course, number, body.clone(), &lists.operator).await;
                    sent.push((*tokens, revoked, asked.elapsed()));
                }
            });
        }
        let mut sent = Vec::new();
        while let Some(by_one) = sending.join_next().await {
            // A panic there is one of this thread, and is told where that is waited for.
            sent.extend(by_one.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
        }
        let took = begun.elapsed();
        let lists = &lists;
        let [refused, admitted, unclear] = match course.pace.bound {
            Some(bound) => {
                tokio::time::sleep(bound).await;
                tried(&course, &lists.some).await
            }
            None => [0; 3],
        };
        let wanted = |(tokens, ..): &(u64, Result<u64, String>, Duration)| *tokens;
        let revoked: u64 = sent.iter().filter_map(|(_, revoked, _)| revoked.as_ref().ok()).sum();
        Flooded {
            revoked,
            failed: sent.iter().map(wanted).sum::<u64>() - revoked,
            example: sent.iter().find_map(|(_, revoked, _)| revoked.as_ref().err().cloned()),
            within_s: within.as_secs_f64(),
            took_s: took.as_secs_f64(),
            by: lists.flood.by,
            refused,
            admitted,
            unclear,
            answer: Distribution::of(sent.iter().map(|(.., waited)| nanos(*waited)), DIGITS),
        }
    }
}

/// Asks each place about each of them until it accepts it.
async fn accepted(course: &Rc<Course>, tokens: &[String]) -> Result<(), String> {
    let asked = course.each(|course, place| {
        let tokens = tokens.to_vec();
        async move {
            for token in &tokens {
                course.warm(&course.site.places[place], token).await?;
            }
            Ok(())
        }
    });
    asked.await.into_iter().collect()
}

/// Asks each place about each of them once: how many are refused, accepted, and neither.
async fn tried(course: &Rc<Course>, tokens: &[String]) -> [u64; 3] {
    let asked = course.each(|course, place| {
        let tokens = tokens.to_vec();
        async move {
            let mut said = [0; 3];
            for token in &tokens {
                said[match course.ask(&course.site.places[place], token).await {
                    Said::Refused => 0,
                    Said::Accepted => 1,
                    Said::Neither(_) => 2,
                }] += 1;
            }
            said
        }
    });
    asked.await.into_iter().fold([0; 3], |sum: [u64; 3], place| std::array::from_fn(|at| sum[at] + place[at]))
}

/// Sends one list; how many tokens of it are revoked.
async fn revoke(course: &Course, number: usize, body: Bytes, operator: &str) -> Result<u64, String> {
    let at = chosen(&course.site.lists, count(number));
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
        return Err(format!("{} answers {}: {}", at.url, answer.status, answer.beginning()));
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
            let bodies = bodies(&tokens, List::Tokens).unwrap();
            assert!(bodies.iter().all(|(body, _)| body.len() <= 64 * 1024));
            bodies.into_iter().map(|(_, tokens)| tokens).collect::<Vec<_>>()
        };
        assert_eq!(lengths(tokens(43, 1200)), [500, 500, 200]);
        assert_eq!(lengths(tokens(700, 100)), [87, 13]);
        assert_eq!(lengths(tokens(70_000, 0)), [0_u64; 0]);
        assert_eq!(bodies(&tokens(3, 2), List::Tokens).unwrap()[0].0, r#"{"tokens":["ttt","ttt"]}"#);
        assert_eq!(bodies(&tokens(3, 1), List::Jtis).unwrap()[0].0, r#"{"jtis":["ttt"]}"#);
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
