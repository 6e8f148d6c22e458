//! The flush of a table's logs, so that a compaction can move their rows.
//!
//! Owns: which logs are flushed, which are left alone and why, and the report.
//! Does not own: the flush of one log (`log_flush` in `write`), or the flush of a running job, which
//! the job does itself after its `idle_flush_interval`.
//!
//! A flush claims the shard, and a claim fences the job that holds it. So an idle flush takes over
//! released claims alone ([`ShardManifest::is_released`]). The age of a claim proves nothing: a job
//! that appends no row for an hour may still run.

use std::time::{Duration, Instant};

use async_recursion::async_recursion as boxed;
use futures::FutureExt;
use futures::future::try_join_all;
use lancemem_core::format::ShardManifest;
use lancemem_core::shard::{LogSize, log_rows, log_size};
use lancemem_core::types::{Error, ErrorKind, Generation, Result, ShardId};

use crate::changes::Changelog;
use crate::stages::{Stage, StageName};
use crate::table::Table;
use crate::table::write::{FlushClaims, flush_log, newest_is_released};

/// Shards whose logs are flushed at once.
const SHARDS_AT_ONCE: usize = 8;
/// Entries up to which a log that is left alone is read, to report it only where it has rows. A
/// longer log is reported by its size, because a read in each round costs a request for each entry.
const FEW_ENTRIES: u64 = 16;

/// What a flush of a table's logs did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlushResult {
    /// The shards whose logs were flushed.
    pub flushed: Vec<FlushedLog>,
    /// The shards whose logs were left alone.
    pub skipped: Vec<SkippedLog>,
    /// Milliseconds that the call took.
    pub elapsed_ms: u64,
}

/// A log whose rows were moved into SSTables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushedLog {
    /// The shard.
    pub shard_id: ShardId,
    /// Its bucket; 0 in an unsharded table; `None` where its manifest records none.
    pub ordinal: Option<i32>,
    /// The generation of the newest SSTable.
    pub generation: Generation,
    /// Rows, superseded rows and tombstones included.
    pub rows: u64,
    /// Bytes that the log had in storage.
    pub bytes: u64,
}

/// A log that was left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedLog {
    /// The shard.
    pub shard_id: ShardId,
    /// As in [`FlushedLog`].
    pub ordinal: Option<i32>,
    /// Entries that no flush has covered, fence sentinels included.
    pub entries: u64,
    /// Their bytes in storage.
    pub bytes: u64,
    /// Why it was left alone.
    pub reason: String,
}

/// What became of one log.
enum Outcome {
    /// It has no row.
    Empty,
    Flushed(FlushedLog),
    Skipped(SkippedLog),
}

impl Table {
    /// Flushes the log of every shard that has rows in it.
    ///
    /// Where a job of this process runs on such a shard, the job flushes, and goes on. Otherwise the
    /// call claims the shard for its length, in turn with calls such as `upsert`. A job of another
    /// process is not stopped: see [`Self::flush_all`].
    ///
    /// ```no_run
    /// use lancemem::Table;
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// table.flush().await?;
    /// // Now every row is in an SSTable, which a compaction moves into the base table.
    /// table.compact().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Held, before anything is flushed, where the claim of another process is not released and its
    /// log has rows. Retry where other writers held a shard for a minute. Damage of a log; a storage
    /// error; an input error where the table was replaced. The rows of shards that were not flushed
    /// stay in their logs.
    #[boxed]
    pub async fn flush(&self) -> Result<FlushResult> {
        self.flush_logs(None, FlushClaims::Released).await
    }

    /// As [`Self::flush`]; a job of another process whose log has rows is stopped.
    ///
    /// # Errors
    /// As [`Self::flush`], and never held.
    #[boxed]
    pub async fn flush_all(&self) -> Result<FlushResult> {
        self.flush_logs(None, FlushClaims::All).await
    }

    /// Flushes the logs that got no entry for `idle`, and stops no job: a log whose claim is not
    /// released is left alone and reported.
    ///
    /// A claim is released from its start where one call made it, such as `upsert`, and at the end
    /// of a job that was closed. A process that was killed releases nothing.
    ///
    /// # Errors
    /// Retry where other writers held a shard for a minute; a storage error.
    #[boxed]
    pub async fn flush_idle(&self, idle: Duration) -> Result<FlushResult> {
        self.flush_logs(Some(idle), FlushClaims::Idle).await
    }

    async fn flush_logs(&self, idle: Option<Duration>, claims: FlushClaims) -> Result<FlushResult> {
        let started = Instant::now();
        // A handle of a table that is gone, or of a replaced index, claims nothing.
        self.catalog.refresh().await?;
        self.catalog.writable_store(self.catalog.defaults.fsync).await?;
        let mut manifests = self.catalog.manifests().await?;
        let foreign = self.catalog.foreign_among(manifests.iter().map(|manifest| &**manifest));
        // A foreign shard has no ordinal.
        let ordinal_of = |manifest: &ShardManifest| {
            let is_own = !foreign.contains(&manifest.shard_id);
            self.catalog.ordinal_of(manifest).filter(|_| is_own)
        };
        // A compaction flushes the logs of foreign shards itself, released or not.
        manifests.retain(|manifest| idle.is_none() || !foreign.contains(&manifest.shard_id));
        // The writers of other programs release no claim.
        let claims_of = |manifest: &ShardManifest| {
            if foreign.contains(&manifest.shard_id) { FlushClaims::All } else { claims }
        };
        for manifest in &manifests {
            if claims_of(manifest) == FlushClaims::Released {
                self.check_released(manifest).await?;
            }
        }
        let mut result = FlushResult::default();
        let stage = Stage::begin(StageName::FlushLogs, manifests.len());
        for some in manifests.chunks(SHARDS_AT_ONCE) {
            let flushes = some.iter().map(|manifest| {
                self.flush_shard(manifest, ordinal_of(manifest), idle, claims_of(manifest))
            });
            for outcome in try_join_all(flushes).await? {
                match outcome {
                    Outcome::Empty => {}
                    Outcome::Flushed(log) => result.flushed.push(log),
                    Outcome::Skipped(log) => result.skipped.push(log),
                }
            }
            stage.add(some.len());
        }
        if !result.flushed.is_empty() {
            self.look_up_changes().await;
        }
        result.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(result)
    }

    /// Stores the changes of flushes, where the table asks for it. The flushes stand without them,
    /// and the next look-up or compaction stores them, so an error is logged.
    async fn look_up_changes(&self) {
        if self.changelog() != Changelog::Flushed {
            return;
        }
        if let Err(error) = self.publish_flushed_changes(None).boxed().await {
            tracing::warn!(table = self.uri(), %error, "changes of flushes are not stored yet");
        }
    }

    /// Refuses a flush before its first claim, where a job of another process may hold a log with
    /// rows. The claim checks that again, in one step with itself.
    async fn check_released(&self, manifest: &ShardManifest) -> Result<()> {
        let (catalog, shard_id) = (&self.catalog, manifest.shard_id);
        let checked = newest_is_released(catalog, shard_id).await;
        if checked.is_ok() || log_size(&catalog.store, manifest).await?.entries == 0 {
            return Ok(());
        }
        let rows = log_rows(&catalog.store, &catalog.manifest_store(shard_id)).await?;
        if rows == 0 { Ok(()) } else { checked }
    }

    /// Flushes the log of one shard, or leaves it alone.
    #[boxed]
    async fn flush_shard(
        &self,
        manifest: &ShardManifest,
        ordinal: Option<i32>,
        idle: Option<Duration>,
        claims: FlushClaims,
    ) -> Result<Outcome> {
        let (catalog, shard_id) = (&self.catalog, manifest.shard_id);
        let size = log_size(&catalog.store, manifest).await?;
        if size.entries == 0 {
            return Ok(Outcome::Empty);
        }
        let skipped = |reason: String| {
            let LogSize { entries, bytes, .. } = size;
            Outcome::Skipped(SkippedLog { shard_id, ordinal, entries, bytes, reason })
        };
        let reason = idle.and_then(|idle| reason_to_skip(manifest, &size, idle));
        if reason.is_none() || size.entries <= FEW_ENTRIES {
            match log_rows(&catalog.store, &catalog.manifest_store(shard_id)).await {
                Ok(0) => return Ok(Outcome::Empty),
                Ok(_) => {}
                Err(error) if idle.is_some() && is_of_shard(&error) => {
                    return Ok(skipped(error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(reason) = reason {
            return Ok(skipped(reason));
        }
        match flush_log(catalog, shard_id, claims).await {
            Ok(None) => Ok(Outcome::Empty),
            Ok(Some(flushed)) => {
                let (generation, rows, bytes) = (flushed.generation, flushed.rows, size.bytes);
                tracing::debug!(table = self.uri(), shard = %shard_id, rows, "flushed a log");
                Ok(Outcome::Flushed(FlushedLog { shard_id, ordinal, generation, rows, bytes }))
            }
            // A job may have claimed the shard since the manifest was read.
            Err(error) if idle.is_some() && is_of_shard(&error) => Ok(skipped(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// Why an idle flush leaves a log alone; `None` where it flushes the log.
fn reason_to_skip(manifest: &ShardManifest, size: &LogSize, idle: Duration) -> Option<String> {
    if !manifest.is_released() {
        let epoch = manifest.writer_epoch;
        return Some(format!("the claim of epoch {epoch} is not released: a job may run there"));
    }
    let age = size.idle.filter(|age| *age < idle)?;
    Some(format!(
        "its newest entry is {:.1} s old, less than {:.1} s",
        age.as_secs_f64(),
        idle.as_secs_f64()
    ))
}

/// Whether an error concerns one shard and stays. Maintenance reports it and goes on with the other
/// shards.
const fn is_of_shard(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidInput
            | ErrorKind::Held
            | ErrorKind::Fenced
            | ErrorKind::Reopen
            | ErrorKind::Corruption
    )
}

#[cfg(test)]
mod tests {
    use lancemem_core::types::WriterEpoch;

    use super::*;

    #[test]
    fn an_idle_flush_takes_a_released_log_once_its_newest_entry_is_old() {
        let shard_id = ShardId::from_u128(1);
        let claimed = ShardManifest {
            writer_epoch: WriterEpoch(2),
            ..ShardManifest::initial(shard_id, 1, [].into())
        };
        let released = ShardManifest { released: Some(WriterEpoch(2)), ..claimed.clone() };
        let minute = Duration::from_mins(1);
        let aged = |idle| LogSize { entries: 2, bytes: 900, idle: Some(idle) };
        assert_eq!(reason_to_skip(&released, &aged(minute), minute), None);
        let young = reason_to_skip(&released, &aged(Duration::from_secs(2)), minute).unwrap();
        assert_eq!(young, "its newest entry is 2.0 s old, less than 60.0 s");
        let running = reason_to_skip(&claimed, &aged(minute * 60), minute).unwrap();
        assert_eq!(running, "the claim of epoch 2 is not released: a job may run there");
    }
}
