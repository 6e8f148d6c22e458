//! A claim that takes turns with others, for calls that write one put.
//!
//! Owns: how long a claim of another process is left alone, and whether an entry whose writer was
//! fenced is in the log.
//! Does not own: repeating a write that was fenced, or the queue of one process (the caller's).
//!
//! A claim fences the claim before it. Two processes that claim for each put would go on fencing
//! each other before either has written. The log shows whether a claim has written: its rows are
//! there, or they are not. A claim whose rows are there is superseded without harm. A claim without
//! rows is waited for while it is young. Of the callers that wait, one compare-and-swap of the
//! manifest lets exactly one through.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::claim::Recovery;
use crate::format::{LogAddress, ShardManifest, paths, wal_entry};
use crate::store::{ManifestStore, Store};
use crate::types::{Error, ManifestVersion, MaxBytes, Result, ShardId, WalPosition, WriterEpoch};

/// Pause between two looks at a claim that is waited for, at first.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// The same pause later.
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// How long the short pause applies.
const SHORT_PHASE: Duration = Duration::from_millis(250);
/// Claims of other processes after which a waiting caller takes the shard from the next one: it has
/// lost each race by chance.
const PATIENCE: u64 = 32;

/// How a write of one put meets the claims of other processes.
#[derive(Clone, Copy, Debug)]
pub struct ClaimTurn {
    /// The newest claim of this process. It needs no wait: the writes of a process stand in one
    /// queue.
    pub claimed_here: Option<WriterEpoch>,
    /// Whether other processes claim the shard too. Then this process lets them go first after a
    /// turn of its own.
    pub crowded: bool,
    /// How long a claim without rows is left alone, from when it was made.
    pub grace: Duration,
    /// When the caller gives up.
    pub until: Instant,
    /// How long that is from the beginning of the call, for the error.
    pub limit: Duration,
    /// Whether a claim of another process is refused unless it is released: a job may hold it.
    pub only_released: bool,
}

/// The claim that is waited for.
#[derive(Clone, Copy)]
struct Incumbent {
    epoch: WriterEpoch,
    /// The newest version of the manifest that was looked at.
    version: ManifestVersion,
    /// When it was seen first.
    seen: Instant,
    /// When it is no longer young.
    old_at: Instant,
    /// Whether its rows are in the log, in the part that a flush has covered.
    flushed: bool,
}

impl ClaimTurn {
    /// Claims the shard once no claim of another process is in the way.
    ///
    /// # Errors
    /// Held where a claim of another process is not released and has to be. Crowded, of kind retry,
    /// where that takes longer than the caller waits; a storage error.
    pub(super) async fn claim(
        &self,
        store: &Store,
        manifests: &ManifestStore,
        recovery: &mut Recovery,
        change: impl Fn(&mut ShardManifest) -> Result<()> + Send + Sync,
    ) -> Result<Arc<ShardManifest>> {
        if self.crowded && self.claimed_here == Some(recovery.manifest().writer_epoch) {
            pause(2 * SHORT_PAUSE).await;
            recovery.follow(manifests).await?;
        }
        let mut incumbent = None;
        let mut claims = 0;
        loop {
            let epoch = recovery.manifest().writer_epoch;
            if self.only_released {
                recovery.manifest().check_released(self.claimed_here)?;
            }
            if claims > PATIENCE {
                return manifests.claim_with(&change).await;
            }
            let waits = if self.has_written(recovery) {
                false
            } else {
                let known = self.look_at(store, recovery.manifest(), incumbent).await?;
                let waits = known.waits();
                incumbent = Some(known);
                waits
            };
            if !waits {
                match manifests.claim_after(epoch, &change).await {
                    Err(Error::Fenced { .. }) => {}
                    claimed => return claimed,
                }
            }
            if Instant::now() >= self.until {
                let shard = recovery.manifest().shard_id;
                return Err(Error::Crowded { shard, seconds: self.limit.as_secs() });
            }
            pause(incumbent.as_ref().map_or(SHORT_PAUSE, Incumbent::pause)).await;
            recovery.follow(manifests).await?;
            claims += u64::from(recovery.manifest().writer_epoch != epoch);
        }
    }

    /// Refuses to supersede a claim that a running job of another process may hold, where this turn
    /// has to leave it alone. `claimed` has the epoch of our claim, and the entry of the claim below
    /// it. Part of the compare-and-swap of the claim.
    ///
    /// # Errors
    /// Held, which names the shard and the epoch.
    pub(super) fn check_released(&self, claimed: &ShardManifest) -> Result<()> {
        if !self.only_released {
            return Ok(());
        }
        let epoch = WriterEpoch(claimed.writer_epoch.get().saturating_sub(1));
        let released = claimed.released == Some(epoch);
        if released || epoch == WriterEpoch(0) || self.claimed_here == Some(epoch) {
            return Ok(());
        }
        Err(Error::Held { shard: claimed.shard_id, epoch })
    }

    /// Whether a claim of ours would stop no write of the newest claim.
    fn has_written(&self, recovery: &Recovery) -> bool {
        let epoch = recovery.manifest().writer_epoch;
        epoch == WriterEpoch(0)
            || self.claimed_here == Some(epoch)
            || recovery.author() == Some(epoch)
    }

    /// Looks at a claim whose rows are not in the part of the log that a replay reads; `known` is
    /// the result of the last look.
    async fn look_at(
        &self,
        store: &Store,
        manifest: &ShardManifest,
        known: Option<Incumbent>,
    ) -> Result<Incumbent> {
        let (shard_id, epoch, version) =
            (manifest.shard_id, manifest.writer_epoch, manifest.version);
        let known = known.filter(|known| known.epoch == epoch);
        if let Some(known) = known
            && known.version == version
        {
            return Ok(known);
        }
        let now = Instant::now();
        let age = store.age_of(&paths::manifest(shard_id, manifest.version)).await?;
        let left = self.grace.saturating_sub(age.unwrap_or_default());
        let position = manifest.replay_after_wal_entry_position;
        let covered = PlannedEntry { shard_id, position, epoch };
        // The covered entry is no part of the log any more, and may be damaged.
        let flushed = !left.is_zero()
            && position > WalPosition(0)
            && matches!(covered.standing(store).await, Ok(EntryStanding::Written));
        // A version that the same claim writes later does not make it younger.
        let (seen, old_at) = known.map_or((now, now + left), |known| (known.seen, known.old_at));
        Ok(Incumbent { epoch, version, seen, old_at, flushed })
    }
}

impl Incumbent {
    fn waits(&self) -> bool {
        !self.flushed && Instant::now() < self.old_at
    }

    fn pause(&self) -> Duration {
        if self.seen.elapsed() < SHORT_PHASE { SHORT_PAUSE } else { LONG_PAUSE }
    }
}

/// Sleeps for a random time up to `most` (jitter), so that callers that wait for the same claim
/// spread out.
async fn pause(most: Duration) {
    let most_us = u64::try_from(most.as_micros()).unwrap_or(u64::MAX).max(1);
    // Forked children inherit the random keys of their parent, so the process id is hashed too.
    let drawn = RandomState::new().hash_one((std::process::id(), std::time::Instant::now()));
    #[expect(
        clippy::disallowed_methods,
        reason = "the pause is the point, and what it decides is right either way"
    )]
    tokio::time::sleep(Duration::from_micros(1 + drawn % most_us)).await;
}

/// The place of an entry that a writer was about to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedEntry {
    /// The shard.
    pub shard_id: ShardId,
    /// The position.
    pub position: WalPosition,
    /// The epoch of the writer.
    pub epoch: WriterEpoch,
}

/// What became of a planned entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryStanding {
    /// It is in the log.
    Written,
    /// Another entry has its position, so it is not in the log and never will be.
    Lost,
    /// No entry has its position: it may still come, or a collector removed it.
    Absent,
}

impl PlannedEntry {
    /// What became of the entry. A position is written once, so `Written` and `Lost` stay true as
    /// long as no collector removes entries: for a day at least.
    ///
    /// An entry that is there is a part of the log: it stands behind the fence of its writer, with
    /// no gap between the two, and a successor's fence is behind it.
    ///
    /// # Errors
    /// A storage error; damage of what stands there.
    pub async fn standing(&self, store: &Store) -> Result<EntryStanding> {
        let found = self.look(store).await?;
        if found == EntryStanding::Written {
            // The attempt that wrote it may have failed before it was on disk.
            store.make_durable(&paths::wal_entry(self.shard_id, self.position)).await?;
        }
        Ok(found)
    }

    /// Whether the log has the entry, whose writer has made it durable before.
    ///
    /// # Errors
    /// As [`Self::standing`].
    pub async fn is_stored(&self, store: &Store) -> Result<bool> {
        Ok(self.look(store).await? == EntryStanding::Written)
    }

    async fn look(&self, store: &Store) -> Result<EntryStanding> {
        let path = paths::wal_entry(self.shard_id, self.position);
        let Some(bytes) = store.get(&path, MaxBytes::LOG_ENTRY).await? else {
            return Ok(EntryStanding::Absent);
        };
        let place = LogAddress { shard_id: self.shard_id, position: self.position };
        let entry = wal_entry::decode_at(&bytes, place)?;
        if entry.writer_epoch != self.epoch || entry.batches.is_empty() {
            return Ok(EntryStanding::Lost);
        }
        Ok(EntryStanding::Written)
    }
}
