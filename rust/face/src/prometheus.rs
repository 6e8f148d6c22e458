//! A job's counters as Prometheus text, exposition format 0.0.4.
//!
//! Owns: metric names, types and help.
//! Does not own: serving the metrics; a program adds the text to its own.

use std::fmt::Write as _;

use lancemem::{JobStats, MaintenanceStats};

/// Every metric of a job and of its maintenance, each with its help and type, labelled with the
/// shard.
pub fn prometheus(stats: &JobStats, maintenance: &MaintenanceStats) -> String {
    let mut text = String::with_capacity(4096);
    let counters = [
        ("puts", "Puts and deletes accepted.", stats.puts),
        ("rows", "Rows accepted, tombstones included.", stats.rows),
        ("wal_entries", "WAL entries appended.", stats.wal_entries),
        ("wal_batches", "Puts in those entries.", stats.wal_batches),
        ("wal_bytes", "Bytes of the rows in those entries.", stats.wal_bytes),
        ("flushes", "MemTables flushed.", stats.flushes),
        ("flushed_bytes", "Bytes in memory of those MemTables.", stats.flushed_bytes),
        ("backpressure_puts", "Puts that waited for room.", stats.backpressure_puts),
        ("compactions", "Compactions by the job's maintenance.", maintenance.compactions),
        (
            "compacted_generations",
            "Generations that they moved into the base table.",
            maintenance.compacted_generations,
        ),
        ("collections", "Collections by the job's maintenance.", maintenance.collections),
        ("collected_bytes", "Bytes that they removed.", maintenance.collected_bytes),
        (
            "deletion_vector_files",
            "Files of deletion vectors for flushed SSTables.",
            maintenance.deletion_vector_files,
        ),
        (
            "maintenance_errors",
            "Rounds of maintenance that failed.",
            maintenance.maintenance_errors,
        ),
    ];
    for (name, help, value) in counters {
        metric(&mut text, &format!("{name}_total"), "counter", help);
        sample(&mut text, stats, &format!("{name}_total"), "", value);
    }
    let times = [
        ("flush_seconds_total", "Time that flushes took.", stats.flush_ms),
        ("backpressure_seconds_total", "Time that puts waited for room.", stats.backpressure_ms),
        ("maintenance_seconds_total", "Time that maintenance took.", maintenance.maintenance_ms),
    ];
    for (name, help, ms) in times {
        metric(&mut text, name, "counter", help);
        sample(&mut text, stats, name, "", seconds(ms, 1_000));
    }
    let gauges = [
        ("writer_epoch", "Epoch that the job holds.", stats.writer_epoch.get()),
        ("wal_position", "Position of the newest WAL entry.", stats.wal_position.get()),
        ("active_generation", "Generation of the active MemTable.", stats.active_generation.get()),
        ("active_rows", "Rows in the active MemTable.", stats.active_rows),
        ("active_batches", "Puts in the active MemTable.", stats.active_batches),
        ("frozen_memtables", "MemTables that wait for their flush.", stats.frozen_memtables),
        (
            "uncompacted_generations",
            "Generations that wait for compaction.",
            stats.uncompacted_generations,
        ),
        ("memtable_bytes", "Bytes in active and frozen MemTables.", stats.memtable_bytes),
        ("unindexed_rows", "Rows that wait for the key index.", stats.unindexed_rows),
        ("waiting_puts", "Puts that wait for room now.", stats.waiting_puts),
    ];
    for (name, help, value) in gauges {
        metric(&mut text, name, "gauge", help);
        sample(&mut text, stats, name, "", value);
    }
    durable_waits(&mut text, stats);
    text
}

fn durable_waits(text: &mut String, stats: &JobStats) {
    let name = "durable_wait_seconds";
    metric(text, name, "gauge", "How long durable puts waited for their WAL entry.");
    let waits = [("0.5", stats.durable_wait_p50_us), ("0.99", stats.durable_wait_p99_us)];
    for (quantile, us) in waits {
        let label = format!(",quantile=\"{quantile}\"");
        sample(text, stats, name, &label, seconds(us, 1_000_000));
    }
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

#[cfg(test)]
mod tests;
