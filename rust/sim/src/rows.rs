//! Rows that record which put they belong to, and the way back from a batch to that put.
//!
//! Owns: the numbering of keys, and how a put's number hides in its values.
//! Does not own: the batches' columns, which are the testkit's.
//!
//! A value is `put << 20 | number`. A delete has no values, so it also deletes a key that no put
//! uses, `TXN + put`: its last row.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use lancemem_core::format::TOMBSTONE;
use lancemem_core::memtable::MemTableView;
use lancemem_testkit::KeyShape;

/// A put or delete of a life, counted from 0.
pub type PutId = u32;

/// Key and value; no value is a deleted key.
pub type Row = (i64, Option<i64>);

/// The value of each key below [`KEYS`].
pub type Table = Vec<Option<i64>>;

/// Accounts of the bank: keys `0..ACCOUNTS`.
pub const ACCOUNTS: usize = 6;
/// Keys of accounts and registers.
pub const KEYS: usize = 22;
/// What each account starts with.
pub const DEPOSIT: i64 = 100;

const TXN: i64 = 1_000_000;
const NUMBER_BITS: u32 = 20;

/// The value of `number` in the put `id`.
pub fn value(id: PutId, number: i64) -> i64 {
    i64::from(id) << NUMBER_BITS | number
}

/// The number in a value.
pub const fn number(value: i64) -> i64 {
    value & ((1 << NUMBER_BITS) - 1)
}

/// The key by which the delete `id` is recognised.
pub fn txn(id: PutId) -> i64 {
    TXN + i64::from(id)
}

/// An empty table.
pub fn empty() -> Table {
    vec![None; KEYS]
}

/// Applies `rows` in their order.
pub fn apply(table: &mut Table, rows: &[Row]) {
    for (key, value) in rows {
        if let Some(slot) = usize::try_from(*key).ok().and_then(|key| table.get_mut(key)) {
            *slot = *value;
        }
    }
}

/// The rows of a stored batch.
pub fn decode(shape: KeyShape, batch: &RecordBatch) -> Vec<Row> {
    let dead = batch.column_by_name(TOMBSTONE).map(|column| column.as_boolean().clone());
    let values = batch.column_by_name("v").map(|c| c.as_primitive::<Int64Type>().clone());
    let (Some(dead), Some(values)) = (dead, values) else { return Vec::new() };
    (0..batch.num_rows())
        .map(|row| {
            let live = !dead.value(row) && values.is_valid(row);
            (key(shape, batch, row), live.then(|| values.value(row)))
        })
        .collect()
}

/// The put that wrote `rows`; `None` where the rows do not identify it.
pub fn put_of(rows: &[Row]) -> Option<PutId> {
    let id = match rows.last()? {
        (_, Some(value)) => value >> NUMBER_BITS,
        (key, None) => key - TXN,
    };
    PutId::try_from(id).ok()
}

/// The newest row of every key of a MemTable, found through its key index.
///
/// # Errors
/// Where the calls for the newest row disagree.
pub fn newest_of(shape: KeyShape, view: &MemTableView) -> Result<Vec<Row>, String> {
    let mut newest = Vec::new();
    let mut wrong = None;
    view.for_each_newest(|bytes, position| {
        let (batch, row) = view.locate(position);
        let row = decode(shape, &batch.slice(row, 1))[0];
        if view.newest(bytes) != Some(position) {
            wrong = Some(format!("a lookup of key {} finds another row than a visit", row.0));
        }
        newest.push(row);
    });
    if view.rows_by_key().len() != view.rows() {
        wrong = Some("a row is missing in the key index".to_owned());
    }
    wrong.map_or(Ok(newest), Err)
}

fn key(shape: KeyShape, batch: &RecordBatch, row: usize) -> i64 {
    let text = |column: usize| {
        let text = batch.column(column).as_string::<i32>().value(row);
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse::<i64>().unwrap_or(-1)
    };
    match shape {
        KeyShape::Int64 => batch.column(0).as_primitive::<Int64Type>().value(row),
        KeyShape::Utf8 => text(0),
        KeyShape::Composite => {
            i64::from(batch.column(0).as_primitive::<Int32Type>().value(row)) * 3 + text(1)
        }
    }
}
