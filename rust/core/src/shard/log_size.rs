//! The part of a shard's log that no flush has covered, measured beside its owner.
//!
//! Owns: its entries and bytes by a listing, and its rows by a read.
//! Does not own: the rows themselves (`recover`), or when they are flushed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::format::{ShardManifest, WalEntry, paths};
use crate::store::{ManifestStore, Store};
use crate::types::{Generation, Result};
use crate::wal::WalTail;

use super::log_read::read_beside_owner;

/// The entries of a log that no flush has covered, fence sentinels included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Entries.
    pub entries: u64,
    /// Their bytes in storage.
    pub bytes: u64,
    /// How long ago the newest one was written, by the calendar of this machine; `None` without
    /// entries. A claim writes an entry too.
    pub idle: Option<Duration>,
}

/// Measures the log above `manifest` by a listing. Opens no entry.
///
/// # Errors
/// A storage error.
pub async fn log_size(store: &Store, manifest: &ShardManifest) -> Result<LogSize> {
    let covered = manifest.replay_after_wal_entry_position;
    let listed = store.list_tree(&paths::wal(manifest.shard_id)).await?;
    let is_uncovered =
        |name: &str| paths::parse_wal_entry(name).is_some_and(|position| position > covered);
    #[expect(clippy::disallowed_methods, reason = "ages of files are measured by the calendar")]
    let now = SystemTime::now();
    let mut size = LogSize::default();
    for entry in listed.iter().filter(|entry| is_uncovered(entry.name())) {
        let age = now.duration_since(entry.modified).unwrap_or_default();
        size.entries += 1;
        size.bytes += entry.bytes;
        size.idle = Some(size.idle.map_or(age, |idle| idle.min(age)));
    }
    Ok(size)
}

/// Counts the rows of the log that no flush has covered, superseded rows and tombstones included.
/// Reads every such entry and keeps none.
///
/// # Errors
/// A storage error, or damage of the log.
pub async fn log_rows(store: &Store, manifests: &ManifestStore) -> Result<u64> {
    read_beside_owner(manifests, |manifest| rows_above(store, manifest)).await
}

async fn rows_above(store: &Store, manifest: Arc<ShardManifest>) -> Result<u64> {
    let (current, mut rows) = (manifest.current_generation, 0);
    let after = manifest.replay_after_wal_entry_position;
    let mut tail = WalTail::new(store.clone(), manifest.shard_id, after);
    let take = |_, counted: u64| {
        rows += counted;
        Ok(())
    };
    tail.read_new(move |_, entry| Ok(unflushed_rows(&entry, current)), take).await?;
    Ok(rows)
}

/// The rows of an entry, unless an SSTable below `current` has them.
fn unflushed_rows(entry: &WalEntry, current: Generation) -> u64 {
    if entry.generation.is_some_and(|generation| generation < current) {
        return 0;
    }
    entry.batches.iter().map(|batch| batch.num_rows() as u64).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lancemem_testkit::{FaultyStore, KeyShape};

    use super::*;
    use crate::types::{ShardId, Txns, WriterConfig};
    use crate::wal::WalAppender;

    const SHARD: ShardId = ShardId::from_u128(7);

    #[tokio::test]
    async fn a_log_is_measured_above_what_a_flush_has_covered() {
        let store = Store::new(Arc::new(FaultyStore::default()), "table".into());
        let manifests = Arc::new(ManifestStore::new(store.clone(), SHARD, 2));
        let created = manifests.initialize(1, BTreeMap::new()).await.unwrap();
        assert_eq!(log_size(&store, &created).await.unwrap(), LogSize::default());
        assert_eq!(log_rows(&store, &manifests).await.unwrap(), 0);

        let claimed = manifests.claim().await.unwrap();
        let config = WriterConfig::default();
        let fence = WalAppender::fence(store.clone(), manifests.clone(), &claimed, &config);
        let mut log = fence.await.unwrap();
        let sentinel = log_size(&store, &claimed).await.unwrap();
        assert_eq!((sentinel.entries, log_rows(&store, &manifests).await.unwrap()), (1, 0));
        let rows = KeyShape::Int64.rows(&[(1, 10), (2, 20)]);
        let (batch, txns) = (std::slice::from_ref(&rows), Txns::default());
        log.append(batch, Generation(1), &txns).await.unwrap();
        let position = log.append(batch, Generation(1), &txns).await.unwrap();
        let size = log_size(&store, &claimed).await.unwrap();
        assert_eq!((size.entries, log_rows(&store, &manifests).await.unwrap()), (3, 4));
        assert!(size.bytes > sentinel.bytes && size.idle.is_some(), "{size:?}");

        let cover = |manifest: &mut ShardManifest| {
            manifest.replay_after_wal_entry_position = position;
            manifest.current_generation = Generation(2);
        };
        let flushed = manifests.update(claimed.writer_epoch, cover).await.unwrap();
        assert_eq!(log_size(&store, &flushed).await.unwrap(), LogSize::default());
        assert_eq!(log_rows(&store, &manifests).await.unwrap(), 0);
    }
}
