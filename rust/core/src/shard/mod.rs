//! One shard and its single writer: claim, put, freeze, flush, recover.
//!
//! Owns: the order of steps on the write path, visibility, and the state that readers of the
//! same process pin.
//! Does not own: Lance. A frozen MemTable becomes a Lance dataset behind [`SsTableSink`].
//!
//! Reading order: `writer` (the put path), `state`, `admission`, `transactions`, `flush`, `follow`,
//! `recover`, `claim`, `turn`, `ingest`, `observer`, `repair`.

mod admission;
mod append;
mod claim;
mod flush;
mod follow;
mod ingest;
mod observer;
mod recover;
mod repair;
mod state;
mod stats;
mod task_guard;
mod transactions;
mod turn;
mod writer;

use async_trait::async_trait;

pub use claim::ShardIdentity;
pub use ingest::{IngestedSsTable, unlisted_rows};
pub use observer::JobWatch;
pub use recover::{Look, Replay, Replayed};
pub use repair::{
    WalDamage, WalFinding, WalReport, check_empty, retire, take_over, truncate_wal, verify_wal,
};
pub use state::ShardSnapshot;
pub use stats::JobStats;
pub use transactions::{is_new, recorded_txns};
pub use turn::{ClaimTurn, EntryStanding, PlannedEntry};
pub use writer::{Acknowledged, ShardWriter, WriteMode};

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::format::{KeyEncoder, RowSchema, SsTable};
use crate::memtable::{EncodeKeys, MemTableLayout, MemTableView};
use crate::types::{KeyBlock, KeyIndexKind, Result};

impl EncodeKeys for KeyEncoder {
    fn encode_block(&self, batch: &RecordBatch) -> KeyBlock {
        self.encode_block(batch)
    }
}

/// The MemTables of a table with these columns and key.
#[must_use]
pub fn memtable_layout(schema: &RowSchema, index: KeyIndexKind) -> MemTableLayout {
    let encoder = || Arc::new(schema.key().clone()) as Arc<dyn EncodeKeys>;
    MemTableLayout { schema: schema.storage().clone(), key: schema.has_key().then(encoder), index }
}

/// Turns a frozen MemTable into an immutable run on storage.
///
/// The contract, which the flush relies on:
/// 1. `write` returns only when every file of the SSTable is as durable as the table asks for.
/// 2. Every call makes a new folder; a failed call may leave one behind, which nobody lists.
/// 3. The SSTable shows the newest row of each key of `rows`, tombstones included, and lists every
///    row position in its key index.
/// 4. `write` does not touch the shard manifest.
/// 5. `write` stores the rows under their own schema, whatever the table's is by then.
#[async_trait]
pub trait SsTableSink: Send + Sync + std::fmt::Debug {
    /// Writes `rows`, all rows of one generation, and returns its manifest entry.
    async fn write(&self, rows: &MemTableView) -> Result<SsTable>;

    /// The columns that the table has now; `None` where they never change.
    ///
    /// # Errors
    /// An input error for a table that no job can write to any more.
    async fn newest_schema(&self) -> Result<Option<Arc<RowSchema>>> {
        Ok(None)
    }
}
