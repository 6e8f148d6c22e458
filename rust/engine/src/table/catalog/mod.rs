//! The catalog wing: what a table is. Its location and base versions, its key, sharding, merge rule and
//! shards.
//!
//! Owns: [`Catalog`], the lowest part of a table handle: creating and opening a table, the stores
//! below it, the rules for its columns, commits to the base table, shard manifests, and which
//! shards and generations belong to the table.
//! Does not own: rows. It takes no snapshot (`read`), claims no shard to write rows (`write`) and
//! moves no SSTable (`maintain`).
//!
//! Reading order: `location` (with `store_options` and `single_flight`), `schema_rules`,
//! `maintenance_config`, `specifications`, `merge_gate`, `merge_functions`, `open`, `create`,
//! `primary_key`, `removal`, `progress`, `commit`, `field_ids`, `claims`, `shards`, `foreign`,
//! `missing`, `logs`, `history`, `alter_column`.
//!
//! What the other wings call:
//!
//! - of the base table: `latest`, `latest_base`, `compacted_at`, `without_reused_ids`,
//!   `commit_on_newest`, `beside_commits`, `make_durable`;
//! - of the store: `writable_store`, and the field `store` for reads;
//! - of the shards: `shards`, `routing`, `shard_ids`, `manifests`, `manifest_of`, `manifest_store`,
//!   `make_own`, `ordinal_of`, `foreign_among`, `is_foreign`, `logs`;
//! - refusals: `require_key`, `check_sharding`, `check_complete`, `refuse_missing`, `refuse_older`,
//!   `missing_in`, and their exception `excuse`.

mod alter_column;
mod claims;
mod commit;
mod create;
mod field_ids;
mod foreign;
mod history;
mod location;
mod logs;
mod maintenance_config;
mod merge_functions;
mod merge_gate;
mod missing;
mod open;
mod primary_key;
mod progress;
mod removal;
mod schema_rules;
mod shards;
mod single_flight;
mod specifications;
mod store_options;

use std::sync::{Arc, OnceLock};

use lance::Dataset;
use lancemem_core::format::Sharding;
use lancemem_core::merge::MergeRule;
use lancemem_core::store::Store;
use lancemem_core::types::{ShardId, WriterConfig};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::memory_indexes::IndexMakers;
use crate::schema::LatestBase;
use crate::sstable::FlushedIndexes;
use progress::Compacted;

pub(super) use claims::ShardTurns;
pub(super) use commit::beside_commits;
pub use create::CreateOptions;
pub use history::TableVersion;
pub use location::Location;
pub use logs::ShardLog;
pub use maintenance_config::MaintenanceConfig;
pub use merge_functions::FunctionLoader;
pub(super) use merge_gate::refuse_flushed_changes;
pub(super) use missing::{missing_text, ranges_text};
pub(super) use progress::{compacted_of, progress_alone};
pub(super) use schema_rules::refuse_unwritable;
pub(super) use shards::uncompacted;
pub use shards::{Shard, TableStats};

/// Name of the sharding field in the specification that lance writes.
pub(super) const SHARDING_FIELD: &str = "bucket";

/// What a table is: its location, its base versions, its key and its shards. A live job compares it
/// with the table that it writes to.
#[derive(Debug)]
pub struct Catalog {
    pub(super) location: Location,
    pub(super) base: Arc<LatestBase>,
    /// The indexes of the SSTables of its jobs and bulk writes.
    pub(super) flushed_indexes: Arc<FlushedIndexes>,
    /// The makers of the text indexes of rows in memory.
    pub(super) index_makers: Arc<IndexMakers>,
    /// The base version that was read last, and its compacted generations.
    compacted: Mutex<Option<(u64, Compacted)>>,
    pub(super) key: Arc<[String]>,
    pub(super) sharding: Option<Sharding>,
    /// The sharding as the manifests of its shards record it.
    pub(super) sharding_record: Option<String>,
    /// The merge rule; `None` for plain `deduplicate`. Never changes.
    pub(super) rule: Option<Arc<MergeRule>>,
    shard_spec_id: u32,
    /// The table identity; `None` in tables of an older lancemem.
    pub(super) table_id: Option<Uuid>,
    /// The defaults of the table's jobs.
    pub(super) defaults: WriterConfig,
    /// The defaults of the maintenance beside them.
    pub(super) maintenance_defaults: MaintenanceConfig,
    /// The store of the shards, for reads.
    pub(super) store: Store,
    /// The newest base version whose files are known to be on disk.
    durable_base: Mutex<Option<Arc<Dataset>>>,
    proven: OnceCell<()>,
    /// The shard whose missing generations are being abandoned; set only in a handle that is opened
    /// for that.
    excused: OnceLock<ShardId>,
}
