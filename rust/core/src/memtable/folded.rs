//! The rows of a MemTable with one event of each key, for tables whose rule makes a row of several.
//!
//! Owns: the fold of the events of one view, key by key, and its place: that of the key's newest
//! row. So positions and the order of keys stay those of the view.
//! Does not own: the fold (`merge`), or who hides the older rows.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use arrow_select::interleave::interleave_record_batch;

use super::choice::repeated;
use super::view::MemTableView;
use crate::merge::{Fold, KeyGroups};
use crate::types::{Error, Result, RowPosition};

/// A row of a batch that a fold replaces, with the batch and the row of that fold.
type Replaced = (usize, (usize, usize));

/// Keys that are folded at a time.
const CHUNK: usize = 8_192;

/// The batches of `view` in which each newest row is the fold of its key's events.
pub(super) fn folded(view: &MemTableView, fold: &Fold) -> Result<Vec<RecordBatch>> {
    let batches: Vec<RecordBatch> = view.batches().cloned().collect();
    let repeated: Vec<(u32, Vec<usize>)> = repeated(view).into_iter().collect();
    // By batch: the rows that folds replace, each with its fold.
    let mut replaced: BTreeMap<usize, Vec<Replaced>> = BTreeMap::new();
    let mut folds = Vec::new();
    for keys in repeated.chunks(CHUNK) {
        let (mut offsets, mut rows) = (vec![0], Vec::new());
        for (last, older) in keys {
            let positions = older.iter().copied().chain([*last as usize]);
            rows.extend(positions.map(|row| {
                let position = RowPosition(super::index::position(row));
                view.place(position)
            }));
            offsets.push(rows.len());
        }
        for (group, end) in offsets[1..].iter().enumerate() {
            let (batch, row) = rows[end - 1];
            replaced.entry(batch).or_default().push((row, (folds.len(), group)));
        }
        folds.push(fold.fold(&batches, &KeyGroups::new(offsets, rows)?)?);
    }
    let mut made = batches.clone();
    for (batch, rows) in replaced {
        let mut places: Vec<(usize, usize)> =
            (0..batches[batch].num_rows()).map(|row| (0, row)).collect();
        for (row, (of, group)) in rows {
            places[row] = (1 + of, group);
        }
        let sources: Vec<&RecordBatch> = [&batches[batch]].into_iter().chain(&folds).collect();
        let rows = interleave_record_batch(&sources, &places).map_err(failed)?;
        made[batch] = rows.with_schema(view.schema().clone()).map_err(failed)?;
    }
    Ok(made)
}

fn failed(error: ArrowError) -> Error {
    Error::internal(format!("folding the events of a MemTable: {error}")).with_source(error)
}
