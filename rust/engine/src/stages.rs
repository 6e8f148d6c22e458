//! The stages of a long call, and how far each one is, for the caller that follows them.
//!
//! Owns: the names and units of stages, the counter that a call advances and its caller polls.
//! Does not own: who polls it and what is shown.
//!
//! A call that is not followed pays one look at a task-local value for each stage. A stage is
//! counted in whole batches, files or fragments, so a followed call takes a lock that nothing else
//! holds for long a few times a second. No decision reads a counter.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;

/// Ended stages that no poll has taken. The oldest are dropped: a compaction that plans again many
/// times repeats its stages.
const MAX_ENDED: usize = 256;

tokio::task_local! {
    static FOLLOWED: Arc<Stages>;
}

/// A stage of a long call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageName {
    /// Logs are flushed.
    FlushLogs,
    /// The files of SSTables are compared with their checksums.
    VerifySsTables,
    /// The keys of SSTables are read.
    ReadKeys,
    /// Keys are looked up in the base table.
    LookUpKeys,
    /// Deletion files are written.
    WriteDeletions,
    /// Data files of SSTables become base fragments.
    LinkSsTables,
    /// Live rows of SSTables are written again.
    RewriteRows,
    /// Base fragments of mostly dead rows are rewritten.
    RewriteFragments,
    /// The keys of base fragments are read for the record index.
    IndexRows,
    /// The entries of the record index are read.
    VerifyEntries,
    /// The keys of the base table are compared with the record index.
    VerifyRows,
    /// Folders of shards are listed.
    ListShards,
    /// Garbage is removed.
    RemoveGarbage,
    /// Deletion vectors are computed and written.
    WriteDeletionVectors,
}

impl StageName {
    /// The name: a verb and its object.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FlushLogs => "flush logs",
            Self::VerifySsTables => "verify SSTables",
            Self::ReadKeys => "read keys",
            Self::LookUpKeys => "look up keys",
            Self::WriteDeletions => "write deletions",
            Self::LinkSsTables => "link SSTables",
            Self::RewriteRows => "rewrite rows",
            Self::RewriteFragments => "rewrite fragments",
            Self::IndexRows => "index rows",
            Self::VerifyEntries => "verify entries",
            Self::VerifyRows => "verify rows",
            Self::ListShards => "list shards",
            Self::RemoveGarbage => "remove garbage",
            Self::WriteDeletionVectors => "write deletion vectors",
        }
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::FlushLogs => "logs",
            Self::VerifySsTables
            | Self::ReadKeys
            | Self::LinkSsTables
            | Self::WriteDeletionVectors => "SSTables",
            Self::LookUpKeys | Self::WriteDeletions | Self::RewriteFragments => "fragments",
            Self::RewriteRows | Self::IndexRows | Self::VerifyRows => "rows",
            Self::VerifyEntries => "entries",
            Self::ListShards => "shards",
            Self::RemoveGarbage => "paths",
        }
    }
}

/// How far a stage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageCount {
    /// The stage.
    pub name: StageName,
    /// What is done, at most `total`.
    pub done: u64,
    /// What is to do.
    pub total: u64,
}

/// The stages of one call. Its caller polls them while the call runs.
#[derive(Debug, Default)]
pub struct Stages(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    ended: Vec<StageCount>,
    current: Option<StageCount>,
    /// The number of the current stage, by which late counts of an earlier stage are told apart.
    number: u64,
    /// Whether `current` has changed since the last poll.
    is_new: bool,
    /// Whether `current` counts the work of stages that begin inside of it.
    is_enclosing: bool,
}

impl Stages {
    /// Runs `call` and counts its stages.
    pub async fn of<F: Future>(self: Arc<Self>, call: F) -> F::Output {
        FOLLOWED.scope(self, call).await
    }

    /// Takes the stages that ended since the last poll, then the current stage where it moved.
    #[must_use]
    pub fn poll(&self) -> Vec<StageCount> {
        let mut counts = self.0.lock();
        let mut found = std::mem::take(&mut counts.ended);
        if std::mem::take(&mut counts.is_new) {
            found.extend(counts.current);
        }
        found
    }

    /// Begins a stage and returns its number; `None` inside of an enclosing one.
    fn begin(&self, name: StageName, total: u64) -> Option<u64> {
        let mut counts = self.0.lock();
        if counts.is_enclosing {
            return None;
        }
        if let Some(ended) = counts.current.take().filter(|_| counts.is_new) {
            if counts.ended.len() == MAX_ENDED {
                counts.ended.remove(0);
            }
            counts.ended.push(ended);
        }
        counts.current = Some(StageCount { name, done: 0, total });
        counts.number += 1;
        counts.is_new = true;
        Some(counts.number)
    }

    fn add(&self, number: u64, done: u64) {
        let mut counts = self.0.lock();
        if counts.number != number {
            return;
        }
        if let Some(current) = &mut counts.current {
            current.done = current.done.saturating_add(done).min(current.total);
        }
        counts.is_new = true;
    }
}

/// A stage that has begun. Clones count the same stage, on other tasks too.
#[derive(Clone, Debug, Default)]
pub struct Stage(Option<(Arc<Stages>, u64)>);

impl Stage {
    /// Begins a stage of the followed call, and ends the stage before it. Does nothing where the
    /// call is not followed, or where nothing is to do.
    #[must_use]
    pub fn begin(name: StageName, total: impl TryInto<u64>) -> Self {
        let Ok(stages) = FOLLOWED.try_with(Clone::clone) else { return Self(None) };
        let total = total.try_into().unwrap_or(u64::MAX);
        if total == 0 {
            return Self(None);
        }
        let number = stages.begin(name, total);
        Self(number.map(|number| (stages, number)))
    }

    /// Counts what is done.
    pub fn add(&self, done: impl TryInto<u64>) {
        if let Some((stages, number)) = &self.0 {
            stages.add(*number, done.try_into().unwrap_or(u64::MAX));
        }
    }
}

/// A stage whose steps have stages of their own, which are not counted as long as it lives.
#[derive(Debug)]
pub struct EnclosingStage(Stage);

impl EnclosingStage {
    /// As [`Stage::begin`].
    #[must_use]
    pub fn begin(name: StageName, total: impl TryInto<u64>) -> Self {
        let stage = Stage::begin(name, total);
        if let Some((stages, _)) = &stage.0 {
            stages.0.lock().is_enclosing = true;
        }
        Self(stage)
    }

    /// Counts what is done.
    pub fn add(&self, done: impl TryInto<u64>) {
        self.0.add(done);
    }
}

impl Drop for EnclosingStage {
    fn drop(&mut self) {
        if let Some((stages, _)) = &self.0.0 {
            stages.0.lock().is_enclosing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: StageName, done: u64, total: u64) -> StageCount {
        StageCount { name, done, total }
    }

    #[tokio::test]
    async fn a_poll_takes_ended_stages_and_then_the_current_one_where_it_moved() {
        let stages = Arc::new(Stages::default());
        let polled = stages.clone();
        let call = async move {
            let keys = Stage::begin(StageName::ReadKeys, 3_u64);
            keys.add(1_u64);
            assert_eq!(polled.poll(), [count(StageName::ReadKeys, 1, 3)]);
            assert_eq!(polled.poll(), [], "nothing moved");
            keys.add(2_u64);
            let rows = Stage::begin(StageName::RewriteRows, 10_usize);
            rows.add(4_usize);
            keys.add(1_u64);
            polled.poll()
        };
        let expected = [count(StageName::ReadKeys, 3, 3), count(StageName::RewriteRows, 4, 10)];
        assert_eq!(stages.of(call).await, expected);
    }

    #[tokio::test]
    async fn a_call_that_is_not_followed_counts_nothing_and_a_count_stays_below_its_total() {
        let alone = Stage::begin(StageName::ReadKeys, 3_u64);
        assert!(alone.0.is_none());
        alone.add(1_u64);
        let stages = Arc::new(Stages::default());
        let polled = stages.clone();
        let call = async move {
            assert!(Stage::begin(StageName::RemoveGarbage, 0_u64).0.is_none(), "nothing to do");
            Stage::begin(StageName::LookUpKeys, 2_u64).add(7_u64);
            polled.poll()
        };
        assert_eq!(stages.of(call).await, [count(StageName::LookUpKeys, 2, 2)]);
    }

    #[tokio::test]
    async fn stages_inside_of_an_enclosing_one_are_not_counted() {
        let stages = Arc::new(Stages::default());
        let polled = stages.clone();
        let call = async move {
            let vectors = EnclosingStage::begin(StageName::WriteDeletionVectors, 2_u64);
            Stage::begin(StageName::LookUpKeys, 5_u64).add(5_u64);
            vectors.add(2_u64);
            drop(vectors);
            Stage::begin(StageName::ReadKeys, 1_u64).add(1_u64);
            polled.poll()
        };
        let expected =
            [count(StageName::WriteDeletionVectors, 2, 2), count(StageName::ReadKeys, 1, 1)];
        assert_eq!(stages.of(call).await, expected);
    }

    #[tokio::test]
    async fn stages_that_no_poll_takes_are_dropped_from_the_oldest_on() {
        let stages = Arc::new(Stages::default());
        let polled = stages.clone();
        let call = async move {
            for total in 1..=MAX_ENDED as u64 + 3 {
                Stage::begin(StageName::ReadKeys, total).add(total);
            }
            polled.poll()
        };
        let found = stages.of(call).await;
        assert_eq!(found.len(), MAX_ENDED + 1);
        assert_eq!(found.first(), Some(&count(StageName::ReadKeys, 3, 3)));
    }
}
