//! Pruning of sources above the base table.
//!
//! Owns: [`prune`], which finds the sources without a key that meets the condition: a shard whose
//! bucket holds no such key, an SSTable or a MemTable that has no such key.
//! Does not own: the domain of a column under a condition (`key_range`), or the plan.
//!
//! Only conditions on the key prune. A source without a key that meets the condition has neither a
//! row of the result nor a newer row for one. So it is left out twice: as a source, and from the
//! keys that older sources are compared with. For any other column only the first would hold: the
//! newer row of a key may fail a condition that the older row meets. An SSTable's keys include its
//! tombstones, so an SSTable that deletes a matching key is not pruned.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;
use futures::future::try_join_all;
use lancemem_core::format::{KeyEncoder, Sharding};
use lancemem_core::types::{KeyBlock, Result, ShardId};

use super::Filter;
use super::key_range::Domain;
use crate::errors::Context;
use crate::snapshot::{MemTableView, Snapshot, SnapshotShard, Source, SsTableHandle};

const ACTION: &str = "planning a scan";
/// Most keys that each source is probed for.
const KEYS: usize = 1_000;

/// A pruned source, and the reason.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// Its place in [`Snapshot::sources`].
    pub source: usize,
    what: String,
    why: &'static str,
}

impl Pruned {
    /// The flushed SSTable at `source`, of which every row is known to be superseded.
    pub(crate) fn superseded(source: usize, sstable: &SsTableHandle) -> Self {
        Self { source, what: sstable.name(), why: "newer rows of their keys hide all its rows" }
    }
}

impl fmt::Display for Pruned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pruned: {}, {}", self.what, self.why)
    }
}

/// The sources of `snapshot` that hold no key which meets `filter`.
///
/// # Errors
/// A storage error while an SSTable's bloom filter is read.
pub async fn prune(snapshot: &Snapshot, filter: Option<&Filter>) -> Result<Vec<Pruned>> {
    let Some(filter) = filter else { return Ok(Vec::new()) };
    let Some(condition) = KeyCondition::of(snapshot, filter.expression())? else {
        return Ok(Vec::new());
    };
    let owners = snapshot
        .shards
        .iter()
        .flat_map(|shard| std::iter::repeat_n(shard, shard.sstables.len() + shard.memtables.len()));
    let asks = owners.zip(snapshot.sources()).enumerate().map(|(source, (shard, (_, it)))| {
        let condition = &condition;
        async move {
            let why = condition.excludes(shard, &it, &snapshot.key).await?;
            Ok(why.map(|why| Pruned { source, what: name(shard.shard_id, &it), why }))
        }
    });
    Ok(try_join_all(asks).await?.into_iter().flatten().collect())
}

fn name(shard_id: ShardId, source: &Source<'_>) -> String {
    match source {
        Source::SsTable(sstable) => sstable.name(),
        Source::MemTable(rows) => {
            format!("MemTable {} of shard {shard_id}", rows.generation())
        }
    }
}

/// The keys that may meet a condition.
struct KeyCondition {
    /// The only keys that meet it, where it lists them.
    keys: Option<(RecordBatch, KeyBlock)>,
    /// Bounds of the encoded first key column.
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    /// The buckets that hold these keys.
    buckets: Option<HashSet<i32>>,
}

impl KeyCondition {
    /// `None` where any key may meet `condition`.
    fn of(snapshot: &Snapshot, condition: &Expr) -> Result<Option<Self>> {
        let Some(fields) = key_fields(snapshot) else { return Ok(None) };
        let domains: Vec<Option<Domain>> =
            fields.iter().map(|field| Domain::of(condition, field)).collect();
        if domains.iter().all(Option::is_none) {
            return Ok(None);
        }
        let keys = exact_keys(&fields, &domains)?;
        let (low, high) = domains[0].as_ref().map_or((None, None), Domain::bounds);
        let encode =
            |value: Option<&ScalarValue>| value.map(|value| encoded(&fields[0], value)).transpose();
        let (low, high) = (encode(low)?, encode(high)?);
        let buckets = buckets(snapshot, &fields, &domains)?;
        Ok(Some(Self { keys, low, high, buckets }))
    }

    /// Why `source` has no such key; `None` where it may.
    async fn excludes(
        &self,
        shard: &SnapshotShard,
        source: &Source<'_>,
        key: &[String],
    ) -> Result<Option<&'static str>> {
        let elsewhere = |bucket: i32| self.buckets.as_ref().is_some_and(|it| !it.contains(&bucket));
        if shard.bucket.is_some_and(elsewhere) {
            return Ok(Some("whose bucket has no key that meets the filter"));
        }
        let excluded = match source {
            Source::SsTable(sstable) => self.excludes_sstable(sstable, key).await?,
            Source::MemTable(rows) => self.excludes_memtable(rows),
        };
        Ok(excluded.then_some("which has no key that meets the filter"))
    }

    async fn excludes_sstable(&self, sstable: &SsTableHandle, key: &[String]) -> Result<bool> {
        let known = sstable.keys_in_memory();
        if let Some(known) = &known
            && let Some((least, greatest)) = known.range()
            && !self.meets_range(least, greatest)
        {
            return Ok(true);
        }
        let Some((keys, encoded)) = &self.keys else { return Ok(false) };
        if let Some(known) = known {
            return Ok(encoded.iter().all(|key| known.find(key).is_none()));
        }
        assert_eq!(keys.num_columns(), key.len(), "the filter hashes whole keys");
        let Some(filter) = sstable.filter().await? else { return Ok(false) };
        Ok((0..keys.num_rows()).all(|row| !filter.may_hold(keys, row)))
    }

    fn excludes_memtable(&self, rows: &MemTableView) -> bool {
        let Some((_, encoded)) = &self.keys else { return false };
        encoded.iter().all(|key| rows.newest(key).is_none())
    }

    /// Whether a key between `least` and `greatest` may have its first column within the bounds.
    /// The encoding of the first column is a prefix of the encoded key. It is prefix-free: no
    /// encoded value is a prefix of another value's.
    fn meets_range(&self, least: &[u8], greatest: &[u8]) -> bool {
        self.low.as_deref().is_none_or(|low| greatest >= low)
            && self.high.as_deref().is_none_or(|high| least <= high || least.starts_with(high))
    }
}

fn key_fields(snapshot: &Snapshot) -> Option<Vec<Field>> {
    let field = |name: &String| snapshot.schema.field_with_name(name).ok().cloned();
    let fields: Vec<Field> = snapshot.key.iter().map(field).collect::<Option<_>>()?;
    (!fields.is_empty()).then_some(fields)
}

/// Every key in the product of the domains, where each domain lists values and the product is
/// small.
fn exact_keys(
    fields: &[Field],
    domains: &[Option<Domain>],
) -> Result<Option<(RecordBatch, KeyBlock)>> {
    let mut keys: Vec<Vec<ScalarValue>> = vec![Vec::new()];
    for domain in domains {
        let Some(Domain::Values(values)) = domain else { return Ok(None) };
        if keys.len().saturating_mul(values.len()) > KEYS {
            return Ok(None);
        }
        let with = |key: &Vec<ScalarValue>, value: &ScalarValue| -> Vec<ScalarValue> {
            key.iter().chain([value]).cloned().collect()
        };
        keys = keys.iter().flat_map(|key| values.iter().map(|it| with(key, it))).collect();
    }
    let column = |place: usize| keys.iter().map(move |key| key[place].clone());
    let columns = fields.iter().enumerate().map(|(place, field)| array(field, column(place)));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let batch =
        RecordBatch::try_new(schema, columns.collect::<Result<Vec<_>>>()?).context(ACTION)?;
    let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    let encoded = KeyEncoder::new(batch.schema_ref(), &names)?.encode_block(&batch);
    Ok(Some((batch, encoded)))
}

fn array(field: &Field, values: impl ExactSizeIterator<Item = ScalarValue>) -> Result<ArrayRef> {
    if values.len() == 0 {
        return Ok(arrow_array::new_empty_array(field.data_type()));
    }
    ScalarValue::iter_to_array(values).context(ACTION)
}

/// The encoded value of one key column.
fn encoded(field: &Field, value: &ScalarValue) -> Result<Vec<u8>> {
    let schema = Arc::new(Schema::new(vec![field.clone()]));
    let column = array(field, [value.clone()].into_iter())?;
    let batch = RecordBatch::try_new(schema, vec![column]).context(ACTION)?;
    let encoder = KeyEncoder::new(batch.schema_ref(), &[field.name().clone()])?;
    Ok(encoder.encode_block(&batch).get(0).to_vec())
}

fn buckets(
    snapshot: &Snapshot,
    fields: &[Field],
    domains: &[Option<Domain>],
) -> Result<Option<HashSet<i32>>> {
    let Some(sharding @ Sharding::Bucket { column, .. }) = snapshot.sharding.as_ref() else {
        return Ok(None);
    };
    let by_name = fields.iter().zip(domains).find(|(field, _)| field.name() == column);
    let Some((field, Some(Domain::Values(values)))) = by_name else { return Ok(None) };
    let schema = Arc::new(Schema::new(vec![field.clone()]));
    let column = array(field, values.clone().into_iter())?;
    let batch = RecordBatch::try_new(schema, vec![column]).context(ACTION)?;
    Ok(Some(sharding.ordinals(&batch)?.into_iter().collect()))
}
