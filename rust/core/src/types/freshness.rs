//! Which source wins when two hold the same key.
//!
//! Owns: the order base table < SSTable by generation < MemTable by generation.
//! Does not own: the choice inside one source, which is by row position.

use super::Generation;

/// The level and age of a source of rows; the larger one wins.
///
/// The derived order is the rule of the MemWAL specification ("LSM tree merging read"):
/// the base table is the oldest, flushed SSTables follow by generation, memory is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freshness {
    /// The Lance table under everything.
    Base,
    /// A flushed SSTable.
    SsTable(Generation),
    /// Rows in memory, or in the part of the WAL that no flush has covered.
    MemTable(Generation),
}

#[cfg(test)]
mod tests {
    use super::{Freshness, Generation};

    #[test]
    fn a_memtable_outranks_every_sstable_and_a_later_generation_outranks_an_earlier_one() {
        let order = [
            Freshness::Base,
            Freshness::SsTable(Generation(1)),
            Freshness::SsTable(Generation(9)),
            Freshness::MemTable(Generation(2)),
            Freshness::MemTable(Generation(10)),
        ];
        assert!(order.is_sorted());
    }
}
