//! From WAL entries back to MemTables, for the writer that opens and for readers elsewhere.
//!
//! Owns: which entry belongs to which generation, and which are flushed already.
//! Does not own: reading the log, or appending anything: what was read is never written again.

use std::sync::Arc;

use super::memtable_layout;
use crate::format::RowSchema;
use crate::memtable::MemTable;
use crate::types::{Error, Generation, KeyIndexKind, Result, ShardId, WalPosition};
use crate::wal::PositionedEntry;

/// MemTables rebuilt from the log, grown entry by entry.
#[derive(Clone, Debug)]
pub struct Replay {
    shard_id: ShardId,
    schema: Arc<RowSchema>,
    index: KeyIndexKind,
    memtables: Vec<Replayed>,
}

/// A rebuilt MemTable and the last entry that went into it.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The rows of one generation.
    pub memtable: Arc<MemTable>,
    /// The newest entry with rows of this generation.
    pub last_position: WalPosition,
}

impl Replay {
    /// A replay of the shard `shard_id` whose table has the columns of `schema`.
    #[must_use]
    pub fn new(shard_id: ShardId, schema: Arc<RowSchema>) -> Self {
        Self { shard_id, schema, index: KeyIndexKind::default(), memtables: Vec::new() }
    }

    /// The same replay into MemTables with another key index.
    #[must_use]
    pub fn with_index(self, index: KeyIndexKind) -> Self {
        Self { index, ..self }
    }

    /// Adds the rows of `entry` unless a generation below `current` has them, which is flushed.
    ///
    /// # Errors
    /// Damage where the generations of the log go back; an input error where the rows no longer
    /// fit the table's columns.
    pub fn apply(&mut self, positioned: &PositionedEntry, current: Generation) -> Result<()> {
        let entry = &positioned.entry;
        if entry.batches.is_empty() || entry.generation.is_some_and(|g| g < current) {
            return Ok(());
        }
        let newest = self.memtables.last().map(|replayed| replayed.memtable.generation());
        let generation = entry.generation.or(newest).unwrap_or(current);
        if let Some(newest) = newest
            && generation < newest
        {
            return Err(Error::corrupt(
                format!("WAL entry {} of shard {}", positioned.position, self.shard_id),
                "generation goes back",
                format!("generation {generation} after {newest}"),
            ));
        }
        if newest != Some(generation) {
            let layout = memtable_layout(&self.schema, self.index);
            let memtable = Arc::new(MemTable::new(generation, layout));
            self.memtables.push(Replayed { memtable, last_position: positioned.position });
        }
        let Some(replayed) = self.memtables.last_mut() else { return Ok(()) };
        for batch in &entry.batches {
            let rows = self.schema.conform(batch)?;
            let bytes = rows.memory_bytes();
            let batches = replayed.memtable.push(rows.batch, rows.keys, bytes);
            replayed.memtable.index_through(batches);
        }
        replayed.last_position = positioned.position;
        Ok(())
    }

    /// Forgets generations below `current`: their flush is in the manifest.
    pub fn forget_flushed(&mut self, current: Generation) {
        self.memtables.retain(|replayed| replayed.memtable.generation() >= current);
    }

    /// The rebuilt MemTables, oldest first.
    #[must_use]
    pub fn memtables(&self) -> &[Replayed] {
        &self.memtables
    }
}
