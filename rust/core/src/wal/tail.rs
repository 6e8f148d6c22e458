//! Reading entries in order, with nothing skipped.
//!
//! Owns: the incremental read of a shard's log by anybody, owner or not.
//! Does not own: the decision which generations are flushed already.

use std::sync::Arc;

use futures::future::try_join_all;

use crate::format::{WalEntry, paths, wal_entry};
use crate::store::Store;
use crate::types::{Error, Result, ShardId, WalPosition, WriterEpoch};

const READ_AHEAD: u64 = 16;

/// An entry and where it stands.
#[derive(Clone, Debug)]
pub struct PositionedEntry {
    /// The position.
    pub position: WalPosition,
    /// The decoded entry.
    pub entry: Arc<WalEntry>,
}

/// A reader's place in a shard's log.
#[derive(Clone, Debug)]
pub struct WalTail {
    store: Store,
    shard_id: ShardId,
    next: WalPosition,
    newest_epoch: WriterEpoch,
    /// Whether a listing has shown that nothing stands behind the first gap.
    gap_checked: bool,
}

impl WalTail {
    /// A tail that starts behind the entry `after`.
    #[must_use]
    pub const fn new(store: Store, shard_id: ShardId, after: WalPosition) -> Self {
        Self {
            store,
            shard_id,
            next: after.next(),
            newest_epoch: WriterEpoch(0),
            gap_checked: false,
        }
    }

    /// The position that the next read starts at.
    #[must_use]
    pub const fn next_position(&self) -> WalPosition {
        self.next
    }

    /// Reads every entry that is there now, in order.
    ///
    /// # Errors
    /// Damage where an entry is missing below a later one, cannot be read, or carries an older
    /// epoch than one before it. Nothing is skipped: the tail stays before the damage.
    pub async fn read_new(&mut self) -> Result<Vec<PositionedEntry>> {
        let mut entries = Vec::new();
        let mut window = if self.gap_checked { 1 } else { READ_AHEAD };
        loop {
            let found = self.read_window(window).await?;
            let complete = found.len() as u64 == window;
            for (position, entry) in found {
                self.check_epoch(position, entry.writer_epoch)?;
                self.next = position.next();
                entries.push(PositionedEntry { position, entry: Arc::new(entry) });
            }
            if !complete {
                break;
            }
            window = READ_AHEAD;
        }
        if !self.gap_checked {
            self.refuse_hole().await?;
            self.gap_checked = true;
        }
        Ok(entries)
    }

    /// The entries from `next` on, up to the first that is absent, at most `window`.
    async fn read_window(&self, window: u64) -> Result<Vec<(WalPosition, WalEntry)>> {
        let reads = (0..window).map(|offset| {
            let position = WalPosition(self.next.get() + offset);
            async move {
                let path = paths::wal_entry(self.shard_id, position);
                let Some(bytes) = self.store.get(&path).await? else { return Ok(None) };
                let what = format!("WAL entry {position} of shard {}", self.shard_id);
                wal_entry::decode(&bytes, &what).map(|entry| Some((position, entry)))
            }
        });
        let read = try_join_all(reads).await?;
        let end = read.iter().position(Option::is_none).unwrap_or(read.len());
        if let Some(Some((position, _))) = read.iter().skip(end).find(|entry| entry.is_some()) {
            // A writer appends in order, so the gap may have been filled since we looked.
            let gap = WalPosition(self.next.get() + end as u64);
            if !self.store.exists(&paths::wal_entry(self.shard_id, gap)).await? {
                return Err(self.hole(gap, *position));
            }
        }
        Ok(read.into_iter().map_while(|entry| entry).collect())
    }

    async fn refuse_hole(&self) -> Result<()> {
        let highest = highest_position(&self.store, self.shard_id).await?;
        if highest >= self.next
            && !self.store.exists(&paths::wal_entry(self.shard_id, self.next)).await?
        {
            return Err(self.hole(self.next, highest));
        }
        Ok(())
    }

    fn check_epoch(&mut self, position: WalPosition, epoch: WriterEpoch) -> Result<()> {
        if epoch < self.newest_epoch {
            return Err(Error::corrupt(
                format!("WAL entry {position} of shard {}", self.shard_id),
                "epoch goes back",
                format!("epoch {epoch} after {}", self.newest_epoch),
            ));
        }
        self.newest_epoch = epoch;
        Ok(())
    }

    fn hole(&self, position: WalPosition, later: WalPosition) -> Error {
        Error::corrupt(
            format!("WAL entry {position} of shard {}", self.shard_id),
            "hole",
            format!("it is missing although entry {later} exists"),
        )
    }
}

/// The highest position in the log by listing; 0 for an empty log.
pub(super) async fn highest_position(store: &Store, shard_id: ShardId) -> Result<WalPosition> {
    let files = store.list_files(&paths::wal(shard_id)).await?;
    Ok(files.iter().filter_map(|name| paths::parse_wal_entry(name)).max().unwrap_or_default())
}
