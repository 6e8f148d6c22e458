//! Malformed SSTables of other writers: each is refused by name, and shows no rows.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::dataset::transaction::Operation;
use lance_core::utils::deletion::DeletionVector;
use lance_core::utils::tempfile::TempStrDir;
use lance_table::io::deletion::write_deletion_file;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::types::{Error, ErrorKind};

use super::BASE;
use super::key_types::Key;
use super::support::{Table, listed, write_table};
use crate::snapshot::{SsTableCache, SsTableHandle};
use crate::sstable::SsTableContext;

const FOLDER: &str = "0badcafe_gen_1";

/// A table, and an SSTable of three rows that lance wrote beside it.
struct Foreign {
    table: Table,
    sstable: Dataset,
    _directory: TempStrDir,
}

impl Foreign {
    async fn of(change: impl Fn(RecordBatch) -> RecordBatch) -> Self {
        let directory = TempStrDir::default();
        let table = Table::create(directory.as_str(), Key::Int64, BASE).await;
        let context = SsTableContext::new(&table.base, table.shard).await.unwrap();
        let rows = table.batches(&[&[(1, Some(11)), (2, None), (3, Some(13))]]).remove(0);
        let sstable = write_table(&context.uri(FOLDER), change(rows), None).await;
        Self { table, sstable, _directory: directory }
    }

    async fn commit(&mut self, operation: Operation) {
        let (uri, version) = (self.sstable.uri(), Some(self.sstable.version().version));
        let sstable = Dataset::commit(uri, operation, version, None, None, Arc::default(), false);
        self.sstable = sstable.await.unwrap();
    }

    /// The SSTable as a reader of the table opens it.
    async fn open(&self) -> lancemem_core::types::Result<Arc<SsTableHandle>> {
        let listed = listed(FOLDER, None);
        SsTableCache::default().open(&self.table.base, self.table.shard, &listed).await
    }
}

fn assert_names(error: &Error, what: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{text}");
    assert!(text.contains(FOLDER) && text.contains(what), "{text}");
}

#[tokio::test]
async fn an_sstable_of_lance_is_read() {
    let foreign = Foreign::of(|rows| rows).await;
    let sstable = foreign.open().await.unwrap();
    assert_eq!(sstable.physical_and_hidden_rows().await.unwrap().0, 3);
    assert_eq!(sstable.keys(&foreign.table.key_columns).await.unwrap().len(), 3);
    assert_eq!(sstable.tombstones().await.unwrap().iter().collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn tombstones_that_are_not_boolean_are_refused() {
    let numbers = |rows: RecordBatch| {
        let schema = rows.schema();
        let fields = schema.fields().iter().map(|field| match field.name().as_str() {
            TOMBSTONE => Arc::new(Field::new(TOMBSTONE, DataType::Int64, false)),
            _ => field.clone(),
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        *columns.last_mut().unwrap() = Arc::new(Int64Array::from(vec![0, 1, 0]));
        RecordBatch::try_new(schema, columns).unwrap()
    };
    let foreign = Foreign::of(numbers).await;
    let sstable = foreign.open().await.unwrap();
    assert_names(&sstable.tombstones().await.unwrap_err(), TOMBSTONE);
    assert_names(&sstable.keys(&foreign.table.key_columns).await.unwrap_err(), TOMBSTONE);
}

#[tokio::test]
async fn a_deletion_file_with_rows_beyond_the_sstable_is_refused() {
    let mut foreign = Foreign::of(|rows| rows).await;
    let mut fragment = foreign.sstable.fragments()[0].clone();
    let store = foreign.sstable.object_store(None).await.unwrap();
    let root = foreign.sstable.branch_location().path;
    let version = foreign.sstable.version().version;
    let gone = DeletionVector::from_iter([0, 3]);
    fragment.deletion_file =
        write_deletion_file(&root, fragment.id, version, &gone, &store).await.unwrap();
    let delete = Operation::Delete {
        updated_fragments: vec![fragment],
        deleted_fragment_ids: Vec::new(),
        predicate: "by hand".to_owned(),
    };
    foreign.commit(delete).await;
    let sstable = foreign.open().await.unwrap();
    let error = sstable.physical_and_hidden_rows().await.unwrap_err();
    assert_names(&error, "row 3, the data file has 3 rows");
}

#[tokio::test]
async fn a_fragment_without_a_file_is_refused() {
    let mut foreign = Foreign::of(|rows| rows).await;
    let mut fragment = foreign.sstable.fragments()[0].clone();
    fragment.files.clear();
    let overwrite = Operation::Overwrite {
        fragments: vec![fragment],
        schema: foreign.sstable.schema().clone(),
        config_upsert_values: None,
        initial_bases: None,
    };
    foreign.commit(overwrite).await;
    let error = match foreign.open().await {
        Ok(sstable) => sstable.keys(&foreign.table.key_columns).await.unwrap_err(),
        Err(error) => error,
    };
    assert_names(&error, "no file");
}
