//! Replay: from WAL entries to MemTables, for the writer that opens and for readers elsewhere.
//!
//! Owns: the generation of each entry, which entries are flushed already, and when a reader has
//! reached the end of the log.
//! Does not own: reads of the log, or appends: replayed rows are never written again.

use std::sync::Arc;

use arrow_array::RecordBatch;
use futures::future::join;
use futures::try_join;

use super::memtable_layout;
use crate::format::{AcceptedRows, RowSchema, ShardManifest, WalEntry};
use crate::memtable::MemTable;
use crate::store::ManifestStore;
use crate::types::{
    Error, ErrorKind, Generation, KeyIndexKind, Result, ShardId, Txns, WalPosition, WriterEpoch,
};
use crate::wal::{WalTail, entry_name};

/// MemTables that are rebuilt from the log, entry by entry.
#[derive(Clone, Debug)]
pub struct Replay {
    shard_id: ShardId,
    schema: Arc<RowSchema>,
    index: KeyIndexKind,
    memtables: Vec<Replayed>,
    has_other_columns: bool,
    /// The epoch of the newest entry with rows.
    author: Option<WriterEpoch>,
}

/// A rebuilt MemTable and the last entry that went into it.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The rows of one generation.
    pub memtable: Arc<MemTable>,
    /// The newest entry with rows of this generation.
    pub last_position: WalPosition,
    /// The transaction ids of the writes of these rows.
    pub txns: Txns,
    /// Whether every entry of these rows records its generation. Entries of lance record none.
    pub is_numbered: bool,
}

/// The first look of a reader in another process at a shard.
#[derive(Clone, Debug)]
pub struct Look {
    /// The newest manifest.
    pub manifest: Arc<ShardManifest>,
    /// The last entry of the log, for a tail that was never listed.
    last: Option<WalPosition>,
}

impl Look {
    /// Reads the manifest and lists the log at the same time; `None` for a shard that was never
    /// created. Both reads begin after every put that was acknowledged before the call.
    ///
    /// # Errors
    /// A storage error, or a damaged manifest.
    pub async fn now(tail: &WalTail, manifests: &ManifestStore) -> Result<Option<Self>> {
        let list =
            async { if tail.was_listed() { Ok(None) } else { tail.last_entry().await.map(Some) } };
        let (manifest, last) = try_join!(manifests.latest(), list)?;
        Ok(manifest.map(|manifest| Self { manifest, last }))
    }

    /// Whether this is the first look through its tail.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.last.is_some()
    }
}

/// The rows of an entry as a MemTable takes them.
struct PreparedRows {
    /// The epoch that wrote the entry, if the entry has rows.
    author: Option<WriterEpoch>,
    generation: Option<Generation>,
    txns: Txns,
    batches: Vec<AcceptedRows>,
    has_other_columns: bool,
}

impl Replay {
    /// A replay of the shard `shard_id` whose table has the columns of `schema`.
    #[must_use]
    pub fn new(shard_id: ShardId, schema: Arc<RowSchema>) -> Self {
        let index = KeyIndexKind::default();
        let memtables = Vec::new();
        Self { shard_id, schema, index, memtables, has_other_columns: false, author: None }
    }

    /// The same replay into MemTables with another key index.
    #[must_use]
    pub fn with_index(self, index: KeyIndexKind) -> Self {
        Self { index, ..self }
    }

    /// Adds the entries of the log behind `tail`; generations below `current` are flushed.
    ///
    /// # Errors
    /// As [`WalTail::read_new`]; damage where the generations of the log go back; an input error
    /// where the rows no longer fit the table's columns.
    pub async fn read_new(&mut self, tail: &mut WalTail, current: Generation) -> Result<()> {
        let prepare = self.prepare(current);
        tail.read_new(prepare, |position, rows| self.add(position, rows, current)).await
    }

    /// Brings the replay and its tail to `look` or later, and returns the manifest that matches
    /// them: the manifest's SSTables and the replayed rows are all rows of the shard.
    ///
    /// A listing or an absent entry shows the end of the log. This end is valid only where a
    /// manifest that was read later covers no entry behind it: covered entries may have been
    /// removed before the listing. Another program's collector may remove even the highest entry.
    ///
    /// # Errors
    /// As [`Self::read_new`], and only for entries that no flush has covered since.
    pub async fn catch_up(
        &mut self,
        tail: &mut WalTail,
        manifests: &ManifestStore,
        look: Look,
    ) -> Result<Arc<ShardManifest>> {
        let Look { mut manifest, last: mut listed } = look;
        loop {
            let current = manifest.current_generation;
            self.forget_flushed(current);
            tail.skip_covered(manifest.replay_after_wal_entry_position);
            let (read, beside) = match listed.take() {
                // The listing is older than both reads, so they may run at the same time.
                Some(last) => {
                    let reading = self.read_listed(tail, last, current);
                    let (read, newest) = join(reading, manifests.existing()).await;
                    (read, Some(newest))
                }
                None => (self.read_new(tail, current).await, None),
            };
            manifest = match (&read, beside) {
                (Ok(()), _) if mutant!("L3") => return Ok(manifest),
                (Ok(()), Some(newest)) => newest?,
                (Err(error), _) if error.kind() != ErrorKind::Corruption => {
                    return read.map(|()| manifest);
                }
                _ => manifests.existing().await?,
            };
            if manifest.replay_after_wal_entry_position < tail.next() {
                self.forget_flushed(manifest.current_generation);
                return read.map(|()| manifest);
            }
        }
    }

    /// Adds the entries of the log behind `tail` and below `end`, all of which must exist.
    ///
    /// # Errors
    /// As [`Self::read_new`].
    pub async fn read_to(
        &mut self,
        tail: &mut WalTail,
        end: WalPosition,
        current: Generation,
    ) -> Result<()> {
        let prepare = self.prepare(current);
        tail.read_to(end, prepare, |position, rows| self.add(position, rows, current)).await
    }

    /// Adds the entries of the log behind `tail` through `last`, which [`WalTail::last_entry`]
    /// returned.
    ///
    /// # Errors
    /// As [`Self::read_new`].
    pub async fn read_listed(
        &mut self,
        tail: &mut WalTail,
        last: WalPosition,
        current: Generation,
    ) -> Result<()> {
        let prepare = self.prepare(current);
        tail.read_listed(last, prepare, |position, rows| self.add(position, rows, current)).await
    }

    /// The part of the replay that needs no order: columns are matched by field id, keys encoded.
    fn prepare(
        &self,
        current: Generation,
    ) -> impl Fn(WalPosition, WalEntry) -> Result<PreparedRows> + Clone + Send + 'static + use<>
    {
        let (shard_id, schema) = (self.shard_id, self.schema.clone());
        move |position, entry| {
            let generation = entry.generation;
            let author = (!entry.batches.is_empty()).then_some(entry.writer_epoch);
            if generation.is_some_and(|generation| generation < current) && !mutant!("B12") {
                return Ok(PreparedRows {
                    author,
                    generation,
                    txns: Txns::default(),
                    batches: Vec::new(),
                    has_other_columns: false,
                });
            }
            let is_other =
                |batch: &RecordBatch| batch.schema_ref().fields() != schema.storage().fields();
            let has_other_columns = entry.batches.iter().any(is_other);
            let conformed = entry.batches.iter().map(|batch| schema.conform(batch));
            let batches = conformed
                .collect::<Result<Vec<_>>>()
                .map_err(|error| error.input_at(entry_name(shard_id, position)))?;
            Ok(PreparedRows { author, generation, txns: entry.txns, batches, has_other_columns })
        }
    }

    fn add(
        &mut self,
        position: WalPosition,
        rows: PreparedRows,
        current: Generation,
    ) -> Result<()> {
        self.author = rows.author.or(self.author);
        if rows.batches.is_empty() {
            return Ok(());
        }
        self.has_other_columns |= rows.has_other_columns;
        let newest = self.memtables.last().map(|replayed| replayed.memtable.generation());
        let generation = generation_of(self.shard_id, position, rows.generation, newest, current)?;
        if newest != Some(generation) {
            let layout = memtable_layout(&self.schema, self.index);
            let memtable = Arc::new(MemTable::new(generation, layout));
            let txns = Txns::default();
            let last_position = position;
            self.memtables.push(Replayed { memtable, last_position, txns, is_numbered: true });
        }
        let Some(replayed) = self.memtables.last_mut() else { return Ok(()) };
        for rows in rows.batches {
            let bytes = rows.memory_bytes();
            let batches = replayed.memtable.push(rows.batch, rows.keys, bytes);
            replayed.memtable.index_through(batches);
        }
        replayed.last_position = position;
        replayed.txns.merge(&rows.txns);
        replayed.is_numbered &= rows.generation.is_some();
        Ok(())
    }

    /// Drops generations below `current`, whose SSTables the manifest lists.
    pub fn forget_flushed(&mut self, current: Generation) {
        self.memtables.retain(|replayed| replayed.memtable.generation() >= current);
    }

    /// Whether [`Self::forget_flushed`] for `manifest` would drop rows that no flush covers. An
    /// entry that names no generation may have been replayed into an older generation than its
    /// writer's.
    pub(super) fn disagrees_with(&self, manifest: &ShardManifest) -> bool {
        self.memtables.iter().any(|replayed| {
            replayed.memtable.generation() < manifest.current_generation
                && replayed.last_position > manifest.replay_after_wal_entry_position
        })
    }

    /// A replay of the same shard that has read nothing yet.
    pub(super) fn emptied(self) -> Self {
        Self { memtables: Vec::new(), has_other_columns: false, author: None, ..self }
    }

    /// The epoch of the writer of the newest rows that were read.
    pub(super) const fn author(&self) -> Option<WriterEpoch> {
        self.author
    }

    /// Whether a row was written under other columns than the replay's: its writer may have
    /// followed newer columns.
    pub(super) const fn has_other_columns(&self) -> bool {
        self.has_other_columns
    }

    /// The same replay, which has read nothing yet, under `schema`.
    pub(super) fn under(self, schema: Arc<RowSchema>) -> Self {
        Self { schema, ..self.emptied() }
    }

    /// The rebuilt MemTables, oldest first.
    #[must_use]
    pub fn memtables(&self) -> &[Replayed] {
        &self.memtables
    }
}

/// The generation of an entry's rows: the `named` generation, else the `newest` so far, else
/// `current`.
///
/// # Errors
/// Damage where the generation is older than `newest`.
pub(super) fn generation_of(
    shard_id: ShardId,
    position: WalPosition,
    named: Option<Generation>,
    newest: Option<Generation>,
    current: Generation,
) -> Result<Generation> {
    let generation = named.or(newest).unwrap_or(current);
    match newest {
        Some(newest) if generation < newest => Err(Error::corrupt(
            entry_name(shard_id, position),
            "generation goes back",
            format!("expected generation {newest} or a later one, found {generation}"),
        )),
        _ => Ok(generation),
    }
}
