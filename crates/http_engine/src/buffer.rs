//! Buffers: pooled read and write buffers, so that an idle connection holds none.
//!
//! Owns: buffers that are borrowed from a pool of the worker's thread when data arrives, and
//! returned when they are empty. Ten thousand idle connections use no buffer memory at all. Does
//! not own: sockets, framing.

use std::cell::RefCell;

/// Size of a pooled buffer in bytes: enough for one read of a typical exchange, or one TLS record.
pub(crate) const BUFFER_SIZE: usize = 16 * 1024;

/// Maximum number of pooled buffers per thread (4 MiB). Buffers beyond that are freed.
const MAX_POOLED: usize = 256;

thread_local! {
    static READ: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Data that was read but not consumed.
#[derive(Default)]
pub(crate) struct ReadBuffer {
    data: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// The data that was read but not consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Removes `n` bytes from the front. Does not return the buffer to the pool.
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Space to read into: at least one byte, unless `max` bytes are held already. Borrows a buffer
    /// if there is none. A full buffer is compacted, then doubled.
    pub(crate) fn spare(&mut self, max: usize) -> &mut [u8] {
        if self.data.is_empty() {
            self.data = READ
                .with(|p| p.borrow_mut().pop())
                .unwrap_or_else(|| vec![0; BUFFER_SIZE].into_boxed_slice());
        }
        if self.end == self.data.len() && self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.data.len() && self.data.len() < max {
            let mut grown = vec![0; (self.data.len() * 2).min(max.max(BUFFER_SIZE))].into_boxed_slice();
            grown[..self.end].copy_from_slice(&self.data[..self.end]);
            self.data = grown;
        }
        let end = self.data.len().min(self.start + max.max(BUFFER_SIZE)).max(self.end);
        &mut self.data[self.end..end]
    }

    /// Records that the first `n` bytes of [`Self::spare`] were filled.
    pub(crate) fn advance(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.data.len());
    }

    /// Returns the buffer to the pool if it is empty.
    pub(crate) fn release_if_empty(&mut self) {
        if self.is_empty() && !self.data.is_empty() {
            let data = std::mem::take(&mut self.data);
            self.start = 0;
            self.end = 0;
            if data.len() == BUFFER_SIZE {
                READ.with(|p| {
                    let mut p = p.borrow_mut();
                    if p.len() < MAX_POOLED {
                        p.push(data);
                    }
                });
            }
        }
    }

    /// Whether it holds no memory.
    #[cfg(any(test, feature = "test_support"))]
    pub(crate) fn is_released(&self) -> bool {
        self.data.is_empty()
    }

    /// Takes all held bytes as a vector and returns the buffer to the pool.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let held = self.filled().to_vec();
        self.start = 0;
        self.end = 0;
        self.release_if_empty();
        held
    }

    /// A buffer that starts with `held`.
    pub(crate) fn with_data(held: &[u8]) -> Self {
        let mut buffer = Self::default();
        if !held.is_empty() {
            buffer.spare(held.len())[..held.len()].copy_from_slice(held);
            buffer.advance(held.len());
        }
        buffer
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.start = 0;
        self.end = 0;
        self.release_if_empty();
    }
}

/// An empty vector with capacity for a typical head, from the thread's pool.
pub fn borrow_vec() -> Vec<u8> {
    WRITE.with(|p| p.borrow_mut().pop()).unwrap_or_else(|| Vec::with_capacity(BUFFER_SIZE))
}

/// Returns a vector to the pool; one that has grown much is freed instead.
pub(crate) fn return_vec(mut v: Vec<u8>) {
    if v.capacity() == 0 || v.capacity() > 4 * BUFFER_SIZE {
        return;
    }
    v.clear();
    WRITE.with(|p| {
        let mut p = p.borrow_mut();
        if p.len() < MAX_POOLED {
            p.push(v);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_compacts_then_grows_up_to_the_bound() {
        let mut b = ReadBuffer::default();
        let n = b.spare(BUFFER_SIZE).len();
        assert_eq!(n, BUFFER_SIZE);
        b.advance(n);
        assert!(b.spare(BUFFER_SIZE).is_empty(), "the bound is reached");
        b.consume(10);
        assert_eq!(b.spare(BUFFER_SIZE).len(), 10, "compaction makes room");
        b.advance(10);
        assert_eq!(b.spare(2 * BUFFER_SIZE).len(), BUFFER_SIZE, "a larger bound lets it grow");
        assert_eq!(b.filled().len(), BUFFER_SIZE);
    }

    #[test]
    fn resting_holds_no_memory_and_loses_no_byte() {
        let mut b = ReadBuffer::with_data(b"abc");
        b.release_if_empty();
        assert_eq!(b.filled(), b"abc");
        b.consume(3);
        b.release_if_empty();
        assert!(b.data.is_empty());
        assert_eq!(b.filled(), b"");
    }
}
