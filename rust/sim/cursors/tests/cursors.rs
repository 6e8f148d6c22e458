//! Three threads on one MemTable, in every order of them, and with every value that the memory
//! model lets an atomic show.
//!
//! Owns: the cursors of a MemTable: rows pushed, batches indexed, slots, keys that stop rising.
//! Does not own: the shard above (`schedules`), and a table of keys that grows, which is handed
//! over by a crate that loom does not see into.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lancemem_cursors::memtable::{EncodeKeys, MemTable, MemTableLayout, MemTableView};
use lancemem_cursors::types::{Generation, KeyBlock, KeyIndexKind};
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[derive(Debug)]
struct BigEndian;

impl EncodeKeys for BigEndian {
    fn encode_block(&self, batch: &RecordBatch) -> KeyBlock {
        let keys = batch.column(0).as_primitive::<Int64Type>().values();
        KeyBlock::fixed(8, keys.iter().flat_map(|key| key.to_be_bytes()).collect())
    }
}

fn memtable() -> Arc<MemTable> {
    let fields = vec![Field::new("k", DataType::Int64, false)];
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let layout = MemTableLayout { schema, key: Some(Arc::new(BigEndian)), index: KeyIndexKind::Hash };
    Arc::new(MemTable::new(Generation(1), layout))
}

fn push(memtable: &MemTable, keys: &[i64]) {
    let column = Arc::new(Int64Array::from(keys.to_vec()));
    let batch = RecordBatch::try_new(memtable.schema().clone(), vec![column]).unwrap();
    memtable.push(batch, None, 8);
}

/// The view is a map of the keys that were pushed before it was taken.
fn check(view: &MemTableView) {
    let keys: Vec<i64> = view
        .batches()
        .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    for key in 0..4_i64 {
        let newest = keys.iter().rposition(|it| *it == key);
        let found = view.newest(&key.to_be_bytes()).map(|row| row.0 as usize);
        assert_eq!(found, newest, "key {key} of {keys:?}");
    }
}

/// Every order with at most three switches where no thread had to wait.
fn every_order(story: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = None;
    model.max_branches = 10_000; model.log = true;
    let orders = std::sync::atomic::AtomicUsize::new(0);
    let orders = Arc::new(orders);
    let counted = orders.clone();
    model.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        story();
    });
    println!("{} orders", orders.load(std::sync::atomic::Ordering::Relaxed));
}

/// Pushes `later` behind `first` while two others read and index.
///
/// How many batches there are goes through an atomic of the story, as it does through a lock of
/// the shard: loom does not see into the list of batches, and would not reorder what goes by it.
fn readers_beside_a_writer(first: &'static [&'static [i64]], later: &'static [&'static [i64]]) {
    every_order(move || {
        let memtable = memtable();
        first.iter().for_each(|keys| push(&memtable, keys));
        memtable.index_through(first.len());
        let pushed = Arc::new(AtomicUsize::new(first.len()));
        let reader = {
            let (memtable, pushed) = (memtable.clone(), pushed.clone());
            thread::spawn(move || {
                for _ in 0..2 {
                    check(&memtable.view(pushed.load(Ordering::Acquire)));
                }
            })
        };
        let indexer = {
            let (memtable, pushed) = (memtable.clone(), pushed.clone());
            thread::spawn(move || memtable.index_through(pushed.load(Ordering::Acquire)))
        };
        for keys in later {
            push(&memtable, keys);
            pushed.fetch_add(1, Ordering::Release);
        }
        reader.join().unwrap();
        indexer.join().unwrap();
        check(&memtable.view(usize::MAX));
        assert_eq!(memtable.unindexed_rows(), 0);
    });
}

#[test]
fn a_reader_finds_every_key_while_keys_rise() {
    readers_beside_a_writer(&[&[0]], &[&[1], &[2]]);
}

#[test]
fn a_reader_finds_every_key_while_keys_stop_rising() {
    readers_beside_a_writer(&[&[1]], &[&[0]]);
}

#[test]
fn a_reader_finds_a_key_that_is_being_replaced() {
    readers_beside_a_writer(&[&[1, 0]], &[&[1]]);
}

#[test]
fn a_view_is_the_same_while_a_key_of_it_is_replaced() {
    every_order(|| {
        let memtable = memtable();
        push(&memtable, &[1, 0]);
        memtable.index_through(1);
        push(&memtable, &[1]);
        let view = memtable.view(1);
        let indexer = thread::spawn(move || memtable.index_through(2));
        check(&view);
        indexer.join().unwrap();
        check(&view);
    });
}

#[test]
fn plain() {
    every_order(|| {
        let a = Arc::new(AtomicUsize::new(0));
        let b = a.clone();
        let t = thread::spawn(move || { b.store(1, Ordering::Release); b.store(2, Ordering::Release); });
        println!("{}", a.load(Ordering::Acquire));
        t.join().unwrap();
    });
    every_order(|| {
        let memtable = memtable();
        push(&memtable, &[1, 0]);
        memtable.index_through(1);
        let view = memtable.view(1);
        let m2 = memtable.clone();
        let indexer = thread::spawn(move || {
            push(&m2, &[1]);
            m2.index_through(2)
        });
        println!("{:?}", view.newest(&1_i64.to_be_bytes()));
        indexer.join().unwrap();
    });
}
