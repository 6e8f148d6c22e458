//! What happens in a random life of a table: at most ten steps, each with few rows.
//!
//! Owns: which steps there are, and how often each is drawn.
//! Does not own: what a step does.

use std::ops::Range;

use lancemem::CompactionMode;
use lancemem_testkit::{KeyShape, NULL};
use proptest::prelude::*;

/// Numbers of the keys that writes name: few, so that most rows have older versions below them.
pub const KEYS: Range<i64> = -3..7;

/// Most steps of a life.
const STEPS: usize = 10;

/// The number of a key, and its new value; `None` deletes the key.
pub type Change = (i64, Option<i64>);

#[derive(Clone, Debug)]
pub enum Step {
    /// Rows in the order in which they take effect; a key may come twice.
    Write(Vec<Change>),
    /// Later writes go to a job of each shard, until the jobs stop.
    StartJobs,
    StopJobs {
        flush: bool,
    },
    /// Every row becomes part of an SSTable.
    Flush,
    Compact(CompactionMode),
    /// A snapshot that all later steps read again.
    Snapshot,
    /// Stops the jobs, and opens the table in a new handle.
    Reopen,
}

pub fn key_shape() -> impl Strategy<Value = KeyShape> {
    prop_oneof![Just(KeyShape::Int64), Just(KeyShape::Utf8), Just(KeyShape::Composite)]
}

pub fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![5 => -100_i64..100, 1 => Just(NULL)];
    let row = (KEYS, value.prop_map(Some)).boxed();
    let dead = (KEYS, Just(None::<i64>)).boxed();
    let either = prop_oneof![2 => row.clone(), 1 => dead.clone()];
    let mode = prop_oneof![
        Just(CompactionMode::Auto),
        Just(CompactionMode::Link),
        Just(CompactionMode::Rewrite)
    ];
    let step = prop_oneof![
        5 => prop::collection::vec(row, 1..6).prop_map(Step::Write),
        2 => prop::collection::vec(dead, 1..4).prop_map(Step::Write),
        2 => prop::collection::vec(either, 2..6).prop_map(Step::Write),
        2 => Just(Step::StartJobs),
        1 => any::<bool>().prop_map(|flush| Step::StopJobs { flush }),
        4 => Just(Step::Flush),
        3 => mode.prop_map(Step::Compact),
        1 => Just(Step::Snapshot),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 4..=STEPS)
}
