//! Deletion-vector mode: rows that SSTables supersede, by position, looked up once beside the writer.
//!
//! ```text
//!   _lancemem/deletion_vectors/{shard}/{run}.{name}.binpb    older rows that one SSTable kills
//! ```
//!
//! Owns: the files, which are immutable and each become visible by one creation; the vectors that a
//! snapshot lacks ([`missing_vectors`]) and the look-up that computes them
//! ([`MissingVectors::compute`]); and the dead rows of a snapshot that lacks none ([`Coverage`]).
//!
//! A reader trusts a vector for a fragment of the base table only where the fragment has the very
//! files that were looked at, and for an SSTable by its folder, whose name is never used twice. So no
//! commit can make a vector wrong: a source that is not covered is compared by key, as without the
//! mode.
//! Does not own: when files are made or go (`table`), or how a scan is planned.

mod compute;
mod coverage;
mod open;

use std::collections::HashMap;

use lance::Dataset;
use lance::dataset::transaction::{Operation, UpdateMap, UpdateMapEntry};

pub use coverage::{Coverage, MissingVectors, SsTableCoverage, missing_vectors};
pub use open::{SsTableFile, VectorFiles};

/// The key in a table's configuration that switches the mode on.
const PROPERTY: &str = "lancemem.deletion_vectors";
const ON: &str = "true";

/// Whether a version of the base table records that the mode is on.
#[must_use]
pub fn is_on(base: &Dataset) -> bool {
    base.config().get(PROPERTY).is_some_and(|value| value == ON)
}

/// The commit to the base table that switches the mode on or off.
#[must_use]
pub fn switch(on: bool) -> Operation {
    let entry = UpdateMapEntry { key: PROPERTY.to_owned(), value: on.then(|| ON.to_owned()) };
    let updates = UpdateMap { update_entries: vec![entry], replace: false };
    Operation::UpdateConfig {
        config_updates: Some(updates),
        table_metadata_updates: None,
        schema_metadata_updates: None,
        field_metadata_updates: HashMap::new(),
    }
}
