//! The rows of a frozen MemTable as its SSTable stores them.
//!
//! Owns: the rows that the SSTable hides because the merge rule chose another row of their key, the
//! mark of chosen rows behind a delete or a replace, and one merged row for the events of a key.
//! Does not own: the choice and the fold (`lancemem_core::memtable`), or the files (`sstable`).

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use lancemem_core::memtable::{Chosen, MemTableView};
use lancemem_core::merge::REPLACE;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use crate::errors::Context;

const FLUSHING: &str = "choosing the rows of a flush";

/// The rows of one flush.
pub(super) struct FlushedRows {
    /// All rows, in arrival order.
    pub batches: Vec<RecordBatch>,
    /// Positions of the rows that the merge rule does not choose; `None` without a rule.
    pub hidden: Option<RoaringBitmap>,
}

/// The rows of `view` as they are stored.
///
/// # Errors
/// An internal error where rows cannot be compared.
pub(super) async fn flushed_rows(view: MemTableView) -> Result<FlushedRows> {
    if view.fold().is_some() {
        let folded = tokio::task::spawn_blocking(move || view.folded()).await;
        let folded =
            folded.map_err(|error| Error::internal(error.to_string()).with_source(error))?;
        let missing = || Error::internal("a MemTable with a fold folded no rows");
        // The newest row of a key is the fold of its events, and the SSTable hides all others.
        return Ok(FlushedRows { batches: folded?.ok_or_else(missing)?, hidden: None });
    }
    if view.rule().is_none() {
        return Ok(FlushedRows { batches: view.batches().cloned().collect(), hidden: None });
    }
    let chosen = tokio::task::spawn_blocking(move || {
        let Some(chosen) = view.chosen()? else {
            return Err(Error::internal("a MemTable with a rule chose no rows"));
        };
        marked(&view, chosen)
    });
    chosen.await.map_err(|error| Error::internal(error.to_string()).with_source(error))?
}

/// The rows of `view`, in which the chosen rows behind a delete or a replace have `_replace`.
fn marked(view: &MemTableView, chosen: &Chosen) -> Result<FlushedRows> {
    let loses = !chosen.rows().values();
    let hidden = loses.set_indices().map(|row| u32::try_from(row).map_err(|_| too_many()));
    let hidden = hidden.collect::<Result<RoaringBitmap>>()?;
    let (mut batches, mut first) = (Vec::with_capacity(view.batches().len()), 0);
    for batch in view.batches() {
        let end = first + u32::try_from(batch.num_rows()).map_err(|_| too_many())?;
        let replacing: Vec<u32> =
            chosen.replacing().range(first..end).map(|row| row - first).collect();
        batches.push(with_replace(batch, &replacing)?);
        first = end;
    }
    Ok(FlushedRows { batches, hidden: Some(hidden) })
}

/// `batch` with `_replace` in these rows.
fn with_replace(batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch> {
    if rows.is_empty() {
        return Ok(batch.clone());
    }
    let place = batch.schema_ref().index_of(REPLACE).context(FLUSHING)?;
    let mut values: Vec<bool> = batch.column(place).as_boolean().values().iter().collect();
    for row in rows {
        values[*row as usize] = true;
    }
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    columns[place] = Arc::new(BooleanArray::from(values));
    RecordBatch::try_new(batch.schema(), columns).context(FLUSHING)
}

fn too_many() -> Error {
    Error::internal("a MemTable is frozen below 2^32 rows")
}
