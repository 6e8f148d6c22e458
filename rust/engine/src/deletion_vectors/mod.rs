//! Deletion-vector mode: the positions of superseded rows, looked up once, beside the writer.
//!
//! ```text
//!   _lancemem/deletion_vectors/{shard}/{SSTable}.{name}.binpb    older rows that one SSTable kills
//! ```
//!
//! Owns: the immutable files; the deletion vectors that a snapshot lacks ([`missing_vectors`]) and
//! their computation ([`MissingVectors::compute`]); and the dead rows of a snapshot that lacks none
//! ([`Coverage`]).
//! Does not own: when files are written or removed (`table`), or how a scan is planned.
//!
//! A reader trusts the deletion vector of a base fragment only where the fragment still has the
//! files that were looked up. It trusts the deletion vector of an SSTable by the name of the
//! SSTable's folder, which is never used twice. So no commit can make a deletion vector wrong: a
//! source that is not covered is compared by key, as without the mode.
//!
//! With a merge rule that chooses, a row may also lose to an older one, and a deleted row beats none:
//! a file then answers for a fragment with the same deletion file only, and where one source is not
//! covered all are compared.

mod compute;
mod coverage;
mod open;

use std::collections::HashMap;

use lance::Dataset;
use lance::dataset::transaction::{Operation, UpdateMap, UpdateMapEntry};

pub use coverage::{Coverage, FirstSuperseded, MissingVectors, SsTableCoverage, missing_vectors};
pub use open::{SsTableFile, VectorFiles};

/// The key of the mode in a table's configuration.
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
