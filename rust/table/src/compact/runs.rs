//! What each run of a compaction holds: which of its rows are alive, and all keys.
//!
//! Owns: one pass over the key columns of the runs, newest first, so that the first row of a key
//! is its newest.
//! Does not own: rows of the base table, or what becomes of a run.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use futures::TryStreamExt;
use lancemem_core::format::{KeyEncoder, TOMBSTONE};
use lancemem_core::types::{Error, Result};
use roaring::RoaringBitmap;

use super::keys::KeySet;
use crate::errors::RunContext;
use crate::vectors::RunCover;
use crate::view::{ReadView, SsTableHandle};

/// The column of row addresses in lance's scans.
pub const ROW_ADDRESS: &str = "_rowaddr";
/// Rows that are decoded at once.
pub const BATCH_ROWS: usize = 65_536;

/// A run, with the positions that must not come to the base table.
#[derive(Debug)]
pub struct Run {
    /// The open run.
    pub handle: Arc<SsTableHandle>,
    /// Rows in its data file.
    pub physical_rows: u64,
    /// Superseded rows, by this run or a newer one, and tombstones.
    pub dead: RoaringBitmap,
    /// How many of `dead` are tombstones; those that a newer run supersedes count there alone.
    pub tombstones: u64,
}

impl Run {
    /// Rows that the base table gets.
    #[must_use]
    pub fn live_rows(&self) -> u64 {
        self.physical_rows - self.dead.len()
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> String {
        format!("SSTable {} of shard {}", self.handle.path, self.handle.shard_id)
    }
}

/// The runs of a view, oldest first in each shard, and the keys of all their rows.
#[derive(Debug)]
pub struct Runs {
    /// In the order of the view.
    pub runs: Vec<Run>,
    /// Every key that a run has a row or a tombstone of; `None` where nobody has read them.
    keys: Option<Arc<KeySet>>,
}

impl Runs {
    /// Reads the keys of every run of `view`.
    ///
    /// # Errors
    /// A storage error, or damage of a run.
    pub async fn read(view: &ReadView) -> Result<Self> {
        let mut runs = Vec::new();
        for handle in view.shards.iter().flat_map(|shard| &shard.sstables) {
            runs.push(open(handle).await?);
        }
        let rows: u64 = if view.key.is_empty() {
            0
        } else {
            runs.iter().map(|run| run.physical_rows - run.dead.len()).sum()
        };
        let mut keys = KeySet::with_capacity(usize::try_from(rows).unwrap_or(0));
        // Newest first. Keys of different shards never meet, so their order does not matter.
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_key(|run| std::cmp::Reverse(runs[*run].handle.generation));
        for run in order {
            if !view.key.is_empty() {
                read_keys(&mut runs[run], &view.key, &mut keys).await?;
            }
        }
        Ok(Self { runs, keys: Some(Arc::new(keys)) })
    }

    /// The same runs where it is known which of their rows are dead. Reads no keys.
    ///
    /// # Errors
    /// A storage error, or damage of a run.
    pub async fn covered(view: &ReadView, cover: &[RunCover]) -> Result<Self> {
        let mut runs = Vec::new();
        let handles = view.shards.iter().flat_map(|shard| &shard.sstables);
        for (handle, cover) in handles.zip(cover) {
            let mut run = open(handle).await?;
            run.dead |= &cover.superseded;
            run.tombstones = (&cover.tombstones - &run.dead).len();
            run.dead |= &cover.tombstones;
            runs.push(run);
        }
        Ok(Self { runs, keys: None })
    }

    /// Every key that a run of `view` has a row or a tombstone of.
    ///
    /// # Errors
    /// A storage error, or damage of a run.
    pub async fn keys(&mut self, view: &ReadView) -> Result<Arc<KeySet>> {
        if let Some(keys) = &self.keys {
            return Ok(keys.clone());
        }
        let read = Self::read(view).await?;
        self.keys = read.keys;
        self.keys.clone().ok_or_else(|| Error::Internal("keys were read and are not there".into()))
    }
}

/// A run whose own deletion vector is known, and no more.
async fn open(handle: &Arc<SsTableHandle>) -> Result<Run> {
    let name = format!("SSTable {} of shard {}", handle.path, handle.shard_id);
    let fragments = handle.dataset.get_fragments();
    let [fragment] = fragments.as_slice() else {
        let found = format!("{} fragments, a run has one", fragments.len());
        return Err(Error::corrupt(name, "misshapen", found));
    };
    let physical_rows = fragment.physical_rows().await.in_run(&name)? as u64;
    let superseded = fragment.get_deletion_vector().await.in_run(&name)?;
    let dead = superseded.map_or_else(RoaringBitmap::new, |rows| RoaringBitmap::from(&*rows));
    Ok(Run { handle: handle.clone(), physical_rows, dead, tombstones: 0 })
}

/// Adds the keys of one run; its rows whose key is known already, and its tombstones, are dead.
async fn read_keys(run: &mut Run, key: &[String], keys: &mut KeySet) -> Result<()> {
    let name = run.name();
    let mut columns: Vec<&str> = key.iter().map(String::as_str).collect();
    columns.push(TOMBSTONE);
    let mut scanner = run.handle.dataset.scan();
    scanner.project(&columns).in_run(&name)?;
    scanner.with_row_address();
    scanner.batch_size(BATCH_ROWS);
    let mut stream = scanner.try_into_stream().await.in_run(&name)?;
    while let Some(batch) = stream.try_next().await.in_run(&name)? {
        let block = KeyEncoder::new(batch.schema_ref(), key)?.encode_block(&batch);
        let missing = |column| Error::Internal(format!("{name} was read without {column}"));
        let tombstones =
            batch.column_by_name(TOMBSTONE).ok_or_else(|| missing(TOMBSTONE))?.as_boolean();
        let addresses = batch
            .column_by_name(ROW_ADDRESS)
            .ok_or_else(|| missing(ROW_ADDRESS))?
            .as_primitive::<UInt64Type>();
        for (row, key) in block.iter().enumerate() {
            let newest = keys.insert(key)?;
            if !newest || tombstones.value(row) {
                run.dead.insert(split_address(addresses.value(row)).1);
                run.tombstones += u64::from(newest);
            }
        }
    }
    Ok(())
}

/// Fragment and offset of a row address.
#[expect(clippy::cast_possible_truncation, reason = "an address is a fragment and an offset")]
pub const fn split_address(address: u64) -> (u32, u32) {
    ((address >> 32) as u32, address as u32)
}
