//! Which source of a large scan begins.
//!
//! Owns: what scan is large, and that the newest source of a shard begins it, because no key of
//! its rows need be looked up.
//! Does not own: how the others wait (`visibility`).

use std::sync::Arc;

use crate::snapshot::Snapshot;
use crate::visibility::{HeadStart, StartGate};

/// A scan of fewer bytes ends before anybody has waited for its first rows.
const LARGE_BYTES: usize = 256 << 20;

/// The turns of the arms of one plan.
#[derive(Debug)]
pub struct Turns {
    /// The arm that begins; `None` where all do.
    first: Option<(usize, Arc<HeadStart>)>,
}

impl Turns {
    /// The turns in a scan of `snapshot` that reads about `row_bytes` of a row of the base table, and
    /// not the sources that `is_left_out` names by their place.
    pub fn of(snapshot: &Snapshot, row_bytes: usize, is_left_out: impl Fn(usize) -> bool) -> Self {
        let rows: usize = snapshot.base.fragments().iter().filter_map(|it| it.physical_rows).sum();
        let is_large = rows.saturating_mul(row_bytes) > LARGE_BYTES;
        let begins = |place: &usize| snapshot.is_newest_source(*place) && !is_left_out(*place);
        let first = is_large.then(|| (0..snapshot.sources().count()).find(begins)).flatten();
        Self { first: first.map(|place| (place + 1, Arc::default())) }
    }

    /// The turn of an arm: the base table's is 0, and that of the source at a place one more.
    pub fn of_arm(&self, arm: usize) -> Option<StartGate> {
        let (first, start) = self.first.as_ref()?;
        Some(if arm == *first {
            StartGate::First(start.clone())
        } else {
            StartGate::Later(start.clone())
        })
    }
}
