//! One reader's view of a MemTable.
//!
//! Owns: the prefix of batches that the reader may see, and the choice of the newest row a key.
//! Does not own: other sources of the same keys.

use std::sync::{Arc, OnceLock};

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBufferBuilder;
use arrow_schema::SchemaRef;

use super::MemTable;
use super::choice::Chosen;
use super::folded;
use super::index::{self, KeyIndex};
use super::secondary::{MakeIndex, SecondaryIndex, Slot};
use crate::merge::{Choosing, Fold};
use crate::types::{Generation, KeyBlock, Result, RowPosition};

/// A prefix of a MemTable's batches; it never changes, whatever is pushed later.
#[derive(Clone, Debug)]
pub struct MemTableView {
    memtable: Arc<MemTable>,
    batches: usize,
    rows: usize,
    newest: Arc<OnceLock<BooleanArray>>,
    chosen: Arc<OnceLock<Result<Chosen>>>,
}

/// The right to fill one index beside the reads that use it, a few batches at a time. Given back
/// when dropped.
#[derive(Debug)]
pub struct IndexFill {
    view: MemTableView,
    slot: Arc<Slot>,
}

impl IndexFill {
    /// Puts up to `step` batches more into the index; false where it has all rows of the view then.
    #[must_use]
    pub fn more(&self, step: usize) -> bool {
        let MemTableView { memtable, batches, .. } = &self.view;
        let through = self.slot.batches().saturating_add(step).min(*batches);
        memtable.secondary.fill(&self.slot, &memtable.rows, through);
        through < *batches
    }
}

impl Drop for IndexFill {
    fn drop(&mut self) {
        self.slot.stop_filling();
    }
}

impl MemTableView {
    pub(super) fn new(memtable: Arc<MemTable>, batches: usize) -> Self {
        let rows = memtable.rows.rows_of(batches);
        Self { memtable, batches, rows, newest: Arc::default(), chosen: Arc::default() }
    }

    /// The generation of the rows.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.memtable.generation()
    }

    /// Identifies this MemTable among all MemTables of this process, of any shard and generation.
    #[must_use]
    pub fn memtable_id(&self) -> u64 {
        self.memtable.id
    }

    /// The storage schema of the rows.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.memtable.schema()
    }

    /// Rows in the view, those that are superseded within it included.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of the rows of its MemTable, as their putters counted them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memtable.bytes()
    }

    /// The batches in arrival order.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = &RecordBatch> {
        (0..self.batches).map(|index| self.batch(index))
    }

    /// The batch at `index`, counted from 0 in arrival order.
    ///
    /// # Panics
    /// Where the view has no such batch.
    #[must_use]
    pub fn batch(&self, index: usize) -> &RecordBatch {
        assert!(index < self.batches, "batch {index} is outside the view");
        &self.memtable.rows.get(index).batch
    }

    /// The position of the newest row of `key`.
    #[must_use]
    pub fn newest(&self, key: &[u8]) -> Option<RowPosition> {
        self.indexed().newest(&self.memtable.rows, key, self.rows).map(RowPosition)
    }

    /// Visits the positions of all rows of `key`, newest first.
    pub fn versions(&self, key: &[u8], mut visit: impl FnMut(RowPosition)) {
        let mut visit = |row| visit(RowPosition(row));
        self.indexed().versions(&self.memtable.rows, key, self.rows, &mut visit);
    }

    /// The rule that chooses among the rows of a key; `None` where the newest one is shown.
    #[must_use]
    pub fn rule(&self) -> Option<&Arc<Choosing>> {
        self.memtable.layout.rule.as_ref()
    }

    /// The rule that makes a row of several events; `None` in other tables.
    #[must_use]
    pub fn fold(&self) -> Option<&Arc<Fold>> {
        self.memtable.layout.fold.as_ref()
    }

    /// The batches with one event of each key: the newest row of a key with several events is the
    /// fold of all of them, at its position. `None` in tables whose rule makes no row of several.
    ///
    /// # Errors
    /// As [`Fold::fold`].
    pub fn folded(&self) -> Result<Option<Vec<RecordBatch>>> {
        self.fold().map(|fold| folded::folded(self, fold)).transpose()
    }

    /// The row of each key that the rule chooses; `None` without a rule.
    ///
    /// # Errors
    /// As [`Choosing::winners`].
    pub fn chosen(&self) -> Result<Option<&Chosen>> {
        let Some(rule) = self.rule() else { return Ok(None) };
        self.chosen.get_or_init(|| Chosen::of(self, rule)).as_ref().map(Some).map_err(Clone::clone)
    }

    /// The index of the batch that holds `position`, and the row inside it.
    ///
    /// # Panics
    /// Where the view has no such row.
    #[must_use]
    pub fn place(&self, position: RowPosition) -> (usize, usize) {
        let row = position.0 as usize;
        assert!(row < self.rows, "row {row} is outside the view");
        let place = self.memtable.rows.place(row, self.batches);
        (place.batch, place.row)
    }

    /// The batch that holds `position`, and the row inside it.
    ///
    /// # Panics
    /// Where the view has no such row.
    #[must_use]
    pub fn locate(&self, position: RowPosition) -> (&RecordBatch, usize) {
        let (batch, row) = self.place(position);
        (self.batch(batch), row)
    }

    /// The index of `maker` with all rows of the view in it, and maybe with later ones; `None`
    /// where rows of this schema have none. The calling thread indexes what no other thread has.
    #[must_use]
    pub fn secondary(&self, maker: &dyn MakeIndex) -> Option<Arc<dyn SecondaryIndex>> {
        let memtable = &self.memtable;
        memtable.secondary.through(maker, memtable.schema(), &memtable.rows, self.batches)
    }

    /// The index of `maker` with the rows that other threads have put into it, and with later ones
    /// than the view's; `None` where rows of this schema have none. Where rows of the view are
    /// missing and no task adds them, the caller gets the right to do so.
    #[must_use]
    pub fn secondary_so_far(
        &self,
        maker: &dyn MakeIndex,
    ) -> Option<(Arc<dyn SecondaryIndex>, Option<IndexFill>)> {
        let slot = self.memtable.secondary.slot(maker, self.memtable.schema())?;
        let index = slot.index().clone();
        let fill = slot.start_filling(self.batches).then(|| {
            let view = self.clone();
            IndexFill { view, slot }
        });
        Some((index, fill))
    }

    /// Whether the row at `position` is the newest of its key in the view, whatever the rule
    /// chooses; true where there is no key. Reads one key, where [`Self::newest_rows`] reads all.
    ///
    /// # Panics
    /// Where the view has no such row.
    #[must_use]
    pub fn is_newest(&self, position: RowPosition) -> bool {
        if !self.has_key() {
            return true;
        }
        assert!((position.0 as usize) < self.rows, "row {} is outside the view", position.0);
        self.newest(self.key(position)) == Some(position)
    }

    /// For every row whether it is the newest of its key, whatever the rule chooses; all rows where
    /// there is no key.
    #[must_use]
    pub fn newest_rows(&self) -> &BooleanArray {
        self.newest.get_or_init(|| {
            let mut newest = BooleanBufferBuilder::new(self.rows);
            newest.append_n(self.rows, true);
            if self.has_key() {
                let mut visit = |row: u32| newest.set_bit(row as usize, false);
                self.indexed().superseded(&self.memtable.rows, self.rows, &mut visit);
            }
            BooleanArray::new(newest.finish(), None)
        })
    }

    /// The part of [`Self::newest_rows`] that covers the batch at `index`.
    #[must_use]
    pub fn newest_rows_of_batch(&self, index: usize) -> BooleanArray {
        let rows = self.batch(index).num_rows();
        self.newest_rows().slice(self.memtable.rows.get(index).first_row, rows)
    }

    /// Visits every key once, with the position of its newest row, in the order of positions.
    pub fn for_each_newest(&self, mut visit: impl FnMut(&[u8], RowPosition)) {
        if !self.has_key() {
            return;
        }
        let newest = self.newest_rows();
        for batch in 0..self.batches {
            let placed = self.memtable.rows.get(batch);
            let Some(keys) = placed.keys.get() else { continue };
            for (position, key) in (placed.first_row..).zip(keys.iter()) {
                if newest.value(position) {
                    visit(key, RowPosition(index::position(position)));
                }
            }
        }
    }

    /// Every key once, in the order of the positions of their newest rows.
    pub fn newest_keys(&self) -> impl Iterator<Item = &[u8]> {
        let newest = self.has_key().then(|| self.newest_rows());
        (0..self.batches).flat_map(move |batch| {
            let placed = self.memtable.rows.get(batch);
            let keys = placed.keys.get().into_iter().flat_map(KeyBlock::iter);
            let rows = (placed.first_row..).zip(keys);
            let is_newest = move |row: usize| newest.is_some_and(|newest| newest.value(row));
            rows.filter_map(move |(row, key)| is_newest(row).then_some(key))
        })
    }

    /// The position of the first row of the batch at `index`.
    pub(super) fn first_row_of(&self, index: usize) -> usize {
        self.memtable.rows.get(index).first_row
    }

    /// The key of the row at `position`, in a table with a key.
    pub(super) fn key(&self, position: RowPosition) -> &[u8] {
        self.indexed();
        let row = position.0 as usize;
        self.memtable.rows.key(self.memtable.rows.place(row, self.batches))
    }

    /// Positions of all rows, keys ascending and positions of one key ascending: the order of
    /// a flushed SSTable's key index. Empty where there is no key.
    #[must_use]
    pub fn rows_by_key(&self) -> Vec<u32> {
        if !self.has_key() {
            return Vec::new();
        }
        self.indexed().rows_by_key(&self.memtable.rows, self.rows)
    }

    fn has_key(&self) -> bool {
        self.memtable.layout.key.is_some()
    }

    /// The index with every row of this view in it: a reader never waits for the task that
    /// indexes deferred puts, it does that part itself.
    fn indexed(&self) -> &dyn KeyIndex {
        self.memtable.index_through(self.batches);
        self.memtable.index.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use proptest::prelude::*;

    use super::*;
    use crate::memtable::{EncodeKeys, MemTableLayout};
    use crate::types::KeyIndexKind;

    #[derive(Debug)]
    struct BigEndian;

    impl EncodeKeys for BigEndian {
        fn encode_block(&self, batch: &RecordBatch) -> KeyBlock {
            let ids = batch.column(0).as_primitive::<Int64Type>().values();
            KeyBlock::fixed(8, ids.iter().flat_map(|id| id.to_be_bytes()).collect())
        }
    }

    fn push(memtable: &MemTable, ids: &[i64]) {
        let batch = RecordBatch::try_new(
            memtable.schema().clone(),
            vec![Arc::new(Int64Array::from(ids.to_vec()))],
        )
        .unwrap();
        memtable.push(batch, None, 8 * ids.len());
    }

    fn memtable() -> Arc<MemTable> {
        memtable_with(KeyIndexKind::default())
    }

    fn memtable_with(index: KeyIndexKind) -> Arc<MemTable> {
        let field = arrow_schema::Field::new("id", arrow_schema::DataType::Int64, false);
        let schema = Arc::new(arrow_schema::Schema::new(vec![field]));
        let key: Option<Arc<dyn EncodeKeys>> = Some(Arc::new(BigEndian));
        let layout = MemTableLayout { schema, key, index, rule: None, fold: None };
        Arc::new(MemTable::new(Generation(1), layout))
    }

    #[test]
    fn a_view_does_not_see_what_is_pushed_after_it_was_taken() {
        let memtable = memtable();
        push(&memtable, &[1, 2]);
        let view = memtable.view(1);
        push(&memtable, &[1]);
        assert_eq!(view.rows(), 2);
        assert_eq!(view.newest_rows(), &BooleanArray::from(vec![true, true]));
        assert_eq!(memtable.view(2).newest_rows(), &BooleanArray::from(vec![false, true, true]));
    }

    // B20
    #[test]
    fn a_key_that_is_updated_all_the_time_is_found_all_the_time() {
        for index in [KeyIndexKind::Hash, KeyIndexKind::SkipList] {
            let memtable = memtable_with(index);
            push(&memtable, &[7]);
            memtable.index_through(1);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    for round in 0..2_000 {
                        push(&memtable, &[7, round, 7]);
                        memtable.index_through(usize::MAX);
                    }
                });
                while !writer.is_finished() {
                    let view = memtable.view(usize::MAX);
                    let found = view.newest(&7_i64.to_be_bytes()).unwrap();
                    assert_eq!(found.0 as usize, view.rows() - 1);
                }
            });
        }
    }

    proptest! {
        #[test]
        fn the_newest_row_of_every_key_is_the_last_one_pushed(
            batches in prop::collection::vec(prop::collection::vec(0_i64..20, 1..8), 1..12),
            visible in 0_usize..12,
        ) {
            let memtable = memtable();
            for batch in &batches {
                push(&memtable, batch);
            }
            let view = memtable.view(visible);
            let seen: Vec<i64> = batches.iter().take(visible).flatten().copied().collect();
            let model: BTreeMap<i64, u32> =
                seen.iter().enumerate().map(|(row, id)| (*id, u32::try_from(row).unwrap())).collect();
            for id in 0..20_i64 {
                let found = view.newest(&id.to_be_bytes()).map(|row| row.0);
                prop_assert_eq!(found, model.get(&id).copied());
            }
            for row in 0..u32::try_from(seen.len()).unwrap() {
                let is_newest = view.newest_rows().value(row as usize);
                prop_assert_eq!(view.is_newest(RowPosition(row)), is_newest);
            }
            let mut sorted: Vec<u32> = (0..u32::try_from(seen.len()).unwrap()).collect();
            sorted.sort_by_key(|row| (seen[*row as usize], *row));
            prop_assert_eq!(view.rows_by_key(), sorted);
            let mut keys: Vec<&[u8]> = view.newest_keys().collect();
            keys.sort_unstable();
            let known: Vec<[u8; 8]> = model.keys().map(|id| id.to_be_bytes()).collect();
            prop_assert_eq!(keys, known.iter().map(<[u8; 8]>::as_slice).collect::<Vec<_>>());
        }
    }
}
