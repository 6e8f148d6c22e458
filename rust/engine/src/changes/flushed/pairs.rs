//! The change rows of one flush, and which of them meet the conditions of a feed.
//!
//! Owns: reading change rows with their kinds, and the rows that a condition or a comparison keeps.
//! Does not own: the columns that a feed adds (`feed`).
//!
//! Both images of an update name the same row of the SSTable, so one pass over the columns of the
//! condition finds the keys that a feed has.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{RecordBatch, StringArray, UInt32Array};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::ROW;
use super::shape::FlushedShape;
use crate::changes::row_hash::RowHasher;
use crate::changes::shape::Check;
use crate::changes::types::{CHANGE_TYPE, Image};
use crate::damage::naming_damage_of;
use crate::errors::{BaseContext, Context};
use crate::plan::Filter;
use crate::schema::StoredColumns;
use crate::snapshot::set_batches;

const ACTION: &str = "reading the changes of a flush";
/// Rows of a batch, the default of Lance's scans.
const BATCH_ROWS: usize = 8_192;

/// Some change rows.
#[derive(Debug)]
pub struct Changes {
    /// Columns of the table.
    pub rows: RecordBatch,
    /// The kind of each.
    pub kinds: StringArray,
    /// The row of the SSTable that has the key of each.
    pub places: UInt32Array,
}

/// The change rows of `dataset` with the columns `columns`, in their order.
///
/// # Errors
/// A storage error.
pub async fn changes(
    dataset: &Arc<Dataset>,
    columns: StoredColumns,
) -> Result<BoxStream<'static, Result<Changes>>> {
    let mut names = columns.names.clone();
    names.extend([CHANGE_TYPE, ROW].map(str::to_owned));
    let mut scanner = dataset.scan();
    scanner.project(&names).in_base(ACTION)?;
    set_batches(&mut scanner, dataset, &names, BATCH_ROWS, None);
    let batches = scanner.try_into_stream().await.in_base(ACTION)?;
    let rows = batches.map(move |batch| changes_of(&batch.in_base(ACTION)?, &columns));
    Ok(naming_damage_of(dataset.clone(), rows))
}

fn changes_of(batch: &RecordBatch, columns: &StoredColumns) -> Result<Changes> {
    let missing = |name: &str| Error::internal(format!("{ACTION}: column '{name}' was not read"));
    let kinds = batch.column_by_name(CHANGE_TYPE).and_then(|it| it.as_string_opt::<i32>());
    let places = batch.column_by_name(ROW).and_then(|it| it.as_primitive_opt::<UInt32Type>());
    Ok(Changes {
        kinds: kinds.ok_or_else(|| missing(CHANGE_TYPE))?.clone(),
        places: places.ok_or_else(|| missing(ROW))?.clone(),
        rows: columns.bring(batch)?,
    })
}

/// The image of a kind, and whether it is of an update.
///
/// # Errors
/// Damage for a text that is no kind.
pub fn image_of(kind: &str) -> Result<(Image, bool)> {
    match kind {
        "insert" => Ok((Image::After, false)),
        "update_preimage" => Ok((Image::Before, true)),
        "update_postimage" => Ok((Image::After, true)),
        "delete" => Ok((Image::Before, false)),
        other => {
            let detail = format!("'{}' is no kind of a change", other.escape_default());
            Err(Error::corrupt("the changes of a flush", "undecodable", detail))
        }
    }
}

/// The rows of the SSTable whose changes a feed of `shape` has; `None` for all.
///
/// # Errors
/// An input error where the condition fails for a row; damage; a storage error.
pub async fn kept_rows(
    dataset: &Arc<Dataset>,
    shape: &FlushedShape,
) -> Result<Option<RoaringBitmap>> {
    if shape.filter.is_none() && !shape.skip_unchanged {
        return Ok(None);
    }
    let compared: &[String] = if shape.skip_unchanged { &shape.columns } else { &[] };
    let mut names = compared.to_vec();
    let tested = shape.filter.iter().flat_map(Filter::columns);
    names.extend(tested.filter(|name| !compared.contains(name)));
    let columns = shape.stored(dataset, &names)?;
    let schema = columns.schema.clone();
    let check = shape.filter.as_ref().map(|filter| Check::new(filter, &schema)).transpose()?;
    let places: Vec<usize> = (0..compared.len()).collect();
    let hasher = if shape.skip_unchanged {
        RowHasher::new(&schema.project(&places).context(ACTION)?)?
    } else {
        None
    };
    let mut tests = Tests { check, hasher, places, ..Tests::default() };
    let mut read = changes(dataset, columns).await?;
    while let Some(some) = read.try_next().await? {
        tests.add(&some)?;
    }
    Ok(Some(tests.met - tests.unchanged))
}

/// The conditions of a feed, and the rows that meet them.
#[derive(Default)]
struct Tests {
    check: Option<Check>,
    hasher: Option<RowHasher>,
    /// The places of the compared columns.
    places: Vec<usize>,
    /// Rows of which an image meets the condition.
    met: RoaringBitmap,
    /// The hashes of images before an update.
    before: HashMap<u32, u128>,
    /// Rows whose images are equal.
    unchanged: RoaringBitmap,
}

impl Tests {
    fn add(&mut self, some: &Changes) -> Result<()> {
        let places = some.places.values();
        match &self.check {
            Some(check) => {
                let met = check.of(&some.rows)?;
                self.met.extend(met.values().set_indices().map(|place| places[place]));
            }
            None => self.met.extend(places.iter().copied()),
        }
        let Some(hasher) = &self.hasher else { return Ok(()) };
        let hashes = hasher.hash(&some.rows.project(&self.places).context(ACTION)?)?;
        for (row, hash) in hashes.into_iter().enumerate() {
            let place = places[row];
            match image_of(some.kinds.value(row))? {
                (Image::Before, true) => {
                    self.before.insert(place, hash);
                }
                (Image::After, true) if self.before.get(&place) == Some(&hash) => {
                    self.unchanged.insert(place);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
