//! Integer keys that lie far apart, in buckets of one cache line.
//!
//! Owns: the set of numbers, and the newest source of each.
//! Does not own: numbers that lie close together (`bitmap_keys`), or the Bloom filter before the
//! buckets (`key_filter`).
//!
//! A hash table with linear probing by buckets. A bucket has eight slots, of which five are filled
//! on average; a full bucket overflows into the next, so most look-ups read one cache line. A
//! look-up costs the wait for this line. So the lines of many numbers are prefetched, without a
//! branch between them, and the processor waits for all of them at once. A large table is built by
//! several threads, each for a range of the hashes.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::panic::resume_unwind;
use std::thread;

use arrow_buffer::{BooleanBuffer, Buffer};
use foldhash::fast::RandomState;
use roaring::RoaringBitmap;

use super::key_filter::{KeyBits, maybe};

const SLOTS: usize = 8;
/// Numbers in a bucket on average.
const USUAL: usize = 5;
/// Numbers that are worth a thread of their own.
const NUMBERS_A_PART: usize = 65_536;
/// Odd, so that its multiples reach every number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = 64;
/// Numbers whose cache lines are prefetched at once: half of a 32 KiB L1 cache.
const AHEAD: usize = 256;

/// Some numbers, each with the source that holds its newest row.
#[derive(Debug)]
pub struct FarNumbers {
    hasher: RandomState,
    parts: Vec<Part>,
    /// The value of a free slot: a number that the set does not contain.
    free: u64,
}

/// The numbers of one range of the hashes.
#[derive(Debug)]
struct Part {
    bits: KeyBits,
    /// Each is filled from its first slot on.
    buckets: Vec<Bucket>,
    /// The source of each slot's number; empty where there is only one source.
    sources: Vec<u32>,
    free: u64,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; SLOTS]);

impl FarNumbers {
    /// The numbers of `sources`, the newest source last, and for each source the positions of its
    /// numbers that a newer source has.
    pub fn of(sources: &[Vec<u64>]) -> (Self, Vec<RoaringBitmap>) {
        let count: usize = sources.iter().map(Vec::len).sum();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        Self::in_parts(sources, threads.min(count / NUMBERS_A_PART).max(1))
    }

    fn in_parts(sources: &[Vec<u64>], parts: usize) -> (Self, Vec<RoaringBitmap>) {
        let hasher = RandomState::default();
        let mut free = 0;
        while sources.iter().any(|numbers| numbers.contains(&free)) {
            free = free.wrapping_add(STEP);
        }
        let fill = |part| {
            let of_source = |numbers| hashed(numbers, &hasher, part, parts);
            let count = sources.iter().map(|numbers| of_source(numbers).count()).sum();
            let mut filled = Part::with_capacity(count, free, sources.len() > 1);
            let mut superseded = vec![RoaringBitmap::new(); sources.len()];
            let mut ahead = Vec::with_capacity(AHEAD);
            // The newest source comes first, so a number keeps the first source that adds it.
            for (at, numbers) in sources.iter().enumerate().rev() {
                let source = u32::try_from(at).unwrap_or(u32::MAX);
                let mut numbers = of_source(numbers);
                loop {
                    ahead.clear();
                    ahead.extend(numbers.by_ref().take(AHEAD));
                    if ahead.is_empty() {
                        break;
                    }
                    filled.add(&ahead, source, &mut superseded[at]);
                }
            }
            (filled, superseded)
        };
        let parts = thread::scope(|scope| {
            let others: Vec<_> = (1..parts).map(|part| scope.spawn(move || fill(part))).collect();
            let first = fill(0);
            let others =
                others.into_iter().map(|it| it.join().unwrap_or_else(|it| resume_unwind(it)));
            std::iter::once(first).chain(others).collect::<Vec<_>>()
        });
        let (parts, of_parts): (Vec<Part>, Vec<Vec<RoaringBitmap>>) = parts.into_iter().unzip();
        let mut superseded = vec![RoaringBitmap::new(); sources.len()];
        for of_part in of_parts {
            superseded.iter_mut().zip(of_part).for_each(|(all, rows)| *all |= rows);
        }
        (Self { hasher, parts, free }, superseded)
    }

    /// The index of the newest source that has `number`.
    pub fn find(&self, number: u64) -> Option<u32> {
        self.slot(number, self.hasher.hash_one(number)).map(|(part, slot)| part.source(slot))
    }

    fn slot(&self, number: u64, hash: u64) -> Option<(&Part, usize)> {
        let part = self.part(hash);
        part.slot(number, hash).filter(|_| number != self.free).map(|slot| (part, slot))
    }

    fn part(&self, hash: u64) -> &Part {
        &self.parts[part_of(hash, self.parts.len())]
    }

    /// For each of `numbers` whether the set contains it.
    pub fn held(&self, numbers: &[u64]) -> BooleanBuffer {
        let mut words = vec![0_u64; numbers.len().div_ceil(WORD)];
        for ahead in self.maybe(numbers).chunks(AHEAD) {
            self.read_ahead(ahead);
            for (row, hash) in ahead {
                let is_held = self.slot(numbers[*row], *hash).is_some();
                words[row / WORD] |= u64::from(is_held) << (row % WORD);
            }
        }
        BooleanBuffer::new(Buffer::from_vec(words), 0, numbers.len())
    }

    /// Visits each row of `numbers` whose number is in the set, with the newest source that has it.
    pub fn visit_found(&self, numbers: &[u64], mut visit: impl FnMut(usize, u32)) {
        let mut found = Vec::with_capacity(AHEAD);
        for ahead in self.maybe(numbers).chunks(AHEAD) {
            self.read_ahead(ahead);
            found.clear();
            found.extend(ahead.iter().filter_map(|(row, hash)| {
                self.slot(numbers[*row], *hash).map(|(part, slot)| (*row, part, slot))
            }));
            black_box(found.iter().fold(0, |read, (_, part, slot)| read ^ part.source(*slot)));
            for (row, part, slot) in &found {
                visit(*row, part.source(*slot));
            }
        }
    }

    /// Rows whose numbers may be in the set, with their hashes.
    fn maybe(&self, numbers: &[u64]) -> Vec<(usize, u64)> {
        let hashes = numbers.iter().map(|number| self.hasher.hash_one(number));
        maybe(hashes, |hash| self.part(hash).bits.may_hold(hash))
    }

    /// Prefetches the buckets of some hashes.
    fn read_ahead(&self, rows: &[(usize, u64)]) {
        black_box(rows.iter().fold(0, |read, (_, hash)| read ^ self.part(*hash).first(*hash)));
    }

    /// Number of numbers.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len).sum()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let of_part = |part: &Part| {
            part.buckets.capacity() * size_of::<Bucket>()
                + part.sources.capacity() * size_of::<u32>()
                + part.bits.heap_bytes()
        };
        self.parts.iter().map(of_part).sum()
    }
}

impl Part {
    fn with_capacity(count: usize, free: u64, has_sources: bool) -> Self {
        let buckets = vec![Bucket([free; SLOTS]); count / USUAL + 1];
        let sources = vec![0; if has_sources { buckets.len() * SLOTS } else { 0 }];
        Self { bits: KeyBits::with_capacity(count), buckets, sources, free, len: 0 }
    }

    /// Adds the numbers of a source, which is older than all sources added before. Adds the
    /// positions of numbers that a newer source has to `superseded`.
    fn add(&mut self, numbers: &[Hashed], source: u32, superseded: &mut RoaringBitmap) {
        // Prefetch: all filter words and buckets are read before the first is written.
        black_box(numbers.iter().fold(0, |read, Hashed { hash, .. }| {
            read ^ self.first(*hash) ^ u64::from(self.bits.may_hold(*hash))
        }));
        for Hashed { place, number, hash } in numbers {
            self.bits.add(*hash);
            let known = self.len;
            let slot = self.slot_to_fill(*number, *hash);
            if self.len == known {
                if self.source(slot) != source {
                    superseded.insert(*place);
                }
            } else if let Some(newest) = self.sources.get_mut(slot) {
                *newest = source;
            }
        }
    }

    fn source(&self, slot: usize) -> u32 {
        self.sources.get(slot).copied().unwrap_or_default()
    }

    /// The value of the first slot of a hash's bucket.
    fn first(&self, hash: u64) -> u64 {
        self.buckets[self.place(hash)].0[0]
    }

    /// The slot of a number; a number without a slot is put into the first free one.
    fn slot_to_fill(&mut self, number: u64, hash: u64) -> usize {
        let mut place = self.place(hash);
        loop {
            let bucket = &mut self.buckets[place];
            let here = slot_of(bucket, number);
            if here < SLOTS {
                return place * SLOTS + here;
            }
            let free = slot_of(bucket, self.free);
            if free < SLOTS {
                bucket.0[free] = number;
                self.len += 1;
                return place * SLOTS + free;
            }
            place = self.after(place);
        }
    }

    /// The slot of a number. For the number that marks free slots, the caller ignores the result.
    fn slot(&self, number: u64, hash: u64) -> Option<usize> {
        let mut place = self.place(hash);
        loop {
            let bucket = &self.buckets[place];
            let slot = slot_of(bucket, number);
            if slot < SLOTS {
                return Some(place * SLOTS + slot);
            }
            if bucket.0[SLOTS - 1] == self.free {
                return None;
            }
            place = self.after(place);
        }
    }

    /// The bucket of a hash: its high bits, scaled to the number of buckets.
    #[expect(clippy::cast_possible_truncation, reason = "less than the number of buckets")]
    const fn place(&self, hash: u64) -> usize {
        ((hash as u128 * self.buckets.len() as u128) >> u64::BITS) as usize
    }

    const fn after(&self, place: usize) -> usize {
        if place + 1 == self.buckets.len() { 0 } else { place + 1 }
    }
}

/// A number of a source.
struct Hashed {
    /// The position of the number in its source.
    place: u32,
    number: u64,
    hash: u64,
}

/// Those of `numbers` that belong to a part.
fn hashed<'a>(
    numbers: &'a [u64],
    hasher: &'a RandomState,
    part: usize,
    parts: usize,
) -> impl Iterator<Item = Hashed> + 'a {
    let hashed = (0..).zip(numbers).map(|(place, number)| {
        let hash = hasher.hash_one(number);
        Hashed { place, number: *number, hash }
    });
    hashed.filter(move |it| part_of(it.hash, parts) == part)
}

/// The part of a hash, by bits that choose neither the bucket nor the bits of the filter.
const fn part_of(hash: u64, parts: usize) -> usize {
    let middle = (hash >> 20) & 0xffff;
    ((middle * parts as u64) >> 16) as usize
}

/// The first slot that has `number`; [`SLOTS`] where no slot has it.
fn slot_of(bucket: &Bucket, number: u64) -> usize {
    let same = |slot: usize| usize::from(bucket.0[slot] == number) << slot;
    let found = (0..SLOTS).fold(1 << SLOTS, |found, slot| found | same(slot));
    found.trailing_zeros() as usize
}

/// For each source the positions of its numbers that a newer source has in `model`.
#[cfg(test)]
pub fn places_of_older(
    sources: &[Vec<u64>],
    model: &std::collections::BTreeMap<u64, u32>,
) -> Vec<RoaringBitmap> {
    let of_source = |(source, numbers): (u32, &Vec<u64>)| {
        let older = (0..).zip(numbers).filter(|(_, number)| model[number] != source);
        older.map(|(place, _)| place).collect()
    };
    (0..).zip(sources).map(of_source).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_that_stand_for_free_slots_are_numbers_like_others() {
        let numbers: Vec<u64> = (0..100_u64).map(|number| number.wrapping_mul(STEP)).collect();
        for count in [0, 1, 2, 50, 100] {
            let (far, _) = FarNumbers::of(&[numbers[..count].to_vec()]);
            assert_eq!(far.len(), count);
            let held = far.held(&numbers);
            let expected: Vec<usize> = (0..count).collect();
            assert_eq!(held.set_indices().collect::<Vec<_>>(), expected);
            assert!((0..100).all(|row| far.find(numbers[row]) == (row < count).then_some(0)));
        }
    }

    #[test]
    fn full_buckets_go_on_in_the_next_and_behind_the_last_in_the_first() {
        // With one bucket for five numbers, some buckets overflow among 100,000 numbers.
        let numbers: Vec<u64> = (0..100_000_u64).map(|number| number << 40).collect();
        for parts in [1, 2, 7] {
            let (far, _) = FarNumbers::in_parts(&[Vec::new(), numbers.clone()], parts);
            for part in &far.parts {
                let full = |bucket: &&Bucket| bucket.0[SLOTS - 1] != far.free;
                assert!(part.buckets.iter().filter(full).count() > 100);
            }
            assert_eq!((far.len(), far.held(&numbers).count_set_bits()), (100_000, 100_000));
            let others: Vec<u64> = numbers.iter().map(|number| number + 1).collect();
            assert_eq!(far.held(&others).count_set_bits(), 0);
            let mut found = 0;
            far.visit_found(&numbers, |row, source| {
                assert_eq!((row, source), (found, 1));
                found += 1;
            });
            assert_eq!(found, numbers.len());
        }
    }

    proptest! {
        #[test]
        fn each_number_has_its_newest_source(
            sources in prop::collection::vec(
                prop::collection::vec((0_u64..300).prop_map(|n| n.wrapping_mul(STEP)), 0..60),
                1..6,
            ),
            parts in 1_usize..5,
        ) {
            let mut model = BTreeMap::new();
            for (source, numbers) in (0..).zip(&sources) {
                model.extend(numbers.iter().map(|number| (*number, source)));
            }
            let (far, superseded) = FarNumbers::in_parts(&sources, parts);
            prop_assert_eq!(far.len(), model.len());
            prop_assert_eq!(superseded, places_of_older(&sources, &model));
            let asked: Vec<u64> = (0..400_u64).map(|number| number.wrapping_mul(STEP)).collect();
            let held = far.held(&asked);
            let mut found = BTreeMap::new();
            far.visit_found(&asked, |row, source| found.extend([(asked[row], source)]));
            for (row, number) in asked.iter().enumerate() {
                prop_assert_eq!(far.find(*number), model.get(number).copied());
                prop_assert_eq!(held.value(row), model.contains_key(number));
            }
            prop_assert_eq!(found, model);
        }
    }
}
