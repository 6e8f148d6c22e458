//! Durable puts of many producers on a local disk, beside one.
//!
//! Owns: rows a second and puts an entry, with fsync; producers are tasks of one runtime, as those of
//! an engine that embeds the crate.
//! Does not own: producers that are threads of Python (`benches/write/cases/durable.py`).

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints and stops")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lancemem_core::shard::{FixedSchema, ShardIdentity, ShardWriter};
use lancemem_core::store::{ManifestStore, Store};
use lancemem_core::types::{ShardId, WriterConfig};
use lancemem_testkit::{KeyShape, MemorySink};

const PAIRS: usize = 7;
const PRODUCERS: [usize; 4] = [1, 2, 4, 16];
const BATCH_ROWS: [i64; 2] = [100, 1_000];
const MEASURED: Duration = Duration::from_millis(700);

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    // No file is removed before the end: ext4 skips the inodes of files that were removed within
    // the last minutes, one by one, and each new file would wait for that.
    let place = tempfile::tempdir().unwrap();
    let mut folders = 0;
    println!("thousand durable rows/s with fsync, median (min-max) of {PAIRS}");
    println!(
        "{:>6} {:>10} {:>24} {:>13} {:>9}",
        "batch", "producers", "", "puts an entry", "of one"
    );
    for batch_rows in BATCH_ROWS {
        let mut found = vec![Vec::new(); PRODUCERS.len()];
        for _ in 0..PAIRS {
            for (of, producers) in found.iter_mut().zip(PRODUCERS) {
                folders += 1;
                let folder = place.path().join(folders.to_string());
                of.push(runtime.block_on(measure(&folder, producers, batch_rows)));
            }
        }
        let ratios = |of: &[(f64, f64)]| -> Vec<f64> {
            of.iter().zip(&found[0]).map(|(many, one)| many.0 / one.0).collect()
        };
        for (of, producers) in found.iter().zip(PRODUCERS) {
            let rates: Vec<f64> = of.iter().map(|(rate, _)| *rate).collect();
            let groups: Vec<f64> = of.iter().map(|(_, group)| *group).collect();
            let (low, middle, high) = spread(rates);
            println!(
                "{batch_rows:>6} {producers:>10} {:>24} {:>13.1} {:>8.2}x",
                format!("{middle:.0} ({low:.0}-{high:.0})"),
                spread(groups).1,
                spread(ratios(of)).1
            );
        }
    }
}

fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

/// Thousand rows a second, and puts an entry.
async fn measure(folder: &Path, producers: usize, batch_rows: i64) -> (f64, f64) {
    let store = Store::open(folder.to_str().unwrap(), true).unwrap();
    let shard_id = ShardId::from_u128(1);
    ManifestStore::new(store.clone(), shard_id, 2).initialize(1, BTreeMap::new()).await.unwrap();
    let identity = ShardIdentity::new(shard_id);
    let sink: Arc<MemorySink> = Arc::default();
    let columns = Arc::new(FixedSchema(KeyShape::Int64.row_schema()));
    // The sink in memory sorts its rows, so no MemTable is flushed.
    let config = WriterConfig::default()
        .with_max_memtable_rows(1 << 31)
        .with_max_memtable_batches(1 << 31)
        .with_max_memtable_size(1 << 40)
        .with_max_unflushed_memtable_bytes(1 << 42);
    let writer = Arc::new(ShardWriter::open(store, identity, columns, sink, config).await.unwrap());
    let started = Instant::now();
    let tasks: Vec<_> = (0..producers)
        .map(|producer| tokio::spawn(produce(writer.clone(), producer, batch_rows, started)))
        .collect();
    let mut puts = 0;
    for task in tasks {
        puts += task.await.unwrap();
    }
    let seconds = started.elapsed().as_secs_f64();
    let stats = writer.stats();
    writer.close(false).await.unwrap();
    let rows = f64::from(puts) * f64::from(i32::try_from(batch_rows).unwrap());
    let entries = f64::from(u32::try_from(stats.wal_entries).unwrap());
    (rows / seconds / 1e3, f64::from(puts) / entries)
}

/// Returns the number of puts.
async fn produce(writer: Arc<ShardWriter>, producer: usize, rows: i64, started: Instant) -> u32 {
    let first = i64::try_from(producer).unwrap() * 1_000_000_000;
    let mut puts = 0;
    while started.elapsed() < MEASURED {
        let start = first + i64::from(puts) * rows;
        let batch: Vec<(i64, i64)> = (start..start + rows).map(|id| (id, id)).collect();
        writer.put(&KeyShape::Int64.rows(&batch)).await.unwrap();
        puts += 1;
    }
    puts
}
