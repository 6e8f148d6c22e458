//! The indexes of the base table after a compaction: every fragment is covered, by few segments.
//!
//! Owns: the order. Indexes of linked SSTables become segments; Lance builds a segment over the
//! other fragments that an index lacks; segments of an index that has many become one.
//! Does not own: the files of a segment, or the commits (`crate::compaction`).
//!
//! The rows are committed before. A step that fails leaves fragments that no index covers: reads
//! look at them without it, the result and `Table::indexes` name the reason, and the next
//! compaction starts again.

use std::collections::BTreeMap;
use std::slice;
use std::sync::Arc;

use futures::FutureExt;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::optimize::OptimizeOptions;
use lance_table::format::IndexMetadata;
use lancemem_core::types::Result;
use parking_lot::Mutex;

use super::indexes::{Listed, MAX_UPDATES, retried};
use crate::compaction::{CompactedIndex, LinkedSsTable, Segments, link_indexes, update_indexes};
use crate::errors::Context;
use crate::table::Table;

/// Segments of an index above which the newest become one: a search asks each of them.
const MAX_SEGMENTS: usize = 8;
/// A segment joins newer segments where it has fewer rows than this many times all of theirs. So a
/// row is merged a number of times that is logarithmic in the rows of the table.
const MERGED_RATIO: u64 = 2;
const ACTION: &str = "listing the segments of an index";

/// Why the last compaction of this process left rows uncovered, for each index.
#[derive(Debug, Default)]
pub struct IndexNotes(Mutex<BTreeMap<String, String>>);

impl IndexNotes {
    /// The reason for the index `name`.
    pub fn of(&self, name: &str) -> Option<String> {
        self.0.lock().get(name).cloned()
    }

    fn set(&self, notes: BTreeMap<String, String>) {
        *self.0.lock() = notes;
    }
}

impl Table {
    /// Makes the indexes of `linked` SSTables segments of the base table's indexes. They are read
    /// as long as the shard manifests list the SSTables.
    pub(super) async fn link_segments(
        &self,
        linked: &[LinkedSsTable],
        bytes_per_second: u64,
    ) -> Segments {
        if linked.is_empty() {
            return Segments::default();
        }
        let link = |base: Arc<Dataset>| async move {
            link_indexes(&base, linked, bytes_per_second).boxed().await
        };
        let made = retried(&self.catalog, MAX_UPDATES, link).boxed().await;
        made.unwrap_or_else(|error| {
            tracing::warn!(table = self.uri(), %error, "no index of an SSTable was linked");
            Segments::default()
        })
    }

    /// Covers the fragments that the indexes lack after `linked`, and merges segments. Returns the
    /// indexes with new segments, and those that still lack rows.
    ///
    /// # Errors
    /// A storage error of a read. A segment that cannot be built is no error.
    pub(super) async fn cover_fragments(
        &self,
        linked: Segments,
    ) -> Result<(Vec<CompactedIndex>, u64)> {
        let before = Listed::of(&*self.catalog.latest_base().await?).await?;
        let mut notes = BTreeMap::new();
        if !before.is_empty() {
            self.append_segments(&before, &mut notes).boxed().await?;
            self.merge_segments().boxed().await?;
        }
        let base = self.catalog.latest_base().await?;
        let after = Listed::of(&base).await?;
        let compacted: Vec<CompactedIndex> =
            after.iter().filter_map(|now| compacted(&before, now, &linked, &notes)).collect();
        notes.retain(|name, _| after.iter().any(|it| it.info.name == *name));
        self.index_notes.set(notes);
        Ok((compacted, base.version().version.max(linked.base_version)))
    }

    /// Builds a segment over the uncovered fragments of each index, all in one commit. Where that
    /// fails, each index is tried alone, and `notes` gets the reasons of those that fail.
    async fn append_segments(
        &self,
        listed: &[Listed],
        notes: &mut BTreeMap<String, String>,
    ) -> Result<()> {
        let lacking: Vec<String> = listed
            .iter()
            .filter(|index| index.info.unindexed_rows > 0 && index.untrained().is_none())
            .map(|index| index.info.name.clone())
            .collect();
        if lacking.is_empty() || self.append(&lacking).await.is_ok() {
            return Ok(());
        }
        for name in lacking {
            if let Err(error) = self.append(slice::from_ref(&name)).await {
                tracing::warn!(table = self.uri(), index = name, %error, "an index lacks new rows");
                notes.insert(name, error.to_string());
            }
        }
        Ok(())
    }

    async fn append(&self, names: &[String]) -> Result<()> {
        self.update(Some(names), &OptimizeOptions::append(), MAX_UPDATES).await
    }

    /// Merges the newest segments of each index with more than [`MAX_SEGMENTS`]. A merge that fails
    /// leaves the segments.
    async fn merge_segments(&self) -> Result<()> {
        let base = self.catalog.latest_base().await?;
        for index in Listed::of(&base).await?.iter().filter(|it| it.info.segments > MAX_SEGMENTS) {
            let name = index.info.name.as_str();
            let merge = |base: Arc<Dataset>| async move {
                let segments = base.load_indices_by_name(name).await.context(ACTION)?;
                let rows: Vec<u64> = segments.iter().map(|it| rows_of(&base, it)).collect();
                let Some(newest) = newest_to_merge(&rows) else { return Ok(()) };
                let options = OptimizeOptions::merge(newest).index_names(vec![name.to_owned()]);
                update_indexes(&base, &options).boxed().await.map(drop)
            };
            if let Err(error) = retried(&self.catalog, MAX_UPDATES, merge).await {
                let table = self.uri();
                tracing::warn!(table, index = name, %error, "segments of an index were not merged");
            }
        }
        Ok(())
    }
}

/// Rows of the fragments that a segment covers.
fn rows_of(base: &Dataset, segment: &IndexMetadata) -> u64 {
    let Some(covered) = &segment.fragment_bitmap else { return u64::MAX };
    let fragments = base.fragments().iter();
    let fragments =
        fragments.filter(|it| u32::try_from(it.id).is_ok_and(|id| covered.contains(id)));
    fragments.map(|it| it.num_rows().unwrap_or_default() as u64).sum()
}

/// How many of the newest segments become one; `None` where there are few. `rows` are those of each
/// segment, the oldest first.
fn newest_to_merge(rows: &[u64]) -> Option<usize> {
    if rows.len() <= MAX_SEGMENTS {
        return None;
    }
    let mut newest = rows.len() - MAX_SEGMENTS + 1;
    let mut sum =
        rows.iter().rev().take(newest).fold(0, |sum: u64, rows| sum.saturating_add(*rows));
    for older in rows.iter().rev().skip(newest) {
        if *older >= sum.saturating_mul(MERGED_RATIO) {
            break;
        }
        newest += 1;
        sum = sum.saturating_add(*older);
    }
    Some(newest)
}

/// What the compaction did to an index; `None` where it did nothing and every row is covered.
fn compacted(
    before: &[Listed],
    now: &Listed,
    linked: &Segments,
    notes: &BTreeMap<String, String>,
) -> Option<CompactedIndex> {
    let name = &now.info.name;
    let before = before.iter().find(|index| index.info.name == *name)?;
    let linked_rows = linked.rows.get(name).copied().unwrap_or_default();
    let built_rows = before.info.unindexed_rows.saturating_sub(now.info.unindexed_rows);
    let unindexed_rows = now.info.unindexed_rows;
    if linked_rows == 0 && built_rows == 0 && unindexed_rows == 0 {
        return None;
    }
    let reason = notes.get(name).cloned();
    let reason = reason.or_else(|| now.untrained().filter(|_| unindexed_rows > 0));
    let reason = reason.or_else(|| linked.unfit.get(name).cloned());
    Some(CompactedIndex {
        name: name.clone(),
        linked_rows,
        built_rows,
        unindexed_rows,
        segments: now.info.segments,
        reason,
    })
}

#[cfg(test)]
mod held;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_segments_stay_and_many_small_ones_become_one_beside_a_large_one() {
        assert_eq!(newest_to_merge(&[100; MAX_SEGMENTS]), None);
        assert_eq!(newest_to_merge(&[1_000, 10, 10, 10, 10, 10, 10, 10, 10]), Some(8));
        assert_eq!(newest_to_merge(&[u64::MAX, 900, 800, 700, 600, 500, 400, 1, 1, 1]), Some(3));
        assert_eq!(newest_to_merge(&[5; 12]), Some(12));
    }

    #[test]
    fn after_many_rounds_there_are_few_segments_and_a_row_was_merged_few_times() {
        let (mut segments, mut written) = (vec![10_000_u64], 0);
        for _ in 0..1_000 {
            segments.push(10);
            if let Some(newest) = newest_to_merge(&segments) {
                let merged: u64 = segments.drain(segments.len() - newest..).sum();
                written += merged;
                segments.push(merged);
            }
            assert!(segments.len() <= MAX_SEGMENTS, "{segments:?}");
        }
        assert_eq!(segments.iter().sum::<u64>(), 20_000);
        // Ten thousand new rows; every row is written again fewer than ten times.
        assert!(written < 10 * 20_000, "{written}");
    }
}
