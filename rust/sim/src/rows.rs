//! Rows that record which put they belong to, and the way back from a batch to that put.
//!
//! Owns: the numbering of keys, what a call does to a key, and how a put's number hides in its rows.
//! Does not own: the batches' keys, which are the testkit's, or what events of a key add up to
//! (`rules`).
//!
//! In a table without a rule a value is `put << 20 | number`. A delete has no values, and in a table
//! with a rule values are small and may be missing, so those calls also write or delete a key that
//! no other call uses, `TXN + put`: their last row.

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use lancemem_core::format::TOMBSTONE;
use lancemem_core::memtable::MemTableView;
use lancemem_core::merge::{GIVEN, REPLACE};
use lancemem_core::types::RowPosition;
use lancemem_testkit::KeyShape;

/// A put or delete of a life, counted from 0.
pub type PutId = u32;

/// Columns beside the key. A table without a rule has the first one only.
pub const COLUMNS: [&str; 4] = ["v", "w", "x", "ts"];
/// The place of `ts`, by which some rules order events.
pub const TS: usize = 3;

/// The values of a row beside its key.
pub type Cells = [Option<i64>; COLUMNS.len()];

/// Columns, the first one in the least significant bit.
pub type Columns = u8;
/// All of them.
pub const ALL: Columns = (1 << COLUMNS.len()) - 1;

/// What a call does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// These columns are given; the others have no value.
    Put {
        /// The columns.
        given: Columns,
        /// Their values.
        cells: Cells,
    },
    /// A whole row; older events count no more.
    Replace(Cells),
    /// Older events count no more.
    Delete,
}

/// Key and event.
pub type Row = (i64, Event);

/// The row of each key below [`KEYS`].
pub type Table = Vec<Option<Cells>>;

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

/// The number in a row of a table without a rule.
pub fn number(cells: &Cells) -> i64 {
    cells[0].unwrap_or_default() & ((1 << NUMBER_BITS) - 1)
}

/// The key by which the call `id` is recognised.
pub fn txn(id: PutId) -> i64 {
    TXN + i64::from(id)
}

/// A put in a table without a rule.
pub const fn put(value: i64) -> Event {
    Event::Put { given: ALL, cells: [Some(value), None, None, None] }
}

/// An empty table.
pub fn empty() -> Table {
    vec![None; KEYS]
}

/// The place of `key` in a [`Table`]; `None` for the key of a call.
pub fn place(key: i64) -> Option<usize> {
    usize::try_from(key).ok().filter(|key| *key < KEYS)
}

/// The events of a stored batch.
pub fn decode(shape: KeyShape, batch: &RecordBatch) -> Vec<Row> {
    let flags = |name| batch.column_by_name(name).map(AsArray::as_boolean);
    let (Some(dead), replaces) = (flags(TOMBSTONE), flags(REPLACE)) else { return Vec::new() };
    let bits = batch.column_by_name(GIVEN).map(AsArray::as_fixed_size_binary);
    let rows = cells(batch).into_iter().enumerate();
    let event = |(row, cells): (usize, Cells)| {
        let event = if dead.value(row) {
            Event::Delete
        } else if replaces.is_some_and(|replaces| replaces.value(row)) {
            Event::Replace(cells)
        } else {
            Event::Put { given: bits.map_or(ALL, |bits| bits.value(row)[0]), cells }
        };
        (key(shape, batch, row), event)
    };
    rows.map(event).collect()
}

/// The values of each row beside its key.
pub fn cells(batch: &RecordBatch) -> Vec<Cells> {
    let mut cells = vec![[None; COLUMNS.len()]; batch.num_rows()];
    for (place, name) in COLUMNS.iter().enumerate() {
        let Some(column) = batch.column_by_name(name) else { continue };
        for (row, value) in column.as_primitive::<Int64Type>().iter().enumerate() {
            cells[row][place] = value;
        }
    }
    cells
}

/// The put that wrote `rows`; `None` where the rows do not identify it.
pub fn put_of(rows: &[Row]) -> Option<PutId> {
    let id = match rows.last()? {
        (key, _) if *key >= TXN => key - TXN,
        (_, Event::Put { cells, .. }) => cells[0]? >> NUMBER_BITS,
        _ => return None,
    };
    PutId::try_from(id).ok()
}

/// The position of the newest row of every key of a MemTable, found through its key index.
///
/// # Errors
/// Where the calls for the newest row disagree.
pub fn newest_of(view: &MemTableView) -> Result<Vec<RowPosition>, String> {
    let mut newest = Vec::new();
    let mut wrong = None;
    view.for_each_newest(|bytes, position| {
        if view.newest(bytes) != Some(position) {
            wrong = Some(format!("a lookup finds another row than a visit, {position:?}"));
        }
        newest.push(position);
    });
    if view.rows_by_key().len() != view.rows() {
        wrong = Some("a row is missing in the key index".to_owned());
    }
    wrong.map_or(Ok(newest), Err)
}

/// The number of the key of `row`.
pub fn key(shape: KeyShape, batch: &RecordBatch, row: usize) -> i64 {
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
