//! Read and write buffers that cost nothing while a connection rests.
//!
//! Owns: buffers borrowed from a pool of the worker's thread when bytes move and given back when they are
//! empty, so that ten thousand idle connections hold no buffer at all. Does not own: sockets, framing.

use std::cell::RefCell;

/// Bytes of a pooled buffer: one read of a typical exchange, one TLS record.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Buffers kept per thread (4 MiB); a burst's surplus goes back to the allocator.
const KEPT: usize = 256;

thread_local! {
    static READ: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static WRITE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes read and not yet consumed.
#[derive(Default)]
pub(crate) struct ReadBuffer {
    data: Box<[u8]>,
    start: usize,
    end: usize,
}

impl ReadBuffer {
    /// What was read and not consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Takes `n` bytes off the front; gives nothing back to the pool yet.
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Room to read into: at least one byte, unless `max` bytes are held already. A buffer is borrowed when
    /// there is none; a full one is compacted, then grown by doubling.
    pub(crate) fn room(&mut self, max: usize) -> &mut [u8] {
        if self.data.is_empty() {
            self.data =
                READ.with(|p| p.borrow_mut().pop()).unwrap_or_else(|| vec![0; CHUNK].into_boxed_slice());
        }
        if self.end == self.data.len() && self.start > 0 {
            self.data.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.data.len() && self.data.len() < max {
            let mut grown = vec![0; (self.data.len() * 2).min(max.max(CHUNK))].into_boxed_slice();
            grown[..self.end].copy_from_slice(&self.data[..self.end]);
            self.data = grown;
        }
        let end = self.data.len().min(self.start + max.max(CHUNK)).max(self.end);
        &mut self.data[self.end..end]
    }

    /// Tells that `n` bytes of [`Self::room`] were filled.
    pub(crate) fn advance(&mut self, n: usize) {
        self.end += n;
        debug_assert!(self.end <= self.data.len());
    }

    /// Gives the memory back when nothing is held.
    pub(crate) fn rest(&mut self) {
        if self.is_empty() && !self.data.is_empty() {
            let data = std::mem::take(&mut self.data);
            self.start = 0;
            self.end = 0;
            if data.len() == CHUNK {
                READ.with(|p| {
                    let mut p = p.borrow_mut();
                    if p.len() < KEPT {
                        p.push(data);
                    }
                });
            }
        }
    }

    /// Whether it holds no memory.
    #[cfg(any(test, feature = "test_support"))]
    pub(crate) fn is_resting(&self) -> bool {
        self.data.is_empty()
    }

    /// Takes everything held out as a vector and gives the memory back.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let held = self.filled().to_vec();
        self.start = 0;
        self.end = 0;
        self.rest();
        held
    }

    /// A buffer that begins with `held`.
    pub(crate) fn holding(held: &[u8]) -> Self {
        let mut buffer = Self::default();
        if !held.is_empty() {
            buffer.room(held.len())[..held.len()].copy_from_slice(held);
            buffer.advance(held.len());
        }
        buffer
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        self.start = 0;
        self.end = 0;
        self.rest();
    }
}

/// An empty vector with room for a typical head, from the thread's pool.
pub fn borrow_vec() -> Vec<u8> {
    WRITE.with(|p| p.borrow_mut().pop()).unwrap_or_else(|| Vec::with_capacity(CHUNK))
}

/// Gives a vector back; one that has grown is left to the allocator.
pub(crate) fn return_vec(mut v: Vec<u8>) {
    if v.capacity() == 0 || v.capacity() > 4 * CHUNK {
        return;
    }
    v.clear();
    WRITE.with(|p| {
        let mut p = p.borrow_mut();
        if p.len() < KEPT {
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
        let n = b.room(CHUNK).len();
        assert_eq!(n, CHUNK);
        b.advance(n);
        assert!(b.room(CHUNK).is_empty(), "the bound is reached");
        b.consume(10);
        assert_eq!(b.room(CHUNK).len(), 10, "compaction makes room");
        b.advance(10);
        assert_eq!(b.room(2 * CHUNK).len(), CHUNK, "a larger bound lets it grow");
        assert_eq!(b.filled().len(), CHUNK);
    }

    #[test]
    fn resting_holds_no_memory_and_loses_no_byte() {
        let mut b = ReadBuffer::holding(b"abc");
        b.rest();
        assert_eq!(b.filled(), b"abc");
        b.consume(3);
        b.rest();
        assert!(b.data.is_empty());
        assert_eq!(b.filled(), b"");
    }
}
