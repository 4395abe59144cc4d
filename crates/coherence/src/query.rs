//! Query: a direct question to one node of an authority, and the answer that is bound to that
//! question.
//!
//! A consumer admits requests because of these answers. So no attacker between it and the authority
//! can forge an answer, keep one for later, use it for another question, or leave something out: an
//! answer that does not verify is dropped.
//!
//! Owns: the two questions, the format of questions and answers, and the MAC that binds an answer
//! to its question. Also a copy of the denylist that is read page by page ([`DenylistCopier`]).
//! Does not own: the transport (HTTP, in the binary), who may ask, or what happens with an answer
//! ([`crate::revocation_query`], [`crate::denylist`]).
//!
//! ```text
//! query:  version 1 | kind 1 | nonce 16 | kind 1, which of these are denied: count 4, tags 16 each
//!                                       | kind 2, what is denied after a tag: flag 1, tag 16
//! answer: version 1 | kind 1 | key 1 | MAC 16 | head: epoch 16, seq 8 | more 1 | count 4,
//!         of each: tag 16, flag 1, not before 8, until 8
//! ```
//!
//! Numbers are big-endian. The MAC is one of [`Keys`] in a context of its own, over: the
//! authority's name after its length, the query, and the answer without the MAC. Each part has a
//! fixed length or states it, so no two questions and answers have one encoding. The nonce is drawn
//! at random for each query: a recorded answer fits no other query.

use crate::denylist::{Denylist, DenylistEntry};
use crate::log_types::{LogHead, Nonce, PeerName, Tag};
use crate::mutation::{self, Mutation};
use crate::wire::{Keys, MAC_BYTES, Reader, VERSION, WireError, put_head, put_name};

/// Separates this use of a key from every other.
const CONTEXT: &[u8] = b"postern coherence answer\0";
/// Version and kind.
const PREFIX: usize = 2;
const NONCE: usize = 16;
/// Epoch and sequence number.
const HEAD_BYTES: usize = 24;
/// Length of one denylist entry, in bytes.
const ENTRY_BYTES: usize = Tag::LENGTH + 1 + 8 + 8;

/// What a query asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogQuestion {
    /// Asks which of these tags are denied.
    Tags(Vec<Tag>),
    /// Asks for one page of the denylist: what is denied after this tag, in the order of tags.
    DenylistPage {
        /// Last tag of the page before; `None`: from the beginning.
        after: Option<Tag>,
    },
}

/// A question to one node, with the nonce that binds the answer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// Name of the authority whose log is meant, after its length.
    authority: Vec<u8>,
    question: LogQuestion,
    bytes: Vec<u8>,
}

/// The answer of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogAnswer {
    /// How far the log had got before the rest was read.
    pub head: LogHead,
    /// What is denied of what was asked about.
    pub denied: Vec<(Tag, DenylistEntry)>,
    /// Whether there is more after the last of them.
    pub more: bool,
}

impl LogQuery {
    /// A question about the log of this authority. The nonce is random: an attacker who could guess
    /// it could obtain the answer in advance.
    pub fn new(authority: &PeerName, nonce: Nonce, question: LogQuestion) -> Self {
        let mut bytes = vec![VERSION, question.kind()];
        bytes.extend(nonce.0);
        question.write(&mut bytes);
        Self { authority: Self::encode_name(authority), question, bytes }
    }

    /// Reads a query about the log of this authority.
    ///
    /// # Errors
    /// [`WireError::Version`] when the version is another one, and [`WireError::Malformed`] when
    /// the bytes are not a query.
    pub fn read(authority: &PeerName, bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader(bytes);
        let version = from.byte().ok_or(WireError::Malformed)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let question = LogQuestion::read(&mut from).filter(|_| from.0.is_empty());
        let question = question.ok_or(WireError::Malformed)?;
        Ok(Self { authority: Self::encode_name(authority), question, bytes: bytes.to_vec() })
    }

    fn encode_name(authority: &PeerName) -> Vec<u8> {
        let mut name = Vec::new();
        put_name(&mut name, authority);
        name
    }

    /// The question that is asked.
    pub fn question(&self) -> &LogQuestion {
        &self.question
    }

    /// The nonce, which identifies this query.
    pub fn nonce(&self) -> Nonce {
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&self.bytes[PREFIX..PREFIX + NONCE]);
        Nonce(nonce)
    }

    /// The query as bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The answer as bytes, which only this query accepts.
    pub fn seal(&self, answer: &LogAnswer, keys: &Keys) -> Vec<u8> {
        let body = answer.write();
        let prefix = [VERSION, self.question.kind(), keys.number()];
        let mac = keys.sign(CONTEXT, &self.mac_input(&prefix, &body));
        [&prefix[..], &mac, &body].concat()
    }

    /// Verifies and reads the answer to this query.
    ///
    /// # Errors
    /// [`WireError`] when the bytes are not an answer to this query.
    pub fn open(&self, bytes: &[u8], keys: &Keys) -> Result<LogAnswer, WireError> {
        let mut from = Reader(bytes);
        let prefix: [u8; 3] = from.take().ok_or(WireError::Malformed)?;
        let [version, kind, number] = prefix;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if kind != self.question.kind() {
            return Err(WireError::Malformed);
        }
        let mac: [u8; MAC_BYTES] = from.take().ok_or(WireError::Malformed)?;
        if from.0.len() <= HEAD_BYTES {
            return Err(WireError::Malformed);
        }
        if !mutation::is_active(Mutation::AnswerMac) {
            keys.verify(number, CONTEXT, &self.mac_input(&prefix, from.0), &mac)?;
        }
        LogAnswer::read(&mut from).filter(|_| from.0.is_empty()).ok_or(WireError::Malformed)
    }

    /// The parts that the MAC covers; `answer` is longer than a head.
    fn mac_input<'a>(&'a self, prefix: &'a [u8; 3], answer: &'a [u8]) -> [&'a [u8]; 8] {
        let (kind, body) = self.bytes.split_at(PREFIX);
        let (nonce, question) = body.split_at(NONCE);
        let (head, rest) = answer.split_at(HEAD_BYTES);
        let (more, denied) = rest.split_at(1);
        [
            &self.authority,
            kind,
            unless_mutated(Mutation::AnswerNonce, nonce),
            unless_mutated(Mutation::AnswerQuestion, question),
            prefix,
            unless_mutated(Mutation::AnswerHead, head),
            unless_mutated(Mutation::AnswerMore, more),
            unless_mutated(Mutation::AnswerDenied, denied),
        ]
    }
}

/// The part, or nothing under a mutation. Release builds leave nothing out.
fn unless_mutated(mutation: Mutation, part: &[u8]) -> &[u8] {
    if mutation::is_active(mutation) { &[] } else { part }
}

impl LogQuestion {
    fn kind(&self) -> u8 {
        match self {
            Self::Tags(_) => 1,
            Self::DenylistPage { .. } => 2,
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Tags(tags) => {
                put_count(to, tags.len());
                to.extend(tags.iter().flat_map(|tag| tag.0));
            }
            Self::DenylistPage { after } => {
                to.push(u8::from(after.is_some()));
                to.extend(after.map_or([0; Tag::LENGTH], |tag| tag.0));
            }
        }
    }

    /// Reads the question from a whole query, after its version.
    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (kind, _nonce): (_, [u8; NONCE]) = (from.byte()?, from.take()?);
        match kind {
            1 => {
                let count = from.count(Tag::LENGTH)?;
                (0..count).map(|_| from.take().map(Tag)).collect::<Option<_>>().map(Self::Tags)
            }
            2 => {
                let (begun, tag) = (from.flag()?, from.take()?);
                Some(Self::DenylistPage { after: begun.then_some(Tag(tag)) })
            }
            _ => None,
        }
    }
}

impl LogAnswer {
    fn write(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(HEAD_BYTES + 5 + self.denied.len() * ENTRY_BYTES);
        put_head(&mut to, self.head);
        to.push(u8::from(self.more));
        put_count(&mut to, self.denied.len());
        for (tag, DenylistEntry { not_before, until }) in &self.denied {
            to.extend(tag.0);
            to.push(u8::from(not_before.is_some()));
            to.extend(not_before.unwrap_or_default().to_be_bytes());
            to.extend(until.to_be_bytes());
        }
        to
    }

    fn read(from: &mut Reader<'_>) -> Option<Self> {
        let (head, more) = (from.head()?, from.flag()?);
        let count = from.count(ENTRY_BYTES)?;
        let denied = (0..count).map(|_| {
            let (tag, limited, not_before, until) =
                (from.take()?, from.flag()?, from.millis()?, from.millis()?);
            Some((Tag(tag), DenylistEntry { not_before: limited.then_some(not_before), until }))
        });
        let denied = denied.collect::<Option<_>>()?;
        Some(Self { head, denied, more })
    }
}

fn put_count(to: &mut Vec<u8>, count: usize) {
    // No question and no answer comes near that many.
    to.extend(u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
}

/// A copy of the denylist, read page by page. It continues where it was when an answer failed.
#[derive(Debug, Default)]
pub struct DenylistCopier {
    /// The lowest head of the pages: what the whole copy includes at least.
    head: Option<LogHead>,
    after: Option<Tag>,
}

/// State of a copy after a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyProgress {
    /// There are more pages.
    More,
    /// The copy is complete, as of this head at least.
    Complete(LogHead),
    /// The log has another epoch now, or the page is invalid: the copy must begin again.
    Invalid,
}

impl DenylistCopier {
    /// Question for the next page.
    pub fn question(&self) -> LogQuestion {
        LogQuestion::DenylistPage { after: self.after }
    }

    /// Tag after which the next page begins.
    pub fn after(&self) -> Option<Tag> {
        self.after
    }

    /// Applies the next page.
    pub fn add_page(&mut self, answer: LogAnswer, denials: &Denylist) -> CopyProgress {
        let LogAnswer { head, denied, more } = answer;
        let known = self.head.unwrap_or(head);
        let last = denied.last().map(|(tag, _)| *tag);
        if known.epoch != head.epoch || more && last <= self.after {
            return CopyProgress::Invalid;
        }
        // The nodes that answer different pages may have read different heads.
        let seq = if mutation::is_active(Mutation::StalePage) { known.seq } else { known.seq.min(head.seq) };
        let known = *self.head.insert(LogHead { seq, ..head });
        for (tag, denial) in denied {
            denials.add(tag, denial);
        }
        self.after = last.or(self.after);
        if more { CopyProgress::More } else { CopyProgress::Complete(known) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log_types::Epoch;
    use crate::wire::Message;

    fn keys() -> Keys {
        Keys::single(1, &[1; 32])
    }

    fn name() -> PeerName {
        PeerName::new("main").expect("a name")
    }

    fn tag() -> impl Strategy<Value = Tag> {
        any::<[u8; 16]>().prop_map(Tag)
    }

    fn question() -> impl Strategy<Value = LogQuestion> {
        prop_oneof![
            prop::collection::vec(tag(), 0..20).prop_map(LogQuestion::Tags),
            prop::option::of(tag()).prop_map(|after| LogQuestion::DenylistPage { after }),
        ]
    }

    fn query() -> impl Strategy<Value = LogQuery> {
        (any::<[u8; 16]>(), question())
            .prop_map(|(nonce, question)| LogQuery::new(&name(), Nonce(nonce), question))
    }

    fn answer() -> impl Strategy<Value = LogAnswer> {
        let denied = (tag(), any::<Option<i64>>(), any::<i64>())
            .prop_map(|(tag, not_before, until)| (tag, DenylistEntry { not_before, until }));
        (any::<[u8; 16]>(), any::<u64>(), prop::collection::vec(denied, 0..20), any::<bool>()).prop_map(
            |(epoch, seq, denied, more)| LogAnswer {
                head: LogHead { epoch: Epoch(epoch), seq },
                denied,
                more,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_asked_and_answered_is_read(query in query(), answer in answer()) {
            prop_assert_eq!(LogQuery::read(&name(), query.bytes()), Ok(query.clone()));
            prop_assert_eq!(query.open(&query.seal(&answer, &keys()), &keys()), Ok(answer));
        }

        #[test]
        fn an_answer_fits_no_other_question(one in query(), other in query(), answer in answer()) {
            prop_assume!(one != other);
            prop_assert!(other.open(&one.seal(&answer, &keys()), &keys()).is_err());
            let elsewhere = LogQuery { authority: LogQuery::encode_name(&PeerName::new("other").expect("a name")), ..one.clone() };
            prop_assert!(elsewhere.open(&one.seal(&answer, &keys()), &keys()).is_err());
        }

        #[test]
        fn no_bit_of_an_answer_may_differ(
            query in query(), answer in answer(), at in any::<prop::sample::Index>(), bit in 0..8,
        ) {
            let mut bytes = query.seal(&answer, &keys());
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(query.open(&bytes, &keys()).is_err());
        }

        #[test]
        fn nothing_may_be_cut_off_an_answer_or_added(
            query in query(), answer in answer(), cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = query.seal(&answer, &keys());
            prop_assert!(query.open(&bytes[..cut.index(bytes.len())], &keys()).is_err());
            bytes.push(0);
            prop_assert!(query.open(&bytes, &keys()).is_err());
        }

        #[test]
        fn other_bytes_ask_and_answer_nothing(query in query(), bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(query.open(&bytes, &keys()).is_err());
            if let Ok(read) = LogQuery::read(&name(), &bytes) {
                prop_assert_eq!(read.bytes(), &bytes[..]);
            }
        }
    }

    const HEAD: LogHead = LogHead { epoch: Epoch([1; 16]), seq: 7 };

    fn numbered(number: u8) -> Tag {
        Tag([number; Tag::LENGTH])
    }

    fn page(head: LogHead, numbers: std::ops::Range<u8>, more: bool) -> LogAnswer {
        let denied =
            numbers.map(|number| (numbered(number), DenylistEntry { not_before: None, until: 1 })).collect();
        LogAnswer { head, denied, more }
    }

    #[test]
    fn the_secrets_generations_are_exchanged_one_after_the_other() {
        let (old, new) = ((1, [1; 32]), (2, [2; 32]));
        let stages = [vec![old], vec![old, new], vec![new, old], vec![new]];
        let stages: Vec<_> = stages.iter().map(|stage| Keys::new(stage).expect("keys")).collect();
        let query = LogQuery::new(&name(), Nonce([1; 16]), LogQuestion::Tags(Vec::new()));
        let answer = page(HEAD, 0..2, false);
        for neighbours in stages.windows(2) {
            for (one, other) in [(0, 1), (1, 0)] {
                let sealed = query.seal(&answer, &neighbours[one]);
                assert_eq!(query.open(&sealed, &neighbours[other]), Ok(answer.clone()));
            }
        }
        assert_eq!(query.open(&query.seal(&answer, &stages[0]), &stages[3]), Err(WireError::Key(1)));
    }

    #[test]
    fn a_message_is_no_answer() {
        let query = LogQuery::new(&name(), Nonce([1; 16]), LogQuestion::Tags(Vec::new()));
        let body = crate::wire::Body::Echo { nonce: Nonce([1; 16]), head: HEAD };
        let message = keys().write(&Message { authority: name(), body }).expect("it fits");
        assert!(query.open(&message, &keys()).is_err());
        assert!(keys().read(&query.seal(&page(HEAD, 0..2, false), &keys())).is_err());
    }

    #[test]
    fn a_copy_is_whole_after_its_last_page_and_as_of_the_oldest() {
        let (mut copying, denials) = (DenylistCopier::default(), Denylist::new(100));
        assert_eq!(copying.question(), LogQuestion::DenylistPage { after: None });
        assert_eq!(copying.add_page(page(HEAD, 1..4, true), &denials), CopyProgress::More);
        assert_eq!(copying.question(), LogQuestion::DenylistPage { after: Some(numbered(3)) });
        let later = LogHead { seq: 9, ..HEAD };
        assert_eq!(copying.add_page(page(later, 4..6, true), &denials), CopyProgress::More);
        let older = LogHead { seq: 5, ..HEAD };
        assert_eq!(copying.add_page(page(older, 6..8, true), &denials), CopyProgress::More);
        assert_eq!(copying.add_page(page(later, 8..9, false), &denials), CopyProgress::Complete(older));
        assert_eq!(denials.len(), 8);
        assert_eq!(
            DenylistCopier::default().add_page(page(HEAD, 0..0, false), &denials),
            CopyProgress::Complete(HEAD)
        );
    }

    #[test]
    fn a_copy_of_two_histories_or_without_an_end_is_none() {
        let denials = Denylist::new(100);
        let begun = || {
            let mut copying = DenylistCopier::default();
            assert_eq!(copying.add_page(page(HEAD, 1..4, true), &denials), CopyProgress::More);
            copying
        };
        let another = LogHead { epoch: Epoch([2; 16]), seq: 9 };
        assert_eq!(begun().add_page(page(another, 4..6, false), &denials), CopyProgress::Invalid);
        assert_eq!(
            begun().add_page(page(HEAD, 0..0, true), &denials),
            CopyProgress::Invalid,
            "it would be asked again"
        );
        assert_eq!(begun().add_page(page(HEAD, 1..4, true), &denials), CopyProgress::Invalid);
    }
}
