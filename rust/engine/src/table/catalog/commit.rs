//! Commits to the base table, of one operation at a time.
//!
//! Owns: retries after a concurrent commit, and the sync of what another program committed before.
//! Does not own: the operation, or the commit itself (`crate::compaction`).

use std::sync::Arc;
use std::time::Duration;

use lance::Dataset;
use lance::dataset::transaction::Operation;
use lancemem_core::store::Backoff;
use lancemem_core::types::{ErrorKind, Result};

use super::Catalog;
use crate::compaction::{Beside, commit_exactly};
use crate::errors::Context;
use crate::sstable::sync_version_of;

/// Pauses after a concurrent commit. Another program's commits come in bursts, and end.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// At most `max_attempts` to commit beside other programs, with pauses between them.
pub(in crate::table) const fn beside_commits(max_attempts: usize) -> Backoff {
    Backoff::exponential(max_attempts, FIRST_PAUSE, MAX_PAUSE)
}

impl Catalog {
    /// Commits the operation that `plan` returns for the newest base version. Plans again after a
    /// concurrent commit, at most `max_attempts` times in all. Returns the committed version.
    ///
    /// # Errors
    /// Those of `plan`, with nothing committed, and storage errors.
    pub(in crate::table) async fn commit_on_newest<P: Future<Output = Result<Operation>>>(
        &self,
        max_attempts: usize,
        plan: impl Fn(Arc<Dataset>) -> P,
    ) -> Result<u64> {
        self.writable_store(self.defaults.fsync).await?;
        let mut backoff = beside_commits(max_attempts);
        loop {
            let base = self.latest_base().await?;
            let operation = plan(base.clone()).await?;
            self.make_durable(&base).await?;
            let refused = match commit_exactly(&base, operation, Beside::default()).await {
                Ok(committed) => return Ok(committed.version().version),
                Err(refused) => refused.error,
            };
            if refused.kind() != ErrorKind::Retry || backoff.is_last() {
                return Err(refused);
            }
            backoff.wait().await;
        }
    }

    /// Syncs the files of `base` before a commit that builds on it. Other programs commit without
    /// syncs. Our commit is synced, and after a power cut it must not name files that were lost.
    pub(in crate::table) async fn make_durable(&self, base: &Arc<Dataset>) -> Result<()> {
        if !(self.location.is_local() && self.defaults.fsync) {
            return Ok(());
        }
        let durable = self.durable_base.lock().clone();
        let version = |base: &Arc<Dataset>| base.version().version;
        if durable.as_ref().map(version) != Some(version(base)) {
            let synced = sync_version_of(durable.as_deref(), base).await;
            synced.context("making durable what another program committed")?;
            *self.durable_base.lock() = Some(base.clone());
        }
        Ok(())
    }
}
