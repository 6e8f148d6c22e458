//! Rows of a fragment whose keys are in a key map.
//!
//! Owns: the pass over all keys of the fragment: one thread decodes a batch while other threads
//! compare the batches before it.
//! Does not own: deletions of the fragment (deleted rows are found too), or the use of the rows.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use lance::dataset::fragment::FileFragment;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::NewerKeys;
use crate::errors::BaseContext;
use crate::record_index::column_batches;

/// Batches that are compared at the same time.
const COMPARED: usize = 2;

/// A rate limit: waits until the given number of bytes may be read.
pub type Pace = Arc<dyn Fn(usize) -> BoxFuture<'static, ()> + Send + Sync>;

/// The offsets of the rows of `fragment` whose keys are in `newer`; errors name `action`.
///
/// # Errors
/// A storage error.
pub async fn found_rows(
    fragment: FileFragment,
    key: Arc<[String]>,
    newer: Arc<NewerKeys>,
    pace: Option<Pace>,
    action: &'static str,
) -> Result<RoaringBitmap> {
    let mut start = 0;
    let mut found = column_batches(&fragment, &key)
        .await
        .in_base(action)?
        .map(|batch| {
            let batch = batch.in_base(action)?;
            let first = start;
            start += batch.num_rows();
            Ok((batch, first))
        })
        .map_ok(|(batch, first)| {
            let (key, newer, pace) = (key.clone(), newer.clone(), pace.clone());
            async move {
                if let Some(pace) = pace {
                    pace(batch.get_array_memory_size()).await;
                }
                let rows = move || rows_of(&batch, first, &key, &newer);
                let rows = tokio::task::spawn_blocking(rows).await;
                rows.context(action)?
            }
        })
        .try_buffered(COMPARED);
    let mut rows = RoaringBitmap::new();
    while let Some(found) = found.try_next().await? {
        rows |= found;
    }
    Ok(rows)
}

/// Offsets of the rows of `batch`, the first of which is row `first`.
fn rows_of(
    batch: &RecordBatch,
    first: usize,
    key: &[String],
    newer: &NewerKeys,
) -> Result<RoaringBitmap> {
    let last = first + batch.num_rows();
    let first = u32::try_from(last).and_then(|_| u32::try_from(first)).map_err(|_| {
        Error::internal(format!("a fragment is limited to 2^32 - 1 rows, got {last}"))
    })?;
    let held = newer.held(&KeyEncoder::new(batch.schema_ref(), key)?.view(batch));
    let bytes = held.len().div_ceil(8);
    // The bits behind the last row are 0. The first bit is at offset 0, so `sliced` copies nothing.
    Ok(RoaringBitmap::from_lsb0_bytes(first, &held.sliced()[..bytes]))
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use lancemem_core::format::KeyForm;
    use lancemem_core::types::{Freshness, Generation};

    use super::*;
    use crate::visibility::SourceKeys;

    fn batch(ids: impl Iterator<Item = i64>) -> RecordBatch {
        let ids = Arc::new(Int64Array::from_iter_values(ids));
        RecordBatch::try_from_iter([("id", ids as _)]).unwrap()
    }

    #[test]
    fn rows_are_found_at_their_offsets_wherever_a_batch_begins_and_ends() {
        let key = ["id".to_owned()];
        // Close together for `bitmap_keys`, and far apart for `bucketed_keys`.
        for step in [1, 1 << 40] {
            let held = batch((0..1_000).map(|number| number * 3 * step));
            let encoder = KeyEncoder::new(held.schema_ref(), &key).unwrap();
            let keys = encoder.encode_block(&held);
            let freshness = Freshness::SsTable(Generation(1));
            let source = SourceKeys { freshness, at_most: 1_000, keys: keys.iter() };
            let form = KeyForm::of(held.schema_ref(), &key);
            let newer = NewerKeys::of(form, vec![source]).unwrap();
            for (first, rows) in [(0, 0), (0, 1), (5, 70), (65_536, 64), (131_071, 999)] {
                let asked = batch((0..rows).map(|row| row * step));
                let found = rows_of(&asked, first, &key, &newer).unwrap();
                let expected = (0..rows).filter(|row| row % 3 == 0);
                let first = u32::try_from(first).unwrap();
                let expected = expected.map(|row| first + u32::try_from(row).unwrap());
                assert_eq!(found, expected.collect(), "{rows} rows from {first} on");
            }
        }
    }
}
