//! One shard and its single writer: claim, put, freeze, flush, recover.
//!
//! Owns: the order of steps on the write path, visibility, and the snapshot of a shard for readers
//! of the same process.
//! Does not own: Lance. A frozen MemTable becomes a Lance dataset behind [`SsTableSink`].
//!
//! Reading order: `batch` (what a write is), `placement` (the put path), `state`, `admission`,
//! `append`, `flush`, `follow`, `transactions`, `writer`, `events`, `recover`, `claim`, `turn`,
//! `ingest`, `log_read`, `log_size`, `observer`, `repair`.
//!
//! Locks of a job, in the order in which a thread may take them. `placing` and the locks below it
//! are never held over an `await`:
//!
//! | lock | is held for |
//! | --- | --- |
//! | `closing` | the `close` call that ends the job |
//! | `follower.following` | a read of the table's columns, until the job follows them |
//! | `log.running` | the life of the appending task |
//! | `log.appender` | one entry of the log |
//! | `admission.turn` | the wait of the first put in the queue for memory |
//! | `placing` | a batch from its MemTable to its place in the queue; freezing; every swap of the state |
//! | `flusher.txns` | a read or a change of the transaction ids |
//! | the queue's own, `log.positions`, `state`, `follower.schema`, `follower.refused` | a read or a swap; no other lock inside |

mod admission;
mod append;
mod batch;
mod claim;
mod events;
mod flush;
mod follow;
mod ingest;
mod log_read;
mod log_size;
mod observer;
mod placement;
mod recover;
mod repair;
mod state;
mod stats;
mod task_guard;
mod transactions;
mod turn;
mod writer;

use async_trait::async_trait;

pub use batch::{Acknowledged, Deletes, WriteBatch, WriteOptions};
pub use claim::ShardIdentity;
pub use events::rounded_seconds;
pub use ingest::{IngestedSsTable, unlisted_rows};
pub use log_size::{LogSize, log_rows, log_size};
pub use observer::JobWatch;
pub use recover::{Look, Replay, Replayed};
pub use repair::{
    WalDamage, WalFinding, WalReport, check_empty, retire, take_over, truncate_wal, verify_wal,
};
pub use state::ShardSnapshot;
pub use stats::JobStats;
pub use transactions::{is_new, recorded_txns};
pub use turn::{ClaimTurn, EntryStanding, PlannedEntry};
pub use writer::ShardWriter;

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::format::{KeyEncoder, RowSchema, SsTable};
use crate::memtable::{EncodeKeys, MakeIndex, MemTableLayout, MemTableView};
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
    MemTableLayout {
        schema: schema.storage().clone(),
        key: schema.has_key().then(encoder),
        index,
        rule: schema.rule().cloned(),
        fold: schema.fold().cloned(),
    }
}

/// Turns a frozen MemTable into an immutable SSTable on storage.
///
/// The contract, which the flush relies on:
/// 1. `write` returns only when every file of the SSTable is as durable as the table asks for.
/// 2. Every call makes a new folder; a failed call may leave one behind, which no manifest lists.
/// 3. The SSTable shows the newest row of each key of `rows`, tombstones included, and lists every
///    row position in its key index.
/// 4. `write` does not touch the shard manifest.
/// 5. `write` stores the rows under their own schema, even where the table's has changed since.
#[async_trait]
pub trait SsTableSink: Send + Sync + std::fmt::Debug {
    /// Writes `rows`, all rows of one generation, and returns its manifest entry.
    async fn write(&self, rows: &MemTableView) -> Result<SsTable>;

    /// The indexes of rows in memory that a put with `sync_search_index` fills. Makes no request to
    /// storage.
    fn search_indexes(&self) -> Arc<[Arc<dyn MakeIndex>]> {
        Arc::from([])
    }
}

/// The columns of a job's table, which other processes change.
#[async_trait]
pub trait SchemaSource: Send + Sync + std::fmt::Debug {
    /// The columns that the table had when the job was asked for. Makes no request to storage.
    fn known(&self) -> Arc<RowSchema>;

    /// The columns that the table has now.
    ///
    /// # Errors
    /// An input error for a table that no job can write to any more; a storage error.
    async fn newest(&self) -> Result<Arc<RowSchema>>;
}

/// A schema source whose columns never change.
#[derive(Clone, Debug)]
pub struct FixedSchema(pub Arc<RowSchema>);

#[async_trait]
impl SchemaSource for FixedSchema {
    fn known(&self) -> Arc<RowSchema> {
        self.0.clone()
    }

    async fn newest(&self) -> Result<Arc<RowSchema>> {
        Ok(self.0.clone())
    }
}
