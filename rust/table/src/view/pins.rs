//! Which runs are being read in this process.
//!
//! Owns: a weak reference to every run that was opened, whoever holds it: a view, a plan that
//! still streams, a compaction, the cache of a table.
//! Does not own: the runs, or what may be removed.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use lance::Dataset;
use lancemem_core::types::PerProcess;
use parking_lot::Mutex;

/// Every table of the process shares it: two handles of one table read the same runs.
static OPENED: PerProcess<Mutex<Opened>> = PerProcess::new(Mutex::default);

type Opened = HashMap<String, Vec<Weak<Dataset>>>;

/// Remembers an open run for as long as anybody holds it.
pub fn remember(run: &Arc<Dataset>) {
    let mut opened = OPENED.get().lock();
    opened.retain(|_, runs| {
        runs.retain(|run| run.strong_count() > 0);
        !runs.is_empty()
    });
    let place = run.branch_location().path.to_string();
    opened.entry(place).or_default().push(Arc::downgrade(run));
}

/// Whether somebody in this process holds the run in the folder `path` of the table of `base`.
#[must_use]
pub fn is_pinned(base: &Dataset, path: &str) -> bool {
    let place = path.split('/').fold(base.branch_location().path, object_store::path::Path::join);
    let opened = OPENED.get().lock();
    let runs = opened.get(&place.to_string());
    runs.is_some_and(|runs| runs.iter().any(|run| run.strong_count() > 0))
}
