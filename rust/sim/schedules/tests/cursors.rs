//! Threads that push, index and read one MemTable, switched at every lock and every atomic.
//!
//! Owns: the cursors of a MemTable (rows pushed, batches indexed, slots, keys that stop rising, a
//! table that grows).
//! Does not own: the shard above (`schedules`), or values that only a weaker memory model shows:
//! every atomic is sequentially consistent here.
//!
//! Not loom: its search (0.7.2) tries one order where a thread loads and then stores an atomic
//! that another one loads, and so passes over B20.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::memtable::{EncodeKeys, MemTable, MemTableLayout, MemTableView};
use lancemem_core::types::{Generation, KeyBlock, KeyIndexKind};
use shuttle::thread;

#[derive(Debug)]
struct BigEndian;

impl EncodeKeys for BigEndian {
    fn encode_block(&self, batch: &RecordBatch) -> KeyBlock {
        let keys = batch.column(0).as_primitive::<Int64Type>().values();
        KeyBlock::fixed(8, keys.iter().flat_map(|key| key.to_be_bytes()).collect())
    }
}

fn memtable(index: KeyIndexKind) -> Arc<MemTable> {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false)]));
    let layout = MemTableLayout { schema, key: Some(Arc::new(BigEndian)), index, rule: None, fold: None };
    Arc::new(MemTable::new(Generation(1), layout))
}

fn push(memtable: &MemTable, keys: &[i64]) {
    let column = Arc::new(Int64Array::from(keys.to_vec()));
    let batch = RecordBatch::try_new(memtable.schema().clone(), vec![column]).unwrap();
    memtable.push(batch, None, 8 * keys.len());
}

fn values(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// A view is a map of the rows that it holds, whichever thread has indexed them.
fn check(view: &MemTableView) {
    let keys: Vec<i64> = view.batches().flat_map(values).collect();
    for key in 0..4_i64 {
        let newest = keys.iter().rposition(|it| *it == key);
        let found = view.newest(&key.to_be_bytes()).map(|row| row.0 as usize);
        assert_eq!(found, newest, "key {key} of {keys:?}");
    }
    let live: Vec<i64> =
        view.newest_keys().map(|key| i64::from_be_bytes(key.try_into().unwrap())).collect();
    let model = (0..keys.len()).filter(|at| !keys[at + 1..].contains(&keys[*at]));
    assert_eq!(live, model.map(|at| keys[at]).collect::<Vec<_>>(), "of {keys:?}");
}

/// Pushes `later` behind `first` while one thread indexes and two read.
fn readers_beside_a_writer(first: &'static [i64], later: &'static [&'static [i64]]) {
    let count = std::env::var("SCHEDULES").ok().and_then(|it| it.parse().ok()).unwrap_or(1_000);
    let story = move || {
        for index in [KeyIndexKind::Hash, KeyIndexKind::SkipList] {
            let memtable = memtable(index);
            push(&memtable, first);
            memtable.index_through(1);
            let reader = |reads: usize| {
                let memtable = memtable.clone();
                thread::spawn(move || {
                    let mut before = 0;
                    for _ in 0..reads {
                        let view = memtable.view(usize::MAX);
                        assert!(view.rows() >= before, "a view that goes back");
                        before = view.rows();
                        thread::yield_now();
                        check(&view);
                    }
                })
            };
            let readers = [reader(1), reader(2)];
            let indexer = {
                let memtable = memtable.clone();
                thread::spawn(move || while memtable.index_more(1) {})
            };
            for keys in later {
                push(&memtable, keys);
                thread::yield_now();
            }
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            indexer.join().unwrap();
            check(&memtable.view(usize::MAX));
            assert_eq!(memtable.unindexed_rows(), 0);
        }
    };
    shuttle::check_random(story, count);
}

#[test]
fn a_reader_finds_every_key_while_keys_rise() {
    readers_beside_a_writer(&[0], &[&[1], &[2, 3]]);
}

#[test]
fn a_reader_finds_every_key_while_keys_stop_rising() {
    readers_beside_a_writer(&[1], &[&[2], &[0]]);
}

// B20
#[test]
fn a_reader_finds_a_key_that_is_being_replaced() {
    readers_beside_a_writer(&[1, 0], &[&[1]]);
}

#[test]
fn a_reader_finds_every_key_while_the_table_grows() {
    readers_beside_a_writer(&[1, 0], &[&[2, 1], &[3, 0]]);
}
