//! Which rows of one source are kept, batch by batch.
//!
//! Owns: the two ways to tell: by position, where an earlier scan of the view left a mask, and by
//! key otherwise; and what a scan by key records for the next one.
//! Does not own: the stream around it.

use std::sync::Arc;

use arrow::compute::{and, filter_record_batch, not};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result as PlanResult};
use lancemem_core::format::{KeyEncoder, TOMBSTONE};
use lancemem_core::types::Freshness;

use super::{DeadRows, KeyChoice, LazyChoice, MaskRecorder};

/// The column of physical row addresses in a Lance scan.
pub const ROW_ADDRESS: &str = "_rowaddr";

/// How the newest rows of a source are told from the others.
#[derive(Clone, Debug)]
pub enum Newest {
    /// All rows are: nothing above the source can hold their keys, or there is no key.
    All,
    /// By position; the source has a column `_rowaddr`.
    ByPosition(Arc<DeadRows>),
    /// By key; the source has the key columns.
    ByKey {
        /// Which source holds the newest row of a key.
        choice: Arc<LazyChoice>,
        /// The age of this source.
        freshness: Freshness,
        /// Names of the key columns in primary-key order.
        key: Arc<[String]>,
    },
}

/// Where a scan notes dead rows for the next one, and the number of its arm there.
pub type Record = Option<(Arc<MaskRecorder>, usize)>;

/// Selects rows of batches; batches of one stream may be selected side by side.
pub struct Selector {
    test: Test,
    schema: SchemaRef,
    records: bool,
}

/// What is left of a batch.
pub struct Selected {
    /// The kept rows, with the columns of the result.
    pub rows: RecordBatch,
    /// Rows of the batch that were not kept.
    pub dropped: usize,
    /// Their addresses, where the scan records them.
    dead: Vec<u64>,
}

enum Test {
    All,
    ByPosition(Arc<DeadRows>),
    ByKey { choice: Arc<KeyChoice>, freshness: Freshness, encoder: KeyEncoder },
}

impl Selector {
    /// A selector over batches of `input` that gives the columns of `schema`.
    pub async fn new(
        newest: &Newest,
        record: &Record,
        input: &SchemaRef,
        schema: &SchemaRef,
    ) -> PlanResult<Self> {
        let test = match newest {
            Newest::All => Test::All,
            Newest::ByPosition(dead) => Test::ByPosition(dead.clone()),
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

    /// The rows of `batch` that are kept.
    pub fn select(&self, batch: &RecordBatch) -> PlanResult<Selected> {
        let keep = self.keep(batch)?;
        let columns = self.columns(batch)?;
        let dropped = keep.as_ref().map_or(0, |keep| keep.len() - keep.true_count());
        let Some(keep) = keep.filter(|_| dropped > 0) else {
            return Ok(Selected { rows: self.result(&columns)?, dropped, dead: Vec::new() });
        };
        // Not before the tombstones are gone: they are null where a column of the table never is.
        let rows = self.result(&filter_record_batch(&columns, &keep)?)?;
        let dead = if self.records { dead_addresses(batch, &keep) } else { Vec::new() };
        Ok(Selected { rows, dropped, dead })
    }

    /// The rows to keep; `None` for all.
    fn keep(&self, batch: &RecordBatch) -> PlanResult<Option<BooleanArray>> {
        let newest = match &self.test {
            Test::All => None,
            Test::ByPosition(dead) => dead.live(addresses(batch)?),
            Test::ByKey { choice, freshness, encoder } => {
                let newest = choice.newest_at(&encoder.view(batch), *freshness);
                Some(BooleanArray::new(newest, None))
            }
        };
        let tombstones = batch.column_by_name(TOMBSTONE).map(AsArray::as_boolean);
        let tombstones = tombstones.filter(|tombstones| tombstones.true_count() > 0);
        Ok(match (newest, tombstones) {
            (newest, None) => newest,
            (None, Some(tombstones)) => Some(not(tombstones)?),
            (Some(newest), Some(tombstones)) => Some(and(&newest, &not(tombstones)?)?),
        })
    }

    /// The columns of the result as the source has them, all rows.
    fn columns(&self, batch: &RecordBatch) -> PlanResult<RecordBatch> {
        let names = self.schema.fields().iter().map(|field| field.name());
        let place = |name: &String| {
            batch.schema_ref().index_of(name).map_err(|_| {
                DataFusionError::Internal(format!("column {name} is not in the source"))
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

/// What a scan by key notes of its batches, one after the other.
#[derive(Default)]
pub struct Notes {
    dead: Vec<u64>,
    live_rows: usize,
}

impl Notes {
    /// Notes one batch.
    pub fn add(&mut self, selected: &Selected) {
        self.dead.extend_from_slice(&selected.dead);
        self.live_rows += selected.rows.num_rows();
    }

    /// The stream came to its end.
    pub fn finish(self, record: &Record) {
        if let Some((recorder, arm)) = record {
            recorder.finish(*arm, self.dead, self.live_rows);
        }
    }
}

/// Addresses of the rows that are not kept; none of rows in memory, which have no address.
fn dead_addresses(batch: &RecordBatch, keep: &BooleanArray) -> Vec<u64> {
    let Ok(addresses) = addresses(batch) else { return Vec::new() };
    let dead = !keep.values();
    dead.set_indices().map(|row| addresses.value(row)).collect()
}

fn addresses(batch: &RecordBatch) -> PlanResult<&UInt64Array> {
    let column = batch.column_by_name(ROW_ADDRESS).ok_or_else(|| {
        DataFusionError::Internal(format!("column {ROW_ADDRESS} is not in the source"))
    })?;
    Ok(column.as_primitive::<UInt64Type>())
}

fn external(error: lancemem_core::types::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
