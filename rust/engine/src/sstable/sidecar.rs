//! `_pk_index/`: the keys of one SSTable as a lance B-tree. Readers probe it to learn whether the
//! SSTable supersedes a row of an older one.
//!
//! Owns: the sorted pages that the index is built from. The index has every row position,
//! superseded ones included; the pass over the sorted keys also finds the superseded positions. One
//! key column keeps its type; several become one Binary value, the encoded key.
//! Does not own: the index format, which is lance's, or the sort, which the MemTable did.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::make_comparator;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef, SortOptions};
use arrow_select::interleave::interleave;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use lance::dataset::mem_wal::util::pk_index_path;
use lance_core::cache::LanceCache;
use lance_core::{Error, ROW_ADDR, Result};
use lance_index::scalar::btree::train_btree_index;
use lance_index::scalar::lance_format::LanceIndexStore;
use lance_index::scalar::registry::VALUE_COLUMN_NAME;
use lance_io::object_store::ObjectStore;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::KeyBytes;
use object_store::path::Path;
use roaring::RoaringBitmap;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Rows of one index page, lance's choice for this index.
pub const PAGE_ROWS: usize = 8192;

/// Pages that wait for the encoder, which is slower than the thread that makes them.
const PAGES_WAITING: usize = 2;

/// The receiving end of the pages, for the index writer.
pub struct PageStream {
    schema: SchemaRef,
    pages: Receiver<RecordBatch>,
}

/// Makes the pages on its own thread; see [`Self::make_all`].
pub struct PageMaker {
    schema: SchemaRef,
    pages: Sender<RecordBatch>,
}

/// Both ends for an index over the columns of `keys`.
pub fn page_stream(key_schema: &Schema) -> (PageMaker, PageStream) {
    page_stream_of(match key_schema.fields().len() {
        1 => key_schema.field(0).data_type().clone(),
        _ => DataType::Binary,
    })
}

/// Both ends for an index whose values have the type `value_type`.
pub fn page_stream_of(value_type: DataType) -> (PageMaker, PageStream) {
    let schema = Arc::new(Schema::new(vec![
        Field::new(VALUE_COLUMN_NAME, value_type, true),
        Field::new(ROW_ADDR, DataType::UInt64, false),
    ]));
    let (sender, receiver) = channel(PAGES_WAITING);
    (PageMaker { schema: schema.clone(), pages: sender }, PageStream { schema, pages: receiver })
}

/// Writes the key index of the SSTable in `folder`, and returns the paths of its files.
///
/// # Errors
/// As [`write_pages`].
pub(super) async fn write_key_index(
    store: Arc<ObjectStore>,
    folder: &Path,
    stream: PageStream,
) -> Result<Vec<Path>> {
    let folder = pk_index_path(folder);
    write_pages(store, &folder, stream).await
}

/// Writes an index into `folder`, and returns the paths of its files.
///
/// A stream that ends early makes an incomplete index. The thread that makes the pages returns the
/// error then, and the caller must check it.
///
/// # Errors
/// A storage error.
pub async fn write_pages(
    store: Arc<ObjectStore>,
    folder: &Path,
    stream: PageStream,
) -> Result<Vec<Path>> {
    let PageStream { schema, mut pages } = stream;
    let pages =
        futures::stream::poll_fn(move |context| pages.poll_recv(context).map(|page| page.map(Ok)));
    let stream = RecordBatchStreamAdapter::new(schema, pages);
    // Nothing is read back through this store, so there is nothing to cache.
    let index = LanceIndexStore::new(store, folder.clone(), Arc::new(LanceCache::no_cache()));
    let files = train_btree_index(Box::pin(stream), &index, PAGE_ROWS as u64, None, None).await?;
    Ok(files.iter().map(|file| folder.clone().join(file.path.as_str())).collect())
}

impl PageMaker {
    /// Sends the pages over `keys`, batches of the key columns only, in primary-key order.
    /// `sorted_rows` are the positions of all their rows, ordered by key and then by position;
    /// `address` maps a position to the address that the index stores.
    /// Returns the positions of rows that a later row of the same key supersedes.
    ///
    /// It blocks, so the caller runs it on a blocking thread.
    ///
    /// # Errors
    /// Where `sorted_rows` are not all rows of `keys` in key order, or the index writer has ended.
    pub fn make_all(
        self,
        keys: &[RecordBatch],
        sorted_rows: &[u32],
        address: impl Fn(u32) -> u64,
    ) -> Result<RoaringBitmap> {
        let mut pages = KeyPages::new(keys, sorted_rows, self.schema.clone())?;
        for positions in sorted_rows.chunks(PAGE_ROWS) {
            self.send(pages.page(positions, &address)?)?;
        }
        let mut superseded = pages.superseded;
        superseded.sort_unstable();
        RoaringBitmap::from_sorted_iter(superseded)
            .map_err(|error| Error::internal(format!("superseded row positions: {error}")))
    }

    /// Sends the next page: `values` ascend, and follow the values of the previous page. Every page
    /// but the last has [`PAGE_ROWS`].
    ///
    /// It blocks, so the caller runs it on a blocking thread.
    ///
    /// # Errors
    /// Where the values have another type than the index, or the index has failed.
    pub fn send_page(&self, values: ArrayRef, addresses: Vec<u64>) -> Result<()> {
        let addresses = Arc::new(UInt64Array::from(addresses));
        self.send(RecordBatch::try_new(self.schema.clone(), vec![values, addresses])?)
    }

    fn send(&self, page: RecordBatch) -> Result<()> {
        // The index writer has failed; the caller reports its error instead of this one.
        let gone = |_| Error::internal("the key index writer ended before its last page");
        self.pages.blocking_send(page).map_err(gone)
    }
}

/// The pages of the index, made one at a time: the sorted keys are never in memory as a whole.
struct KeyPages<'a> {
    keys: &'a [RecordBatch],
    /// Position of the first row of each batch.
    starts: Vec<usize>,
    rows: usize,
    /// Present for a key of several columns.
    encoder: Option<KeyEncoder>,
    schema: SchemaRef,
    /// The last value of the previous page, one row, and its position.
    last: Option<(ArrayRef, u32)>,
    /// Positions of all rows of a key but the last one.
    superseded: Vec<u32>,
}

impl<'a> KeyPages<'a> {
    fn new(keys: &'a [RecordBatch], sorted_rows: &[u32], schema: SchemaRef) -> Result<Self> {
        let mut starts = Vec::with_capacity(keys.len());
        let mut rows = 0;
        for batch in keys {
            starts.push(rows);
            rows += batch.num_rows();
        }
        if sorted_rows.len() != rows {
            return Err(Error::internal(format!(
                "expected {rows} sorted row positions, got {}",
                sorted_rows.len()
            )));
        }
        let key_schema = keys[0].schema();
        let encoder = if key_schema.fields().len() > 1 {
            let names: Vec<String> =
                key_schema.fields().iter().map(|field| field.name().clone()).collect();
            let encoder = KeyEncoder::new(&key_schema, &names);
            Some(encoder.map_err(|error| Error::invalid_input(error.to_string()))?)
        } else {
            None
        };
        Ok(Self { keys, starts, rows, encoder, schema, last: None, superseded: Vec::new() })
    }

    /// The page of the rows `positions`, which follow the rows of the previous page.
    fn page(&mut self, positions: &[u32], address: impl Fn(u32) -> u64) -> Result<RecordBatch> {
        let rows = self.locate(positions)?;
        let value = self.values(&rows)?;
        self.check_order(positions, &value)?;
        self.last = Some((value.slice(value.len() - 1, 1), positions[positions.len() - 1]));
        let addresses = UInt64Array::from_iter_values(positions.iter().map(|row| address(*row)));
        Ok(RecordBatch::try_new(self.schema.clone(), vec![value, Arc::new(addresses)])?)
    }

    /// Batch and row inside it of each position.
    fn locate(&self, positions: &[u32]) -> Result<Vec<(usize, usize)>> {
        positions
            .iter()
            .map(|position| {
                let position = *position as usize;
                if position >= self.rows {
                    return Err(Error::internal(format!(
                        "row position {position} is out of range for {} rows",
                        self.rows
                    )));
                }
                // The last batch that starts at or before the position; empty ones come earlier.
                let batch = self.starts.partition_point(|start| *start <= position) - 1;
                Ok((batch, position - self.starts[batch]))
            })
            .collect()
    }

    fn values(&self, rows: &[(usize, usize)]) -> Result<ArrayRef> {
        let mut columns = Vec::with_capacity(self.keys[0].num_columns());
        for column in 0..self.keys[0].num_columns() {
            let arrays: Vec<&dyn Array> =
                self.keys.iter().map(|batch| batch.column(column).as_ref()).collect();
            columns.push(interleave(&arrays, rows)?);
        }
        let Some(encoder) = &self.encoder else {
            return Ok(columns.remove(0));
        };
        let page = RecordBatch::try_new(self.keys[0].schema(), columns)?;
        let keys = encoder.encode(&page);
        Ok(Arc::new(BinaryArray::from_iter_values(keys.iter().map(KeyBytes::as_slice))))
    }

    /// Refuses pages out of order: the index trusts its input, and a key that a search misses would
    /// return superseded rows. A strict order of as many positions as there are rows also proves
    /// that no row is missing. Rows of one key are adjacent, so all but the last are superseded.
    fn check_order(&mut self, positions: &[u32], value: &ArrayRef) -> Result<()> {
        let superseded = &mut self.superseded;
        let mut check = |order: Ordering, before: u32, after: u32| {
            if order == Ordering::Equal {
                superseded.push(before);
            }
            if order.then(before.cmp(&after)) == Ordering::Less {
                return Ok(());
            }
            Err(Error::internal(format!("row positions {before} and {after} are not in key order")))
        };
        if let Some((last, position)) = &self.last {
            let compare = make_comparator(last, value, SortOptions::default())?;
            check(compare(0, 0), *position, positions[0])?;
        }
        let compare = make_comparator(value, value, SortOptions::default())?;
        for row in 1..positions.len() {
            check(compare(row - 1, row), positions[row - 1], positions[row])?;
        }
        Ok(())
    }
}
