//! What happens in a random life of a shard: its settings, and 200 steps.
//!
//! Owns: which steps there are, how often each is drawn, and how a life that fails is shortened.
//! Does not own: what a step does.

use lancemem_core::types::{KeyIndexKind, WriterConfig};
use lancemem_testkit::NULL;
use proptest::prelude::*;
use proptest::strategy::{NewTree, ValueTree};
use proptest::test_runner::TestRunner;

use crate::fixture::quick;

/// Steps of a life.
const STEPS: usize = 200;

#[derive(Clone, Debug)]
pub enum Step {
    Put(Vec<(i64, i64)>),
    Delete(Vec<i64>),
    /// Keys are looked up one by one, some that no put wrote among them.
    Get(Vec<i64>),
    Flush,
    /// The base table takes over so many of the oldest SSTables, and the manifest drops them.
    Compact {
        sstables: usize,
        then: Drain,
    },
    /// Entries that are flushed are removed; `later` by a week, so that old sentinels go too.
    Collect {
        later: bool,
    },
    Close {
        flush: bool,
    },
    /// The job is dropped while its successor opens; every row was acknowledged.
    Crash,
    /// A successor opens while the job still lives.
    Takeover,
    /// A reader of another process reads the log behind the manifest.
    Tail,
}

/// How far a compaction comes behind its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// It ends there; a later one drains.
    Not,
    /// It drains; the job learns of that by its next flush.
    Beside,
    /// It drains and notifies the job.
    AndTell,
}

/// Lives of exactly [`STEPS`] steps; `nulls` of ten values are null.
pub fn steps(nulls: u32) -> impl Strategy<Value = Vec<Step>> {
    let key = -6_i64..12;
    let value = prop_oneof![10 - nulls => -1000_i64..1000, nulls => Just(NULL)];
    let row = (key.clone(), value);
    let then = prop_oneof![Just(Drain::AndTell), Just(Drain::Beside), Just(Drain::Not)];
    Steps(prop_oneof![
        6 => prop::collection::vec(row, 1..9).prop_map(Step::Put),
        3 => prop::collection::vec(key, 1..4).prop_map(Step::Delete),
        2 => prop::collection::vec(-8_i64..14, 1..4).prop_map(Step::Get),
        1 => Just(Step::Flush),
        1 => (1_usize..20, then).prop_map(|(sstables, then)| Step::Compact { sstables, then }),
        1 => any::<bool>().prop_map(|later| Step::Collect { later }),
        1 => any::<bool>().prop_map(|flush| Step::Close { flush }),
        1 => Just(Step::Crash),
        1 => Just(Step::Takeover),
        1 => Just(Step::Tail),
    ])
}

pub fn settings() -> impl Strategy<Value = WriterConfig> {
    let limits = (1_usize..8, 1_usize..4, prop_oneof![Just(1_usize), Just(1 << 20)]);
    let index = prop_oneof![Just(KeyIndexKind::Hash), Just(KeyIndexKind::SkipList)];
    (limits, any::<bool>(), any::<bool>(), index).prop_map(
        |((rows, batches, budget), durable_write, sync_indexed_write, key_index)| {
            quick()
                .with_max_memtable_rows(rows)
                .with_max_memtable_batches(batches)
                .with_max_unflushed_memtable_bytes(budget)
                .with_durable_write(durable_write)
                .with_sync_indexed_write(sync_indexed_write)
                .with_key_index(key_index)
        },
    )
}

/// [`STEPS`] steps. A list of proptest has either always so many or not always.
#[derive(Debug)]
struct Steps<S>(S);

impl<S: Strategy> Strategy for Steps<S> {
    type Tree = Shortened<S::Tree>;
    type Value = Vec<S::Value>;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        let steps: Vec<S::Tree> =
            (0..STEPS).map(|_| self.0.new_tree(runner)).collect::<Result<_, _>>()?;
        Ok(Shortened { steps, block: STEPS / 2, at: 0, taken: None })
    }
}

/// A life that fails: blocks of steps are taken out, smaller and smaller ones, then single steps
/// become simpler.
#[derive(Debug)]
struct Shortened<T> {
    steps: Vec<T>,
    /// Steps to take out at once; 0 where the rest is needed.
    block: usize,
    at: usize,
    /// What was taken out last, at `at`.
    taken: Option<Vec<T>>,
}

impl<T: ValueTree> ValueTree for Shortened<T> {
    type Value = Vec<T::Value>;

    fn current(&self) -> Self::Value {
        self.steps.iter().map(ValueTree::current).collect()
    }

    fn simplify(&mut self) -> bool {
        self.taken = None;
        while self.block > 0 {
            if self.at < self.steps.len() {
                let end = self.steps.len().min(self.at + self.block);
                self.taken = Some(self.steps.drain(self.at..end).collect());
                return true;
            }
            (self.block, self.at) = (self.block / 2, 0);
        }
        while let Some(step) = self.steps.get_mut(self.at) {
            if step.simplify() {
                return true;
            }
            self.at += 1;
        }
        false
    }

    fn complicate(&mut self) -> bool {
        let Some(taken) = self.taken.take() else {
            return self.steps.get_mut(self.at).is_some_and(ValueTree::complicate);
        };
        let behind = self.at + taken.len();
        self.steps.splice(self.at..self.at, taken);
        self.at = behind;
        true
    }
}
