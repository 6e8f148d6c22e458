//! Rows of a fragment whose keys are among some.
//!
//! Owns: the look at all keys of the fragment: they are decoded on one thread while those before
//! them are compared on others.
//! Does not own: deleted rows, which are found like the rest, or what becomes of the rows.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use lance::dataset::fragment::FileFragment;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::NewerKeys;
use crate::errors::Context;
use crate::index::key_batches;

/// Batches that are compared at the same time.
const COMPARED: usize = 2;

/// Waits until so many bytes may be read.
pub type Pace = Arc<dyn Fn(usize) -> BoxFuture<'static, ()> + Send + Sync>;

/// The offsets of the rows of `fragment` whose keys are in `newer`; `action` is what errors name.
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
    let mut found = key_batches(&fragment, &key)
        .await
        .context(action)?
        .map(|batch| {
            let batch = batch.context(action)?;
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
                let offsets = move || offsets_of(&batch, first, &key, &newer);
                let offsets = tokio::task::spawn_blocking(offsets).await;
                offsets.map_err(|error| Error::Internal(format!("{action}: {error}")))?
            }
        })
        .try_buffered(COMPARED);
    let mut rows = RoaringBitmap::new();
    while let Some(offsets) = found.try_next().await? {
        // They ascend, within a batch and from one to the next.
        let refused = |_| Error::Internal(format!("{action}: offsets went back"));
        rows.append(offsets).map_err(refused)?;
    }
    Ok(rows)
}

/// Offsets of the rows of `batch`, the first of which is row `first`.
fn offsets_of(
    batch: &RecordBatch,
    first: usize,
    key: &[String],
    newer: &NewerKeys,
) -> Result<Vec<u32>> {
    let encoder = KeyEncoder::new(batch.schema_ref(), key)?;
    let last = first + batch.num_rows();
    let first = u32::try_from(last)
        .and_then(|_| u32::try_from(first))
        .map_err(|_| Error::Internal(format!("row {last} of a fragment")))?;
    let mut offsets = Vec::new();
    newer.visit_found(&encoder.view(batch), |row, _| {
        #[expect(clippy::cast_possible_truncation, reason = "the last row's offset fits")]
        offsets.push(first + row as u32);
    });
    Ok(offsets)
}
