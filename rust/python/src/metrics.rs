//! A job's counters as Prometheus text, exposition format 0.0.4.
//!
//! Owns: metric names, types and help.
//! Does not own: serving the metrics; a program adds the text to its own.

use std::fmt::Write as _;

use crate::values::JobStats;

/// Every metric of `stats`, each with its help and type, labelled with the shard.
pub fn prometheus(stats: &JobStats) -> String {
    let mut text = String::with_capacity(4096);
    let counters = [
        ("puts", "Puts and deletes accepted.", stats.num_puts),
        ("rows", "Rows accepted, tombstones included.", stats.num_rows),
        ("wal_entries", "WAL entries appended.", stats.num_wal_entries),
        ("wal_batches", "Puts in those entries.", stats.num_wal_batches),
        ("wal_bytes", "Bytes of the rows in those entries.", stats.wal_bytes),
        ("flushes", "MemTables flushed.", stats.num_flushes),
        ("flushed_bytes", "Bytes in memory of those MemTables.", stats.flushed_bytes),
        ("backpressure_puts", "Puts that waited for room.", stats.num_backpressure_puts),
        ("compactions", "Compactions by the job's maintenance.", stats.num_compactions),
        (
            "compacted_generations",
            "Generations that they moved into the base table.",
            stats.num_compacted_generations,
        ),
        ("collections", "Collections by the job's maintenance.", stats.num_collections),
        ("collected_bytes", "Bytes that they removed.", stats.collected_bytes),
        (
            "deletion_vector_files",
            "Files of deletion vectors for flushed SSTables.",
            stats.num_deletion_vector_files,
        ),
        ("maintenance_errors", "Rounds of maintenance that failed.", stats.num_maintenance_errors),
    ];
    for (name, help, value) in counters {
        metric(&mut text, &format!("{name}_total"), "counter", help);
        sample(&mut text, stats, &format!("{name}_total"), "", value);
    }
    let times = [
        ("flush_seconds_total", "Time that flushes took.", stats.flush_ms),
        ("backpressure_seconds_total", "Time that puts waited for room.", stats.backpressure_ms),
        ("maintenance_seconds_total", "Time that maintenance took.", stats.maintenance_ms),
    ];
    for (name, help, ms) in times {
        metric(&mut text, name, "counter", help);
        sample(&mut text, stats, name, "", seconds(ms, 1_000));
    }
    let gauges = [
        ("writer_epoch", "Epoch that the job holds.", stats.writer_epoch),
        ("wal_position", "Position of the newest WAL entry.", stats.wal_position),
        ("active_generation", "Generation of the active MemTable.", stats.active_generation),
        ("active_rows", "Rows in the active MemTable.", stats.num_active_rows),
        ("active_batches", "Puts in the active MemTable.", stats.num_active_batches),
        ("frozen_memtables", "MemTables that wait for their flush.", stats.num_frozen_memtables),
        (
            "uncompacted_generations",
            "Generations that wait for compaction.",
            stats.num_uncompacted_generations,
        ),
        ("memtable_bytes", "Bytes in active and frozen MemTables.", stats.memtable_bytes),
        ("unindexed_rows", "Rows that wait for the key index.", stats.num_unindexed_rows),
        ("waiting_puts", "Puts that wait for room now.", stats.num_waiting_puts),
    ];
    for (name, help, value) in gauges {
        metric(&mut text, name, "gauge", help);
        sample(&mut text, stats, name, "", value);
    }
    let name = "durable_wait_seconds";
    metric(&mut text, name, "gauge", "How long durable puts waited for their WAL entry.");
    let waits = [("0.5", stats.durable_wait_p50_us), ("0.99", stats.durable_wait_p99_us)];
    for (quantile, us) in waits {
        let label = format!(",quantile=\"{quantile}\"");
        sample(&mut text, stats, name, &label, seconds(us, 1_000_000));
    }
    text
}

fn metric(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP lancemem_job_{name} {help}");
    let _ = writeln!(text, "# TYPE lancemem_job_{name} {kind}");
}

fn sample(
    text: &mut String,
    stats: &JobStats,
    name: &str,
    labels: &str,
    value: impl std::fmt::Display,
) {
    let _ = writeln!(text, "lancemem_job_{name}{{shard=\"{}\"{labels}}} {value}", stats.shard_id);
}

/// A count of small units as a decimal number of seconds, exact because it is not computed in
/// floats.
fn seconds(count: u64, per_second: u64) -> String {
    let digits = usize::try_from(per_second.ilog10()).unwrap_or_default();
    format!("{}.{:0digits$}", count / per_second, count % per_second)
}
