//! The rows of a compaction: which base rows die, and which rows are written.
//!
//! Owns: the lookup of positions, the deletion files and the new fragments, none committed.
//! Does not own: the commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::transaction::Operation;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lance_table::format::Fragment;
use lancemem_core::format::{KeyEncoder, TOMBSTONE};
use lancemem_core::types::{Error, Freshness, Result};
use roaring::RoaringBitmap;

use crate::errors::Context;
use crate::merge::{KeyChoice, LazyChoice, Newest, NewestRowsExec};
use crate::view::{ReadView, Source};

const ROW_ADDRESS: &str = "_rowaddr";

/// Offsets of base rows, by fragment, whose key has a newer row or a tombstone above the base.
pub async fn dead_base_rows(
    view: &ReadView,
    choice: &KeyChoice,
) -> Result<BTreeMap<u32, RoaringBitmap>> {
    let action = "looking up the base rows of a compaction";
    let mut scanner = view.base.scan();
    scanner.project(&view.key).context(action)?;
    scanner.with_row_address();
    let mut stream = scanner.try_into_stream().await.context(action)?;
    let mut dead: BTreeMap<u32, RoaringBitmap> = BTreeMap::new();
    while let Some(batch) = stream.try_next().await.context(action)? {
        let keys = KeyEncoder::new(batch.schema_ref(), &view.key)?.encode_block(&batch);
        let addresses = batch
            .column_by_name(ROW_ADDRESS)
            .ok_or_else(|| Error::Internal("a scan gave no row addresses".to_owned()))?
            .as_primitive::<UInt64Type>();
        for (key, address) in keys.iter().zip(addresses.values()) {
            if choice.contains(key) {
                let (fragment, offset) = split_address(*address);
                dead.entry(fragment).or_default().insert(offset);
            }
        }
    }
    Ok(dead)
}

#[expect(clippy::cast_possible_truncation, reason = "an address is a fragment and an offset")]
const fn split_address(address: u64) -> (u32, u32) {
    ((address >> 32) as u32, address as u32)
}

/// The number of positions.
pub fn count(rows: &RoaringBitmap) -> usize {
    usize::try_from(rows.len()).unwrap_or(usize::MAX)
}

/// Writes deletion files. Returns fragments without a live row, and the others that changed.
pub async fn delete_rows(
    base: &Dataset,
    dead: &BTreeMap<u32, RoaringBitmap>,
) -> Result<(Vec<u64>, Vec<Fragment>)> {
    let action = "writing the deletion files of a compaction";
    let mut removed = Vec::new();
    let mut updated = Vec::new();
    for (fragment_id, rows) in dead {
        let fragment = base
            .get_fragment(*fragment_id as usize)
            .ok_or_else(|| Error::Internal(format!("no fragment {fragment_id} in the base")))?;
        match fragment.extend_deletions(rows.iter()).await.context(action)? {
            Some(fragment) => updated.push(fragment.metadata().clone()),
            None => removed.push(u64::from(*fragment_id)),
        }
    }
    Ok((removed, updated))
}

/// Writes the newest live rows of the view's SSTables as fragments of the base table.
pub async fn write_newest(
    view: &ReadView,
    choice: &Arc<KeyChoice>,
) -> Result<(Vec<Fragment>, usize)> {
    let action = "writing the rows of a compaction";
    let mut arms: Vec<Arc<dyn ExecutionPlan>> = Vec::new();
    for (freshness, source) in view.sources() {
        if let Source::SsTable(run) = source {
            arms.push(newest_of(view, choice, freshness, &run.dataset).await?);
        }
    }
    let plan = UnionExec::try_new(arms).context(action)?;
    let rows = Arc::new(AtomicUsize::new(0));
    let counted = rows.clone();
    let stream = execute_stream(plan, SessionContext::new().task_ctx()).context(action)?;
    let schema = stream.schema();
    let stream = stream.inspect_ok(move |batch| {
        counted.fetch_add(batch.num_rows(), Ordering::Relaxed);
    });
    // Lance refuses to write nothing, and tombstones alone leave nothing to write.
    let mut stream = Box::pin(stream.peekable());
    if stream.as_mut().peek().await.is_none() {
        return Ok((Vec::new(), 0));
    }
    let stream = Box::pin(RecordBatchStreamAdapter::new(schema, stream));
    let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
    let transaction = InsertBuilder::new(view.base.clone())
        .with_params(&params)
        .execute_uncommitted_stream(stream as datafusion::execution::SendableRecordBatchStream)
        .await
        .context(action)?;
    match transaction.operation {
        Operation::Append { fragments } => Ok((fragments, rows.load(Ordering::Relaxed))),
        other => Err(Error::Internal(format!("appending rows planned {other}"))),
    }
}

async fn newest_of(
    view: &ReadView,
    choice: &Arc<KeyChoice>,
    freshness: Freshness,
    run: &Dataset,
) -> Result<Arc<dyn ExecutionPlan>> {
    let action = "reading the rows of a compaction";
    let mut names: Vec<&str> =
        view.schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.push(TOMBSTONE);
    let mut scanner = run.scan();
    scanner.project(&names).context(action)?;
    let rows = scanner.create_plan().await.context(action)?;
    let choice = Arc::new(LazyChoice::made(choice.clone()));
    let newest = Newest::ByKey { choice, freshness, key: view.key.clone() };
    Ok(Arc::new(NewestRowsExec::new(rows, newest, view.schema.clone())))
}
