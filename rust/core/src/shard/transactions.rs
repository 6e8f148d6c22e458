//! Marks of one shard: what is recorded, by whom it is asked, and when it is kept for good.
//!
//! Owns: the marks that a job knows, those of each generation that is not flushed, and reading
//! them without a claim.
//! Does not own: the bytes. An entry of the log carries the marks of its rows; the manifest
//! version that lists a generation carries the marks of the generation's rows.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::format::ShardManifest;
use crate::store::{ManifestStore, Store};
use crate::types::{Error, Generation, Mark, Marks, ONCE, Result, ShardId, Standing};
use crate::wal::WalTail;

use super::recover::Replayed;

/// How often a read starts again because the owner flushed meanwhile.
const READS: usize = 8;

/// The marks that a job knows.
#[derive(Debug, Default)]
pub(super) struct JobMarks {
    recorded: Marks,
    /// Of rows whose generation the manifest does not list.
    unflushed: BTreeMap<Generation, Marks>,
}

impl JobMarks {
    /// What the manifest and the log hold when a job begins.
    pub fn recovered(manifest: &ShardManifest, memtables: &[Replayed]) -> Self {
        let mut marks = Self { recorded: manifest.marks.clone(), unflushed: BTreeMap::new() };
        for replayed in memtables.iter().filter(|replayed| !replayed.marks.is_empty()) {
            marks.recorded.merge(&replayed.marks);
            marks.unflushed.insert(replayed.memtable.generation(), replayed.marks.clone());
        }
        marks
    }

    /// The newest version of `application`.
    pub fn get(&self, application: &str) -> Option<i64> {
        self.recorded.get(application)
    }

    /// Whether the write of `txn` is still to be done.
    ///
    /// # Errors
    /// Stale where a newer version is written.
    pub fn is_new(&self, shard: ShardId, mark: &Mark) -> Result<bool> {
        is_new(&self.recorded, shard, mark)
    }

    /// Remembers the mark of rows that go into the MemTable of `generation`.
    pub fn record(&mut self, generation: Generation, mark: &Mark) {
        self.recorded.record(mark.application(), mark.version());
        let unflushed = self.unflushed.entry(generation).or_default();
        unflushed.record(mark.application(), mark.version());
    }

    /// The marks of the rows of `generation`.
    pub fn of(&self, generation: Generation) -> Marks {
        self.unflushed.get(&generation).cloned().unwrap_or_default()
    }

    /// Lets go of what the manifest has from now on, and of what it has forgotten, `now` where
    /// names have expired.
    pub fn flushed(&mut self, generation: Generation, now: Option<SystemTime>) {
        let mut kept = self.unflushed.remove(&generation).unwrap_or_default();
        self.unflushed.values().for_each(|marks| kept.merge(marks));
        self.recorded.forget_old(&kept, now);
    }
}

/// Whether the write of `txn` is still to be done where `recorded` is.
///
/// # Errors
/// Stale where a newer version is written.
pub fn is_new(recorded: &Marks, shard: ShardId, mark: &Mark) -> Result<bool> {
    match recorded.standing(mark) {
        Standing::New => Ok(true),
        Standing::Recorded => Ok(false),
        Standing::Stale(recorded) => Err(Error::Stale {
            shard,
            application: mark.application().to_owned(),
            version: mark.version(),
            recorded,
        }),
    }
}

/// Lets the newest version of every application be written once more: one that was overtaken is over,
/// but of the newest some rows may be missing. What a shard has linked without a mark it goes on to
/// remember.
pub(super) fn take_back_newest(marks: &mut Marks) {
    marks.take_back_newest(|application| !names_run(application));
}

/// Whether a shard remembers a staged run by this name (docs/format.md, "Marks").
fn names_run(application: &str) -> bool {
    let name = application.strip_prefix(ONCE).and_then(|rest| rest.split_once('-'));
    name.is_some_and(|(_, folder)| folder.ends_with("_gen_0"))
}

/// The time by which names in `recorded` and `brought` may have expired; None where none has, or
/// where no clock tells. The store's clock is asked, so that no writer whose own is ahead takes a name
/// from another; while it gives no answer, everything stays.
pub(super) async fn expiry(
    manifests: &ManifestStore,
    recorded: &Marks,
    brought: &Marks,
) -> Option<SystemTime> {
    let mut all = recorded.clone();
    all.merge(brought);
    if !all.may_expire() {
        return None;
    }
    manifests.store().read_clock().await.ok().map(|reading| reading.earlier())
}

/// The marks of everything that is durable in a shard, read beside its owner.
///
/// # Errors
/// A storage error, or damage of the log.
pub async fn recorded_marks(store: &Store, manifests: &ManifestStore) -> Result<Marks> {
    let mut manifest = manifests.existing().await?;
    let mut reads = 1;
    loop {
        let error = match marks_above(store, &manifest).await {
            Ok(marks) => return Ok(marks),
            Err(error) => error,
        };
        // The owner may have flushed: what looked like damage counts only while the manifest
        // stands still.
        let newest = manifests.existing().await?;
        if newest.version <= manifest.version || reads == READS {
            return Err(error);
        }
        manifest = newest;
        reads += 1;
    }
}

async fn marks_above(store: &Store, manifest: &ShardManifest) -> Result<Marks> {
    let mut marks = manifest.marks.clone();
    let after = manifest.replay_after_wal_entry_position;
    let mut tail = WalTail::new(store.clone(), manifest.shard_id, after);
    let take = |_, entry_marks| {
        marks.merge(&entry_marks);
        Ok(())
    };
    tail.read_new(|_, entry| Ok(entry.marks), take).await?;
    Ok(marks)
}
