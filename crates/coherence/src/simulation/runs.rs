//! Runs of the simulation: promises hold over many seeds, and each mutation breaks one.

use crate::mutation::{self, Mutation};
use crate::simulation::{BrokenPromise, World};

/// Runs seeds on all cores until one breaks a promise; returns the seed, and what it broke.
fn first_broken(
    seeds: std::ops::Range<u64>,
    mutation: Option<Mutation>,
) -> Option<(u64, (BrokenPromise, u64, u64))> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    let found = std::sync::atomic::AtomicBool::new(false);
    let work = |offset: u64| {
        mutation::set_active(mutation);
        let mut mine = seeds
            .clone()
            .skip(usize::try_from(offset).expect("few"))
            .step_by(usize::try_from(threads).expect("few"));
        mine.find_map(|seed| {
            if found.load(std::sync::atomic::Ordering::Relaxed) {
                return None;
            }
            let broken = World::run(seed).first().copied().map(|broken| (seed, broken));
            found.fetch_or(broken.is_some(), std::sync::atomic::Ordering::Relaxed);
            broken
        })
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|offset| scope.spawn(move || work(offset))).collect();
        running.into_iter().filter_map(|thread| thread.join().expect("a run")).min_by_key(|(seed, _)| *seed)
    })
}

#[test]
fn the_promises_hold_in_bad_worlds() {
    assert_eq!(first_broken(0..2_000, None), None);
}

#[test]
#[ignore = "minutes: run once for the figure in the documentation"]
fn the_promises_hold_in_a_hundred_thousand_bad_worlds() {
    assert_eq!(first_broken(0..100_000, None), None);
}

#[test]
fn every_line_of_the_protocol_is_needed() {
    use Mutation as M;
    let all = [
        M::LeaseAtReceive,
        M::HeadFromMemory,
        M::Sequence,
        M::NoGeneration,
        M::NoFloor,
        M::ForgetFirst,
        M::OldQueryJoined,
        M::JoinedWithoutLease,
        M::AdmittedOnceAfterOpening,
        M::ErrorsCached,
        M::OverflowIgnored,
        M::DenialNotApplied,
        M::ReplyBeforeCommit,
        M::EpochIgnored,
        M::DenylistNotLoaded,
        M::StaleCopy,
        M::VersionCompare,
        M::UnrecordedConsumer,
        M::EndlessSilence,
        M::EarlySilence,
        M::HeadUnproven,
        M::TagsUnproven,
        M::UnrecordedReadOnly,
        M::RemovedInOneStep,
        M::StalePage,
        M::PageUnproven,
        M::MessageMac,
        M::EchoNonce,
        M::AnswerMac,
        M::AnswerNonce,
        M::AnswerQuestion,
        M::AnswerHead,
        M::AnswerMore,
        M::AnswerDenied,
    ];
    let unnoticed: Vec<_> = all.into_iter().filter(|m| first_broken(0..1_000, Some(*m)).is_none()).collect();
    assert_eq!(unnoticed, [], "the simulation does not notice these faults");
}
