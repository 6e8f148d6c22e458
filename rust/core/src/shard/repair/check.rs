//! The check of every entry that a replay would read, and of those behind the first damage.
//!
//! Owns: the walk over the log and the rules of a replay, applied without stopping.
//! Does not own: any write.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;

use super::super::recover::generation_of;
use super::{WalDamage, WalFinding, WalReport};
use crate::format::{LogAddress, ShardManifest, WalEntry, wal_entry};
use crate::store::{ManifestStore, Store};
use crate::types::{Error, Generation, Result, ShardId, WalPosition, WriterEpoch};
use crate::wal::{READ_AHEAD, ReadAhead, check_epoch, entry_name, highest_position};

/// How often the log is read again because its writer flushed meanwhile.
const READS: usize = 8;

/// Looks for damage in the log of the shard of `manifests`, and writes nothing.
///
/// The findings start at the first damaged entry; a log without damage has none.
///
/// # Errors
/// A storage error, or a damaged shard manifest.
pub async fn verify_wal(store: &Store, manifests: &ManifestStore) -> Result<WalReport> {
    let mut reads = 1;
    let mut manifest = manifests.existing().await?;
    loop {
        let last = highest_position(store, manifest.shard_id).await?;
        let mut report = inspect(store, &manifest, last.next()).await?;
        let Some(first) = report.first_damage().map(|finding| finding.position) else {
            report.findings.clear();
            return Ok(report);
        };
        report.findings.retain(|finding| finding.position >= first);
        // A flush that came between may have covered what looks damaged.
        let newest = manifests.existing().await?;
        if newest.version == manifest.version || reads == READS {
            return Ok(report);
        }
        manifest = newest;
        reads += 1;
    }
}

/// Every position that `manifest` does not cover, below `end`.
pub(super) async fn inspect(
    store: &Store,
    manifest: &ShardManifest,
    end: WalPosition,
) -> Result<WalReport> {
    let (shard_id, covered) = (manifest.shard_id, manifest.replay_after_wal_entry_position);
    let look = move |position, bytes| Ok(look(shard_id, position, bytes));
    let mut ahead = ReadAhead::new(store.clone(), shard_id, covered.next(), look);
    let mut order = Order::new(manifest);
    let mut findings = Vec::new();
    loop {
        ahead.fill(READ_AHEAD, end);
        let Some((position, finding)) = ahead.next().await else { break };
        let mut finding = match finding {
            Err(error @ Error::Corrupt { .. }) => unread(position, error),
            finding => finding?,
        };
        order.apply(&mut finding);
        findings.push(finding);
    }
    Ok(WalReport {
        shard_id,
        replay_after_wal_position: covered,
        last_wal_position: WalPosition(end.get() - 1).max(covered),
        writer_epoch: manifest.writer_epoch,
        findings,
    })
}

/// The finding of an entry that could not be read.
fn unread(position: WalPosition, error: Error) -> WalFinding {
    WalFinding {
        position,
        damage: Some(damage(error)),
        bytes: 0,
        rows: None,
        generation: None,
        writer_epoch: None,
        copy: None,
        is_fence_of_lance: false,
    }
}

/// The finding of one entry, without regard to those before it.
fn look(shard_id: ShardId, position: WalPosition, bytes: Option<Bytes>) -> WalFinding {
    let what = entry_name(shard_id, position);
    let Some(bytes) = bytes else {
        let detail = "it is missing although a later entry exists";
        return unread(position, Error::corrupt(what, "hole", detail));
    };
    let mut finding = WalFinding {
        position,
        damage: None,
        bytes: bytes.len() as u64,
        rows: None,
        generation: None,
        writer_epoch: None,
        copy: None,
        is_fence_of_lance: false,
    };
    let entry =
        match guarded(&what, || wal_entry::decode_at(&bytes, LogAddress { shard_id, position })) {
            Ok(entry) => Some(entry),
            Err(error) => {
                finding.damage = Some(damage(error));
                guarded(&what, || wal_entry::decode_unchecked(&bytes, &what)).ok()
            }
        };
    if let Some(entry) = entry {
        let rows = entry.batches.iter().map(|batch| batch.num_rows() as u64).sum();
        finding.rows = Some(rows);
        finding.generation = entry.generation;
        finding.writer_epoch = Some(entry.writer_epoch);
        finding.is_fence_of_lance = entry.is_fence_of_lance();
    }
    finding
}

/// The Arrow decoder panics on some invalid bytes.
fn guarded(what: &str, decode: impl FnOnce() -> Result<WalEntry>) -> Result<WalEntry> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(Error::corrupt(what, "undecodable", "the decoder panicked")))
}

fn damage(error: Error) -> WalDamage {
    match error {
        Error::Corrupt { kind, detail, .. } => WalDamage { kind, detail },
        other => WalDamage { kind: "undecodable", detail: other.to_string() },
    }
}

/// The state of a replay: neither epochs nor generations go back.
struct Order {
    shard_id: ShardId,
    current: Generation,
    epoch: WriterEpoch,
    generation: Option<Generation>,
}

impl Order {
    const fn new(manifest: &ShardManifest) -> Self {
        Self {
            shard_id: manifest.shard_id,
            current: manifest.current_generation,
            epoch: WriterEpoch(0),
            generation: None,
        }
    }

    fn apply(&mut self, finding: &mut WalFinding) {
        if finding.damage.is_some() {
            return;
        }
        if let Err(error) = self.advance(finding) {
            finding.damage = Some(damage(error));
        }
    }

    fn advance(&mut self, finding: &WalFinding) -> Result<()> {
        let (shard_id, position) = (self.shard_id, finding.position);
        let epoch = finding.writer_epoch.unwrap_or_default();
        if !finding.is_fence_of_lance {
            check_epoch(shard_id, position, epoch, self.epoch)?;
        }
        let flushed = finding.generation.is_some_and(|generation| generation < self.current);
        if !finding.is_sentinel() && !flushed {
            let (named, newest) = (finding.generation, self.generation);
            self.generation = Some(generation_of(shard_id, position, named, newest, self.current)?);
        }
        self.epoch = self.epoch.max(epoch);
        Ok(())
    }
}
