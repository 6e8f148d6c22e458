//! The rows that no index covers, read and counted.
//!
//! Owns: [`FlatTexts`], the scan of such rows, and its counting on all processors.
//! Does not own: the scan's plan (`plan`), or counting (`documents`).

use std::fmt;
use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::{Error, Result};

use super::analysis::Analysis;
use super::documents::Counted;
use super::index_scores::SEARCHING;
use crate::errors::BaseContext;

/// The newest rows of the sources without an index.
#[derive(Clone)]
pub(super) struct FlatTexts {
    /// A scan of them, with the text columns and those of the candidates.
    pub plan: Arc<dyn ExecutionPlan>,
    pub session: SessionContext,
    /// How many sources it reads.
    pub sources: usize,
}

impl fmt::Debug for FlatTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlatTexts({})", self.sources)
    }
}

impl FlatTexts {
    /// The counted rows.
    ///
    /// # Errors
    /// An error of the scan.
    pub async fn counted(&self, analysis: &Arc<Analysis>) -> Result<Vec<Counted>> {
        let rows = execute_stream(self.plan.clone(), self.session.task_ctx()).in_base(SEARCHING)?;
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        let counted = rows.map(|batch| {
            let analysis = analysis.clone();
            async move {
                let batch = batch.in_base(SEARCHING)?;
                let count = move || Counted::of(&analysis, &batch);
                SpawnedTask::spawn_blocking(count).await.map_err(|error| {
                    Error::internal(format!("{SEARCHING}: {error}")).with_source(error)
                })?
            }
        });
        counted.buffered(at_once).try_collect().await
    }
}
