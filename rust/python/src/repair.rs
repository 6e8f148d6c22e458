//! Verification and repair of a shard's log and SSTables for Python.
//!
//! Owns: the translation of positions, findings, generations and shard names.
//! Does not own: the methods of `Admin` that return them.

use lancemem::{
    Generation, RelistReport as RustRelist, ShardId, SsTableReport as RustSsTableReport,
    WalFinding as RustFinding, WalPosition, WalReport as RustReport, WriterEpoch,
};
use pyo3::prelude::*;

use crate::arguments::ShardName;
use crate::errors::InvalidInputError;
use crate::runtime::run_on;
use crate::values::{RelistReport, SsTableReport, WalFinding, WalReport};

/// Looks for damage in the log of a shard.
pub fn verify_wal(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: ShardName,
) -> PyResult<WalReport> {
    let shard_id = existing_shard(py, table, shard)?;
    run_on(py, table.uri(), table.verify_wal(shard_id)).map(wal_report)
}

/// Truncates the log of a shard.
pub fn truncate_wal(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: ShardName,
    from_position: u64,
) -> PyResult<WalReport> {
    let shard_id = existing_shard(py, table, shard)?;
    run_on(py, table.uri(), table.truncate_wal(shard_id, WalPosition(from_position)))
        .map(wal_report)
}

/// Verifies the checksums of SSTables, of one shard or of all.
pub fn verify_sstables(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: Option<ShardName>,
) -> PyResult<Vec<SsTableReport>> {
    let shard_id = shard.map(|shard| existing_shard(py, table, shard)).transpose()?;
    let reports = run_on(py, table.uri(), table.verify_sstables(shard_id))?;
    Ok(reports.into_iter().map(sstable_report).collect())
}

/// Lists missing SSTables again, of one shard or of all.
pub fn relist_sstables(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: Option<ShardName>,
) -> PyResult<Vec<RelistReport>> {
    let shard_id = shard.map(|shard| existing_shard(py, table, shard)).transpose()?;
    let reports = run_on(py, table.uri(), table.relist_sstables(shard_id))?;
    Ok(reports.into_iter().map(relist_report).collect())
}

/// Abandons the missing generations of a shard.
pub fn abandon_generations(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: ShardName,
    through_generation: u64,
) -> PyResult<u64> {
    let shard_id = existing_shard(py, table, shard)?;
    let through = Generation(through_generation);
    run_on(py, table.uri(), table.abandon_generations(shard_id, through))
}

fn relist_report(report: RustRelist) -> RelistReport {
    let RustRelist { shard_id, relisted, missing } = report;
    let relisted = relisted.into_iter().map(Generation::get).collect();
    RelistReport { shard_id: shard_id.to_string(), relisted, missing }
}

fn sstable_report(report: RustSsTableReport) -> SsTableReport {
    let RustSsTableReport { shard_id, generation, path, files, bytes, unchecked, damage } = report;
    let (shard_id, generation) = (shard_id.to_string(), generation.get());
    SsTableReport { shard_id, generation, path, num_files: files, bytes, unchecked, damage }
}

/// The shard of a name. Unlike `start_job`, this never creates it.
pub fn existing_shard(
    py: Python<'_>,
    table: &lancemem::Table,
    shard: ShardName,
) -> PyResult<ShardId> {
    match shard {
        ShardName::Id(id) => ShardId::parse_str(&id)
            .map_err(|_| InvalidInputError::new_err(format!("'{id}' is not a shard id"))),
        ShardName::Ordinal(ordinal) => run_on(py, table.uri(), table.existing_shard_of(ordinal)),
    }
}

fn wal_report(report: RustReport) -> WalReport {
    WalReport {
        shard_id: report.shard_id.to_string(),
        replay_after_wal_position: report.replay_after_wal_position.get(),
        last_wal_position: report.last_wal_position.get(),
        writer_epoch: report.writer_epoch.get(),
        first_damaged_position: report.first_damage().map(|finding| finding.position.get()),
        findings: report.findings.into_iter().map(wal_finding).collect(),
    }
}

fn wal_finding(finding: RustFinding) -> WalFinding {
    let (kind, detail) = finding.damage.map_or(("intact".to_owned(), None), |damage| {
        (damage.kind.to_owned(), Some(damage.detail))
    });
    WalFinding {
        position: finding.position.get(),
        kind,
        detail,
        bytes: finding.bytes,
        num_rows: finding.rows,
        generation: finding.generation.map(Generation::get),
        writer_epoch: finding.writer_epoch.map(WriterEpoch::get),
        copy: finding.copy,
    }
}
