//! Deletes with a sequence, remembered after the compaction that moves them.
//!
//! Owns: which deletes a compaction adds to the list of the base version, which it forgets, and the
//! folder that it writes.
//! Does not own: which delete wins (`visibility`), the commit that lists the folder (`commit`), or
//! reading a list (`snapshot`).
//!
//! A remembered delete counts until a compaction drops it, so a compaction never changes what a scan
//! shows. A folder never changes: a key whose delete counts no more gets a record without a delete in
//! a newer folder.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arrow::compute::{cast, filter_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, new_null_array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{TryStreamExt, stream};
use lance::Dataset;
use lancemem_core::format::graves::GRAVES;
use lancemem_core::format::{GraveFolder, GraveList, TOMBSTONE, key_values, paths};
use lancemem_core::merge::Choosing;
use lancemem_core::types::{Error, KeyBlock, Result};

use crate::errors::{Context, external};
use crate::record_index::new_name;
use crate::schema::StoredColumns;
use crate::snapshot::{Graves, REMEMBERED_AT, Snapshot, graves_of};
use crate::sstable::{ChangeRowsFiles, SsTableContext, write_change_rows};
use crate::visibility::GraveChanges;

const ACTION: &str = "remembering the deletes of a compaction";
/// Most folders of a list. A compaction that adds one more joins all of them.
const MAX_FOLDERS: usize = 8;
/// Records of a batch that is written.
const BATCH_ROWS: usize = 1 << 16;

/// The list of remembered deletes of the version that a compaction commits.
pub(super) struct Buried {
    /// The value of [`GRAVES`] in that version; `None` for no list.
    list: Option<String>,
    files: Option<ChangeRowsFiles>,
}

impl Buried {
    /// The entry of the configuration.
    pub fn config(&self) -> (&'static str, Option<String>) {
        (GRAVES, self.list.clone())
    }

    /// Removes the files of a commit that was refused. Best effort: a collection removes the rest.
    pub async fn remove(self) {
        let Some(files) = self.files else { return };
        if let Err(error) = files.remove().await.context("removing deletes that no version lists") {
            tracing::debug!(%error, "a collection removes them");
        }
    }
}

/// Writes the deletes that the version after that of `snapshot` remembers, where its list differs.
/// When this returns, they are durable on a local disk.
///
/// # Errors
/// A storage error.
pub(super) async fn bury(
    snapshot: &Snapshot,
    rule: &Choosing,
    changes: &GraveChanges,
) -> Result<Option<Buried>> {
    let Some(retention_ms) = rule.rule().delete_retention_ms().filter(|it| *it > 0) else {
        return Ok(None);
    };
    let base = &*snapshot.base;
    let now_ms = milliseconds_now();
    let is_past = |time_ms: u64| now_ms.saturating_sub(time_ms) >= retention_ms;
    let known = graves_of(base, rule.rule())?;
    // Oldest first: a later folder may have a record without a delete for a key of an earlier one.
    let kept = known.folders.iter().skip_while(|folder| is_past(folder.newest_ms));
    let mut folders: Vec<GraveFolder> = kept.cloned().collect();
    let record = Record { snapshot, rule };
    let mut rows = record.batches(&changes.cancelled, None, &|_| now_ms)?;
    rows.extend(record.batches(&changes.buried, Some(&changes.events), &|_| now_ms)?);
    if rows.is_empty() && folders.len() == known.folders.len() {
        return Ok(None);
    }
    if folders.is_empty() && changes.buried.is_empty() {
        // Records without a delete have no older folder to speak of.
        rows.clear();
    } else if folders.len() == MAX_FOLDERS && !rows.is_empty() {
        let graves = snapshot.graves().await?;
        let left = graves.map(|graves| left_of(&graves, changes, is_past)).transpose()?;
        rows = match left {
            Some(left) => {
                record.batches(&left.buried, Some(&left.events), &|row| left.times[row])?
            }
            None => Vec::new(),
        };
        rows.extend(record.batches(&changes.buried, Some(&changes.events), &|_| now_ms)?);
        folders.clear();
    }
    let mut files = None;
    if !rows.is_empty() {
        let (folder, written) = record.write(rows).await?;
        folders.push(folder);
        files = Some(written);
    }
    let list = (!folders.is_empty()).then(|| GraveList { folders, ..known }.to_string());
    Ok(Some(Buried { list, files }))
}

/// Remembered deletes that still count, with the time of each.
struct Left {
    buried: KeyBlock,
    events: RecordBatch,
    times: Vec<u64>,
}

/// The deletes of `graves` that are not past the retention, without the keys of `changes`.
fn left_of(graves: &Graves, changes: &GraveChanges, is_past: impl Fn(u64) -> bool) -> Result<Left> {
    let changed = changes.buried.iter().chain(changes.cancelled.iter());
    let changed: HashSet<&[u8]> = changed.collect();
    let (mut buried, mut times) = (KeyBlock::default(), Vec::new());
    let mut stays = Vec::with_capacity(graves.len());
    for (place, time_ms) in graves.times_ms().iter().enumerate() {
        let (key, time_ms) = (graves.key(place), u64::try_from(*time_ms).unwrap_or_default());
        let is_left = !is_past(time_ms) && !changed.contains(key);
        stays.push(is_left);
        if is_left {
            buried.push_with(|out| out.extend_from_slice(key));
            times.push(time_ms);
        }
    }
    let stays = BooleanArray::from(stays);
    let events = filter_record_batch(graves.events(), &stays).context(ACTION)?;
    Ok(Left { buried, events, times })
}

/// How records of remembered deletes are stored.
struct Record<'a> {
    snapshot: &'a Snapshot,
    rule: &'a Choosing,
}

impl Record<'_> {
    /// Names of the columns of the table that a record has.
    fn names(&self) -> Vec<String> {
        self.snapshot.key.iter().chain(self.rule.sequence()).cloned().collect()
    }

    /// The columns of a record.
    fn schema(&self) -> Result<SchemaRef> {
        let storage = self.snapshot.columns.rows.storage();
        let columns = StoredColumns::of(storage, &self.snapshot.columns, &self.names())?.schema;
        Ok(with_record(columns.fields().iter().cloned()))
    }

    /// The columns of a record with the field ids of the table.
    fn stored_schema(&self) -> Result<SchemaRef> {
        let storage = self.snapshot.columns.rows.storage();
        let field = |name: &String| {
            let field = storage.field_with_name(name).context(ACTION)?;
            Ok(Arc::new(field.clone()))
        };
        let fields: Vec<Arc<Field>> = self.names().iter().map(field).collect::<Result<_>>()?;
        Ok(with_record(fields.into_iter()))
    }

    /// The records of `keys`: deletes with the sequences of `events`, or without them keys whose
    /// earlier delete counts no more. `time_ms` has the time of each.
    fn batches(
        &self,
        keys: &KeyBlock,
        events: Option<&RecordBatch>,
        time_ms: &dyn Fn(usize) -> u64,
    ) -> Result<Vec<RecordBatch>> {
        let schema = self.schema()?;
        let key_types = self.snapshot.key.len();
        let types: Vec<DataType> =
            schema.fields().iter().take(key_types).map(|it| it.data_type().clone()).collect();
        let mut batches = Vec::new();
        for first in (0..keys.len()).step_by(BATCH_ROWS) {
            let rows = first..keys.len().min(first + BATCH_ROWS);
            let mut columns: Vec<ArrayRef> =
                key_values(rows.clone().map(|row| keys.get(row)), &types)?;
            for field in schema.fields().iter().skip(key_types).take(self.rule.sequence().len()) {
                columns.push(match events {
                    None => new_null_array(field.data_type(), rows.len()),
                    Some(events) => {
                        let missing = || Error::internal(format!("{ACTION}: {}", field.name()));
                        let column = events.column_by_name(field.name()).ok_or_else(missing)?;
                        let column = column.slice(first, rows.len());
                        cast(&column, field.data_type()).context(ACTION)?
                    }
                });
            }
            columns.push(Arc::new(BooleanArray::from(vec![events.is_some(); rows.len()])));
            let times = rows.clone().map(|row| i64::try_from(time_ms(row)).unwrap_or(i64::MAX));
            columns.push(Arc::new(Int64Array::from_iter_values(times)));
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options);
            batches.push(batch.context(ACTION)?);
        }
        Ok(batches)
    }

    /// Writes a folder for the next version.
    async fn write(&self, rows: Vec<RecordBatch>) -> Result<(GraveFolder, ChangeRowsFiles)> {
        let base: &Dataset = &self.snapshot.base;
        let times = rows.iter().filter_map(|rows| rows.columns().last());
        let times = times.flat_map(|times| times.as_primitive::<Int64Type>().values());
        let newest_ms = times.max().and_then(|time| u64::try_from(*time).ok()).unwrap_or_default();
        let name = paths::grave_folder(base.version().version + 1, &new_name()?);
        let records: usize = rows.iter().map(RecordBatch::num_rows).sum();
        if u32::try_from(records).is_err() {
            return Err(Error::input(format!(
                "remembered deletes are limited to 2^32 - 1 keys, got {records}; compact more often"
            )));
        }
        let context = SsTableContext::of_graves(base).await.context(ACTION)?;
        let rows = stream::iter(rows.into_iter().map(Ok::<_, Error>)).map_err(external);
        let rows = Box::pin(RecordBatchStreamAdapter::new(self.schema()?, rows));
        let stored = self.stored_schema()?;
        let files = write_change_rows(context, name.clone(), &stored, rows);
        let files = Box::pin(files).await.context(ACTION)?;
        if files.rows != records as u64 {
            return Err(Error::internal(format!(
                "{ACTION}: expected {records} rows, wrote {}",
                files.rows
            )));
        }
        files.sync().await.context(ACTION)?;
        let manifest_crc32 = files.manifest_crc32;
        Ok((GraveFolder { name, manifest_crc32, newest_ms }, files))
    }
}

/// These columns of the table, then those of a record.
fn with_record(fields: impl Iterator<Item = Arc<Field>>) -> SchemaRef {
    let more = [
        Field::new(TOMBSTONE, DataType::Boolean, false),
        Field::new(REMEMBERED_AT, DataType::Int64, false),
    ];
    Arc::new(Schema::new(fields.chain(more.map(Arc::new)).collect::<Vec<_>>()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the age of a remembered delete is a time of the clock"
)]
fn milliseconds_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
