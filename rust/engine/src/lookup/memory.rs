//! Lookups in MemTables.
//!
//! Owns: the search in the key indexes, newest MemTable first.
//! Does not own: rows on storage.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use arrow_array::cast::AsArray;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::Result;

use super::pieces::{Answers, Pieces};
use super::take::Columns;
use super::wanted::Wanted;
use crate::errors::Context;
use crate::snapshot::{Snapshot, Source};

/// Answers the keys that MemTables have; `open` keeps the rows of the call whose keys they lack.
pub(super) fn find(
    snapshot: &Snapshot,
    wanted: &Wanted,
    columns: &Columns,
    open: &mut Vec<u32>,
    pieces: &mut Pieces,
) -> Result<()> {
    let mut memtables: Vec<_> = snapshot
        .sources()
        .filter_map(|(freshness, source)| match source {
            Source::MemTable(rows) => Some((freshness, rows)),
            Source::SsTable(_) => None,
        })
        .collect();
    memtables.sort_by_key(|(freshness, _)| Reverse(*freshness));
    for (_, memtable) in memtables {
        if open.is_empty() {
            return Ok(());
        }
        for answers in find_in(memtable, wanted, columns, open)? {
            pieces.add(answers);
        }
    }
    Ok(())
}

fn find_in(
    memtable: &MemTableView,
    wanted: &Wanted,
    columns: &Columns,
    open: &mut Vec<u32>,
) -> Result<Vec<Answers>> {
    let tombstone =
        memtable.schema().index_of(TOMBSTONE).context("reading the rows of a MemTable")?;
    let mut by_batch: BTreeMap<usize, Vec<(u32, usize)>> = BTreeMap::new();
    open.retain(|row| {
        let Some(position) = memtable.newest(wanted.key(*row)) else { return true };
        let (batch, place) = memtable.place(position);
        if !memtable.batch(batch).column(tombstone).as_boolean().value(place) {
            by_batch.entry(batch).or_default().push((*row, place));
        }
        false
    });
    let columns = columns.in_memtable(memtable)?;
    let answers = by_batch.into_iter().map(|(batch, of)| {
        let columns = columns.bring(memtable.batch(batch))?.columns().to_vec();
        Ok(Answers { columns, of })
    });
    answers.collect()
}
