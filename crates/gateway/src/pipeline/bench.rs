//! Who has a say in a request whose caller is known: the policies of its route and of those that guard its new path, and authorizers.
//!
//! Owns: asking them in order, with what was found out for this request. Does not own: the decision (`auth::decide`), what an authorizer's
//! answer means ([`crate::authorizer`]), what a refusal becomes (the parent).

use std::rc::Rc;
use std::sync::Arc;

use auth::decide::explain::NoTrace;
use auth::decide::{Court, Denial, Permit, decide_in};
use auth::identity::Facts;
use auth::policy::route::Disputed;
use auth::request::{Canonical, Field};
use http_engine::clock::Now;
use telemetry::trace::Context;

use super::{Admission, Found, Wanted};
use crate::authorizer::{About, Question, Said, Unknown, ambiguous};
use crate::passage;
use crate::peer::Peer;
use crate::record::Consent;
use crate::refusal::Refusal;
use crate::review;
use crate::worker::Running;

/// Where a request is decided.
pub(super) struct Bench<'b> {
    pub(super) running: &'b Rc<Running>,
    pub(super) peer: &'b Peer,
    pub(super) fields: &'b [Field<'b>],
    pub(super) found: &'b Found,
    pub(super) now: Now,
}

/// Why a request that our own policy permitted does not pass: others have a say in it, or its new path has.
pub(super) enum Barred {
    Denied(Denial),
    /// Nobody can say who guards the new path.
    Disputed(Disputed),
    /// An authorizer has to be asked.
    Unasked(Box<Question>),
    /// An authorizer answers it.
    Refused(Arc<Said>),
    /// An authorizer was asked in vain.
    Unknown,
    /// A field that an authorizer would be shown, the service could read otherwise.
    Ambiguous(Box<str>),
}

impl Barred {
    pub(super) fn conclude(self, found: &Found) -> Result<Admission, Refusal> {
        match self {
            Self::Denied(Denial::Unreviewed(questions)) if !found.unreviewed => {
                Ok(Admission::Wait(Wanted::Reviews(questions)))
            }
            Self::Denied(denial) => Err(Refusal::Denied(denial)),
            Self::Disputed(disputed) => Err(Refusal::disputed(disputed)),
            Self::Unasked(question) => Ok(Admission::Wait(Wanted::Consent(question))),
            Self::Refused(said) => match &*said {
                Said::Refused(refused) => Ok(Admission::Answer(Box::new(refused.answer()))),
                Said::Allowed(_) => Err(Refusal::AuthorizerUnavailable),
            },
            Self::Unknown => Err(Refusal::AuthorizerUnavailable),
            Self::Ambiguous(name) => Err(Refusal::Ambiguous(name)),
        }
    }
}

impl Bench<'_> {
    /// Decides about a request by a route's policy.
    pub(super) fn decide<'r>(
        &self,
        route: usize,
        request: &'r Canonical<'r>,
        facts: Option<&'r Facts>,
    ) -> Result<Permit<'r>, Denial> {
        let policy = &self.running.config.routes[route].policy;
        self.sit(route, request, |court| {
            decide_in(court, policy, route, request, facts, self.now.wall, &mut NoTrace)
        })
    }

    /// What a decision by a route's policy may look at.
    fn sit<T>(&self, route: usize, request: &Canonical<'_>, decide: impl FnOnce(&Court<'_>) -> T) -> T {
        let Some(reviewer) = &self.running.reviewer else { return decide(&Court::without_reviews()) };
        let known = review::Known { reviewer, now: self.now, found: &self.found.reviews };
        let captures = self.running.config.table.captures(route, request);
        decide(&Court { fields: self.fields, captures, reviews: &known })
    }

    /// What the authorizer of a route says to a request; `None`: it has none.
    pub(super) fn consent(
        &self,
        route: usize,
        request: &Canonical<'_>,
        trace: Option<&Context>,
    ) -> Result<Option<Consent>, Barred> {
        let config = &self.running.config;
        let Some(at) = config.routes[route].authorizer else { return Ok(None) };
        let asked = &self.running.authorizers[at].authorizer;
        let about = About {
            request,
            fields: self.fields,
            forwarded: &self.peer.forwarded,
            logs_in: config.login.is_some(),
            trace,
        };
        if let Some(name) = ambiguous(asked.config(), self.fields) {
            return Err(Barred::Ambiguous(name.into()));
        }
        let key = asked.key(&about);
        let found = self.found.consents.iter().find(|(of, _)| *of == key);
        let (said, kept) = match found {
            Some((_, Ok(said))) => (said.clone(), false),
            Some((_, Err(Unknown))) => return Err(Barred::Unknown),
            None => match asked.peek(key, self.now) {
                Some(said) => (said, true),
                None => return Err(Barred::Unasked(Box::new(about.question(asked.config(), at, key)))),
            },
        };
        match &*said {
            Said::Allowed(_) => Ok(Some(Consent { authorizer: at, kept, said })),
            Said::Refused(_) => Err(Barred::Refused(said)),
        }
    }

    /// Exchanges the path where the route says so, with the consent of all whom the new one concerns.
    pub(super) fn rewritten<'r>(
        &self,
        permit: Permit<'r>,
        trace: Option<&Context>,
    ) -> Result<(Permit<'r>, Vec<Consent>), Barred> {
        let config = &self.running.config;
        let permit = passage::rewrite(config, permit, self.now.wall, &mut NoTrace);
        let (mut permit, mut agreed) = (permit.map_err(Barred::Denied)?, Vec::new());
        for other in passage::guards(config, &permit, self.fields).map_err(Barred::Disputed)? {
            let policy = &config.routes[other].policy;
            // The permit is used up by asking.
            let request = permit.request().clone();
            let confirmed =
                self.sit(other, &request, |court| permit.confirm(court, policy, self.now.wall, &mut NoTrace));
            permit = confirmed.map_err(Barred::Denied)?;
            // Whose word it is that the service gets is the first one's; this one only has to agree.
            agreed.extend(self.consent(other, permit.request(), trace)?);
        }
        Ok((permit, agreed))
    }
}
