//! Subject identifiers (OpenID Connect Core 1.0 §8): the `sub` and `sid` that a client receives.
//!
//! Owns: the type of a client's subjects, the sector of a client, pairwise identifiers and the
//! sealed revocation tags beside them.
//!
//! Does not own: the keys ([`crate::secrets`]), which tokens contain an identifier.
//!
//! A client with public subjects receives the ids of accounts and sessions. Clients with pairwise
//! subjects receive identifiers that differ from sector to sector, so that they cannot find out
//! together which of their users are the same. A pairwise identifier is the encryption of sector
//! and id: the provider opens it again and stores nothing. The ids stay what they are in the store
//! and in the revocation log. So that gateways can follow the log for such a token, it also
//! contains the tags that its ids have there, encrypted for holders of the revocation secret.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use crate::clock_rng::{Entropy, EntropyFailed};
use crate::secrets::{PairwiseKind, Secrets, TagSubject};

/// Bytes of a sector within an identifier.
const SECTOR_BYTES: usize = 16;
/// Longest name of a sector in bytes.
pub const MAX_SECTOR: usize = 253;

/// Type of the subjects that a client receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubjectType {
    /// The id of the account, the same for all clients.
    #[default]
    Public,
    /// An identifier that only the clients of one sector share.
    Pairwise,
}

impl SubjectType {
    /// Wire names, for `subject_types_supported`.
    pub const WIRE_NAMES: [&str; 2] = ["public", "pairwise"];

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
    pub(crate) fn is_public(&self) -> bool {
        *self == Self::Public
    }
}

/// Sector of a client (§8.1): clients of one sector receive the same identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sector([u8; SECTOR_BYTES]);

impl Sector {
    /// The sector with this name, a host.
    pub fn named(name: &str) -> Self {
        let digest = digest::digest(&digest::SHA256, name.to_ascii_lowercase().as_bytes());
        let mut sector = [0; SECTOR_BYTES];
        sector.copy_from_slice(&digest.as_ref()[..SECTOR_BYTES]);
        Self(sector)
    }

    fn identifier(self, secrets: &Secrets, kind: PairwiseKind, id: &str) -> String {
        secrets.pairwise(kind, &[&self.0, id.as_bytes()].concat())
    }
}

/// The `sub` or `sid` for a client of this sector; without a sector it is the id itself.
pub(crate) fn identifier(secrets: &Secrets, sector: Option<Sector>, kind: PairwiseKind, id: &str) -> String {
    sector.map_or_else(|| id.to_owned(), |sector| sector.identifier(secrets, kind, id))
}

/// Opens an identifier: the sector and the id. `None`: it is not a pairwise one of this provider.
pub(crate) fn open(secrets: &Secrets, kind: PairwiseKind, identifier: &str) -> Option<(Sector, String)> {
    let opened = secrets.open_pairwise(kind, identifier)?;
    let (sector, id) = opened.split_first_chunk::<SECTOR_BYTES>()?;
    Some((Sector(*sector), String::from_utf8(id.to_vec()).ok()?))
}

/// The id behind a `sub` or `sid` that the provider issued, pairwise or public.
pub(crate) fn id_of(secrets: &Secrets, kind: PairwiseKind, identifier: &str) -> String {
    open(secrets, kind, identifier).map_or_else(|| identifier.to_owned(), |(_, id)| id)
}

/// The revocation tags of a token that follow from ids which it does not contain, sealed for
/// holders of the revocation secret: claim `revocation_tags`.
///
/// # Errors
/// [`EntropyFailed`] when the random source or the encryption fails.
pub(crate) fn sealed_tags(
    secrets: &Secrets,
    (user_id, client_id, sid): (&str, &str, Option<&str>),
    entropy: &dyn Entropy,
) -> Result<String, EntropyFailed> {
    let subjects = [TagSubject::User(user_id), TagSubject::Consent(user_id, client_id)];
    let tags = subjects.into_iter().chain(sid.map(TagSubject::Session)).map(|subject| secrets.tag(subject));
    secrets.seal_tags(&tags.collect::<Vec<_>>(), entropy)
}

#[cfg(test)]
mod tests {
    use auth::sealing::SealingKey;
    use aws_lc_rs::rand::SystemRandom;
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    use coherence::tags::SEALED_TAGS;

    use super::*;

    fn secrets(byte: u8) -> Secrets {
        Secrets::new(&[byte; 32])
    }

    #[test]
    fn an_identifier_is_stable_in_its_sector_and_differs_between_sectors() {
        let secrets = secrets(1);
        let (a, b) = (Sector::named("a.example"), Sector::named("b.example"));
        let user = |sector: Sector, id| sector.identifier(&secrets, PairwiseKind::User, id);
        assert_eq!(user(a, "ada"), user(a, "ada"));
        assert_ne!(user(a, "ada"), user(b, "ada"));
        assert_ne!(user(a, "ada"), user(a, "bob"));
        assert_ne!(user(a, "ada"), a.identifier(&secrets, PairwiseKind::Session, "ada"));
        assert_ne!(user(a, "ada"), a.identifier(&self::secrets(2), PairwiseKind::User, "ada"));
        assert_eq!(a, Sector::named("A.Example"));
        let longest = "x".repeat(128);
        let longest = user(a, &longest);
        assert!(longest.len() <= 255 && longest.is_ascii(), "Core §2: at most 255 ascii characters");
    }

    #[test]
    fn only_its_provider_opens_an_identifier() {
        let secrets = secrets(1);
        let sector = Sector::named("a.example");
        let sub = sector.identifier(&secrets, PairwiseKind::User, "ada");
        assert_eq!(open(&secrets, PairwiseKind::User, &sub), Some((sector, "ada".into())));
        assert_eq!(id_of(&secrets, PairwiseKind::User, &sub), "ada");
        assert_eq!(open(&secrets, PairwiseKind::Session, &sub), None);
        assert_eq!(open(&self::secrets(2), PairwiseKind::User, &sub), None);
        for text in ["", "ada", "not base64 at all!", &sub[1..], &"A".repeat(80)] {
            assert_eq!(open(&secrets, PairwiseKind::User, text), None, "{text}");
            assert_eq!(id_of(&secrets, PairwiseKind::User, text), text);
        }
    }

    #[test]
    fn sealed_tags_do_not_show_that_two_tokens_are_of_one_user() {
        let (secrets, entropy) = (secrets(1), SystemRandom::new());
        let sealed = |client| sealed_tags(&secrets, ("ada", client, Some("s")), &entropy).unwrap();
        assert_ne!(sealed("shop"), sealed("shop"));
        // As a follower of the log opens it.
        let follower = secrets.shared_secret(&[1]).unwrap().tag_key();
        let key = SealingKey::new(&follower.derive_key(SEALED_TAGS));
        let plain = key.open(b"", &URL_SAFE_NO_PAD.decode(sealed("shop")).unwrap()).unwrap();
        let expected: Vec<u8> =
            [TagSubject::User("ada"), TagSubject::Consent("ada", "shop"), TagSubject::Session("s")]
                .into_iter()
                .flat_map(|subject| secrets.tag(subject).0)
                .collect();
        assert_eq!(*plain, expected);
    }
}
