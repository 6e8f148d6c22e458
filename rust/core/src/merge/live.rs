//! Which events of a key still count.
//!
//! Owns: what a barrier (a delete without a sequence) and a replace do to the events before them.
//! Does not own: which of the live events win.

use std::ops::Range;

/// The live events of each group.
#[derive(Debug)]
pub(super) struct Live {
    /// Positions of the events that count.
    pub ranges: Vec<Range<usize>>,
    /// Whether events before these count no more, also those of older sources.
    pub replaces: Vec<bool>,
    /// Where the group ends with a barrier, and nothing behind it counts.
    pub barriers: Vec<Option<usize>>,
}

impl Live {
    /// The live events of groups that begin at `offsets`.
    pub(super) fn new(
        offsets: &[usize],
        is_replace: impl Fn(usize) -> bool,
        is_barrier: impl Fn(usize) -> bool,
    ) -> Self {
        let groups = offsets.len().saturating_sub(1);
        let mut live = Self {
            ranges: Vec::with_capacity(groups),
            replaces: Vec::with_capacity(groups),
            barriers: Vec::with_capacity(groups),
        };
        for group in offsets.windows(2) {
            let (begin, end) = (group[0], group[1]);
            // The newest barrier or replace decides: no event before it counts.
            let reset = (begin..end).rev().find(|at| is_barrier(*at) || is_replace(*at));
            let barrier = reset.filter(|at| is_barrier(*at));
            let start = barrier.map_or(reset.unwrap_or(begin), |at| at + 1);
            live.ranges.push(start..end);
            live.replaces.push(reset.is_some_and(|at| is_kept(at, end)));
            live.barriers.push(barrier.filter(|_| start == end));
        }
        live
    }
}

/// Whether the fold of events that end at `end` replaces what is older than all of them, because the
/// event at `reset` does.
fn is_kept(reset: usize, end: usize) -> bool {
    reset + 1 == end || !mutant!("B24")
}
