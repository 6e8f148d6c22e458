//! A write: its rows, its options and its acknowledgement.
//!
//! Owns: the rows of a write and which of them delete their keys, the options, the acknowledgement,
//! and the size limit of a write.
//! Does not own: what happens to the rows (`placement`).

use arrow_array::{BooleanArray, RecordBatch};

use crate::format::{AcceptedRows, PutMode, RowSchema};
use crate::types::{Error, MAX_PUT_BYTES, Result, Txn};

/// Which rows of a [`WriteBatch`] delete their key; their other columns are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub enum Deletes<'a> {
    /// No row: each row is added or replaces a row.
    #[default]
    None,
    /// Every row; columns outside the key may be missing.
    All,
    /// The rows whose value is true; the other rows are upserted. No value is null.
    Mask(&'a BooleanArray),
}

/// The mode of a plain put.
const PUT: PutMode = PutMode { replace: false, nulls: None };

/// Rows of one write, in the order in which they take effect.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WriteBatch<'a> {
    /// The rows: all columns of the table by name, or the key columns where every row deletes.
    pub rows: &'a RecordBatch,
    /// Which rows delete.
    pub deletes: Deletes<'a>,
    /// How rows are put that do not delete.
    pub mode: PutMode,
}

impl<'a> WriteBatch<'a> {
    /// Rows, some of which delete.
    #[must_use]
    pub const fn new(rows: &'a RecordBatch, deletes: Deletes<'a>) -> Self {
        Self { rows, deletes, mode: PUT }
    }

    /// Rows that are added or replace rows.
    #[must_use]
    pub const fn upserts(rows: &'a RecordBatch) -> Self {
        Self { rows, deletes: Deletes::None, mode: PUT }
    }

    /// Keys to delete, whether they exist or not.
    #[must_use]
    pub const fn deletes(keys: &'a RecordBatch) -> Self {
        Self { rows: keys, deletes: Deletes::All, mode: PUT }
    }

    /// Rows that delete where `mask` is true, and upsert elsewhere.
    #[must_use]
    pub const fn changes(rows: &'a RecordBatch, mask: &'a BooleanArray) -> Self {
        Self { rows, deletes: Deletes::Mask(mask), mode: PUT }
    }

    /// The same rows, put in `mode`.
    #[must_use]
    pub const fn with_mode(self, mode: PutMode) -> Self {
        Self { mode, ..self }
    }

    /// The rows as `schema` stores them.
    ///
    /// # Errors
    /// An input error that names column and row.
    pub fn accept(&self, schema: &RowSchema) -> Result<AcceptedRows> {
        match self.deletes {
            Deletes::All | Deletes::Mask(_) if self.mode != PUT => Err(Error::input(
                "replace and nulls are of puts; write the deletes in a call of their own",
            )),
            Deletes::None => schema.accept_put(self.rows, self.mode),
            Deletes::All => schema.accept_keys(self.rows),
            Deletes::Mask(mask) => schema.accept_changes(self.rows, mask),
        }
    }
}

/// Options of one write. Unset options take the job's settings.
///
/// ```
/// # use lancemem_core::shard::WriteOptions;
/// let options = WriteOptions::default().durable(true).sync_index(false);
/// assert_eq!(options.durable, Some(true));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions<'a> {
    /// Whether to return only after the rows are in the WAL.
    pub durable: Option<bool>,
    /// Whether to return only after the keys are in the key index.
    pub sync_index: Option<bool>,
    /// Whether to return only after the rows are in the indexes that searches of rows in memory use.
    pub sync_search_index: Option<bool>,
    /// Whether the thread that polls the write does nothing else meanwhile. A thread that may block
    /// on a disk ([`waiting_here`](crate::store::waiting_here)) then appends to the log itself.
    pub inline: bool,
    /// The transaction id of the write. The rows and the id become durable together, and only where
    /// the shard has not recorded the id yet. A write without rows records nothing.
    pub txn: Option<&'a Txn>,
}

impl<'a> WriteOptions<'a> {
    /// Sets [`Self::durable`].
    #[must_use]
    pub fn durable(self, durable: impl Into<Option<bool>>) -> Self {
        Self { durable: durable.into(), ..self }
    }

    /// Sets [`Self::sync_index`].
    #[must_use]
    pub fn sync_index(self, sync_index: impl Into<Option<bool>>) -> Self {
        Self { sync_index: sync_index.into(), ..self }
    }

    /// Sets [`Self::sync_search_index`].
    #[must_use]
    pub fn sync_search_index(self, sync_search_index: impl Into<Option<bool>>) -> Self {
        Self { sync_search_index: sync_search_index.into(), ..self }
    }

    /// Sets [`Self::inline`].
    #[must_use]
    pub const fn inline(self, inline: bool) -> Self {
        Self { inline, ..self }
    }

    /// Sets [`Self::txn`].
    #[must_use]
    pub fn txn(self, txn: impl Into<Option<&'a Txn>>) -> Self {
        Self { txn: txn.into(), ..self }
    }
}

/// The guarantees of a write that has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Rows accepted.
    pub rows: usize,
    /// Whether the rows are in the WAL, synced where the job syncs files.
    pub durable: bool,
    /// Whether the rows are in the key index. A read that needs the index adds missing rows first.
    pub indexed: bool,
    /// Whether the shard had recorded the write's transaction id before, so nothing was written.
    pub already_written: bool,
}

/// Refuses a write above the size limit: all its rows are in one MemTable and in one WAL entry.
pub(super) fn refuse_too_much(rows: usize, bytes: usize) -> Result<()> {
    if u32::try_from(rows).is_err() {
        return Err(Error::input(format!("a put is limited to 2^32 - 1 rows, got {rows}")));
    }
    if bytes <= MAX_PUT_BYTES {
        return Ok(());
    }
    Err(Error::input(format!(
        "a put is limited to {MAX_PUT_BYTES} bytes, the limit of one WAL entry; got {bytes} bytes \
         in {rows} rows; split the rows over several puts"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorKind;

    #[test]
    fn a_put_that_no_wal_entry_can_hold_is_refused() {
        refuse_too_much(1, MAX_PUT_BYTES).unwrap();
        let error = refuse_too_much(7, MAX_PUT_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("got 4294967297 bytes in 7 rows"), "{error}");
        assert_eq!(refuse_too_much(1 << 32, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
