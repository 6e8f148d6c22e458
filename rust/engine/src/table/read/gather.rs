//! Taking a snapshot: manifests first, then WAL tails, then the base version.
//!
//! Owns: the order that makes the parts one snapshot, the cache of WAL tails, and updating the
//! snapshot of a job with SSTables that were listed again beside the job.
//! Does not own: the plan over the snapshot.
//!
//! Why the order is safe: a manifest that was read before the base version lists every SSTable that
//! the version lacks, because compaction commits to the base table before it drains a manifest. WAL
//! entries behind the manifest's replay position hold every row that the SSTables lack.
//!
//! The columns are read with the base version, so last. If they differ from the columns under which
//! a WAL tail was read, the tail is read again: its rows may have been written under the newer
//! ones.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use datafusion::common::runtime::SpawnedTask;
use futures::FutureExt;
use futures::future::{join, try_join, try_join_all};
use lance::Dataset;
use lancemem_core::format::{RowSchema, ShardManifest};
use lancemem_core::memtable::MemTableView;
use lancemem_core::shard::{Look, Replay};
use lancemem_core::store::ManifestStore;
use lancemem_core::types::{Error, Generation, Result, ShardId, WalPosition};
use lancemem_core::wal::WalTail;
use parking_lot::Mutex;

use super::Reader;
use super::live_job::LiveJob;
use crate::merged::{merged, with_merged};
use crate::schema::{BaseVersion, TableSchema};
use crate::snapshot::{Consistency, LogPart, Snapshot, SnapshotShard, is_compacted, read_ahead};
use crate::table::Table;
use crate::table::catalog::uncompacted;

/// The WAL tails that this handle has read, one for each shard. A repeated read of a shard fetches
/// new entries only.
#[derive(Debug, Default)]
pub struct TailCache(Mutex<HashMap<ShardId, Arc<tokio::sync::Mutex<ShardTail>>>>);

#[derive(Debug)]
struct ShardTail {
    manifests: ManifestStore,
    place: Option<TailProgress>,
}

/// How far a WAL tail was read, and under which columns.
#[derive(Debug)]
struct TailProgress {
    wal: WalTail,
    replay: Replay,
    rows: Arc<RowSchema>,
}

impl TailCache {
    /// The shards that this handle has read, sorted.
    fn shards(&self) -> Vec<ShardId> {
        let mut shards: Vec<ShardId> = self.0.lock().keys().copied().collect();
        shards.sort_unstable();
        shards
    }

    /// Drops the tail of a shard. The next read starts at the shard manifest again.
    pub fn forget(&self, shard_id: ShardId) {
        self.0.lock().remove(&shard_id);
    }
}

/// What one shard contributes, before its SSTables are opened.
pub(in crate::table) struct ShardParts {
    pub manifest: Arc<ShardManifest>,
    pub memtables: Vec<MemTableView>,
    pub log: LogPart,
    /// The task that opens its SSTables ahead of time.
    pub opening: Option<SpawnedTask<()>>,
}

/// What the caller will do with the snapshot; decides what is prefetched from a remote store, and
/// whether all rows are merged that a rule makes of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Purpose {
    Scan,
    Lookup,
}

/// The shards of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::table) enum Sources {
    /// All shards. A key that several shards have is shown once.
    All,
    /// The table's own shards.
    Own,
    /// One shard.
    Shard(ShardId),
}

/// How the parts of a snapshot are read.
#[derive(Clone, Copy)]
pub(in crate::table) struct Reading<'a> {
    pub consistency: Consistency,
    pub jobs: &'a [Arc<dyn LiveJob>],
    /// The columns to which rows of WAL tails are reconciled.
    pub rows: &'a Arc<RowSchema>,
    pub purpose: Purpose,
}

impl Table {
    /// Takes a snapshot.
    ///
    /// A live snapshot includes the rows in the memory of `jobs`, and of the jobs of this process
    /// that run on the other shards.
    ///
    /// ```no_run
    /// use lancemem::{Consistency, Scan, ScanOptions, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let snapshot = table.snapshot(Consistency::Durable, &[]).await?;
    /// let scan = Scan::of_snapshot(table.clone(), snapshot, ScanOptions::default());
    /// let (_, batches) = scan.collect().await?;
    /// // Both reads are of one snapshot, whatever is written meanwhile.
    /// let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    /// assert_eq!(scan.count_rows().await?, rows);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A storage error, damage in a WAL tail, or the error that stopped one of `jobs`.
    #[boxed]
    pub async fn snapshot(
        &self,
        consistency: Consistency,
        jobs: &[Arc<dyn LiveJob>],
    ) -> Result<Arc<Snapshot>> {
        self.reader.snapshot_for(consistency, jobs, Purpose::Scan).await
    }
}

impl Reader {
    /// As [`Table::snapshot`], for a purpose.
    pub(super) async fn snapshot_for(
        &self,
        consistency: Consistency,
        jobs: &[Arc<dyn LiveJob>],
        purpose: Purpose,
    ) -> Result<Arc<Snapshot>> {
        self.snapshot_of(consistency, jobs, purpose, Sources::All).await
    }

    /// As [`Self::snapshot_for`], of some shards only.
    pub(in crate::table) async fn snapshot_of(
        &self,
        consistency: Consistency,
        jobs: &[Arc<dyn LiveJob>],
        purpose: Purpose,
        sources: Sources,
    ) -> Result<Arc<Snapshot>> {
        let jobs: &[Arc<dyn LiveJob>] = if consistency == Consistency::Live { jobs } else { &[] };
        let mut columns = self.catalog.base.known().schema;
        let _ahead = self.read_ahead();
        let (parts, latest) = loop {
            let reading = Reading { consistency, jobs, rows: &columns.rows, purpose };
            let mut parts = match self.parts_of_all(reading).await {
                Ok(parts) => parts,
                Err(error) => {
                    // A log may have rows of columns that this handle has not seen yet.
                    columns = self.newer_columns(error, &columns).await?;
                    continue;
                }
            };
            let mut latest = self.catalog.latest().await?;
            if self.follow_relisted(&latest.dataset, &mut parts).await? {
                latest = self.catalog.latest().await?;
            }
            let in_memory = parts.iter().any(|part| !part.memtables.is_empty());
            if !in_memory || Arc::ptr_eq(&latest.schema, &columns) {
                break (parts, latest);
            }
            // The columns changed since the tails were read. Each round of this loop follows a
            // schema change, so it ends.
            columns = latest.schema;
        };
        self.snapshot_over(latest, parts, sources, purpose).await
    }

    /// What storage has of every shard, the rows of its log included, and the newest base version,
    /// under whose columns these rows are.
    pub(super) async fn stored_parts(&self) -> Result<(Vec<ShardParts>, BaseVersion)> {
        let mut columns = self.catalog.base.known().schema;
        loop {
            let (consistency, purpose) = (Consistency::Durable, Purpose::Scan);
            let reading = Reading { consistency, jobs: &[], rows: &columns.rows, purpose };
            let parts = match self.parts_of_all(reading).await {
                Ok(parts) => parts,
                Err(error) => {
                    columns = self.newer_columns(error, &columns).await?;
                    continue;
                }
            };
            let latest = self.catalog.latest().await?;
            let in_memory = parts.iter().any(|part| !part.memtables.is_empty());
            if !in_memory || Arc::ptr_eq(&latest.schema, &columns) {
                return Ok((parts, latest));
            }
            columns = latest.schema;
        }
    }

    /// Whether every entry of the shard's log that was read records its generation.
    pub(super) async fn is_log_numbered(&self, shard_id: ShardId) -> bool {
        let tail = self.tail_of(shard_id);
        let tail = tail.lock().await;
        let mut replayed = tail.place.iter().flat_map(|place| place.replay.memtables());
        replayed.all(|replayed| replayed.is_numbered)
    }

    /// The newest columns, after shards could not be read under `known`.
    ///
    /// # Errors
    /// `error`, where the columns have not changed. An input error of the base table comes first:
    /// if the table was replaced, shards of the other table may look damaged.
    async fn newer_columns(
        &self,
        error: Error,
        known: &Arc<TableSchema>,
    ) -> Result<Arc<TableSchema>> {
        match self.catalog.latest().await {
            Err(refused @ Error::InvalidInput { .. }) => Err(refused),
            Ok(latest)
                if matches!(error, Error::InvalidInput { .. })
                    && !Arc::ptr_eq(&latest.schema, known) =>
            {
                Ok(latest.schema)
            }
            _ => Err(error),
        }
    }

    /// Updates the snapshots of running jobs where a generation is missing: it may have been listed
    /// again, and a job reads the manifest only at its next flush. True if a snapshot was updated;
    /// then the base version must be read again.
    async fn follow_relisted(&self, base: &Dataset, parts: &mut [ShardParts]) -> Result<bool> {
        if parts.iter().all(|part| part.log != LogPart::Job) {
            return Ok(false);
        }
        let compacted = self.catalog.compacted_at(base).await?;
        let mut has_followed = false;
        for part in parts.iter_mut().filter(|part| part.log == LogPart::Job) {
            if self.catalog.missing_in(&part.manifest, &compacted).is_empty() {
                continue;
            }
            let Some(newest) = self.catalog.manifest_of(part.manifest.shard_id).await? else {
                continue;
            };
            // Rows that the job has flushed since are in the MemTables of its snapshot.
            let current = part.manifest.current_generation;
            let below = newest.sstables.iter().filter(|sstable| sstable.generation < current);
            let sstables = below.cloned().collect();
            part.manifest = Arc::new(ShardManifest { sstables, ..(*part.manifest).clone() });
            has_followed = true;
        }
        Ok(has_followed)
    }

    /// In the first read from a remote store, starts to prefetch what a scan needs of the known
    /// base version, which is usually the newest. The prefetch overlaps with reading the shards.
    fn read_ahead(&self) -> Option<SpawnedTask<()>> {
        if !self.is_first_far_read() {
            return None;
        }
        let (base, key) = (self.catalog.base.known().dataset, self.catalog.key.clone());
        Some(SpawnedTask::spawn(async move { read_ahead(&base, &key).await }))
    }

    /// Whether this is the first read of a table in a remote store.
    pub(super) fn is_first_far_read(&self) -> bool {
        !self.catalog.location.is_local() && self.tails.shards().is_empty()
    }

    /// The snapshot of these parts over a version of the base table.
    pub(super) async fn snapshot_over(
        &self,
        base: BaseVersion,
        mut parts: Vec<ShardParts>,
        sources: Sources,
        purpose: Purpose,
    ) -> Result<Arc<Snapshot>> {
        let (base, columns) = (base.dataset, base.schema);
        let foreign = self.catalog.foreign_among(parts.iter().map(|part| &*part.manifest));
        match sources {
            Sources::All => {}
            Sources::Own => parts.retain(|part| !foreign.contains(&part.manifest.shard_id)),
            Sources::Shard(shard_id) => parts.retain(|part| part.manifest.shard_id == shard_id),
        }
        let compacted = self.catalog.compacted_at(&base).await?;
        let shards = parts.into_iter().map(|part| self.open_shard(&base, &compacted, part));
        let shards = try_join_all(shards).await?;
        let base_cache = self.sstables.base().clone();
        let snapshot = Snapshot {
            base,
            schema: columns.columns.clone(),
            columns,
            key: self.catalog.key.clone(),
            sharding: self.catalog.sharding.clone(),
            shards,
            base_cache,
        };
        if snapshot.columns.rows.fold().is_some() {
            return self.merged(snapshot, (sources, purpose), &foreign).boxed().await;
        }
        if sources != Sources::All || foreign.is_empty() {
            return Ok(Arc::new(snapshot));
        }
        self.each_key_once(snapshot, &foreign).boxed().await.map(Arc::new)
    }

    /// A snapshot of a table whose rule makes a row of several, with the merged rows.
    async fn merged(
        &self,
        snapshot: Snapshot,
        (sources, purpose): (Sources, Purpose),
        foreign: &HashSet<ShardId>,
    ) -> Result<Arc<Snapshot>> {
        let has_rows = |shard: &SnapshotShard| {
            foreign.contains(&shard.shard_id)
                && (!shard.sstables.is_empty() || !shard.memtables.is_empty())
        };
        if sources == Sources::All
            && let Some(shard) = snapshot.shards.iter().find(|shard| has_rows(shard))
        {
            return Err(Error::input(format!(
                "shard {} of table {} was opened by another program and is not part of the table's \
                 sharding: the order of its events among those of other shards is unknown, so they \
                 cannot be merged. Read the shards that are the table's own, or remove that shard",
                shard.shard_id,
                self.catalog.uri()
            )));
        }
        if purpose == Purpose::Lookup {
            // The look-up merges the rows of its keys.
            return Ok(Arc::new(snapshot));
        }
        if self.merges.merged(&snapshot).is_none()
            && let Some(rows) = self.stored_merged_rows(&snapshot).await
        {
            let rows = Arc::new(rows);
            self.merges.keep_merged(&snapshot, rows.clone());
            return Ok(Arc::new(with_merged(snapshot, &rows)));
        }
        merged(snapshot, &self.merges).await.map(Arc::new)
    }

    /// The parts of every shard. Known shards are read concurrently with the listing, which finds
    /// the others.
    async fn parts_of_all(&self, reading: Reading<'_>) -> Result<Vec<ShardParts>> {
        let read = |shard_id: ShardId| self.shard_parts(shard_id, reading);
        let known = self.known_shards().await;
        let of_known = try_join_all(known.iter().map(|shard_id| read(*shard_id)));
        let (listed, of_known) = try_join(self.catalog.shard_ids(), of_known).await?;
        let others = listed.iter().filter(|shard_id| !known.contains(shard_id));
        let of_others = try_join_all(others.map(|shard_id| read(*shard_id))).await?;
        let mut parts: Vec<ShardParts> = of_known.into_iter().chain(of_others).flatten().collect();
        parts.retain(|part| listed.contains(&part.manifest.shard_id));
        parts.sort_unstable_by_key(|part| part.manifest.shard_id);
        let is_there = |shard_id| parts.iter().any(|part| part.manifest.shard_id == shard_id);
        let Some(unknown) = reading.jobs.iter().find(|job| !is_there(job.shard_id())) else {
            return Ok(parts);
        };
        // A job of another table fails here, with an error that names that table.
        unknown.snapshot(&self.catalog).await?;
        let (shard_id, uri) = (unknown.shard_id(), self.catalog.uri());
        Err(Error::input(format!("the job's shard {shard_id} does not exist in table {uri}")))
    }

    /// The shards that this handle has read before. In the first read these are the shards with
    /// compacted rows, which the base table's index names.
    async fn known_shards(&self) -> Vec<ShardId> {
        let known = self.tails.shards();
        if !known.is_empty() {
            return known;
        }
        let base = self.catalog.base.known().dataset;
        let compacted = self.catalog.compacted_at(&base).await;
        compacted.map(|compacted| compacted.keys().copied().collect()).unwrap_or_default()
    }

    /// Opens the SSTables that the base version lacks. Refuses rows of another sharding: a key
    /// could be in two shards, and a lookup reads one. Refuses a shard with missing generations
    /// too.
    async fn open_shard(
        &self,
        base: &Dataset,
        compacted: &HashMap<ShardId, Generation>,
        part: ShardParts,
    ) -> Result<SnapshotShard> {
        let shard_id = part.manifest.shard_id;
        let listed = uncompacted(&part.manifest, compacted);
        // Drop MemTables of generations that were flushed and compacted after their rows were read.
        // The base table contains the whole generation. The older rows in memory would hide part of
        // a later put of it.
        let through = compacted.get(&shard_id).copied();
        let is_above = |rows: &MemTableView| !is_compacted(through, rows.generation());
        let memtables = part.memtables.into_iter();
        let memtables: Vec<_> =
            memtables.filter(|rows| rows.rows() > 0 && is_above(rows)).collect();
        if !listed.is_empty() || !memtables.is_empty() {
            self.catalog.check_sharding(&part.manifest)?;
        }
        self.catalog.refuse_missing(&part.manifest, compacted, base.version().version)?;
        let opened = listed.iter().map(|sstable| self.sstables.open(base, shard_id, sstable));
        let sstables = try_join_all(opened).await?;
        if let Some(opening) = part.opening {
            // The task has had the time of the look for the base version, and a scan needs its
            // results.
            let _ = opening.join().await;
        }
        self.sstables.retain(shard_id, &part.manifest.sstables);
        let manifest_version = part.manifest.version;
        let (bucket, log) = (self.catalog.ordinal_of(&part.manifest), part.log);
        Ok(SnapshotShard { shard_id, bucket, manifest_version, sstables, memtables, log })
    }

    /// Starts to open the SSTables of a manifest before the base version is known, which may
    /// contain some of them. The round trips of both overlap.
    async fn open_ahead(
        &self,
        manifest: &ShardManifest,
        purpose: Purpose,
    ) -> Option<SpawnedTask<()>> {
        let base = self.catalog.base.known().dataset;
        let compacted = self.catalog.compacted_at(&base).await.ok()?;
        let listed = uncompacted(manifest, &compacted);
        let (sstables, shard_id) = (self.sstables.clone(), manifest.shard_id);
        let key = self.catalog.key.clone();
        let open = async move {
            let is_lookup = purpose == Purpose::Lookup;
            sstables.open_ahead(&base, shard_id, &listed, &key, is_lookup).await;
        };
        Some(SpawnedTask::spawn(open))
    }

    pub(in crate::table) async fn shard_parts(
        &self,
        shard_id: ShardId,
        reading: Reading<'_>,
    ) -> Result<Option<ShardParts>> {
        let named = reading.jobs.iter().find(|job| job.shard_id() == shard_id);
        let in_memory = match named {
            Some(job) => Some(job.snapshot(&self.catalog).await?),
            None if reading.consistency == Consistency::Live => {
                (self.running)(&self.catalog, shard_id).await?
            }
            None => None,
        };
        if let Some(snapshot) = in_memory {
            return Ok(Some(ShardParts {
                manifest: snapshot.manifest,
                memtables: snapshot.memtables,
                log: LogPart::Job,
                opening: None,
            }));
        }
        let tail = self.tail_of(shard_id);
        // The lock is held over the whole step. Otherwise a concurrent reader of this handle could
        // drop a generation from the tail that the manifest of this reader does not list yet.
        let mut tail = tail.lock().await;
        if reading.consistency == Consistency::Flushed {
            let manifest = tail.manifests.latest().await?;
            return Ok(manifest.map(|manifest| ShardParts {
                manifest,
                memtables: Vec::new(),
                log: LogPart::Before(None),
                opening: None,
            }));
        }
        let read = self.read_tail(shard_id, &mut tail, reading).await;
        if read.is_err() {
            // A tail that stopped half-way starts again from the manifest.
            tail.place = None;
        }
        read
    }

    async fn read_tail(
        &self,
        shard_id: ShardId,
        tail: &mut ShardTail,
        reading: Reading<'_>,
    ) -> Result<Option<ShardParts>> {
        let rows = reading.rows;
        // Rows that were reconciled to other columns may lack values of these.
        tail.place.take_if(|place| !Arc::ptr_eq(&place.rows, rows));
        let TailProgress { wal, replay, .. } = tail.place.get_or_insert_with(|| {
            let wal = WalTail::new(self.catalog.store.clone(), shard_id, WalPosition(0));
            TailProgress { wal, replay: Replay::new(shard_id, rows.clone()), rows: rows.clone() }
        });
        let Some(look) = Look::now(wal, &tail.manifests).await? else { return Ok(None) };
        let (is_first, first) = (look.is_first(), look.manifest.clone());
        let ahead =
            async { if is_first { self.open_ahead(&first, reading.purpose).await } else { None } };
        let (manifest, opening) = join(replay.catch_up(wal, &tail.manifests, look), ahead).await;
        Ok(Some(ShardParts {
            manifest: manifest?,
            memtables: views_of(replay),
            log: LogPart::Before(Some(wal.next())),
            opening,
        }))
    }

    fn tail_of(&self, shard_id: ShardId) -> Arc<tokio::sync::Mutex<ShardTail>> {
        let mut tails = self.tails.0.lock();
        let tail = tails.entry(shard_id).or_insert_with(|| {
            let manifests = self.catalog.manifest_store(shard_id);
            Arc::new(tokio::sync::Mutex::new(ShardTail { manifests, place: None }))
        });
        tail.clone()
    }
}

/// The present rows of a replay.
pub(super) fn views_of(replay: &Replay) -> Vec<MemTableView> {
    let replayed = replay.memtables().iter();
    replayed.map(|replayed| replayed.memtable.view(replayed.memtable.batches())).collect()
}

#[cfg(test)]
mod tests;
