//! Missing generations: flushed, but neither listed by the shard manifest nor compacted.
//!
//! Owns: the rule, as a pure function over a shard manifest and the progress of a base version.
//! Does not own: the order of the reads, or what a missing generation means to the caller
//! (`table`).
//!
//! A flush raises the current generation and lists its SSTable in one manifest version. A
//! compaction commits its progress to the base table first and takes the SSTables out of the
//! manifest second. With a base version that was read after the manifest, every generation below
//! the current one is therefore listed, or at or below the progress.

use std::fmt;

use lancemem_core::format::ShardManifest;
use lancemem_core::types::Generation;

/// A contiguous range of missing generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// The oldest.
    pub first: Generation,
    /// The newest.
    pub last: Generation,
}

impl MissingRange {
    /// Whether the range contains `generation`.
    #[must_use]
    pub fn contains(&self, generation: Generation) -> bool {
        (self.first..=self.last).contains(&generation)
    }
}

impl fmt::Display for MissingRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            return write!(f, "generation {}", self.first);
        }
        write!(f, "generations {} to {}", self.first, self.last)
    }
}

/// The generations below the current one that `manifest` does not list and that a base version with
/// the progress `compacted` in the shard does not contain. Without a progress, generations count
/// from `first` on.
#[must_use]
pub fn missing_generations(
    manifest: &ShardManifest,
    compacted: Option<Generation>,
    first: Generation,
) -> Vec<MissingRange> {
    let end = manifest.current_generation.get();
    let mut next = compacted.map_or(first.get(), |through| through.get().saturating_add(1));
    let listed = manifest.sstables.iter().map(|sstable| sstable.generation.get());
    let mut listed: Vec<u64> = listed.filter(|generation| *generation < end).collect();
    listed.sort_unstable();
    let mut missing = Vec::new();
    // The current generation closes the last range.
    for generation in listed.into_iter().chain([end]) {
        if generation > next {
            let (first, last) = (Generation(next), Generation(generation - 1));
            missing.push(MissingRange { first, last });
        }
        next = next.max(generation.saturating_add(1));
    }
    missing
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lancemem_core::format::SsTable;
    use lancemem_core::types::ShardId;

    use super::*;

    fn missing(listed: &[u64], current: u64, compacted: Option<u64>, first: u64) -> Vec<String> {
        let mut manifest = ShardManifest::initial(ShardId::from_u128(7), 1, BTreeMap::new());
        manifest.current_generation = Generation(current);
        let sstables = listed.iter().map(|generation| SsTable {
            generation: Generation(*generation),
            path: format!("0badc0de_gen_{generation}"),
            in_memory_bytes: None,
            physical_rows: None,
            primary_key_bytes: None,
        });
        manifest.sstables = sstables.collect();
        let ranges = missing_generations(&manifest, compacted.map(Generation), Generation(first));
        ranges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_listed_or_compacted_generation_is_not_missing() {
        assert!(missing(&[], 1, None, 1).is_empty(), "nothing was flushed");
        assert!(missing(&[1, 2, 3], 4, None, 1).is_empty());
        assert!(missing(&[3, 2, 1], 4, Some(2), 1).is_empty(), "not drained yet");
        assert!(missing(&[4, 5], 6, Some(3), 1).is_empty());
        assert!(missing(&[], 6, Some(5), 1).is_empty());
        assert!(missing(&[], 6, Some(8), 1).is_empty(), "a shard that is older than its table");
        assert!(missing(&[], 6, Some(u64::MAX), 1).is_empty());
    }

    #[test]
    fn a_generation_that_is_neither_listed_nor_compacted_is_missing() {
        assert_eq!(missing(&[], 3, Some(1), 1), ["generation 2"]);
        assert_eq!(missing(&[], 4, None, 1), ["generations 1 to 3"]);
        assert_eq!(
            missing(&[6, 3], 9, Some(1), 1),
            ["generation 2", "generations 4 to 5", "generations 7 to 8"]
        );
        let largest = u64::MAX - 1;
        assert_eq!(missing(&[], largest, None, 1), [format!("generations 1 to {}", largest - 1)]);
        assert!(missing(&[5, 9], 5, Some(4), 1).is_empty(), "what is still to come");
    }

    #[test]
    fn without_a_progress_generations_count_from_the_first_on() {
        assert!(missing(&[5], 6, None, 5).is_empty());
        assert_eq!(missing(&[5, 7], 8, None, 5), ["generation 6"]);
        assert_eq!(missing(&[5], 6, Some(2), 5), ["generations 3 to 4"], "the progress decides");
    }
}
