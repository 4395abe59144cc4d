use coherence::LogHead;
use coherence::denylist::DenylistEntry;
use coherence::wire::Body;

use super::test_support::{EPOCH, IssuerBehavior, LEASE, ManualIssuer};
use super::*;

const ANOTHER: Epoch = Epoch([2; 16]);

fn word(vouched: &AuthoritativeAnswer) -> &'static str {
    match vouched {
        AuthoritativeAnswer::Good(_, Some(_)) => "good",
        AuthoritativeAnswer::Good(_, None) => "good once",
        AuthoritativeAnswer::Denied => "denied",
        AuthoritativeAnswer::Silent => "silent",
        AuthoritativeAnswer::Again => "again",
    }
}

#[tokio::test(start_paused = true)]
async fn a_word_that_was_only_read_lets_nobody_in_without_a_lease() {
    let issuer = ManualIssuer::heard(EPOCH, 3).await;
    let hold = async || issuer.followed.depart().use_issuer_answer(issuer.statement("a", EPOCH, 3)).await;
    assert_eq!((word(&hold().await), issuer.query_count()), ("good", 0), "nothing else is asked with one");
    tokio::time::advance(LEASE).await;
    for (says, expected) in [
        (IssuerBehavior::Unreachable, "silent"),
        (IssuerBehavior::Nothing, "silent"),
        (IssuerBehavior::Good(LogHead { epoch: EPOCH, seq: 3 }), "good"),
        (IssuerBehavior::Denied(LogHead { epoch: EPOCH, seq: 4 }), "denied"),
    ] {
        issuer.says(says);
        let before = issuer.query_count();
        assert_eq!((word(&hold().await), issuer.query_count()), (expected, before + 1));
    }
    // A token that was denied here stays denied.
    issuer.says(IssuerBehavior::Good(LogHead { epoch: EPOCH, seq: 3 }));
    assert_eq!(word(&hold().await), "again");
}

#[tokio::test(start_paused = true)]
async fn a_word_of_another_history_lets_nobody_in_who_was_refused() {
    let mut issuer = ManualIssuer::heard(ANOTHER, 3).await;
    issuer.revokes(4, issuer.tag("refused"));
    let hold = async |jti| issuer.followed.depart().use_issuer_answer(issuer.statement(jti, EPOCH, 9)).await;
    assert_eq!((word(&hold("refused").await), issuer.query_count()), ("denied", 0));
    // Of the others, a deposed node cannot give this answer.
    assert_eq!(word(&hold("other").await), "silent");
    issuer.says(IssuerBehavior::Good(LogHead { epoch: ANOTHER, seq: 4 }));
    assert_eq!(word(&hold("other").await), "good");
    // And a node that has lost it does not make the token valid again.
    let proven = async |jti| issuer.token(jti).ask().await;
    for (epoch, seq) in [(ANOTHER, 4), (EPOCH, 9)] {
        issuer.says(IssuerBehavior::Good(LogHead { epoch, seq }));
        assert!(matches!(proven("refused").await, IssuerAnswer::Denied));
        assert!(matches!(proven("other").await, IssuerAnswer::NotRevoked(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_asked_for_before_more_became_known_lets_nobody_in() {
    let once = |issuer: &ManualIssuer, departed: &PendingAnswer, epoch| {
        matches!(issuer.token("a").answer_use(departed, (epoch, 3)), AnswerUse::Once)
    };
    // Nothing is known but the answers.
    let mut issuer = ManualIssuer::new();
    let departed = issuer.followed.depart();
    assert!(once(&issuer, &departed, EPOCH));
    // All events of the other history are known since, and the party that revoked the token may
    // have been told so.
    issuer.echo(ANOTHER, 4).await;
    assert!(!once(&issuer, &departed, EPOCH));
    assert!(once(&issuer, &issuer.followed.depart(), EPOCH), "it was asked after that");

    // A probe that is answered late gives a short lease.
    let mut issuer = ManualIssuer::new();
    let nonce = issuer.probe().await;
    tokio::time::advance(LEASE * 3 / 4).await;
    let departed = issuer.followed.depart();
    issuer.receive(&Body::Echo { nonce, head: LogHead { epoch: EPOCH, seq: 4 } });
    tokio::time::advance(LEASE / 2).await;
    assert!(issuer.followed.view.lease() < issuer.followed.clock.now());
    assert!(!once(&issuer, &departed, EPOCH));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_not_whole_refuses_nobody_and_admits_nobody() {
    let issuer = ManualIssuer::new();
    let denials = issuer.followed.view.denylist().unwrap();
    denials.add(issuer.tag("denied"), DenylistEntry { not_before: None, until: i64::MAX });
    issuer.says(IssuerBehavior::Good(LogHead { epoch: EPOCH, seq: 3 }));
    let answer = issuer.token("denied").ask().await;
    assert!(matches!(answer, IssuerAnswer::NoAnswer), "what is cached may not know of it yet");
    issuer.says(IssuerBehavior::Denied(LogHead { epoch: EPOCH, seq: 4 }));
    assert!(matches!(issuer.token("denied").ask().await, IssuerAnswer::Denied));
}

#[tokio::test(start_paused = true)]
async fn the_word_of_somebody_who_follows_counts_for_no_more_than_is_known_here() {
    let mut issuer = ManualIssuer::new();
    let once = |issuer: &ManualIssuer, jti, epoch| {
        let relayed = issuer.followed.depart().use_relayed_answer(issuer.statement(jti, epoch, 4));
        relayed.map(|(_, hold)| hold.is_none())
    };
    assert_eq!(once(&issuer, "a", EPOCH), Some(true), "nothing is known here");
    issuer.echo(EPOCH, 3).await;
    issuer.revokes(4, issuer.tag("refused"));
    assert_eq!(once(&issuer, "a", EPOCH), Some(false));
    assert_eq!(once(&issuer, "a", ANOTHER), None, "another history than the one that is heard of");
    tokio::time::advance(LEASE).await;
    assert_eq!(once(&issuer, "a", EPOCH), Some(true));
    assert_eq!(once(&issuer, "a", ANOTHER), Some(true));
    for epoch in [EPOCH, ANOTHER] {
        assert_eq!(once(&issuer, "refused", epoch), None, "it was refused here");
    }
}

#[tokio::test(start_paused = true)]
async fn who_follows_on_speaks_for_what_was_begun_before() {
    let old = ManualIssuer::heard(EPOCH, 3).await;
    let (good, revoked) = (old.token("good"), old.token("revoked"));
    let mut new = ManualIssuer::heard(EPOCH, 3).await;
    let stranger = ManualIssuer::with_key(8);
    let follows = FollowedIssuers::default();
    let twin = ManualIssuer::new();
    follows.replace(vec![&stranger, &new, &twin].into_iter().map(|one| one.followed.clone()).collect());
    follows.hand_over(&[&old, &new, &twin].map(|one| one.followed.clone()));
    assert!(Arc::ptr_eq(old.followed.current_follower(), &new.followed), "whose tags are the same");
    for still in [&new, &twin] {
        assert!(
            Arc::ptr_eq(still.followed.current_follower(), &still.followed),
            "who is followed is not succeeded"
        );
    }
    assert!(matches!(good.local_status(), RevocationStatus::NotRevoked(_)));
    new.revokes(4, new.tag("revoked"));
    assert!(matches!(revoked.local_status(), RevocationStatus::Denied));
    tokio::time::advance(LEASE).await;
    new.says(IssuerBehavior::Good(LogHead { epoch: EPOCH, seq: 4 }));
    assert!(matches!(good.status_or_ask().await, IssuerAnswer::NotRevoked(_)));
    assert_eq!((old.query_count(), new.query_count()), (0, 1));
}

#[test]
fn an_issuer_whose_clock_is_ahead_makes_what_is_older_than_it_says() {
    let (at, ahead) = (Timestamp::from_secs, IssuerClockSkew::default());
    let now = at(1000);
    assert_eq!(ahead.corrected(at(900), now), at(900));
    assert_eq!(ahead.corrected(at(1001), now), at(1001), "a second is nothing");
    assert_eq!(ahead.corrected(at(1002), now), at(942));
    assert_eq!(ahead.corrected(at(1002), at(1100)), at(942), "also when its time has come");
    assert_eq!(ahead.corrected(at(900), now), at(840), "and all the others");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_back_while_a_question_waits_is_as_good_as_its_answer() {
    let mut issuer = ManualIssuer::heard(EPOCH, 3).await;
    tokio::time::advance(LEASE).await;
    issuer.says(IssuerBehavior::Nothing);
    let token = issuer.token("a");
    let waits =
        tokio::spawn(async move { matches!(token.status_or_ask().await, IssuerAnswer::NotRevoked(Some(_))) });
    while issuer.query_count() == 0 {
        tokio::task::yield_now().await;
    }
    issuer.echo(EPOCH, 3).await;
    assert!(waits.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_issuer_that_answers_nothing() {
    let mut issuer = ManualIssuer::heard(EPOCH, 3).await;
    issuer.says(IssuerBehavior::Nothing);
    let began = tokio::time::Instant::now();
    while !issuer.followed.query_desk.is_silent() {
        assert!(began.elapsed() < 2 * LEASE);
        tokio::time::advance(Duration::from_millis(100)).await;
        issuer.drive(|consumer, now, nonce| consumer.tick(now, nonce, &mut Vec::new()));
    }
    assert!(began.elapsed() >= LEASE && issuer.followed.clock.now() >= issuer.followed.view.lease());
    let (silent, query_count) = (tokio::time::Instant::now(), issuer.query_count());
    for _ in 0..100 {
        assert!(matches!(issuer.token("a").status_or_ask().await, IssuerAnswer::NoAnswer));
    }
    assert_eq!((silent.elapsed(), issuer.query_count()), (Duration::ZERO, query_count));
    issuer.echo(EPOCH, 3).await;
    assert!(matches!(issuer.token("a").status_or_ask().await, IssuerAnswer::NotRevoked(_)));
}

/// A token with pairwise identifiers.
fn pairwise(sealed: Option<&str>) -> Lineage<'_> {
    Lineage {
        token: Some("jti"),
        family: None,
        session: Some("pairwise sid"),
        user: Some("pairwise sub"),
        client: Some("shop"),
        key: None,
        email: None,
        issued_at: Timestamp::from_secs(0),
        read_at: None,
        sealed_tags: sealed,
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_with_a_pairwise_subject_is_revoked_with_its_user() {
    let mut issuer = ManualIssuer::heard(EPOCH, 3).await;
    let tags = issuer.followed.tags.clone();
    let of = |subject| tags.tag(subject);
    let seal = |key: &TagKey, subjects: &[TagSubject<'_>]| {
        let plain: Vec<u8> = subjects.iter().flat_map(|subject| tags.tag(*subject).0).collect();
        let mut sealed = Vec::new();
        SealingKey::new(&key.derive_key(SEALED_TAGS)).seal_onto(&mut sealed, b"", &plain, [7; 12]).unwrap();
        URL_SAFE_NO_PAD.encode(sealed)
    };
    let subjects = [TagSubject::User("ada"), TagSubject::Consent("ada", "shop"), TagSubject::Session("sid")];
    let sealed = seal(&tags, &subjects);
    let revocable = |followed: &Arc<FollowedIssuer>, sealed: Option<&str>| {
        followed.revocable(&pairwise(sealed), TokenEvidence::FromCredential, Timestamp::from_secs(0))
    };
    for (number, subject) in subjects.into_iter().enumerate() {
        let token = revocable(&issuer.followed, Some(&sealed));
        assert!(matches!(token.local_status(), RevocationStatus::NotRevoked(_)), "{subject:?}");
        issuer.revokes(4 + number as u64, of(subject));
        assert!(matches!(token.local_status(), RevocationStatus::Denied), "{subject:?}");
        let mut other = ManualIssuer::heard(EPOCH, 3).await;
        std::mem::swap(&mut issuer, &mut other);
    }
    // Its own identifiers mean nothing in the log.
    issuer.revokes(4, of(TagSubject::User("pairwise sub")));
    let token = revocable(&issuer.followed, Some(&sealed));
    assert!(matches!(token.local_status(), RevocationStatus::NotRevoked(_)));

    assert!(issuer.followed.opens_tags_of(&pairwise(Some(&sealed))));
    assert!(issuer.followed.opens_tags_of(&pairwise(None)), "a public subject");
    for unreadable in [seal(&TagKey::new(&[9; 32]), &subjects), sealed[1..].to_owned(), String::new()] {
        assert!(!issuer.followed.opens_tags_of(&pairwise(Some(&unreadable))), "{unreadable}");
    }
}
