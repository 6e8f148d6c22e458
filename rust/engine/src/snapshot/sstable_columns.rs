//! The columns of an SSTable that a merge needs: keys and tombstones.
//!
//! Owns: reading both from the SSTable's data file, by row position, without the rows that the
//! SSTable's own deletion vector hides; and reading that deletion vector.
//! Does not own: how long keys and tombstones stay in memory (`cache`).

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow::error::ArrowError;
use arrow_array::cast::AsArray;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::fragment::FileFragment;
use lance_core::utils::deletion::DeletionVector;
use lancemem_core::format::{KeyEncoder, TOMBSTONE};
use lancemem_core::types::{Error, KeyBlock, Result};
use roaring::RoaringBitmap;

use super::SsTableKeys;
use crate::errors::{Context, SsTableErrors};
use crate::record_index::column_batches;

/// The keys of `sstable`, named `name` in errors, and its tombstones. A merge that compares keys
/// reads the tombstones next, and a second read of the file costs more than the column.
///
/// # Errors
/// A storage error, or damage.
pub(super) async fn read_keys(
    sstable: &Dataset,
    key: &[String],
    name: &str,
) -> Result<(SsTableKeys, RoaringBitmap)> {
    let mut tombstones = RoaringBitmap::new();
    let Some((fragment, hidden)) = rows_of(sstable, name).await? else {
        return Ok((SsTableKeys::dense(KeyBlock::default()), tombstones));
    };
    let mut columns = key.to_vec();
    columns.push(TOMBSTONE.to_owned());
    let mut batches = column_batches(&fragment, &columns).await.in_sstable(name)?;
    let (mut keys, mut shown, mut first) = (KeyBlock::default(), Vec::new(), 0);
    while let Some(mut batch) = batches.try_next().await.in_sstable(name)? {
        let rows = first..first + position(batch.num_rows(), name)?;
        first = rows.end;
        note_tombstones(&mut tombstones, &batch, rows.start, name)?;
        if let Some(hidden) = &hidden {
            shown.extend(rows.clone().filter(|row| !hidden.contains(*row)));
            batch = without(&batch, rows.start, hidden).context(name)?;
        }
        keys.append(&KeyEncoder::new(batch.schema_ref(), key)?.encode_block(&batch));
    }
    let Some(hidden) = hidden else { return Ok((SsTableKeys::dense(keys), tombstones)) };
    tombstones -= RoaringBitmap::from(&*hidden);
    Ok((SsTableKeys::new(keys, shown), tombstones))
}

/// Row positions of the tombstones of `sstable`.
///
/// # Errors
/// A storage error, or damage.
pub(super) async fn read_tombstones(sstable: &Dataset, name: &str) -> Result<RoaringBitmap> {
    let mut tombstones = RoaringBitmap::new();
    let Some((fragment, hidden)) = rows_of(sstable, name).await? else { return Ok(tombstones) };
    let mut batches = column_batches(&fragment, &[TOMBSTONE.to_owned()]).await.in_sstable(name)?;
    let mut first = 0;
    while let Some(batch) = batches.try_next().await.in_sstable(name)? {
        note_tombstones(&mut tombstones, &batch, first, name)?;
        first += position(batch.num_rows(), name)?;
    }
    if let Some(hidden) = hidden {
        tombstones -= RoaringBitmap::from(&*hidden);
    }
    Ok(tombstones)
}

/// Adds the tombstones of `batch`, whose first row is row `first` of the SSTable.
fn note_tombstones(
    tombstones: &mut RoaringBitmap,
    batch: &RecordBatch,
    first: u32,
    name: &str,
) -> Result<()> {
    let column = batch
        .column_by_name(TOMBSTONE)
        .ok_or_else(|| Error::internal(format!("{name} was read without {TOMBSTONE}")))?
        .as_boolean_opt()
        .ok_or_else(|| {
            Error::corrupt(name, "misshapen", format!("column {TOMBSTONE} is not boolean"))
        })?;
    for row in column.values().set_indices() {
        tombstones.insert(first + position(row, name)?);
    }
    Ok(())
}

/// Number of rows in the data file of `sstable`, and positions of the hidden ones.
///
/// # Errors
/// A storage error, or damage.
pub(super) async fn read_hidden(sstable: &Dataset, name: &str) -> Result<(u64, RoaringBitmap)> {
    let Some((fragment, hidden)) = rows_of(sstable, name).await? else {
        return Err(Error::corrupt(name, "misshapen", "expected one fragment, found none"));
    };
    let rows = fragment.physical_rows().await.in_sstable(name)? as u64;
    let hidden = hidden.map_or_else(RoaringBitmap::new, |hidden| RoaringBitmap::from(&*hidden));
    match hidden.max() {
        Some(last) if u64::from(last) >= rows => {
            let found = format!("deletion vector has row {last}, the data file has {rows} rows");
            Err(Error::corrupt(name, "misshapen", found))
        }
        _ => Ok((rows, hidden)),
    }
}

/// The fragment of an SSTable and its hidden rows; `None` for an SSTable without rows.
async fn rows_of(
    sstable: &Dataset,
    name: &str,
) -> Result<Option<(FileFragment, Option<Arc<DeletionVector>>)>> {
    let mut fragments = sstable.get_fragments();
    let Some(fragment) = fragments.pop() else { return Ok(None) };
    if fragment.metadata().files.is_empty() {
        return Err(Error::corrupt(name, "misshapen", "the fragment has no file"));
    }
    if !fragments.is_empty() || fragment.id() != 0 {
        let found = format!(
            "expected one fragment with id 0, found {}, the last with id {}",
            fragments.len() + 1,
            fragment.id()
        );
        return Err(Error::corrupt(name, "misshapen", found));
    }
    let hidden = fragment.get_deletion_vector().await.in_sstable(name)?;
    Ok(Some((fragment, hidden.filter(|hidden| !hidden.is_empty()))))
}

fn without(
    batch: &RecordBatch,
    first: u32,
    hidden: &DeletionVector,
) -> Result<RecordBatch, ArrowError> {
    let rows = (first..).take(batch.num_rows());
    let shown: BooleanBuffer = rows.map(|row| !hidden.contains(row)).collect();
    filter_record_batch(batch, &BooleanArray::from(shown))
}

fn position(row: usize, name: &str) -> Result<u32> {
    u32::try_from(row).map_err(|_| Error::internal(format!("{name}: row {row} exceeds 2^32 - 1")))
}
