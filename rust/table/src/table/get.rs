//! Rows by key.
//!
//! Owns: many keys in one call, in the order of the keys, and which keys had no row.
//! Does not own: the choice of the newest row; a get is a scan with a condition on the key.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::compute::{concat_batches, take_record_batch};
use arrow_array::{RecordBatch, UInt32Array};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, in_list, lit};
use datafusion::physical_plan::collect;
use datafusion::prelude::ident;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, KeyBlock, Result};

use super::{LiveJob, Table};
use crate::errors::Context;
use crate::plan::{self, Filter, ScanRequest, plan_scan};
use crate::view::Consistency;

/// Rows found by key.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows, in the order of their keys in the call.
    pub rows: RecordBatch,
    /// Positions in the call of the keys that have no row.
    pub missing: Vec<usize>,
}

impl Table {
    /// The newest rows of `keys`, a batch with the key columns, in the order of the keys.
    ///
    /// # Errors
    /// An input error where key columns are missing or of another type.
    pub async fn get(
        &self,
        keys: &RecordBatch,
        columns: Option<Vec<String>>,
        consistency: Consistency,
        jobs: &[Arc<dyn LiveJob>],
    ) -> Result<Found> {
        if self.key.is_empty() {
            return Err(Error::input(
                "the table has no primary key, so rows cannot be found by key",
            ));
        }
        let wanted = self.rows.accept_keys(keys)?;
        let view = self.read_view(consistency, jobs).await?;
        let session = plan::session();
        let output = match columns {
            Some(columns) => columns,
            None => view.schema.fields().iter().map(|field| field.name().clone()).collect(),
        };
        let mut read = output.clone();
        read.extend(self.key.iter().filter(|name| !output.contains(name)).cloned());
        let condition = self.key_condition(&wanted.batch)?;
        let filter = condition.map(|c| Filter::new(&view.schema, c)).transpose()?;
        let request = ScanRequest { columns: Some(read), filter, ..ScanRequest::default() };
        let plan = plan_scan(&session, &view, &self.merges, &request).await?;
        let schema = plan.schema();
        let batches = collect(plan, session.task_ctx()).await.context("getting rows by key")?;
        let rows = concat_batches(&schema, &batches).context("getting rows by key")?;
        let rows = order_by_keys(&rows, &self.key, &self.rows.encode_keys(&wanted))?;
        let indices = output
            .iter()
            .map(|name| schema.index_of(name))
            .collect::<Result<Vec<_>, _>>()
            .context("getting rows by key")?;
        Ok(Found { rows: rows.rows.project(&indices).context("getting rows")?, ..rows })
    }

    /// A condition that every wanted key meets: one value list a key column. For a composite key
    /// it lets some other keys through, which the caller drops.
    fn key_condition(&self, keys: &RecordBatch) -> Result<Option<Expr>> {
        let mut condition: Option<Expr> = None;
        for name in self.key.iter() {
            let column = keys
                .column_by_name(name)
                .ok_or_else(|| Error::Internal(format!("no key column {name}")))?;
            let mut values = HashSet::new();
            for row in 0..column.len() {
                values.insert(ScalarValue::try_from_array(column, row).context("reading a key")?);
            }
            let list = in_list(ident(name), values.into_iter().map(lit).collect(), false);
            condition = Some(condition.map_or(list.clone(), |c| c.and(list)));
        }
        Ok(condition)
    }
}

fn order_by_keys(rows: &RecordBatch, key: &[String], wanted: &KeyBlock) -> Result<Found> {
    let keys = KeyEncoder::new(rows.schema_ref(), key)?.encode_block(rows);
    let found: HashMap<&[u8], u32> = keys.iter().zip(0_u32..).collect();
    let mut positions = Vec::with_capacity(wanted.len());
    let mut missing = Vec::new();
    for (index, key) in wanted.iter().enumerate() {
        match found.get(key) {
            Some(position) => positions.push(*position),
            None => missing.push(index),
        }
    }
    let rows = take_record_batch(rows, &UInt32Array::from(positions)).context("ordering rows")?;
    Ok(Found { rows, missing })
}
