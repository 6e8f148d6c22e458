//! Rows of the base table whose keys have rows above.
//!
//! Owns: the pass over the keys of a fragment: one thread decodes a batch while other threads compare
//! the batches before it.
//! Does not own: the numbers of keys (`numbered_keys`), or the use of the rows (`chosen_rows`,
//! `merged`).

use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use futures::{StreamExt, TryStreamExt};
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, Result};

use super::NumberedKeys;
use crate::errors::{BaseContext, Context};
use crate::record_index::{column_batches, fragment_of};
use crate::snapshot::Snapshot;

/// Batches that are compared at the same time.
const COMPARED: usize = 2;

/// Rows of a base fragment whose keys are numbered.
#[derive(Debug)]
pub struct NumberedRows<T> {
    /// The fragment.
    pub id: u64,
    /// Their offsets, ascending.
    pub offsets: Vec<u32>,
    /// The numbers of their keys.
    pub ordinals: Vec<u32>,
    /// What was made of the columns that were read of them, batch by batch.
    pub made: Vec<T>,
}

impl<T: Send + 'static> NumberedRows<T> {
    /// The live rows of the base fragment `id` whose keys are in `keys`. `make` is given a batch of
    /// the fragment, with its keys and the columns `more`, and which of its rows these are.
    ///
    /// # Errors
    /// A storage error, and as `make`.
    pub async fn of(
        snapshot: &Snapshot,
        id: u64,
        keys: Arc<NumberedKeys>,
        more: &[String],
        make: impl Fn(&RecordBatch, &UInt32Array) -> Result<T> + Clone + Send + 'static,
        action: &'static str,
    ) -> Result<Self> {
        let mut found = Self { id, offsets: Vec::new(), ordinals: Vec::new(), made: Vec::new() };
        if keys.count() == 0 {
            return Ok(found);
        }
        let fragment = fragment_of(&snapshot.base, id)?;
        let deleted = fragment.get_deletion_vector().await.in_base(action)?;
        let mut names = snapshot.key.to_vec();
        names.extend(more.iter().filter(|name| !snapshot.key.contains(name)).cloned());
        let mut start = 0_u32;
        let batches = column_batches(&fragment, &names).await.in_base(action)?;
        let batches = batches.map(|batch| {
            let batch = batch.in_base(action)?;
            let first = start;
            let end = u32::try_from(batch.num_rows()).ok().and_then(|rows| first.checked_add(rows));
            start = end.ok_or_else(|| Error::internal("a fragment is limited to 2^32 - 1 rows"))?;
            Ok((batch, first))
        });
        let mut passes = batches
            .map_ok(|(batch, first)| {
                let (keys, make) = (keys.clone(), make.clone());
                let (key, deleted) = (snapshot.key.clone(), deleted.clone());
                let pass = move || -> Result<_> {
                    let encoder = KeyEncoder::new(batch.schema_ref(), &key)?;
                    let mut rows = keys.find(&encoder, &batch)?;
                    if let Some(deleted) = &deleted {
                        rows.retain(|(row, _)| !deleted.contains(first + row));
                    }
                    let places = rows.iter().map(|(row, _)| *row);
                    let made = make(&batch, &UInt32Array::from_iter_values(places))?;
                    Ok((first, rows, made))
                };
                async move { tokio::task::spawn_blocking(pass).await.context(action)? }
            })
            .try_buffered(COMPARED);
        while let Some((first, rows, made)) = passes.try_next().await? {
            found.offsets.extend(rows.iter().map(|(row, _)| first + row));
            found.ordinals.extend(rows.iter().map(|(_, number)| *number));
            found.made.push(made);
        }
        Ok(found)
    }
}
