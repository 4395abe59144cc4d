//! Slots: values by small numbers that stay the same as long as the value is there.

use std::ops::Index;
use std::sync::Arc;

/// Values on a page. A change copies one page, a clone copies one reference per page.
const PAGE: usize = 64;

type Page<T> = Arc<[Option<T>; PAGE]>;

/// Values by number. Numbers without a value may be in between.
#[derive(Debug, Clone)]
pub struct Slots<T> {
    pages: Vec<Page<T>>,
    /// The number of values.
    filled: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), filled: 0 }
    }
}

impl<T> Slots<T> {
    /// The value at a number.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.pages.get(at / PAGE)?[at % PAGE].as_ref()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The smallest number above all that could have a value.
    pub fn end(&self) -> usize {
        self.pages.len() * PAGE
    }

    /// All values, by ascending number.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries().map(|(_, value)| value)
    }

    /// All values with their numbers, ascending.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &T)> {
        let all = self.pages.iter().flat_map(|page| page.iter());
        all.enumerate().filter_map(|(at, value)| Some((at, value.as_ref()?)))
    }
}

impl<T: Clone> Slots<T> {
    /// Puts a value at a number, and returns the one that was there.
    pub fn set(&mut self, at: usize, value: T) -> Option<T> {
        while self.pages.len() <= at / PAGE {
            self.pages.push(Arc::new(std::array::from_fn(|_| None)));
        }
        let former = Arc::make_mut(&mut self.pages[at / PAGE])[at % PAGE].replace(value);
        self.filled += usize::from(former.is_none());
        former
    }

    /// Takes the value from a number.
    pub fn take(&mut self, at: usize) -> Option<T> {
        self.get(at)?;
        let taken = Arc::make_mut(&mut self.pages[at / PAGE])[at % PAGE].take();
        self.filled -= usize::from(taken.is_some());
        taken
    }

    /// The value at a number, to be changed; a new one if there is none.
    pub fn get_or_default(&mut self, at: usize) -> &mut T
    where
        T: Default,
    {
        if self.get(at).is_none() {
            self.set(at, T::default());
        }
        Arc::make_mut(&mut self.pages[at / PAGE])[at % PAGE].get_or_insert_default()
    }
}

impl<T> Index<usize> for Slots<T> {
    type Output = T;

    #[track_caller]
    fn index(&self, at: usize) -> &T {
        match self.get(at) {
            Some(value) => value,
            None => absent(at),
        }
    }
}

/// The numbers in use come from the same version of the collection, so this does not happen.
#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "as the index of a slice: a number without a value is a defect")]
fn absent(at: usize) -> ! {
    panic!("there is no value {at}")
}

impl<T: Clone> FromIterator<T> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut slots = Self::default();
        for (at, value) in values.into_iter().enumerate() {
            slots.set(at, value);
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_at_their_numbers() {
        let mut slots: Slots<u32> = (0..200).collect();
        assert_eq!((slots.len(), slots[0], slots[63], slots[64], slots[199]), (200, 0, 63, 64, 199));
        assert_eq!((slots.get(200), slots.get(100_000)), (None, None));
        assert_eq!((slots.take(64), slots.take(64), slots.take(9999)), (Some(64), None, None));
        assert_eq!((slots.len(), slots.get(64), slots[65]), (199, None, 65));
        assert_eq!((slots.set(64, 7), slots.set(64, 8)), (None, Some(7)));
        assert_eq!((slots.len(), slots.iter().count()), (200, 200));
        assert_eq!(slots.entries().nth(64), Some((64, &8)));
    }

    #[test]
    fn a_clone_keeps_its_values_and_shares_the_other_pages() {
        let before: Slots<Arc<u32>> = (0..1000).map(Arc::new).collect();
        let mut after = before.clone();
        after.set(500, Arc::new(1));
        after.take(501);
        *after.get_or_default(2000) = Arc::new(2);
        assert_eq!((*before[500], *before[501], before.get(2000)), (500, 501, None));
        assert_eq!((*after[500], after.get(501), *after[2000]), (1, None, 2));
        let shared = before.pages.iter().zip(&after.pages).filter(|(old, new)| Arc::ptr_eq(old, new));
        assert_eq!(shared.count(), before.pages.len() - 1);
    }

    #[test]
    #[should_panic(expected = "no value 3")]
    fn a_number_without_a_value_is_a_defect() {
        let slots: Slots<u32> = (0..3).collect();
        let _ = slots[3];
    }
}
