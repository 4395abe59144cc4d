//! Balance: which endpoint receives a request.
//!
//! Owns: the order of preference among the endpoints of a pool: health, then requests in flight in
//! proportion to the weight, then turns. Does not own: when an endpoint is ejected
//! ([`super::endpoint_state`]).

use std::cell::Cell;
use std::rc::Rc;

use super::endpoint_state::EndpointState;
use super::endpoints::Health;
use super::rendezvous::score;

/// One turn of an endpoint with weight 1. Weights are at most 1000, so the division loses little.
const TURN: u64 = 1 << 20;

/// Whose turn it is among equally loaded endpoints.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// Position for round robin.
    next: Cell<usize>,
    /// Whether weights differ, so that turns are weighted.
    weighted: Cell<bool>,
    /// Start of the latest weighted turn. An endpoint that was busy or ejected continues here: it
    /// must not receive all turns that it missed at once.
    turn: Cell<u64>,
}

impl Position {
    /// Begins with these endpoints.
    pub(super) fn begin(&self, endpoints: &[Rc<EndpointState>]) {
        self.weighted.set(endpoints.windows(2).any(|two| two[0].weight != two[1].weight));
    }

    /// Notes that an endpoint receives a request.
    pub(super) fn used(&self, at: usize, endpoint: &EndpointState) {
        self.next.set(at + 1);
        if self.weighted.get() {
            let begin = self.turn_of(endpoint);
            self.turn.set(begin);
            endpoint.turn.set(begin + TURN / u64::from(endpoint.weight.max(1)));
        }
    }

    /// Start of the next weighted turn of an endpoint.
    fn turn_of(&self, endpoint: &EndpointState) -> u64 {
        endpoint.turn.get().max(self.turn.get())
    }
}

/// Whether requests may be sent to the endpoint at all. An endpoint that fails its health checks is
/// known not to work, so it receives none, even if all others fail too.
fn may_receive(endpoint: &EndpointState) -> bool {
    endpoint.weight > 0 && endpoint.health.get() != Health::Unhealthy
}

/// Index of the endpoint with the fewest requests in flight, in proportion to its weight, among
/// those neither tried nor ejected. Endpoints that are not checked yet come after healthy ones. If
/// all are ejected, the one whose ejection ends first: trying it is better than a certain refusal.
/// `None`: no other may receive requests.
///
/// With `affinity`, the hash of a client, the client's own endpoint comes first among equally
/// healthy ones: that with the highest score (rendezvous hashing). A change of the endpoints moves
/// only the clients of endpoints that are gone, and those that a new endpoint receives.
pub(super) fn choose(
    endpoints: &[Rc<EndpointState>],
    position: &Position,
    affinity: Option<u64>,
    tried: &[Rc<EndpointState>],
) -> Option<usize> {
    if let [only] = endpoints {
        return (may_receive(only) && tried.is_empty()).then_some(0);
    }
    let now = endpoints.first()?.pool.deadlines.now_millis();
    let first = position.next.get() % endpoints.len();
    let order = (first..endpoints.len()).chain(0..first).filter(|at| {
        let endpoint = &endpoints[*at];
        may_receive(endpoint) && !tried.iter().any(|tried| Rc::ptr_eq(tried, endpoint))
    });
    let load = |at: usize| {
        let endpoint = &endpoints[at];
        if position.weighted.get() {
            let requests = endpoint.in_flight.get() as u64;
            let load = requests * TURN / u64::from(endpoint.weight);
            (endpoint.health.get(), load, position.turn_of(endpoint))
        } else {
            (endpoint.health.get(), endpoint.in_flight.get() as u64, 0)
        }
    };
    let in_use = order.clone().filter(|at| endpoints[*at].ejected_until.get() <= now);
    let chosen = match affinity {
        None => in_use.min_by_key(|at| load(*at)),
        Some(client) => in_use.min_by(|one, other| {
            let (one, other) = (&endpoints[*one], &endpoints[*other]);
            let of = |endpoint: &EndpointState| score(client, endpoint.hash, endpoint.weight);
            let by_score = || of(other).total_cmp(&of(one));
            one.health.get().cmp(&other.health.get()).then_with(by_score)
        }),
    };
    chosen.or_else(|| order.min_by_key(|at| endpoints[*at].ejected_until.get()))
}
