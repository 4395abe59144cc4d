//! Faults that the simulation must find.
//!
//! Each names one line of the protocol that could be left out. The shipped program has none of this: outside of tests
//! [`is`] is `false` when it is compiled, and nothing is left of the question.

/// A line of the protocol that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "made by the simulation alone"))]
pub(crate) enum Mutation {
    /// The lease begins when the echo arrives.
    LeaseAtReceive,
    /// The authority answers with the head it remembers.
    HeadFromMemory,
    /// Numbers are drawn before the commit, and not given back.
    Sequence,
    /// Entries of before a flush are believed after it.
    NoGeneration,
    /// Neither fills nor hits are compared with the floor.
    NoFloor,
    /// A tombstone is forgotten before the floor is raised.
    ForgetFirst,
    /// A question is joined, however old it is.
    OldFlight,
    /// A question that was asked without a lease is joined.
    JoinedUnheard,
    /// An answer that was asked for before the log was followed admits after it.
    OnceAfterOpening,
    /// "I do not know" is remembered as an answer.
    ErrorsCached,
    /// Events that found no room count as applied.
    OverflowIgnored,
    /// A denial leaves the entry where it is.
    DenialNotApplied,
    /// The revoker hears of success before it is durable.
    ReplyBeforeCommit,
    /// Another history is taken for the same.
    EpochIgnored,
    /// Nobody waits until what is denied is loaded.
    NotLoaded,
    /// A copy of what is denied may be older than what is followed.
    OldCopy,
    /// Somebody is answered who is not written down.
    Unlisted,
    /// An entry as new as the tombstone is refused.
    VersionCompare,
    /// A probe that has no answer is not repeated before the next is due.
    NoRetry,
    /// A query that has no answer is not repeated.
    AskedOnce,
    /// Who is silent stays so, whatever is answered.
    EndlessSilence,
    /// Who has not answered for a tenth of a lease is taken for silent.
    HastySilence,
    /// A server answers with the head that it has read, and proves nothing.
    HeadUnproven,
    /// A server says what is denied as it has read it, and proves nothing.
    ConfirmUnproven,
    /// Where nothing can be written, whoever asks is answered.
    UnlistedReadOnly,
    /// Entries of the list are struck off in one step.
    StruckAtOnce,
    /// A copy counts as knowing what its first page knew.
    OldPage,
    /// A page of what is denied comes from a server that was deposed, and its head from the one in force.
    PageUnproven,
    /// Messages are believed whoever made them.
    MessageMac,
    /// An echo is one of the last probe, whatever probe it names.
    EchoNonce,
    /// Answers are believed whoever made them.
    AnswerMac,
    /// The MAC of an answer does not cover the nonce of its question.
    AnswerNonce,
    /// It does not cover what was asked.
    AnswerQuestion,
    /// It does not cover the head.
    AnswerHead,
    /// It does not cover whether there is more.
    AnswerMore,
    /// It does not cover what is denied.
    AnswerDenied,
}

#[cfg(test)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Chooses the fault of this thread.
#[cfg(test)]
pub(crate) fn choose(mutation: Option<Mutation>) {
    CHOSEN.set(mutation);
}

/// Whether this line is to be wrong.
#[cfg(test)]
pub(crate) fn is(mutation: Mutation) -> bool {
    CHOSEN.get() == Some(mutation)
}

/// Whether this line is to be wrong: no.
#[cfg(not(test))]
pub(crate) const fn is(_: Mutation) -> bool {
    false
}
