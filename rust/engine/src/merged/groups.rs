//! The fold of the events of contested keys, a chunk of keys at a time on all processors.
//!
//! Owns: the numbers of contested keys, and which thread folds which of them.
//! Does not own: the fold of a chunk (`lancemem_core::merge`), or reading the events (`events`).

use std::iter::repeat_n;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

use arrow_array::RecordBatch;
use lancemem_core::merge::{Fold, KeyGroups};
use lancemem_core::types::{Error, Result};

use super::events::SourceEvents;
use super::{MERGING, processors};

/// Keys that are folded at a time.
const CHUNK: u32 = 8_192;
/// The stack of a thread that folds, which may run a function of a user in Python.
const FOLD_STACK_BYTES: usize = 8 << 20;

/// Numbers of contested keys. Those of a shard begin with a chunk, so that a chunk is of one shard;
/// some numbers are of no key.
#[derive(Debug)]
pub(super) struct Groups {
    /// For each chunk the index of its shard in the snapshot.
    shards: Vec<usize>,
}

/// A row of a source: an event of the key with the number `group` in its chunk.
#[derive(Clone, Copy)]
struct Event {
    group: u32,
    source: u32,
    row: u32,
}

impl Groups {
    /// Numbers for keys of so many shards, of which each is in the shard with that index; a key of
    /// none gets no number.
    ///
    /// # Errors
    /// An internal error for 2^32 keys.
    pub(super) fn of(
        shards: usize,
        keys: impl Iterator<Item = Option<usize>> + Clone,
    ) -> Result<(Self, Vec<Option<u32>>)> {
        let mut counts = vec![0_usize; shards];
        keys.clone().flatten().for_each(|shard| counts[shard] += 1);
        let (mut shard_of_chunk, mut next) = (Vec::new(), Vec::new());
        for (shard, count) in counts.iter().enumerate() {
            next.push(as_u32(shard_of_chunk.len() * CHUNK as usize)?);
            shard_of_chunk.extend(repeat_n(shard, count.div_ceil(CHUNK as usize)));
        }
        as_u32(shard_of_chunk.len() * CHUNK as usize)?;
        let mut number = |shard: usize| {
            next[shard] += 1;
            next[shard] - 1
        };
        let numbers = keys.map(|shard| shard.map(&mut number)).collect();
        Ok((Self { shards: shard_of_chunk }, numbers))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// The folded events of each chunk, with the index of its shard.
    ///
    /// # Errors
    /// As [`Fold::fold`].
    pub(super) fn fold(
        &self,
        sources: &[SourceEvents],
        fold: &Fold,
    ) -> Result<Vec<(usize, RecordBatch)>> {
        let events: usize = sources.iter().map(|source| source.groups.len()).sum();
        // A look-up has few events, which need no thread.
        let is_small = events <= CHUNK as usize;
        let threads = if is_small { 1 } else { processors() };
        let share = self.shards.len().div_ceil(threads).max(1);
        let all = 0..self.shards.len();
        let parts = all.clone().step_by(share).map(|start| start..all.end.min(start + share));
        let mut parts = parts.collect::<Vec<_>>().into_iter();
        let of_part = |chunks| fold_part(chunks, sources, fold);
        let here = parts.next().unwrap_or(0..0);
        let made = thread::scope(|scope| {
            let running = parts.map(|part| {
                let thread = thread::Builder::new().name("lancemem-fold".to_owned());
                thread.stack_size(FOLD_STACK_BYTES).spawn_scoped(scope, move || of_part(part))
            });
            let running = running.collect::<Result<Vec<_>, _>>().map_err(|error| {
                Error::internal(format!("{MERGING}: a thread was not started")).with_source(error)
            })?;
            let mut made = of_part(here)?;
            for part in running {
                made.append(&mut part.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            }
            Ok::<_, Error>(made)
        })?;
        Ok(self.shards.iter().copied().zip(made).collect())
    }
}

/// The folds of these chunks. Events are parted by chunk first, so that a chunk's fit into a
/// processor's cache when they are sorted (a radix partition).
fn fold_part(
    chunks: Range<usize>,
    sources: &[SourceEvents],
    fold: &Fold,
) -> Result<Vec<RecordBatch>> {
    let mut parted: Vec<Vec<Event>> = vec![Vec::new(); chunks.len()];
    for (source, events) in sources.iter().enumerate() {
        let source = as_u32(source)?;
        for (row, group) in events.groups.iter().enumerate() {
            let chunk = ((group / CHUNK) as usize).checked_sub(chunks.start);
            if let Some(events) = chunk.and_then(|chunk| parted.get_mut(chunk)) {
                events.push(Event { group: group % CHUNK, source, row: as_u32(row)? });
            }
        }
    }
    parted.into_iter().map(|events| fold_chunk(&events, sources, fold)).collect()
}

/// The fold of the events of one chunk.
fn fold_chunk(events: &[Event], sources: &[SourceEvents], fold: &Fold) -> Result<RecordBatch> {
    // A fold looks at each of its sources, and most may have no row of these keys.
    let (mut own, mut places) = (Vec::new(), vec![0; sources.len()]);
    for event in events {
        let place = &mut places[event.source as usize];
        if *place == 0 {
            own.push(sources[event.source as usize].rows.clone());
            *place = own.len();
        }
    }
    // A look-up has few keys.
    let keys = events.iter().map(|event| event.group as usize + 1).max().unwrap_or_default();
    let rows = events
        .iter()
        .map(|event| (event.group, (places[event.source as usize] - 1, event.row as usize)));
    fold.fold(&own, &KeyGroups::from_events(keys, rows)?)
}

/// # Errors
/// An internal error for 2^32 or more.
pub(super) fn as_u32(count: usize) -> Result<u32> {
    u32::try_from(count).map_err(|_| Error::internal(format!("{MERGING}: more than 2^32 of them")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Array, Int64Array};
    use arrow_schema::{DataType, Field, Schema};
    use lancemem_core::merge::{
        MergeEngine, MergeFunction, MergeRule, PairFunctions, RuleOptions, Verb,
    };

    use super::*;

    /// A fold of rows `(id, n)` that sums `n`.
    fn sums() -> Fold {
        let field = |id: i32, name: &str| {
            let metadata = HashMap::from([("lance:field_id".to_owned(), id.to_string())]);
            Field::new(name, DataType::Int64, id > 0).with_metadata(metadata)
        };
        let schema = Arc::new(Schema::new(vec![field(0, "id"), field(1, "n")]));
        let options = RuleOptions {
            merge_engine: MergeEngine::Aggregation,
            aggregates: [("n".to_owned(), MergeFunction::Sum.into())].into(),
            ..RuleOptions::default()
        };
        let key = ["id".to_owned()];
        let rule = MergeRule::new(&options, &schema, &key).unwrap();
        Fold::new(&rule, &schema, &key, &PairFunctions::new()).unwrap()
    }

    /// Puts of `n` for these keys, which have numbers in `numbers`.
    fn puts(fold: &Fold, keys: &[i64], n: i64, numbers: &[Option<u32>]) -> SourceEvents {
        let columns: [Arc<dyn Array>; 2] = [
            Arc::new(Int64Array::from(keys.to_vec())),
            Arc::new(Int64Array::from(vec![n; keys.len()])),
        ];
        let rows = RecordBatch::try_new(fold.row_schema().clone(), columns.to_vec()).unwrap();
        let groups = keys.iter().map(|key| numbers[usize::try_from(*key).unwrap()].unwrap());
        let groups = groups.collect();
        SourceEvents { rows: fold.events(&rows, Verb::Put, None).unwrap(), groups }
    }

    #[test]
    fn each_key_is_folded_once_in_its_shard_however_many_chunks_there_are() {
        let fold = sums();
        // Key k is in shard k % 3; shard 1 has none, and every fifth key has no number.
        let keys = i64::from(CHUNK) * 7 + 11;
        let shard_of = |key: i64| (key % 5 > 0 && key % 3 != 1).then_some(key.unsigned_abs() % 3);
        let shard_of = |key: i64| shard_of(key).map(|shard| usize::try_from(shard).unwrap());
        let (groups, numbers) = Groups::of(3, (0..keys).map(shard_of)).unwrap();
        let numbered: Vec<i64> = (0..keys).filter(|key| shard_of(*key).is_some()).collect();
        let odd: Vec<i64> = numbered.iter().copied().rev().filter(|key| key % 2 == 1).collect();
        let sources = [puts(&fold, &numbered, 1, &numbers), puts(&fold, &odd, 10, &numbers)];

        let mut seen = Vec::new();
        for (shard, batch) in groups.fold(&sources, &fold).unwrap() {
            let ids = batch.column(0).as_primitive::<Int64Type>().values();
            let sums = batch.column(1).as_primitive::<Int64Type>().values();
            for (id, sum) in ids.iter().zip(sums) {
                assert_eq!(shard_of(*id), Some(shard), "the shard of key {id}");
                assert_eq!(*sum, if id % 2 == 1 { 11 } else { 1 }, "the sum of key {id}");
                seen.push(*id);
            }
        }
        seen.sort_unstable();
        assert!(seen == numbered, "each key once");
    }

    #[test]
    fn no_key_makes_no_chunk() {
        let (groups, numbers) = Groups::of(2, [None, None].into_iter()).unwrap();
        assert!(groups.is_empty());
        assert_eq!(numbers, [None, None]);
        assert!(groups.fold(&[], &sums()).unwrap().is_empty());
    }
}
