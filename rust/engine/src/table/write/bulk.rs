//! Bulk writes: rows are written to SSTables without a claim, then committed all at once, or
//! aborted.
//!
//! Owns: writing staged SSTables, which no manifest lists; their commit and their abort; and the
//! decision between the two, which is made once for each bulk write.
//! Does not own: the order of generations inside a shard, which is the core's.
//!
//! Many tasks can write staged SSTables without coordination. One call then commits all of them,
//! with one claim and one manifest version for each shard.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_array::RecordBatch;
use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use lance::Dataset;
use lancemem_core::format::{AcceptedRows, RowSchema, SsTable, paths, round_floats};
use lancemem_core::shard::{IngestedSsTable, SsTableSink, WriteBatch, is_new, unlisted_rows};
use lancemem_core::store::{Created, Store};
use lancemem_core::types::{
    Error, Generation, MaxBytes, Result, ShardId, Txn, Txns, once_app_id, once_name,
};

use super::job::{Job, LanceSink};
use super::lingering::close_lingering;
use super::route::{RoutedRows, route, shard_of, txns_of};
use super::turns::Attempts;
use crate::errors::{Context, SsTableErrors};
use crate::garbage::{Garbage, LINKED_AGE, generation_of_folder, staged_write_garbage};
use crate::snapshot::is_pinned;
use crate::sstable::{BUFFER_BYTES, SsTableContext, open_sstable, routed_by};
use crate::table::Table;
use crate::table::catalog::{Catalog, ShardTurns, refuse_unwritable};
use crate::table::maintain::Remover;

const LINK: &[u8] = b"link\n";
const DISCARD: &[u8] = b"discard\n";

/// An SSTable that no manifest lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedSsTable {
    /// The shard whose rows it has.
    pub shard_id: ShardId,
    /// Folder name inside the shard.
    pub path: String,
    /// Rows, superseded ones and tombstones included.
    pub rows: u64,
    /// Bytes of the rows in memory.
    pub in_memory_bytes: u64,
    /// The part of them that is key columns.
    pub primary_key_bytes: u64,
}

/// What a commit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitResult {
    /// Rows of the SSTables that were committed.
    pub rows: u64,
    /// Shards that took them.
    pub shards: usize,
    /// SSTables that were committed, each a generation of its shard.
    pub sstables: usize,
    /// Shards that committed nothing now: the transaction id was recorded before, or all of the
    /// SSTables were committed before.
    pub already_written: usize,
}

/// Writes rows into staged SSTables.
#[derive(Debug)]
pub struct BulkWriter {
    catalog: Arc<Catalog>,
    /// The columns in which rows are accepted and stored.
    schema: Arc<RowSchema>,
    /// Rows that are not written yet, by shard.
    waiting: BTreeMap<ShardId, PendingRows>,
    routing: HashMap<i32, ShardId>,
    sstables: Vec<StagedSsTable>,
}

#[derive(Debug, Default)]
struct PendingRows {
    rows: Vec<AcceptedRows>,
    bytes: usize,
}

/// Bytes of the longest name of a bulk write. The name is part of the name of a file, which has at
/// most 255 bytes on most disks.
const MAX_NAME_BYTES: usize = 200;

impl Table {
    /// Starts a bulk write. Claims no shard.
    ///
    /// # Errors
    /// As [`Table::routing`].
    pub async fn bulk_writer(self: &Arc<Self>) -> Result<BulkWriter> {
        let routing = self.catalog.routing().await?;
        let base = self.catalog.without_reused_ids().await?;
        refuse_unwritable(&base.dataset)?;
        let schema = base.schema.rows.clone();
        let (waiting, sstables) = (BTreeMap::new(), Vec::new());
        Ok(BulkWriter { catalog: self.catalog.clone(), schema, waiting, routing, sstables })
    }

    /// Commits staged SSTables to their shards, newer than every row there, in the order given; in
    /// each shard all of them at once. A job that runs in one of these shards is fenced.
    ///
    /// `write` names the bulk write, if another call may [abort](Self::abort) it: the first of the
    /// two calls decides. With a `txn`, a shard that has recorded it takes nothing. Without one, a
    /// shard takes none of the SSTables that it has recorded as committed: the newest 128.
    ///
    /// # Errors
    /// With nothing committed: an input error where the bulk write was aborted or an SSTable is
    /// missing, and corruption where the file that records the decision is damaged. Stale as
    /// [`Self::write`]. After any other error each shard has all of its SSTables or none of them,
    /// and the call can be repeated with the same transaction id.
    #[boxed]
    pub async fn link(
        &self,
        sstables: &[StagedSsTable],
        write: Option<&str>,
        txn: Option<&Txn>,
    ) -> Result<CommitResult> {
        let catalog = &*self.catalog;
        // Fails where the table was deleted: a commit must not create folders in its place.
        let base = catalog.latest_base().await?;
        if let Some(write) = write
            && !decide(catalog, write, LINK).await?
        {
            return Err(Error::input(format!(
                "the bulk write {write} of table {} was aborted; write its rows again",
                catalog.uri()
            )));
        }
        let by_shard = uncommitted(catalog, sstables, txn).await?;
        let written = check_staged(catalog, &base, by_shard.values().flatten().copied()).await?;
        let mut written = written.into_iter();
        let commits = by_shard.into_iter().map(|(shard_id, sstables)| {
            let sstables = sstables.into_iter().zip(written.by_ref()).collect();
            commit_shard(catalog, shard_id, sstables, txn)
        });
        let committed = try_join_all(commits).await?;
        Ok(committed.into_iter().fold(CommitResult::default(), |sum, shard| CommitResult {
            rows: sum.rows + shard.rows,
            shards: sum.shards + shard.shards,
            sstables: sum.sstables + shard.sstables,
            already_written: sum.already_written + shard.already_written,
        }))
    }

    /// Aborts a bulk write: removes its staged SSTables, and returns whether it did. Does nothing
    /// where a commit of `write` has begun, or where an SSTable is older than six days: the record
    /// of an old decision may be collected already, so the SSTable may be committed.
    ///
    /// # Errors
    /// An input error, with nothing removed, where an SSTable was committed under another name or
    /// without one; corruption as [`Self::link`]. After a storage error SSTables may be left
    /// behind; no manifest lists them, and a collection removes them.
    #[boxed]
    pub async fn abort(&self, sstables: &[StagedSsTable], write: &str) -> Result<bool> {
        let catalog = &*self.catalog;
        sstables.iter().try_for_each(check_path)?;
        let base = catalog.latest_base().await?;
        let now = catalog.store.read_clock().await?.later();
        let ages =
            try_join_all(sstables.iter().map(|sstable| age_of(catalog, sstable, now))).await?;
        // The record of a decision may be collected once its SSTables are too old to be committed.
        if ages.into_iter().flatten().any(is_too_old) {
            return Ok(false);
        }
        if !decide(catalog, write, DISCARD).await? {
            return Ok(false);
        }
        refuse_committed(catalog, &base, sstables).await?;
        let remover = Remover::new(&catalog.store, &base).await?;
        for sstable in sstables {
            // A repeated abort finds nothing to remove.
            remover.remove_tree(&folder_of(sstable)).await?;
        }
        Ok(true)
    }
}

/// Refuses SSTables that a manifest lists, that a shard has recorded as committed, or that have
/// readers in this process: they are part of the table, or were until they were compacted.
async fn refuse_committed(
    catalog: &Catalog,
    base: &Dataset,
    sstables: &[StagedSsTable],
) -> Result<()> {
    let manifests = catalog.manifests().await?;
    for sstable in sstables {
        let is_listed = manifests
            .iter()
            .any(|manifest| manifest.shard_id == sstable.shard_id && manifest.lists(&sstable.path));
        let is_committed = is_listed
            || is_pinned(base, &folder_of(sstable))
            || sstable.is_recorded(&txns_of(catalog, sstable.shard_id).await?);
        if is_committed {
            return Err(Error::input(format!(
                "SSTable {} of shard {} of table {} is committed: its bulk write cannot be aborted",
                sstable.path,
                sstable.shard_id,
                catalog.uri()
            )));
        }
    }
    Ok(())
}

/// The SSTables of each shard that it has not committed before, without duplicates. Files of
/// committed SSTables may be gone: a compaction and a collection may have removed them since.
async fn uncommitted<'a>(
    catalog: &Catalog,
    sstables: &'a [StagedSsTable],
    txn: Option<&Txn>,
) -> Result<BTreeMap<ShardId, Vec<&'a StagedSsTable>>> {
    let mut by_shard: BTreeMap<ShardId, Vec<&StagedSsTable>> = BTreeMap::new();
    for sstable in sstables {
        check_path(sstable)?;
        let of_shard = by_shard.entry(sstable.shard_id).or_default();
        if !of_shard.iter().any(|other| other.path == sstable.path) {
            of_shard.push(sstable);
        }
    }
    let shards = by_shard.into_iter().map(|(shard_id, mut sstables)| async move {
        let recorded = txns_of(catalog, shard_id).await?;
        match txn {
            Some(txn) if is_new(&recorded, shard_id, txn)? => {}
            Some(_) => sstables.clear(),
            None => sstables.retain(|sstable| !sstable.is_recorded(&recorded)),
        }
        Ok((shard_id, sstables))
    });
    Ok(try_join_all(shards).await?.into_iter().collect())
}

/// Records `decision` about a bulk write, unless a decision is recorded; whether the recorded
/// one is `decision`. The store creates the file at most once, so the first caller decides.
async fn decide(catalog: &Catalog, write: &str, decision: &'static [u8]) -> Result<bool> {
    if !paths::is_plain_component(write) {
        return Err(Error::input(format!(
            "'{write}' cannot name a bulk write: it must be usable as the name of a file"
        )));
    }
    if write.len() > MAX_NAME_BYTES {
        return Err(Error::input(format!(
            "a name of {} bytes cannot name a bulk write: a name is limited to {MAX_NAME_BYTES} bytes",
            write.len()
        )));
    }
    let path = paths::staged_write(write);
    let bytes = Bytes::from_static(decision);
    if catalog.store.put_if_absent(&path, bytes.clone()).await? == Created::Yes {
        return Ok(true);
    }
    let decided = catalog.store.get(&path, MaxBytes::NOTE).await?;
    match decided.as_deref() {
        Some(LINK | DISCARD) => Ok(decided == Some(bytes)),
        Some(other) => {
            let detail = format!(
                "{} bytes that record neither a commit nor an abort; if no shard lists the \
                 SSTables of the bulk write {write}, remove the file and repeat the call",
                other.len()
            );
            Err(Error::corrupt(path, "undecodable", detail))
        }
        None => Err(Error::storage(
            format!("reading {path}"),
            "the file was removed after it was found; call again",
        )),
    }
}

/// Decisions about bulk writes that are so old that their SSTables cannot be committed any
/// more.
pub(in crate::table) async fn decision_garbage(
    store: &Store,
    now: SystemTime,
    grace: Duration,
) -> Result<Vec<Garbage>> {
    let listed = store.list_tree(paths::STAGED_WRITES).await?;
    let garbage = listed.into_iter().filter_map(|file| staged_write_garbage(file, now, grace));
    Ok(garbage.collect())
}

/// Opens every SSTable, so that a manifest never lists a missing one. Returns when each was
/// written, from its Lance manifest: the modification times of files change when a table is
/// copied.
async fn check_staged<'a>(
    catalog: &Catalog,
    base: &Dataset,
    sstables: impl Iterator<Item = &'a StagedSsTable>,
) -> Result<Vec<Duration>> {
    let sstables: Vec<&StagedSsTable> = sstables.collect();
    if sstables.is_empty() {
        return Ok(Vec::new());
    }
    // The later of both clocks: an SSTable must not look younger than it does to a collector.
    let now = catalog.store.read_clock().await?.later();
    let opened = sstables.into_iter().map(|sstable| async move {
        let action = format!("the staged SSTable {} of shard {}", sstable.path, sstable.shard_id);
        match age_of(catalog, sstable, now).await? {
            None => return Err(not_there(sstable)),
            Some(age) if is_too_old(age) => return Err(too_old(sstable)),
            Some(_) => {}
        }
        let context = SsTableContext::new(base, sstable.shard_id).await.context(&action)?;
        let context = context.with_rule(catalog.rule.as_deref());
        let opened = open_sstable(&context, &sstable.path).await.in_sstable(&action)?;
        check_routed(catalog, sstable, routed_by(&opened))?;
        Ok(Duration::from_nanos_u128(opened.manifest().timestamp_nanos))
    });
    try_join_all(opened).await
}

/// Refuses an SSTable whose rows were routed by another sharding than the index records.
fn check_routed(catalog: &Catalog, sstable: &StagedSsTable, by: Option<&str>) -> Result<()> {
    let Some(by) = by.filter(|by| Some(*by) != catalog.sharding_record.as_deref()) else {
        return Ok(());
    };
    Err(Error::input(format!(
        "the staged SSTable {} of shard {} has rows of the sharding {by}, the index of table {} \
         records the sharding {}: a key could be in two shards. Write the rows again",
        sstable.path,
        sstable.shard_id,
        catalog.uri(),
        catalog.sharding_record.as_deref().unwrap_or("none")
    )))
}

/// The time since the newest modification of a file of the SSTable; `None` where it has no
/// files.
async fn age_of(
    catalog: &Catalog,
    sstable: &StagedSsTable,
    now: SystemTime,
) -> Result<Option<Duration>> {
    let folder = format!("{}/{}", paths::shard(sstable.shard_id), sstable.path);
    let files = catalog.store.list_tree(&folder).await?;
    let ended = files.iter().map(|file| file.modified).max();
    Ok(ended.map(|ended| now.duration_since(ended).unwrap_or_default()))
}

async fn commit_shard(
    catalog: &Catalog,
    shard_id: ShardId,
    sstables: Vec<(&StagedSsTable, Duration)>,
    txn: Option<&Txn>,
) -> Result<CommitResult> {
    let already = CommitResult { already_written: 1, ..CommitResult::default() };
    // A commit without work must not fence the shard's job.
    if sstables.is_empty() {
        return Ok(already);
    }
    let ingested = sstables.iter().map(|(sstable, written)| {
        let txn = txn.map_or_else(|| sstable.txn(*written), |txn| Ok(txn.clone()))?;
        Ok((sstable.as_listed(), txn))
    });
    let ingested = ingested.collect::<Result<Vec<IngestedSsTable>>>()?;
    let committed = commit_in_turn(catalog, shard_id, &ingested).await?;
    if committed.is_empty() {
        return Ok(already);
    }
    let rows = sstables.iter().filter(|(sstable, _)| committed.contains(&sstable.path));
    let rows = rows.map(|(sstable, _)| sstable.rows).sum();
    Ok(CommitResult { rows, shards: 1, sstables: committed.len(), already_written: 0 })
}

/// Commits to one shard, and retries where another writer took the shard first. A retry is
/// harmless: the shard records a transaction id for each SSTable.
async fn commit_in_turn(
    catalog: &Catalog,
    shard_id: ShardId,
    ingested: &[IngestedSsTable],
) -> Result<Vec<String>> {
    let turns = ShardTurns::of(catalog.location.home(), shard_id);
    let _turn = turns.queue.lock().await;
    close_lingering(catalog, shard_id).await;
    let mut attempts = Attempts::begin();
    loop {
        let config = catalog.defaults.clone();
        let turn = attempts.turn(&turns);
        let committed = match Job::open_in_turn(catalog, shard_id, config, Some(&turn)).await {
            Ok(job) => job.link(ingested).await,
            Err(error) => Err(error),
        };
        match committed {
            Ok(committed) => return Ok(committed),
            Err(error) => attempts.goes_on(&catalog.store, shard_id, error).await?,
        };
    }
}

/// Whether a collector may be about to remove an SSTable of this age, and the record of its bulk
/// write.
fn is_too_old(age: Duration) -> bool {
    age >= LINKED_AGE
}

fn too_old(sstable: &StagedSsTable) -> Error {
    Error::input(format!(
        "the staged SSTable {} of shard {} was written more than six days ago, and a collection may \
         remove it at any moment; write its rows again",
        sstable.path, sstable.shard_id
    ))
}

fn not_there(sstable: &StagedSsTable) -> Error {
    Error::input(format!(
        "the staged SSTable {} of shard {} is missing: it was aborted, compacted or collected; write \
         its rows again if they are not in the table",
        sstable.path, sstable.shard_id
    ))
}

impl StagedSsTable {
    fn as_listed(&self) -> SsTable {
        SsTable {
            generation: Generation(0),
            path: self.path.clone(),
            in_memory_bytes: Some(self.in_memory_bytes),
            physical_rows: Some(self.rows),
            primary_key_bytes: Some(self.primary_key_bytes).filter(|bytes| *bytes > 0),
        }
    }

    /// The transaction id by which its shard records the SSTable as committed. `written` is the
    /// time since 1970.
    fn txn(&self, written: Duration) -> Result<Txn> {
        Txn::new(once_app_id(written, &self.path), 0)
    }

    /// Whether a shard has recorded [`Self::txn`], whatever the time in it.
    fn is_recorded(&self, recorded: &Txns) -> bool {
        recorded.iter().any(|(app_id, _)| once_name(app_id) == Some(self.path.as_str()))
    }
}

fn folder_of(sstable: &StagedSsTable) -> String {
    format!("{}/{}", paths::shard(sstable.shard_id), sstable.path)
}

fn check_path(sstable: &StagedSsTable) -> Result<()> {
    if generation_of_folder(&sstable.path) == Some(Generation(0)) {
        return Ok(());
    }
    Err(Error::input(format!(
        "'{}' is not the folder of a staged SSTable of shard {}",
        sstable.path, sstable.shard_id
    )))
}

impl BulkWriter {
    /// As [`Table::round_floats`], for the columns of this bulk write.
    ///
    /// # Errors
    /// As [`Table::round_floats`].
    pub fn round_floats(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        round_floats(rows, self.schema.logical())
    }

    /// Adds rows. Rows that wait are written to an SSTable first, if together with these they would
    /// fill a MemTable of the table's settings.
    ///
    /// # Errors
    /// An input error that names column and row, or the reason why an SSTable could not be written.
    /// None of these rows is added then; earlier rows stay.
    pub fn write<'a>(&'a mut self, batch: WriteBatch<'a>) -> BoxFuture<'a, Result<()>> {
        self.add(batch).boxed()
    }

    async fn add(&mut self, batch: WriteBatch<'_>) -> Result<()> {
        if batch.rows.num_rows() == 0 {
            return Ok(());
        }
        let mut parts = Vec::new();
        for (ordinal, positions) in route(&self.catalog, batch.rows)? {
            let routed = RoutedRows::take(batch, &positions)?;
            let accepted = routed.batch().accept(&self.schema)?;
            parts.push((shard_of(&self.routing, ordinal)?, accepted));
        }
        let most = self.catalog.defaults.max_memtable_size;
        let more: usize = parts.iter().map(|(_, rows)| rows.memory_bytes()).sum();
        // Before any of these rows is added, so that an error adds none of them. The limit holds
        // for all shards together: a bulk write takes no more memory than one MemTable.
        while self.waiting_bytes() + more > most {
            let largest = self.waiting.iter().max_by_key(|(_, waiting)| waiting.bytes);
            let Some(shard_id) = largest.map(|(shard_id, _)| *shard_id) else { break };
            self.write_sstable_of(shard_id).await?;
        }
        for (shard_id, rows) in parts {
            let waiting = self.waiting.entry(shard_id).or_default();
            waiting.bytes += rows.memory_bytes();
            waiting.rows.push(rows);
        }
        Ok(())
    }

    /// Bytes of rows that are not in an SSTable yet.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.values().map(|waiting| waiting.bytes).sum()
    }

    /// Writes the remaining rows and returns all SSTables, those of a shard in the order of their
    /// rows. The writer is empty then.
    ///
    /// # Errors
    /// The reason why an SSTable could not be written. No rows are lost: a second call continues.
    #[boxed]
    pub async fn finish(&mut self) -> Result<Vec<StagedSsTable>> {
        let shards: Vec<ShardId> = self.waiting.keys().copied().collect();
        for shard_id in shards {
            self.write_sstable_of(shard_id).await?;
        }
        Ok(std::mem::take(&mut self.sstables))
    }

    async fn write_sstable_of(&mut self, shard_id: ShardId) -> Result<()> {
        // The rows stay in `waiting` until they are written: neither an error nor a cancelled call
        // loses any.
        let Some(waiting) = self.waiting.get(&shard_id) else { return Ok(()) };
        let rows = waiting.rows.clone();
        let catalog = self.catalog.clone();
        let sink = LanceSink {
            base: catalog.base.clone(),
            shard_id,
            key: catalog.key.clone(),
            fsync: catalog.defaults.fsync,
            buffer_bytes: catalog.defaults.buffer_bytes(BUFFER_BYTES),
            indexes: catalog.defaults.index_flushed.then(|| catalog.flushed_indexes.clone()),
            index_makers: catalog.index_makers.clone(),
            routed_by: catalog.sharding_record.clone(),
        };
        let schema = self.schema.clone();
        let view =
            tokio::task::spawn_blocking(move || unlisted_rows(&schema, &catalog.defaults, rows));
        let view =
            view.await.map_err(|error| Error::internal(error.to_string()).with_source(error))?;
        let listed = sink.write(&view).await?;
        self.waiting.remove(&shard_id);
        self.sstables.push(StagedSsTable {
            shard_id,
            path: listed.path,
            rows: listed.physical_rows.unwrap_or_default(),
            in_memory_bytes: listed.in_memory_bytes.unwrap_or_default(),
            primary_key_bytes: listed.primary_key_bytes.unwrap_or_default(),
        });
        Ok(())
    }
}

impl Job {
    /// Ingests SSTables and ends the job; see [`lancemem_core::shard::ShardWriter::link`].
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn link(&self, sstables: &[IngestedSsTable]) -> Result<Vec<String>> {
        self.writer.link(sstables).await
    }
}
