//! Tests of a job with background maintenance.
//!
//! Owns: that rounds run, that the job is not disturbed, and that the task ends with the job.
//! Does not own: compaction and collection themselves.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use lancemem_core::format::Sharding;
use lancemem_core::types::WriterConfig;

use super::*;
use crate::table::{CreateOptions, Job};

fn rows(ids: std::ops::Range<i64>, value: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("v", DataType::Int64, true),
    ]));
    let count = usize::try_from(ids.end - ids.start).unwrap();
    let ids = Arc::new(Int64Array::from_iter_values(ids));
    let values = Arc::new(Int64Array::from_iter_values(std::iter::repeat_n(value, count)));
    RecordBatch::try_new(schema, vec![ids, values]).unwrap()
}

async fn table_in(folder: &tempfile::TempDir) -> Arc<Table> {
    let options = CreateOptions::new(rows(0..0, 0).schema()).with_primary_key(["id"]);
    Table::create(folder.path().canonicalize().unwrap().to_str().unwrap(), &options).await.unwrap()
}

/// Maintenance that only the number of generations starts.
fn by_generations(generations: usize) -> MaintenanceConfig {
    MaintenanceConfig::default()
        .with_enabled(true)
        .with_generations(generations)
        .with_interval(Duration::from_hours(1))
}

async fn start(table: &Arc<Table>, maintenance: MaintenanceConfig) -> Arc<Job> {
    start_with(table, WriterConfig::default(), maintenance).await
}

async fn start_with(
    table: &Arc<Table>,
    config: WriterConfig,
    maintenance: MaintenanceConfig,
) -> Arc<Job> {
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    table.start_job(shard_id, config, maintenance).await.unwrap()
}

async fn until(job: &Job, reached: impl FnMut(&MaintenanceStats) -> bool) -> MaintenanceStats {
    let mut stats = job.maintenance.as_ref().unwrap().stats.subscribe();
    stats.wait_for(reached).await.unwrap().clone()
}

#[tokio::test]
async fn a_shard_with_enough_generations_is_compacted_and_its_job_is_not_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    let job = start(&table, by_generations(3)).await;
    let epoch = job.epoch();
    for round in 1..=3 {
        for step in 0..3 {
            job.put(&rows(step..step + 10, round)).await.unwrap();
            job.flush().await.unwrap();
        }
        let wanted = u64::try_from(round).unwrap() * 3;
        until(&job, |stats| stats.compacted_generations >= wanted).await;
    }
    job.put(&rows(0..1, 9)).await.unwrap();
    job.flush().await.unwrap();
    assert_eq!(job.epoch(), epoch);
    assert_eq!(table.shards().await.unwrap()[0].writer_epoch, epoch);
    assert_eq!(job.stats().uncompacted_generations, 1, "the job has read the drained manifest");
    let stats = job.maintenance_stats();
    assert_eq!((stats.compactions, stats.maintenance_errors), (3, 0), "{stats:?}");
    assert_eq!(table.latest_base().await.unwrap().count_rows(None).await.unwrap(), 12);
    job.close(false).await.unwrap();
}

#[tokio::test]
async fn a_single_generation_waits_for_the_interval_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    let job = start(&table, by_generations(100).with_interval(Duration::from_millis(5))).await;
    job.put(&rows(0..5, 1)).await.unwrap();
    job.flush().await.unwrap();
    let stats = until(&job, |stats| stats.compactions == 1 && stats.collections >= 1).await;
    assert_eq!(stats.compacted_generations, 1);
    job.close(false).await.unwrap();
}

#[tokio::test]
async fn puts_that_wait_for_a_compaction_get_one() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    let config = WriterConfig::default()
        .with_max_uncompacted_generations(2)
        .with_max_compaction_wait(Duration::from_mins(5))
        .with_max_memtable_rows(1);
    // The limit does not apply while puts wait.
    let maintenance = by_generations(100).with_bytes_per_second(1_000_000_000);
    let job = start_with(&table, config, maintenance).await;
    for id in 0..12 {
        job.put(&rows(id..id + 1, id)).await.unwrap();
    }
    assert!(job.maintenance_stats().compactions > 0);
    job.close(false).await.unwrap();
}

#[tokio::test]
async fn what_was_compacted_is_collected_while_the_job_runs() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    let maintenance =
        by_generations(1).with_interval(Duration::from_millis(5)).with_older_than(Duration::ZERO);
    let job = start(&table, maintenance).await;
    job.put(&rows(0..100, 1)).await.unwrap();
    job.flush().await.unwrap();
    until(&job, |stats| stats.compactions == 1 && stats.collected_bytes > 0).await;
    job.put(&rows(0..1, 2)).await.unwrap();
    job.close(false).await.unwrap();
}

#[tokio::test]
async fn an_error_is_counted_and_recorded_and_fails_no_put() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    let job = start(&table, by_generations(1)).await;
    // A file where compaction needs the folder of data files.
    let data = folder.path().join("data");
    assert!(!data.exists());
    std::fs::write(&data, b"in the way").unwrap();
    job.put(&rows(0..5, 1)).await.unwrap();
    job.flush().await.unwrap();
    let stats = until(&job, |stats| stats.maintenance_errors > 0).await;
    assert_eq!(stats.compactions, 0);
    assert!(!stats.last_maintenance_error.unwrap().is_empty());
    job.put(&rows(5..6, 1)).await.unwrap();
    job.flush().await.unwrap();
    // What stood in the way is gone: the next round, after a pause, makes up for it.
    std::fs::remove_file(&data).unwrap();
    let stats = until(&job, |stats| stats.compactions == 1).await;
    assert_eq!(stats.compacted_generations, 2);
    until(&job, |stats| stats.last_maintenance_error.is_none()).await;
    job.close(false).await.unwrap();
}

#[tokio::test]
async fn a_failed_look_up_is_recorded_until_the_next_one_makes_up_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    table.alter_deletion_vectors(true).await.unwrap();
    let job = start(&table, MaintenanceConfig::default()).await;
    // A file in the place of the folder of deletion vectors.
    let deletion_vectors = folder.path().join("_lancemem").join("deletion_vectors");
    assert!(!deletion_vectors.exists());
    std::fs::create_dir_all(deletion_vectors.parent().unwrap()).unwrap();
    std::fs::write(&deletion_vectors, b"in the way").unwrap();
    job.put(&rows(0..5, 1)).await.unwrap();
    job.flush().await.unwrap();
    let stats = until(&job, |stats| stats.maintenance_errors > 0).await;
    assert!(!stats.last_maintenance_error.unwrap().is_empty());
    assert_eq!(stats.deletion_vector_files, 0);
    std::fs::remove_file(&deletion_vectors).unwrap();
    job.put(&rows(0..5, 2)).await.unwrap();
    job.flush().await.unwrap();
    let stats = until(&job, |stats| stats.last_maintenance_error.is_none()).await;
    assert_eq!(stats.deletion_vector_files, 2);
    job.close(false).await.unwrap();
}

#[tokio::test]
async fn a_closed_and_a_dropped_job_leave_no_task_behind() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_in(&folder).await;
    let maintenance_config = by_generations(1).with_interval(Duration::from_millis(1));
    let closed = start(&table, maintenance_config.clone()).await;
    closed.put(&rows(0..5, 1)).await.unwrap();
    closed.flush().await.unwrap();
    closed.close(false).await.unwrap();
    closed.close(false).await.unwrap();
    let maintenance = closed.maintenance.as_ref().unwrap();
    assert!(maintenance.ended.has_changed().is_err(), "the task is gone when close returns");

    let dropped = start(&table, maintenance_config).await;
    let mut ended = dropped.maintenance.as_ref().unwrap().ended.clone();
    drop(dropped);
    ended.changed().await.unwrap_err();
    drop(closed);
    // Only the tasks held the table beside this test.
    assert_eq!(Arc::strong_count(&table), 1);
}

#[tokio::test]
async fn jobs_of_one_table_take_turns_and_two_programs_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(rows(0..0, 0).schema())
        .with_primary_key(["id"])
        .with_sharding(Sharding::Bucket { column: "id".to_owned(), buckets: 3 })
        .with_maintenance(MaintenanceConfig::default().with_enabled(true));
    let uri = folder.path().canonicalize().unwrap();
    let table = Table::create(uri.to_str().unwrap(), &options).await.unwrap();
    let other = Table::open(uri.to_str().unwrap()).await.unwrap();
    assert!(other.maintenance_defaults().enabled, "it is a setting of the table");
    let mut jobs = Vec::new();
    for (shard, table) in table.shards().await.unwrap().iter().zip([&table, &table, &other]) {
        jobs.push((
            shard.ordinal.unwrap(),
            table
                .start_job(shard.shard_id, WriterConfig::default(), by_generations(1))
                .await
                .unwrap(),
        ));
    }
    let all = rows(0..300, 1);
    let ordinals = table.shard_ordinals(&all).unwrap();
    let mut puts = Vec::new();
    for (ordinal, job) in &jobs {
        let mine: arrow_array::BooleanArray =
            ordinals.iter().map(|it| Some(it == ordinal)).collect();
        let mine = arrow::compute::filter_record_batch(&all, &mine).unwrap();
        puts.push(async move {
            for _ in 0..3 {
                job.put(&mine).await.unwrap();
                job.flush().await.unwrap();
            }
        });
    }
    futures::future::join_all(puts).await;
    for (_, job) in &jobs {
        job.close(true).await.unwrap();
    }
    table.compact().await.unwrap();
    assert_eq!(table.latest_base().await.unwrap().count_rows(None).await.unwrap(), 300);
}
