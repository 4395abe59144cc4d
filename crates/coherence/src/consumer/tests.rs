//! Tests of the parent module.

use super::*;
use crate::log_types::Tag;
use crate::view::FillError;

const EPOCH: Epoch = Epoch([1; 16]);
const NOW: Boot = Boot(1_000_000_000);

fn tag(number: u8) -> Tag {
    Tag([number; Tag::LENGTH])
}

/// A consumer, its clock, and how many nonces it has drawn.
struct Node {
    consumer: Consumer,
    now: Boot,
    drawn: u8,
}

fn draw(drawn: &mut u8) -> impl FnMut() -> Nonce {
    || {
        *drawn += 1;
        Nonce([*drawn; 16])
    }
}

impl Node {
    fn deliver(&mut self, body: &Body) -> Vec<ConsumerAction> {
        let mut actions = Vec::new();
        self.consumer.on_message(self.now, body, &mut draw(&mut self.drawn), &mut actions);
        actions
    }

    /// Sends a probe, and delivers its echo.
    fn probe(&mut self, seq: u64) -> Vec<ConsumerAction> {
        let nonce = self.send_probe();
        self.deliver(&Body::Echo { nonce, head: LogHead { epoch: EPOCH, seq } })
    }

    /// Sends a probe when the next one is due.
    fn send_probe(&mut self) -> Nonce {
        self.now = self.now.plus(ConsumerSettings::default().probe_period);
        let mut actions = Vec::new();
        self.consumer.tick(self.now, &mut draw(&mut self.drawn), &mut actions);
        let probe_nonce = actions.iter().find_map(|action| match action {
            ConsumerAction::Send(Body::Probe { nonce, .. }) => Some(*nonce),
            _ => None,
        });
        probe_nonce.expect("a probe is due")
    }
}

fn node(view: &Arc<View>) -> Node {
    let called = (ConsumerId([1; 16]), PeerName::new("node").unwrap());
    let consumer = Consumer::new(called, ConsumerSettings::default(), view.clone());
    Node { consumer, now: NOW, drawn: 0 }
}

#[test]
fn what_every_echo_shows_to_be_missing_does_not_keep_the_lease_from_beginning() {
    let view = Arc::new(View::new(10));
    let mut node = node(&view);
    node.probe(0);
    for seq in 1..20 {
        // Events are sent only on request, and a new one is appended all the time.
        node.probe(seq);
        let sent_at = node.now;
        node.now = node.now.plus(Duration::from_millis(1));
        assert!(view.lease() < sent_at.plus(ConsumerSettings::default().lease), "not before it is applied");
        let event = LogEvent { seq, tags: vec![tag(1)], not_before: None, until: i64::MAX };
        node.deliver(&Body::Event { epoch: EPOCH, event });
        assert_eq!(view.lease(), sent_at.plus(ConsumerSettings::default().lease), "from when it was asked");
    }
    // A lease that was owed before a flush does not begin after it.
    node.probe(21);
    let event = |seq| Body::Event {
        epoch: EPOCH,
        event: LogEvent { seq, tags: vec![tag(1)], not_before: None, until: i64::MAX },
    };
    node.now = node.now.plus(ConsumerSettings::default().gap_patience);
    let mut actions = Vec::new();
    node.consumer.tick(node.now, &mut draw(&mut node.drawn), &mut actions);
    assert!(actions.contains(&ConsumerAction::Flushed(FlushCause::Gap)), "{actions:?}");
    for seq in [20, 21] {
        node.deliver(&event(seq));
    }
    assert_eq!(view.lease(), Boot(0));
}

#[test]
fn numbers_that_are_given_again_are_another_history() {
    let view = Arc::new(View::new(10));
    let mut node = node(&view);
    node.probe(99);
    let event = LogEvent { seq: 100, tags: vec![tag(1)], not_before: None, until: i64::MAX };
    node.deliver(&Body::Event { epoch: EPOCH, event });
    assert_eq!((view.applied_up_to(), view.tombstones()), (100, 1));

    // The log's file was restored, and keeps its epoch.
    let actions = node.probe(50);
    assert!(actions.contains(&ConsumerAction::Flushed(FlushCause::LogRewound)), "{actions:?}");
    assert_eq!(view.epoch(), None, "no number of before is one of now");
    node.probe(50);
    assert_eq!((view.epoch(), view.applied_up_to()), (Some(EPOCH), 50));
    let ticket = view.start_query(node.now);
    let stamp = view.fill(ticket, (EPOCH, 50), &[tag(1)], node.now);
    assert!(stamp.is_ok(), "what event 100 took back is not in this history: {stamp:?}");
}

#[test]
fn a_view_that_was_shut_when_a_newer_epoch_denied_does_not_open_in_an_older_one() {
    let view = Arc::new(View::new(10));
    let mut node = node(&view);
    let sent = node.send_probe();
    // The database failed over meanwhile, and a query was answered before the echo arrives.
    let newer = Epoch([2; 16]);
    view.apply_denial((newer, 64), tag(1));
    node.deliver(&Body::Echo { nonce: sent, head: LogHead { epoch: EPOCH, seq: 65 } });
    let fill = |node: &Node, as_of| view.fill(view.start_query(node.now), as_of, &[tag(1)], node.now);
    let stale = fill(&node, (EPOCH, 65));
    assert!(stale.is_err(), "a server that lags behind knows nothing of the denial: {stale:?}");

    // The same epoch denies again and again: that does not keep the view shut.
    let sent = node.send_probe();
    view.apply_denial((newer, 66), tag(1));
    node.deliver(&Body::Echo { nonce: sent, head: LogHead { epoch: newer, seq: 65 } });
    assert_eq!(view.epoch(), Some(newer));
    assert_eq!(fill(&node, (newer, 65)).err(), Some(FillError::TooOld), "the denial is not in it");
    assert!(fill(&node, (newer, 66)).is_ok());
}

#[test]
fn a_denial_that_comes_while_a_view_opens_is_not_forgotten() {
    let view = View::new(10);
    let head = LogHead { epoch: EPOCH, seq: 65 };
    // As on another thread, after the echo was compared with the generation.
    let generation = view.generation();
    view.apply_denial((Epoch([2; 16]), 64), tag(1));
    assert!(!view.end_flush(generation, head));
    let fill = || view.fill(view.start_query(NOW), (EPOCH, 65), &[tag(1)], NOW);
    assert!(fill().is_err(), "still shut");
    assert!(view.end_flush(view.generation(), head) && fill().is_ok());
}

#[test]
fn few_events_are_reported_at_once_and_of_many_some_with_the_rest_in_the_probe() {
    let view = Arc::new(View::new(10_000));
    let mut node = node(&view);
    node.probe(0);
    let reports = |actions: &[ConsumerAction]| -> Vec<u64> {
        let seq = |action: &ConsumerAction| match action {
            ConsumerAction::Send(Body::Applied { head, .. }) => Some(head.seq),
            _ => None,
        };
        actions.iter().filter_map(seq).collect()
    };
    let event = |seq| Body::Event {
        epoch: EPOCH,
        event: LogEvent { seq, tags: vec![tag(1)], not_before: None, until: i64::MAX },
    };
    // Two events at the same time: the second is reported soon.
    assert_eq!(reports(&node.deliver(&event(1))), [1]);
    assert_eq!(reports(&node.deliver(&event(2))), [] as [u64; 0]);
    assert_eq!(node.consumer.next_tick_at(), node.now.plus(REPORT_INTERVAL));
    node.now = node.now.plus(REPORT_INTERVAL);
    let mut actions = Vec::new();
    node.consumer.tick(node.now, &mut draw(&mut node.drawn), &mut actions);
    assert_eq!(reports(&actions), [2]);

    // A hundred each second: some at once, then five each second.
    let mut reported = Vec::new();
    for seq in 3..=202 {
        node.now = node.now.plus(Duration::from_millis(10));
        reported.extend(reports(&node.deliver(&event(seq))));
    }
    assert!(reported.len() <= 8 + 10 && reported.len() >= 10, "{reported:?}");
    assert!(node.consumer.next_tick_at() > node.now, "nothing is due for what cannot be reported");
    let mut actions = Vec::new();
    node.consumer.tick(node.now, &mut draw(&mut node.drawn), &mut actions);
    node.now = node.now.plus(ConsumerSettings::default().probe_period);
    node.consumer.tick(node.now, &mut draw(&mut node.drawn), &mut actions);
    let in_probe = |action: &ConsumerAction| match action {
        ConsumerAction::Send(Body::Probe { applied, .. }) => applied.map(|head| head.seq),
        _ => None,
    };
    assert_eq!(actions.iter().filter_map(in_probe).next_back(), Some(202), "{actions:?}");

    // After a quiet time, an event is reported at once again.
    node.now = node.now.plus(BUSY_REPORT_INTERVAL * REPORT_BURST);
    node.consumer.tick(node.now, &mut draw(&mut node.drawn), &mut actions);
    assert_eq!(reports(&node.deliver(&event(203))), [203]);
}
