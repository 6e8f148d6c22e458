//! A Bloom filter that rejects most keys a table does not contain.
//!
//! Owns: the bits; all bits of one key lie in one word (a register-blocked Bloom filter).
//! Does not own: the hash, or the keys.
//!
//! The filter fits a processor's own cache where the table does not. An absent key then costs a
//! hash and one word.

/// Keys a word: with six, about one absent key in forty passes.
const KEYS_A_WORD: usize = 6;

/// The filter of some hashes.
#[derive(Debug)]
pub struct KeyBits {
    words: Vec<u64>,
}

impl Default for KeyBits {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl KeyBits {
    /// An empty filter, with bits for `keys` hashes.
    pub fn with_capacity(keys: usize) -> Self {
        Self { words: vec![0; keys / KEYS_A_WORD + 1] }
    }

    /// Adds a hash.
    pub fn add(&mut self, hash: u64) {
        let word = self.place(hash);
        self.words[word] |= bits_of(hash);
    }

    /// Whether the filter may contain the hash; never false for a hash that was added.
    pub fn may_hold(&self, hash: u64) -> bool {
        let bits = bits_of(hash);
        self.words[self.place(hash)] & bits == bits
    }

    /// The high bits of a hash, scaled to the number of words.
    #[expect(clippy::cast_possible_truncation, reason = "less than the number of words")]
    const fn place(&self, hash: u64) -> usize {
        ((hash as u128 * self.words.len() as u128) >> u64::BITS) as usize
    }

    /// Bytes on the heap.
    pub const fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

/// The rows, counted from 0, whose hashes pass the filter, with their hashes. All hashes are tested
/// first, so the look-ups that follow are independent of each other and their cache misses overlap.
pub fn maybe(
    hashes: impl ExactSizeIterator<Item = u64>,
    may_hold: impl Fn(u64) -> bool,
) -> Vec<(usize, u64)> {
    let mut rows = vec![(0, 0); hashes.len()];
    let mut count = 0;
    for (row, hash) in hashes.enumerate() {
        // No branch: it could not be predicted.
        rows[count] = (row, hash);
        count += usize::from(may_hold(hash));
    }
    rows.truncate(count);
    rows
}

/// Three bits, from the low bits of a hash; its high bits choose the word.
const fn bits_of(hash: u64) -> u64 {
    (1 << (hash & 63)) | (1 << ((hash >> 6) & 63)) | (1 << ((hash >> 12) & 63))
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::fast::FixedState;

    use super::*;

    const SEEDS: u64 = 10;

    /// How many of 100,000 absent hashes pass a filter of 20,000 hashes.
    fn passing(seed: u64) -> usize {
        let hasher = FixedState::with_seed(seed);
        let mut bits = KeyBits::with_capacity(20_000);
        for number in 0..20_000_u64 {
            bits.add(hasher.hash_one(number));
        }
        let hashes: Vec<u64> = (0..120_000_u64).map(|number| hasher.hash_one(number)).collect();
        assert!(hashes[..20_000].iter().all(|hash| bits.may_hold(*hash)));
        let maybe = maybe(hashes.iter().copied(), |hash| bits.may_hold(hash));
        let expected = (0..).zip(hashes.iter().copied());
        assert!(maybe.into_iter().eq(expected.filter(|(_, hash)| bits.may_hold(*hash))));
        hashes[20_000..].iter().filter(|hash| bits.may_hold(**hash)).count()
    }

    #[test]
    fn most_absent_hashes_are_rejected_and_no_present_hash_is() {
        // Consecutive numbers are not hashed equally well under each seed.
        let all: Vec<usize> = (0..SEEDS).map(passing).collect();
        assert!(all.iter().sum::<usize>() < 10 * 5_000, "{all:?} of 100,000 each");
    }
}
