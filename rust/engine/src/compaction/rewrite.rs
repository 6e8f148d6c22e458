//! The rewrite of SSTables that are not linked.
//!
//! Owns: one stream over the live rows, and the new fragments written from it.
//! Does not own: which SSTables are rewritten, or the commit.

use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::transaction::Operation;
use lance::dataset::{InsertBuilder, WriteMode, WriteParams};
use lance_core::ROW_ADDR;
use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};

use super::inputs::InputSsTable;
use super::merged_rows::MergedRows;
use super::throttle::Throttle;
use crate::errors::{Context, SsTableErrors, external};
use crate::schema::{StoredColumns, TableSchema};
use crate::snapshot::set_batches;
use crate::stages::{Stage, StageName};
use crate::visibility::DeadRows;

/// Rows a batch, the default of Lance's scans.
const BATCH_ROWS: usize = 8_192;

/// Writes the live rows of `sstables`, then `merged` rows, as fragments of `base` without ids.
///
/// # Errors
/// A storage error.
pub async fn rewrite(
    base: &Arc<Dataset>,
    table: &TableSchema,
    sstables: &[&InputSsTable],
    merged: &MergedRows,
    throttle: &Arc<Throttle>,
) -> Result<Vec<Fragment>> {
    let action = "writing the rows of a compaction";
    let mut streams = Vec::with_capacity(sstables.len());
    let rows: u64 = sstables.iter().map(|sstable| sstable.live_rows()).sum();
    let rows = rows + merged.rows();
    let stage = Stage::begin(StageName::RewriteRows, rows);
    for sstable in sstables {
        streams.push(live_rows(sstable, table, throttle.clone(), stage.clone()).await?);
    }
    if !merged.batches.is_empty() {
        streams.push(merged_stream(merged, table, throttle.clone(), stage.clone()));
    }
    // Lance refuses an append without rows.
    let mut rows = Box::pin(stream::iter(streams).flatten().peekable());
    if rows.as_mut().peek().await.is_none() {
        return Ok(Vec::new());
    }
    let rows: SendableRecordBatchStream =
        Box::pin(RecordBatchStreamAdapter::new(table.columns.clone(), rows));
    let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
    let transaction = InsertBuilder::new(base.clone())
        .with_params(&params)
        .execute_uncommitted_stream(rows)
        .await
        .context(action)?;
    match transaction.operation {
        Operation::Append { fragments } => Ok(fragments),
        other => Err(Error::internal(format!("{action}: expected an append, got {other}"))),
    }
}

/// Merged rows as a stream.
fn merged_stream(
    merged: &MergedRows,
    table: &TableSchema,
    throttle: Arc<Throttle>,
    stage: Stage,
) -> SendableRecordBatchStream {
    let batches = stream::iter(merged.batches.clone()).then(move |batch| {
        let (throttle, stage) = (throttle.clone(), stage.clone());
        async move {
            throttle.take(batch.get_array_memory_size()).await;
            stage.add(batch.num_rows());
            Ok::<_, DataFusionError>(batch)
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(table.columns.clone(), batches))
}

/// The live rows of `sstable`, with the columns of the base table.
async fn live_rows(
    sstable: &InputSsTable,
    table: &TableSchema,
    throttle: Arc<Throttle>,
    stage: Stage,
) -> Result<SendableRecordBatchStream> {
    let name = sstable.name();
    let names: Vec<String> =
        table.columns.fields().iter().map(|field| field.name().clone()).collect();
    let stored = StoredColumns::of(&sstable.handle.columns, table, &names)?;
    let mut scanner = sstable.handle.dataset.scan();
    scanner.project(&stored.names).in_sstable(&name)?;
    scanner.with_row_address();
    set_batches(
        &mut scanner,
        &sstable.handle.dataset,
        &stored.names,
        BATCH_ROWS,
        sstable.handle.row_bytes,
    );
    let rows = scanner.try_into_stream().await.in_sstable(&name)?;
    let (dead, result) = (sstable.dead.clone(), table.columns.clone());
    let rows = rows
        .map_err(DataFusionError::from)
        .and_then(move |batch| {
            let throttle = throttle.clone();
            async move {
                throttle.take(batch.get_array_memory_size()).await;
                Ok(batch)
            }
        })
        .map(move |batch| batch.and_then(|batch| alive(&batch, &dead, &stored, &result)));
    let rows = rows.inspect_ok(move |batch| stage.add(batch.num_rows()));
    let rows = rows.try_filter(|batch| futures::future::ready(batch.num_rows() > 0));
    Ok(Box::pin(RecordBatchStreamAdapter::new(table.columns.clone(), rows)))
}

fn alive(
    batch: &RecordBatch,
    dead: &DeadRows,
    stored: &StoredColumns,
    schema: &SchemaRef,
) -> std::result::Result<RecordBatch, DataFusionError> {
    let missing = |name: &str| DataFusionError::Internal(format!("column '{name}' was not read"));
    let addresses = batch
        .column_by_name(ROW_ADDR)
        .ok_or_else(|| missing(ROW_ADDR))?
        .as_primitive::<UInt64Type>();
    let kept = match dead.live(addresses) {
        Some(live) => filter_record_batch(batch, &live)?,
        None => batch.clone(),
    };
    let brought = stored.bring(&kept);
    let columns = brought.map_err(external)?;
    let options = RecordBatchOptions::new().with_row_count(Some(kept.num_rows()));
    let columns = columns.columns().to_vec();
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}
