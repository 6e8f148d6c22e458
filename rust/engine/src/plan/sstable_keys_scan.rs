//! The leaf of a plan that reads the keys of an SSTable out of memory.
//!
//! Owns: the rows of an SSTable in batches, where only key columns are read: keys, positions and
//! tombstones. A scan by key has them in memory anyway, so reading the SSTable's file as well would
//! be a second read.
//! Does not own: which of the rows are the newest of their key.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::physical_plan::metrics::{BaselineMetrics, RecordOutput};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance_core::ROW_ADDR;
use lancemem_core::format::{TOMBSTONE, key_values};
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::source_exec::Leaf;
use crate::errors::external;
use crate::snapshot::{SsTableHandle, SsTableKeys};

/// Rows of a batch.
const BATCH_ROWS: usize = 32_768;

/// Reads the rows of one SSTable, by position, with the requested key columns.
#[derive(Debug)]
pub struct SsTableKeysScan {
    sstable: Arc<SsTableHandle>,
    /// All key columns, in primary-key order.
    key: Arc<[String]>,
    types: Vec<DataType>,
    schema: SchemaRef,
}

impl SsTableKeysScan {
    /// The columns `names` of `table`, which are key columns, of the rows of `sstable`; then the
    /// address of each row and, `with_tombstones`, whether it is a tombstone.
    ///
    /// # Errors
    /// An internal error for a column that `table` does not have.
    pub fn try_new(
        sstable: Arc<SsTableHandle>,
        key: Arc<[String]>,
        table: &Schema,
        names: &[String],
        with_tombstones: bool,
    ) -> PlanResult<Self> {
        let of_table = |name: &String| Ok(Arc::new(table.field_with_name(name)?.clone()));
        let mut fields = names.iter().map(of_table).collect::<PlanResult<Vec<FieldRef>>>()?;
        fields.push(Arc::new(Field::new(ROW_ADDR, DataType::UInt64, true)));
        if with_tombstones {
            fields.push(Arc::new(Field::new(TOMBSTONE, DataType::Boolean, true)));
        }
        let types = key.iter().map(|name| Ok(table.field_with_name(name)?.data_type().clone()));
        let types = types.collect::<PlanResult<Vec<DataType>>>()?;
        Ok(Self { sstable, key, types, schema: Arc::new(Schema::new(fields)) })
    }

    /// The rows, once keys and tombstones are in memory.
    fn rows(&self) -> impl Future<Output = Result<Rows>> + Send + 'static {
        let (sstable, key) = (self.sstable.clone(), self.key.clone());
        let (types, schema) = (self.types.clone(), self.schema.clone());
        async move {
            let keys = sstable.keys(&key).await?;
            let is_asked = schema.column_with_name(TOMBSTONE).is_some();
            let tombstones = if is_asked { Some(sstable.tombstones().await?) } else { None };
            Ok(Rows { keys, tombstones, key, types, schema })
        }
    }
}

impl fmt::Display for SsTableKeysScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.schema.fields().iter().map(|field| field.name());
        let names: Vec<&str> =
            names.filter(|name| self.key.contains(name)).map(String::as_str).collect();
        write!(f, "keys in memory, columns=[{}]", names.join(", "))
    }
}

impl Leaf for SsTableKeysScan {
    const NAME: &'static str = "SsTableKeysExec";

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn batches(&self, metrics: BaselineMetrics) -> BoxStream<'static, PlanResult<RecordBatch>> {
        let rows = self.rows();
        let batches = async move {
            let rows = rows.await.map_err(external)?;
            let count = rows.keys.len();
            let batches = (0..count).step_by(BATCH_ROWS).map(move |first| {
                let _timer = metrics.elapsed_compute().timer();
                let batch = rows.batch(first..count.min(first + BATCH_ROWS)).map_err(external);
                batch.record_output(&metrics)
            });
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        futures::stream::once(batches).try_flatten().boxed()
    }
}

/// The rows of an SSTable.
struct Rows {
    keys: Arc<SsTableKeys>,
    tombstones: Option<Arc<RoaringBitmap>>,
    key: Arc<[String]>,
    types: Vec<DataType>,
    schema: SchemaRef,
}

impl Rows {
    /// The rows of the keys at `places`.
    fn batch(&self, places: Range<usize>) -> Result<RecordBatch> {
        let rows = places.len();
        let is_key = |field: &FieldRef| self.key.contains(field.name());
        let keys = if self.schema.fields().iter().any(is_key) {
            key_values(self.keys.keys_at(places.clone()), &self.types)?
        } else {
            Vec::new()
        };
        let column = |field: &FieldRef| -> ArrayRef {
            match self.key.iter().position(|name| name == field.name()) {
                Some(place) => keys[place].clone(),
                None if field.name() == TOMBSTONE => Arc::new(self.tombstones(places.clone())),
                // An SSTable has one fragment, number 0: addresses are positions.
                None => Arc::new(UInt64Array::from_iter_values(
                    self.keys.positions_at(places.clone()).map(u64::from),
                )),
            }
        };
        let columns = self.schema.fields().iter().map(column).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(|error| {
            Error::internal(format!("reading the keys of an SSTable: {error}")).with_source(error)
        })
    }

    fn tombstones(&self, places: Range<usize>) -> BooleanArray {
        let tombstones = self.tombstones.as_ref().filter(|rows| !rows.is_empty());
        let Some(tombstones) = tombstones else {
            return BooleanArray::from(vec![false; places.len()]);
        };
        self.keys.positions_at(places).map(|row| Some(tombstones.contains(row))).collect()
    }
}
