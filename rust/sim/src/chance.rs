//! Chance with a seed: the same seed gives the same numbers on every machine.
//!
//! Owns: the generator, and the few questions that the simulation asks of it.
//! Does not own: what is decided by an answer.

use std::time::Duration;

use parking_lot::Mutex;

/// A generator that everything in one life shares (`SplitMix64`).
#[derive(Debug)]
pub struct Chance(Mutex<u64>);

impl Chance {
    /// The numbers of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(parking_lot::const_mutex(seed))
    }

    /// The next number.
    pub fn next(&self) -> u64 {
        let mut state = self.0.lock();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where `end` is 0.
    pub fn below(&self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// An index into something of `length`.
    pub fn index(&self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// True `per_mille` times of a thousand.
    pub fn odds(&self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `choices`, which are not empty.
    pub fn pick<T: Copy>(&self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    /// Up to `most` milliseconds.
    pub fn pause(&self, most: u64) -> Duration {
        Duration::from_millis(self.below(most + 1))
    }

    /// Another order of `items`.
    pub fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}
