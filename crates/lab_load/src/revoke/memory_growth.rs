//! Revocation course: the steps of one revocation.
//!
//! Owns: the steps, and how often a place is probed. Does not own: when a revocation begins, and
//! the statistics of many.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{ProbeMethod, ProbedPlace, RevocationSchedule, RevocationSite};
use crate::fetch::{AsyncClient, Response, access_token, encode_request, form_request};
use crate::load::{RequestTemplate, Target};
use crate::provider::escape;

/// Longest wait for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// Pause between two probes for a credential that must be accepted first.
const WARMUP_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Divisor of the pause between two probes for a revoked credential: a hundredth of the time since
/// the revocation. The figures are then exact to 1 %, and the probes do not become the load.
const POLL_FRACTION: u32 = 100;
/// Shortest pause between two such probes.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Longest pause between two such probes.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Result of one revocation.
pub(super) enum RevocationResult {
    Revoked {
        /// Time until the revocation was answered.
        answer: Duration,
        /// How long each place still accepted the credential. `None` if it accepted it after the
        /// revocation and was never seen to refuse it.
        delays: Vec<Option<Duration>>,
    },
    /// The credential could not be issued, accepted or revoked; holds the reason.
    Failed(String),
    /// The load ended before the revocation.
    Dropped,
}

/// Result of a probe: whether a place accepts the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProbeResult {
    Accepted,
    Refused,
    /// The place gave no clear answer, or did not respond; holds the details.
    Inconclusive(String),
}

/// State that all revocations of a load share.
pub(super) struct RevocationRun {
    pub(super) site: RevocationSite,
    pub(super) probe_count: Cell<usize>,
    pub(super) pace: RevocationSchedule,
    /// `true` when the load has ended.
    ended: watch::Receiver<bool>,
    /// Connections that are not in use, by address and TLS.
    idle_connections: RefCell<Vec<((SocketAddr, bool), AsyncClient)>>,
}

impl RevocationRun {
    pub(super) fn new(site: RevocationSite, pace: RevocationSchedule, ended: watch::Receiver<bool>) -> Self {
        Self { site, probe_count: Cell::new(0), pace, ended, idle_connections: RefCell::default() }
    }

    /// Issues, warms, revokes and watches one credential. `issue` and `revoke` select the nodes.
    pub(super) async fn run(self: Rc<Self>, issue: u64, revoke: u64) -> RevocationResult {
        match self.steps(issue, revoke).await {
            Ok(result) => result,
            Err(why) => RevocationResult::Failed(why),
        }
    }

    async fn steps(self: &Rc<Self>, issue: u64, revoke: u64) -> Result<RevocationResult, String> {
        let token = self.issue(pick_target(&self.site.issue, issue)).await?;
        let warm = self.at_every_place(|course, place| {
            let token = token.clone();
            async move { course.wait_until_accepted(&course.site.places[place], &token).await }
        });
        warm.await.into_iter().collect::<Result<Vec<()>, String>>()?;
        if *self.ended.borrow() {
            return Ok(RevocationResult::Dropped);
        }
        let (answer_sender, revoked) = watch::channel(None);
        let watching = self.at_every_place(|course, place| {
            let (token, revoked) = (token.clone(), revoked.clone());
            async move { course.until_refused(&course.site.places[place], &token, &revoked).await }
        });
        let revoking = async {
            let sent_at = Instant::now();
            let result = self.revoke(pick_target(&self.site.revoke, revoke), &token).await;
            // If the revocation fails, the dropped channel stops the probes.
            let at = result?;
            answer_sender.send_replace(Some(at));
            // The channel must stay open while places are probed.
            Ok::<_, String>((answer_sender, at - sent_at))
        };
        let (result, delays) = tokio::join!(revoking, watching);
        let (_answered, answer) = result?;
        Ok(RevocationResult::Revoked { answer, delays })
    }

    /// Runs `work` at all places at the same time. Returns the results in the order of the places.
    pub(super) async fn at_every_place<T: 'static, W>(
        self: &Rc<Self>,
        work: impl Fn(Rc<Self>, usize) -> W,
    ) -> Vec<T>
    where
        W: Future<Output = T> + 'static,
    {
        let mut all = JoinSet::new();
        for place in 0..self.site.places.len() {
            let one = work(Rc::clone(self), place);
            all.spawn_local(async move { (place, one.await) });
        }
        let mut done: Vec<(usize, T)> = Vec::new();
        while let Some(one) = all.join_next().await {
            done.extend(one.ok());
        }
        done.sort_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, one)| one).collect()
    }

    pub(super) async fn issue(&self, at: &Target) -> Result<String, String> {
        let flow = form_request(self.site.client.clone(), "grant_type=client_credentials".to_owned());
        let answer = self.exchange(at, &flow).await;
        let answer = answer.map_err(|why| format!("no token from {}: {why}", at.url))?;
        if answer.status != 200 {
            return Err(format!("{} answered {}: {}", at.url, answer.status, answer.excerpt()));
        }
        access_token(&answer).map_err(|why| format!("{}: {why}", at.url))
    }

    /// Revokes a token. Returns the time of the response.
    async fn revoke(&self, at: &Target, token: &str) -> Result<Instant, String> {
        let flow = form_request(self.site.client.clone(), form(token));
        let answer = self.exchange(at, &flow).await.map_err(|why| format!("{}: {why}", at.url))?;
        let now = Instant::now();
        if answer.status != 200 {
            return Err(format!("{} answered {}: {}", at.url, answer.status, answer.excerpt()));
        }
        Ok(now)
    }

    /// Probes until the credential is accepted.
    ///
    /// # Errors
    /// The place does not accept it within `patience`.
    pub(super) async fn wait_until_accepted(&self, place: &ProbedPlace, token: &str) -> Result<(), String> {
        let until = Instant::now() + self.pace.patience;
        loop {
            let problem = match self.probe(place, token).await {
                ProbeResult::Accepted => return Ok(()),
                ProbeResult::Refused => "refused".to_owned(),
                ProbeResult::Inconclusive(why) => why,
            };
            if Instant::now() >= until {
                return Err(format!("`{}` does not accept a valid credential: {problem}", place.node));
            }
            tokio::time::sleep(WARMUP_POLL_INTERVAL).await;
        }
    }

    /// Probes until the credential is refused or `patience` has passed. Returns how long it was
    /// accepted after the revocation, as [`accepted_for`] defines it.
    async fn until_refused(
        &self,
        place: &ProbedPlace,
        token: &str,
        revoked: &watch::Receiver<Option<Instant>>,
    ) -> Option<Duration> {
        let mut last = None;
        loop {
            let begun = Instant::now();
            let result = self.probe(place, token).await;
            if result == ProbeResult::Accepted {
                last = Some(begun);
            }
            let at = *revoked.borrow();
            // A dropped channel means that the revocation failed, so the result is not needed.
            let gone = revoked.has_changed().is_err();
            let since = at.map_or(Duration::ZERO, |at| at.elapsed());
            let impatient = since > self.pace.patience;
            if result == ProbeResult::Refused || impatient || gone {
                return accepted_for(at, last, &result);
            }
            tokio::time::sleep((since / POLL_FRACTION).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)).await;
        }
    }

    pub(super) async fn probe(&self, place: &ProbedPlace, token: &str) -> ProbeResult {
        self.probe_count.set(self.probe_count.get() + 1);
        let flow = match &place.method {
            ProbeMethod::Request => {
                RequestTemplate { tokens: vec![token.to_owned()], ..RequestTemplate::get() }
            }
            ProbeMethod::Introspection(client) => form_request(client.clone(), form(token)),
        };
        match self.exchange(&place.target, &flow).await {
            Ok(answer) => classify(&place.method, &answer),
            Err(why) => ProbeResult::Inconclusive(why),
        }
    }

    pub(super) async fn exchange(&self, target: &Target, flow: &RequestTemplate) -> Result<Response, String> {
        let request = encode_request(flow, target)?;
        let mut line = self.take_connection(target);
        let answer = line.send(&request, RESPONSE_TIMEOUT).await;
        self.idle_connections.borrow_mut().push(((target.address, target.is_tls()), line));
        answer
    }

    fn take_connection(&self, target: &Target) -> AsyncClient {
        let mut idle = self.idle_connections.borrow_mut();
        let known = idle.iter().position(|(to, _)| *to == (target.address, target.is_tls()));
        known
            .map_or_else(|| AsyncClient::new(target.clone(), MAX_RESPONSE_BYTES), |at| idle.swap_remove(at).1)
    }
}

/// How long a credential that was revoked `at` was accepted. `last` is the begin of the last
/// accepted request, `in_the_end` the result of the last probe.
///
/// Returns `None` if the credential was accepted after the revocation and the last probe was not a
/// refusal. The end of the acceptance was then not seen.
fn accepted_for(at: Option<Instant>, last: Option<Instant>, in_the_end: &ProbeResult) -> Option<Duration> {
    let delay = at.zip(last).map_or(Duration::ZERO, |(at, last)| last.saturating_duration_since(at));
    (*in_the_end == ProbeResult::Refused || delay.is_zero()).then_some(delay)
}

pub(super) fn pick_target(targets: &[Target], number: u64) -> &Target {
    let at = number % lab_analysis::units::count(targets.len()).max(1);
    &targets[usize::try_from(at).unwrap_or(0)]
}

/// A token in form encoding (RFC 7009 §2.1, RFC 7662 §2.1).
fn form(token: &str) -> String {
    let mut form = "token=".to_owned();
    escape(&mut form, token);
    form
}

fn classify(question: &ProbeMethod, answer: &Response) -> ProbeResult {
    #[derive(Deserialize)]
    struct Worth {
        active: bool,
    }
    let neither = || ProbeResult::Inconclusive(format!("answered {}: {}", answer.status, answer.excerpt()));
    match (question, answer.status) {
        (ProbeMethod::Request, 0..=399) => ProbeResult::Accepted,
        (ProbeMethod::Request, 401 | 403) => ProbeResult::Refused,
        (ProbeMethod::Introspection(_), 200) => match serde_json::from_slice::<Worth>(&answer.content) {
            Ok(Worth { active: true }) => ProbeResult::Accepted,
            Ok(Worth { active: false }) => ProbeResult::Refused,
            Err(_) => neither(),
        },
        _ => neither(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_tell_has_not_refused() {
        let at = Instant::now();
        let later = at + Duration::from_millis(40);
        let (before, after) = (Some(at), Some(later));
        let neither = || ProbeResult::Inconclusive("answers 503".to_owned());
        let delay = Duration::from_millis(40);
        assert_eq!(accepted_for(before, after, &ProbeResult::Refused), Some(delay));
        assert_eq!(accepted_for(before, after, &neither()), None, "nobody saw the end of it");
        assert_eq!(accepted_for(before, after, &ProbeResult::Accepted), None);
        // Never accepted after the revocation: the last accepted request had begun before, or there
        // was none.
        for last in [Some(at), None] {
            for result in [ProbeResult::Refused, neither(), ProbeResult::Accepted] {
                assert_eq!(accepted_for(before, last, &result), Some(Duration::ZERO), "{result:?}");
            }
        }
        assert_eq!(accepted_for(after, before, &ProbeResult::Refused), Some(Duration::ZERO));
    }
}
