//! The course of one revocation.
//!
//! Owns: its steps, and how often a place is asked. Does not own: when it begins, and what many of them come to.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Pace, Place, Question, Site};
use crate::fetch::{Answer, Line, access_token, posting, written};
use crate::load::{RequestTemplate, Target};
use crate::provider::escape;

/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const BYTES: usize = 1 << 20;
/// Between two questions about a credential that has to be accepted first.
const WARMING: Duration = Duration::from_millis(10);
/// Between two questions about a revoked one: a hundredth of the time since, so that figures are exact to a hundredth and asking does not
/// become the load,
const PART: u32 = 100;
/// but not less
const LEAST: Duration = Duration::from_millis(1);
/// and not more than this.
const MOST: Duration = Duration::from_millis(25);

/// What became of one revocation.
pub(super) enum Seen {
    Revoked {
        /// Until the revocation was answered.
        answer: Duration,
        /// By place: how long it was still accepted; `None` where it was, and was not refused to the end.
        delays: Vec<Option<Duration>>,
    },
    /// It came to nothing.
    Failed(String),
    /// Load ended before it was revoked.
    Dropped,
}

/// What a place says to a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Accepted,
    Refused,
    /// Somebody could not tell, or did not answer.
    Neither(String),
}

/// What all revocations of a load share.
pub(super) struct Course {
    pub(super) site: Site,
    pub(super) asked: Cell<usize>,
    pub(super) pace: Pace,
    /// Load is over.
    ended: watch::Receiver<bool>,
    /// Connections that are not in use, by where they lead and whether they are encrypted.
    idle: RefCell<Vec<((SocketAddr, bool), Line)>>,
}

impl Course {
    pub(super) fn new(site: Site, pace: Pace, ended: watch::Receiver<bool>) -> Self {
        Self { site, asked: Cell::new(0), pace, ended, idle: RefCell::default() }
    }

    /// Issues, warms, revokes and watches one credential; `issue` and `revoke` choose the nodes.
    pub(super) async fn run(self: Rc<Self>, issue: u64, revoke: u64) -> Seen {
        match self.steps(issue, revoke).await {
            Ok(seen) => seen,
            Err(why) => Seen::Failed(why),
        }
    }

    async fn steps(self: &Rc<Self>, issue: u64, revoke: u64) -> Result<Seen, String> {
        let token = self.issue(chosen(&self.site.issue, issue)).await?;
        let warm = self.each(|course, place| {
            let token = token.clone();
            async move { course.warm(&course.site.places[place], &token).await }
        });
        warm.await.into_iter().collect::<Result<Vec<()>, String>>()?;
        if *self.ended.borrow() {
            return Ok(Seen::Dropped);
        }
        let (answered, revoked) = watch::channel(None);
        let watching = self.each(|course, place| {
            let (token, revoked) = (token.clone(), revoked.clone());
            async move { course.until_refused(&course.site.places[place], &token, &revoked).await }
        });
        let revoking = async {
            let asked = Instant::now();
            let told = self.revoke(chosen(&self.site.revoke, revoke), &token).await;
            // Whoever waits for a moment that never comes is told by the channel's end.
            let at = told?;
            answered.send_replace(Some(at));
            // The channel stays open while places are asked.
            Ok::<_, String>((answered, at - asked))
        };
        let (told, delays) = tokio::join!(revoking, watching);
        let (_answered, answer) = told?;
        Ok(Seen::Revoked { answer, delays })
    }

    /// Does something at every place at once; what came of it in their order.
    pub(super) async fn each<T: 'static, W>(self: &Rc<Self>, work: impl Fn(Rc<Self>, usize) -> W) -> Vec<T>
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
        let flow = posting(self.site.client.clone(), "grant_type=client_credentials".to_owned());
        let answer = self.exchange(at, &flow).await;
        let answer = answer.map_err(|why| format!("no token from {}: {why}", at.url))?;
        if answer.status != 200 {
            return Err(format!("{} answers {}: {}", at.url, answer.status, answer.beginning()));
        }
        access_token(&answer).map_err(|why| format!("{}: {why}", at.url))
    }

    /// Revokes; the moment of the answer.
    async fn revoke(&self, at: &Target, token: &str) -> Result<Instant, String> {
        let flow = posting(self.site.client.clone(), form(token));
        let answer = self.exchange(at, &flow).await.map_err(|why| format!("{}: {why}", at.url))?;
        let now = Instant::now();
        if answer.status != 200 {
            return Err(format!("{} answers {}: {}", at.url, answer.status, answer.beginning()));
        }
        Ok(now)
    }

    /// Asks until the credential is accepted.
    pub(super) async fn warm(&self, place: &Place, token: &str) -> Result<(), String> {
        let until = Instant::now() + self.pace.patience;
        loop {
            let said = match self.ask(place, token).await {
                Said::Accepted => return Ok(()),
                Said::Refused => "refuses it".to_owned(),
                Said::Neither(why) => why,
            };
            if Instant::now() >= until {
                return Err(format!("`{}` does not accept a credential that is good: {said}", place.node));
            }
            tokio::time::sleep(WARMING).await;
        }
    }

    /// Asks until the credential is refused, or patience is over: how long it was accepted after it was revoked, as [`accepted_for`] says.
    async fn until_refused(
        &self,
        place: &Place,
        token: &str,
        revoked: &watch::Receiver<Option<Instant>>,
    ) -> Option<Duration> {
        let mut last = None;
        loop {
            let begun = Instant::now();
            let said = self.ask(place, token).await;
            if said == Said::Accepted {
                last = Some(begun);
            }
            let at = *revoked.borrow();
            // Nobody holds the other end: it was not revoked, and nobody wants to know.
            let gone = revoked.has_changed().is_err();
            let since = at.map_or(Duration::ZERO, |at| at.elapsed());
            let impatient = since > self.pace.patience;
            if said == Said::Refused || impatient || gone {
                return accepted_for(at, last, &said);
            }
            tokio::time::sleep((since / PART).clamp(LEAST, MOST)).await;
        }
    }

    pub(super) async fn ask(&self, place: &Place, token: &str) -> Said {
        self.asked.set(self.asked.get() + 1);
        let flow = match &place.question {
            Question::Request => RequestTemplate { tokens: vec![token.to_owned()], ..RequestTemplate::get() },
            Question::Introspection(client) => posting(client.clone(), form(token)),
        };
        match self.exchange(&place.target, &flow).await {
            Ok(answer) => said(&place.question, &answer),
            Err(why) => Said::Neither(why),
        }
    }

    pub(super) async fn exchange(&self, target: &Target, flow: &RequestTemplate) -> Result<Answer, String> {
        let request = written(flow, target)?;
        let mut line = self.line(target);
        let answer = line.ask(&request, ANSWER).await;
        self.idle.borrow_mut().push(((target.address, target.is_tls()), line));
        answer
    }

    fn line(&self, target: &Target) -> Line {
        let mut idle = self.idle.borrow_mut();
        let known = idle.iter().position(|(to, _)| *to == (target.address, target.is_tls()));
        known.map_or_else(|| Line::new(target.clone(), BYTES), |at| idle.swap_remove(at).1)
    }
}

/// For how long a credential that was revoked `at` was accepted, by the beginning of the `last` request that was, and by what is said in the end. A place
/// that could not tell in the end has not refused it: where it accepted it after it was revoked, nobody saw that end, and it is `None` as where it is
/// accepted to the end.
fn accepted_for(at: Option<Instant>, last: Option<Instant>, in_the_end: &Said) -> Option<Duration> {
    let delay = at.zip(last).map_or(Duration::ZERO, |(at, last)| last.saturating_duration_since(at));
    (*in_the_end == Said::Refused || delay.is_zero()).then_some(delay)
}

pub(super) fn chosen(targets: &[Target], by: u64) -> &Target {
    let at = by % crate::units::count(targets.len()).max(1);
    &targets[usize::try_from(at).unwrap_or(0)]
}

/// A token in a form (RFC 7009 §2.1, RFC 7662 §2.1).
fn form(token: &str) -> String {
    let mut form = "token=".to_owned();
    escape(&mut form, token);
    form
}

fn said(question: &Question, answer: &Answer) -> Said {
    #[derive(Deserialize)]
    struct Worth {
        active: bool,
    }
    let neither = || Said::Neither(format!("answers {}: {}", answer.status, answer.beginning()));
    match (question, answer.status) {
        (Question::Request, 0..=399) => Said::Accepted,
        (Question::Request, 401 | 403) => Said::Refused,
        (Question::Introspection(_), 200) => match serde_json::from_slice::<Worth>(&answer.content) {
            Ok(Worth { active: true }) => Said::Accepted,
            Ok(Worth { active: false }) => Said::Refused,
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
        let neither = || Said::Neither("answers 503".to_owned());
        let delay = Duration::from_millis(40);
        assert_eq!(accepted_for(before, after, &Said::Refused), Some(delay));
        assert_eq!(accepted_for(before, after, &neither()), None, "nobody saw the end of it");
        assert_eq!(accepted_for(before, after, &Said::Accepted), None);
        // It was never accepted after it was revoked: by a request that had begun before, or by none.
        for last in [Some(at), None] {
            for said in [Said::Refused, neither(), Said::Accepted] {
                assert_eq!(accepted_for(before, last, &said), Some(Duration::ZERO), "{said:?}");
            }
        }
        assert_eq!(accepted_for(after, before, &Said::Refused), Some(Duration::ZERO));
    }
}
