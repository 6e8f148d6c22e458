//! Opens the snapshot of a token, which may be another process's.
//!
//! Owns: reading exactly the manifests, log positions and base version that the token names.
//! Does not own: the token (`snapshot`), or a new snapshot (`gather`).

use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use futures::future::try_join_all;
use lancemem_core::format::RowSchema;
use lancemem_core::shard::Replay;
use lancemem_core::types::{Error, ErrorKind, Result};
use lancemem_core::wal::WalTail;

use super::Reader;
use super::gather::{Purpose, ShardParts, Sources, views_of};
use crate::snapshot::{LogPart, ShardToken, Snapshot, SnapshotToken};
use crate::table::Table;

impl Table {
    /// Opens the snapshot of a token, which [`Snapshot::token`] returned in this process or
    /// another. The last one is cached for the next caller, until this handle collects garbage.
    ///
    /// # Errors
    /// An input error where a part of the snapshot was removed since, or where the token is of
    /// another table.
    #[boxed]
    pub async fn snapshot_at(&self, token: &SnapshotToken) -> Result<Arc<Snapshot>> {
        if let Some((known, snapshot)) = &*self.reader.token_snapshot.lock().await
            && known == token
        {
            return Ok(snapshot.clone());
        }
        let snapshot = self.reader.open_token(token).await;
        let snapshot = snapshot.map_err(|error| self.reader.gone(token, error))?;
        *self.reader.token_snapshot.lock().await = Some((token.clone(), snapshot.clone()));
        Ok(snapshot)
    }
}

impl Reader {
    /// Drops the cached snapshot: it is a reader, and its SSTables would not be collected.
    pub(in crate::table) async fn forget_token_snapshot(&self) {
        *self.token_snapshot.lock().await = None;
    }

    async fn open_token(&self, token: &SnapshotToken) -> Result<Arc<Snapshot>> {
        if token.shards.is_empty() {
            return self.base_alone(token.base_version).await;
        }
        let base = self.catalog.base.version(token.base_version).await?;
        let parts = token.shards.iter().map(|shard| self.parts_of(shard, &base.schema.rows));
        let parts = try_join_all(parts).await?;
        self.snapshot_over(base, parts, Sources::All, Purpose::Scan).await
    }

    async fn parts_of(&self, token: &ShardToken, rows: &Arc<RowSchema>) -> Result<ShardParts> {
        let manifests = self.catalog.manifest_store(token.shard_id);
        let manifest = Arc::new(manifests.at(token.manifest_version).await?);
        let log = LogPart::Before(token.log_end);
        let Some(end) = token.log_end else {
            return Ok(ShardParts { manifest, memtables: Vec::new(), log, opening: None });
        };
        let current = manifest.current_generation;
        let covered = manifest.replay_after_wal_entry_position;
        let mut tail = WalTail::new(self.catalog.store.clone(), token.shard_id, covered);
        let mut replay = Replay::new(token.shard_id, rows.clone());
        replay.read_to(&mut tail, end, current).await?;
        Ok(ShardParts { manifest, memtables: views_of(&replay), log, opening: None })
    }

    /// The error of a snapshot that cannot be opened. A storage error may pass and stays one; every
    /// other error means that the snapshot is gone.
    fn gone(&self, token: &SnapshotToken, error: Error) -> Error {
        if error.kind() == ErrorKind::Retry {
            let action = format!("opening snapshot {token} of {}", self.catalog.uri());
            return Error::storage(action, &error).with_source(error);
        }
        let text = format!(
            "snapshot {token} cannot be read any more, or is of another table than {}: {error}",
            self.catalog.uri()
        );
        Error::input(text).with_source(error)
    }
}
