//! Merged rows that are stored, so that a reader of the same sources merges nothing.
//!
//! Owns: what the merged rows of a shard are made of, which says whether stored ones are the right
//! ones, and the rows of a file.
//! Does not own: when files are written, read or removed (`table`).
//!
//! A reader takes a file for the very fragments, deletion files, SSTables, columns and rule that it was
//! made of. A commit of any program to the base table so makes it useless, never wrong.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use bytes::Bytes;
use lance_table::format::Fragment;
use lancemem_core::format::{RowSchema, merged_rows, paths};
use lancemem_core::merge::Fold;
use lancemem_core::types::{Error, Result};

use super::memtable_of;
use crate::snapshot::{MemTableView, Snapshot, SnapshotShard};
use crate::visibility::MergedMemTables;

/// What the merged rows of a snapshot's shards are made of.
#[derive(Debug)]
pub struct MergedFrom {
    /// The rule, the columns and the base table, which all shards share.
    shared: String,
}

impl MergedFrom {
    /// What the merged rows of `snapshot` are made of. `None` where its rule makes no row of several,
    /// or a fragment has overlays.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let fold = snapshot.columns.rows.fold()?;
        let fragments = snapshot.base.fragments();
        if fragments.iter().any(|fragment| !fragment.overlays.is_empty()) {
            return None;
        }
        let mut shared = format!("rule {}\n", fold.rule().to_json());
        for field in snapshot.base.schema().fields_pre_order() {
            let (id, name, logical_type) = (field.id, &field.name, &field.logical_type);
            let _ = writeln!(shared, "column {id} {name:?} {logical_type} {}", field.nullable);
        }
        for fragment in fragments.iter() {
            write_fragment(&mut shared, fragment);
        }
        Some(Self { shared })
    }

    /// Those of one shard, as text.
    fn of_shard(&self, shard: &SnapshotShard) -> String {
        let mut text = format!("{}shard {}\n", self.shared, shard.shard_id.as_hyphenated());
        for sstable in &shard.sstables {
            let _ = writeln!(text, "SSTable {}", sstable.path);
        }
        text
    }

    /// The path of the file of a shard's merged rows; `None` for a shard without SSTables, which has
    /// none.
    #[must_use]
    pub fn path(&self, shard: &SnapshotShard) -> Option<String> {
        let newest = shard.sstables.last()?;
        let name = merged_rows::name_of(&self.of_shard(shard));
        Some(paths::merged_rows_file(shard.shard_id, &newest.path, &name))
    }

    /// The bytes of the file of a shard whose merged rows are `rows`.
    ///
    /// # Errors
    /// An internal error where they cannot be encoded.
    pub fn encode(
        &self,
        snapshot: &Snapshot,
        shard: &SnapshotShard,
        rows: Option<&MemTableView>,
    ) -> Result<Bytes> {
        let batches: Vec<RecordBatch> =
            rows.into_iter().flat_map(MemTableView::batches).cloned().collect();
        merged_rows::encode(snapshot.columns.rows.storage(), &batches, &self.of_shard(shard))
    }

    /// The merged rows of a shard in the bytes of the file at `path`; `None` where the file was made of
    /// something else.
    ///
    /// # Errors
    /// Damage.
    pub fn decode(
        &self,
        snapshot: &Snapshot,
        shard: &SnapshotShard,
        (bytes, path): (&Bytes, &str),
    ) -> Result<Option<MergedMemTables>> {
        let rows = &snapshot.columns.rows;
        let Some(batches) = merged_rows::decode(bytes, path, &self.of_shard(shard))? else {
            return Ok(None);
        };
        let batches = batches.into_iter().map(|batch| in_schema(rows, batch, path));
        let batches = batches.collect::<Result<Vec<_>>>()?;
        if batches.is_empty() {
            return Ok(Some(MergedMemTables::new()));
        }
        Ok(Some(vec![(shard.shard_id, memtable_of(shard, rows, batches))]))
    }
}

fn write_fragment(text: &mut String, fragment: &Fragment) {
    let rows = fragment.physical_rows.map_or(-1, |rows| i64::try_from(rows).unwrap_or(i64::MAX));
    let _ = writeln!(text, "fragment {} {rows}", fragment.id);
    for file in &fragment.files {
        let _ = writeln!(text, "file {:?} {:?} {:?}", file.path, file.fields, file.base_id);
    }
    if let Some(deletions) = &fragment.deletion_file {
        let _ = writeln!(text, "deletions {} {}", deletions.read_version, deletions.id);
    }
}

/// The rows of a file as events of the table.
fn in_schema(rows: &Arc<RowSchema>, batch: RecordBatch, path: &str) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let (_, columns, _) = batch.into_parts();
    RecordBatch::try_new_with_options(rows.storage().clone(), columns, &options)
        .map_err(|error| Error::corrupt(path, "other columns", error.to_string()))
}

/// The fold of a snapshot whose merged rows may be stored.
#[must_use]
pub fn fold_of(snapshot: &Snapshot) -> Option<&Arc<Fold>> {
    let is_flushed = |shard: &SnapshotShard| shard.memtables.is_empty();
    let fold = snapshot.columns.rows.fold()?;
    let merges = !snapshot.key.is_empty() && !snapshot.is_base_only();
    (merges && snapshot.shards.iter().all(is_flushed)).then_some(fold)
}
