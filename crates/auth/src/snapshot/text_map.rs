//! Text map: a hash table by text.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Average number of entries of a piece at which the map gets four times as many pieces.
const FULL: usize = 64;

type Piece<V> = Arc<HashTable<(Arc<str>, V)>>;

/// A hash table by text. A change copies one piece of about 64 entries, a clone copies one
/// reference per piece.
#[derive(Debug, Clone)]
pub struct TextMap<V> {
    /// A power of four; none while the map is empty.
    pieces: Vec<Piece<V>>,
    hasher: DefaultHashBuilder,
    len: usize,
}

impl<V> Default for TextMap<V> {
    fn default() -> Self {
        Self { pieces: Vec::new(), hasher: DefaultHashBuilder::default(), len: 0 }
    }
}

/// The piece of a key. The tables use the lowest and the highest bits of the hash.
#[allow(clippy::cast_possible_truncation, reason = "only the lowest bits are used")]
fn piece(hash: u64, pieces: usize) -> usize {
    (hash >> 24) as usize & (pieces - 1)
}

impl<V> TextMap<V> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&V> {
        if self.pieces.is_empty() {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let found = self.pieces[piece(hash, self.pieces.len())].find(hash, |(known, _)| **known == *key);
        found.map(|(_, value)| value)
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &V)> {
        self.pieces.iter().flat_map(|piece| piece.iter()).map(|(key, value)| (&**key, value))
    }
}

impl<V: Clone> TextMap<V> {
    /// The value of a key, to be changed; a new one if the key is new.
    pub fn entry(&mut self, key: &str) -> &mut V
    where
        V: Default,
    {
        if self.get(key).is_none() {
            self.len += 1;
            self.fit();
        }
        let hash = self.hasher.hash_one(key);
        let at = piece(hash, self.pieces.len());
        let entry = Arc::make_mut(&mut self.pieces[at]).entry(
            hash,
            |(known, _)| **known == *key,
            |(known, _)| self.hasher.hash_one(&**known),
        );
        &mut entry.or_insert_with(|| (key.into(), V::default())).into_mut().1
    }

    /// Removes an entry, and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<V> {
        self.get(key)?;
        let hash = self.hasher.hash_one(key);
        let at = piece(hash, self.pieces.len());
        let table = Arc::make_mut(&mut self.pieces[at]);
        let ((_, value), _) = table.find_entry(hash, |(known, _)| **known == *key).ok()?.remove();
        self.len -= 1;
        self.fit();
        Some(value)
    }

    /// Spreads the entries over more or fewer pieces when there are many or few for their number.
    fn fit(&mut self) {
        let now = self.pieces.len();
        let wanted = match now {
            0 => 1,
            _ if self.len == 0 => 0,
            _ if self.len > now * FULL => now * 4,
            _ if now > 1 && self.len < now * FULL / 16 => now / 4,
            _ => return,
        };
        let mut tables: Vec<HashTable<(Arc<str>, V)>> = (0..wanted).map(|_| HashTable::new()).collect();
        for old in std::mem::take(&mut self.pieces) {
            for (key, value) in Arc::unwrap_or_clone(old) {
                let hash = self.hasher.hash_one(&*key);
                let hash_of = |(known, _): &(Arc<str>, V)| self.hasher.hash_one(&**known);
                tables[piece(hash, wanted)].insert_unique(hash, (key, value), hash_of);
            }
        }
        self.pieces = tables.into_iter().map(Arc::new).collect();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_clone_keeps_its_entries_and_shares_the_other_pieces() {
        let mut before = TextMap::default();
        for n in 0..10_000u32 {
            *before.entry(&format!("key {n}")) = n;
        }
        assert_eq!((before.len(), before.pieces.len()), (10_000, 256));
        let mut after = before.clone();
        *after.entry("key 5000") = 1;
        assert_eq!((before.get("key 5000"), after.get("key 5000")), (Some(&5000), Some(&1)));
        let shared = before.pieces.iter().zip(&after.pieces).filter(|(old, new)| Arc::ptr_eq(old, new));
        assert_eq!(shared.count(), 255);
        for n in 0..10_000 {
            assert!(after.remove(&format!("key {n}")).is_some());
        }
        assert_eq!((after.len(), after.pieces.len(), before.len()), (0, 0, 10_000));
        assert_eq!(before.iter().map(|(_, value)| u64::from(*value)).sum::<u64>(), 9_999 * 5_000);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_hash_map(steps in prop::collection::vec((0..400u32, any::<bool>()), 0..2000)) {
            let (mut map, mut model) = (TextMap::default(), HashMap::new());
            for (at, (key, adds)) in steps.into_iter().enumerate() {
                let key = key.to_string();
                if adds {
                    *map.entry(&key) = at;
                    model.insert(key, at);
                } else {
                    prop_assert_eq!(map.remove(&key), model.remove(&key));
                }
                prop_assert_eq!(map.len(), model.len());
            }
            for (key, value) in &model {
                prop_assert_eq!(map.get(key), Some(value));
            }
            prop_assert_eq!(map.iter().count(), model.len());
            let most = map.pieces.len() * FULL;
            prop_assert!(map.len() <= most, "{} in {}", map.len(), most);
        }
    }
}
