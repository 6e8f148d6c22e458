//! What one write asks for, and what it is promised.
//!
//! Owns: the rows of a write and which of them delete their keys, its options, its acknowledgement,
//! and how much one write may hold.
//! Does not own: what happens to the rows (`placement`).

use arrow_array::{BooleanArray, RecordBatch};

use crate::format::{AcceptedRows, RowSchema};
use crate::types::{Error, MAX_PUT_BYTES, Result, Txn};

/// Which rows of a [`WriteBatch`] delete their key, whatever their other columns hold.
#[derive(Clone, Copy, Debug, Default)]
pub enum Deletes<'a> {
    /// No row: each adds or replaces a row.
    #[default]
    None,
    /// Every row; columns outside of the key may be missing.
    All,
    /// The rows whose value is true; the others add or replace. No value is null.
    Mask(&'a BooleanArray),
}

/// Rows of one write, in the order in which they take effect.
#[derive(Clone, Copy, Debug)]
pub struct WriteBatch<'a> {
    /// The rows: all columns of the table by name, or the key columns where every row deletes.
    pub rows: &'a RecordBatch,
    /// Which of them delete.
    pub deletes: Deletes<'a>,
}

impl<'a> WriteBatch<'a> {
    /// Rows that add or replace.
    #[must_use]
    pub const fn upserts(rows: &'a RecordBatch) -> Self {
        Self { rows, deletes: Deletes::None }
    }

    /// Keys to delete, whether they exist or not.
    #[must_use]
    pub const fn deletes(keys: &'a RecordBatch) -> Self {
        Self { rows: keys, deletes: Deletes::All }
    }

    /// Rows of which those delete whose value in `mask` is true.
    #[must_use]
    pub const fn changes(rows: &'a RecordBatch, mask: &'a BooleanArray) -> Self {
        Self { rows, deletes: Deletes::Mask(mask) }
    }

    /// The rows as `schema` stores them.
    ///
    /// # Errors
    /// An input error that names column and row.
    pub fn accept(&self, schema: &RowSchema) -> Result<AcceptedRows> {
        match self.deletes {
            Deletes::None => schema.accept(self.rows),
            Deletes::All => schema.accept_keys(self.rows),
            Deletes::Mask(mask) => schema.accept_changes(self.rows, mask),
        }
    }
}

/// How one write is done. Settings of the job hold for what is not set.
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
    /// Whether the thread that polls the write does nothing else meanwhile. A thread that may wait
    /// for a disk ([`waiting_here`](crate::store::waiting_here)) then appends to the log itself.
    pub inline: bool,
    /// The transaction id of all rows that its transaction writes to this shard. The rows become
    /// durable with it or not at all, and only where it is not recorded yet. A write without rows
    /// records nothing.
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

/// What a write promises once it returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Rows accepted.
    pub rows: usize,
    /// Whether they are in the WAL, on disk where the job syncs files.
    pub durable: bool,
    /// Whether the key index has them; without it reads that need the index add them first.
    pub indexed: bool,
    /// Whether the shard had recorded the write's transaction id before; then nothing was written.
    pub already_written: bool,
}

/// A write stands whole in one MemTable and in one entry of the log, so both bound its size.
pub(super) fn refuse_too_much(rows: usize, bytes: usize) -> Result<()> {
    if u32::try_from(rows).is_err() {
        return Err(Error::input(format!("a put is limited to 2^32 - 1 rows, got {rows}")));
    }
    if bytes <= MAX_PUT_BYTES {
        return Ok(());
    }
    Err(Error::input(format!(
        "a put is limited to {MAX_PUT_BYTES} bytes, the limit of one WAL entry; got {bytes} bytes in \
         {rows} rows; split the rows over several puts"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorKind;

    #[test]
    fn a_put_that_no_entry_of_the_log_can_hold_is_refused() {
        refuse_too_much(1, MAX_PUT_BYTES).unwrap();
        let error = refuse_too_much(7, MAX_PUT_BYTES + 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("got 4294967297 bytes in 7 rows"), "{error}");
        assert_eq!(refuse_too_much(1 << 32, 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
