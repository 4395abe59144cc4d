//! Guards: further routes that protect the paths behind an upstream.
//!
//! A route that strips a prefix leads to paths that other routes of the same upstream may protect,
//! for this host or another one. [`Guards`] finds those routes, so that their policies can be
//! checked too. Otherwise a stripped prefix would be a way around their rules. Does not own: the
//! policies.

use super::{AmbiguousRoute, RouteMatch, RouteTable, Scope};
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
    /// Builds the guards from the routes of an upstream, each with its index among all routes.
    ///
    /// # Errors
    /// As [`RouteTable::build`]; routes that are valid among all routes are valid here.
    pub fn build(routes: impl IntoIterator<Item = (usize, RouteMatch)>) -> Result<Self, Vec<PolicyFault>> {
        let (routes, matches): (Vec<_>, Vec<_>) = routes.into_iter().unzip();
        Ok(Self { table: RouteTable::build(matches)?, routes: routes.into() })
    }

    /// The routes that protect the request's path. For the request's own host that is the route
    /// that matches it; for each other host pattern, the route that would match it there. Each is
    /// the most specific one, so that an exception within a protected prefix is kept.
    ///
    /// # Errors
    /// [`AmbiguousRoute`] when the readings of the path lead to different routes.
    pub fn for_request(
        &self,
        request: &Canonical<'_>,
        fields: &[Field<'_>],
    ) -> Result<Vec<usize>, AmbiguousRoute> {
        let mut found = self.table.on_other_hosts(request, fields)?;
        found.extend(self.table.lookup(Scope::FILE, request, fields, Repeats::Separate)?);
        for route in &mut found {
            *route = self.routes[*route];
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}
