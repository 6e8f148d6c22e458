//! A source of rows whose vectors are compared in memory: a MemTable, or a small SSTable.
//!
//! Owns: [`FlatSource`]: which sources are compared in memory, their vectors in blocks, and the
//! liveness and the columns of their rows.
//! Does not own: the search (`flat_search`), or how long vectors of SSTables stay (`snapshot`).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow::compute::{interleave_record_batch, prep_null_mask_filter};
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, RecordBatch, RecordBatchOptions,
};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use lancemem_core::format::KeyEncoder;
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::distance::vectors;
use super::layout::Layout;
use crate::errors::{Context, SsTableErrors};
use crate::lookup::without_newer;
use crate::plan::{Filter, columns_of};
use crate::schema::StoredColumns;
use crate::snapshot::{Snapshot, Source, SsTableHandle, VectorRows, bytes_of};
use crate::visibility::DeadRows;

/// Bytes of vectors up to which an SSTable is compared in memory. To ask an index costs a plan of
/// Lance and a read of the candidates, 2.5 ms of a processor for an SSTable of any size. In that
/// time the vectors of 16 MiB are compared: 11,000 vectors of 384 float32.
const FLAT_BYTES: u64 = 16 << 20;
/// The part of the byte budget that the vectors of all SSTables of a search may take. The others
/// would evict each other in every search.
const BUDGET_PART: usize = 2;
/// Rows of a block, which is the unit of work of a thread.
const BLOCK_ROWS: usize = 4_096;
const ACTION: &str = "comparing vectors in memory";
/// Field metadata of types whose stored form differs from the one that Lance returns.
const EXTENSION: &str = "ARROW:extension:name";

/// A source that is compared in memory.
#[derive(Clone, Debug)]
pub(super) struct FlatSource {
    /// Its arm in scans.
    pub arm: usize,
    /// The sources that may supersede its rows, over the same base table.
    newer: Arc<Snapshot>,
    rows: FlatRows,
    /// The caller's condition, which cannot fail on a superseded row.
    condition: Option<RowCondition>,
}

/// A condition on rows, and the columns that it reads.
#[derive(Clone, Debug)]
pub(super) struct RowCondition {
    check: Arc<dyn PhysicalExpr>,
    columns: Vec<String>,
    schema: SchemaRef,
}

impl RowCondition {
    /// For rows of `snapshot`; `None` for a condition that can fail, or reads no column.
    ///
    /// # Errors
    /// An input error where a column is missing.
    pub fn of(
        session: &SessionContext,
        snapshot: &Snapshot,
        filter: &Filter,
    ) -> Result<Option<Self>> {
        let columns: Vec<String> = filter.columns().into_iter().collect();
        if filter.split_fallible().1.is_some() || columns.is_empty() {
            return Ok(None);
        }
        let field = |name: &String| snapshot.schema.field_with_name(name).ok().cloned();
        let fields = columns.iter().filter_map(field).map(|field| field.with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let check = filter.physical(session, &schema)?;
        Ok(Some(Self { check, columns, schema }))
    }

    /// For each of `rows` whether it meets the condition.
    fn met_by(&self, rows: RecordBatch) -> Result<BooleanArray> {
        let rows = in_types_of(&self.schema, rows)?;
        let met = self.check.evaluate(&rows).and_then(|met| met.into_array(rows.num_rows()));
        let met = met.context(ACTION)?;
        let other = || Error::internal(format!("{ACTION}: a condition gave {}", met.data_type()));
        let met = met.as_boolean_opt().ok_or_else(other)?;
        // A null is not true.
        Ok(if met.null_count() > 0 { prep_null_mask_filter(met) } else { met.clone() })
    }
}

#[derive(Clone, Debug)]
enum FlatRows {
    MemTable(MemTableView),
    SsTable {
        sstable: Arc<SsTableHandle>,
        /// The superseded rows, where they are known. Newer rows in memory may supersede more.
        dead: Option<Arc<DeadRows>>,
    },
}

/// Some vectors of a source.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// Those of consecutive rows.
    Run {
        /// The batch that has them, and the first of their rows there.
        batch: u32,
        first: u32,
        vectors: FixedSizeListArray,
        /// The rows that are dead, by their row in the batch.
        dead: Option<Arc<RoaringBitmap>>,
    },
    /// Those of some rows, all of which have a vector. Gathered when they are compared.
    Rows { columns: Arc<[FixedSizeListArray]>, places: Vec<Place> },
}

impl Block {
    /// Rows in the block.
    pub fn rows(&self) -> usize {
        match self {
            Self::Run { vectors, .. } => vectors.len(),
            Self::Rows { places, .. } => places.len(),
        }
    }
}

/// The vectors of a source, ready to be compared.
#[derive(Debug)]
pub(super) struct FlatVectors {
    /// The column of each batch.
    pub columns: Arc<[FixedSizeListArray]>,
    /// The rows that are dead, by their row in the only batch of an SSTable.
    dead: Option<Arc<RoaringBitmap>>,
    /// The rows of an SSTable; a MemTable has its own.
    stored: Option<Arc<VectorRows>>,
}

impl FlatVectors {
    /// All rows, in blocks.
    ///
    /// # Errors
    /// An internal error for a batch with too many rows.
    pub fn blocks(&self) -> Result<Vec<Block>> {
        let mut blocks = Vec::new();
        for (batch, column) in (0..).zip(self.columns.iter()) {
            for first in (0..column.len()).step_by(BLOCK_ROWS) {
                let vectors = column.slice(first, BLOCK_ROWS.min(column.len() - first));
                let (first, dead) = (position(first)?, self.dead.clone());
                blocks.push(Block::Run { batch, first, vectors, dead });
            }
        }
        Ok(blocks)
    }
}

/// A row of a source: its batch, and its row there.
pub(super) type Place = (u32, u32);

/// How much of the budget for vectors of SSTables is left to a search.
#[derive(Debug)]
pub(super) struct FlatBudget(u64);

impl FlatBudget {
    /// For a search of `snapshot`.
    pub fn of(snapshot: &Snapshot) -> Self {
        Self((snapshot.base_cache.limit_bytes() / BUDGET_PART) as u64)
    }

    fn take(&mut self, bytes: u64) -> bool {
        let fits = bytes <= FLAT_BYTES && bytes <= self.0;
        if fits {
            self.0 -= bytes;
        }
        fits
    }
}

impl FlatSource {
    /// The source at the arm `arm` of `snapshot`; `None` where it is not compared in memory: a large
    /// SSTable, the SSTable of another writer, or rows of older columns. `read` names the columns
    /// that the search reads.
    pub fn of(
        snapshot: &Arc<Snapshot>,
        (arm, source): (usize, &Source<'_>),
        layout: &Layout,
        dead: Option<Arc<DeadRows>>,
        (condition, budget): (Option<&RowCondition>, &mut FlatBudget),
    ) -> Option<Self> {
        let mut read = layout.read();
        read.extend(condition.iter().flat_map(|it| it.columns.clone()));
        read.sort_unstable();
        read.dedup();
        let stored = match source {
            Source::MemTable(rows) => rows.schema(),
            Source::SsTable(sstable) => &sstable.columns,
        };
        let is_same =
            StoredColumns::of(stored, &snapshot.columns, &read).is_ok_and(|it| it.is_same());
        // Arrow leaves the children of null structs undefined; scans repair them.
        let is_plain = |field: &&Arc<Field>| {
            !matches!(field.data_type(), DataType::Struct(_))
                && !field.metadata().contains_key(EXTENSION)
        };
        let fields = stored.fields().iter().filter(|field| read.contains(field.name()));
        if !is_same || !fields.clone().all(|field| is_plain(&field)) {
            return None;
        }
        let rows = match source {
            Source::MemTable(rows) => FlatRows::MemTable((*rows).clone()),
            Source::SsTable(sstable) => {
                let width = stored.field_with_name(&layout.vector).ok()?;
                let bytes =
                    bytes_of(width.data_type(), None)?.checked_mul(sstable.physical_rows())?;
                // Of an SSTable only keys and vectors are in memory.
                if condition.is_some() || !sstable.is_trusted() || !budget.take(bytes) {
                    return None;
                }
                FlatRows::SsTable { sstable: (*sstable).clone(), dead }
            }
        };
        let newer = Arc::new(snapshot.newer_than(arm - 1));
        Some(Self { arm, newer, rows, condition: condition.cloned() })
    }

    /// The rows in memory; `None` for an SSTable.
    pub const fn memtable(&self) -> Option<&MemTableView> {
        match &self.rows {
            FlatRows::MemTable(rows) => Some(rows),
            FlatRows::SsTable { .. } => None,
        }
    }

    /// The vectors of the source, read where they are not in memory.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn vectors(&self, layout: &Layout) -> Result<FlatVectors> {
        let (batches, stored, dead): (Vec<RecordBatch>, _, _) = match &self.rows {
            FlatRows::MemTable(rows) => (rows.batches().cloned().collect(), None, None),
            FlatRows::SsTable { sstable, dead } => {
                let stored = sstable.vectors(&layout.vector, &layout.key).await?;
                let dead = dead.as_deref().and_then(DeadRows::in_sstable);
                let dead = dead.filter(|dead| !dead.is_empty()).map(|dead| {
                    let rows = (0_u32..).zip(&stored.positions);
                    rows.filter(|(_, at)| dead.contains(**at))
                        .map(|(row, _)| row)
                        .collect::<RoaringBitmap>()
                });
                (vec![stored.rows.clone()], Some(stored), dead)
            }
        };
        let of_batch = |rows: &RecordBatch| {
            let column = column(rows, &layout.vector)?;
            vectors(column).cloned().context(ACTION)
        };
        let columns = batches.iter().map(of_batch).collect::<Result<Vec<_>>>()?;
        Ok(FlatVectors { columns: columns.into(), dead: dead.map(Arc::new), stored })
    }

    /// Those of `places` whose rows are the newest of their keys and meet the condition.
    ///
    /// # Errors
    /// A storage error while keys of newer SSTables are read.
    pub async fn live(
        &self,
        vectors: &FlatVectors,
        mut places: Vec<Place>,
        key: &[String],
    ) -> Result<Vec<Place>> {
        if let Some(condition) = &self.condition
            && !places.is_empty()
        {
            let met = condition.met_by(self.rows_at(vectors, &places, &condition.columns)?)?;
            let mut met = met.values().iter();
            places.retain(|_| met.next().unwrap_or_default());
        }
        if key.is_empty() || places.is_empty() {
            return Ok(places);
        }
        let keys = self.rows_at(vectors, &places, key)?;
        let newest: Vec<bool> = match &self.rows {
            FlatRows::MemTable(rows) => {
                let encoded = KeyEncoder::new(keys.schema_ref(), key)?.encode_block(&keys);
                let is_newest = |(key, (batch, row)): (&[u8], &Place)| {
                    let place = (*batch as usize, *row as usize);
                    rows.newest(key).is_some_and(|newest| rows.place(newest) == place)
                };
                encoded.iter().zip(&places).map(is_newest).collect()
            }
            FlatRows::SsTable { .. } => vec![true; places.len()],
        };
        let alone = self.newer.is_base_only();
        let live = if alone { None } else { Some(without_newer(&self.newer, &keys).await?) };
        let is_live = |row: usize| newest[row] && live.as_ref().is_none_or(|live| live.value(row));
        let places = places.into_iter().enumerate();
        Ok(places.filter(|(row, _)| is_live(*row)).map(|(_, place)| place).collect())
    }

    /// The columns `names` of the rows at `places`, which are in memory.
    fn rows_at(
        &self,
        vectors: &FlatVectors,
        places: &[Place],
        names: &[String],
    ) -> Result<RecordBatch> {
        let (mut known, mut batches, mut chosen) = (HashMap::new(), Vec::new(), Vec::new());
        for (batch, row) in places {
            let at = if let Some(at) = known.get(batch) {
                *at
            } else {
                let rows = match (&vectors.stored, &self.rows) {
                    (Some(stored), _) => &stored.rows,
                    (None, FlatRows::MemTable(rows)) => rows.batch(*batch as usize),
                    (None, FlatRows::SsTable { .. }) => {
                        return Err(Error::internal(format!("{ACTION}: no rows were read")));
                    }
                };
                batches.push(selected(rows, names)?);
                known.insert(*batch, batches.len() - 1);
                batches.len() - 1
            };
            chosen.push((at, *row as usize));
        }
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        interleave_record_batch(&batches, &chosen).context(ACTION)
    }

    /// The rows at `places`, which are not empty, with the columns that the search reads.
    ///
    /// # Errors
    /// A storage error while other columns of an SSTable are read.
    pub async fn found(
        &self,
        vectors: &FlatVectors,
        mut places: Vec<Place>,
        layout: &Layout,
    ) -> Result<RecordBatch> {
        places.sort_unstable();
        let names = layout.read();
        let (FlatRows::SsTable { sstable, .. }, Some(stored)) = (&self.rows, &vectors.stored)
        else {
            return self.rows_at(vectors, &places, &names);
        };
        let is_there = |name: &&String| stored.rows.column_by_name(name).is_some();
        let there: Vec<String> = names.iter().filter(is_there).cloned().collect();
        let here = self.rows_at(vectors, &places, &there)?;
        let others: Vec<String> = names.iter().filter(|name| !is_there(name)).cloned().collect();
        if others.is_empty() {
            return Ok(here);
        }
        let offsets: Vec<u32> =
            places.iter().map(|(_, row)| stored.positions[*row as usize]).collect();
        let taken = async {
            let columns = columns_of(&sstable.dataset, &others)?;
            sstable.row_readers.take(&sstable.dataset, 0, &offsets, &columns).await
        };
        let taken = taken.await.in_sstable(&sstable.name())?;
        joined(&[&here, &taken], &names)
    }
}

impl fmt::Display for FlatSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rows {
            FlatRows::MemTable(rows) => {
                write!(f, "MemTable generation={}, rows={}", rows.generation(), rows.rows())
            }
            FlatRows::SsTable { sstable, dead } => {
                write!(f, "{}, rows={}", sstable.name(), sstable.physical_rows())?;
                match dead.as_ref().filter(|dead| !dead.is_empty()) {
                    Some(dead) => write!(f, ", dead={}", dead.len()),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The columns `names` of several batches with the same rows.
fn joined(parts: &[&RecordBatch], names: &[String]) -> Result<RecordBatch> {
    let find = |name: &String| parts.iter().find_map(|part| part.column_by_name(name));
    let missing =
        |name: &String| Error::internal(format!("{ACTION}: column '{name}' was not read"));
    let columns = names.iter().map(|name| find(name).cloned().ok_or_else(|| missing(name)));
    let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
    batch_of(names, columns, parts.first().map_or(0, |part| part.num_rows()))
}

fn selected(rows: &RecordBatch, names: &[String]) -> Result<RecordBatch> {
    joined(&[rows], names)
}

/// All columns are nullable: a batch of a MemTable and one of an SSTable differ in that.
fn batch_of(names: &[String], columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let field =
        |(name, column): (&String, &ArrayRef)| Field::new(name, column.data_type().clone(), true);
    let fields: Vec<Field> = names.iter().zip(&columns).map(field).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .context(ACTION)
}

/// `rows` with columns in the types of `schema`, by name.
pub(super) fn in_types_of(schema: &SchemaRef, rows: RecordBatch) -> Result<RecordBatch> {
    let of = rows.schema();
    let is_same = |field: &Arc<Field>| {
        schema.field_with_name(field.name()).is_ok_and(|it| it.data_type() == field.data_type())
    };
    if of.fields().iter().all(is_same) {
        return Ok(rows);
    }
    let names: Vec<String> = of.fields().iter().map(|field| field.name().clone()).collect();
    let column = |(name, column): (&String, &ArrayRef)| match schema.field_with_name(name) {
        Ok(field) if field.data_type() != column.data_type() => {
            cast(column, field.data_type()).context(ACTION)
        }
        _ => Ok(column.clone()),
    };
    let columns = names.iter().zip(rows.columns()).map(column).collect::<Result<Vec<_>>>()?;
    batch_of(&names, columns, rows.num_rows())
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    let missing = || Error::internal(format!("{ACTION}: column '{name}' is missing"));
    rows.column_by_name(name).ok_or_else(missing)
}

fn position(row: usize) -> Result<u32> {
    u32::try_from(row).map_err(|_| Error::internal(format!("{ACTION}: row {row} is too far")))
}
