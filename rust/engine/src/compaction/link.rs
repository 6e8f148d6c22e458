//! An SSTable's data file as a fragment of the base table, its bytes untouched.
//!
//! Owns: which files fit, the new fragment with its deletion file, and the hard link or the copy
//! of the file.
//! Does not own: which rows are dead, or the commit.
//!
//! The file keeps its `_tombstone` column, and the reserved ones behind it; the fragment lists them under lance's id for a
//! column that belongs to no field. The file gets a new random name in every attempt, so the files
//! of a failed attempt can be removed without regard to other attempts.

use std::sync::Arc;

use lance::Dataset;
use lance_core::datatypes::Field;
use lance_file::version::ConcreteFileVersion;
use lance_table::format::overlay::TOMBSTONE_FIELD_ID;
use lance_table::format::{DataFile, Fragment};
use lance_table::io::deletion::write_deletion_file;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::types::{Error, Result};

use super::inputs::InputSsTable;
use super::throttle::Throttle;
use crate::errors::Context;
use crate::sstable::{Linked, data_file_name, link};

/// Lance's folder of data files.
const DATA: &str = "data";

/// Size of the SSTable's data file in bytes; 0 where its manifest does not record it.
pub fn file_bytes(sstable: &InputSsTable) -> u64 {
    let fragments = sstable.handle.dataset.fragments();
    let files = fragments.iter().flat_map(|fragment| &fragment.files);
    files.map(|file| file.file_size_bytes.get().map_or(0, std::num::NonZero::get)).sum()
}

/// Why the SSTable's data file cannot be a fragment of `base`; `None` where it can.
pub fn misfit(base: &Dataset, sstable: &InputSsTable) -> Option<String> {
    let dataset = &sstable.handle.dataset;
    let Some(fragment) = dataset.fragments().first().cloned() else {
        return Some("the SSTable has no data file".to_owned());
    };
    let [file] = fragment.files.as_slice() else {
        return Some(format!("the SSTable has {} data files", fragment.files.len()));
    };
    if file.base_id.is_some() || !fragment.overlays.is_empty() {
        return Some("the SSTable has data outside its data file".to_owned());
    }
    let version = base.manifest().data_storage_format.lance_file_format();
    if version == ConcreteFileVersion::V1 || file.file_version().ok() != Some(version) {
        return Some(format!("the SSTable does not have the table's file version, {version}"));
    }
    let own: Vec<&Field> =
        dataset.schema().fields.iter().take_while(|field| field.name != TOMBSTONE).collect();
    let wanted: Vec<&Field> = base.schema().fields.iter().collect();
    if let Some(column) = changed_column(&own, &wanted) {
        return Some(format!("column '{column}' has changed since the SSTable was written"));
    }
    if dataset.schema().fields_pre_order().any(|field| field.is_blob() || field.is_blob_v2()) {
        return Some("a blob column stores bytes outside the data file".to_owned());
    }
    // A tombstone has nulls in every column but the key. It is never shown as a row, but a reader
    // decodes it together with the rows around it, and expects no null in a non-nullable column.
    let strict = wanted.iter().any(|field| !field.nullable && !field.is_unenforced_primary_key());
    if strict && has_tombstones(sstable) {
        return Some("a dead row may have a null in a column that is not nullable".to_owned());
    }
    None
}

/// Whether a row of the file may be a tombstone. A superseded row may be one too, so any dead row
/// counts.
fn has_tombstones(sstable: &InputSsTable) -> bool {
    !sstable.dead.is_empty()
}

/// The name of a column that only one of the two schemas has, or that differs between them.
fn changed_column(sstable: &[&Field], base: &[&Field]) -> Option<String> {
    let lacks = |fields: &[&Field], wanted: &Field| {
        let same = fields.iter().find(|have| have.id == wanted.id);
        same.is_none_or(|have| !same_columns(&[*have], &[wanted]))
    };
    let changed = base.iter().find(|field| lacks(sstable, field));
    let changed = changed.or_else(|| sstable.iter().find(|field| lacks(base, field)));
    changed.map(|field| field.name.clone())
}

/// Whether both have the same columns, in any order. Nullability is ignored: columns of an SSTable
/// are nullable, for tombstones.
fn same_columns(sstable: &[&Field], base: &[&Field]) -> bool {
    sstable.len() == base.len()
        && base.iter().all(|wanted| {
            sstable.iter().any(|have| {
                have.id == wanted.id
                    && have.name == wanted.name
                    && have.logical_type == wanted.logical_type
                    && same_columns(
                        &have.children.iter().collect::<Vec<_>>(),
                        &wanted.children.iter().collect::<Vec<_>>(),
                    )
            })
        })
}

/// A new fragment, and how many bytes of its file were copied.
#[derive(Debug)]
pub struct LinkedFile {
    /// The fragment, not committed.
    pub fragment: Fragment,
    /// Bytes that were copied because the disk or store has no hard links; else 0.
    pub copied_bytes: u64,
}

/// Makes the data file of `sstable` the fragment `id` of `base`.
///
/// # Errors
/// A storage error.
pub async fn link_file(
    base: &Dataset,
    sstable: &InputSsTable,
    id: u64,
    throttle: &Throttle,
) -> Result<LinkedFile> {
    let action = format!("linking {}", sstable.name());
    let store = base.object_store(None).await.context(&action)?;
    let dataset = &sstable.handle.dataset;
    let source = &dataset.fragments()[0].files[0];
    let name = data_file_name().context(&action)?;
    let root = base.branch_location().path;
    let from = dataset.branch_location().path.join(DATA).join(source.path.as_str());
    let to = root.clone().join(DATA).join(name.as_str());
    let linked = link(&store, &from, &to).await.context(&action)?;
    let bytes = file_bytes(sstable);
    if linked != Linked::Yes {
        throttle.take(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
    }
    if linked == Linked::NotHere {
        store.copy(&from, &to).await.context(&action)?;
    }
    let mut fragment = Fragment::new(id);
    fragment.physical_rows = usize::try_from(sstable.physical_rows).ok();
    fragment.files.push(renamed(source, name, dataset)?);
    if let Some(dead) = sstable.dead.in_sstable().filter(|dead| !dead.is_empty()) {
        let dead = dead.clone().into();
        let version = base.version().version;
        fragment.deletion_file =
            write_deletion_file(&root, id, version, &dead, &store).await.context(&action)?;
    }
    Ok(LinkedFile { fragment, copied_bytes: if linked == Linked::Yes { 0 } else { bytes } })
}

/// The entry of the file in the base table, in which `_tombstone` and the reserved columns behind it
/// belong to no field.
fn renamed(source: &DataFile, name: String, sstable: &Dataset) -> Result<DataFile> {
    let fields = &sstable.schema().fields;
    let reserved: Vec<i32> =
        fields.iter().skip_while(|field| field.name != TOMBSTONE).map(|field| field.id).collect();
    if reserved.is_empty() {
        return Err(Error::internal(format!("{} has no column {TOMBSTONE}", sstable.uri())));
    }
    let hide = |id: &i32| if reserved.contains(id) { TOMBSTONE_FIELD_ID } else { *id };
    let fields: Arc<[i32]> = source.fields.iter().map(hide).collect();
    Ok(DataFile { path: name, fields, ..source.clone() })
}
