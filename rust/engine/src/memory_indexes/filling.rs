//! The filling of an index of rows in memory beside the reads that use it.
//!
//! Owns: the task that puts the rest of a view's rows into an index, a few batches at a time.
//! Does not own: what an insert does, or the rule that one thread inserts at a time (the core).

use std::sync::Arc;

use lancemem_core::memtable::{IndexFill, MakeIndex, MemTableView, SecondaryIndex};
use tokio::runtime::Handle;

/// Batches that the task inserts before other tasks may run.
const STEP: usize = 16;

/// The index of `maker` as it is, while a task puts the missing rows of `view` into it; `None`
/// where its rows have none. Never waits: a first search is not slower than one without an index.
#[must_use]
pub fn filled_so_far(
    view: &MemTableView,
    maker: &dyn MakeIndex,
) -> Option<Arc<dyn SecondaryIndex>> {
    let (index, fill) = view.secondary_so_far(maker)?;
    if let (Some(fill), Ok(runtime)) = (fill, Handle::try_current()) {
        runtime.spawn(filled(fill));
    }
    Some(index)
}

/// Inserts on threads for blocking work. Ends with its runtime after the step that it is in.
async fn filled(mut fill: IndexFill) {
    loop {
        let step = tokio::task::spawn_blocking(move || {
            let has_more = fill.more(STEP);
            (fill, has_more)
        });
        match step.await {
            Ok((rest, true)) => fill = rest,
            Ok((_, false)) | Err(_) => return,
        }
    }
}
