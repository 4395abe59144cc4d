//! Destinations: the upstreams that a route's requests and their copies go to.
//!
//! Owns: the choice of one of several upstreams by weight, and the share of requests that a mirror
//! gets; what a route says of retries. Does not own: randomness and the client's hash, which are arguments; endpoints
//! ([`http_engine::upstream`]).

use std::time::Duration;

use super::{RequestHeaders, ResponseHeaders, Route};

/// Where the requests of a route go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// To one upstream: index into [`super::Config::upstreams`].
    One(usize),
    /// Each to one of several.
    Weighted(WeightedUpstreams),
}

/// Upstreams with weights. Each request goes to one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedUpstreams {
    entries: Box<[WeightedUpstream]>,
    /// Sum of the weights.
    total: u64,
}

/// One of several upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedUpstream {
    /// Its share of the requests is this number divided by the sum over all entries; 0: none.
    pub weight: u32,
    /// Where its requests go.
    pub target: WeightedTarget,
    /// Changes of the fields of its requests, those of the route included; `None`: those of the
    /// route.
    pub request_headers: Option<RequestHeaders>,
    /// Changes of the fields of its responses, those of the route included; `None`: those of the
    /// route.
    pub response_headers: Option<ResponseHeaders>,
}

/// Where the share of requests goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightedTarget {
    /// To an upstream: index into [`super::Config::upstreams`].
    Upstream(usize),
    /// Nowhere: they are refused with this status. An `HTTPRoute` with an invalid backend owes its
    /// share of the requests a 500.
    Refused(u16),
}

/// The destination of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenDestination {
    /// An upstream, and the index of its entry if there are several.
    Upstream(usize, Option<usize>),
    /// A refusal with this status.
    Refused(u16),
}

/// Status of a request that no entry takes, because all weights are 0.
const NO_BACKEND: u16 = 500;

impl Destination {
    /// Several upstreams with weights.
    pub fn weighted(entries: Vec<WeightedUpstream>) -> Self {
        let total = entries.iter().map(|entry| u64::from(entry.weight)).sum();
        Self::Weighted(WeightedUpstreams { entries: entries.into(), total })
    }

    /// The upstream, if there is only one.
    pub fn single(&self) -> Option<usize> {
        match self {
            Self::One(upstream) => Some(*upstream),
            Self::Weighted(_) => None,
        }
    }

    /// Every upstream that a request may go to, whatever its weight.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        let several = self.entries().iter().filter_map(|entry| match entry.target {
            WeightedTarget::Upstream(upstream) => Some(upstream),
            WeightedTarget::Refused(_) => None,
        });
        self.single().into_iter().chain(several)
    }

    /// The entries of several upstreams; empty if there is only one.
    pub fn entries(&self) -> &[WeightedUpstream] {
        match self {
            Self::One(_) => &[],
            Self::Weighted(several) => &several.entries,
        }
    }

    /// The destination of a request. `point` is called only if there are several: a number that is
    /// random, or the same for every request of a client. If weights change, only as many clients
    /// move as the boundaries between the shares do.
    pub fn choose(&self, point: impl FnOnce() -> u64) -> ChosenDestination {
        let several = match self {
            Self::One(upstream) => return ChosenDestination::Upstream(*upstream, None),
            Self::Weighted(several) => several,
        };
        let mut rest = scaled(point(), several.total);
        for (index, entry) in several.entries.iter().enumerate() {
            if rest < u64::from(entry.weight) {
                return match entry.target {
                    WeightedTarget::Upstream(upstream) => ChosenDestination::Upstream(upstream, Some(index)),
                    WeightedTarget::Refused(status) => ChosenDestination::Refused(status),
                };
            }
            rest -= u64::from(entry.weight);
        }
        ChosenDestination::Refused(NO_BACKEND)
    }
}

/// Maps a number that is uniform over all 64-bit values to one below `limit`.
fn scaled(point: u64, limit: u64) -> u64 {
    let wide = u128::from(point) * u128::from(limit);
    u64::try_from(wide >> 64).unwrap_or(u64::MAX)
}

/// A further upstream that gets copies of requests. Its responses are discarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorConfig {
    /// Index into [`super::Config::upstreams`].
    pub upstream: usize,
    /// The share of requests that are copied.
    pub share: MirrorShare,
    /// Maximum bytes of a request's body that the mirror may lag behind. Default 256 KiB.
    pub buffer: usize,
}

/// A share of requests, from none to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MirrorShare {
    /// At most the denominator.
    pub numerator: u32,
    /// At least 1.
    pub denominator: u32,
}

impl MirrorShare {
    /// All requests.
    pub const ALL: Self = Self { numerator: 1, denominator: 1 };

    /// Whether a request belongs to the share. `random` is a uniform random number, which is drawn
    /// only if the share is neither none nor all.
    pub fn takes(self, random: impl FnOnce() -> u64) -> bool {
        self.numerator >= self.denominator
            || self.numerator > 0 && scaled(random(), self.denominator.into()) < self.numerator.into()
    }
}

/// Retries of a route, in place of those of its upstreams. The budget of the upstream stays, and a
/// request is repeated only if it may be sent twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRetries {
    /// Attempts after the first.
    pub retries: u32,
    /// Statuses of responses that are dropped for another attempt.
    pub on_statuses: Box<[u16]>,
    /// Pause before the second attempt, doubled each time. `None`: 25 ms, and only before an endpoint
    /// that was tried.
    pub backoff: Option<Duration>,
}

impl Route {
    /// The authorizers that must agree, in the order in which they are queried.
    pub fn authorizers(&self) -> impl Iterator<Item = usize> {
        self.authorizer.into_iter().chain(self.external_auth)
    }

    /// Whether an authorizer must agree.
    pub fn has_authorizer(&self) -> bool {
        self.authorizers().next().is_some()
    }

    /// Every upstream that may receive a request of the route, or a copy of it.
    pub fn reached_upstreams(&self) -> impl Iterator<Item = usize> {
        let mirrors = self.mirrors.iter().map(|mirror| mirror.upstream);
        self.destination.iter().flat_map(Destination::upstreams).chain(mirrors)
    }

    /// The entries among several upstreams; empty if there is only one.
    fn entries(&self) -> &[WeightedUpstream] {
        self.destination.as_ref().map_or(&[], Destination::entries)
    }

    /// The changes of request fields for an entry among several upstreams, or for the only one.
    pub fn request_headers_of(&self, entry: Option<usize>) -> Option<&RequestHeaders> {
        let own = entry.and_then(|entry| self.entries().get(entry)?.request_headers.as_ref());
        own.or(self.request_headers.as_ref())
    }

    /// The changes of response fields of an entry among several upstreams, if it has its own.
    pub(crate) fn response_headers_of(&self, entry: usize) -> Option<&ResponseHeaders> {
        self.entries().get(entry)?.response_headers.as_ref()
    }

    /// All changes of request fields that may apply.
    pub(crate) fn every_request_headers(&self) -> impl Iterator<Item = &RequestHeaders> {
        let entries = self.entries().iter().filter_map(|entry| entry.request_headers.as_ref());
        self.request_headers.iter().chain(entries)
    }

    /// All changes of response fields that may apply.
    pub(crate) fn every_response_headers(&self) -> impl Iterator<Item = &ResponseHeaders> {
        let entries = self.entries().iter().filter_map(|entry| entry.response_headers.as_ref());
        self.response_headers.iter().chain(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(weight: u32, target: WeightedTarget) -> WeightedUpstream {
        WeightedUpstream { weight, target, request_headers: None, response_headers: None }
    }

    /// The middles of equal parts of the whole range.
    fn points(count: u64) -> impl Iterator<Item = u64> {
        (0..count).map(move |n| (2 * n + 1) * (u64::MAX / (2 * count)))
    }

    #[test]
    fn each_upstream_gets_its_share() {
        let several = Destination::weighted(vec![
            entry(7, WeightedTarget::Upstream(4)),
            entry(0, WeightedTarget::Upstream(5)),
            entry(2, WeightedTarget::Upstream(6)),
            entry(1, WeightedTarget::Refused(503)),
        ]);
        let chosen: Vec<_> = points(1000).map(|point| several.choose(|| point)).collect();
        let count = |destination| chosen.iter().filter(|chosen| **chosen == destination).count();
        assert_eq!(count(ChosenDestination::Upstream(4, Some(0))), 700);
        assert_eq!(count(ChosenDestination::Upstream(5, Some(1))), 0);
        assert_eq!(count(ChosenDestination::Upstream(6, Some(2))), 200);
        assert_eq!(count(ChosenDestination::Refused(503)), 100);
        assert_eq!(several.upstreams().collect::<Vec<_>>(), [4, 5, 6]);
        assert_eq!(several.choose(|| u64::MAX), ChosenDestination::Refused(503));
    }

    #[test]
    fn without_any_weight_every_request_is_refused() {
        let none = Destination::weighted(vec![entry(0, WeightedTarget::Upstream(1))]);
        assert!(points(10).all(|point| none.choose(|| point) == ChosenDestination::Refused(500)));
        let none = Destination::weighted(Vec::new());
        assert_eq!(none.choose(|| 0), ChosenDestination::Refused(500));
    }

    #[test]
    fn one_upstream_needs_no_number() {
        let one = Destination::One(3);
        assert_eq!(one.choose(|| unreachable!()), ChosenDestination::Upstream(3, None));
        assert_eq!((one.single(), one.upstreams().collect::<Vec<_>>()), (Some(3), vec![3]));
    }

    #[test]
    fn a_changed_weight_moves_only_its_share_of_the_clients() {
        let weights = |first, second| {
            Destination::weighted(vec![
                entry(first, WeightedTarget::Upstream(0)),
                entry(second, WeightedTarget::Upstream(1)),
            ])
        };
        let (before, after) = (weights(90, 10), weights(80, 20));
        let moved = points(1000).filter(|point| before.choose(|| *point) != after.choose(|| *point));
        assert_eq!(moved.count(), 100);
    }

    #[test]
    fn a_mirror_takes_its_share() {
        let taken = |numerator, denominator| {
            let share = MirrorShare { numerator, denominator };
            points(1000).filter(|point| share.takes(|| *point)).count()
        };
        assert_eq!((taken(20, 100), taken(1, 2), taken(5, 1000), taken(0, 100)), (200, 500, 5, 0));
        assert!(MirrorShare::ALL.takes(|| unreachable!()));
    }
}
