//! Integer keys in a narrow span, one bit each.
//!
//! Owns: the set of numbers, and the newest source of each.
//! Does not own: numbers that lie far apart (`bucketed_keys`).
//!
//! The bits are a bitmap with ranks (Jacobson, "Space-efficient Static Trees and Graphs", FOCS
//! 1989): the rank of a number, how many smaller numbers are in the set, is its index into the list
//! of sources. A look-up reads one word and computes no hash. Rows in key order read neighbouring
//! words.

use arrow_buffer::BooleanBuffer;
use roaring::RoaringBitmap;

/// The widest span, in numbers a key. Bits and ranks then take 12 bytes a key, less than a bucket.
const SPAN_A_KEY: u64 = 64;
const WORD: u64 = 64;
/// Stands for no source.
const NO_SOURCE: u16 = u16::MAX;

/// Some numbers, each with the source that holds its newest row.
#[derive(Debug)]
pub struct DenseNumbers {
    /// The least number.
    first: u64,
    /// Bit `n % 64` of word `n / 64` is set where the set contains `first + n`.
    words: Vec<u64>,
    /// For each word, how many numbers the words before it have.
    before: Vec<u32>,
    /// The source of each number, by rank; empty where there is only one source.
    sources: Vec<u16>,
    len: usize,
}

impl DenseNumbers {
    /// The numbers of `sources`, the newest source last, and for each source the positions of its
    /// numbers that a newer source has. `None` where the numbers lie too far apart or are too many.
    pub fn of(sources: &[Vec<u64>]) -> Option<(Self, Vec<RoaringBitmap>)> {
        let mut dense = Self::set_of(sources)?;
        let mut superseded = vec![RoaringBitmap::new(); sources.len()];
        if sources.len() > 1 {
            dense.sources = dense.newest_of(sources, &mut superseded)?;
        }
        Some((dense, superseded))
    }

    /// The numbers of `sources`, for callers that ask for ranks and not for the newest source.
    /// `None` as in [`Self::of`].
    pub fn set_of(sources: &[Vec<u64>]) -> Option<Self> {
        let all = || sources.iter().flatten().copied();
        let (first, last) = (all().min()?, all().max()?);
        let count = u32::try_from(sources.iter().map(Vec::len).sum::<usize>()).ok()?;
        if (last - first) / SPAN_A_KEY >= u64::from(count) {
            return None;
        }
        let mut words = vec![0; usize::try_from((last - first) / WORD).ok()? + 1];
        for number in all() {
            let (word, bit) = place(number - first)?;
            words[word] |= bit;
        }
        let mut len = 0;
        let before = words.iter().map(|word: &u64| {
            let before = len;
            len += word.count_ones();
            before
        });
        let before = before.collect();
        Some(Self { first, words, before, sources: Vec::new(), len: len as usize })
    }

    /// The newest of `sources` that has each number, by rank. Adds the positions of the same number
    /// in older sources to `superseded`.
    fn newest_of(
        &self,
        sources: &[Vec<u64>],
        superseded: &mut [RoaringBitmap],
    ) -> Option<Vec<u16>> {
        let mut newest = vec![NO_SOURCE; self.len];
        for (at, numbers) in sources.iter().enumerate().rev() {
            let source = u16::try_from(at).ok().filter(|source| *source != NO_SOURCE)?;
            for (place, number) in (0..).zip(numbers) {
                let known = &mut newest[self.rank(*number)?];
                if *known == NO_SOURCE {
                    *known = source;
                } else if *known != source {
                    superseded[at].insert(place);
                }
            }
        }
        Some(newest)
    }

    /// The index of the newest source that has `number`.
    pub fn find(&self, number: u64) -> Option<u32> {
        let rank = self.rank(number)?;
        Some(self.sources.get(rank).copied().unwrap_or_default().into())
    }

    /// For each of `numbers` whether the set contains it.
    pub fn held(&self, numbers: &[u64]) -> BooleanBuffer {
        BooleanBuffer::collect_bool(numbers.len(), |row| self.holds(numbers[row]))
    }

    fn holds(&self, number: u64) -> bool {
        let word = place(number.wrapping_sub(self.first));
        word.is_some_and(|(word, bit)| self.words.get(word).is_some_and(|word| word & bit != 0))
    }

    /// How many numbers of the set are smaller than `number`; `None` where the set lacks `number`.
    pub fn rank(&self, number: u64) -> Option<usize> {
        let (word, bit) = place(number.wrapping_sub(self.first))?;
        let bits = self.words.get(word)?;
        let below = (bits & (bit - 1)).count_ones();
        (bits & bit != 0).then(|| (self.before[word] + below) as usize)
    }

    /// Number of numbers.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Bytes on the heap.
    pub const fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
            + self.before.capacity() * size_of::<u32>()
            + self.sources.capacity() * size_of::<u16>()
    }
}

/// The word and the bit of the number that lies `offset` above the least number. The offset of a
/// number below the least wraps around, so its word is beyond all words.
fn place(offset: u64) -> Option<(usize, u64)> {
    Some((usize::try_from(offset / WORD).ok()?, 1 << (offset % WORD)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::visibility::bucketed_keys::places_of_older;

    #[test]
    fn numbers_far_apart_are_left_to_the_hash_table() {
        assert!(DenseNumbers::of(&[]).is_none());
        assert!(DenseNumbers::of(&[Vec::new()]).is_none());
        assert!(DenseNumbers::of(&[vec![0, u64::MAX]]).is_none());
        assert!(DenseNumbers::of(&[vec![0], vec![128]]).is_none());
        assert!(DenseNumbers::of(&[vec![0], vec![127]]).is_some());
    }

    #[test]
    fn the_ends_of_all_numbers_are_numbers_like_others() {
        for number in [0, 1, 63, 64, u64::MAX - 64, u64::MAX] {
            let (dense, _) = DenseNumbers::of(&[vec![number]]).unwrap();
            assert_eq!((dense.len(), dense.find(number)), (1, Some(0)));
            let others = [number.wrapping_sub(1), number.wrapping_add(1), number ^ (1 << 63)];
            assert_eq!(dense.held(&others).count_set_bits(), 0);
        }
    }

    proptest! {
        #[test]
        fn each_number_has_its_newest_source(
            first in prop_oneof![Just(0), Just((1_u64 << 63) - 100), Just(u64::MAX - 700), any::<u64>()],
            sources in prop::collection::vec(prop::collection::vec(0_u64..700, 1..40), 1..6),
        ) {
            let first = first.min(u64::MAX - 700);
            let sources: Vec<Vec<u64>> = sources
                .iter()
                .map(|numbers| numbers.iter().map(|number| first + number).collect())
                .collect();
            let mut model = BTreeMap::new();
            for (source, numbers) in (0..).zip(&sources) {
                model.extend(numbers.iter().map(|number| (*number, source)));
            }
            let span = model.last_key_value().unwrap().0 - model.first_key_value().unwrap().0;
            let count: usize = sources.iter().map(Vec::len).sum();
            let Some((dense, superseded)) = DenseNumbers::of(&sources) else {
                prop_assert!(span >= 64 * count as u64);
                return Ok(());
            };
            prop_assert_eq!(dense.len(), model.len());
            prop_assert_eq!(superseded, places_of_older(&sources, &model));
            let asked: Vec<u64> = (0..900).map(|step| first.wrapping_add(step).wrapping_sub(100)).collect();
            let held = dense.held(&asked);
            let ranks: BTreeMap<u64, usize> = model.keys().copied().zip(0..).collect();
            for (row, number) in asked.iter().enumerate() {
                prop_assert_eq!(dense.find(*number), model.get(number).copied());
                prop_assert_eq!(dense.rank(*number), ranks.get(number).copied());
                prop_assert_eq!(held.value(row), model.contains_key(number));
            }
        }
    }
}
