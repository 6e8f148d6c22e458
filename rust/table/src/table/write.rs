//! Writing to a table without holding a job: rows are routed, written and acknowledged.
//!
//! Owns: routing rows to shards and the short-lived jobs that write them.
//! Does not own: throughput; a program that writes often starts jobs of its own.

use std::collections::BTreeMap;

use arrow::compute::take_record_batch;
use arrow_array::{RecordBatch, UInt32Array};
use futures::future::try_join_all;
use lancemem_core::shard::WriteMode;
use lancemem_core::types::{Error, Result, WriterConfig};

use super::Table;
use crate::errors::Context;

/// What a write did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteResult {
    /// Rows written, or keys deleted.
    pub rows: usize,
    /// Shards that took them.
    pub shards: usize,
    /// WAL entries that hold them.
    pub wal_entries: u64,
}

#[derive(Clone, Copy)]
enum Verb {
    Upsert,
    Delete,
}

impl Table {
    /// Adds or replaces rows. Returns when all of them are durable.
    ///
    /// Rows are checked for all shards before any is written.
    ///
    /// # Errors
    /// An input error that names column and row, with nothing written.
    pub async fn upsert(&self, rows: &RecordBatch) -> Result<WriteResult> {
        self.write(rows, Verb::Upsert).await
    }

    /// Deletes the rows with these keys, whether they exist or not.
    ///
    /// # Errors
    /// As [`Self::upsert`].
    pub async fn delete(&self, keys: &RecordBatch) -> Result<WriteResult> {
        self.write(keys, Verb::Delete).await
    }

    /// The shard ordinal of every row. Columns may come in any order and with any name beside
    /// the sharding column.
    ///
    /// # Errors
    /// An input error where the sharding column is missing or cannot be hashed.
    pub fn shard_ordinals(&self, rows: &RecordBatch) -> Result<Vec<i32>> {
        let sharding = self
            .sharding
            .as_ref()
            .ok_or_else(|| Error::input(format!("table {} has no sharding", self.uri())))?;
        sharding.ordinals(&self.rows.with_column_types(rows, sharding)?)
    }

    async fn write(&self, rows: &RecordBatch, verb: Verb) -> Result<WriteResult> {
        if rows.num_rows() == 0 {
            return Ok(WriteResult::default());
        }
        match verb {
            Verb::Upsert => self.rows.accept(rows)?,
            Verb::Delete => self.rows.accept_keys(rows)?,
        };
        let routing = self.routing().await?;
        let writes = self.route(rows)?.into_iter().map(|(ordinal, part)| {
            let shard_id = routing.get(&ordinal).copied();
            async move {
                let shard_id = shard_id.ok_or_else(|| {
                    Error::Internal(format!("no shard has the ordinal {ordinal}"))
                })?;
                let config = WriterConfig { durable_write: true, ..self.defaults.clone() };
                let job = self.start_job(shard_id, config).await?;
                match verb {
                    Verb::Upsert => job.put(&part, WriteMode::default()).await?,
                    Verb::Delete => job.delete(&part, WriteMode::default()).await?,
                };
                job.close(false).await?;
                Ok::<_, Error>(job.stats().wal_entries)
            }
        });
        let entries = try_join_all(writes).await?;
        Ok(WriteResult {
            rows: rows.num_rows(),
            shards: entries.len(),
            wal_entries: entries.iter().sum(),
        })
    }

    /// The rows of each ordinal, in their order.
    fn route(&self, rows: &RecordBatch) -> Result<BTreeMap<i32, RecordBatch>> {
        let mut positions: BTreeMap<i32, Vec<u32>> = BTreeMap::new();
        for (row, ordinal) in (0_u32..).zip(self.shard_ordinals(rows)?) {
            positions.entry(ordinal).or_default().push(row);
        }
        positions
            .into_iter()
            .map(|(ordinal, rows_of)| {
                let part =
                    take_record_batch(rows, &UInt32Array::from(rows_of)).context("routing rows")?;
                Ok((ordinal, part))
            })
            .collect()
    }
}
