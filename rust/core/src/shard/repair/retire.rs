//! Taking a shard without rows from any process that may still write to it.
//!
//! Owns: the check that its log and its SSTables hold no row, the fence that keeps them so, and the
//! sharding that the shard records from then on.
//! Does not own: why the shard gets another sharding.

use std::sync::Arc;

use super::check::inspect;
use super::{WalFinding, WalReport};
use crate::format::ShardManifest;
use crate::shard::transactions::take_back_newest;
use crate::store::{Backoff, ManifestStore, Store};
use crate::types::{Error, Result, WriterConfig};
use crate::wal::{WalAppender, highest_position};

/// How often a shard is taken where other processes take it at the same time.
const MAX_ATTEMPTS: usize = 8;

/// Fences the writer of a shard without rows, which belongs to `sharding` from then on.
///
/// Where it belonged to another sharding, rows of one transaction id may have gone to other shards
/// than now. So the newest version of each application can be written once more.
///
/// # Errors
/// An input error where the shard lists SSTables, or where its log has damage or rows, those that
/// came until the fence stood included. They are left as they are. Fenced where another claim came;
/// a storage error.
pub async fn retire(store: &Store, manifests: &Arc<ManifestStore>, sharding: &str) -> Result<()> {
    retire_where(store, manifests, sharding, |_| Ok(())).await
}

/// As [`retire`], where the shard records another sharding. It is left alone where it does not, or
/// where another process was faster.
///
/// # Errors
/// As [`retire`].
pub async fn take_over(
    store: &Store,
    manifests: &Arc<ManifestStore>,
    sharding: &str,
) -> Result<()> {
    let is_other = |manifest: &ShardManifest| {
        if is_of_another(manifest, sharding) {
            return Ok(());
        }
        Err(Error::input(format!(
            "shard {} belongs to the sharding {sharding} already",
            manifest.shard_id
        )))
    };
    let mut backoff = Backoff::at_once(MAX_ATTEMPTS);
    loop {
        let done = retire_where(store, manifests, sharding, is_other).await;
        let done = unless_own(manifests, sharding, done).await;
        match done {
            Err(Error::Fenced { .. }) if !backoff.is_last() => backoff.wait().await,
            done => return done,
        }
    }
}

/// Refuses a shard of another sharding that has rows, and writes nothing.
///
/// # Errors
/// As [`retire`].
pub async fn check_empty(store: &Store, manifests: &ManifestStore, sharding: &str) -> Result<()> {
    let manifest = manifests.existing().await?;
    if !is_of_another(&manifest, sharding) {
        return Ok(());
    }
    let empty = check_rows(store, &manifest).await;
    unless_own(manifests, sharding, empty).await
}

fn is_of_another(manifest: &ShardManifest, sharding: &str) -> bool {
    manifest.sharding.as_ref().is_some_and(|there| there != sharding)
}

/// The result `done`, or success where another process gave the shard to `sharding` meanwhile: then
/// its rows are routed by that sharding.
async fn unless_own(manifests: &ManifestStore, sharding: &str, done: Result<()>) -> Result<()> {
    let Err(Error::InvalidInput { .. } | Error::Fenced { .. }) = &done else { return done };
    if is_of_another(&*manifests.existing().await?, sharding) { done } else { Ok(()) }
}

async fn retire_where(
    store: &Store,
    manifests: &Arc<ManifestStore>,
    sharding: &str,
    is_wanted: impl Fn(&ShardManifest) -> Result<()> + Send + Sync,
) -> Result<()> {
    check_rows(store, &*manifests.existing().await?).await?;
    // Released from its start: no job holds the claim of a repair.
    let record = |claimed: &mut ShardManifest| {
        is_wanted(claimed)?;
        claimed.released = Some(claimed.writer_epoch);
        Ok(())
    };
    let manifest = manifests.claim_with(record).await?;
    let config = WriterConfig::default();
    let fence = WalAppender::fence(store.clone(), manifests.clone(), &manifest, &config).await?;
    refuse_rows(&manifest, &inspect(store, &manifest, fence.sentinel()).await?)?;
    if manifest.sharding.as_deref() != Some(sharding) {
        // Not with the claim: rows that came until the fence stood were routed by the other
        // sharding.
        let change = |manifest: &mut ShardManifest| {
            manifest.sharding = Some(sharding.to_owned());
            take_back_newest(&mut manifest.txns);
        };
        manifests.update(manifest.writer_epoch, change).await?;
    }
    Ok(())
}

async fn check_rows(store: &Store, manifest: &ShardManifest) -> Result<()> {
    let last = highest_position(store, manifest.shard_id).await?;
    refuse_rows(manifest, &inspect(store, manifest, last.next()).await?)
}

fn refuse_rows(manifest: &ShardManifest, log: &WalReport) -> Result<()> {
    let is_owed = |it: &&WalFinding| it.damage.is_some() || it.rows.is_some_and(|rows| rows > 0);
    let (sstables, entries) =
        (manifest.sstables.len(), log.findings.iter().filter(is_owed).count());
    if sstables == 0 && entries == 0 {
        return Ok(());
    }
    Err(Error::input(format!(
        "shard {} is not empty: it lists {sstables} SSTables, and {entries} entries of its log \
         have rows or are damaged",
        manifest.shard_id
    )))
}
