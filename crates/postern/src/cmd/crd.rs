//! `postern crd`: prints the definition of the kind AccessPolicy for a Kubernetes cluster.

use std::io;

use crate::exit::{Failure, Outcome};

/// Arguments of `postern crd`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Example:
  postern crd > accesspolicies.yaml     then: kubectl apply --server-side -f accesspolicies.yaml

The definitions of the Gateway API are not part of it. `kubectl explain accesspolicy.spec.defaults`
shows the fields of a policy.

Exit codes: 0 success, 2 the command line is invalid, 3 standard output cannot be written.")]
pub struct Arguments {}

/// Runs `postern crd`.
pub fn run(_: &Arguments) -> Result<Outcome, Failure> {
    let text = cluster::crd::text().map_err(Failure::new)?;
    match io::Write::write_all(&mut io::stdout(), text.as_bytes()) {
        // The reader has what it wants.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Outcome::Success),
        Err(error) => Err(Failure::new(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(Outcome::Success),
    }
}
