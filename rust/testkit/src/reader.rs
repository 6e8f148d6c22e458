//! What a reader sees of a shard: a base table below, SSTables on it, MemTables on top.
//!
//! Owns: the merge by generation, the lookup of a key, and the invariants that every snapshot must
//! keep. Does not own: where the manifest and the MemTables come from, or who compacts.

use std::collections::BTreeMap;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use lancemem_core::format::{ShardManifest, SsTable, TOMBSTONE};
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Generation, KeyBytes, RowPosition};

use crate::batches::NULL;
use crate::sink::MemorySink;

/// The rows of a shard: the value of each key that is not deleted.
pub type Rows = BTreeMap<KeyBytes, i64>;

/// The base table of a shard: the rows of its oldest SSTables, which compactions have taken over.
#[derive(Clone, Debug, Default)]
pub struct Base {
    compacted: Generation,
    rows: Rows,
}

impl Base {
    /// The newest generation that this base table has.
    #[must_use]
    pub const fn compacted(&self) -> Generation {
        self.compacted
    }

    /// Takes over the oldest of the SSTables that `manifest` lists, `most` of them.
    pub fn take_over(&mut self, manifest: &ShardManifest, sink: &MemorySink, most: usize) {
        for sstable in self.sstables_above(manifest).take(most).cloned().collect::<Vec<_>>() {
            apply(&mut self.rows, &sink.run(&sstable.path).newest);
            self.compacted = sstable.generation;
        }
    }

    /// All rows: this base table, the SSTables that `manifest` lists in `sink`, and `memtables`,
    /// oldest first.
    ///
    /// # Panics
    /// Where generations repeat or go back, or a generation is both flushed and in memory.
    #[must_use]
    pub fn merge(
        &self,
        manifest: &ShardManifest,
        memtables: &[MemTableView],
        sink: &MemorySink,
    ) -> Rows {
        let mut rows = self.rows.clone();
        let mut newest = self.compacted;
        let mut ascend = |generation: Generation| {
            assert!(generation > newest, "generation {generation} after {newest}");
            newest = generation;
        };
        for sstable in self.sstables_above(manifest) {
            ascend(sstable.generation);
            let stored = sink.run(&sstable.path);
            // An ingested SSTable was written before it had a generation.
            assert!([sstable.generation, Generation(0)].contains(&stored.generation));
            assert_eq!(Some(stored.physical_rows as u64), sstable.physical_rows);
            apply(&mut rows, &stored.newest);
        }
        for memtable in self.memtables_above(memtables) {
            ascend(memtable.generation());
            assert!(memtable.generation() >= manifest.current_generation, "flushed and in memory");
            apply(&mut rows, &newest_of(memtable));
        }
        rows
    }

    /// The value of `key`: from the key index of the newest MemTable that has it, or the newest
    /// SSTable, or this base table.
    #[must_use]
    pub fn get(
        &self,
        key: &[u8],
        manifest: &ShardManifest,
        memtables: &[MemTableView],
        sink: &MemorySink,
    ) -> Option<i64> {
        for memtable in self.memtables_above(memtables).rev() {
            if let Some(position) = memtable.newest(key) {
                return value_at(memtable, position);
            }
        }
        for sstable in self.sstables_above(manifest).rev() {
            if let Some(value) = sink.run(&sstable.path).newest.get(key) {
                return *value;
            }
        }
        self.rows.get(key).copied()
    }

    fn sstables_above<'a>(
        &self,
        manifest: &'a ShardManifest,
    ) -> impl DoubleEndedIterator<Item = &'a SsTable> + use<'a> {
        let compacted = self.compacted;
        manifest.sstables.iter().filter(move |sstable| sstable.generation > compacted)
    }

    /// A job may hold rows that a compaction has taken over right behind their flush.
    fn memtables_above<'a>(
        &self,
        memtables: &'a [MemTableView],
    ) -> impl DoubleEndedIterator<Item = &'a MemTableView> + use<'a> {
        let compacted = self.compacted;
        memtables.iter().filter(move |memtable| memtable.generation() > compacted)
    }
}

/// All rows of a shard without a base table: as [`Base::merge`].
#[must_use]
pub fn merge(manifest: &ShardManifest, memtables: &[MemTableView], sink: &MemorySink) -> Rows {
    Base::default().merge(manifest, memtables, sink)
}

fn apply(rows: &mut Rows, newest: &BTreeMap<KeyBytes, Option<i64>>) {
    for (key, value) in newest {
        match value {
            Some(value) => rows.insert(key.clone(), *value),
            None => rows.remove(key),
        };
    }
}

/// The value of a row of a MemTable; `None` for a tombstone.
fn value_at(view: &MemTableView, position: RowPosition) -> Option<i64> {
    let (batch, row) = view.locate(position);
    let dead = batch.column_by_name(TOMBSTONE).unwrap().as_boolean().value(row);
    let values = batch.column_by_name("v").unwrap().as_primitive::<Int64Type>();
    let value = if values.is_null(row) { NULL } else { values.value(row) };
    (!dead).then_some(value)
}

/// The newest row of each key of a MemTable; `None` for a tombstone.
///
/// # Panics
/// Where the calls of a view for its newest rows disagree.
#[must_use]
pub fn newest_of(view: &MemTableView) -> BTreeMap<KeyBytes, Option<i64>> {
    let mut newest = BTreeMap::new();
    view.for_each_newest(|key, position| {
        newest.insert(KeyBytes::new(key), value_at(view, position));
        assert_eq!(view.newest(key), Some(position), "a lookup and a visit find the same row");
    });
    assert_eq!(view.newest_rows().true_count(), newest.len(), "one newest row a key");
    newest
}
