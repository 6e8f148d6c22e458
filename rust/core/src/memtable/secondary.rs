//! Indexes of rows in memory beside the key index, which searches use.
//!
//! Owns: the seam [`SecondaryIndex`] and [`MakeIndex`]; the indexes of one MemTable, each filled by
//! the first thread that needs it; and the account of their bytes.
//! Does not own: what an index holds. The core knows no kind of them.

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;

use super::rows::Rows;

/// An index of the rows of one MemTable. It only saves time: it holds nothing that the rows do not.
///
/// One thread inserts at a time, and any number of threads read meanwhile. A reader takes no row at
/// or above the number of rows of its view.
pub trait SecondaryIndex: Debug + Send + Sync {
    /// Adds the rows of `batch`, the next one in arrival order, whose first row is `first_row`.
    fn insert(&self, batch: &RecordBatch, first_row: usize);

    /// Bytes that it holds on the heap.
    fn bytes(&self) -> usize;

    /// The index as its own type.
    fn as_any(&self) -> &dyn Any;
}

/// Makes the indexes of one kind and definition.
pub trait MakeIndex: Debug + Send + Sync {
    /// The identity of the definition: makers with equal names make equal indexes.
    fn name(&self) -> &str;

    /// An empty index of rows of `schema`; `None` where such rows have none.
    fn make(&self, schema: &SchemaRef) -> Option<Arc<dyn SecondaryIndex>>;
}

/// Bytes of all secondary indexes of one shard, which count against its memory budget.
#[derive(Clone, Debug, Default)]
pub struct IndexAccount(Arc<AtomicUsize>);

impl IndexAccount {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

/// The secondary indexes of one MemTable.
#[derive(Default)]
pub(super) struct SecondaryIndexes {
    slots: Mutex<Vec<Arc<Slot>>>,
    counted: Mutex<Counted>,
}

/// One index of a MemTable.
#[derive(Debug)]
pub(super) struct Slot {
    name: String,
    index: Arc<dyn SecondaryIndex>,
    /// Batches in the index; its lock admits one inserting thread at a time.
    indexed: Mutex<usize>,
    /// Whether a task fills it beside the reads that found it behind.
    is_filling: AtomicBool,
}

impl Slot {
    /// The index as it is.
    pub fn index(&self) -> &Arc<dyn SecondaryIndex> {
        &self.index
    }

    /// Takes the right to fill the index beside reads; false where another task has it, or the
    /// first `batches` batches are in the index already.
    pub fn start_filling(&self, batches: usize) -> bool {
        // A thread that inserts holds the lock: what it inserts need not be inserted again.
        let is_behind = self.indexed.try_lock().is_some_and(|indexed| *indexed < batches);
        is_behind && !self.is_filling.swap(true, Ordering::AcqRel)
    }

    /// Gives the right back.
    pub fn stop_filling(&self) {
        self.is_filling.store(false, Ordering::Release);
    }

    /// Batches in the index.
    pub fn batches(&self) -> usize {
        *self.indexed.lock()
    }
}

/// The bytes of the indexes of one MemTable in the account of its shard.
#[derive(Default)]
struct Counted {
    bytes: usize,
    account: Option<IndexAccount>,
    /// Set when the MemTable left the shard: a reader may hold it longer, and no put waits for
    /// that.
    is_closed: bool,
}

impl Debug for SecondaryIndexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.slots.lock();
        f.debug_list().entries(slots.iter().map(|slot| &slot.name)).finish()
    }
}

impl SecondaryIndexes {
    /// The index of `maker` with the first `batches` batches of `rows` in it; `None` where rows of
    /// `schema` have none.
    pub fn through(
        &self,
        maker: &dyn MakeIndex,
        schema: &SchemaRef,
        rows: &Rows,
        batches: usize,
    ) -> Option<Arc<dyn SecondaryIndex>> {
        let slot = self.slot(maker, schema)?;
        self.fill(&slot, rows, batches);
        Some(slot.index.clone())
    }

    /// Puts the first `batches` batches of `rows` into the index of `slot`, those that are missing.
    pub fn fill(&self, slot: &Slot, rows: &Rows, batches: usize) {
        let mut indexed = slot.indexed.lock();
        if *indexed < batches {
            let before = slot.index.bytes();
            while *indexed < batches {
                let placed = rows.get(*indexed);
                slot.index.insert(&placed.batch, placed.first_row);
                *indexed += 1;
            }
            self.counted.lock().add(slot.index.bytes().saturating_sub(before));
        }
    }

    /// The index of `maker`, as far as it is filled; `None` where rows of `schema` have none.
    pub fn slot(&self, maker: &dyn MakeIndex, schema: &SchemaRef) -> Option<Arc<Slot>> {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.iter().find(|slot| slot.name == maker.name()) {
            return Some(slot.clone());
        }
        let index = maker.make(schema)?;
        self.counted.lock().add(index.bytes());
        let (name, indexed) = (maker.name().to_owned(), Mutex::new(0));
        let slot = Slot { name, index, indexed, is_filling: AtomicBool::new(false) };
        slots.push(Arc::new(slot));
        slots.last().cloned()
    }

    /// Counts the bytes in `account` from now on, with all that it holds now.
    pub fn count_in(&self, account: &IndexAccount) {
        let mut counted = self.counted.lock();
        if counted.account.is_none() && !counted.is_closed {
            account.0.fetch_add(counted.bytes, Ordering::AcqRel);
            counted.account = Some(account.clone());
        }
    }

    /// Takes the bytes out of the account, and counts no more of them.
    pub fn close_account(&self) {
        let mut counted = self.counted.lock();
        counted.is_closed = true;
        if let Some(account) = counted.account.take() {
            account.0.fetch_sub(counted.bytes, Ordering::AcqRel);
        }
    }
}

impl Counted {
    fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        if let Some(account) = &self.account {
            account.0.fetch_add(bytes, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::memtable::{MemTable, MemTableLayout};
    use crate::types::{Generation, KeyIndexKind};

    /// Holds the first row of each batch.
    #[derive(Debug, Default)]
    struct Starts(Mutex<Vec<usize>>);

    impl SecondaryIndex for Starts {
        fn insert(&self, _: &RecordBatch, first_row: usize) {
            self.0.lock().push(first_row);
        }

        fn bytes(&self) -> usize {
            8 * self.0.lock().len()
        }

        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    #[derive(Debug)]
    struct OfColumn(&'static str);

    impl MakeIndex for OfColumn {
        fn name(&self) -> &str {
            self.0
        }

        fn make(&self, schema: &SchemaRef) -> Option<Arc<dyn SecondaryIndex>> {
            schema.field_with_name(self.0).ok()?;
            Some(Arc::new(Starts::default()))
        }
    }

    fn memtable() -> Arc<MemTable> {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        let layout = MemTableLayout {
            schema,
            key: None,
            index: KeyIndexKind::default(),
            rule: None,
            fold: None,
        };
        Arc::new(MemTable::new(Generation(1), layout))
    }

    fn push(memtable: &MemTable, rows: i64) {
        let ids = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_new(memtable.schema().clone(), vec![ids]).unwrap();
        memtable.push(batch, None, 0);
    }

    fn starts(index: &Arc<dyn SecondaryIndex>) -> Vec<usize> {
        index.as_any().downcast_ref::<Starts>().unwrap().0.lock().clone()
    }

    #[test]
    fn the_first_reader_indexes_what_is_left_and_the_next_one_only_the_rest() {
        let memtable = memtable();
        push(&memtable, 2);
        push(&memtable, 3);
        let index = memtable.view(1).secondary(&OfColumn("id")).unwrap();
        assert_eq!(starts(&index), [0]);
        push(&memtable, 1);
        let same = memtable.view(3).secondary(&OfColumn("id")).unwrap();
        assert_eq!(starts(&same), [0, 2, 5]);
        assert_eq!(starts(&index), [0, 2, 5], "one index");
        assert!(memtable.view(3).secondary(&OfColumn("text")).is_none());
    }

    #[test]
    fn a_reader_that_does_not_wait_leaves_the_rest_to_one_task() {
        let memtable = memtable();
        for _ in 0..5 {
            push(&memtable, 2);
        }
        let view = memtable.view(4);
        let (index, fill) = view.secondary_so_far(&OfColumn("id")).unwrap();
        assert_eq!(starts(&index), [0_usize; 0]);
        let fill = fill.unwrap();
        assert!(view.secondary_so_far(&OfColumn("id")).unwrap().1.is_none(), "one task fills it");
        assert!(fill.more(3));
        assert_eq!(starts(&index), [0, 2, 4]);
        assert!(!fill.more(3), "a view ends where its reader began");
        assert_eq!(starts(&index), [0, 2, 4, 6]);
        drop(fill);
        assert!(view.secondary_so_far(&OfColumn("id")).unwrap().1.is_none(), "nothing is missing");
        let later = memtable.view(5).secondary_so_far(&OfColumn("id")).unwrap().1;
        assert!(later.is_some_and(|fill| !fill.more(9)));
        assert!(memtable.view(5).secondary_so_far(&OfColumn("text")).is_none());
    }

    #[test]
    fn bytes_of_indexes_count_until_their_memtable_leaves_the_shard() {
        let (memtable, account) = (memtable(), IndexAccount::default());
        push(&memtable, 2);
        memtable.view(1).secondary(&OfColumn("id")).unwrap();
        assert_eq!(account.bytes(), 0);
        memtable.count_indexes_in(&account);
        memtable.count_indexes_in(&account);
        assert_eq!(account.bytes(), 8);
        push(&memtable, 2);
        memtable.index_search_through(&OfColumn("id"), 2);
        assert_eq!(account.bytes(), 16);
        memtable.close_index_account();
        assert_eq!(account.bytes(), 0);
        push(&memtable, 2);
        memtable.view(3).secondary(&OfColumn("id")).unwrap();
        assert_eq!(account.bytes(), 0, "a reader that holds it longer");
    }
}
