//! Tables with a key, the rows of a MemTable over them, and what a reader must see.
//! Owns these stories only; does not own the engine's rules, which are in the modules under test.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::dataset::mem_wal::{LsmScanner, ShardSnapshot};
use lance::dataset::{NewColumnTransform, WriteParams};
use lance::session::Session;
use lance_core::utils::tempfile::TempStrDir;
use lance_file::version::LanceFileVersion;
use lance_io::object_store::ObjectStoreParams;
use lance_table::io::commit::ConditionalPutCommitHandler;
use lancemem_core::format::{KeyEncoder, SsTable};
use lancemem_core::merge::MergeRule;
use lancemem_core::types::Generation;
use uuid::Uuid;

use super::key_types::Key;
use crate::sstable::{
    IndexSpecs, SsTableContext, SsTableInput, SsTableWritten, open_sstable, storage_schema,
    write_sstable,
};

/// The one shard of each table here.
pub const SHARD: Uuid = Uuid::from_u128(0x5bad_0000_4000_8000_0000_0000_0000_0001);

/// Field metadata that makes a column part of the primary key.
pub const KEY_MARKER: &str = "lance-schema:unenforced-primary-key";

pub async fn write_table(
    uri: &str,
    batch: RecordBatch,
    version: Option<LanceFileVersion>,
) -> Dataset {
    let schema = batch.schema();
    let params = WriteParams { data_storage_version: version, ..Default::default() };
    Dataset::write(RecordBatchIterator::new([Ok(batch)], schema), uri, Some(params)).await.unwrap()
}

pub fn scanner(
    base: Dataset,
    shard: Uuid,
    generation: u64,
    path: &str,
    key_columns: &[String],
) -> LsmScanner {
    let snapshot = ShardSnapshot::new(shard).with_sstable(generation, path.to_owned());
    LsmScanner::new(Arc::new(base), vec![snapshot], key_columns.to_vec())
}

/// A base table with a key and the columns `v` (not null, 64 bits); its value is the id.
pub struct Table {
    pub base: Dataset,
    pub shard: Uuid,
    pub key: Key,
    pub key_columns: Vec<String>,
    base_ids: Vec<u32>,
}

impl Table {
    pub async fn create(uri: &str, key: Key, ids: &[u32]) -> Self {
        Self::create_with(uri, key, ids, None).await
    }

    pub async fn create_with(
        uri: &str,
        key: Key,
        ids: &[u32],
        version: Option<LanceFileVersion>,
    ) -> Self {
        let base = write_table(uri, Self::base_batch(key, ids), version).await;
        Self::over(base, key, ids)
    }

    /// A table in memory; its session holds the store that its URI names.
    pub async fn create_in_memory(key: Key, ids: &[u32]) -> Self {
        let uri = "memory://bucket/table";
        let batch = Self::base_batch(key, ids);
        let schema = batch.schema();
        let session = Arc::new(Session::default());
        let params = WriteParams { session: Some(session), ..Default::default() };
        let rows = RecordBatchIterator::new([Ok(batch)], schema);
        Self::over(Dataset::write(rows, uri, Some(params)).await.unwrap(), key, ids)
    }

    /// A table in a store that was handed to lance as an object instead of by URI.
    pub async fn create_in_bound_store(key: Key, ids: &[u32]) -> Self {
        let store = Arc::new(object_store::memory::InMemory::new());
        #[expect(deprecated, reason = "a binding that others may still set")]
        let bound = ObjectStoreParams {
            object_store: Some((store, "memory:///bound/table".parse().unwrap())),
            ..Default::default()
        };
        let batch = Self::base_batch(key, ids);
        let schema = batch.schema();
        let params = WriteParams {
            store_params: Some(bound.clone()),
            commit_handler: Some(Arc::new(ConditionalPutCommitHandler)),
            ..Default::default()
        };
        let uri = "memory:///bound/table";
        Dataset::write(RecordBatchIterator::new([Ok(batch)], schema), uri, Some(params))
            .await
            .unwrap();
        let base = DatasetBuilder::from_uri(uri).with_store_params(bound).load().await.unwrap();
        Self::over(base, key, ids)
    }

    fn over(base: Dataset, key: Key, ids: &[u32]) -> Self {
        let key_columns = key.names();
        Self { base, shard: SHARD, key, key_columns, base_ids: ids.to_vec() }
    }

    fn base_batch(key: Key, ids: &[u32]) -> RecordBatch {
        let mut fields = Vec::new();
        let mut columns = key.arrays(ids);
        for (name, array) in key.names().into_iter().zip(&columns) {
            let marker = HashMap::from([(KEY_MARKER.to_owned(), "true".to_owned())]);
            fields.push(Field::new(name, array.data_type().clone(), false).with_metadata(marker));
        }
        columns.push(Arc::new(Int64Array::from_iter_values(ids.iter().map(|id| i64::from(*id)))));
        fields.push(Field::new("v", arrow_schema::DataType::Int64, false));
        RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns).unwrap()
    }

    /// Leaves a gap in the ids: the columns are then the key (0) and `added` (2).
    pub async fn add_column_then_drop_the_first_value_column(&mut self) {
        let added = vec![("added".to_owned(), "v".to_owned())];
        let added = NewColumnTransform::SqlExpressions(added);
        self.base.add_columns(added, None, None).await.unwrap();
        self.base.drop_columns(&["v"]).await.unwrap();
    }

    /// The storage schema.
    pub fn schema(&self) -> SchemaRef {
        storage_schema(self.base.schema(), &self.key_columns)
    }

    /// The puts as stored rows.
    pub fn batches(&self, puts: &[&[(u32, Option<i64>)]]) -> Vec<RecordBatch> {
        let schema = self.schema();
        let batch = |rows: &&[(u32, Option<i64>)]| {
            let ids: Vec<u32> = rows.iter().map(|(id, _)| *id).collect();
            let mut columns = self.key.arrays(&ids);
            columns.push(Arc::new(rows.iter().map(|(_, value)| *value).collect::<Int64Array>()));
            let dead: Vec<bool> = rows.iter().map(|(_, value)| value.is_none()).collect();
            columns.push(Arc::new(BooleanArray::from(dead)));
            RecordBatch::try_new(schema.clone(), columns).unwrap()
        };
        puts.iter().map(batch).collect()
    }

    pub async fn write(&self, generation: u64, puts: &[&[(u32, Option<i64>)]]) -> WrittenSsTable {
        self.write_under(None, generation, puts).await
    }

    /// As [`Self::write`], in a table with this merge rule.
    pub async fn write_under(
        &self,
        rule: Option<&MergeRule>,
        generation: u64,
        puts: &[&[(u32, Option<i64>)]],
    ) -> WrittenSsTable {
        let batches = self.batches(puts);
        let sorted_rows = order(&batches, &self.key_columns);
        let context = SsTableContext::new(&self.base, self.shard).await.unwrap().with_rule(rule);
        let input = input(self.schema(), batches, &self.key_columns, &sorted_rows);
        let written = write_sstable(&context, Generation(generation), input).await.unwrap();
        let mut expected: BTreeMap<String, i64> =
            self.base_ids.iter().map(|id| (self.text(*id), i64::from(*id))).collect();
        for (id, value) in puts.iter().copied().flatten() {
            match value {
                Some(value) => expected.insert(self.text(*id), *value),
                None => expected.remove(&self.text(*id)),
            };
        }
        WrittenSsTable { context, written, generation, expected }
    }

    fn text(&self, id: u32) -> String {
        rendered(self.key.batch(&[id]).columns(), 0)
    }
}

/// Key columns of a row as text, to compare rows whatever the key type.
fn rendered(columns: &[ArrayRef], row: usize) -> String {
    let one = |c: &ArrayRef| arrow_cast::display::array_value_to_string(c, row).unwrap();
    columns.iter().map(one).collect::<Vec<_>>().join("|")
}

/// The entry of a shard manifest for the SSTable `path`, generation 1.
pub fn listed(path: &str, physical_rows: Option<u64>) -> SsTable {
    SsTable {
        generation: Generation(1),
        path: path.to_owned(),
        in_memory_bytes: None,
        physical_rows,
        primary_key_bytes: None,
    }
}

/// The input of a flush of a MemTable with these rows.
pub fn input(
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    key_columns: &[String],
    sorted_rows: &[u32],
) -> SsTableInput {
    let sorted_rows = sorted_rows.to_vec();
    let rows_by_key = Box::new(move || sorted_rows);
    let (key_columns, indexes) = (key_columns.into(), IndexSpecs::default());
    SsTableInput { schema, batches, key_columns, rows_by_key, hidden: None, indexes }
}

/// The sorted positions, as a MemTable computes them.
fn order(batches: &[RecordBatch], key_columns: &[String]) -> Vec<u32> {
    let encoder = KeyEncoder::new(batches[0].schema_ref(), key_columns).unwrap();
    let keys: Vec<_> = batches.iter().flat_map(|batch| encoder.encode(batch)).collect();
    let mut sorted: Vec<u32> = (0..u32::try_from(keys.len()).unwrap()).collect();
    sorted.sort_by_key(|row| (&keys[*row as usize], *row));
    sorted
}

/// A written SSTable, and the rows that base table and SSTable show together.
pub struct WrittenSsTable {
    pub context: SsTableContext,
    pub written: SsTableWritten,
    generation: u64,
    expected: BTreeMap<String, i64>,
}

impl WrittenSsTable {
    pub async fn open(&self) -> Dataset {
        open_sstable(&self.context, &self.written.path).await.unwrap()
    }

    pub fn local_folder(&self) -> String {
        format!("{}/{}", self.context.shard_uri, self.written.path)
    }

    pub fn scanner(&self, table: &Table) -> LsmScanner {
        let path = &self.written.path;
        scanner(table.base.clone(), table.shard, self.generation, path, &table.key_columns)
    }

    pub async fn assert_reads_like(&self, table: &Table) {
        let batch = self.scanner(table).try_into_batch().await.unwrap();
        let keys = table.key_columns.len();
        let values = batch.column(keys).as_primitive::<Int64Type>();
        let rows: BTreeMap<String, i64> = (0..batch.num_rows())
            .map(|row| (rendered(&batch.columns()[..keys], row), values.value(row)))
            .collect();
        assert_eq!(rows.len(), batch.num_rows(), "{:?}: a key is returned twice", table.key);
        assert_eq!(rows, self.expected, "{:?}", table.key);
    }
}

pub async fn assert_reads_like_the_model(key: Key, base: &[u32], puts: &[&[(u32, Option<i64>)]]) {
    let directory = TempStrDir::default();
    let table = Table::create(directory.as_str(), key, base).await;
    let sstable = table.write(1, puts).await;
    sstable.assert_reads_like(&table).await;

    // The key index answers for every position, tombstones included, and for nothing else.
    let ids: Vec<u32> = puts.iter().copied().flatten().map(|(id, _)| *id).collect();
    let scanner = sstable.scanner(&table);
    let found = scanner.contains_pks(&key.batch(&ids)).await.unwrap();
    assert!(found.iter().all(|found| *found), "{key:?}: {found:?}");
    let absent: Vec<u32> = base.iter().copied().filter(|id| !ids.contains(id)).collect();
    let found = scanner.contains_pks(&key.batch(&absent)).await.unwrap();
    assert!(found.iter().all(|found| !found), "{key:?}: {found:?}");

    let dataset = sstable.open().await;
    let ids = |schema: &lance_core::datatypes::Schema| -> Vec<i32> {
        schema.fields.iter().map(|field| field.id).collect()
    };
    let mut expected = ids(table.base.schema());
    expected.push(table.base.schema().max_field_id().unwrap() + 1);
    assert_eq!(ids(dataset.schema()), expected, "{key:?}");
    assert_eq!(dataset.get_fragments()[0].metadata().files[0].fields.as_ref(), expected);
}
