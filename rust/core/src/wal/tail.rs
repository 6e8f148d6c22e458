//! Reading entries in order, with nothing skipped.
//!
//! Owns: the incremental read of a shard's log, by its owner and by any other process.
//! Does not own: the decision which generations are flushed already, or the use of the rows.

use bytes::Bytes;

use super::entry_name;
use super::read_ahead::{READ_AHEAD, ReadAhead};
use crate::format::{LogAddress, WalEntry, paths, wal_entry};
use crate::store::Store;
use crate::types::{Error, ErrorKind, Result, ShardId, WalPosition, WriterEpoch};

/// A reader's place in a shard's log.
#[derive(Clone, Debug)]
pub struct WalTail {
    store: Store,
    shard_id: ShardId,
    next: WalPosition,
    newest_epoch: WriterEpoch,
    /// Whether a listing has shown that no entry stands behind the first gap.
    gap_checked: bool,
}

/// An entry that is there, and what the caller made of it.
struct Loaded<T> {
    writer_epoch: WriterEpoch,
    is_fence_of_lance: bool,
    prepared: T,
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

    /// The position behind the last entry that was read.
    #[must_use]
    pub const fn next(&self) -> WalPosition {
        self.next
    }

    /// Whether a listing has shown once where the log ends. A later read asks for the next entry
    /// only. Its absence has two possible causes: it was never written, or it was collected.
    #[must_use]
    pub const fn was_listed(&self) -> bool {
        self.gap_checked
    }

    /// The last entry of the shard's log as a listing shows it, for [`Self::read_listed`].
    ///
    /// # Errors
    /// A storage error.
    pub async fn last_entry(&self) -> Result<WalPosition> {
        highest_position(&self.store, self.shard_id).await
    }

    /// Goes on behind `covered`, if this tail is not that far: an SSTable has the rows that are
    /// skipped.
    pub fn skip_covered(&mut self, covered: WalPosition) {
        self.next = self.next.max(covered.next());
    }

    /// Reads every entry that is there now: `prepare` runs for many at once, on tasks of their
    /// own; `take` gets what it returned, in order, here.
    ///
    /// # Errors
    /// Damage where an entry is missing below a later one, cannot be read, or carries an older
    /// epoch than one before it; what `prepare` and `take` refuse. Nothing is skipped: the tail
    /// stays before that entry.
    pub async fn read_new<T, P>(
        &mut self,
        prepare: P,
        mut take: impl FnMut(WalPosition, T) -> Result<()>,
    ) -> Result<()>
    where
        T: Send + 'static,
        P: Fn(WalPosition, WalEntry) -> Result<T> + Clone + Send + 'static,
    {
        // Most polls find nothing.
        if self.gap_checked && self.store.shows_absent(&paths::wal_entry(self.shard_id, self.next))
        {
            return Ok(());
        }
        let load = self.load(prepare);
        let mut ahead = ReadAhead::new(self.store.clone(), self.shard_id, self.next, load);
        // A reader that polls asks for one entry, and for more only where that one is there.
        let mut width = if self.gap_checked { 1 } else { READ_AHEAD };
        loop {
            ahead.fill(width, WalPosition(u64::MAX));
            let Some((position, loaded)) = ahead.next().await else { break };
            let Some(loaded) = loaded? else { break };
            self.take(position, loaded, &mut take)?;
            width = READ_AHEAD;
        }
        // What runs ahead of the gap was asked for already: an entry there makes it a hole,
        // whatever its own state is.
        let mut later = None;
        while let Some((position, loaded)) = ahead.next().await {
            let there = match loaded {
                Err(error) if error.kind() == ErrorKind::Retry => return Err(error),
                loaded => !matches!(loaded, Ok(None)),
            };
            later = later.or_else(|| there.then_some(position));
        }
        if mutant!("B19-hole") {
            return Ok(());
        }
        if let Some(later) = later {
            self.refuse_hole(later).await?;
        }
        if !self.gap_checked {
            let highest = highest_position(&self.store, self.shard_id).await?;
            if highest >= self.next {
                self.refuse_hole(highest).await?;
            }
            self.gap_checked = true;
        }
        Ok(())
    }

    /// Reads every entry below `end`, which a writer has found to be used up: each one that is
    /// absent is a hole, and nothing behind `end` is looked at.
    ///
    /// # Errors
    /// As [`Self::read_new`].
    pub async fn read_to<T, P>(
        &mut self,
        end: WalPosition,
        prepare: P,
        take: impl FnMut(WalPosition, T) -> Result<()>,
    ) -> Result<()>
    where
        T: Send + 'static,
        P: Fn(WalPosition, WalEntry) -> Result<T> + Clone + Send + 'static,
    {
        self.read_below(end, end, prepare, take).await
    }

    /// Reads every entry through `last`, which [`Self::last_entry`] returned: each one that is
    /// absent is a hole. Entries that were appended after the listing are left to the next read.
    /// With the end given, the read requests nothing behind it and needs no second listing.
    ///
    /// # Errors
    /// As [`Self::read_new`].
    pub async fn read_listed<T, P>(
        &mut self,
        last: WalPosition,
        prepare: P,
        take: impl FnMut(WalPosition, T) -> Result<()>,
    ) -> Result<()>
    where
        T: Send + 'static,
        P: Fn(WalPosition, WalEntry) -> Result<T> + Clone + Send + 'static,
    {
        self.read_below(last.next(), last, prepare, take).await?;
        self.gap_checked = true;
        Ok(())
    }

    /// Reads every entry below `end`; `later` is one that exists.
    async fn read_below<T, P>(
        &mut self,
        end: WalPosition,
        later: WalPosition,
        prepare: P,
        mut take: impl FnMut(WalPosition, T) -> Result<()>,
    ) -> Result<()>
    where
        T: Send + 'static,
        P: Fn(WalPosition, WalEntry) -> Result<T> + Clone + Send + 'static,
    {
        let load = self.load(prepare);
        let mut ahead = ReadAhead::new(self.store.clone(), self.shard_id, self.next, load);
        loop {
            ahead.fill(READ_AHEAD, end);
            let Some((position, loaded)) = ahead.next().await else { return Ok(()) };
            let loaded = loaded?.ok_or_else(|| self.hole(position, later))?;
            self.take(position, loaded, &mut take)?;
        }
    }

    /// What a task of the read-ahead does with the bytes that it found.
    fn load<T, P>(
        &self,
        prepare: P,
    ) -> impl Fn(WalPosition, Option<Bytes>) -> Result<Option<Loaded<T>>>
    + Clone
    + Send
    + 'static
    + use<T, P>
    where
        P: Fn(WalPosition, WalEntry) -> Result<T> + Clone + Send + 'static,
    {
        let shard_id = self.shard_id;
        move |position, bytes| {
            let Some(bytes) = bytes else { return Ok(None) };
            let entry = wal_entry::decode_at(&bytes, LogAddress { shard_id, position })?;
            let (writer_epoch, is_fence_of_lance) = (entry.writer_epoch, entry.is_fence_of_lance());
            let prepared = prepare(position, entry)?;
            Ok(Some(Loaded { writer_epoch, is_fence_of_lance, prepared }))
        }
    }

    fn take<T>(
        &mut self,
        position: WalPosition,
        loaded: Loaded<T>,
        take: &mut impl FnMut(WalPosition, T) -> Result<()>,
    ) -> Result<()> {
        let Loaded { writer_epoch, is_fence_of_lance, prepared } = loaded;
        if !is_fence_of_lance {
            check_epoch(self.shard_id, position, writer_epoch, self.newest_epoch)?;
        }
        take(position, prepared)?;
        self.newest_epoch = self.newest_epoch.max(writer_epoch);
        self.next = position.next();
        Ok(())
    }

    /// A writer appends in order, so the gap may have been filled since it was read.
    async fn refuse_hole(&self, later: WalPosition) -> Result<()> {
        if self.store.exists(&paths::wal_entry(self.shard_id, self.next)).await? {
            return Ok(());
        }
        Err(self.hole(self.next, later))
    }

    fn hole(&self, position: WalPosition, later: WalPosition) -> Error {
        Error::corrupt(
            entry_name(self.shard_id, position),
            "hole",
            format!("it is missing although entry {later} exists"),
        )
    }
}

/// Refuses an entry of an older epoch than an entry before it: its writer was fenced already.
pub fn check_epoch(
    shard_id: ShardId,
    position: WalPosition,
    epoch: WriterEpoch,
    newest: WriterEpoch,
) -> Result<()> {
    if epoch >= newest {
        return Ok(());
    }
    Err(Error::corrupt(
        entry_name(shard_id, position),
        "epoch goes back",
        format!("writer epoch {epoch} follows epoch {newest}"),
    ))
}

/// The highest position in the log by listing; 0 for an empty log.
pub async fn highest_position(store: &Store, shard_id: ShardId) -> Result<WalPosition> {
    let files = store.list_files(&paths::wal(shard_id)).await?;
    Ok(files.iter().filter_map(|name| paths::parse_wal_entry(name)).max().unwrap_or_default())
}
