//! Rows of the base table whose keys have rows above it.
//!
//! Owns: the look-up of keys in base fragments, for compactions and deletion vectors. It uses the
//! record index where the index covers a fragment and costs less, else the fragment's key columns.
//! Does not own: the results of earlier look-ups, or what becomes of the rows.
//!
//! Deleted rows of the base are found like the rest: a restored version may show them again.

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::{DeadRows, DeletedKeys, NewerKeys, Pace, found_rows};
use crate::record_index::{RecordIndex, fragment_of};
use crate::stages::{Stage, StageName};

/// How keys are looked up in the base table.
pub struct BaseLookup<'a> {
    /// The base table.
    pub base: &'a Dataset,
    /// Names of the key columns in primary-key order.
    pub key: &'a Arc<[String]>,
    /// The record index of the base version.
    pub index: &'a RecordIndex,
    /// The rate limit on the bytes that the look-up reads.
    pub pace: Option<Pace>,
    /// Fragments whose key columns are read at the same time.
    pub concurrent: usize,
    /// The action that errors name.
    pub action: &'static str,
}

impl BaseLookup<'_> {
    /// The rows of `fragments` whose keys are in `newer`; `keys` iterates over the same keys. The
    /// result has an entry for each of `fragments`, which is empty where no row was found.
    ///
    /// # Errors
    /// A storage error.
    pub async fn dead_rows<'k>(
        &self,
        fragments: &[Fragment],
        keys: impl Iterator<Item = &'k [u8]>,
        newer: &Arc<NewerKeys>,
    ) -> Result<DeadRows> {
        let mut dead = DeadRows::default();
        for fragment in fragments {
            dead.set(fragment.id, RoaringBitmap::new())?;
        }
        if newer.is_empty() {
            return Ok(dead);
        }
        let stage = Stage::begin(StageName::LookUpKeys, fragments.len());
        let mut scanned = fragments.to_vec();
        if let Some(found) = self.index.positions(fragments, newer.len(), keys).await {
            if let Some(pace) = &self.pace {
                pace(found.bytes).await;
            }
            scanned.retain(|fragment| !found.rows.contains_key(&fragment.id));
            stage.add(found.rows.len());
            for (fragment, rows) in found.rows {
                dead.set(fragment, rows)?;
            }
        }
        if !scanned.is_empty() {
            self.scan(scanned, newer, &mut dead, &stage).await?;
        }
        Ok(dead)
    }

    /// As [`Self::dead_rows`], with the cause of each row: `deleted` are the keys whose newest
    /// event is a delete.
    ///
    /// # Errors
    /// A storage error.
    pub async fn dead_rows_and_causes<'k>(
        &self,
        fragments: &[Fragment],
        keys: impl Iterator<Item = &'k [u8]>,
        newer: &Arc<NewerKeys>,
        deleted: &DeletedKeys,
    ) -> Result<DeadRows> {
        let dead = self.dead_rows(fragments, keys, newer).await?;
        let has_dead = |fragment: &&Fragment| {
            dead.of_fragment(fragment.id).is_some_and(|rows| !rows.is_empty())
        };
        let hit: Vec<Fragment> = fragments.iter().filter(has_dead).cloned().collect();
        let of_deletes = self.dead_rows(&hit, deleted.iter(), deleted.held()).await?;
        Ok(dead.with_deleted(of_deletes))
    }

    /// Adds the dead rows of `fragments` to `dead`, from the key columns.
    async fn scan(
        &self,
        fragments: Vec<Fragment>,
        newer: &Arc<NewerKeys>,
        dead: &mut DeadRows,
        stage: &Stage,
    ) -> Result<()> {
        let (base, action) = (self.base, self.action);
        let looks = fragments.into_iter().map(|Fragment { id, .. }| {
            let (key, newer, pace) = (self.key.clone(), newer.clone(), self.pace.clone());
            async move {
                let rows = found_rows(fragment_of(base, id)?, key, newer, pace, action);
                let rows = SpawnedTask::spawn(rows).await;
                Ok::<_, Error>((id, rows.context(action)??))
            }
        });
        let mut found = stream::iter(looks).buffered(self.concurrent);
        while let Some((fragment, rows)) = found.try_next().await? {
            dead.set(fragment, rows)?;
            stage.add(1_u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int64Array, RecordBatch};
    use lance::dataset::InsertBuilder;
    use lancemem_core::format::{KeyEncoder, KeyForm};
    use lancemem_core::types::{Generation, ShardId};

    use super::*;
    use crate::snapshot::SsTableKeys;
    use crate::visibility::{Cause, Comparison, SsTableEvents, compare};

    fn batch(ids: &[i64]) -> RecordBatch {
        let ids = Arc::new(Int64Array::from(ids.to_vec()));
        RecordBatch::try_from_iter([("id", ids as _)]).unwrap()
    }

    fn keys_of(ids: &[i64], key: &[String]) -> Arc<SsTableKeys> {
        let rows = batch(ids);
        let encoder = KeyEncoder::new(rows.schema_ref(), key).unwrap();
        Arc::new(SsTableKeys::dense(encoder.encode_block(&rows)))
    }

    #[tokio::test]
    async fn rows_of_the_base_die_because_of_updates_and_of_deletes() {
        let folder = tempfile::tempdir().unwrap();
        let uri = folder.path().canonicalize().unwrap();
        let rows = batch(&[10, 11, 12, 13, 14]);
        let form = KeyForm::of(rows.schema_ref(), &["id".to_owned()]);
        let base = InsertBuilder::new(uri.to_str().unwrap()).execute(vec![rows]).await.unwrap();
        let key: Arc<[String]> = Arc::from(["id".to_owned()]);
        // 11 is updated, 12 deleted, 13 deleted and written again; the base never had 20.
        let first = keys_of(&[11, 12, 13, 20], &key);
        let tombstones = [RoaringBitmap::from([1, 2]), RoaringBitmap::new()];
        let sstables = [first, keys_of(&[13], &key)];
        let compared: Vec<_> = (1..)
            .zip(&sstables)
            .map(|(generation, keys)| ((ShardId::nil(), Generation(generation)), keys.clone()))
            .collect();
        let Comparison { newest, superseded } = compare(form, &compared).unwrap();
        let events = sstables.iter().zip(&tombstones).zip(&superseded);
        let events = events.map(|((keys, tombstones), superseded)| SsTableEvents {
            keys: keys.as_ref(),
            tombstones,
            superseded,
        });
        let deleted = DeletedKeys::of(form, events).unwrap();
        let index = RecordIndex::default();
        let lookup = BaseLookup {
            base: &base,
            key: &key,
            index: &index,
            pace: None,
            concurrent: 1,
            action: "a test",
        };
        let keys = || sstables.iter().flat_map(|keys| keys.keys());
        let newest = Arc::new(newest);

        let dead = lookup.dead_rows(base.fragments(), keys(), &newest).await.unwrap();
        assert_eq!(dead.of_fragment(0), Some(&RoaringBitmap::from([1, 2, 3])));
        assert_eq!(dead.cause(1), None, "not asked for");

        let dead = lookup.dead_rows_and_causes(base.fragments(), keys(), &newest, &deleted).await;
        let dead = dead.unwrap();
        let causes: Vec<Option<Cause>> = (0..5).map(|row| dead.cause(row)).collect();
        let (updated, deleted) = (Some(Cause::Updated), Some(Cause::Deleted));
        assert_eq!(causes, [None, updated, deleted, updated, None]);
    }
}
