//! Functions that take the value of one event.
//!
//! Owns: which event of a key wins, by arrival, by sequence, by value.
//! Does not own: the values; a picked event is copied whatever the type of its columns is.

use std::cmp::Ordering;
use std::ops::Range;

use super::column::Picks;
use super::order::Order;

/// The event of each key that a choosing rule shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Winners {
    pub(super) positions: Vec<usize>,
    pub(super) rows: Vec<(usize, usize)>,
    pub(super) replaces: Vec<bool>,
}

impl Winners {
    /// Source and row of the event that wins, one for each group.
    #[must_use]
    pub fn rows(&self) -> &[(usize, usize)] {
        &self.rows
    }

    /// Whether events of the key in sources that are older than all of these count no more.
    #[must_use]
    pub fn replaces(&self) -> &[bool] {
        &self.replaces
    }
}

/// The newest event.
pub(super) fn last(ranges: &[Range<usize>]) -> Picks {
    last_where(ranges, |_| true)
}

/// The oldest event.
pub(super) fn first(ranges: &[Range<usize>]) -> Picks {
    first_where(ranges, |_| true)
}

/// The newest event that `counts`.
pub(super) fn last_where(ranges: &[Range<usize>], counts: impl Fn(usize) -> bool) -> Picks {
    ranges.iter().map(|range| range.clone().rev().find(|at| counts(*at))).collect()
}

/// The oldest event that `counts`.
pub(super) fn first_where(ranges: &[Range<usize>], counts: impl Fn(usize) -> bool) -> Picks {
    ranges.iter().map(|range| range.clone().find(|at| counts(*at))).collect()
}

/// The event with the best sequence; a null sequence loses. Of equal ones the newest wins where the
/// greatest is best, and the oldest where the least is.
pub(super) fn by_sequence(ranges: &[Range<usize>], order: &Order, ties: Ties) -> Picks {
    best(ranges, |_| true, |at, best| ties.wins(order.compare(at, best)))
}

/// The event with the best value; of equal ones the oldest.
pub(super) fn by_value(ranges: &[Range<usize>], order: &Order) -> Picks {
    let counts = |at| !order.is_null(at);
    best(ranges, counts, |at, best| Ties::Older.wins(order.compare(at, best)))
}

/// The event whose columns a sequence group takes: of those that gave the group, the newest one with
/// the greatest sequence.
///
/// An event without a sequence does not touch a group that has values. A row of the base table or a
/// replace may hold a group without a sequence; it is the oldest event, and each sequence beats it.
pub(super) fn by_group(
    ranges: &[Range<usize>],
    order: &Order,
    is_given: impl Fn(usize) -> bool,
) -> Picks {
    let wins = |at, best| !order.is_null(at) && Ties::Newer.wins(order.compare(at, best));
    best(ranges, is_given, wins)
}

/// Which of two equal events wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ties {
    /// The newer one.
    Newer,
    /// The older one.
    Older,
}

impl Ties {
    /// Whether a newer event wins that stands so to the best one.
    const fn wins(self, order: Ordering) -> bool {
        match self {
            Self::Newer => order.is_ge(),
            Self::Older => order.is_gt(),
        }
    }
}

/// Of the events that `counts`, the one that each newer one fails to beat.
fn best(
    ranges: &[Range<usize>],
    counts: impl Fn(usize) -> bool,
    beats: impl Fn(usize, usize) -> bool,
) -> Picks {
    let best_of = |range: &Range<usize>| {
        let counted = range.clone().filter(|at| counts(*at));
        counted.reduce(|best, at| if beats(at, best) { at } else { best })
    };
    ranges.iter().map(best_of).collect()
}
