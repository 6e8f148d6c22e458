//! Common parts of the benches of a table.
//!
//! Owns: a table of one shard with the key `id`, its job, and the median.
//! Does not own: rows, or the timed parts.

#![expect(clippy::unwrap_used, reason = "a bench stops at the first error")]

use std::sync::Arc;

use arrow_schema::SchemaRef;
use lancemem::table::CreateOptions;
use lancemem::{Job, Table, WriterConfig};

/// A table of one shard with the key `id`.
pub async fn created(uri: &str, schema: SchemaRef, config: WriterConfig) -> Arc<Table> {
    let options = CreateOptions::new(schema).with_primary_key(["id"]).with_config(config);
    Table::create(uri, &options).await.unwrap()
}

/// A job of its shard, with the table's settings.
pub async fn job_of(table: &Arc<Table>) -> Arc<Job> {
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    table
        .start_job(shard_id, table.writer_defaults().clone(), table.maintenance_defaults().clone())
        .await
        .unwrap()
}

/// The median time.
pub fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
