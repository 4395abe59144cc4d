//! Coarse deadlines: one ticker per worker instead of one timer per step.
//!
//! A request passes through five timeouts. Setting and clearing a runtime timer for each would cost
//! more than parsing the request, and would wake the runtime. Here a step stores a number in a
//! cell. Every [`TICK`] the worker's ticker checks all cells and wakes the connections whose
//! deadline has passed. So a deadline fires up to one tick late, and never early.
//!
//! Owns: the deadlines of one worker and the check by its ticker. Because it knows all connections,
//! it also selects those that have been idle longest when room is needed for others. Does not own:
//! what a missed deadline means (each caller knows its own step), when room is needed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Time between two checks of the deadlines.
pub const TICK: Duration = Duration::from_millis(100);

const NEVER: u64 = u64::MAX;

struct Slot {
    /// Deadline in milliseconds since the table's origin; [`NEVER`]: none.
    at: Cell<u64>,
    /// When the holder became idle, in the same unit; [`NEVER`]: it is not idle.
    idle_since: Cell<u64>,
    /// Whether the holder was asked to close, to make room.
    asked_to_close: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// All deadlines of one worker.
pub struct Deadlines {
    origin: Instant,
    /// Milliseconds since `origin`, as of the last tick or request.
    now: Cell<u64>,
    slots: RefCell<Slab>,
}

#[derive(Default)]
struct Slab {
    slots: Vec<Option<Rc<Slot>>>,
    free: Vec<usize>,
}

impl Deadlines {
    /// An empty table whose time counts from `origin`.
    pub fn new(origin: Instant) -> Rc<Self> {
        Rc::new(Self { origin, now: Cell::new(0), slots: RefCell::default() })
    }

    /// Milliseconds since the worker started, as of the last tick or [`Self::set_now`].
    pub fn now_millis(&self) -> u64 {
        self.now.get()
    }

    /// Updates the current time with a clock reading that a request needed anyway.
    pub fn set_now(&self, now: Instant) {
        let millis =
            u64::try_from(now.saturating_duration_since(self.origin).as_millis()).unwrap_or(NEVER - 1);
        if millis > self.now.get() {
            self.now.set(millis);
        }
    }

    /// A new slot without a deadline.
    pub fn register(self: &Rc<Self>) -> Deadline {
        let slot = Rc::new(Slot {
            at: Cell::new(NEVER),
            idle_since: Cell::new(NEVER),
            asked_to_close: Cell::new(false),
            waker: RefCell::new(None),
        });
        let mut slab = self.slots.borrow_mut();
        let index = slab.free.pop().unwrap_or_else(|| {
            slab.slots.push(None);
            slab.slots.len() - 1
        });
        slab.slots[index] = Some(slot.clone());
        Deadline { table: self.clone(), slot, index }
    }

    /// The wakers of all holders whose deadline has passed at `now`, each returned once. There may
    /// be many, and each task takes time, so the caller wakes a few of them per turn.
    #[must_use]
    pub fn tick(&self, now: Instant) -> Vec<Waker> {
        self.set_now(now);
        let now = self.now.get();
        let mut due = Vec::new();
        for slot in self.slots.borrow().slots.iter().flatten() {
            if slot.at.get() <= now
                && let Some(waker) = slot.waker.borrow_mut().take()
            {
                due.push(waker);
            }
        }
        // The caller wakes them after this loop, because a woken task may register or drop a slot.
        due
    }

    /// Asks at most `most` holders to close that have been idle for at least `rested`, the longest
    /// idle first. Returns how many were asked.
    pub fn close_idle(&self, most: usize, rested: Duration) -> usize {
        let before = self.now.get().checked_sub(u64::try_from(rested.as_millis()).unwrap_or(NEVER));
        let Some(before) = before else { return 0 };
        let slab = self.slots.borrow();
        let resting = slab
            .slots
            .iter()
            .flatten()
            .filter(|slot| slot.idle_since.get() <= before && !slot.asked_to_close.get());
        let mut resting: Vec<_> = resting.cloned().collect();
        drop(slab);
        if resting.len() > most {
            resting.select_nth_unstable_by_key(most, |slot| slot.idle_since.get());
            resting.truncate(most);
        }
        for slot in &resting {
            slot.asked_to_close.set(true);
            let waker = slot.waker.borrow_mut().take();
            waker.into_iter().for_each(Waker::wake);
        }
        resting.len()
    }

    /// Wakes every holder because the state of the worker has changed (draining).
    pub fn wake_all(&self) {
        let all: Vec<_> =
            self.slots.borrow().slots.iter().flatten().filter_map(|s| s.waker.borrow_mut().take()).collect();
        all.into_iter().for_each(Waker::wake);
    }
}

/// The deadline of one holder, such as a connection.
pub struct Deadline {
    table: Rc<Deadlines>,
    slot: Rc<Slot>,
    index: usize,
}

impl Deadline {
    /// Sets the deadline to `after` from now.
    pub fn set(&self, after: Duration) {
        self.slot.at.set(self.millis_at(after));
    }

    /// Sets the deadline, in milliseconds since the worker started.
    pub fn set_at(&self, millis: u64) {
        self.slot.at.set(millis);
    }

    /// The time `after` from now, in milliseconds since the worker started.
    pub fn millis_at(&self, after: Duration) -> u64 {
        self.table.now.get().saturating_add(u64::try_from(after.as_millis()).unwrap_or(NEVER))
    }

    /// Removes the deadline and the idle mark.
    pub fn clear(&self) {
        self.slot.at.set(NEVER);
        self.mark_busy();
    }

    /// Whether the deadline has passed, or the holder was asked to close.
    pub(crate) fn is_due(&self) -> bool {
        self.slot.asked_to_close.get() || self.slot.at.get() <= self.table.now.get()
    }

    /// Marks the holder as idle, unless it is. An idle holder may be asked to close, which makes it
    /// due.
    pub fn mark_idle(&self) {
        if self.slot.idle_since.get() == NEVER {
            self.slot.idle_since.set(self.table.now.get());
        }
    }

    /// Marks the holder as not idle, and withdraws a request to close.
    pub fn mark_busy(&self) {
        self.slot.idle_since.set(NEVER);
        self.slot.asked_to_close.set(false);
    }

    /// Whether the holder was asked to close.
    pub fn is_asked_to_close(&self) -> bool {
        self.slot.asked_to_close.get()
    }

    /// Ready when due. Otherwise a tick after the deadline wakes the task.
    pub fn poll_due(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_due() {
            return Poll::Ready(());
        }
        let mut waker = self.slot.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut slab = self.table.slots.borrow_mut();
        slab.slots[self.index] = None;
        slab.free.push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_deadline_is_due_at_its_instant_and_wakes_once() {
        let origin = Instant::now();
        let table = Deadlines::new(origin);
        let d = table.register();
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        d.set(Duration::from_millis(500));
        assert!(d.poll_due(&mut cx).is_pending());
        table.tick(origin + Duration::from_millis(499)).into_iter().for_each(Waker::wake);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        table.tick(origin + Duration::from_millis(500)).into_iter().for_each(Waker::wake);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(d.poll_due(&mut cx).is_ready());
        d.clear();
        assert!(d.poll_due(&mut cx).is_pending());
    }

    #[test]
    fn room_is_made_by_those_who_rested_longest() {
        let origin = Instant::now();
        let table = Deadlines::new(origin);
        let at = |millis| origin + Duration::from_millis(millis);
        let holders: Vec<_> = [0, 300, 100, 200, 1500].map(|since| (since, table.register())).into();
        for (since, holder) in &holders {
            // The clock only advances, so the test sets the times of becoming idle directly.
            holder.slot.idle_since.set(*since);
        }
        let busy = table.register();
        table.set_now(at(1600));
        assert_eq!(table.close_idle(3, Duration::from_secs(1)), 3);
        let leaving = |holder: &Deadline| holder.is_asked_to_close() && holder.is_due();
        let closing: Vec<_> = holders.iter().filter(|(_, h)| leaving(h)).map(|(since, _)| *since).collect();
        assert_eq!(closing, [0, 100, 200]);
        assert_eq!(
            table.close_idle(3, Duration::from_secs(1)),
            1,
            "the others are asked or have not rested enough"
        );
        assert!(!busy.is_due());
        holders[0].1.mark_busy();
        assert!(!holders[0].1.is_due());
        assert_eq!(table.close_idle(3, Duration::from_secs(9)), 0, "nobody can have rested that long");
    }

    #[test]
    fn slots_are_reused() {
        let table = Deadlines::new(Instant::now());
        let first = table.register();
        drop(first);
        let _second = table.register();
        assert_eq!(table.slots.borrow().slots.len(), 1);
    }
}
