//! What a reader sees of a shard without a base table: SSTables below, MemTables on top.
//!
//! Owns: the merge by generation, and the invariants that every snapshot must keep.
//! Does not own: where the manifest and the MemTables come from.

use std::collections::BTreeMap;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use lancemem_core::format::{ShardManifest, TOMBSTONE};
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Generation, KeyBytes};

use crate::batches::NULL;
use crate::sink::MemorySink;

/// The rows of a shard: the value of each key that is not deleted.
pub type Rows = BTreeMap<KeyBytes, i64>;

/// Merges the runs that `manifest` lists in `sink` with `memtables`, oldest first.
///
/// # Panics
/// Where generations repeat or go back, or a generation is both flushed and in memory.
#[must_use]
pub fn merge(manifest: &ShardManifest, memtables: &[MemTableView], sink: &MemorySink) -> Rows {
    let mut rows = Rows::new();
    let mut newest = Generation(0);
    let mut ascend = |generation: Generation| {
        assert!(generation > newest, "generation {generation} after {newest}");
        newest = generation;
    };
    for sstable in &manifest.sstables {
        ascend(sstable.generation);
        let run = sink.run(&sstable.path);
        // A run that was linked was written before it had a place.
        assert!([sstable.generation, Generation(0)].contains(&run.generation));
        assert_eq!(Some(run.physical_rows as u64), sstable.physical_rows);
        apply(&mut rows, run.newest);
    }
    for memtable in memtables {
        ascend(memtable.generation());
        assert!(memtable.generation() >= manifest.current_generation, "flushed and in memory");
        apply(&mut rows, newest_of(memtable));
    }
    rows
}

fn apply(rows: &mut Rows, newest: BTreeMap<KeyBytes, Option<i64>>) {
    for (key, value) in newest {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}

/// The newest row of each key of a MemTable; `None` for a tombstone.
///
/// # Panics
/// Where the ways to ask a view for its newest rows disagree.
#[must_use]
pub fn newest_of(view: &MemTableView) -> BTreeMap<KeyBytes, Option<i64>> {
    let mut newest = BTreeMap::new();
    view.for_each_newest(|key, position| {
        let (batch, row) = view.locate(position);
        let dead = batch.column_by_name(TOMBSTONE).unwrap().as_boolean().value(row);
        let values = batch.column_by_name("v").unwrap().as_primitive::<Int64Type>();
        let value = if values.is_null(row) { NULL } else { values.value(row) };
        newest.insert(KeyBytes::new(key), (!dead).then_some(value));
        assert_eq!(view.newest(key), Some(position), "a lookup and a visit find the same row");
    });
    assert_eq!(view.newest_rows().true_count(), newest.len(), "one newest row a key");
    newest
}
