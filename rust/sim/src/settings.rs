//! What differs from seed to seed: settings of writers, and how hard the storage makes it.
//!
//! Owns: the choices, small and odd ones on purpose. Does not own: when a fault strikes.

use std::time::Duration;

use lancemem_core::types::{KeyIndexKind, WriterConfig};
use lancemem_testkit::KeyShape;

use crate::chance::Chance;

/// The conditions of one life.
#[derive(Clone, Debug)]
pub struct Climate {
    /// The key of the table.
    pub shape: KeyShape,
    /// Most milliseconds of a request's way to the storage, and of its answer's way back.
    pub latency_ms: u64,
    /// Requests of a thousand that meet a fault in usual weather.
    pub faults: u64,
    /// After how many milliseconds a client gives a request up.
    pub patience_ms: u64,
    /// Most milliseconds between two claims.
    pub claims_ms: u64,
    /// Most milliseconds between two ends of a process.
    pub ends_ms: u64,
    /// Most milliseconds between two kinds of weather.
    pub weather_ms: u64,
    /// For how many milliseconds a covered log entry stays; `None` where every entry stays.
    pub grace_ms: Option<u64>,
    /// Whether a covered entry is removed although it is the newest one.
    pub takes_newest: bool,
    /// Whether a process sleeps for longer than fence sentinels stay.
    pub sleeps: bool,
    /// Whether the clock jumps.
    pub jumps: bool,
    /// Most milliseconds between two puts of a worker.
    pub think_ms: u64,
    /// Puts of a thousand whose caller loses patience.
    pub cancels: u64,
}

impl Climate {
    /// The conditions of a seed.
    pub fn of(chance: &Chance) -> Self {
        let mut climate = Self {
            shape: chance.pick(&[KeyShape::Int64, KeyShape::Utf8, KeyShape::Composite]),
            latency_ms: chance.pick(&[0, 1, 5, 50]),
            faults: chance.pick(&[0, 5, 20, 60, 150]),
            patience_ms: chance.pick(&[150, 500, 30_000]),
            claims_ms: chance.pick(&[50, 400, 3_000]),
            ends_ms: chance.pick(&[100, 1_000, 10_000]),
            weather_ms: chance.pick(&[50, 500, 5_000]),
            grace_ms: chance.pick(&[None, None, Some(0), Some(1_000), Some(20_000)]),
            takes_newest: chance.odds(300),
            sleeps: chance.odds(150),
            jumps: chance.odds(300),
            think_ms: chance.pick(&[0, 2, 20, 200]),
            cancels: chance.pick(&[0, 0, 20, 100]),
        };
        if climate.sleeps {
            // A fence is missed only where a collector removes it behind another one.
            climate.grace_ms = climate.grace_ms.map(|grace| grace.min(1_000)).or(Some(0));
            climate.claims_ms = climate.claims_ms.min(400);
        }
        climate
    }
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Settings of one job.
pub fn writer_config(chance: &Chance) -> WriterConfig {
    WriterConfig::default()
        .with_durable_write(chance.odds(700))
        .with_sync_indexed_write(chance.odds(500))
        .with_key_index(chance.pick(&[KeyIndexKind::Hash, KeyIndexKind::SkipList]))
        .with_fsync(true)
        .with_max_wal_buffer_size(chance.pick(&[1, 300, 10 << 20]))
        .with_max_wal_flush_interval(chance.pick(&[ms(0), ms(1), ms(10), ms(100), ms(10_000)]))
        .with_max_wal_persist_retries(chance.pick(&[0, 1, 3, 4]))
        .with_wal_persist_retry_base_delay(chance.pick(&[ms(0), ms(1), ms(50)]))
        .with_max_memtable_size(chance.pick(&[1, 2_000, 256 << 20]))
        .with_max_memtable_rows(chance.pick(&[1, 7, 40, 100_000]))
        .with_max_memtable_batches(chance.pick(&[1, 5, 20, 8_000]))
        .with_manifest_scan_batch_size(chance.pick(&[1, 2, 4]))
        .with_max_unflushed_memtable_bytes(chance.pick(&[1, 3_000, 1 << 20, 1 << 30]))
        .with_max_uncompacted_generations(chance.pick(&[2, 5, 20, 1_000, 1_000]))
        .with_max_compaction_wait(chance.pick(&[ms(0), ms(1_000), ms(10_000)]))
        .with_idle_flush_interval(chance.pick(&[ms(0), ms(20), ms(1_000), ms(60_000)]))
}

/// Settings under which an open is refused before it touches the shard.
pub fn doomed_config(chance: &Chance) -> WriterConfig {
    let config = writer_config(chance);
    match chance.below(3) {
        0 => config.with_max_memtable_rows(0),
        1 => config.with_max_wal_buffer_size(0),
        _ => config.with_max_uncompacted_generations(0),
    }
}
