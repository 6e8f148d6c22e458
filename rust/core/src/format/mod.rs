//! The bytes on disk, as pure functions: paths, shard manifest, WAL entry, keys, sharding, rows.
//!
//! Owns: every byte that lancemem writes outside Lance's own files, following the MemWAL
//! specification (lance-format/lance, `docs/src/format/table/mem_wal.md`) as lance 14.0.2
//! writes it. `docs/format.md` is the prose twin of this module.
//! Does not own: object storage, clocks, or when something is written.

mod cast;
pub mod changelog;
pub mod checksummed;
mod event_rows;
mod floats;
mod flushed_changes;
mod framed_file;
pub mod fsync_note;
mod given_bits;
pub mod graves;
pub mod key;
mod key_values;
pub mod key_view;
pub mod manifest;
pub mod merged_rows;
mod null_check;
pub mod paths;
pub mod reconcile;
pub mod record_index;
pub mod rows;
pub mod run_vectors;
pub mod sharding;
pub mod size;
pub mod version_hint;
pub mod wal_entry;
mod wal_trailer;
mod zero_width;

pub use changelog::{ChangeRows, FragmentRows, PublishedChanges, StoredRows};
pub use event_rows::PutMode;
pub use floats::round_floats;
pub use flushed_changes::PublishedFlush;
pub use graves::{GraveFolder, GraveList};
pub use key::KeyEncoder;
pub use key_values::key_values;
pub use key_view::{KeyForm, KeyView};
pub use manifest::{ShardManifest, ShardStatus, SsTable};
pub use reconcile::Reconcile;
pub use record_index::{IndexedFragment, PAGE_BLOCK_BYTES, PageFile, RecordIndexRun};
pub use rows::{AcceptedRows, RESERVED, RowSchema, TOMBSTONE};
pub use run_vectors::{FragmentVector, OlderSsTableVector, SsTableVectors};
pub use sharding::Sharding;
pub use wal_entry::WalEntry;
pub use wal_trailer::{LogAddress, TRAILER_BYTES};
