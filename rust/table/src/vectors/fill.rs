//! The look-up of what one run supersedes.
//!
//! Owns: the ways from the run's keys to positions: the record index or the key columns in the
//! base table, the keys of older runs, and the run's own tombstones. Deleted rows of the base are
//! looked up as well: an older version that is restored may show them again.
//! Does not own: which sources are missing (`cover`), or where the result is put (`table`).

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lancemem_core::format::{FragmentVector, KeyEncoder, KeyForm, OlderRunVector, RunVectors};
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use super::Gap;
use crate::errors::Context;
use crate::index::{RecordIndex, fragment_of, key_batches, key_files, key_ids};
use crate::merge::{NewerKeys, SourceKeys};
use crate::view::{ReadView, RunKeys};

const ACTION: &str = "looking up the rows that a run supersedes";
/// Batches that are compared at the same time.
const COMPARED: usize = 2;

impl Gap {
    /// Looks up everything that is missing.
    ///
    /// # Errors
    /// A storage error, or damage of a run.
    pub async fn fill(&self, view: &ReadView, index: &RecordIndex) -> Result<RunVectors> {
        let keys = self.run.keys(&view.key).await?;
        let form = KeyForm::of(&view.schema, &view.key);
        let of_run = SourceKeys {
            freshness: Freshness::SsTable(self.run.generation),
            at_most: keys.len(),
            keys: keys.keys(),
        };
        let newer = Arc::new(NewerKeys::of(form, vec![of_run])?);
        let key_fields = key_ids(&view.base, &view.key);
        let mut runs = Vec::with_capacity(self.older.len());
        for older in &self.older {
            let keys = older.keys(&view.key).await?;
            let dead = keys.iter().filter(|(key, _)| newer.newest(key).is_some());
            let dead = bytes_of(&dead.map(|(_, position)| position).collect())?;
            runs.push(OlderRunVector { path: older.path.clone(), dead });
        }
        let tombstones = if self.tombstones { Some(self.run.tombstones().await?) } else { None };
        Ok(RunVectors {
            base_version: view.base.version().version,
            fragments: self.in_base(view, index, &keys, &newer, &key_fields).await?,
            key_fields,
            runs,
            tombstones: tombstones.as_ref().map(bytes_of).transpose()?,
        })
    }

    async fn in_base(
        &self,
        view: &ReadView,
        index: &RecordIndex,
        keys: &RunKeys,
        newer: &Arc<NewerKeys>,
        key_fields: &[i32],
    ) -> Result<Vec<FragmentVector>> {
        let found = index.positions(&self.fragments, keys.len(), keys.keys()).await;
        let mut found = found.map(|found| found.rows).unwrap_or_default();
        let mut vectors = Vec::with_capacity(self.fragments.len());
        for fragment in &self.fragments {
            let dead = match found.remove(&fragment.id) {
                Some(dead) => dead,
                None => compared(&view.base, fragment.id, &view.key, newer).await?,
            };
            vectors.push(FragmentVector {
                id: fragment.id,
                physical_rows: fragment.physical_rows.unwrap_or_default() as u64,
                key_files: key_files(fragment, key_fields),
                dead: bytes_of(&dead)?,
            });
        }
        Ok(vectors)
    }
}

/// The rows of a fragment whose keys are among `newer`, by a look at all of its keys.
async fn compared(
    base: &Dataset,
    fragment: u64,
    key: &Arc<[String]>,
    newer: &Arc<NewerKeys>,
) -> Result<RoaringBitmap> {
    let fragment = fragment_of(base, fragment)?;
    let stream = key_batches(&fragment, key).await.context(ACTION)?;
    let mut start = 0;
    let mut found = stream
        .map(|batch| {
            let batch = batch.context(ACTION)?;
            let first = start;
            start += batch.num_rows();
            Ok((batch, first))
        })
        .map_ok(|(batch, first)| {
            let (key, newer) = (key.clone(), newer.clone());
            async move {
                let rows = move || rows_of(&batch, first, &key, &newer);
                let rows = tokio::task::spawn_blocking(rows).await;
                rows.map_err(|error| Error::Internal(format!("{ACTION}: {error}")))?
            }
        })
        .try_buffered(COMPARED);
    let mut dead = RoaringBitmap::new();
    while let Some(rows) = found.try_next().await? {
        dead.extend(rows);
    }
    Ok(dead)
}

/// Offsets of the rows of `batch`, the first of which is row `first`, whose keys are in `newer`.
fn rows_of(
    batch: &RecordBatch,
    first: usize,
    key: &[String],
    newer: &NewerKeys,
) -> Result<Vec<u32>> {
    let encoder = KeyEncoder::new(batch.schema_ref(), key)?;
    let mut rows = Vec::new();
    newer.visit_found(&encoder.view(batch), |row, _| rows.push(first + row));
    let offset =
        |row| u32::try_from(row).map_err(|_| Error::Internal(format!("row {row} of a fragment")));
    rows.into_iter().map(offset).collect()
}

fn bytes_of(rows: &RoaringBitmap) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(rows.serialized_size());
    let written = rows.serialize_into(&mut bytes);
    written.map_err(|error| Error::Internal(format!("encoding a deletion vector: {error}")))?;
    Ok(bytes)
}
