//! The Prometheus text of a job whose counters all differ.
//!
//! Owns: the golden text (`golden.txt`).
//! Does not own: whether a parser reads it (`tests/test_job_stats.py`).

use lancemem::{Generation, ShardId, WalPosition, WriterEpoch};

use super::*;

/// Counters of which no two are equal, so that none stands under another's name.
fn stats() -> JobStats {
    JobStats {
        shard_id: ShardId::from_u128(7),
        writer_epoch: WriterEpoch(3),
        wal_position: WalPosition(108),
        active_generation: Generation(109),
        puts: 101,
        rows: 102,
        wal_entries: 103,
        wal_batches: 104,
        wal_bytes: 105,
        durable_wait_p50_us: 7,
        durable_wait_p99_us: 2_000_305,
        flushes: 106,
        flushed_bytes: 107,
        flush_ms: 1234,
        active_rows: 110,
        active_batches: 111,
        frozen_memtables: 112,
        uncompacted_generations: 113,
        memtable_bytes: 114,
        unindexed_rows: 115,
        backpressure_ms: 5,
        backpressure_puts: 116,
        waiting_puts: 117,
    }
}

fn maintenance() -> MaintenanceStats {
    MaintenanceStats {
        compactions: 201,
        compacted_generations: 202,
        collections: 203,
        collected_bytes: 204,
        deletion_vector_files: 205,
        maintenance_ms: 60_000,
        maintenance_errors: 206,
        last_maintenance_error: None,
    }
}

#[test]
fn every_counter_has_its_line_in_the_text() {
    assert_eq!(prometheus(&stats(), &maintenance()), include_str!("golden.txt"));
}
