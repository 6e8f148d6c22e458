//! Which entries of a log no reader needs, by the rule of `rust/engine/src/garbage/rules.rs`.
//!
//! Owns: a copy of that rule, for tests without Lance.
//! Does not own: clocks, listings, removals; or the rule for real tables, whose crate needs Lance.

use std::collections::BTreeMap;

use lancemem_core::types::WalPosition;

/// What stands at a position of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Rows.
    Rows,
    /// A fence sentinel, or an entry that cannot be read; `old` where the writer that it fenced
    /// cannot wake up any more.
    Sentinel {
        /// Whether it has stood for a week.
        old: bool,
    },
}

/// The entries that may be removed where SSTables hold everything through `covered`, in the order
/// in which they must be removed. The highest one stays, and so do the newest covered sentinel and
/// young ones.
pub fn garbage<T>(
    entries: &BTreeMap<WalPosition, T>,
    covered: WalPosition,
    content: impl Fn(&T) -> Content,
) -> Vec<&T> {
    let highest = entries.keys().next_back().copied().unwrap_or_default();
    let is_sentinel = |entry: &T| content(entry) != Content::Rows;
    let fence = entries.range(..=covered).rfind(|(_, entry)| is_sentinel(entry)).map(|(at, _)| *at);
    let goes = |position: WalPosition, entry: &T| match content(entry) {
        Content::Rows => position < highest,
        Content::Sentinel { old } => old && position < highest && Some(position) != fence,
    };
    let below = entries.range(..=covered);
    below.filter(|(position, entry)| goes(**position, entry)).map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_covered_entry_goes_and_sentinels_and_the_highest_entry_stay() {
        let log = |last| (1..=last).map(|at| (WalPosition(at), at)).collect::<BTreeMap<_, _>>();
        let of = |last, covered, old| -> Vec<u64> {
            let sentinel = |at: &u64| match at % 3 {
                1 => Content::Sentinel { old },
                _ => Content::Rows,
            };
            garbage(&log(last), WalPosition(covered), sentinel).into_iter().copied().collect()
        };
        assert_eq!(of(100, 6, false), [2, 3, 5, 6]);
        assert_eq!(of(100, 6, true), [1, 2, 3, 5, 6], "the newest covered fence stays");
        assert_eq!(of(6, 6, true), [1, 2, 3, 5]);
        assert_eq!(of(6, 9, false), [2, 3, 5], "whatever is covered");
        assert!(of(0, 9, true).is_empty());
    }
}
