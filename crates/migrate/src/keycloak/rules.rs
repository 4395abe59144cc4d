//! Rules: what the configuration and the database accept. The caller knows them.

/// What is accepted where the result goes.
pub trait TargetRules: Sync {
    /// Most attributes of a provider.
    fn max_attributes(&self) -> usize;
    /// Most claims that a configuration maps for one client.
    fn max_claims(&self) -> usize;
    /// Whether no attribute may have this name.
    fn is_reserved_claim(&self, name: &str) -> bool;
    /// Why a redirect URI cannot be registered.
    fn redirect_fault(&self, uri: &str) -> Option<String>;
    /// Why a secret of a client would be refused if it was chosen now.
    fn secret_fault(&self, secret: &str) -> Option<String>;
    /// Why a password hash, as a PHC string, cannot be verified.
    fn password_fault(&self, phc: &str) -> Option<String>;
}
