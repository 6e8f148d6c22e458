//! The look-up of what one run supersedes.
//!
//! Owns: the ways from the run's keys to positions: the record index or the key columns in the
//! base table, the keys of older runs, and the run's own tombstones. Deleted rows of the base are
//! looked up as well: an older version that is restored may show them again.
//! Does not own: which sources are missing (`cover`), or where the result is put (`table`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lance_core::ROW_ADDR;
use lance_table::format::Fragment;
use lancemem_core::format::{
    FragmentVector, KeyEncoder, KeyForm, OlderRunVector, RunVectors, TOMBSTONE,
};
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use super::Gap;
use crate::errors::{Context, RunContext};
use crate::index::{RecordIndex, key_batches, key_files, key_ids};
use crate::merge::NewerKeys;
use crate::view::{ReadView, RunKeys, SsTableHandle};

const ACTION: &str = "looking up the rows that a run supersedes";
/// Batches that are compared at the same time.
const COMPARED: usize = 2;
/// With fewer rows of the base for each key the key columns are read: most pages of the record
/// index would be, and they are twice as large.
const ROWS_A_KEY: usize = 8;

impl Gap {
    /// Looks up everything that is missing.
    ///
    /// # Errors
    /// A storage error, or damage of a run.
    pub async fn fill(&self, view: &ReadView, index: &RecordIndex) -> Result<RunVectors> {
        let keys = self.run.keys(&view.key).await?;
        let form = KeyForm::of(&view.schema, &view.key);
        let mut newer = NewerKeys::with_capacity(form, keys.len(), 0);
        let freshness = Freshness::SsTable(self.run.generation);
        newer.add(freshness, keys.iter().map(|(key, _)| key))?;
        let newer = Arc::new(newer);
        let key_fields = key_ids(&view.base, &view.key);
        let mut runs = Vec::with_capacity(self.older.len());
        for older in &self.older {
            let keys = older.keys(&view.key).await?;
            let dead = keys.iter().filter(|(key, _)| newer.newest(key).is_some());
            let dead = bytes_of(&dead.map(|(_, position)| position).collect())?;
            runs.push(OlderRunVector { path: older.path.clone(), dead });
        }
        let tombstones = if self.tombstones { Some(tombstones(&self.run).await?) } else { None };
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
        let mut found = self.search(index, keys).await;
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

    /// The dead rows of the fragments that the record index covers, where asking it reads less
    /// than the key columns.
    async fn search(&self, index: &RecordIndex, keys: &RunKeys) -> HashMap<u64, RoaringBitmap> {
        let is_covered =
            |fragment: &&Fragment| u32::try_from(fragment.id).is_ok_and(|id| index.covers(id));
        let covered: Vec<&Fragment> = self.fragments.iter().filter(is_covered).collect();
        let rows: usize = covered.iter().filter_map(|fragment| fragment.physical_rows).sum();
        if keys.len() > rows / ROWS_A_KEY {
            return HashMap::new();
        }
        let mut sorted: Vec<&[u8]> = keys.iter().map(|(key, _)| key).collect();
        sorted.sort_unstable();
        sorted.dedup();
        match index.search(&sorted).await {
            Ok(places) => {
                let mut found: HashMap<u64, RoaringBitmap> =
                    covered.iter().map(|fragment| (fragment.id, RoaringBitmap::new())).collect();
                for (_, fragment, offset) in places {
                    if let Some(dead) = found.get_mut(&u64::from(fragment)) {
                        dead.insert(offset);
                    }
                }
                found
            }
            Err(error) => {
                index.give_up(&error);
                HashMap::new()
            }
        }
    }
}

/// The rows of a fragment whose keys are among `newer`, by a look at all of its keys.
async fn compared(
    base: &Dataset,
    fragment: u64,
    key: &Arc<[String]>,
    newer: &Arc<NewerKeys>,
) -> Result<RoaringBitmap> {
    let stream = key_batches(base, key, fragment).await?;
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

/// Positions of the rows that only delete.
async fn tombstones(run: &SsTableHandle) -> Result<RoaringBitmap> {
    let name = run.name();
    let mut scanner = run.dataset.scan();
    scanner.project(&[TOMBSTONE]).in_run(&name)?;
    scanner.with_row_address();
    let mut stream = scanner.try_into_stream().await.in_run(&name)?;
    let mut found = RoaringBitmap::new();
    while let Some(batch) = stream.try_next().await.in_run(&name)? {
        let column = |column: &str| {
            let found = batch.column_by_name(column);
            found.ok_or_else(|| Error::Internal(format!("{name} was read without {column}")))
        };
        let (marks, addresses) = (column(TOMBSTONE)?.as_boolean(), column(ROW_ADDR)?);
        let addresses = addresses.as_primitive::<UInt64Type>();
        for row in marks.values().set_indices() {
            let position = u32::try_from(addresses.value(row)).map_err(|_| {
                Error::Internal(format!("{name} has a row outside its one fragment"))
            })?;
            found.insert(position);
        }
    }
    Ok(found)
}

fn bytes_of(rows: &RoaringBitmap) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(rows.serialized_size());
    let written = rows.serialize_into(&mut bytes);
    written.map_err(|error| Error::Internal(format!("encoding a deletion vector: {error}")))?;
    Ok(bytes)
}
