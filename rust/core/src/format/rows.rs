//! From the rows that a caller gives to the rows that are stored.
//!
//! Owns: the logical schema (the base table's), the storage schema (columns nullable except the
//! key, then `_tombstone`), and the rules by which a batch is accepted.
//! Does not own: routing to shards, or memory.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::nullif::nullif;

use super::cast::lossless_cast;
use super::event_rows::{PutMode, no_bits};
use super::floats::whole_numbers;
use super::null_check::{null_part, null_row};
use super::reconcile::{StoredPlaces, refuse_other_key};
use super::size::{arrays_of, column_bytes, payload_bytes};
use super::zero_width::{MAX_VALUES, shows_too_many};
use super::{KeyEncoder, Reconcile, Sharding};
use crate::merge::{Choosing, Fold, GIVEN, REPLACE, Verb};
use crate::types::{Error, KeyBlock, Result, TypeName};

/// Bytes that a key index takes for a row, beside its encoded key.
const INDEX_BYTES_PER_ROW: usize = 48;
/// Approximate bytes that a batch, and each of its arrays, takes beside the values. They dominate a
/// put of one row.
const BATCH_BYTES: usize = 256;
const ARRAY_BYTES: usize = 256;

/// The trailing column of stored rows: true for a row that deletes its key.
pub const TOMBSTONE: &str = "_tombstone";
/// The columns that stored rows may have behind those of the table, in their order. Tables without a
/// merge rule have the first one only.
pub const RESERVED: [&str; 3] = [TOMBSTONE, REPLACE, GIVEN];
/// Columns that Lance adds to what it reads: a table that has such a column of its own is
/// unreadable.
const OF_LANCE: [&str; 5] =
    ["_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"];

/// The two schemas of a table and its key.
#[derive(Clone, Debug)]
pub struct RowSchema {
    logical: SchemaRef,
    storage: SchemaRef,
    /// The storage schema with every field nullable, for rows that are not checked for nulls yet.
    nullable: SchemaRef,
    key: KeyEncoder,
    /// The rule that chooses among the rows of a key.
    rule: Option<Arc<Choosing>>,
    /// The rule that makes a row of several.
    fold: Option<Arc<Fold>>,
}

/// Rows in storage form.
#[derive(Clone, Debug)]
pub struct AcceptedRows {
    /// The rows under the storage schema.
    pub batch: RecordBatch,
    /// One key a row where they were encoded already; `None` for a table without a primary key.
    pub keys: Option<KeyBlock>,
    /// Bytes of the rows.
    pub payload_bytes: usize,
    /// Bytes of their encoded keys, about.
    pub key_bytes: usize,
}

impl AcceptedRows {
    /// What these rows cost a MemTable: the rows, the arrays that hold them, and with a primary key
    /// its encoded copy and its slot in the key index.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let arrays: usize = self.batch.schema_ref().fields().iter().map(|it| arrays_of(it)).sum();
        let holders = BATCH_BYTES + ARRAY_BYTES * arrays;
        let index = self.batch.num_rows() * INDEX_BYTES_PER_ROW;
        self.payload_bytes + self.key_bytes + index + holders
    }
}

impl RowSchema {
    /// The schemas of a table with the columns of `logical` and the primary key `key`.
    ///
    /// Field metadata is kept, so a field id that `logical` carries reaches the WAL.
    ///
    /// # Errors
    /// An input error for a key column that is missing or of a type that cannot be a key, or a
    /// column with a reserved name, such as `_tombstone`.
    pub fn new(logical: SchemaRef, key: &[String]) -> Result<Self> {
        Self::with_bound_rule(logical, key, None, None)
    }

    /// As [`Self::new`], for a table whose rule chooses, or makes a row of several.
    pub(super) fn with_bound_rule(
        logical: SchemaRef,
        key: &[String],
        choosing: Option<Arc<Choosing>>,
        fold: Option<Arc<Fold>>,
    ) -> Result<Self> {
        let mut names = logical.fields().iter().map(|field| field.name().as_str());
        if let Some(name) = names.find(|name| *name == TOMBSTONE || OF_LANCE.contains(name)) {
            let way_out = "rename the column with alter_columns of the dataset";
            return Err(Error::input(format!("the column name '{name}' is reserved; {way_out}")));
        }
        let mut fields: Vec<Field> = logical
            .fields()
            .iter()
            .map(|field| {
                let is_key = key.contains(field.name());
                field.as_ref().clone().with_nullable(field.is_nullable() || !is_key)
            })
            .collect();
        fields.push(Field::new(TOMBSTONE, DataType::Boolean, false));
        if choosing.is_some() {
            fields.push(Field::new(REPLACE, DataType::Boolean, false));
        }
        let storage = match &fold {
            Some(fold) => fold.event_schema().clone(),
            None => Arc::new(Schema::new_with_metadata(fields, logical.metadata().clone())),
        };
        let key = KeyEncoder::new(&storage, key)?;
        let nullable = storage.fields().iter().map(|it| it.as_ref().clone().with_nullable(true));
        let nullable = Arc::new(Schema::new(nullable.collect::<Vec<_>>()));
        Ok(Self { logical, storage, nullable, key, rule: choosing, fold })
    }

    /// The rule that chooses among the rows of a key; `None` where the newest one is shown, and where
    /// a rule makes a row of several ([`Self::fold`]).
    #[must_use]
    pub const fn rule(&self) -> Option<&Arc<Choosing>> {
        self.rule.as_ref()
    }

    /// The rule that makes a row of the events of a key, over all columns; `None` in other tables.
    #[must_use]
    pub const fn fold(&self) -> Option<&Arc<Fold>> {
        self.fold.as_ref()
    }

    /// The base table's schema.
    #[must_use]
    pub const fn logical(&self) -> &SchemaRef {
        &self.logical
    }

    /// The schema of MemTables, WAL entries and SSTables.
    #[must_use]
    pub const fn storage(&self) -> &SchemaRef {
        &self.storage
    }

    /// The key of rows in the storage schema.
    #[must_use]
    pub const fn key(&self) -> &KeyEncoder {
        &self.key
    }

    /// Accepts rows to upsert: columns in any order, cast where nothing is lost.
    ///
    /// # Errors
    /// One input error that names the column, and the row where a single value is at fault: a
    /// missing or unknown column, a type that does not fit, a null where none may be.
    pub fn accept(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        self.accept_put(batch, PutMode::default())
    }

    /// Accepts rows with all columns.
    pub(super) fn accept_whole(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        let mut columns = Vec::with_capacity(self.storage.fields().len());
        if self.has_our_columns(batch) {
            for (field, array) in self.logical.fields().iter().zip(batch.columns()) {
                columns.push(self.accept_column(field, array)?);
            }
            return self.finished(columns, constant(batch.num_rows(), false));
        }
        self.refuse_unknown_columns(batch)?;
        for field in self.logical.fields() {
            let Some(array) = batch.column_by_name(field.name()) else {
                return Err(Error::input(format!(
                    "column '{}' of type {} is missing; a write takes whole rows: give every \
                     column, with nulls where there is no value, or change some columns by update",
                    field.name(),
                    TypeName(field.data_type())
                )));
            };
            columns.push(self.accept_column(field, array)?);
        }
        self.finished(columns, constant(batch.num_rows(), false))
    }

    /// Accepts keys to delete: the key columns, other columns are ignored. With the columns of
    /// `sequence_by` a delete is an event like another one; without them it removes all that arrived
    /// before.
    ///
    /// # Errors
    /// As [`Self::accept`], and for a table without a primary key.
    pub fn accept_keys(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        self.require_key()?;
        if let Some(fold) = &self.fold {
            return self.accept_events(
                fold,
                &self.deleted_columns(fold, batch)?,
                Verb::Delete,
                None,
            );
        }
        let sequence = match &self.rule {
            Some(rule) => rule.delete_sequence(batch)?,
            None => Vec::new(),
        };
        self.accept_deletes(batch, &sequence)
    }

    /// Accepts keys to look up: the key columns, other columns are ignored.
    ///
    /// # Errors
    /// As [`Self::accept`], and for a table without a primary key.
    pub fn accept_wanted(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        self.require_key()?;
        self.accept_deletes(batch, &[])
    }

    fn require_key(&self) -> Result<()> {
        if self.has_key() {
            return Ok(());
        }
        Err(Error::input(
            "the table has no primary key, so rows cannot be deleted by key; a table gets its \
             key when it is created or enabled: primary_key=",
        ))
    }

    /// Deletes by key, with these columns of `sequence_by`.
    fn accept_deletes(&self, batch: &RecordBatch, sequence: &[&String]) -> Result<AcceptedRows> {
        let mut columns = Vec::with_capacity(self.storage.fields().len());
        for field in self.logical.fields() {
            if !self.key.names().contains(field.name()) && !sequence.contains(&field.name()) {
                columns.push(new_null_array(field.data_type(), batch.num_rows()));
                continue;
            }
            let is_it = |place: &usize| batch.schema_ref().field(*place).name() == field.name();
            let mut places = (0..batch.num_columns()).filter(is_it);
            let place = places.next().ok_or_else(|| {
                Error::input(format!("primary key column '{}' is missing", field.name()))
            })?;
            places.next().map_or(Ok(()), |again| refuse_repeated(batch, again))?;
            let is_key = self.key.names().contains(field.name());
            let stored = field.as_ref().clone().with_nullable(field.is_nullable() || !is_key);
            columns.push(self.accept_column(&stored, batch.column(place))?);
        }
        self.finished(columns, constant(batch.num_rows(), true))
    }

    /// Accepts rows to upsert and keys to delete in one batch: a row whose value in `deletes` is
    /// true deletes its key, and its other columns are ignored. Where deletes can have a sequence,
    /// those of the batch have the sequence of their rows.
    ///
    /// # Errors
    /// As [`Self::accept`] and [`Self::accept_keys`].
    pub fn accept_changes(
        &self,
        batch: &RecordBatch,
        deletes: &BooleanArray,
    ) -> Result<AcceptedRows> {
        if deletes.len() != batch.num_rows() || deletes.null_count() > 0 {
            return Err(Error::input(format!(
                "deletes needs one true or false per row: got {} values ({} null) for {} rows",
                deletes.len(),
                deletes.null_count(),
                batch.num_rows()
            )));
        }
        match deletes.true_count() {
            0 => return self.accept(batch),
            _ if !self.has_key() => return self.accept_keys(batch),
            _ if self.fold.is_some() => return self.accept_mixed(batch, deletes),
            all if all == batch.num_rows() => return self.accept_only_deletes(batch),
            _ => self.refuse_unknown_columns(batch)?,
        }
        let sequence = self.sequence_of_deletes();
        if self.rule.is_some() {
            self.refuse_deletes_without_sequence(batch, deletes)?;
        }
        let mut columns = Vec::with_capacity(self.storage.fields().len());
        for field in self.logical.fields() {
            let array = batch
                .column_by_name(field.name())
                .ok_or_else(|| Error::input(format!("column '{}' is missing", field.name())))?;
            if self.key.names().contains(field.name()) || sequence.contains(field.name()) {
                columns.push(self.accept_column(field, array)?);
                continue;
            }
            let array = nullif(array, deletes)
                .map_err(|error| Error::input(error.to_string()).with_source(error))?;
            let nullable = field.as_ref().clone().with_nullable(true);
            let array = self.accept_column(&nullable, &array)?;
            let missing = |nulls: &NullBuffer| {
                (0..array.len()).find(|row| nulls.is_null(*row) && !deletes.value(*row))
            };
            if !field.is_nullable()
                && let Some(row) = array.logical_nulls().as_ref().and_then(missing)
            {
                return Err(Error::input(format!(
                    "column '{}' is null in row {row}",
                    field.name()
                )));
            }
            columns.push(array);
        }
        self.finished(columns, Arc::new(deletes.clone()))
    }

    /// The columns of `sequence_by` that the deletes of a batch of changes store.
    fn sequence_of_deletes(&self) -> &[String] {
        match &self.rule {
            Some(rule) if rule.rule().remembers_deletes() => rule.sequence(),
            _ => &[],
        }
    }

    /// A batch of changes that are all deletes.
    fn accept_only_deletes(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        // In other batches of the stream the rule would pass over the sequence of a delete.
        if self.sequence_of_deletes().is_empty() {
            return self.accept_deletes(batch, &[]);
        }
        self.accept_keys(batch)
    }

    /// Refuses a delete among `batch` that has no sequence, where deletes have one.
    fn refuse_deletes_without_sequence(
        &self,
        batch: &RecordBatch,
        deletes: &BooleanArray,
    ) -> Result<()> {
        let sequence = self.sequence_of_deletes();
        let columns = sequence.iter().filter_map(|name| batch.column_by_name(name));
        let nulls: Vec<_> = columns.map(Array::logical_nulls).collect();
        let is_null = |nulls: &Option<NullBuffer>, row: usize| {
            nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
        };
        let is_bare =
            |row: &usize| deletes.value(*row) && nulls.iter().all(|nulls| is_null(nulls, *row));
        let Some(name) = sequence.first().filter(|_| !nulls.is_empty()) else { return Ok(()) };
        match (0..deletes.len()).find(is_bare) {
            None => Ok(()),
            Some(row) => Err(Error::input(format!(
                "column '{name}' is null in row {row}, which is a delete; give deletes a sequence, \
                 or delete the keys in a call of their own, without the columns of sequence_by"
            ))),
        }
    }

    /// Brings stored rows, such as those of a WAL entry, to today's storage schema by field id,
    /// and encodes their keys.
    ///
    /// # Errors
    /// An input error where a column changed its type in a way that loses values.
    pub fn conform(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        let mut rows = self.reconciled(batch)?;
        rows.keys = self.has_key().then(|| self.encode_keys(&rows));
        Ok(rows)
    }

    /// Rows that another schema of the same table has accepted, under this one.
    ///
    /// # Errors
    /// As [`Self::conform`].
    pub fn conform_accepted(&self, rows: AcceptedRows) -> Result<AcceptedRows> {
        if Arc::ptr_eq(rows.batch.schema_ref(), &self.storage) {
            return Ok(rows);
        }
        // The key is the same in every schema of a table, and so are the encoded keys.
        let AcceptedRows { batch, keys, .. } = rows;
        Ok(AcceptedRows { keys, ..self.reconciled(&batch)? })
    }

    /// Refuses this schema as the next one of a table with rows under `older`.
    ///
    /// # Errors
    /// An input error that names the column.
    pub fn refuse_misfit(&self, older: &Self) -> Result<()> {
        if self.key.names() != older.key.names() {
            return Err(Error::input(format!(
                "the primary key was ({}) and is ({}) now; a key never changes",
                older.key.names().join(", "),
                self.key.names().join(", ")
            )));
        }
        let places = StoredPlaces::of(older.storage.fields());
        for (old, new) in older.key.columns().iter().zip(self.key.columns()) {
            let (old, new) = (older.storage.field(*old), self.storage.field(*new));
            let is_same = places.find(new).is_some_and(|place| older.storage.field(place) == old);
            if !is_same || old.data_type() != new.data_type() {
                return Err(Error::input(format!(
                    "primary key column '{}' of type {} was replaced by another of type {}; a \
                     key never changes",
                    old.name(),
                    TypeName(old.data_type()),
                    TypeName(new.data_type())
                )));
            }
        }
        Reconcile::between(&older.storage, &self.storage).map(|_| ())
    }

    /// Whether both accept and store the same columns.
    #[must_use]
    pub fn has_columns_of(&self, other: &Self) -> bool {
        self.storage.fields() == other.storage.fields()
            && self.logical.fields() == other.logical.fields()
    }

    /// Stored rows under this storage schema.
    ///
    /// # Errors
    /// As [`Self::conform`].
    pub fn reconcile(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        Ok(self.reconciled(batch)?.batch)
    }

    fn reconciled(&self, batch: &RecordBatch) -> Result<AcceptedRows> {
        let stored = batch.schema_ref();
        let mut columns = if stored.fields() == self.storage.fields() {
            batch.columns().to_vec()
        } else {
            refuse_other_key(stored, &self.storage)?;
            let reconcile = Reconcile::between(stored, &self.storage)?;
            reconcile.apply(batch, &self.nullable)?.columns().to_vec()
        };
        for (field, column) in self.storage.fields().iter().zip(&mut columns) {
            *column = self.accept_column(field, column)?;
        }
        self.assemble(columns, batch.num_rows())
    }

    /// The keys of accepted rows.
    #[must_use]
    pub fn encode_keys(&self, rows: &AcceptedRows) -> KeyBlock {
        self.key.encode_block(&rows.batch)
    }

    /// Whether the table has a primary key.
    #[must_use]
    pub fn has_key(&self) -> bool {
        !self.key.names().is_empty()
    }

    /// The sharding column of `batch` in the table's type: text or integers of another width
    /// would hash differently.
    ///
    /// # Errors
    /// An input error where the column is missing or a value does not fit.
    pub fn with_column_types(
        &self,
        batch: &RecordBatch,
        sharding: &Sharding,
    ) -> Result<RecordBatch> {
        let Sharding::Bucket { column, .. } = sharding else { return Ok(batch.clone()) };
        let missing = || Error::input(format!("sharding column '{column}' is missing"));
        let field = self.storage.field_with_name(column).map_err(|_| missing())?;
        let array = batch.column_by_name(column).ok_or_else(missing)?;
        let array = self.accept_column(field, array)?;
        let schema = Arc::new(Schema::new(vec![field.clone()]));
        RecordBatch::try_new(schema, vec![array])
            .map_err(|error| Error::input(error.to_string()).with_source(error))
    }

    /// Whether the columns have our names and order: the common case, which needs no search.
    fn has_our_columns(&self, batch: &RecordBatch) -> bool {
        let (ours, theirs) = (self.logical.fields(), batch.schema_ref().fields());
        let same = |(ours, theirs): (&Arc<Field>, &Arc<Field>)| ours.name() == theirs.name();
        ours.len() == theirs.len() && ours.iter().zip(theirs.iter()).all(same)
    }

    pub(super) fn refuse_unknown_columns(&self, batch: &RecordBatch) -> Result<()> {
        for (index, field) in batch.schema_ref().fields().iter().enumerate() {
            let name = field.name();
            if self.logical.column_with_name(name).is_none() && !is_unnamed_index(name) {
                let fields = self.logical.fields().iter();
                let known: Vec<&str> = fields.map(|it| it.name().as_str()).collect();
                return Err(Error::input(format!(
                    "column '{name}' is not in the table; it has {}; leave the column out, or \
                     add it to the table first",
                    known.join(", ")
                )));
            }
            refuse_repeated(batch, index)?;
        }
        Ok(())
    }

    pub(super) fn accept_column(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef> {
        let name = field.name();
        let is_key = self.key.names().contains(name);
        let (from, to) = (array.data_type(), field.data_type());
        let array = if from == to {
            array.clone()
        } else if !is_key && from == &DataType::Float64 && to.is_integer() {
            whole_numbers(array, field)?
        } else {
            // The error of a cast names no row of a null, so look for it.
            lossless_cast(array, field).map_err(|error| {
                null_part(array.data_type(), array).map_or(error, |part| part_is_null(name, part))
            })?
        };
        if (is_key || !field.is_nullable())
            && let Some(row) = null_row(&array)
        {
            let (role, then) = if is_key {
                ("primary key column", "; every row needs its key: fill it, or drop the row")
            } else {
                ("column", "")
            };
            return Err(Error::input(format!("{role} '{name}' is null in row {row}{then}")));
        }
        if let Some(part) = null_part(field.data_type(), &array) {
            return Err(part_is_null(name, part));
        }
        Ok(array)
    }

    /// The columns of the table with those behind them.
    fn finished(&self, mut columns: Vec<ArrayRef>, tombstones: ArrayRef) -> Result<AcceptedRows> {
        let rows = tombstones.len();
        columns.push(tombstones);
        for field in &self.storage.fields()[columns.len()..] {
            columns.push(match field.data_type() {
                DataType::FixedSizeBinary(bytes) => no_bits(*bytes, rows)?,
                _ => constant(rows, false),
            });
        }
        self.accepted(columns, rows)
    }

    /// Accepted columns, unless one has more zero-width values than a reader accepts.
    pub(super) fn accepted(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<AcceptedRows> {
        if let Some(place) = columns.iter().position(|column| shows_too_many(column)) {
            return Err(Error::input(format!(
                "column '{}' has more than {MAX_VALUES} zero-width values (null type, empty \
                 structs) in one batch; write fewer rows at a time",
                self.storage.field(place).name()
            )));
        }
        self.assemble(columns, rows)
    }

    fn assemble(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<AcceptedRows> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.storage.clone(), columns, &options)
            .map_err(|error| Error::input(error.to_string()).with_source(error))?;
        let payload_bytes = payload_bytes(&batch);
        let key_columns = self.key.columns().iter().map(|column| batch.column(*column));
        let key_bytes = key_columns.map(column_bytes).sum();
        Ok(AcceptedRows { batch, keys: None, payload_bytes, key_bytes })
    }
}

/// Whether pandas gives this name to the column of an index without a name, such as the index of
/// filtered rows. Where the table has no such column, it is ignored.
fn is_unnamed_index(name: &str) -> bool {
    let number = name.strip_prefix("__index_level_").and_then(|it| it.strip_suffix("__"));
    number.is_some_and(|it| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit()))
}

fn constant(rows: usize, value: bool) -> ArrayRef {
    let bits = if value { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
    Arc::new(BooleanArray::new(bits, None))
}

fn refuse_repeated(batch: &RecordBatch, index: usize) -> Result<()> {
    let fields = batch.schema_ref().fields();
    let name = fields[index].name();
    if fields[..index].iter().any(|earlier| earlier.name() == name) {
        return Err(Error::input(format!("column '{name}' is given twice")));
    }
    Ok(())
}

fn part_is_null(column: &str, (path, row): (String, usize)) -> Error {
    Error::input(format!("column '{column}{path}' is null in row {row}"))
}

#[cfg(test)]
#[path = "rows_tests.rs"]
mod tests;
