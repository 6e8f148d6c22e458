//! Rows whose columns were rewritten in place: the fragment keeps its id and its offsets.
//!
//! Owns: the columns of a fragment that two versions read from other files, and the comparison of
//! their values row by row. A column that was added, dropped or restored differs where its value
//! is not null in one version.
//! Does not own: rows that died or came (`derive`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::Field;
use futures::TryStreamExt;
use lance::Dataset;
use lance_core::datatypes::Field as LanceField;
use lance_table::format::{DataFile, Fragment};
use lancemem_core::format::reconcile::StoredPlaces;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::derive::Died;
use super::images::{Version, scan};
use super::row_hash::RowHasher;
use super::selection::{Picked, Selection};
use super::shape::Shape;
use crate::errors::BaseContext;
use crate::record_index::fragment_of;
use crate::row_address::{address_half, split_address};

/// The columns of a feed in two versions.
#[derive(Debug)]
pub struct Altered<'a> {
    shape: &'a Shape,
    old: &'a Arc<Dataset>,
    new: &'a Arc<Dataset>,
    columns: Vec<Column>,
    /// Whether both versions have the same columns.
    is_one_schema: bool,
}

/// The field ids of a column and of its parts, in each version. No ids where it lacks the column.
#[derive(Debug)]
struct Column {
    name: String,
    old: Vec<i32>,
    new: Vec<i32>,
    /// Whether the values are the same by the promise of the operation.
    is_kept: bool,
}

impl<'a> Altered<'a> {
    /// The columns of the feed in `old` and in `new`, which fit the table. With `keeps_widened` a widened column has the
    /// same values.
    ///
    /// # Errors
    /// An error of changes that cannot be derived where a version's columns do not fit.
    pub fn new(
        shape: &'a Shape,
        old: &'a Arc<Dataset>,
        new: &'a Arc<Dataset>,
        keeps_widened: bool,
    ) -> Result<Self> {
        shape.stored(old, &shape.all)?;
        let (of_old, of_new) = (shape.columns_of(old), shape.columns_of(new));
        let (in_old, in_new) =
            (StoredPlaces::of(of_old.fields()), StoredPlaces::of(of_new.fields()));
        let wanted: HashMap<&str, &Arc<Field>> =
            shape.table.rows.logical().fields().iter().map(|it| (it.name().as_str(), it)).collect();
        let column = |name: &String| {
            let missing = || Error::internal(format!("column '{name}' is not in the table"));
            let field = wanted.get(name.as_str()).ok_or_else(missing)?;
            let before = in_old.find(field).and_then(|place| old.schema().fields.get(place));
            let after = in_new.find(field).and_then(|place| new.schema().fields.get(place));
            let is_widened = matches!((before, after), (Some(before), Some(after))
                if before.id != after.id && before.data_type() != after.data_type());
            Ok(Column {
                name: name.clone(),
                old: before.map(ids_of).unwrap_or_default(),
                new: after.map(ids_of).unwrap_or_default(),
                is_kept: keeps_widened && is_widened,
            })
        };
        let columns = shape.all.iter().map(column).collect::<Result<Vec<Column>>>()?;
        let is_one_schema = columns.iter().all(|column| column.old == column.new);
        Ok(Self { shape, old, new, columns, is_one_schema })
    }

    /// The columns that the fragment reads from other files in the newer version.
    pub fn columns(&self, before: &Fragment, after: &Fragment) -> Vec<String> {
        let has_other_overlays = before.overlays != after.overlays;
        if self.is_one_schema && !has_other_overlays && before.files == after.files {
            return Vec::new();
        }
        let is_other = |column: &&Column| {
            let (old, new) = (places(before, &column.old), places(after, &column.new));
            !column.is_kept && (old != new || (has_other_overlays && !new.is_empty()))
        };
        self.columns.iter().filter(is_other).map(|column| column.name.clone()).collect()
    }

    /// The rows of a fragment, alive in both versions, that differ in `columns`.
    ///
    /// # Errors
    /// A storage error.
    pub async fn rows(
        &self,
        columns: &[String],
        died: &Died,
        fragment: u64,
    ) -> Result<RoaringBitmap> {
        if columns.is_empty() {
            return Ok(RoaringBitmap::new());
        }
        let rows = fragment_of(self.new, fragment)?.physical_rows().await;
        let rows = rows.in_base("counting the rows of a fragment")?;
        let mut alive = RoaringBitmap::new();
        alive.insert_range(0..u32::try_from(rows).unwrap_or(u32::MAX));
        alive -= &died.deleted;
        let mut selection = Selection::default();
        selection.set(address_half(fragment)?, Picked::At(alive));
        let before = self.hashes(self.old, columns, &selection).await?;
        let after = self.hashes(self.new, columns, &selection).await?;
        let mut differing = RoaringBitmap::new();
        if before.len() != after.len() {
            return Err(Error::internal(format!(
                "fragment {fragment} has {} rows in one version and {} in the next",
                before.len(),
                after.len()
            )));
        }
        for ((offset, before), (_, after)) in before.into_iter().zip(after) {
            if before.is_none() || before != after {
                differing.insert(offset);
            }
        }
        Ok(differing)
    }

    /// The offset and the hash of each row; no hash where values cannot be compared.
    async fn hashes(
        &self,
        dataset: &Arc<Dataset>,
        columns: &[String],
        rows: &Selection,
    ) -> Result<Vec<(u32, Option<u128>)>> {
        let stored = self.shape.stored(dataset, columns)?;
        let hasher = RowHasher::new(&stored.schema)?;
        let mut hashes = Vec::new();
        let mut read = scan(&Version::of(dataset.clone()), rows, stored).await?;
        while let Some(batch) = read.try_next().await? {
            let offsets = batch.addresses.values().iter().map(|address| split_address(*address).1);
            match &hasher {
                Some(hasher) => {
                    hashes.extend(offsets.zip(hasher.hash(&batch.rows)?.into_iter().map(Some)));
                }
                None => hashes.extend(offsets.map(|offset| (offset, None))),
            }
        }
        Ok(hashes)
    }
}

/// The ids of a field and of its parts.
fn ids_of(field: &LanceField) -> Vec<i32> {
    let mut ids = vec![field.id];
    ids.extend(field.children.iter().flat_map(ids_of));
    ids
}

/// Where a fragment has a column: its files, and the ids in them.
fn places<'a>(fragment: &'a Fragment, ids: &[i32]) -> Vec<(&'a str, i32)> {
    let of_file = |file: &'a DataFile| {
        let held = file.fields.iter().filter(|id| ids.contains(id));
        held.map(|id| (file.path.as_str(), *id)).collect::<Vec<_>>()
    };
    let mut places: Vec<(&str, i32)> = fragment.files.iter().flat_map(of_file).collect();
    places.sort_unstable();
    places
}
