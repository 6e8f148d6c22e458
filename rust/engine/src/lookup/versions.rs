//! All rows of some keys, source by source, for a merge rule that makes a row of several.
//!
//! Owns: the positions of the rows of some keys in each source above the base table, and their rows
//! in the base table.
//! Does not own: what is made of them (`merged`).

use arrow::compute::take;
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use futures::FutureExt;
use lancemem_core::types::{Error, Result};

use super::pieces::Answers;
use super::take::{Columns, Origin};
use super::wanted::Wanted;
use super::{all, base, sstables};
use crate::errors::Context;
use crate::snapshot::{Snapshot, Source};

/// The rows of some keys above the base table of a snapshot.
pub struct KeyVersions {
    wanted: Wanted,
    /// For each source of the snapshot the positions of rows, ascending, each with the number of its
    /// key in the call.
    pub above: Vec<Vec<(u32, u32)>>,
}

impl KeyVersions {
    /// The rows of `keys`, a batch with the key columns in their types.
    ///
    /// # Errors
    /// A storage error, or damage of an SSTable.
    pub async fn of(snapshot: &Snapshot, keys: &RecordBatch) -> Result<Self> {
        let wanted = Wanted::new(&snapshot.key, keys)?;
        let rows = wanted.distinct();
        let asks = snapshot.sources().map(|(_, source)| {
            let (wanted, rows) = (&wanted, &rows);
            async move {
                let mut found = match source {
                    Source::SsTable(sstable) => {
                        let found = sstables::shown_rows(sstable, snapshot, wanted, rows).await?;
                        found.into_iter().map(|(row, position)| (position, row)).collect()
                    }
                    Source::MemTable(memtable) => {
                        let mut found = Vec::new();
                        for row in rows {
                            let key = wanted.key(*row);
                            memtable.versions(key, |position| found.push((position.0, *row)));
                        }
                        found
                    }
                };
                found.sort_unstable();
                Ok(found)
            }
            .boxed()
        });
        let above = all(asks.collect()).await?;
        Ok(Self { wanted, above })
    }

    /// How many keys the call has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.wanted.len()
    }

    /// The rows of the base table that have these keys of the call: all columns in the order of the
    /// table, each with the number of its key.
    ///
    /// # Errors
    /// A storage error.
    pub async fn in_base(
        &self,
        snapshot: &Snapshot,
        numbers: &[u32],
    ) -> Result<Vec<(RecordBatch, Vec<u32>)>> {
        let names = snapshot.schema.fields().iter().map(|field| field.name().clone());
        let columns = Columns::of(snapshot, &names.collect::<Vec<_>>())?;
        let found = base::find(snapshot, &self.wanted, &columns, numbers).await?;
        found.iter().map(|answers| self.whole(&columns, answers)).collect()
    }

    /// The rows of an answer with the columns of the key.
    fn whole(&self, columns: &Columns, answers: &Answers) -> Result<(RecordBatch, Vec<u32>)> {
        let action = "looking up keys";
        let numbers: Vec<u32> = answers.of.iter().map(|(row, _)| *row).collect();
        let of_call = UInt32Array::from(numbers.clone());
        let places = answers.of.iter().map(|(_, place)| u32::try_from(*place));
        let places = places.collect::<std::result::Result<Vec<u32>, _>>();
        let places = places.map_err(|error| Error::internal(format!("{action}: {error}")))?;
        let places = UInt32Array::from(places);
        let column = |origin: &Origin| match *origin {
            Origin::Call(column) => take(self.wanted.batch.column(column), &of_call, None),
            Origin::Source(column) => take(&answers.columns[column], &places, None),
        };
        let arrays = columns.origins.iter().map(column);
        let arrays = arrays.collect::<std::result::Result<Vec<ArrayRef>, _>>().context(action)?;
        let rows = RecordBatch::try_new(columns.schema.clone(), arrays).context(action)?;
        Ok((rows, numbers))
    }
}
