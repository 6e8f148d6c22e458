//! Rows by key, on one cut.
//!
//! ```text
//!   MemTables      key index                                  newest first; the first source
//!   SSTables       bloom filter, then keys in memory or       that has a key decides, and a
//!                  the key index on storage                   tombstone means that it is missing
//!   base table     keys in memory, record index, scalar index,
//!                  or a scan
//! ```
//!
//! Owns: which source answers for each key of a call, and the rows in the order of the call.
//! Does not own: what the cut contains (`view`), or what is kept in memory of it.

mod base;
mod memory;
mod pieces;
mod runs;
mod take;
mod wanted;

use arrow_array::RecordBatch;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::{Error, Result};

use crate::view::ReadView;
use pieces::Pieces;
use take::Columns;
use wanted::Wanted;

/// Rows found by key.
#[derive(Clone, Debug)]
pub struct Found {
    /// The rows, in the order of their keys in the call; a key that is there twice gives its row
    /// twice.
    pub rows: RecordBatch,
    /// Positions in the call of the keys that have no row.
    pub missing: Vec<usize>,
}

/// Reads that run at the same time: a far store answers many as soon as one.
const READS_AT_ONCE: usize = 64;

/// Runs reads side by side; the results are in the order of the reads.
async fn all<T>(reads: Vec<BoxFuture<'_, Result<T>>>) -> Result<Vec<T>> {
    futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
}

/// The newest rows of the keys in `keys`, which has the view's key columns in their types, with
/// `columns`.
///
/// # Errors
/// An input error for an unknown column or a view without a primary key; a storage error.
pub async fn find(view: &ReadView, keys: &RecordBatch, columns: &[String]) -> Result<Found> {
    if view.key.is_empty() {
        return Err(Error::input("the table has no primary key, so rows cannot be found by key"));
    }
    let columns = Columns::of(view, columns)?;
    let wanted = Wanted::new(&view.key, keys)?;
    let mut pieces = Pieces::new(wanted.len());
    let mut open = wanted.distinct();
    memory::find(view, &wanted, &columns, &mut open, &mut pieces)?;
    if !open.is_empty() {
        // What the base table will be asked for the rest is opened meanwhile.
        let opened = view.base_cache.open(&view.base, &view.key);
        let (in_runs, _) = futures::try_join!(runs::find(view, &wanted, &mut open), opened)?;
        let (of_runs, of_base) = futures::try_join!(
            runs::rows(&columns, in_runs),
            base::find(view, &wanted, &columns, &open)
        )?;
        of_runs.into_iter().chain(of_base).for_each(|rows| pieces.add(rows));
    }
    pieces.finish(&columns, &wanted)
}
