//! The key columns of base fragments.
//!
//! Owns: the identity of a fragment's key columns, and reading all rows of some columns.
//! Does not own: the use of the keys.

use arrow_array::RecordBatch;
use futures::StreamExt;
use futures::stream::BoxStream;
use lance::Dataset;
use lance::dataset::fragment::{FileFragment, FragReadConfig};
use lance_core::Result as LanceResult;
use lance_core::datatypes::Schema;
use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};

/// Rows of a batch, and batches that are read ahead.
const BATCH_ROWS: u32 = 65_536;
const BATCHES_AHEAD: usize = 4;

/// Field ids of the key columns.
#[must_use]
pub fn key_ids(base: &Dataset, key: &[String]) -> Vec<i32> {
    key.iter().filter_map(|name| base.schema().field(name)).map(|field| field.id).collect()
}

/// The data files of a fragment that hold key columns.
#[must_use]
pub fn key_files(fragment: &Fragment, key_ids: &[i32]) -> Vec<String> {
    let holds_key = |fields: &[i32]| fields.iter().any(|field| key_ids.contains(field));
    let files = fragment.files.iter().filter(|file| holds_key(&file.fields));
    files.map(|file| file.path.clone()).collect()
}

/// Whether a fragment still has the rows and keys, at the same positions, that a run recorded by
/// their number and their files.
#[must_use]
pub fn has_keys_of(fragment: &Fragment, key_ids: &[i32], rows: u64, files: &[String]) -> bool {
    fragment.overlays.is_empty()
        && fragment.physical_rows.map(|rows| rows as u64) == Some(rows)
        && key_files(fragment, key_ids) == files
}

/// The fragment `id` of the base table.
///
/// # Errors
/// An internal error where it has none.
pub fn fragment_of(base: &Dataset, id: u64) -> Result<FileFragment> {
    let fragment = usize::try_from(id).ok().and_then(|id| base.get_fragment(id));
    fragment.ok_or_else(|| {
        let version = base.version().version;
        Error::internal(format!("version {version} of the base table has no fragment {id}"))
    })
}

/// Some columns of all rows of a fragment's files, deleted ones included, in row order.
///
/// # Errors
/// A storage error.
pub async fn column_batches(
    fragment: &FileFragment,
    columns: &[String],
) -> LanceResult<BoxStream<'static, LanceResult<RecordBatch>>> {
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    all_batches(fragment, &fragment.schema().project(&names)?, BATCH_ROWS).await
}

/// As [`column_batches`], with `rows` rows in a batch.
///
/// # Errors
/// A storage error.
pub async fn all_batches(
    fragment: &FileFragment,
    columns: &Schema,
    rows: u32,
) -> LanceResult<BoxStream<'static, LanceResult<RecordBatch>>> {
    let config = FragReadConfig::default().with_ignore_deletions(true);
    let reader = fragment.open(columns, config).await?;
    Ok(reader.read_all(rows).await?.buffered(BATCHES_AHEAD).boxed())
}
