//! Who else guards what stands behind an upstream.
//!
//! A route that takes a prefix off leads to paths that other routes of the same upstream may guard, for this
//! host or another one. [`Guards`] finds them, so that their policies can be asked too: what is behind a route's
//! prefix must not be a way around the rules in front of it. Does not own the policies.

use super::{Disputed, RouteMatch, RouteTable};
use crate::headers::Repeats;
use crate::policy::PolicyFault;
use crate::request::{Canonical, Field};

/// The routes of one upstream.
#[derive(Debug)]
pub struct Guards {
    table: RouteTable,
    /// Index of each of the table's routes among all routes.
    routes: Box<[usize]>,
}

impl Guards {
    /// From the routes of an upstream, each with its index among all.
    ///
    /// # Errors
    /// As [`RouteTable::build`]; routes that are sound among all are sound here.
    pub fn build(routes: impl IntoIterator<Item = (usize, RouteMatch)>) -> Result<Self, Vec<PolicyFault>> {
        let (routes, matches): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        Ok(Self { table: RouteTable::build(matches)?, routes: routes.into() })
    }

    /// The routes that guard the request's path: the one that takes it for its own host, and for each host
    /// that is not the request's the one that would take it there. Each is the most specific one, so that an
    /// exception within a guarded prefix stays one.
    ///
    /// # Errors
    /// When the readings of the path lead to different routes.
    pub fn of(&self, request: &Canonical<'_>, fields: &[Field<'_>]) -> Result<Vec<usize>, Disputed> {
        let mut found = self.table.elsewhere(request, fields)?;
        found.extend(self.table.lookup(request, fields, Repeats::Apart)?);
        for route in &mut found {
            *route = self.routes[*route];
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}
