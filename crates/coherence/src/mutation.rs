//! Mutations: faults that the simulation must detect.
//!
//! Each one leaves out or breaks one line of the protocol. Release builds have none of this:
//! outside tests [`is_active`] is a constant `false`, and the compiler removes the check.

/// Fault in one line of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "made by the simulation alone"))]
pub(crate) enum Mutation {
    /// The lease counts from the arrival of the echo.
    LeaseAtReceive,
    /// The authority answers with the head that it remembers.
    HeadFromMemory,
    /// Sequence numbers are drawn before the commit, and not given back.
    Sequence,
    /// Entries from before a flush are valid after it.
    NoGeneration,
    /// Neither fills nor hits are compared with the floor.
    NoFloor,
    /// A tombstone is removed before the floor is raised.
    ForgetFirst,
    /// A query in flight is joined, however old it is.
    OldQueryJoined,
    /// A query that was sent without a lease is joined.
    JoinedWithoutLease,
    /// An answer that was queried before the view opened admits a request after it.
    AdmittedOnceAfterOpening,
    /// A query without an answer is cached as a denial.
    ErrorsCached,
    /// Events that find no room count as applied.
    OverflowIgnored,
    /// An answer that denies leaves the cache entry unchanged.
    DenialNotApplied,
    /// The revoker is told of success before the revocation is durable.
    ReplyBeforeCommit,
    /// Another epoch is taken for the same one.
    EpochIgnored,
    /// The denylist decides before it is loaded.
    DenylistNotLoaded,
    /// A copy of the denylist may be older than the epoch's first head.
    StaleCopy,
    /// A consumer gets an answer although it is not recorded.
    UnrecordedConsumer,
    /// An entry as new as the tombstone is refused.
    VersionCompare,
    /// A probe without an answer is not repeated before the next one is due.
    NoRetry,
    /// A query without an answer is not repeated.
    QueryNotRepeated,
    /// A silent authority stays silent, whatever it answers.
    EndlessSilence,
    /// An authority that has not answered for a tenth of a lease counts as silent.
    EarlySilence,
    /// A server answers with the head that it has read, without proof that it is the primary.
    HeadUnproven,
    /// A server answers from the denylist that it has read, without proof that it is the primary.
    TagsUnproven,
    /// While nothing can be written, every consumer gets an answer.
    UnrecordedReadOnly,
    /// Entries of the consumer list are removed in one step.
    RemovedInOneStep,
    /// A copy counts as including everything that its first page included.
    StalePage,
    /// A page of the denylist comes from a deposed primary, and its head from the current one.
    PageUnproven,
    /// The MAC of a message is not checked.
    MessageMac,
    /// An echo answers the last probe, whatever nonce it has.
    EchoNonce,
    /// The MAC of an answer is not checked.
    AnswerMac,
    /// The MAC of an answer does not cover the nonce of its query.
    AnswerNonce,
    /// The MAC of an answer does not cover the question.
    AnswerQuestion,
    /// The MAC of an answer does not cover the head.
    AnswerHead,
    /// The MAC of an answer does not cover whether more pages follow.
    AnswerMore,
    /// The MAC of an answer does not cover the denylist entries.
    AnswerDenied,
}

#[cfg(test)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Chooses the fault of this thread.
#[cfg(test)]
pub(crate) fn set_active(mutation: Option<Mutation>) {
    CHOSEN.set(mutation);
}

/// Whether this fault is active on this thread.
#[cfg(test)]
pub(crate) fn is_active(mutation: Mutation) -> bool {
    CHOSEN.get() == Some(mutation)
}

/// Whether this fault is active: never, outside tests.
#[cfg(not(test))]
pub(crate) const fn is_active(_: Mutation) -> bool {
    false
}
