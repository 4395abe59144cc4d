//! Cluster: fills the Kubernetes cluster of a topology while it starts.
//!
//! Owns: the values of the table `[cluster]`, and when the cluster is filled. Does not own: the
//! objects ([`lab_load::cluster`]).

use std::fmt;
use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::str::FromStr;

use lab_load::cluster::{ClusterSite, ClusterSize, FillError, Gauges, fill, settle};
use lab_load::load::{Protocol, Target, Trust};

use super::TopologyError;
use super::description::Cluster;
use super::running::Running;
use super::workdir::Workdir;

impl Running {
    /// Fills the cluster if this component is its API server.
    ///
    /// # Errors
    /// A value is invalid, the address is not one of this machine, or a write was refused.
    pub(super) fn fill_cluster(&self, component: &str, place: &Workdir) -> Result<(), TopologyError> {
        match &self.topology.cluster {
            Some(cluster) if cluster.after == component => {
                let site = self.cluster_site(cluster)?;
                fill(&site, &self.interrupt, &|line| place.report(line)).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// The cluster, when the status of all its objects is written. `None` if the topology has none.
    ///
    /// # Errors
    /// The gateway has no such metric, or does not finish.
    pub(crate) fn settled_cluster(&self, place: &Workdir) -> Result<Option<ClusterSite>, TopologyError> {
        let Some(cluster) = &self.topology.cluster else { return Ok(None) };
        let site = self.cluster_site(cluster)?;
        let gauges = Gauges { synced: cluster.synced.clone(), waiting: cluster.settled.clone() };
        settle(&site, &gauges, &self.interrupt, &|line| place.report(line)).map_err(failed)?;
        Ok(Some(site))
    }

    /// Checks the address of the service before anything starts.
    ///
    /// # Errors
    /// It is not one of this machine, or a loopback address.
    pub(super) fn check_cluster_address(&self) -> Result<(), TopologyError> {
        let Some(cluster) = &self.topology.cluster else { return Ok(()) };
        let address: IpAddr = self.cluster_value("address", &cluster.address)?;
        check_address(address)
            .map_err(|message| TopologyError::invalid_value(&self.topology.name, "cluster.address", message))
    }

    fn cluster_site(&self, cluster: &Cluster) -> Result<ClusterSite, TopologyError> {
        let wrong = |key: &str, message: String| {
            TopologyError::invalid_value(&self.topology.name, format!("cluster.{key}"), message)
        };
        let target = |key: &str, url: &str| {
            let url = self.fill(url)?;
            Target::new(&url, Protocol::Http1, Some(&Trust::AnyCertificate), None, None)
                .map_err(|error| wrong(key, error.to_string()))
        };
        let definitions = cluster.definitions.iter().map(|text| self.fill(text).map(PathBuf::from));
        Ok(ClusterSite {
            api: target("api", &cluster.api)?,
            token: self.fill(&cluster.token)?,
            definitions: definitions.collect::<Result<_, _>>()?,
            controller: self.fill(&cluster.controller)?,
            address: self.cluster_value("address", &cluster.address)?,
            service_port: self.cluster_value("service_port", &cluster.service_port)?,
            entry: self.entry_target(None, Protocol::Http1)?,
            port: self.cluster_value("port", &cluster.port)?,
            first_port: self.cluster_value("first_port", &cluster.first_port)?,
            metrics: target("metrics", &cluster.metrics)?,
            size: ClusterSize {
                gateways: self.cluster_value("gateways", &cluster.gateways)?,
                listener_sets: self.cluster_value("listener_sets", &cluster.listener_sets)?,
                routes: self.cluster_value("routes", &cluster.routes)?,
                notebooks: self.cluster_value("notebooks", &cluster.notebooks)?,
            },
        })
    }

    fn cluster_value<T: FromStr<Err: fmt::Display>>(
        &self,
        key: &str,
        text: &str,
    ) -> Result<T, TopologyError> {
        let text = self.fill(text)?;
        text.parse().map_err(|error: T::Err| {
            let place = format!("cluster.{key}");
            TopologyError::invalid_value(&self.topology.name, place, format!("`{text}`: {error}"))
        })
    }
}

/// Checks that an address is one of this machine, and one that an `EndpointSlice` may have.
fn check_address(address: IpAddr) -> Result<(), String> {
    if address.is_loopback() || address.is_unspecified() {
        return Err(format!("{address} is not allowed: an EndpointSlice has no loopback address"));
    }
    TcpListener::bind((address, 0)).map(drop).map_err(|error| {
        format!(
            "{address} is not an address of this machine ({error}); run the lab with `dev/lab-in-namespace COMMAND`, or set the variable `address` to one that is"
        )
    })
}

fn failed(error: FillError) -> TopologyError {
    match error {
        FillError::Interrupted => TopologyError::Interrupted,
        error => TopologyError::Cluster(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_used_is_named_with_the_remedy() {
        let check = |text: &str| check_address(text.parse().unwrap()).unwrap_err();
        assert!(check("127.0.0.1").contains("loopback"));
        assert!(check("::1").contains("loopback"));
        let other = check("203.0.113.77");
        assert!(other.contains("203.0.113.77") && other.contains("dev/lab-in-namespace"), "{other}");
    }
}
