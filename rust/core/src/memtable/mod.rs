//! Rows in memory: an append-only list of batches and the newest position of every key.
//!
//! Owns: the batches of one generation, their key index and their size.
//! Does not own: durability and visibility (the shard derives both), or the WAL.
//!
//! Reading order: `rows`, `index`, `secondary`, `ordered`, `view`. One writer pushes under the shard's lock; the keys
//! of what was pushed are indexed by the first thread that needs them: a put, a background task, a
//! reader or the flush. A reader takes a [`MemTableView`], which never changes afterwards.

mod choice;
mod folded;
mod index;
mod ordered;
mod rows;
mod secondary;
mod view;

use std::fmt::Debug;
use std::sync::Arc;
#[cfg(not(lancemem_schedules))]
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
#[cfg(lancemem_schedules)]
use shuttle::sync::atomic::AtomicUsize;

pub use choice::Chosen;
pub use ordered::OrderedRows;
pub use secondary::{IndexAccount, MakeIndex, SecondaryIndex};
pub use view::{IndexFill, MemTableView};

use crate::merge::{Choosing, Fold};
use crate::types::{Generation, KeyBlock, KeyIndexKind};
use index::{HashIndex, KeyIndex, SkipListIndex};
use rows::Rows;
use secondary::SecondaryIndexes;

/// Encodes the primary keys of batches, in the order-preserving form that an index compares.
pub trait EncodeKeys: Debug + Send + Sync {
    /// The keys of all rows of `batch`, in row order.
    fn encode_block(&self, batch: &RecordBatch) -> KeyBlock;
}

/// What all MemTables of a shard have in common.
#[derive(Clone, Debug)]
pub struct MemTableLayout {
    /// The storage schema of the rows.
    pub schema: SchemaRef,
    /// The primary key; `None` for a table without one.
    pub key: Option<Arc<dyn EncodeKeys>>,
    /// The structure of the key index.
    pub index: KeyIndexKind,
    /// The rule that chooses among the rows of a key; `None` where the newest one is shown.
    pub rule: Option<Arc<Choosing>>,
    /// The rule that makes a row of several events; `None` in other tables.
    pub fold: Option<Arc<Fold>>,
}

/// The rows of one generation while they are in memory.
#[derive(Debug)]
pub struct MemTable {
    id: u64,
    generation: Generation,
    layout: MemTableLayout,
    rows: Rows,
    index: Box<dyn KeyIndex>,
    secondary: SecondaryIndexes,
    /// Batches in the index; its lock admits one inserting thread at a time.
    indexing: Mutex<usize>,
    indexed: AtomicUsize,
    bytes: AtomicUsize,
}

impl MemTable {
    /// An empty MemTable.
    #[must_use]
    pub fn new(generation: Generation, layout: MemTableLayout) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let index: Box<dyn KeyIndex> = match layout.index {
            KeyIndexKind::Hash => Box::new(HashIndex::default()),
            KeyIndexKind::SkipList => Box::new(SkipListIndex::default()),
        };
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            generation,
            layout,
            rows: Rows::default(),
            index,
            secondary: SecondaryIndexes::default(),
            indexing: Mutex::new(0),
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
        &self.layout.schema
    }

    /// Appends `batch`, which takes `bytes` of memory, and returns how many batches there are
    /// then. Its keys are indexed later, see [`Self::index_through`]; `keys` holds them where they
    /// are encoded already.
    ///
    /// The caller is the only writer.
    ///
    /// # Panics
    /// Where the batch is not of this MemTable's schema or keys and rows differ in number.
    pub fn push(&self, batch: RecordBatch, keys: Option<KeyBlock>, bytes: usize) -> usize {
        assert_eq!(batch.schema_ref(), self.schema(), "a MemTable holds rows of one schema");
        if let Some(keys) = &keys {
            assert_eq!(keys.len(), batch.num_rows(), "one key a row");
        }
        self.rows.push(batch, keys);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.rows.batches()
    }

    /// Returns when the keys of the first `batches` batches are in the index.
    pub fn index_through(&self, batches: usize) {
        let Some(encoder) = &self.layout.key else { return };
        let batches = batches.min(self.rows.batches());
        if self.indexed.load(Ordering::Acquire) >= batches {
            return;
        }
        let mut indexed = self.indexing.lock();
        while *indexed < batches {
            let placed = self.rows.get(*indexed);
            placed.keys.get_or_init(|| encoder.encode_block(&placed.batch));
            self.index.insert(&self.rows, *indexed);
            *indexed += 1;
            self.indexed.store(*indexed, Ordering::Release);
        }
    }

    /// Indexes up to `step` batches more; false where all of them are in the index.
    pub fn index_more(&self, step: usize) -> bool {
        let indexed = self.indexed.load(Ordering::Acquire);
        if self.layout.key.is_none() || indexed >= self.rows.batches() {
            return false;
        }
        self.index_through(indexed + step);
        true
    }

    /// Returns when the first `batches` batches are in the index of `maker`.
    pub fn index_search_through(&self, maker: &dyn MakeIndex, batches: usize) {
        let batches = batches.min(self.rows.batches());
        self.secondary.through(maker, self.schema(), &self.rows, batches);
    }

    /// Counts the bytes of its secondary indexes in `account`, until [`Self::close_index_account`].
    pub fn count_indexes_in(&self, account: &IndexAccount) {
        self.secondary.count_in(account);
    }

    /// Takes the bytes of its secondary indexes out of their account: its rows left the shard.
    pub fn close_index_account(&self) {
        self.secondary.close_account();
    }

    /// Rows pushed so far.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.rows_of(self.rows.batches())
    }

    /// Batches pushed so far.
    #[must_use]
    pub fn batches(&self) -> usize {
        self.rows.batches()
    }

    /// Rows that wait for the key index; none where there is no key.
    #[must_use]
    pub fn unindexed_rows(&self) -> usize {
        if self.layout.key.is_none() {
            return 0;
        }
        let indexed = self.indexed.load(Ordering::Acquire);
        self.rows().saturating_sub(self.rows.rows_of(indexed))
    }

    /// Bytes of rows, keys and index, as their putters counted them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// An immutable view of the first `batches` batches.
    #[must_use]
    pub fn view(self: &Arc<Self>, batches: usize) -> MemTableView {
        MemTableView::new(self.clone(), batches.min(self.rows.batches()))
    }
}
