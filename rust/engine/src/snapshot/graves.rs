//! The deletes that a base version remembers after their compaction.
//!
//! A delete with a sequence beats every put with a smaller one, also a put that arrives after the
//! delete was compacted. So a compaction stores such deletes beside the base table. They are the
//! oldest source above it, and a row of the base table cancels the delete of its key: it has won.
//!
//! Owns: the list of a base version, the deletes of its folders in memory, and their cache.
//! Does not own: which deletes are remembered (`compaction`), or which row of a key wins
//! (`visibility`).

use std::sync::Arc;

use arrow::compute::{concat_batches, filter_record_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use datafusion::common::runtime::SpawnedTask;
use futures::TryStreamExt;
use lance::Dataset;
use lancemem_core::format::graves::GRAVES;
use lancemem_core::format::{GraveFolder, GraveList, KeyEncoder, TOMBSTONE, paths};
use lancemem_core::merge::{Choosing, MergeRule};
use lancemem_core::types::{Error, KeyBlock, Result};
use parking_lot::Mutex;

use super::Snapshot;
use super::cache::{CacheBudget, Cached};
use super::sstable_keys::SsTableKeys;
use crate::errors::{Context, SsTableErrors};
use crate::record_index::column_batches;
use crate::schema::{StoredColumns, TableSchema, tombstones, with_ids};
use crate::sstable::{SsTableContext, checksum_of_rule, open_change_rows};

/// The column behind `_tombstone`: when the delete was compacted, in milliseconds since 1970.
pub const REMEMBERED_AT: &str = "_remembered_at";
/// The action that errors name.
const READING: &str = "reading remembered deletes";

/// The remembered deletes of a base version: one for each key.
#[derive(Debug)]
pub struct Graves {
    keys: SsTableKeys,
    events: RecordBatch,
    times_ms: Vec<i64>,
}

impl Graves {
    /// The place of the delete of `key`.
    #[must_use]
    pub fn find(&self, key: &[u8]) -> Option<u32> {
        self.keys.find(key)
    }

    /// Number of deletes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no delete is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The key of the delete at `place`.
    ///
    /// # Panics
    /// Where there is no such place.
    #[must_use]
    pub fn key(&self, place: usize) -> &[u8] {
        self.keys.key(place)
    }

    /// The columns that decide, a row for each delete.
    #[must_use]
    pub const fn events(&self) -> &RecordBatch {
        &self.events
    }

    /// When each delete was compacted, in milliseconds since 1970.
    #[must_use]
    pub fn times_ms(&self) -> &[i64] {
        &self.times_ms
    }

    fn heap_bytes(&self) -> usize {
        let times = self.times_ms.capacity() * size_of::<i64>();
        self.keys.heap_bytes() + self.events.get_array_memory_size() + times
    }

    /// The deletes of `records`, all records of a list, the oldest first.
    fn of(records: &[Records], rule: &Choosing) -> Result<Self> {
        let mut keys = KeyBlock::default();
        for records in records {
            keys.append(&records.keys);
        }
        let events = records.iter().map(|records| &records.events);
        let events = concat_batches(rule.event_schema(), events).context(READING)?;
        let times = records.iter().flat_map(|records| &records.times_ms);
        let is_delete = records.iter().flat_map(|records| records.deletes.values().iter());
        // Of several records of a key this finds the last one.
        let all = SsTableKeys::dense(keys);
        let (mut keys, mut times_ms, mut counts) = (KeyBlock::default(), Vec::new(), Vec::new());
        for ((place, key), (is_delete, time)) in (0..).zip(all.keys()).zip(is_delete.zip(times)) {
            let counted = is_delete && all.find(key) == Some(place);
            counts.push(counted);
            if counted {
                keys.push_with(|out| out.extend_from_slice(key));
                times_ms.push(*time);
            }
        }
        let events = filter_record_batch(&events, &BooleanArray::from(counts)).context(READING)?;
        Ok(Self { keys: SsTableKeys::dense(keys), events, times_ms })
    }
}

/// The records of one folder: deletes, and keys whose earlier delete counts no more.
#[derive(Debug)]
struct Records {
    keys: KeyBlock,
    events: RecordBatch,
    deletes: BooleanArray,
    times_ms: Vec<i64>,
}

impl Records {
    async fn read(folder: &GraveFolder, snapshot: &Snapshot, rule: &Choosing) -> Result<Self> {
        let name = paths::grave_rows(&folder.name);
        let dataset = open_graves(&snapshot.base, folder).await?;
        let mut columns = snapshot.key.to_vec();
        columns.extend(rule.sequence().iter().cloned());
        columns.push(TOMBSTONE.to_owned());
        let stored = StoredColumns::of(&with_ids(dataset.schema()), &snapshot.columns, &columns)?;
        let read: Vec<String> =
            stored.names.iter().cloned().chain([REMEMBERED_AT.into()]).collect();
        let fragment = dataset.get_fragments().pop().ok_or_else(|| misshapen(&name, "no rows"))?;
        let batches = column_batches(&fragment, &read).await.in_sstable(&name)?;
        let batches: Vec<RecordBatch> = batches.try_collect().await.in_sstable(&name)?;
        let (mut keys, mut times_ms) = (KeyBlock::default(), Vec::new());
        let (mut events, mut deletes) = (Vec::new(), Vec::new());
        for batch in &batches {
            let times = batch.column_by_name(REMEMBERED_AT);
            let times = times.and_then(|times| times.as_primitive_opt::<Int64Type>());
            let times = times.ok_or_else(|| misshapen(&name, "no times"))?;
            times_ms.extend_from_slice(times.values());
            let rows = stored.bring(batch)?;
            let encoder = KeyEncoder::new(rows.schema_ref(), &snapshot.key)?;
            keys.append(&encoder.encode_block(&rows));
            deletes.extend(tombstones(&rows, READING)?.values().iter());
            events.push(rule.delete_events(&rows)?);
        }
        let events = concat_batches(rule.event_schema(), &events).context(READING)?;
        Ok(Self { keys, events, deletes: BooleanArray::from(deletes), times_ms })
    }
}

fn misshapen(name: &str, detail: &str) -> Error {
    Error::corrupt(name, "misshapen", format!("it has {detail}"))
}

/// Opens a folder of remembered deletes.
///
/// # Errors
/// Damage that names the folder or the file; a storage error.
pub async fn open_graves(base: &Dataset, folder: &GraveFolder) -> Result<Dataset> {
    let name = paths::grave_rows(&folder.name);
    let context = SsTableContext::of_graves(base).await.context(READING)?;
    let opened = Box::pin(open_change_rows(&context, &folder.name, folder.manifest_crc32)).await;
    opened.in_sstable(&name)
}

/// The folders of remembered deletes of the version of `base`, a table with the merge rule `rule`.
/// A list of another rule, which an earlier life of the table had, counts as empty.
///
/// # Errors
/// Damage of the list.
pub fn graves_of(base: &Dataset, rule: &MergeRule) -> Result<GraveList> {
    let rule = checksum_of_rule(rule);
    let list = listed_graves(base)?.filter(|list| list.rule == rule);
    Ok(list.unwrap_or(GraveList { rule, folders: Vec::new() }))
}

/// The list in the configuration of the version of `base`, whatever its rule is.
///
/// # Errors
/// Damage of the list.
pub fn listed_graves(base: &Dataset) -> Result<Option<GraveList>> {
    let text = base.config().get(GRAVES);
    let list = text.map(|text| text.parse::<GraveList>()).transpose();
    list.map_err(|error| {
        let (version, uri) = (base.version().version, base.uri());
        let what = format!("the configuration of version {version} of table {uri}");
        Error::corrupt(what, "undecodable", error.to_string()).with_source(error)
    })
}

/// The remembered deletes that were read last, by their list and the columns of the table.
#[derive(Debug)]
pub struct GraveCache {
    budget: Arc<CacheBudget>,
    last: Mutex<Option<LastGraves>>,
}

#[derive(Debug)]
struct LastGraves {
    list: GraveList,
    columns: SchemaRef,
    graves: Arc<Cached<Graves>>,
}

impl GraveCache {
    /// An empty cache under `budget`.
    #[must_use]
    pub fn new(budget: &Arc<CacheBudget>) -> Self {
        Self { budget: budget.clone(), last: Mutex::default() }
    }

    fn slot(&self, list: &GraveList, columns: &TableSchema) -> Arc<Cached<Graves>> {
        let columns = columns.rows.storage();
        let mut last = self.last.lock();
        let known = last.as_ref().filter(|it| it.list == *list && it.columns == *columns);
        if let Some(known) = known {
            return known.graves.clone();
        }
        let graves = Cached::new(&self.budget);
        let (list, columns) = (list.clone(), columns.clone());
        *last = Some(LastGraves { list, columns, graves: graves.clone() });
        graves
    }
}

impl Snapshot {
    /// The deletes that the base version remembers; `None` for none.
    ///
    /// # Errors
    /// Damage that names the file; a storage error.
    pub async fn graves(&self) -> Result<Option<Arc<Graves>>> {
        let Some(rule) = self.rule().filter(|rule| rule.rule().remembers_deletes()) else {
            return Ok(None);
        };
        let list = graves_of(&self.base, rule.rule())?;
        if list.folders.is_empty() {
            return Ok(None);
        }
        let read = async {
            let mut records = Vec::with_capacity(list.folders.len());
            for folder in &list.folders {
                records.push(Records::read(folder, self, rule).await?);
            }
            let rule = rule.clone();
            let graves = SpawnedTask::spawn_blocking(move || Graves::of(&records, &rule));
            let graves = graves.await.context(READING)??;
            let bytes = graves.heap_bytes();
            Ok((graves, bytes))
        };
        let slot = self.base_cache.graves().slot(&list, &self.columns);
        slot.get_or_read(Box::pin(read)).await.map(Some)
    }
}
