//! Clients: the programs that may ask for tokens.
//!
//! Owns: what a client is and may have ([`Client`]), the set of them ([`Registry`]), their secrets
//! ([`secret`]) and how they prove themselves ([`mod@authenticate`]).
//! Does not own: where clients are configured ([`crate::config`]) or what a grant makes of their rights
//! ([`crate::grants`]).

pub mod authenticate;
pub mod secret;

use std::{collections::HashMap, time::Duration};

use self::secret::{SecretDigest, SecretDigests};
use crate::{
    grants::GrantType,
    oauth::{
        error::Fault,
        form::Form,
        scope::ScopeSet,
        target::{self, MAX_TARGETS},
    },
};

/// A registered client; every value is checked (see [`crate::Config::check`]).
#[derive(Debug)]
pub struct Client {
    pub(crate) id: Box<str>,
    pub(crate) secrets: SecretDigests,
    pub(crate) grants: Vec<GrantType>,
    pub(crate) scopes: ScopeSet,
    pub(crate) default_scopes: ScopeSet,
    pub(crate) audiences: Vec<Box<str>>,
    pub(crate) groups: Vec<Box<str>>,
    pub(crate) access_token_lifetime: Duration,
}

impl Client {
    /// `client_id`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Groups its access tokens carry.
    pub fn groups(&self) -> &[Box<str>] {
        &self.groups
    }

    /// How long its access tokens live: whole seconds.
    pub fn access_token_lifetime(&self) -> Duration {
        self.access_token_lifetime
    }

    /// Whether the client may use a grant.
    pub fn may_use(&self, grant: GrantType) -> bool {
        self.grants.contains(&grant)
    }

    /// The scopes for a request with this `scope` parameter (RFC 6749 §3.3): all that were asked for, or the
    /// configured default when none were. Never fewer than asked: a caller should learn at once that it
    /// lacks a right, not when its call fails.
    pub fn scopes_for(&self, requested: Option<&str>) -> Result<ScopeSet, Fault> {
        let Some(requested) = requested else { return Ok(self.default_scopes.clone()) };
        let asked = ScopeSet::parse(requested)?;
        match asked.first_outside(&self.scopes) {
            Some(scope) => Err(Fault::ScopeNotAllowed(scope.into())),
            None => Ok(asked),
        }
    }

    /// The audiences for a request: its `resource` (RFC 8707 §2) and `audience` parameters, each once, all of
    /// which the client must have; without any the client's first (RFC 9068 §3 asks for a default).
    pub fn audiences_for(&self, form: &Form) -> Result<Vec<&str>, Fault> {
        let mut targets: Vec<&str> = Vec::new();
        let resources = form.all("resource").map(|r| (r, target::is_resource(r)));
        let audiences = form.all("audience").map(|a| (a, target::is_audience(a)));
        for (named, well_formed) in resources.chain(audiences) {
            if !well_formed {
                return Err(Fault::TargetMalformed);
            }
            let Some(own) = self.audiences.iter().find(|a| a.as_ref() == named) else {
                return Err(Fault::TargetNotAllowed(named.into()));
            };
            if !targets.contains(&own.as_ref()) {
                targets.push(own);
            }
            if targets.len() > MAX_TARGETS {
                return Err(Fault::TargetsTooMany);
            }
        }
        if targets.is_empty() {
            targets.extend(self.audiences.first().map(AsRef::as_ref));
        }
        Ok(targets)
    }
}

/// All clients, by id.
#[derive(Debug)]
pub struct Registry {
    clients: HashMap<Box<str>, Client>,
    decoy: SecretDigests,
}

impl Registry {
    /// A registry; ids are unique (the configuration check saw to it; of two, the later one stays).
    pub(crate) fn new(clients: impl IntoIterator<Item = Client>) -> Self {
        let clients = clients.into_iter().map(|client| (client.id.clone(), client)).collect();
        Self { clients, decoy: SecretDigests::decoy() }
    }

    /// How many clients there are.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// The client with this id and secret. An unknown id costs the same cryptography as a wrong secret: one
    /// digest and two comparisons.
    pub(crate) fn verify(&self, id: &str, secret: &str) -> Result<&Client, Fault> {
        let client = self.clients.get(id);
        let presented = SecretDigest::of_presented(secret);
        let accepted = client.map_or(&self.decoy, |c| &c.secrets).accept(&presented);
        match client {
            None => Err(Fault::client_unknown(id)),
            Some(_) if !accepted => Err(Fault::ClientSecretWrong(id.into())),
            Some(client) => Ok(client),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(audiences: usize) -> Client {
        Client {
            id: "orders".into(),
            secrets: SecretDigests::decoy(),
            grants: vec![],
            scopes: ScopeSet::default(),
            default_scopes: ScopeSet::default(),
            audiences: (0..audiences).map(|i| format!("urn:{i}").into()).collect(),
            groups: vec![],
            access_token_lifetime: Duration::from_secs(1),
        }
    }

    #[test]
    fn one_request_names_a_few_targets() {
        let client = client(MAX_TARGETS + 1);
        let ask = |n: usize| {
            let body: Vec<String> = (0..n).map(|i| format!("resource=urn:{i}&audience=urn:{i}")).collect();
            client.audiences_for(&Form::parse(body.join("&").as_bytes()).unwrap()).map(|t| t.len())
        };
        assert_eq!(ask(0), Ok(1), "the default");
        assert_eq!(ask(MAX_TARGETS), Ok(MAX_TARGETS), "each once");
        assert_eq!(ask(MAX_TARGETS + 1), Err(Fault::TargetsTooMany));
    }

    #[test]
    fn the_decoy_lets_nobody_in() {
        let registry = Registry::new([client(1)]);
        assert_eq!(registry.len(), 1);
        for secret in ["", "orders", "\0"] {
            assert_eq!(
                registry.verify("nobody", secret).map(Client::id),
                Err(Fault::client_unknown("nobody"))
            );
        }
    }
}
