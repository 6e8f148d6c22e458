//! The changes of a commit, stored before it is made.
//!
//! Owns: the change rows of a compaction's commit, in the order in which a feed derives them, and
//! what the transaction records of them.
//! Does not own: the commit, or the files of change rows (`crate::sstable`).
//!
//! A commit that is made publishes the folder, because its transaction names it. A commit that is
//! refused leaves a folder that no version names.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lance_table::format::Fragment;
use lancemem_core::format::changelog::{CHANGES, NO_ROWS};
use lancemem_core::format::{ChangeRows, FragmentRows, StoredRows};
use lancemem_core::types::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::derive::{Difference, difference_of_commit};
use super::images::{Rows, Version, scan};
use super::pair::{Paired, Pairing, Side};
use super::selection::Selection;
use super::shape::{Shape, refuse_reserved};
use super::types::{CHANGE_TYPE, ChangeOptions, Image, RowKinds};
use crate::errors::{Context, external};
use crate::record_index::new_name;
use crate::schema::{BaseVersion, StoredColumns, with_ids};
use crate::sstable::{ChangeRowsFiles, SsTableContext, write_change_rows};
use crate::visibility::Pace;

const ACTION: &str = "storing the changes of a compaction";

/// A commit that a compaction is about to make.
#[derive(Debug)]
pub struct PlannedCommit<'a> {
    /// The version before it.
    pub base: BaseVersion,
    /// Fragments of that version without a live row.
    pub removed: &'a [u64],
    /// Fragments of that version with another deletion file.
    pub updated: &'a [Fragment],
    /// New fragments, with their ids.
    pub added: &'a [Fragment],
}

/// The stored changes of a commit, before it is made.
pub struct Recorded {
    property: String,
    files: Option<ChangeRowsFiles>,
}

impl Recorded {
    /// The properties of the transaction that publishes the changes.
    #[must_use]
    pub fn properties(&self) -> HashMap<String, String> {
        HashMap::from([(CHANGES.to_owned(), self.property.clone())])
    }

    /// Removes the files of a commit that was refused. Best effort: a collection removes the rest.
    pub async fn remove(self) {
        let Some(files) = self.files else { return };
        if let Err(error) = files.remove().await.context("removing the changes of no version") {
            tracing::debug!(%error, "a collection removes them");
        }
    }
}

impl PlannedCommit<'_> {
    /// Stores the changes, and returns what the transaction records of them. `None` where they
    /// cannot be stored, and readers derive them.
    ///
    /// # Errors
    /// A storage error.
    pub async fn record(&self, pace: &Pace) -> Result<Option<Recorded>> {
        let base = &self.base.dataset;
        let all = difference_of_commit(base, self.removed, self.updated, self.added).await?;
        if all.is_empty() {
            return Ok(Some(Recorded { property: NO_ROWS.to_owned(), files: None }));
        }
        let rows = all.before.rows() + all.after.rows();
        let counted = u32::try_from(rows).map_err(|_| {
            Error::input(format!("stored changes are limited to 2^32 - 1 rows, got {rows}"))
        });
        let fits = counted.and_then(|_| refuse_reserved(base.uri(), &self.base.schema.columns));
        if let Err(error) = fits {
            tracing::warn!(table = base.uri(), %error, "the changes of a compaction are not stored");
            return Ok(None);
        }
        let paired = self.paired(&all).await?;
        let (name, updated) = (new_name()?, Arc::new(Mutex::new(RoaringBitmap::new())));
        let stream = self.stream(paired, &updated, pace.clone())?;
        let stream = Box::pin(RecordBatchStreamAdapter::new(self.columns(), stream));
        let context = SsTableContext::of_changelog(base).await.context(ACTION)?;
        let columns = with_kind(&with_ids(base.schema()));
        let files = write_change_rows(context, name.clone(), &columns, stream);
        let files = Box::pin(files).await.context(ACTION)?;
        if files.rows != rows {
            return Err(Error::internal(format!(
                "{ACTION}: expected {rows} rows, wrote {}",
                files.rows
            )));
        }
        let about = self.describe(&all, &updated.lock(), files.manifest_crc32)?;
        files.describe(&about).await.context(ACTION)?;
        let property = StoredRows { name, crc32: crc32fast::hash(&about) }.to_string();
        Ok(Some(Recorded { property, files: Some(files) }))
    }

    async fn paired(&self, all: &Difference) -> Result<Paired> {
        let base = &self.base.dataset;
        let shape = Shape::new(base.uri(), &self.base, &ChangeOptions::default()).await?;
        let (old, new) = self.versions();
        let (shape, old, new) = (&shape, Some(&old), &new);
        Pairing { shape, old, new, all, own: None, compared: None }.pair().await
    }

    /// The version before, and the rows of the version that the commit will make.
    fn versions(&self) -> (Version, Version) {
        let base = &self.base.dataset;
        (Version::of(base.clone()), Version::with_added(base.clone(), self.added))
    }

    /// The columns of the rows.
    fn columns(&self) -> SchemaRef {
        with_kind(&self.base.schema.columns)
    }

    /// The change rows: the images before, then the images after. Positions of images of updates
    /// are added to `updated`.
    fn stream(
        &self,
        paired: Paired,
        updated: &Arc<Mutex<RoaringBitmap>>,
        pace: Pace,
    ) -> Result<BoxStream<'static, std::result::Result<RecordBatch, DataFusionError>>> {
        let table = &self.base.schema;
        let all: Vec<String> =
            table.columns.fields().iter().map(|field| field.name().clone()).collect();
        let stored = StoredColumns::of(&with_ids(self.base.dataset.schema()), table, &all)?;
        let (old, new) = self.versions();
        let first_after = paired.before.rows.rows();
        let images = |image, version, side, first| Images {
            image,
            version,
            side,
            next: first,
            updated: updated.clone(),
            schema: self.columns(),
        };
        let before = images(Image::Before, old, paired.before, 0).rows(stored.clone());
        let after = images(Image::After, new, paired.after, first_after).rows(stored);
        let rows = before.chain(after).and_then(move |batch| {
            let paid = pace(batch.get_array_memory_size());
            async move {
                paid.await;
                Ok(batch)
            }
        });
        Ok(rows.map_err(external).boxed())
    }

    fn describe(
        &self,
        all: &Difference,
        updated: &RoaringBitmap,
        manifest_crc32: u32,
    ) -> Result<Vec<u8>> {
        let fragments = |of: &Selection| {
            of.fragments().map(|(id, rows)| FragmentRows { id, rows }).collect::<Vec<_>>()
        };
        let mut positions = Vec::with_capacity(updated.serialized_size());
        updated
            .serialize_into(&mut positions)
            .map_err(|error| Error::internal(format!("{ACTION}: {error}")).with_source(error))?;
        let about = ChangeRows {
            base_version: self.base.dataset.version().version,
            before: fragments(&all.before),
            after: fragments(&all.after),
            updated: positions,
            manifest_crc32,
        };
        Ok(about.encode())
    }
}

/// `columns` and the kind of a change.
fn with_kind(columns: &Schema) -> SchemaRef {
    let kind = Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, false));
    let fields: Vec<Arc<Field>> = columns.fields().iter().cloned().chain([kind]).collect();
    Arc::new(Schema::new_with_metadata(fields, columns.metadata().clone()))
}

/// The images of one side.
struct Images {
    image: Image,
    version: Version,
    side: Side,
    /// The position of the next row.
    next: u64,
    updated: Arc<Mutex<RoaringBitmap>>,
    schema: SchemaRef,
}

impl Images {
    fn rows(mut self, columns: StoredColumns) -> BoxStream<'static, Result<RecordBatch>> {
        let (version, selected) = (self.version.clone(), self.side.rows.clone());
        let rows = stream::once(async move { scan(&version, &selected, columns).await });
        rows.try_flatten().map(move |rows| self.batch(&rows?)).boxed()
    }

    fn batch(&mut self, rows: &Rows) -> Result<RecordBatch> {
        let mut updated = self.updated.lock();
        let mut kinds = Vec::with_capacity(rows.rows.num_rows());
        for address in rows.addresses.values() {
            let is_update = self.side.updated.contains(*address);
            kinds.push(RowKinds::Delta.text(self.image, is_update));
            if is_update && let Ok(position) = u32::try_from(self.next) {
                updated.insert(position);
            }
            self.next += 1;
        }
        let kinds: ArrayRef = Arc::new(StringArray::from(kinds));
        let columns = rows.rows.columns().iter().cloned().chain([kinds]).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.rows.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).context(ACTION)
    }
}
