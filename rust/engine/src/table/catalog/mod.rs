//! The catalog wing: what a table is. Its location and base versions, its key, sharding and shards.
//!
//! Owns: creating and opening a table, the stores below it, the rules for its columns, the shard
//! manifests and which shards and generations belong to the table.
//! Does not own: rows. It takes no snapshot (`read`), claims no shard for rows (`write`) and moves
//! no SSTable (`maintain`).
//!
//! Reading order: `location` (with `store_options` and `single_flight`), `schema_rules`, `create`,
//! `shards`, `foreign`, `missing`, `history`, `alter_column`.

mod alter_column;
mod create;
mod foreign;
mod history;
mod location;
mod missing;
mod schema_rules;
mod shards;
mod single_flight;
mod store_options;

pub use create::CreateOptions;
pub(super) use create::{SHARDING_FIELD, sharding_of, table_id_of, with_own_field_ids};
pub use history::TableVersion;
pub use location::Location;
pub(super) use missing::ranges_text;
pub(super) use schema_rules::refuse_unwritable;
pub(super) use shards::uncompacted;
pub use shards::{Shard, TableStats};
