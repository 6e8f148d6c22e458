//! Tests of a snapshot whose parts are read while the table changes.
//!
//! Owns: changes between reading the parts of one shard and reading the base version.
//! Does not own: the plan over a snapshot, or the order of rows in one part.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use async_trait::async_trait;
use lancemem_core::shard::ShardSnapshot;
use lancemem_core::types::WriterConfig;

use super::*;
use crate::compaction::CompactionSettings;
use crate::table::{Catalog, CreateOptions, Job, MaintenanceConfig};

fn rows(ids: &[i64], value: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]));
    let values = Arc::new(Int64Array::from_iter_values(ids.iter().map(|_| value)));
    let ids = Arc::new(Int64Array::from_iter_values(ids.iter().copied()));
    RecordBatch::try_new(schema, vec![ids, values]).unwrap()
}

/// A job that puts, flushes and compacts after it has taken its snapshot.
#[derive(Debug)]
struct Busy(Arc<Job>, Arc<Table>);

#[async_trait]
impl LiveJob for Busy {
    fn shard_id(&self) -> ShardId {
        LiveJob::shard_id(&*self.0)
    }

    async fn snapshot(&self, table: &Catalog) -> Result<ShardSnapshot> {
        let snapshot = LiveJob::snapshot(&*self.0, table).await?;
        self.0.put(&rows(&[1, 2], 2)).await?;
        self.0.flush().await?;
        self.1.compact_with(&CompactionSettings::default()).await?;
        Ok(snapshot)
    }
}

#[tokio::test]
async fn a_compaction_behind_the_rows_in_memory_shows_a_later_put_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(rows(&[], 0).schema()).with_primary_key(["id"]);
    let uri = folder.path().canonicalize().unwrap();
    let table = Table::create(uri.to_str().unwrap(), &options).await.unwrap();
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    let job = table
        .start_job(shard_id, WriterConfig::default(), MaintenanceConfig::default())
        .await
        .unwrap();
    job.put(&rows(&[1], 1)).await.unwrap();
    let busy: Arc<dyn LiveJob> = Arc::new(Busy(job.clone(), table.clone()));
    let keys = rows(&[1, 2], 0).project(&[0]).unwrap();
    let found = table.get(&keys, None, Consistency::Live, &[busy]).await.unwrap();
    let values = found.rows[0].column(1).as_primitive::<Int64Type>();
    assert_eq!(values.values(), &[2, 2]);
    job.close(true).await.unwrap();
}
