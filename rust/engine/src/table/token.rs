//! A snapshot that another process pinned, pinned here.
//!
//! Owns: reading exactly the manifests, log positions and base version that a name says.
//! Does not own: the name (`snapshot`), or a new snapshot (`read`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::future::try_join_all;
use lancemem_core::format::RowSchema;
use lancemem_core::shard::Replay;
use lancemem_core::types::{Error, ErrorKind, Result};
use lancemem_core::wal::WalTail;

use super::Table;
use super::read::{ShardParts, Sources, views_of};
use crate::snapshot::{LogPart, ShardToken, Snapshot, SnapshotToken};

impl Table {
    /// Takes the snapshot of this name, which [`Snapshot::cut`] gave in this process or another. The
    /// newest one that was asked for stays open, for the next caller, until this handle collects.
    ///
    /// # Errors
    /// An input error where something that the snapshot consists of was removed since, or where the
    /// name is of another table.
    #[boxed]
    pub async fn snapshot_at(&self, name: &SnapshotToken) -> Result<Arc<Snapshot>> {
        if let Some((known, snapshot)) = &*self.token_snapshot.lock().await
            && known == name
        {
            return Ok(snapshot.clone());
        }
        let snapshot = self.pin_again(name).await.map_err(|error| self.gone(name, &error))?;
        *self.token_snapshot.lock().await = Some((name.clone(), snapshot.clone()));
        Ok(snapshot)
    }

    /// Lets go of the snapshot that was kept for a next caller: nobody may read it any more.
    pub(super) async fn forget_token_snapshot(&self) {
        *self.token_snapshot.lock().await = None;
    }

    async fn pin_again(&self, name: &SnapshotToken) -> Result<Arc<Snapshot>> {
        let base = self.base.version(name.base_version).await?;
        let parts = name.shards.iter().map(|shard| self.parts_of(shard, &base.schema.rows));
        let parts = try_join_all(parts).await?;
        self.snapshot_over(base, parts, Sources::All).await
    }

    async fn parts_of(&self, cut: &ShardToken, rows: &Arc<RowSchema>) -> Result<ShardParts> {
        let manifests = self.manifest_store(cut.shard_id);
        let manifest = Arc::new(manifests.at(cut.manifest_version).await?);
        let log = LogPart::Before(cut.log_end);
        let Some(end) = cut.log_end else {
            return Ok(ShardParts { manifest, memtables: Vec::new(), log, opening: None });
        };
        let current = manifest.current_generation;
        let covered = manifest.replay_after_wal_entry_position;
        let mut tail = WalTail::new(self.store.clone(), cut.shard_id, covered);
        let mut replay = Replay::new(cut.shard_id, rows.clone());
        replay.read_to(&mut tail, end, current).await?;
        Ok(ShardParts { manifest, memtables: views_of(&replay), log, opening: None })
    }

    /// Storage that may pass stays as it is; everything else means that the snapshot is gone.
    fn gone(&self, name: &SnapshotToken, error: &Error) -> Error {
        if error.kind() == ErrorKind::Retry {
            return Error::storage(format!("opening snapshot {name} of {}", self.uri()), error);
        }
        Error::input(format!(
            "snapshot {name} cannot be read any more, or is of another table than {}: {error}",
            self.uri()
        ))
    }
}
