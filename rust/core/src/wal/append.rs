//! Appending entries as the owner of a shard.
//!
//! Owns: the next position, retries, and the distinction of a lost answer from a lost shard.
//! Does not own: which rows share an entry.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::future::join;

use super::highest_position;
use crate::format::{LogAddress, ShardManifest, paths, wal_entry};
use crate::store::{Backoff, Created, ManifestStore, Moment, Store};
use crate::types::{
    Error, Generation, MaxBytes, Result, ShardId, Txns, WalPosition, WriterConfig, WriterEpoch,
};

const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Attempts at one position of a sentinel that met a conflict and left nothing.
const MAX_CONFLICTS: usize = 16;
/// An append is acknowledged only with a proof of ownership that is younger than this.
///
/// A writer is fenced by the sentinel in the slot of its next entry, and a collector removes
/// sentinels after a week: a writer that slept longer would find that slot free.
const PROVEN: Duration = Duration::from_hours(24);
/// How often a writer that appends checks whether the shard was claimed, also after an append that
/// took this long. A claim tries its sentinel at one position after the other. A writer that
/// appends faster would otherwise learn of the claim only from its next flush.
const ASKED: Duration = Duration::from_secs(10);
const CONFLICT: &str = "the store reports a write conflict, and no object exists there";

/// The single appender of a claimed shard.
#[derive(Debug)]
pub struct WalAppender {
    store: Store,
    manifests: Arc<ManifestStore>,
    shard_id: ShardId,
    epoch: WriterEpoch,
    sentinel: WalPosition,
    next: WalPosition,
    /// A time at which no later claim existed.
    proven: Moment,
    /// When the writer last checked whether there is one.
    asked: Moment,
    /// For each entry.
    backoff: Backoff,
}

impl WalAppender {
    /// Takes the log for the claim `manifest`: writes a sentinel behind the last entry, so that
    /// the next append of a predecessor collides with it, then proves that the epoch is ours.
    ///
    /// # Errors
    /// Fenced where a later claim took the shard meanwhile; the log stays as that claim left it.
    pub async fn fence(
        store: Store,
        manifests: Arc<ManifestStore>,
        manifest: &ShardManifest,
        config: &WriterConfig,
    ) -> Result<Self> {
        let (shard_id, epoch) = (manifest.shard_id, manifest.writer_epoch);
        let covered = manifest.replay_after_wal_entry_position;
        let last = last_used(highest_position(&store, shard_id).await?, covered);
        // Checked after the listing: the sentinel of a later claim cannot stand at or before
        // `last`, so the walk below meets it before it could write behind it.
        manifests.check_fenced(epoch).await?;
        let sentinel = write_sentinel(&store, shard_id, epoch, last.next()).await?;
        let proven = Moment::now();
        manifests.check_fenced(epoch).await?;
        Ok(Self {
            store,
            manifests,
            shard_id,
            epoch,
            sentinel,
            next: behind(sentinel),
            proven,
            asked: proven,
            backoff: Backoff::exponential(
                config.max_wal_persist_retries.saturating_add(1),
                config.wal_persist_retry_base_delay,
                MAX_PAUSE,
            ),
        })
    }

    /// Where our fence stands: a predecessor's entries are all before it.
    #[must_use]
    pub const fn sentinel(&self) -> WalPosition {
        self.sentinel
    }

    /// Makes `batches`, and with them `txns`, durable as one entry and returns its position.
    ///
    /// # Errors
    /// Fenced where the position belongs to a successor, or where this call learned that the shard
    /// was claimed: the entry may exist, and is not acknowledged. Poisoned where the storage went
    /// on failing: the entry may exist too, so the caller must stop rather than write it again.
    pub async fn append(
        &mut self,
        batches: &[RecordBatch],
        generation: Generation,
        txns: &Txns,
    ) -> Result<WalPosition> {
        let place = LogAddress { shard_id: self.shard_id, position: self.next };
        let bytes = wal_entry::encode_with_txns(batches, place, self.epoch, generation, txns)?;
        let begun = Moment::now();
        let appended = if is_recent(self.asked, ASKED) {
            self.append_entry(bytes).await
        } else {
            self.asked = begun;
            let (manifests, epoch) = (self.manifests.clone(), self.epoch);
            // At the same time, so that the check costs no round trip of its own.
            let (appended, answer) =
                join(self.append_entry(bytes), manifests.check_fenced(epoch)).await;
            refuse_fenced(answer)?;
            appended
        };
        let position = appended?;
        if !is_recent(begun, ASKED) {
            self.asked = Moment::now();
            refuse_fenced(self.manifests.check_fenced(self.epoch).await)?;
        }
        Ok(position)
    }

    async fn append_entry(&mut self, bytes: Bytes) -> Result<WalPosition> {
        let path = paths::wal_entry(self.shard_id, self.next);
        let mut backoff = self.backoff.clone();
        loop {
            let error = match self.attempt(&path, &bytes).await {
                Ok(()) => match self.prove_owned().await {
                    Ok(()) => return Ok(self.advance()),
                    Err(fenced @ Error::Fenced { .. }) => return Err(fenced),
                    Err(error) => error,
                },
                Err(error @ (Error::Fenced { .. } | Error::Poisoned { .. })) => return Err(error),
                Err(error) => error,
            };
            // In an outage this check fails too, which proves nothing about the shard.
            if let Err(fenced @ Error::Fenced { .. }) =
                self.manifests.check_fenced(self.epoch).await
            {
                return Err(fenced);
            }
            if backoff.is_last() {
                let retries = backoff.attempt() - 1;
                let reason = format!("{error}, after {retries} retries");
                return Err(self.poisoned(&reason).with_source(error));
            }
            backoff.wait().await;
        }
    }

    /// Puts the entry. Where an object stands there already, decides whose it is: ours, after an
    /// answer that this process or the storage client lost, or a successor's.
    async fn attempt(&self, path: &str, bytes: &Bytes) -> Result<()> {
        match self.store.put_if_absent_here(path, bytes.clone()).await? {
            Some(Created::Yes) => return Ok(()),
            Some(Created::AlreadyExists) => {}
            // The folder held our sentinel. A new folder would belong to no table, or to another
            // one.
            None => {
                return Err(self.poisoned("the WAL folder is gone, and the table with it"));
            }
        }
        let stored = self.store.get(path, MaxBytes::LOG_ENTRY).await?;
        if is_ours(stored.as_ref(), bytes) {
            // The attempt that wrote it failed, maybe before it was on disk.
            return self.store.make_durable(path).await;
        }
        if is_free(stored.as_ref()) {
            return Err(Error::storage(format!("creating {path}"), CONFLICT));
        }
        self.manifests.check_fenced(self.epoch).await?;
        Err(self.poisoned("another entry with the same writer epoch stands at this position"))
    }

    /// After the put and not before it: a claim in between has put its sentinel or will.
    async fn prove_owned(&mut self) -> Result<()> {
        // Again where the machine was suspended while it asked.
        while !is_recent(self.proven, PROVEN) {
            let asked = Moment::now();
            self.manifests.forget();
            self.manifests.check_fenced(self.epoch).await?;
            self.proven = asked;
        }
        Ok(())
    }

    fn advance(&mut self) -> WalPosition {
        let position = self.next;
        self.next = position.next();
        position
    }

    fn poisoned(&self, reason: &str) -> Error {
        let entry = self.next;
        let reason = format!("WAL entry {entry} could not be made durable: {reason}");
        Error::poisoned(self.shard_id, reason)
    }
}

/// The last position that is used up. Entries that a flush has covered may be gone, their positions
/// are used up all the same.
fn last_used(highest: WalPosition, covered: WalPosition) -> WalPosition {
    if mutant!("B2") { highest } else { highest.max(covered) }
}

/// The position of the first entry of the job whose claim wrote `sentinel`.
fn behind(sentinel: WalPosition) -> WalPosition {
    if mutant!("B7") { sentinel } else { sentinel.next() }
}

/// Whether `moment` was less than `limit` ago, so that what was asked then still counts.
fn is_recent(moment: Moment, limit: Duration) -> bool {
    moment.age() < limit || mutant!("B1")
}

/// Whether the object in a slot is our entry. Equal bytes are proof: they carry our epoch, and an
/// epoch has one appender.
fn is_ours(stored: Option<&Bytes>, entry: &Bytes) -> bool {
    stored == Some(entry) && !mutant!("B5")
}

/// Whether a slot whose entry could not be created is free all the same. S3 answers 409 where two
/// writes met, and either may have failed.
fn is_free(stored: Option<&Bytes>) -> bool {
    stored.is_none() && !mutant!("B6")
}

/// Refuses to acknowledge an entry once its writer has learned of a later claim. The entry usually
/// stands before the fence of that claim, and a successor then reads it; but only the fence proves
/// that, and a collector whose clock is wrong may have removed the fence. Where the storage did not
/// answer, the entry counts: a fence that stands would have refused it.
fn refuse_fenced(answer: Result<()>) -> Result<()> {
    match answer {
        Err(fenced @ Error::Fenced { .. }) => Err(fenced),
        _ => Ok(()),
    }
}

/// Puts the sentinel of `epoch` at the first free position from `next` on and returns it.
///
/// A predecessor may append until the sentinel stands; each such entry moves it by one.
async fn write_sentinel(
    store: &Store,
    shard_id: ShardId,
    epoch: WriterEpoch,
    mut next: WalPosition,
) -> Result<WalPosition> {
    let mut conflicts = 0;
    loop {
        let place = LogAddress { shard_id, position: next };
        let sentinel = wal_entry::encode_sentinel(place, epoch)?;
        let path = paths::wal_entry(shard_id, next);
        if put_sentinel(store, &path, sentinel.clone()).await? == Created::Yes {
            return Ok(next);
        }
        let Some(bytes) = store.get(&path, MaxBytes::LOG_ENTRY).await? else {
            next = after_conflict(next);
            conflicts += 1;
            if conflicts == MAX_CONFLICTS {
                return Err(Error::storage(format!("creating {path}"), CONFLICT));
            }
            continue;
        };
        if bytes == sentinel {
            return Ok(next);
        }
        let stored = wal_entry::decode_at(&bytes, place)?.writer_epoch;
        if stored > epoch {
            return Err(Error::Fenced { shard: shard_id, local: epoch, stored });
        }
        next = next.next();
    }
}

async fn put_sentinel(store: &Store, path: &str, sentinel: Bytes) -> Result<Created> {
    if mutant!("B7") {
        return Ok(Created::Yes);
    }
    store.put_if_absent(path, sentinel).await
}

/// The position to try after a 409 with nothing behind it, where two writes met and neither
/// happened: the same one. The next one would leave a hole.
fn after_conflict(position: WalPosition) -> WalPosition {
    if mutant!("L1") { position.next() } else { position }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lancemem_testkit::{Effect, Fault, FaultyStore, Gate, KeyShape, Request};

    use super::*;

    const SHARD: ShardId = ShardId::from_u128(7);

    async fn appender(store: &Store) -> WalAppender {
        let manifests = Arc::new(ManifestStore::new(store.clone(), SHARD, 2));
        manifests.initialize(1, BTreeMap::new()).await.unwrap();
        let manifest = manifests.claim().await.unwrap();
        let config =
            WriterConfig::default().with_wal_persist_retry_base_delay(Duration::from_millis(1));
        WalAppender::fence(store.clone(), manifests, &manifest, &config).await.unwrap()
    }

    async fn append(appender: &mut WalAppender) -> Result<WalPosition> {
        let rows = KeyShape::Int64.rows(&[(1, 10)]);
        appender.append(&[rows], Generation(1), &Txns::default()).await
    }

    fn assert_fenced(appended: Result<WalPosition>) {
        let error = appended.unwrap_err();
        assert!(matches!(error, Error::Fenced { .. }), "{error}");
    }

    /// Another process claims the shard, and its fence is removed before it should be.
    async fn claimed_without_a_fence(store: &Store) {
        ManifestStore::new(store.clone(), SHARD, 2).claim().await.unwrap();
    }

    #[tokio::test]
    async fn an_append_that_meets_no_fence_and_learns_of_a_claim_is_not_acknowledged() {
        let storage = Arc::new(FaultyStore::default());
        let store = Store::new(storage, "table".into());
        let mut old = appender(&store).await;
        append(&mut old).await.unwrap();
        claimed_without_a_fence(&store).await;
        old.asked = old.asked.before_a_sleep_of(ASKED);
        let place = paths::wal_entry(SHARD, old.next);
        assert_fenced(append(&mut old).await);
        assert!(store.exists(&place).await.unwrap(), "no fence stood in its way");
    }

    #[tokio::test]
    async fn an_append_whose_question_gets_no_answer_is_acknowledged() {
        let storage = Arc::new(FaultyStore::default());
        let store = Store::new(storage.clone(), "table".into());
        let mut owner = appender(&store).await;
        owner.asked = owner.asked.before_a_sleep_of(ASKED);
        storage.inject(Fault::new(Request::Get, "manifest", Effect::Refuse).for_ever());
        append(&mut owner).await.unwrap();
    }

    #[tokio::test]
    async fn an_append_whose_answer_is_lost_after_a_claim_is_not_acknowledged() {
        let storage = Arc::new(FaultyStore::default());
        let store = Store::new(storage.clone(), "table".into());
        let mut old = appender(&store).await;
        let hold = Arc::new(Gate::default());
        storage.inject(Fault::new(Request::Put, "/wal/", Effect::LoseAnswer));
        storage.inject(Fault::new(Request::Get, "manifest", Effect::Hold(hold.clone())));
        let appending = tokio::spawn(async move { append(&mut old).await });
        hold.wait_for_visitors(1).await;
        claimed_without_a_fence(&store).await;
        hold.open();
        assert_fenced(appending.await.unwrap());
    }
}
