//! The distance that a row must not exceed to be among the nearest ones so far.
//!
//! Owns: the least distances of one query in one stream of rows.
//! Does not own: rows.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The `keep` least distances of the rows so far: a max-heap, whose top is the bound.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    keep: usize,
    least: BinaryHeap<Distance>,
}

/// A distance that is no NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Distance(f32);

impl Eq for Distance {}

impl Ord for Distance {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Distance {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Bound {
    /// The bound of the `keep` nearest rows.
    pub fn new(keep: usize) -> Self {
        Self { keep, least: BinaryHeap::new() }
    }

    /// Whether a row at `distance` may be among the nearest ones; counts it if so. Rows at the same
    /// distance as the last of them are, because keys decide among them.
    pub fn admits(&mut self, distance: f32) -> bool {
        if self.least.len() < self.keep {
            self.least.push(Distance(distance));
            return true;
        }
        let Some(mut top) = self.least.peek_mut() else { return false };
        match distance.total_cmp(&top.0) {
            Ordering::Less => {
                *top = Distance(distance);
                true
            }
            Ordering::Equal => true,
            Ordering::Greater => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_passes_while_it_can_be_among_the_nearest() {
        let mut bound = Bound::new(2);
        let passed = [5.0, 3.0, 4.0, 4.0, 6.0, 1.0, 3.5].map(|distance| bound.admits(distance));
        assert_eq!(passed, [true, true, true, true, false, true, false]);
        assert!(!Bound::new(0).admits(0.0));
    }
}
