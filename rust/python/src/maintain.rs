//! Flushes of logs, compaction, garbage collection, record index and deletion vectors for Python.
//!
//! Owns: the translation of settings and results.
//! Does not own: the methods of `Table` that take them.

use std::time::Duration;

use lancemem::{
    CollectionResult as RustCollection, CollectionSettings, CompactedIndex as RustIndex,
    CompactedSsTable as RustSsTable, CompactionResult as RustResult, CompactionSettings,
    DeletionVectorResult as RustDeletionVectors, FlushResult as RustFlush, LogHandling,
    RecordIndexReport as RustReport, TableStats as RustStats,
};
use lancemem_face::options::compaction_mode;
use pyo3::prelude::*;

use crate::arguments::{Given, ShardName};
use crate::errors::{InvalidInputError, of_face};
use crate::repair::existing_shard;
use crate::rules::MergeRule;
use crate::runtime::run_on;
use crate::values::{
    CollectionResult, CompactedIndex, CompactedSsTable, CompactionResult, DeletionVectorResult,
    FlushResult, FlushedLog, Garbage, RecordIndexReport, ShardLog, SkippedLog, TableStats,
};

/// Flushes the logs of a table: all of them, or those without an entry for `idle_for` whose claims
/// are released. With `take_over` a job of another process is stopped.
pub fn flush(
    py: Python<'_>,
    table: &lancemem::Table,
    idle_for: Option<Duration>,
    take_over: bool,
) -> PyResult<FlushResult> {
    let flushed = match (idle_for, take_over) {
        (None, false) => run_on(py, table.uri(), table.naming_damage(table.flush()))?,
        (None, true) => run_on(py, table.uri(), table.naming_damage(table.flush_all()))?,
        (Some(idle), false) => {
            run_on(py, table.uri(), table.naming_damage(table.flush_idle(idle)))?
        }
        (Some(_), true) => {
            return Err(InvalidInputError::new_err(
                "idle_for leaves running jobs alone, take_over=True stops them; pass one of them",
            ));
        }
    };
    Ok(flush_result(flushed))
}

/// Counts the rows of a table, and with `count_logs` those of its logs, which are read.
pub fn stats(py: Python<'_>, table: &lancemem::Table, count_logs: bool) -> PyResult<TableStats> {
    let counted = if count_logs {
        run_on(py, table.uri(), table.stats())?
    } else {
        run_on(py, table.uri(), table.stats_without_logs())?
    };
    Ok(table_stats(counted, table.merge_rule().map(MergeRule)))
}

/// Moves the flushed SSTables of a table into its base table, or reports what that would do.
pub fn compact(
    py: Python<'_>,
    table: &lancemem::Table,
    settings: &CompactionSettings,
) -> PyResult<CompactionResult> {
    run_on(py, table.uri(), table.naming_damage(table.compact_with(settings))).map(result)
}

/// Removes garbage, or reports it.
pub fn collect_garbage(
    py: Python<'_>,
    table: &lancemem::Table,
    dry_run: bool,
    older_than: Option<Duration>,
) -> PyResult<CollectionResult> {
    let usual = CollectionSettings::default();
    let older_than = older_than.unwrap_or(usual.older_than);
    let settings = usual.with_dry_run(dry_run).with_older_than(older_than);
    run_on(py, table.uri(), table.collect_garbage(&settings)).map(collection)
}

/// Creates or rebuilds the record index of a table.
pub fn create_record_index(py: Python<'_>, table: &lancemem::Table) -> PyResult<RecordIndexReport> {
    run_on(py, table.uri(), table.naming_damage(table.create_record_index())).map(report)
}

/// Drops the record index of a table.
pub fn drop_record_index(py: Python<'_>, table: &lancemem::Table) -> PyResult<()> {
    run_on(py, table.uri(), table.naming_damage(table.drop_record_index()))
}

/// Compares the record index of a table with its base table.
pub fn verify_record_index(py: Python<'_>, table: &lancemem::Table) -> PyResult<RecordIndexReport> {
    run_on(py, table.uri(), table.naming_damage(table.verify_record_index())).map(report)
}

/// Writes the missing deletion vectors of a table's SSTables.
pub fn write_deletion_vectors(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: Option<ShardName>,
) -> PyResult<DeletionVectorResult> {
    let shard = shard.map(|shard| existing_shard(py, table, shard)).transpose()?;
    let done: RustDeletionVectors =
        run_on(py, table.uri(), table.naming_damage(table.write_deletion_vectors(shard)))?;
    Ok(DeletionVectorResult {
        num_sstables: done.sstables,
        num_fragments: done.fragments,
        bytes: done.bytes,
        elapsed_ms: done.elapsed_ms,
    })
}

fn flush_result(result: RustFlush) -> FlushResult {
    let flushed = result.flushed.into_iter().map(|log| FlushedLog {
        shard_id: log.shard_id.to_string(),
        ordinal: log.ordinal,
        generation: log.generation.get(),
        num_rows: log.rows,
        bytes: log.bytes,
    });
    let flushed: Vec<FlushedLog> = flushed.collect();
    let skipped = result.skipped.into_iter().map(|log| SkippedLog {
        shard_id: log.shard_id.to_string(),
        ordinal: log.ordinal,
        num_entries: log.entries,
        bytes: log.bytes,
        reason: log.reason,
    });
    FlushResult {
        num_rows: flushed.iter().map(|log| log.num_rows).sum(),
        bytes: flushed.iter().map(|log| log.bytes).sum(),
        elapsed_ms: result.elapsed_ms,
        flushed,
        skipped: skipped.collect(),
    }
}

fn table_stats(stats: RustStats, merge_rule: Option<MergeRule>) -> TableStats {
    let logs = stats.logs.into_iter().map(|log| ShardLog {
        shard_id: log.shard_id.to_string(),
        ordinal: log.ordinal,
        num_rows: log.rows,
        bytes: log.bytes,
        is_released: log.is_released,
    });
    TableStats {
        base_version: stats.base_version,
        num_base_rows: stats.base_rows,
        num_shards: stats.shards,
        num_sstables: stats.sstables,
        num_sstable_rows: stats.sstable_rows,
        num_log_rows: stats.log_rows,
        log_bytes: stats.log_bytes,
        logs: logs.collect(),
        merge_rule,
    }
}

fn report(report: RustReport) -> RecordIndexReport {
    RecordIndexReport {
        base_version: report.base_version,
        num_runs: report.runs,
        num_stale_runs: report.stale_runs,
        num_entries: report.entries,
        bytes: report.bytes,
        num_fragments_covered: report.fragments_covered,
        num_fragments_uncovered: report.fragments_uncovered,
        damage: report.damage,
    }
}

fn collection(result: RustCollection) -> CollectionResult {
    let garbage = result.garbage.into_iter().map(|garbage| Garbage {
        kind: garbage.kind.to_string(),
        path: garbage.path,
        reason: garbage.reason,
        bytes: garbage.bytes,
    });
    CollectionResult {
        garbage: garbage.collect(),
        bytes: result.bytes,
        num_pinned_sstables: result.pinned_sstables,
    }
}

/// What a compaction does about the logs.
pub const fn logs(flush: bool, count: bool) -> LogHandling {
    match (flush, count) {
        (true, _) => LogHandling::Flush,
        (false, true) => LogHandling::Count,
        (false, false) => LogHandling::Ignore,
    }
}

/// The settings of one compaction.
pub fn settings(
    mode: &str,
    dry_run: bool,
    update_indexes: bool,
    max_dead_share: Option<f64>,
    bytes_per_second: Option<Given<u64>>,
    logs: LogHandling,
) -> PyResult<CompactionSettings> {
    if dry_run && logs == LogHandling::Flush {
        return Err(InvalidInputError::new_err(
            "dry_run writes nothing, and flush writes SSTables; pass one of the two",
        ));
    }
    let bytes_per_second = match bytes_per_second {
        None => 0,
        Some(given) => match given.named("bytes_per_second")? {
            0 => {
                return Err(InvalidInputError::new_err(
                    "bytes_per_second must be at least 1, got 0; None is no limit",
                ));
            }
            rate => rate,
        },
    };
    let mode = compaction_mode(mode).map_err(of_face)?;
    let usual = CompactionSettings::default();
    let max_dead_share = max_dead_share.unwrap_or(usual.max_dead_share);
    if !(0.0..=1.0).contains(&max_dead_share) {
        return Err(InvalidInputError::new_err(format!(
            "max_dead_share must be between 0 and 1, got {max_dead_share}"
        )));
    }
    Ok(usual
        .with_mode(mode)
        .with_dry_run(dry_run)
        .with_update_indexes(update_indexes)
        .with_max_dead_share(max_dead_share)
        .with_bytes_per_second(bytes_per_second)
        .with_logs(logs))
}

fn result(result: RustResult) -> CompactionResult {
    CompactionResult {
        num_generations: result.generations,
        num_sstables_linked: result.linked,
        num_sstables_rewritten: result.rewritten,
        num_sstables_dropped: result.dropped,
        num_rows_written: result.rows_written,
        num_rows_deleted: result.rows_deleted,
        num_late_rows: result.late_rows,
        copied_bytes: result.copied_bytes,
        num_fragments_added: result.fragments_added,
        num_fragments_rewritten: result.fragments_rewritten,
        base_version: result.base_version,
        num_rows_in_logs: result.rows_in_logs,
        sstables: result.sstables.into_iter().map(compacted_sstable).collect(),
        indexes: result.indexes.into_iter().map(compacted_index).collect(),
    }
}

fn compacted_index(index: RustIndex) -> CompactedIndex {
    let RustIndex { name, linked_rows, built_rows, unindexed_rows, segments, reason } = index;
    CompactedIndex { name, linked_rows, built_rows, unindexed_rows, segments, reason }
}

fn compacted_sstable(sstable: RustSsTable) -> CompactedSsTable {
    CompactedSsTable {
        shard_id: sstable.shard_id.to_string(),
        generation: sstable.generation.get(),
        num_rows: sstable.physical_rows,
        num_live_rows: sstable.live_rows,
        num_tombstones: sstable.tombstones,
        bytes: sstable.bytes,
        treatment: sstable.decision.treatment.to_string(),
        reason: sstable.decision.reason,
    }
}
