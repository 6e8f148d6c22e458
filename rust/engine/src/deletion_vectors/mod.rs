//! Deletion-vector mode: rows that SSTables supersede, by position, looked up once beside the writer.
//!
//! ```text
//!   _lancemem/deletion_vectors/{shard}/{run}.{name}.binpb    what one SSTable says of older rows
//! ```
//!
//! Owns: the files, which are immutable and each become visible by one creation; what is missing
//! of them for a snapshot ([`gaps`]), the look-up that fills it ([`Gap::fill`]); and the dead rows of a
//! cut of which nothing is missing ([`Cover`]). A file is believed for a fragment of the base table
//! only where that has the very files that were looked at, and for an SSTable by its folder, which is
//! never used twice. So no compaction and no other commit can make one wrong: what is not covered
//! is compared by key, as without the mode.
//! Does not own: when files are made or go (`table`), or how a scan is planned.

mod compute;
mod cover;
mod open;

use std::collections::HashMap;

use lance::Dataset;
use lance::dataset::transaction::{Operation, UpdateMap, UpdateMapEntry};

pub use cover::{Cover, Gap, SsTableCoverage, gaps};
pub use open::{SsTableFile, VectorFiles};

/// The key in a table's configuration that switches the mode on.
const PROPERTY: &str = "lancemem.deletion_vectors";
const ON: &str = "true";

/// Whether a version of the base table says that the mode is on.
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
