//! Sessions that are kept here, as the login needs them. Who keeps them is the binary's to say.
//!
//! A store knows a session by a digest of what the browser holds, and its content sealed: whoever has a copy of the store can
//! neither present a session nor read one. All who serve the same origins share a store; what two of them want to change at
//! once is decided by one conditional statement there, never by looking first.

use std::pin::Pin;

use auth::time::Timestamp;

/// What a session, a person or a provider's session is found by: a SHA-256.
pub type Digest = [u8; 32];

/// An answer that has to be waited for.
pub type Answer<'s, T> = Pin<Box<dyn Future<Output = Result<T, StoreFault>> + Send + 's>>;

/// The store cannot be asked; what is in it nobody knows.
#[derive(Debug, Clone, thiserror::Error)]
#[error("sessions cannot be looked up: {0}")]
pub struct StoreFault(pub String);

/// A session as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Of what the browser holds.
    pub id: Digest,
    /// Of whom the session is, within their provider.
    pub subject: Digest,
    /// Of the provider's own session, when it told (`sid`, `OpenID` Connect Front-Channel Logout 1.0 section 3).
    pub sid: Option<Digest>,
    /// When somebody logged in.
    pub began: Timestamp,
    /// From when on it is over, whatever happens. Expired means `now >= ends`.
    pub ends: Timestamp,
    /// Grows by one with each change of `content`; begins with 0.
    pub version: u64,
    /// Everything else, sealed.
    pub content: Vec<u8>,
}

/// Whose sessions end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those of one session of the provider's.
    Sid(Digest),
    /// All of one person.
    Subject(Digest),
}

/// Keeps sessions. Every change is durable when it has been answered.
pub trait SessionStore: Send + Sync {
    /// Keeps a new one. Its `id` is random: there is none of that name yet.
    fn insert(&self, session: Kept) -> Answer<'_, ()>;

    /// The one of this name; `None`: there is none that has not ended at `now`.
    fn find(&self, id: Digest, now: Timestamp) -> Answer<'_, Option<Kept>>;

    /// Takes the right to refresh it until `until`: true for one at a time, and only while its version is this one. Who was
    /// given it and does not come back loses it then.
    fn claim(&self, id: Digest, version: u64, now: Timestamp, until: Timestamp) -> Answer<'_, bool>;

    /// Puts another content in the place of the one of this version, which becomes the next, and gives back the right to
    /// refresh. False: there is no session of this name and version.
    fn replace(&self, id: Digest, version: u64, content: Vec<u8>) -> Answer<'_, bool>;

    /// Gives the right to refresh back without a change, so that the next one can try.
    fn release(&self, id: Digest, version: u64) -> Answer<'_, ()>;

    /// Ends it, and gives back its content as it was last. `None`: there was none.
    fn remove(&self, id: Digest) -> Answer<'_, Option<Vec<u8>>>;

    /// Ends all of somebody that began at this time or before, and says which.
    fn remove_of(&self, whose: Whose, began: Timestamp) -> Answer<'_, Vec<Digest>>;

    /// Forgets, some at a time, those that have ended by themselves; returns how many.
    fn sweep(&self, now: Timestamp) -> Answer<'_, u64>;
}
