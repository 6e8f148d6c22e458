//! Dropping the end of a log, from one position on, so that the shard opens again.
//!
//! Owns: what may be truncated, and the order of writes that a crash can stop anywhere.
//! Does not own: which position; an operator names one that `check` reported.
//!
//! The order: claim, fence behind the highest entry, then from there down to the position, for each
//! entry a copy and then a sentinel of our epoch in its place. The damage is replaced last, so a
//! truncation that stopped half-way leaves a log that is still refused, in which epochs never go
//! back. No position becomes free: a writer that slept through the truncation finds its next one
//! used up.

use std::sync::Arc;

use bytes::Bytes;

use super::check::{inspect, verify_wal};
use super::{WalFinding, WalReport};
use crate::format::{LogAddress, ShardManifest, paths, wal_entry};
use crate::store::{Created, ManifestStore, NO_FILE, Store};
use crate::types::{Error, MaxBytes, Result, ShardId, WalPosition, WriterConfig, WriterEpoch};
use crate::wal::{WalAppender, entry_name};

/// Drops every entry from `from` on. The shard's writer is fenced; nothing that the report does
/// not list is lost, and what it lists was copied before.
///
/// # Errors
/// An input error, with nothing written, where `from` is covered by the manifest, an entry
/// before it is damaged, or no entry from there on is. After any other error the truncation may be
/// half done: call again.
pub async fn truncate_wal(
    store: &Store,
    manifests: &Arc<ManifestStore>,
    from: WalPosition,
) -> Result<WalReport> {
    refuse(&verify_wal(store, manifests).await?, from)?;
    // Released from its start: no job holds the claim of a repair.
    let record = |claimed: &mut ShardManifest| {
        claimed.released = Some(claimed.writer_epoch);
        Ok(())
    };
    let manifest = manifests.claim_with(record).await?;
    let (shard_id, epoch) = (manifest.shard_id, manifest.writer_epoch);
    let config = WriterConfig::default();
    let fence = WalAppender::fence(store.clone(), manifests.clone(), &manifest, &config).await?;
    // The writer may have flushed or appended until our fence stood.
    let mut report = inspect(store, &manifest, fence.sentinel()).await?;
    refuse(&report, from)?;
    report.findings.retain(|finding| finding.position >= from);

    let truncation = Truncation { store, manifests, shard_id, epoch };
    for finding in report.findings.iter_mut().rev() {
        let dropped = truncation.drop_entry(finding).await;
        dropped.map_err(|error| half_done(error, shard_id, from))?;
    }
    manifests.check_fenced(epoch).await?;
    Ok(report)
}

fn refuse(report: &WalReport, from: WalPosition) -> Result<()> {
    let what = entry_name(report.shard_id, from);
    if from <= report.replay_after_wal_position {
        return Err(Error::input(format!(
            "{what} cannot be truncated: the shard manifest covers the log up to entry {}",
            report.replay_after_wal_position
        )));
    }
    match report.findings.iter().find_map(|finding| Some((finding, finding.damage.as_ref()?))) {
        None => Err(Error::input(format!(
            "{what} cannot be truncated: no entry of the log is damaged, nothing needs to be dropped"
        ))),
        Some((first, damage)) if first.position < from => Err(Error::input(format!(
            "{what} cannot be truncated: entry {} before it is damaged too ({}); truncate from there",
            first.position, damage.kind
        ))),
        Some(_) => refuse_uncopied(report, from),
    }
}

/// Nothing is dropped without a copy, and nothing is copied that cannot be read.
fn refuse_uncopied(report: &WalReport, from: WalPosition) -> Result<()> {
    let mut dropped = report.findings.iter().filter(|finding| finding.position >= from);
    let uncopied = dropped.find_map(|finding| match finding.damage.as_ref()?.kind {
        MaxBytes::TOO_LARGE => Some((finding.position, "too large to be copied")),
        NO_FILE => Some((finding.position, "not a file that can be copied")),
        _ => None,
    });
    let Some((position, why)) = uncopied else { return Ok(()) };
    Err(Error::input(format!(
        "{} cannot be truncated: {} is {why}; move it elsewhere, and call again if the log is \
         still damaged",
        entry_name(report.shard_id, from),
        paths::wal_entry(report.shard_id, position)
    )))
}

fn half_done(error: Error, shard_id: ShardId, from: WalPosition) -> Error {
    match error {
        Error::Storage { action, reason, source } => Error::Storage {
            action: format!(
                "truncating the log of shard {shard_id} from entry {from}; half done, call again"
            ),
            reason: format!("{action}: {reason}"),
            source,
        },
        other => other,
    }
}

/// A claimed and fenced log.
struct Truncation<'a> {
    store: &'a Store,
    manifests: &'a ManifestStore,
    shard_id: ShardId,
    epoch: WriterEpoch,
}

impl Truncation<'_> {
    /// Puts the sentinel in the place of an entry, which is copied before.
    async fn drop_entry(&self, finding: &mut WalFinding) -> Result<()> {
        // No process can open the shard before the truncation is complete, but another truncation
        // may run.
        self.manifests.check_fenced(self.epoch).await?;
        let place = LogAddress { shard_id: self.shard_id, position: finding.position };
        let sentinel = wal_entry::encode_sentinel(place, self.epoch)?;
        let path = paths::wal_entry(self.shard_id, finding.position);
        let stored = self.store.get_seen(&path, MaxBytes::LOG_ENTRY).await?;
        match stored {
            Some(seen) if seen.bytes == sentinel => Ok(()),
            Some(_) if is_hole(finding) => Err(self.appeared(finding.position)),
            Some(seen) => {
                if !finding.is_sentinel() {
                    finding.copy = Some(self.copy(finding.position, seen.bytes.clone()).await?);
                }
                // Without a condition a truncation that slept here would undo a later one.
                if !self.store.replace(&path, &seen, sentinel.clone()).await?
                    && self.store.get(&path, MaxBytes::LOG_ENTRY).await?.as_ref() != Some(&sentinel)
                {
                    return Err(self.changed(finding.position));
                }
                Ok(())
            }
            None => {
                if self.store.put_if_absent(&path, sentinel.clone()).await? == Created::Yes
                    || self.store.get(&path, MaxBytes::LOG_ENTRY).await?.as_ref() == Some(&sentinel)
                {
                    return Ok(());
                }
                Err(self.appeared(finding.position))
            }
        }
    }

    async fn copy(&self, position: WalPosition, bytes: Bytes) -> Result<String> {
        let path = paths::dropped_entry(self.shard_id, self.epoch, position);
        if self.store.put_if_absent(&path, bytes.clone()).await? == Created::AlreadyExists
            && self.store.get(&path, MaxBytes::LOG_ENTRY).await?.as_ref() != Some(&bytes)
        {
            return Err(Error::storage(
                format!("creating {path}"),
                "the object exists with different content",
            ));
        }
        Ok(path)
    }

    /// Only another truncation replaces an entry.
    fn changed(&self, position: WalPosition) -> Error {
        Error::storage(
            format!("replacing {}", entry_name(self.shard_id, position)),
            "another process truncated the log meanwhile; verify it again",
        )
    }

    /// A write of a fenced writer that was on its way can fill its hole at any time.
    fn appeared(&self, position: WalPosition) -> Error {
        Error::storage(
            format!("filling the hole at {}", entry_name(self.shard_id, position)),
            "another process wrote the entry meanwhile; verify the log again",
        )
    }
}

fn is_hole(finding: &WalFinding) -> bool {
    finding.damage.as_ref().is_some_and(|damage| damage.kind == "hole")
}
