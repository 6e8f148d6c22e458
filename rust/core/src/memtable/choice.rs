//! The rows of a MemTable that a merge rule chooses.
//!
//! Owns: the choice among the rows of each key of one view.
//! Does not own: the rule (`merge`), or other sources of the same keys.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};

use super::view::MemTableView;
use crate::merge::{Choosing, KeyGroups};
use crate::types::{Result, RowPosition};

/// One row of each key: the one that the rule chooses among the rows of a view.
#[derive(Debug)]
pub struct Chosen {
    /// For every row whether it is the chosen one of its key.
    rows: BooleanArray,
    /// Chosen rows that are newer than a delete or a replace of their key in the view: older sources
    /// count no more, although the row itself may not replace them.
    replacing: BTreeSet<u32>,
}

impl Chosen {
    pub(super) fn of(view: &MemTableView, rule: &Choosing) -> Result<Self> {
        let newest = view.newest_rows();
        // Only keys of several rows need a comparison.
        let repeated = repeated(view);
        if repeated.is_empty() {
            return Ok(Self { rows: newest.clone(), replacing: BTreeSet::new() });
        }
        let mut sources = Vec::with_capacity(view.batches().len());
        for batch in view.batches() {
            sources.push(rule.events(batch)?);
        }
        Self::among(view, rule, &sources, repeated)
    }

    /// The choice among `repeated`, the older rows of a key by the position of its newest row.
    fn among(
        view: &MemTableView,
        rule: &Choosing,
        sources: &[RecordBatch],
        repeated: BTreeMap<u32, Vec<usize>>,
    ) -> Result<Self> {
        let (mut offsets, mut positions) = (vec![0], Vec::new());
        for (last, older) in repeated {
            // Rows were found in the order of their positions.
            positions.extend(older);
            positions.push(last as usize);
            offsets.push(positions.len());
        }
        let place = |row: &usize| view.place(RowPosition(super::index::position(*row)));
        let rows = positions.iter().map(place).collect();
        let winners = rule.winners(sources, &KeyGroups::new(offsets.clone(), rows)?)?;
        let mut shown = BooleanBufferBuilder::new(view.rows());
        shown.append_n(view.rows(), true);
        for row in &positions {
            shown.set_bit(*row, false);
        }
        let mut replacing = BTreeSet::new();
        for ((batch, row), replaces) in winners.rows().iter().zip(winners.replaces()) {
            let position = view.first_row_of(*batch) + row;
            shown.set_bit(position, true);
            if *replaces {
                replacing.insert(super::index::position(position));
            }
        }
        Ok(Self { rows: BooleanArray::new(shown.finish(), None), replacing })
    }

    /// For every row whether it is the chosen one of its key.
    #[must_use]
    pub const fn rows(&self) -> &BooleanArray {
        &self.rows
    }

    /// Positions of chosen rows that are newer than a delete or a replace of their key, or are one.
    #[must_use]
    pub const fn replacing(&self) -> &BTreeSet<u32> {
        &self.replacing
    }
}

/// The keys of several rows: their older rows, ascending, by the position of the newest row.
pub(super) fn repeated(view: &MemTableView) -> BTreeMap<u32, Vec<usize>> {
    let mut repeated: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    // Each of these keys has a row that is not its newest.
    let superseded: BooleanBuffer = !view.newest_rows().values();
    for row in superseded.set_indices() {
        let position = RowPosition(super::index::position(row));
        let Some(last) = view.newest(view.key(position)) else { continue };
        repeated.entry(last.0).or_default().push(row);
    }
    repeated
}
