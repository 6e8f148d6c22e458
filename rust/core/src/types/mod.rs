//! Words of the engine as types: counters, freshness, keys, settings and errors; a static that no
//! fork inherits.
//!
//! Owns: values without behaviour that every other module shares.
//! Does not own: I/O, locks, clocks, or how a value is stored.

mod config;
mod counters;
mod error;
mod freshness;
mod key;
mod key_block;
mod max_bytes;
mod per_process;
mod txn;
mod type_name;

pub use config::{KeyIndexKind, WriterConfig};
pub use counters::{Generation, ManifestVersion, RowPosition, ShardId, WalPosition, WriterEpoch};
pub use error::{Error, ErrorKind, ErrorSource, Result};
pub use freshness::Freshness;
pub use key::KeyBytes;
pub use key_block::KeyBlock;
pub use max_bytes::{MAX_PUT_BYTES, MaxBytes};
pub use per_process::PerProcess;
pub use txn::{ONCE, Standing, Txn, Txns, once_app_id, once_name};
pub use type_name::TypeName;
