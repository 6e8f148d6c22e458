//! The keys that have several events in a snapshot.
//!
//! Owns: which keys they are, and which rows of each source are theirs.
//! Does not own: the numbers of keys (`visibility`), or how the rows are read (`events`).

use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lancemem_core::merge::Fold;
use lancemem_core::types::Result;

use super::events::{SourceEvents, of_base, of_memtable, of_sstable};
use super::groups::{Groups, as_u32};
use super::{CONCURRENT, MERGING, processors, shard_of};
use crate::errors::Context;
use crate::snapshot::{Snapshot, Source};
use crate::visibility::{NumberedKeys, NumberedRows};

/// The keys that have several events.
pub(super) struct Contested {
    /// For each numbered key its number among the contested ones.
    numbers: Vec<Option<u32>>,
}

/// What is known of a numbered key.
#[derive(Clone, Copy, Default)]
struct Seen {
    events: u8,
    /// The index of its shard in the snapshot.
    shard: u32,
}

impl Contested {
    /// Of the keys above the base table and the base rows that have one of them.
    ///
    /// # Errors
    /// As [`Groups::of`].
    pub(super) fn of(
        snapshot: &Snapshot,
        keys: &NumberedKeys,
        base: &[NumberedRows<()>],
    ) -> Result<(Self, Groups)> {
        let mut seen = vec![Seen::default(); keys.count()];
        for number in base.iter().flat_map(|rows| &rows.ordinals) {
            let seen = &mut seen[*number as usize];
            seen.events = seen.events.saturating_add(1);
        }
        for (source, ordinals) in keys.ordinals().iter().enumerate() {
            let shard = as_u32(shard_of(&snapshot.shards, source))?;
            for number in ordinals {
                let seen = &mut seen[*number as usize];
                *seen = Seen { events: seen.events.saturating_add(1), shard };
            }
        }
        let shards = seen.iter().map(|seen| (seen.events > 1).then_some(seen.shard as usize));
        let (groups, numbers) = Groups::of(snapshot.shards.len(), shards)?;
        Ok((Self { numbers }, groups))
    }

    /// Positions and groups of the contested rows among `numbers`, the keys of the rows at
    /// `position`.
    fn rows(
        &self,
        numbers: &[u32],
        position: impl Fn(usize) -> Result<u32>,
    ) -> Result<Vec<(u32, u32)>> {
        let mut rows = Vec::new();
        for (place, number) in numbers.iter().enumerate() {
            if let Some(group) = self.numbers[*number as usize] {
                rows.push((position(place)?, group));
            }
        }
        rows.sort_unstable();
        Ok(rows)
    }

    /// The events of the contested keys, oldest source first.
    ///
    /// # Errors
    /// A storage error, and damage of a source.
    pub(super) async fn read(
        self,
        snapshot: &Snapshot,
        keys: Arc<NumberedKeys>,
        base: Vec<NumberedRows<()>>,
        fold: &Arc<Fold>,
    ) -> Result<Vec<SourceEvents>> {
        let (contested, shared) = (Arc::new(self), Arc::new(snapshot.clone()));
        let mut reads = Vec::new();
        for fragment in base {
            let (contested, snapshot) = (contested.clone(), shared.clone());
            let fold = fold.clone();
            let read = async move {
                let offset = |place: usize| Ok(fragment.offsets[place]);
                let rows = contested.rows(&fragment.ordinals, offset)?;
                of_base(&snapshot, fragment.id, rows, &fold).await
            };
            reads.push(on_a_task(read).boxed());
        }
        for place in 0..keys.above().len() {
            let (contested, snapshot) = (contested.clone(), shared.clone());
            let keys = keys.clone();
            let read = async move {
                let above = &keys.above()[place];
                let rows = contested.rows(&keys.ordinals()[place], |row| above.position(row))?;
                match snapshot.sources().nth(place) {
                    Some((_, Source::SsTable(of))) => of_sstable(&snapshot, of, rows).await,
                    Some((_, Source::MemTable(of))) => of_memtable(&snapshot, of, &rows),
                    None => Ok(Vec::new()),
                }
            };
            reads.push(on_a_task(read).boxed());
        }
        let at_once = processors().max(CONCURRENT);
        let read: Vec<Vec<SourceEvents>> =
            stream::iter(reads).buffered(at_once).try_collect().await?;
        Ok(read.into_iter().flatten().collect())
    }
}

/// A read as a task of its own once it is polled, so that processors decode and pick rows side by
/// side.
async fn on_a_task(
    read: impl Future<Output = Result<Vec<SourceEvents>>> + Send + 'static,
) -> Result<Vec<SourceEvents>> {
    SpawnedTask::spawn(read).await.context(MERGING)?
}
