//! The changes of a flush, written before they are published.
//!
//! Owns: the change rows of one SSTable, their kinds and their number.
//! Does not own: the files of change rows (`crate::sstable`), or which publication of a generation
//! is the first (`table`).
//!
//! Rows have the form of stored changes: the images before, then the images after. A publication
//! names the folder. A folder that no publication names belongs to a process that lost the race, or
//! ended.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray, UInt32Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lance::Dataset;
use lancemem_core::format::{KeyEncoder, PublishedFlush, paths};
use lancemem_core::types::{Error, Result};
use parking_lot::Mutex;
use roaring::RoaringBitmap;

use super::ROW;
use super::before::{RowsBefore, Superseded};
use super::shape::refuse_reserved;
use crate::changes::images::{Rows, Version, scan};
use crate::changes::selection::{Picked, Selection};
use crate::changes::types::{CHANGE_TYPE, Image, RowKinds};
use crate::errors::{Context, external};
use crate::record_index::{RecordIndex, new_name};
use crate::row_address::split_address;
use crate::schema::{StoredColumns, with_ids};
use crate::snapshot::{Snapshot, SsTableHandle, SsTableKeys};
use crate::sstable::{ChangeRowsFiles, SsTableContext, write_change_rows};

const ACTION: &str = "storing the changes of a flush";
/// The fragment of an SSTable.
const FRAGMENT: u32 = 0;

/// An SSTable whose changes are to be stored.
#[derive(Debug)]
pub struct FlushedSsTable<'a> {
    /// The sources above the base table, and the base table.
    pub snapshot: &'a Snapshot,
    /// The record index of that base version.
    pub index: &'a RecordIndex,
    /// The SSTable.
    pub sstable: Arc<SsTableHandle>,
    /// The older SSTables of its shard, the oldest first.
    pub older: Vec<Arc<SsTableHandle>>,
    /// The rows that it supersedes, where deletion vectors cover its sources.
    pub superseded: Option<Superseded>,
}

/// The stored changes of a flush, before they are published.
pub struct RecordedFlush {
    /// The content of the file that publishes them.
    pub publication: PublishedFlush,
    files: Option<ChangeRowsFiles>,
}

impl RecordedFlush {
    /// Removes the files of changes that another process published. Best effort: a collection
    /// removes the rest.
    pub async fn remove(self) {
        let Some(files) = self.files else { return };
        if let Err(error) = files.remove().await.context("removing changes of a flush") {
            tracing::debug!(%error, "a collection removes them");
        }
    }
}

impl FlushedSsTable<'_> {
    /// Writes the change rows, which are durable when this returns.
    ///
    /// # Errors
    /// An input error for a table with a column of a reserved name; damage; a storage error.
    pub async fn record(&self) -> Result<RecordedFlush> {
        let Self { snapshot, index, sstable, older, superseded } = self;
        refuse_reserved(snapshot.base.uri(), &snapshot.schema)?;
        let keys = sstable.keys_to_find(&snapshot.key).await?;
        let tombstones = sstable.tombstones().await?;
        let of_flush = (sstable.as_ref(), keys.as_ref());
        let known = superseded.as_ref();
        let before = RowsBefore::find(snapshot, index, known, of_flush, older).await?;
        let after = live_rows(sstable, &keys, &tombstones);
        let rows = before.rows() + after.rows();
        let mut publication = PublishedFlush {
            generation: sstable.generation,
            base_version: snapshot.base.version().version,
            rows,
            ..PublishedFlush::default()
        };
        if rows == 0 {
            return Ok(RecordedFlush { publication, files: None });
        }
        let flush = Arc::new(Flush {
            keys,
            tombstones,
            key: snapshot.key.clone(),
            schema: with_added(&snapshot.schema),
            noted: Mutex::default(),
        });
        publication.name = new_name()?;
        let folder = paths::flushed_rows_name(sstable.generation, &publication.name);
        let stream = self.stream(&flush, before, after)?;
        let files = self.write(&flush, folder, stream).await?;
        if files.rows != rows {
            let found = files.rows;
            return Err(Error::internal(format!("{ACTION}: expected {rows} rows, wrote {found}")));
        }
        let noted = flush.noted.lock();
        publication.manifest_crc32 = files.manifest_crc32;
        publication.inserted = noted.inserted;
        publication.updated = noted.updated_after;
        publication.deleted = noted.deleted;
        drop(noted);
        Ok(RecordedFlush { publication, files: Some(files) })
    }

    /// The change rows: the images before, then the images after.
    fn stream(
        &self,
        flush: &Arc<Flush>,
        before: RowsBefore,
        after: Selection,
    ) -> Result<BoxStream<'static, std::result::Result<RecordBatch, DataFusionError>>> {
        let Snapshot { base, columns: table, .. } = self.snapshot;
        let all: Vec<String> =
            table.columns.fields().iter().map(|field| field.name().clone()).collect();
        let of_base = StoredColumns::of(&with_ids(base.schema()), table, &all)?;
        let of_sstable = |sstable: &SsTableHandle| StoredColumns::of(&sstable.columns, table, &all);
        let mut sources = vec![flush.images(Image::Before, base, before.base, of_base)];
        for (older, rows) in before.sstables {
            let columns = of_sstable(&older)?;
            sources.push(flush.images(Image::Before, &older.dataset, rows, columns));
        }
        let columns = of_sstable(&self.sstable)?;
        sources.push(flush.images(Image::After, &self.sstable.dataset, after, columns));
        Ok(stream::iter(sources).flatten().map_err(external).boxed())
    }

    async fn write(
        &self,
        flush: &Flush,
        folder: String,
        rows: BoxStream<'static, std::result::Result<RecordBatch, DataFusionError>>,
    ) -> Result<ChangeRowsFiles> {
        let base = &self.snapshot.base;
        let rows = Box::pin(RecordBatchStreamAdapter::new(flush.schema.clone(), rows));
        let context = SsTableContext::of_flushed_changes(base, self.sstable.shard_id);
        let context = context.await.context(ACTION)?;
        let columns = with_added(&with_ids(base.schema()));
        let files = write_change_rows(context, folder, &columns, rows);
        let files = Box::pin(files).await.context(ACTION)?;
        Box::pin(files.sync()).await.context(ACTION)?;
        Ok(files)
    }
}

/// The rows of an SSTable that are no tombstones.
fn live_rows(sstable: &SsTableHandle, keys: &SsTableKeys, tombstones: &RoaringBitmap) -> Selection {
    let is_newest = |key: &[u8], row: u32| sstable.is_trusted() || keys.find(key) == Some(row);
    let mut rows = RoaringBitmap::new();
    for (key, row) in keys.iter() {
        if !tombstones.contains(row) && is_newest(key, row) {
            rows.insert(row);
        }
    }
    let mut selection = Selection::default();
    selection.set(FRAGMENT, Picked::At(rows));
    selection
}

/// `columns`, the kind of a change, and the row of the SSTable that has its key.
fn with_added(columns: &Schema) -> SchemaRef {
    let kind = Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, false));
    let row = Arc::new(Field::new(ROW, DataType::UInt32, false));
    let fields: Vec<Arc<Field>> = columns.fields().iter().cloned().chain([kind, row]).collect();
    Arc::new(Schema::new_with_metadata(fields, columns.metadata().clone()))
}

/// What tells the kind of each change row.
#[derive(Debug)]
struct Flush {
    /// The keys of the SSTable.
    keys: Arc<SsTableKeys>,
    /// Its tombstones.
    tombstones: Arc<RoaringBitmap>,
    /// Names of the key columns.
    key: Arc<[String]>,
    /// The columns of the change rows.
    schema: SchemaRef,
    noted: Mutex<Noted>,
}

/// What the images that were written have shown.
#[derive(Debug, Default)]
struct Noted {
    /// Rows of the SSTable whose keys had a row before.
    updated: RoaringBitmap,
    inserted: u64,
    updated_after: u64,
    deleted: u64,
}

impl Noted {
    /// The kind of the image of a key that the SSTable has at `row`.
    fn kind(&mut self, image: Image, row: u32, is_tombstone: bool) -> &'static str {
        let is_update = match image {
            Image::Before => !is_tombstone,
            Image::After => self.updated.contains(row),
        };
        match (image, is_update) {
            (Image::Before, true) => {
                self.updated.insert(row);
            }
            (Image::Before, false) => self.deleted += 1,
            (Image::After, true) => self.updated_after += 1,
            (Image::After, false) => self.inserted += 1,
        }
        RowKinds::Delta.text(image, is_update)
    }
}

impl Flush {
    /// The change rows of one source.
    fn images(
        self: &Arc<Self>,
        image: Image,
        dataset: &Arc<Dataset>,
        rows: Selection,
        columns: StoredColumns,
    ) -> BoxStream<'static, Result<RecordBatch>> {
        let (flush, version) = (self.clone(), Version::of(dataset.clone()));
        let rows = stream::once(async move { scan(&version, &rows, columns).await });
        rows.try_flatten().map(move |rows| flush.batch(image, &rows?)).boxed()
    }

    fn batch(&self, image: Image, rows: &Rows) -> Result<RecordBatch> {
        let places = self.places(image, rows)?;
        let kinds: Vec<&str> = {
            let mut noted = self.noted.lock();
            let kind = |row: &u32| noted.kind(image, *row, self.tombstones.contains(*row));
            places.iter().map(kind).collect()
        };
        let added: [ArrayRef; 2] =
            [Arc::new(StringArray::from(kinds)), Arc::new(UInt32Array::from(places))];
        let columns = rows.rows.columns().iter().cloned().chain(added).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows.rows.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).context(ACTION)
    }

    /// The row of the SSTable that has the key of each image.
    fn places(&self, image: Image, rows: &Rows) -> Result<Vec<u32>> {
        if image == Image::After {
            let offsets = rows.addresses.values().iter().map(|address| split_address(*address).1);
            return Ok(offsets.collect());
        }
        let keys = KeyEncoder::new(rows.rows.schema_ref(), &self.key)?.encode_block(&rows.rows);
        let missing = || Error::internal(format!("{ACTION}: a row before has no row after"));
        keys.iter().map(|key| self.keys.find(key).ok_or_else(missing)).collect()
    }
}
