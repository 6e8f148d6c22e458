//! The SQL of conditions, expressions and queries.
//!
//! Owns: how DataFusion reads names, numbers and times in it; the memory of sorts, aggregates and
//! joins.
//! Does not own: types (`filter`, `numerals`), or when a text is parsed.

use std::sync::{Arc, LazyLock};

use datafusion::execution::SessionState;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use lancemem_core::types::Result;

use crate::errors::Context;

/// Memory of the sorts, aggregates and joins of one read.
const OPERATOR_BYTES: usize = 1 << 30;
/// Rows of a batch of such a read. A top-k holds about twenty batches beside its rows, and a merge
/// one batch of every run: they have to fit into the memory where rows are wide.
const BATCH_ROWS: usize = 1_024;
/// Most parallel operators of such a read. Each reserves memory before it reads.
const MAX_PARTITIONS: usize = 16;

/// A session whose SQL keeps the case of names, as Arrow and Lance do, and all digits of numbers.
/// In it `now()` and `TIMESTAMPTZ` are instants.
pub fn session() -> SessionContext {
    // To build a state collects all functions of DataFusion, which takes longer than a small read;
    // to copy one clones their references.
    static STATE: LazyLock<SessionState> =
        LazyLock::new(|| SessionContext::new_with_config(config()).state_ref().read().clone());
    SessionContext::new_with_state(STATE.clone())
}

/// The same, where sorts, aggregates and joins have bounded memory. Sorts and aggregates continue
/// on disk, in temporary files of the system's folder for them; others fail with an input error.
///
/// # Errors
/// An error of DataFusion.
pub fn bounded_session() -> Result<SessionContext> {
    bounded(config())
}

/// The session of a SQL query, with the same bounds. A number with a point is a float64, or, where
/// the table `has_decimals`, a decimal with all of its digits.
///
/// # Errors
/// An error of DataFusion.
pub fn query_session(has_decimals: bool) -> Result<SessionContext> {
    bounded(
        config()
            .set_bool("datafusion.sql_parser.parse_float_as_decimal", has_decimals)
            // Not every reader of Arrow has string views.
            .set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false),
    )
}

fn bounded(config: SessionConfig) -> Result<SessionContext> {
    let memory = Arc::new(FairSpillPool::new(OPERATOR_BYTES));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(memory).build_arc();
    let runtime = runtime.context("preparing the memory of a read")?;
    let config = config.with_batch_size(BATCH_ROWS);
    let partitions = config.target_partitions().min(MAX_PARTITIONS);
    let config = config.with_target_partitions(partitions);
    Ok(SessionContext::new_with_config_rt(config, runtime))
}

fn config() -> SessionConfig {
    SessionConfig::new()
        .set_bool("datafusion.sql_parser.enable_ident_normalization", false)
        .set_bool("datafusion.sql_parser.parse_float_as_decimal", true)
        .set_str("datafusion.execution.time_zone", "UTC")
}
