//! Selection of the newest rows of one source, batch by batch.
//!
//! Owns: the two ways to select: by position, where dead rows are known, and by key otherwise; and
//! the dead rows that a scan by key records for the next scan.
//! Does not own: the stream of batches.

use std::sync::Arc;

use arrow::compute::{and, filter_record_batch, not};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_buffer::BooleanBuffer;
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use lance_core::ROW_ADDR;
use lancemem_core::format::{KeyEncoder, TOMBSTONE};
use lancemem_core::types::Freshness;

use super::{DeadRows, KeyChoice, LazyChoice, MaskRecorder, Noted, SsTableId};
use crate::errors::external;

/// How the newest rows of a source are selected.
#[derive(Clone, Debug)]
pub enum Newest {
    /// All rows are the newest: no newer source can hold their keys, or the table has no key.
    All,
    /// By position; the source has a column `_rowaddr`.
    ByPosition {
        /// Rows that an SSTable supersedes, and tombstones.
        dead: Arc<DeadRows>,
        /// The rows in memory that may supersede rows of the source, and the names of the key
        /// columns, which the source then has.
        above: Option<(Arc<LazyChoice>, Arc<[String]>)>,
    },
    /// By position, from the comparison of all SSTables; the source has a column `_rowaddr`.
    InSsTable {
        /// Which source holds the newest row of a key.
        choice: Arc<LazyChoice>,
        /// This source.
        sstable: SsTableId,
        /// Names of the key columns in primary-key order.
        key: Arc<[String]>,
        /// Whether rows in memory may supersede rows of the source, which then has the key columns.
        is_below_memory: bool,
    },
    /// By key; the source has the key columns.
    ByKey {
        /// Which source holds the newest row of a key.
        choice: Arc<LazyChoice>,
        /// The freshness of this source.
        freshness: Freshness,
        /// Names of the key columns in primary-key order.
        key: Arc<[String]>,
    },
}

/// The recorder of dead rows for the next scan, and the arm that this source is.
pub type Record = Option<(Arc<MaskRecorder>, usize)>;

/// Selects rows of batches. Several batches of one stream may be selected at the same time.
pub struct Selector {
    test: Test,
    schema: SchemaRef,
    records: bool,
}

/// The selected rows of a batch.
pub struct Selected {
    /// The kept rows, with the columns of the result.
    pub rows: RecordBatch,
    /// Rows of the batch that were not kept.
    pub dropped: usize,
    /// Addresses of tombstones and of rows that an SSTable supersedes, where the scan records them.
    dead: Vec<u64>,
    /// Addresses of rows that only rows in memory supersede, where the scan records them.
    hidden: Vec<u64>,
}

enum Test {
    All,
    ByPosition { dead: Arc<DeadRows>, above: Option<(Arc<KeyChoice>, KeyEncoder)> },
    ByKey { choice: Arc<KeyChoice>, freshness: Freshness, encoder: KeyEncoder },
}

/// Which rows of a batch are alive; `None` for all.
struct Alive {
    /// Among the base, the SSTables and the tombstones: rows in memory are ignored.
    flushed: Option<BooleanArray>,
    /// Among all sources, rows in memory included.
    now: Option<BooleanArray>,
}

impl Selector {
    /// A selector over batches with the columns `input`, whose result has the columns `schema`.
    pub async fn new(
        newest: &Newest,
        record: &Record,
        input: &SchemaRef,
        schema: &SchemaRef,
    ) -> PlanResult<Self> {
        let test = match newest {
            Newest::All => Test::All,
            Newest::ByPosition { dead, above } => {
                let above = match above {
                    Some((choice, key)) => {
                        let encoder = KeyEncoder::new(input, key).map_err(external)?;
                        Some((choice.get().await.map_err(external)?, encoder))
                    }
                    None => None,
                };
                Test::ByPosition { dead: dead.clone(), above }
            }
            Newest::InSsTable { choice, sstable, key, is_below_memory } => {
                let choice = choice.get().await.map_err(external)?;
                let dead = choice.superseded(*sstable).map_err(external)?;
                let above = if *is_below_memory {
                    Some((choice, KeyEncoder::new(input, key).map_err(external)?))
                } else {
                    None
                };
                Test::ByPosition { dead, above }
            }
            Newest::ByKey { choice, freshness, key } => {
                let choice = choice.get().await.map_err(external)?;
                if choice.is_empty() {
                    Test::All
                } else {
                    let encoder = KeyEncoder::new(input, key).map_err(external)?;
                    Test::ByKey { choice, freshness: *freshness, encoder }
                }
            }
        };
        Ok(Self { test, schema: schema.clone(), records: record.is_some() })
    }

    /// Selects the newest rows of `batch`.
    pub fn select(&self, batch: &RecordBatch) -> PlanResult<Selected> {
        let alive = self.alive(batch)?;
        let columns = self.columns(batch)?;
        let kept = alive.now.as_ref().map_or(batch.num_rows(), BooleanArray::true_count);
        let dropped = batch.num_rows() - kept;
        let (dead, hidden) =
            if self.records && dropped > 0 { alive.noted(batch) } else { Default::default() };
        let rows = match alive.now.filter(|_| dropped > 0) {
            // The filter comes first: a tombstone has nulls in columns that are not nullable.
            Some(now) => self.result(&filter_record_batch(&columns, &now)?)?,
            None => self.result(&columns)?,
        };
        Ok(Selected { rows, dropped, dead, hidden })
    }

    fn alive(&self, batch: &RecordBatch) -> PlanResult<Alive> {
        let (flushed, not_in_memory) = match &self.test {
            Test::All => (None, None),
            Test::ByPosition { dead, above } => {
                let above = above.as_ref();
                let absent = above.and_then(|(it, encoder)| it.not_in_memory(&encoder.view(batch)));
                (dead.live(addresses(batch)?), absent)
            }
            Test::ByKey { choice, freshness: freshness @ Freshness::MemTable(_), encoder } => {
                (Some(choice.newest_of_memory(&encoder.view(batch), *freshness).into()), None)
            }
            Test::ByKey { choice, encoder, .. } => {
                let keys = encoder.view(batch);
                let not_in_sstables = choice.not_in_sstables(&keys).map(BooleanArray::from);
                (not_in_sstables, choice.not_in_memory(&keys))
            }
        };
        let tombstones = batch.column_by_name(TOMBSTONE).map(booleans).transpose()?;
        let tombstones = tombstones.filter(|tombstones| tombstones.true_count() > 0);
        let flushed = both(flushed, tombstones.map(not).transpose()?)?;
        let now = both(flushed.clone(), not_in_memory.map(BooleanArray::from))?;
        Ok(Alive { flushed, now })
    }

    /// The result's columns of all rows, under the nullability of the source.
    fn columns(&self, batch: &RecordBatch) -> PlanResult<RecordBatch> {
        let names = self.schema.fields().iter().map(|field| field.name());
        let place = |name: &String| {
            batch.schema_ref().index_of(name).map_err(|_| {
                DataFusionError::Internal(format!("column '{name}' is missing from the source"))
            })
        };
        let places = names.map(place).collect::<PlanResult<Vec<usize>>>()?;
        Ok(batch.project(&places)?)
    }

    fn result(&self, rows: &RecordBatch) -> PlanResult<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let columns = rows.columns().to_vec();
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

/// The record of a stream, collected batch by batch.
#[derive(Default)]
pub struct Notes(Noted);

impl Notes {
    /// Adds one batch.
    pub fn add(&mut self, selected: &Selected) {
        self.0.dead.extend_from_slice(&selected.dead);
        self.0.hidden.extend_from_slice(&selected.hidden);
        self.0.live_rows += selected.rows.num_rows();
    }

    /// Hands the notes to the recorder; called when the stream has come to its end.
    pub fn finish(self, record: &Record) {
        if let Some((recorder, arm)) = record {
            recorder.finish(*arm, self.0);
        }
    }
}

impl Alive {
    /// Addresses of the dead rows of `batch`, and of the rows that only rows in memory supersede.
    /// Both are empty for a MemTable, whose rows have no address.
    fn noted(&self, batch: &RecordBatch) -> (Vec<u64>, Vec<u64>) {
        let Ok(addresses) = addresses(batch) else { return Default::default() };
        let at =
            |rows: &BooleanBuffer| rows.set_indices().map(|row| addresses.value(row)).collect();
        let flushed = self.flushed.as_ref().map(BooleanArray::values);
        let dead = flushed.map(|alive| at(&!alive)).unwrap_or_default();
        let hidden = match (flushed, self.now.as_ref().map(BooleanArray::values)) {
            (Some(flushed), Some(now)) => at(&(flushed & &!now)),
            (None, Some(now)) => at(&!now),
            (_, None) => Vec::new(),
        };
        (dead, hidden)
    }
}

fn both(
    one: Option<BooleanArray>,
    other: Option<BooleanArray>,
) -> PlanResult<Option<BooleanArray>> {
    Ok(match (one, other) {
        (Some(one), Some(other)) => Some(and(&one, &other)?),
        (one, other) => one.or(other),
    })
}

fn booleans(column: &ArrayRef) -> PlanResult<&BooleanArray> {
    column.as_boolean_opt().ok_or_else(|| {
        let found = column.data_type();
        DataFusionError::Execution(format!("column '{TOMBSTONE}': expected Boolean, found {found}"))
    })
}

fn addresses(batch: &RecordBatch) -> PlanResult<&UInt64Array> {
    let column = batch.column_by_name(ROW_ADDR).ok_or_else(|| {
        DataFusionError::Internal(format!("column '{ROW_ADDR}' is missing from the source"))
    })?;
    Ok(column.as_primitive::<UInt64Type>())
}
