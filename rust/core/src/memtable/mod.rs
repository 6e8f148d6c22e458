//! Rows in memory: an append-only list of batches and the newest position of every key.
//!
//! Owns: the batches of one generation, their key index and their size.
//! Does not own: durability and visibility (the shard derives both), or the WAL.
//!
//! One writer pushes under the shard's lock; any number of readers take a [`MemTableView`],
//! which never changes afterwards.

mod index;
mod view;

use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::RwLock;

pub use view::MemTableView;

use crate::types::{Generation, KeyBytes};
use index::KeyIndex;

/// The rows of one generation while they are in memory.
#[derive(Debug)]
pub struct MemTable {
    generation: Generation,
    schema: SchemaRef,
    has_key: bool,
    batches: RwLock<Vec<PlacedBatch>>,
    index: KeyIndex,
    /// Batches whose keys are in the index too: what a reader may see.
    indexed: AtomicUsize,
    bytes: AtomicUsize,
}

/// A batch with the position of its first row.
#[derive(Clone, Debug)]
struct PlacedBatch {
    batch: RecordBatch,
    first_row: usize,
}

impl PlacedBatch {
    fn end(&self) -> usize {
        self.first_row + self.batch.num_rows()
    }
}

impl MemTable {
    /// An empty MemTable for rows of `schema`, which is a storage schema.
    #[must_use]
    pub fn new(generation: Generation, schema: SchemaRef, has_key: bool) -> Self {
        Self {
            generation,
            schema,
            has_key,
            batches: RwLock::new(Vec::new()),
            index: KeyIndex::new(),
            indexed: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// The generation that a flush of these rows gets.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The storage schema of the rows.
    #[must_use]
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends `batch`, whose keys are `keys`, and indexes them.
    ///
    /// The caller is the only writer. The batch is published before its keys, so a position
    /// that a reader finds in the index always has its row.
    ///
    /// # Panics
    /// Where the batch is not of this MemTable's schema or keys and rows differ in number.
    pub fn push(&self, batch: RecordBatch, keys: Vec<KeyBytes>) {
        assert_eq!(batch.schema_ref(), &self.schema, "a MemTable holds rows of one schema");
        assert_eq!(keys.len(), if self.has_key { batch.num_rows() } else { 0 }, "one key a row");
        let key_bytes: usize = keys.iter().map(KeyBytes::heap_bytes).sum();
        let payload = sliced_bytes(&batch);
        let (first_row, count) = {
            let mut batches = self.batches.write();
            let first_row = batches.last().map_or(0, PlacedBatch::end);
            batches.push(PlacedBatch { batch, first_row });
            (first_row, batches.len())
        };
        self.index.insert(first_row, keys);
        self.indexed.store(count, Ordering::Release);
        self.bytes.fetch_add(payload + key_bytes, Ordering::Relaxed);
    }

    /// Rows pushed so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.batches.read().last().map_or(0, PlacedBatch::end)
    }

    /// Batches pushed and indexed so far: a view of these never changes.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.indexed.load(Ordering::Acquire)
    }

    /// Bytes of rows and keys, an estimate that counts each shared buffer once per batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.rows() * KeyIndex::BYTES_PER_ROW
    }

    /// The first `batches` batches as they are for ever.
    #[must_use]
    pub fn view(self: &std::sync::Arc<Self>, batches: usize) -> MemTableView {
        let placed: Vec<PlacedBatch> = self.batches.read().iter().take(batches).cloned().collect();
        MemTableView::new(self.clone(), placed)
    }
}

/// Bytes of the rows of a batch, not of the whole buffers that a slice keeps alive.
fn sliced_bytes(batch: &RecordBatch) -> usize {
    batch
        .columns()
        .iter()
        .map(|column| {
            let data = column.to_data();
            data.get_slice_memory_size().unwrap_or_else(|_| data.get_buffer_memory_size())
        })
        .sum()
}
