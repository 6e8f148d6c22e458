//! Rows by key, on one snapshot.
//!
//! ```text
//!   MemTables      key index                                  newest first; the first source
//!   SSTables       bloom filter, then keys in memory or       that has a key decides, and a
//!                  the key index on storage                   tombstone means a missing key
//!   base table     keys in memory, record index, scalar index,
//!                  or a scan
//! ```
//!
//! Owns: which source answers for each key of a call, and the rows in the order of the call.
//! Does not own: what the snapshot contains, or its caches (`snapshot`).

mod base;
mod by_rule;
mod memory;
mod missing;
mod newer;
mod pieces;
mod sstables;
mod superseded;
mod take;
mod versions;
mod wanted;

use std::collections::HashSet;
use std::future::{Future, ready};

use arrow_array::RecordBatch;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use lancemem_core::types::{Error, Result};

pub use newer::without_newer;
pub use superseded::superseded;
pub use take::{rows_at, whole_rows};
pub use versions::KeyVersions;

use crate::snapshot::Snapshot;
use pieces::{Answers, Pieces};
use take::Columns;
use wanted::Wanted;

/// Rows found by key.
#[derive(Clone, Debug)]
pub struct FoundRows {
    /// The rows, in the order of their keys in the call; a key that the call names twice gives its
    /// row twice. One batch, or several where the values of a column are too large for one batch.
    pub rows: Vec<RecordBatch>,
    /// Positions in the call of the keys that have no row.
    pub missing: Vec<usize>,
    /// The keys of the call: only the key columns, in primary-key order.
    pub keys: RecordBatch,
}

impl FoundRows {
    /// How many rows were found.
    #[must_use]
    pub fn num_rows(&self) -> usize {
        self.rows.iter().map(RecordBatch::num_rows).sum()
    }
}

/// Prefetched answers of the base table, for a lookup of the same keys and columns in a snapshot
/// over the same base version. On a remote store this search overlaps with reading the shards.
pub struct Ahead {
    version: u64,
    answers: Vec<Answers>,
}

impl Ahead {
    /// Searches the base table of `snapshot` for all keys.
    ///
    /// # Errors
    /// As [`find`].
    pub async fn of(snapshot: &Snapshot, keys: &RecordBatch, columns: &[String]) -> Result<Self> {
        let columns = Columns::of(snapshot, columns)?;
        let wanted = Wanted::new(&snapshot.key, keys)?;
        let answers = base::find(snapshot, &wanted, &columns, &wanted.distinct()).await?;
        Ok(Self { version: snapshot.base.version().version, answers })
    }
}

/// Concurrent reads: on a remote store the latency of many equals that of one.
const READS_AT_ONCE: usize = 64;

/// Runs reads side by side; the results are in the order of the reads.
async fn all<T>(reads: Vec<BoxFuture<'_, Result<T>>>) -> Result<Vec<T>> {
    futures::stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await
}

/// The newest rows of the keys in `keys`, with the columns `columns`. `keys` has the snapshot's key
/// columns in their types.
///
/// # Errors
/// An input error for an unknown column or a snapshot without a primary key; a storage error.
pub async fn find(
    snapshot: &Snapshot,
    keys: &RecordBatch,
    columns: &[String],
) -> Result<FoundRows> {
    find_with(snapshot, keys, columns, ready(None)).await
}

/// The same, where `ahead` may have searched the base table already.
///
/// # Errors
/// As [`find`].
pub async fn find_with(
    snapshot: &Snapshot,
    keys: &RecordBatch,
    columns: &[String],
    ahead: impl Future<Output = Option<Ahead>>,
) -> Result<FoundRows> {
    if snapshot.key.is_empty() {
        return Err(Error::input(
            "the table has no primary key, so rows cannot be found by key; read them by a \
             condition (scan), or create the table with primary_key=",
        ));
    }
    if let Some(rule) = snapshot.rule() {
        let wanted = Wanted::new(&snapshot.key, keys)?;
        return Box::pin(by_rule::find(snapshot, rule, &wanted, columns)).await;
    }
    let columns = Columns::of(snapshot, columns)?;
    let wanted = Wanted::new(&snapshot.key, keys)?;
    let mut pieces = Pieces::new(wanted.len());
    let mut open = wanted.distinct();
    memory::find(snapshot, &wanted, &columns, &mut open, &mut pieces)?;
    if !open.is_empty() {
        // Meanwhile the indexes of the base table are opened for the keys that SSTables lack.
        let opened = snapshot.base_cache.open(&snapshot.base, &snapshot.key);
        let (in_sstables, _) =
            futures::try_join!(sstables::find(snapshot, &wanted, &mut open), opened)?;
        let of_base = async {
            match ahead.await.filter(|ahead| ahead.version == snapshot.base.version().version) {
                Some(ahead) => Ok(only(ahead.answers, &open)),
                None => base::find(snapshot, &wanted, &columns, &open).await,
            }
        };
        // Polled first: the base table usually has the most rows, and its threads start early.
        let (of_base, of_sstables) =
            futures::try_join!(of_base, sstables::rows(&columns, in_sstables))?;
        of_sstables.into_iter().chain(of_base).for_each(|rows| pieces.add(rows));
    }
    pieces.finish(&columns, &wanted)
}

/// The answers for the rows of `open`.
fn only(mut answers: Vec<Answers>, open: &[u32]) -> Vec<Answers> {
    let open: HashSet<u32> = open.iter().copied().collect();
    for of in &mut answers {
        of.of.retain(|(row, _)| open.contains(row));
    }
    answers
}
