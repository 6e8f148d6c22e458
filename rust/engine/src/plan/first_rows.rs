//! The source of a large scan that starts first.
//!
//! Owns: which scans are large, and the rule that the newest source of a shard starts first,
//! because no key of its rows need be looked up.
//! Does not own: how the other sources wait (`visibility`).

use std::sync::Arc;

use crate::snapshot::Snapshot;
use crate::visibility::{HeadStart, StartGate};

/// Bytes from which a scan is large. A smaller scan ends before its first rows are late.
const LARGE_BYTES: usize = 256 << 20;

/// The start order of the arms of one plan.
#[derive(Debug)]
pub struct Turns {
    /// The arm that starts first; `None` where all start at once.
    first: Option<(usize, Arc<HeadStart>)>,
}

impl Turns {
    /// The start order of a scan of `snapshot` that reads about `row_bytes` of each row of the base
    /// table, without the sources for whose index `is_left_out` is true.
    pub fn of(snapshot: &Snapshot, row_bytes: usize, is_left_out: impl Fn(usize) -> bool) -> Self {
        let rows: usize = snapshot.base.fragments().iter().filter_map(|it| it.physical_rows).sum();
        let is_large = rows.saturating_mul(row_bytes) > LARGE_BYTES;
        let begins = |place: &usize| snapshot.is_newest_source(*place) && !is_left_out(*place);
        let first = is_large.then(|| (0..snapshot.sources().count()).find(begins)).flatten();
        Self { first: first.map(|place| (place + 1, Arc::default())) }
    }

    /// The start gate of an arm. Arm 0 is the base table; arm `n + 1` is the source at index `n`.
    pub fn of_arm(&self, arm: usize) -> Option<StartGate> {
        let (first, start) = self.first.as_ref()?;
        Some(if arm == *first {
            StartGate::First(start.clone())
        } else {
            StartGate::Later(start.clone())
        })
    }
}
