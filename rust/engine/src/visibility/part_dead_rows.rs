//! The dead rows that a part of a scan knows before it reads any row.
//!
//! Owns: [`PartDeadRows`], and when finding them is worth the time. A part then reads no source that
//! newer rows replace whole. This costs a pass over the key columns of the part's base fragments, so
//! it is done only where the SSTables have enough keys to replace them.
//! Does not own: the rows of a part (`plan`), or the dead rows of a scan of all rows (`mask`).

use std::ops::Range;
use std::sync::Arc;

use lance_table::format::Fragment;
use lancemem_core::types::Result;

use super::{BaseLookup, DeadRows, KeyChoice, LazyChoice, MergeCache};
use crate::record_index::RecordIndex;
use crate::snapshot::{Snapshot, Source, SsTableHandle};

/// The action that errors name.
const ACTION: &str = "planning a part of a scan";
/// Keys of base fragments are looked up where the SSTables have at least one key for so many rows of
/// the base table. With fewer keys few fragments can be dead whole.
const ROWS_A_KEY: usize = 2;
/// Fragments whose key columns are read at the same time.
const CONCURRENT_LOOKS: usize = 2;

/// The dead rows of the sources that one part reads.
#[derive(Debug)]
pub struct PartDeadRows {
    choice: Arc<KeyChoice>,
    /// The dead rows of the part's base fragments; `None` where they were not looked up.
    base: Option<Arc<DeadRows>>,
}

impl PartDeadRows {
    /// The dead rows of a part of `snapshot` that reads the base fragments `fragments`; `None` where
    /// the SSTables have few rows. `choice` is over all sources of `snapshot`.
    ///
    /// # Errors
    /// A storage error while key columns are read.
    pub async fn find(
        snapshot: &Snapshot,
        choice: &LazyChoice,
        cache: &MergeCache,
        fragments: &[Fragment],
    ) -> Result<Option<Self>> {
        let in_base = rows_of(snapshot.base.fragments());
        let sstables = snapshot.sources().map(|(_, source)| match source {
            Source::SsTable(sstable) => rows_of(sstable.dataset.fragments()),
            Source::MemTable(_) => 0,
        });
        let above: usize = sstables.sum();
        if above == 0 || above < in_base / ROWS_A_KEY {
            return Ok(None);
        }
        let choice = choice.get().await?;
        let is_worth = choice.keys_of_sstables().len() >= in_base / ROWS_A_KEY;
        let base = if is_worth && !fragments.is_empty() {
            Some(Arc::new(in_fragments(snapshot, &choice, cache, fragments).await?))
        } else {
            None
        };
        Ok(Some(Self { choice, base }))
    }

    /// The dead rows of the base fragments, where they were looked up. Rows in memory may supersede
    /// more of them.
    #[must_use]
    pub fn of_base(&self) -> Option<Arc<DeadRows>> {
        self.base.clone()
    }

    /// Whether newer SSTables supersede all rows at the positions `range` of an SSTable; `None` for
    /// its every row.
    ///
    /// # Errors
    /// An internal error for an SSTable that was not compared.
    pub fn supersede(&self, sstable: &SsTableHandle, range: Option<&Range<u64>>) -> Result<bool> {
        let dead = self.choice.superseded((sstable.shard_id, sstable.generation))?;
        Ok(match (sstable.dataset.fragments().as_slice(), range) {
            ([only], Some(range)) => dead.covers(only, range.clone()),
            (all, None) => all.iter().all(|fragment| dead.is_whole(fragment)),
            (_, Some(_)) => false,
        })
    }
}

/// The dead rows of base fragments. The next part of the same snapshot finds them in `cache`.
async fn in_fragments(
    snapshot: &Snapshot,
    choice: &KeyChoice,
    cache: &MergeCache,
    fragments: &[Fragment],
) -> Result<DeadRows> {
    let mut dead = cache.base_rows(snapshot, fragments);
    let is_unknown = |fragment: &&Fragment| dead.of_fragment(fragment.id).is_none();
    let unknown: Vec<Fragment> = fragments.iter().filter(is_unknown).cloned().collect();
    if unknown.is_empty() {
        return Ok(dead);
    }
    let lookup = BaseLookup {
        base: &snapshot.base,
        key: &snapshot.key,
        // So many keys are cheaper to find by the key columns.
        index: &RecordIndex::default(),
        pace: None,
        concurrent: CONCURRENT_LOOKS,
        action: ACTION,
    };
    let keys = choice.keys_of_sstables();
    let found = lookup.dead_rows(&unknown, std::iter::empty(), keys).await?;
    cache.keep_base_rows(snapshot, found.clone());
    dead.replace(found);
    Ok(dead)
}

fn rows_of(fragments: &[Fragment]) -> usize {
    fragments.iter().filter_map(|fragment| fragment.physical_rows).sum()
}
