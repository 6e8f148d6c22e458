//! Widens a column of a number type.
//!
//! Owns: a new data file with the column's values for every base fragment, and the commit that
//! gives the column the wider type, a new field id, and the old field id in its metadata. By the
//! old id, rows of older SSTables and WAL entries are matched with the column.
//! Does not own: casting rows above the base table as they are read (`schema`).
//!
//! Lance itself refuses to change a type in a table with a MemWAL index. It does not know that
//! metadata, so rows above the base table would lose their values.

use std::num::NonZero;
use std::sync::Arc;

use arrow::compute::cast;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, Schema, SchemaRef};
use async_recursion::async_recursion as boxed;
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::fragment::{FileFragment, FragReadConfig};
use lance::dataset::transaction::Operation;
use lance::index::DatasetIndexExt;
use lance_core::datatypes::{Field, LogicalType, Schema as LanceSchema};
use lance_file::version::ConcreteFileVersion;
use lance_file::versions::create_writer;
use lance_file::writer::FileWriterOptions;
use lance_table::format::{DataFile, Fragment};
use lancemem_core::format::Sharding;
use lancemem_core::format::reconcile::{WIDENED_FROM, is_widening, widened_mark};
use lancemem_core::types::{Error, Result, TypeName};

use crate::errors::{BaseContext, Context};
use crate::sstable::data_file_name;
use crate::table::Table;

/// Rows that are cast at once.
const BATCH_ROWS: u32 = 65_536;
/// Batches that are prefetched.
const BATCHES_AHEAD: usize = 4;
/// Fragments that are written at the same time.
const FRAGMENTS: usize = 2;
/// Attempts to commit. After a concurrent commit the whole column is written again.
const MAX_ATTEMPTS: usize = 8;
const DATA: &str = "data";

impl Table {
    /// Changes the type of a column, from int32 to int64 or from float32 to float64. Returns the
    /// base version with the new type. Stored rows of shards keep the narrow values, which are
    /// widened when they are read.
    ///
    /// # Errors
    /// An input error, with nothing written, for any other change of type, for a column of the
    /// primary key, inside a struct or with an index, and where the merge function of the column
    /// does not take the type. A storage error after repeated conflicts.
    #[boxed]
    pub async fn alter_column(&self, column: &str, to: &DataType) -> Result<u64> {
        let sharding = self.sharding().and_then(Sharding::column);
        if sharding.is_some_and(|sharding| sharding == column) {
            return Err(Error::input(format!(
                "column '{column}' of table {}: the sharding column keeps its type, because the hash of \
                 its value chooses the shard of a row",
                self.uri()
            )));
        }
        self.catalog.try_function(column, to).await?;
        let operation = |base: Arc<Dataset>| async move {
            let plan = Widening::plan(&base, column, to).await?;
            let fragments = plan.fragments(&base).await?;
            let preserves_nullability = plan.old.nullable;
            let schema = plan.schema;
            Ok(Operation::Merge { fragments, schema, preserves_nullability })
        };
        self.catalog.commit_on_newest(MAX_ATTEMPTS, operation).await
    }
}

/// A column and its new type.
struct Widening {
    old: Field,
    to: DataType,
    /// Its new field id.
    id: i32,
    /// The table's schema afterwards, and the part of it that is written.
    schema: LanceSchema,
    written: LanceSchema,
}

impl Widening {
    async fn plan(base: &Dataset, column: &str, to: &DataType) -> Result<Self> {
        let action = "planning to widen a column";
        let refused = |reason: &str| {
            Error::input(format!("column '{column}' of table {}: {reason}", base.uri()))
        };
        let found = base.schema().fields.iter().find(|field| field.name == column);
        let old = found.ok_or_else(|| refused("there is no such column"))?.clone();
        let from = old.data_type();
        if !is_widening(&from, to) {
            return Err(refused(&format!(
                "only int32 to int64 and float32 to float64 are possible, not {} to {}",
                TypeName(&from),
                TypeName(to)
            )));
        }
        if old.is_unenforced_primary_key() {
            return Err(refused("a column of the primary key keeps its type"));
        }
        let indices = base.load_indices().await.context(action)?;
        if let Some(index) = indices.iter().find(|index| index.fields.contains(&old.id)) {
            return Err(refused(&format!("drop its index '{}' first", index.name)));
        }
        let version = base.manifest().data_storage_format.lance_file_format();
        if version == ConcreteFileVersion::V1 {
            return Err(refused("the data files of the table are of Lance's legacy format 0.1"));
        }
        if base.fragments().iter().any(|fragment| !fragment.overlays.is_empty()) {
            return Err(refused("the table has overlays; compact its files first"));
        }
        let mut schema = base.schema().clone();
        let field =
            schema.mut_field_by_id(old.id).ok_or_else(|| refused("the column has no field id"))?;
        field.logical_type = LogicalType::try_from(to).context(action)?;
        field.id = base.manifest().max_field_id() + 1;
        field.metadata.insert(WIDENED_FROM.to_owned(), widened_mark(old.id, field.id));
        let id = field.id;
        let written = schema.project(&[column]).context(action)?;
        Ok(Self { old, to: to.clone(), id, schema, written })
    }

    async fn fragments(&self, base: &Dataset) -> Result<Vec<Fragment>> {
        let fragments = base.get_fragments();
        let written: Vec<_> =
            fragments.iter().map(|fragment| self.fragment(base, fragment).boxed()).collect();
        futures::stream::iter(written).buffered(FRAGMENTS).try_collect().await
    }

    /// The fragment with the column in a separate file. A fragment that is older than the column
    /// gets a file of nulls: Lance accepts a new field id only if every fragment has it.
    async fn fragment(&self, base: &Dataset, fragment: &FileFragment) -> Result<Fragment> {
        let mut widened = fragment.metadata().clone();
        widened.files.push(self.write(base, fragment).await?);
        // Drop files whose columns are all gone from the schema.
        let lineage = widened.spilled_row_lineage_field_ids();
        let is_used = |id: &i32| self.schema.field_by_id(*id).is_some() || lineage.contains(id);
        widened.files.retain(|file| file.fields.iter().any(is_used));
        Ok(widened)
    }

    async fn write(&self, base: &Dataset, fragment: &FileFragment) -> Result<DataFile> {
        let action = format!("widening column '{}'", self.old.name);
        let version = base.manifest().data_storage_format.lance_file_format();
        let name = data_file_name().context(&action)?;
        let store = base.object_store(None).await.context(&action)?;
        let path = base.branch_location().path.join(DATA).join(name.as_str());
        let output = store.create(&path).await.context(&action)?;
        let options = FileWriterOptions::default();
        let writer = create_writer(version, output, self.written.clone(), options);
        let mut writer = writer.context(&action)?;
        let schema: SchemaRef = Arc::new(Schema::from(&self.written));
        let batch_of = |values: ArrayRef| {
            let options = RecordBatchOptions::new().with_row_count(Some(values.len()));
            RecordBatch::try_new_with_options(schema.clone(), vec![values], &options)
        };
        let physical = fragment.physical_rows().await.in_base(&action)?;
        if fragment.metadata().files.iter().any(|file| file.fields.contains(&self.old.id)) {
            let narrow = base.schema().project(&[&self.old.name]).context(&action)?;
            // Lance identifies a row by its position in the file, so deleted rows are written too.
            let config = FragReadConfig::default().with_ignore_deletions(true);
            let reader = fragment.open(&narrow, config).await.in_base(&action)?;
            let rows = reader.read_all(BATCH_ROWS).await.context(&action)?;
            let mut rows = rows.buffered(BATCHES_AHEAD);
            while let Some(batch) = rows.try_next().await.in_base(&action)? {
                let values = cast(batch.column(0), &self.to).context(&action)?;
                writer.write_batch(&batch_of(values).context(&action)?).await.context(&action)?;
            }
        } else {
            for start in (0..physical).step_by(BATCH_ROWS as usize) {
                let rows = (physical - start).min(BATCH_ROWS as usize);
                let nulls = batch_of(new_null_array(&self.to, rows)).context(&action)?;
                writer.write_batch(&nulls).await.context(&action)?;
            }
        }
        let written = writer.finish().await.context(&action)?;
        if written.num_rows != physical as u64 {
            return Err(Error::internal(format!(
                "{action}: fragment {} has {physical} rows, {} were read",
                fragment.id(),
                written.num_rows
            )));
        }
        let size = NonZero::new(written.size_bytes);
        Ok(DataFile::new(name, vec![self.id], vec![0], version, size, None))
    }
}
