//! Appending entries as the owner of a shard.
//!
//! Owns: the next position, retries, and telling a lost answer from a lost shard.
//! Does not own: which rows share an entry.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;

use super::tail::highest_position;
use crate::format::{paths, wal_entry};
use crate::store::{Created, ManifestStore, Store};
use crate::types::{Error, Generation, Result, ShardId, WalPosition, WriterConfig, WriterEpoch};

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The single appender of a claimed shard.
#[derive(Debug)]
pub struct WalAppender {
    store: Store,
    manifests: Arc<ManifestStore>,
    shard_id: ShardId,
    epoch: WriterEpoch,
    next: WalPosition,
    retries: usize,
    first_pause: Duration,
}

impl WalAppender {
    /// Takes the log for `epoch`: writes a sentinel behind the last entry, so that the next
    /// append of a predecessor collides with it, then proves that the epoch is still ours.
    ///
    /// # Errors
    /// Fenced where a later claim took the shard meanwhile.
    pub async fn fence(
        store: Store,
        manifests: Arc<ManifestStore>,
        shard_id: ShardId,
        epoch: WriterEpoch,
        config: &WriterConfig,
    ) -> Result<Self> {
        let sentinel = wal_entry::encode_sentinel(epoch)?;
        let mut next = highest_position(&store, shard_id).await?.next();
        // A predecessor may append until the sentinel stands; each such entry moves it by one.
        while store.put_if_absent(&paths::wal_entry(shard_id, next), sentinel.clone()).await?
            == Created::AlreadyExists
        {
            next = next.next();
        }
        manifests.check_fenced(epoch).await?;
        Ok(Self {
            store,
            manifests,
            shard_id,
            epoch,
            next: next.next(),
            retries: config.max_wal_persist_retries,
            first_pause: config.wal_persist_retry_base_delay,
        })
    }

    /// The position that the next entry gets.
    #[must_use]
    pub const fn next_position(&self) -> WalPosition {
        self.next
    }

    /// Makes `batches` durable as one entry and returns its position.
    ///
    /// # Errors
    /// Fenced where the position belongs to a successor. Poisoned where the storage went on
    /// failing: the entry may exist, so the caller must stop rather than write it again.
    pub async fn append(
        &mut self,
        batches: &[RecordBatch],
        generation: Generation,
    ) -> Result<WalPosition> {
        let bytes = wal_entry::encode(batches, self.epoch, generation)?;
        let path = paths::wal_entry(self.shard_id, self.next);
        let mut pause = self.first_pause;
        for attempt in 0..=self.retries {
            match self.store.put_if_absent(&path, bytes.clone()).await {
                Ok(Created::Yes) => return Ok(self.advance()),
                Ok(Created::AlreadyExists) => return self.settle(&path, &bytes, attempt).await,
                Err(error) => {
                    self.manifests.check_fenced(self.epoch).await?;
                    if attempt == self.retries {
                        return Err(self.poisoned(&format!("{error}, {attempt} retries")));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        Err(self.poisoned("no attempt was made"))
    }

    /// Decides whose entry stands at our position: ours, after a lost answer, or a successor's.
    ///
    /// Equal bytes are proof: they carry our epoch, and an epoch has one appender.
    async fn settle(
        &mut self,
        path: &str,
        bytes: &Bytes,
        earlier_attempts: usize,
    ) -> Result<WalPosition> {
        if earlier_attempts > 0 && self.store.get(path).await?.as_ref() == Some(bytes) {
            return Ok(self.advance());
        }
        self.manifests.check_fenced(self.epoch).await?;
        Err(self.poisoned("its next WAL position holds a foreign entry under the same epoch"))
    }

    fn advance(&mut self) -> WalPosition {
        let position = self.next;
        self.next = position.next();
        position
    }

    fn poisoned(&self, reason: &str) -> Error {
        Error::Poisoned {
            shard: self.shard_id,
            reason: format!("WAL entry {} could not be made durable: {reason}", self.next),
        }
    }
}
