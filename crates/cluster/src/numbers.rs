//! Numbers: small numbers for things that come and go.

use std::collections::BTreeSet;

/// Hands out numbers from a start. A number that was given back is handed out again, the smallest
/// first, so that tables by number stay dense.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    next: usize,
    free: BTreeSet<usize>,
}

impl Numbers {
    pub(crate) fn from(start: usize) -> Self {
        Self { next: start, free: BTreeSet::new() }
    }

    pub(crate) fn take(&mut self) -> usize {
        self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    pub(crate) fn give_back(&mut self, number: usize) {
        self.free.insert(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut numbers = Numbers::from(7);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [7, 8, 9]);
        numbers.give_back(8);
        numbers.give_back(7);
        assert_eq!([numbers.take(), numbers.take(), numbers.take()], [7, 8, 10]);
    }
}
