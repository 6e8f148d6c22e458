//! The guard of a background task: its end wakes every caller that waits for the task.
//!
//! Owns: the answer that waiters get when a task panics or its runtime shuts down.
//! Does not own: errors that a task reports itself.

use std::sync::Arc;

use super::writer::Shared;
use crate::types::Error;

/// Lives as long as its task; dropped before [`Self::expected`], it stops the job.
pub(super) struct TaskEnd {
    shared: Arc<Shared>,
    task: &'static str,
    expected: bool,
}

impl TaskEnd {
    pub fn of(shared: &Arc<Shared>, task: &'static str) -> Self {
        Self { shared: shared.clone(), task, expected: false }
    }

    /// The task ends as it should.
    pub fn expected(mut self) {
        self.expected = true;
    }
}

impl Drop for TaskEnd {
    fn drop(&mut self) {
        if self.expected {
            return;
        }
        let reason = format!("its {} task ended early", self.task);
        self.shared.log.queue.fail(Error::poisoned(self.shared.shard_id, reason));
        self.shared.end_flushes();
        self.shared.flusher.frozen.notify_one();
        self.shared.unindexed.notify_one();
    }
}
