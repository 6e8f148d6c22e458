//! Lookups in the base table.
//!
//! Owns: which fragments are searched through keys in memory, through the record index, through the
//! scalar index on the key column, or by a scan; and leaving out deleted rows.
//! Does not own: the cache of the base table (`snapshot`).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, in_list, lit};
use datafusion::prelude::ident;
use futures::{FutureExt, TryStreamExt};
use lance_core::ROW_ADDR;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::{SargableQuery, ScalarIndex, SearchResult};
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{Error, Result};

use super::all;
use super::pieces::Answers;
use super::take::{Columns, SourceColumns, take};
use super::wanted::Wanted;
use crate::errors::{BaseContext, Context};
use crate::record_index::fragment_of;
use crate::row_address::split_address;
use crate::snapshot::{BaseFragment, OpenBase, Snapshot, SsTableKeys};

const ACTION: &str = "looking up keys in the base table";
/// Most keys that are looked up in the index one by one, a page each. More keys share pages.
const FEW_KEYS: usize = 16;
/// Rows of a page of lance's B-tree index.
const PAGE_ROWS: u64 = 4_096;
/// A fragment without an index that has at most this many rows has its keys read into memory at the
/// first lookup.
const SMALL_ROWS: u64 = 65_536;
/// Scans of a larger fragment after which its keys are read into memory.
const SCANS: u64 = 3;

/// Candidate rows: row of the call, fragment, offset.
type RowLocations = Vec<(u32, u32, u32)>;

/// The rows of the base table that answer for the keys of `open`.
pub(super) async fn find(
    snapshot: &Snapshot,
    wanted: &Wanted,
    columns: &Columns,
    open: &[u32],
) -> Result<Vec<Answers>> {
    if open.is_empty() {
        return Ok(Vec::new());
    }
    let base = snapshot.base_cache.open(&snapshot.base, &snapshot.key).await?;
    let mut ways = Ways::choose(snapshot, &base, open.len()).await?;
    let recorded = match in_record_index(&base, &ways.recorded, wanted, open).await {
        Ok(places) => places,
        Err(error) => {
            base.record_index.give_up(&error);
            ways = Ways::choose(snapshot, &base, open.len()).await?;
            Vec::new()
        }
    };
    let mut places = in_memory(&ways.in_memory, wanted, open);
    places.extend(recorded);
    // One search for many keys returns the rows of all of them, but not which row has which key.
    let by_key = !ways.index.is_empty() && open.len() > FEW_KEYS;
    if !ways.index.is_empty() {
        places.extend(in_index(&base, &ways.index, wanted, open).await?);
    }
    if !ways.scanned.is_empty() {
        places.extend(by_scan(snapshot, &ways.scanned, wanted, open).await?);
    }
    let mut by_fragment: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
    for (row, fragment, offset) in places {
        by_fragment.entry(fragment).or_default().push((offset, row));
    }
    let columns = columns.in_base(snapshot, by_key)?;
    let reader = Reader { snapshot, base: &base, wanted, columns, by_key };
    let reads = by_fragment.into_iter().map(|(fragment, rows)| reader.read(fragment, rows).boxed());
    Ok(all(reads.collect()).await?.into_iter().flatten().collect())
}

/// Reads the rows of fragments.
struct Reader<'a> {
    snapshot: &'a Snapshot,
    base: &'a OpenBase,
    wanted: &'a Wanted,
    columns: SourceColumns,
    /// Whether the keys of the rows that are read decide which row of the call they answer.
    by_key: bool,
}

impl Reader<'_> {
    /// The live rows among `rows`, offsets with the row of the call that each answers.
    async fn read(&self, fragment: u32, mut rows: Vec<(u32, u32)>) -> Result<Vec<Answers>> {
        let file = fragment_of(&self.snapshot.base, fragment.into())?;
        if let Some(deleted) = file.get_deletion_vector().await.in_base(ACTION)? {
            rows.retain(|(offset, _)| !deleted.contains(*offset));
        }
        rows.sort_unstable();
        rows.dedup_by_key(|(offset, _)| *offset);
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let offsets: Vec<u32> = rows.iter().map(|(offset, _)| *offset).collect();
        let taken =
            take(&self.base.rows, &self.snapshot.base, fragment, &offsets, &self.columns).await;
        let mut rows = rows.as_slice();
        let mut answers = Vec::new();
        for taken in taken.in_base(ACTION)? {
            let (of_taken, behind) = rows.split_at(taken.num_rows());
            answers.push(self.answers(&taken, of_taken)?);
            rows = behind;
        }
        Ok(answers)
    }

    /// The answers of the rows that were read: as `rows` pairs them, or by key where `by_key`.
    fn answers(&self, taken: &RecordBatch, rows: &[(u32, u32)]) -> Result<Answers> {
        let of = if self.by_key {
            let keys = KeyEncoder::new(taken.schema_ref(), &self.snapshot.key)?.encode_block(taken);
            let rows = keys.iter().zip(0..);
            rows.filter_map(|(key, place)| Some((self.wanted.row_of(key)?, place))).collect()
        } else {
            rows.iter().zip(0..).map(|((_, row), place)| (*row, place)).collect()
        };
        Ok(Answers { columns: self.columns.result(taken)?, of })
    }
}

/// How the fragments of a base version are searched.
#[derive(Default)]
struct Ways {
    in_memory: Vec<(u32, Arc<SsTableKeys>)>,
    /// Fragments that the record index covers.
    recorded: HashSet<u32>,
    /// Fragments that the scalar index covers.
    index: HashSet<u32>,
    scanned: Vec<u32>,
}

impl Ways {
    async fn choose(snapshot: &Snapshot, base: &OpenBase, keys: usize) -> Result<Self> {
        let mut ways = Self::default();
        let (mut covered, mut loose) = (Vec::new(), Vec::new());
        for fragment in &base.fragments {
            if fragment.has_overlays {
                ways.scanned.push(fragment.id);
            } else if let Some(known) = fragment.keys.in_memory() {
                ways.add(fragment.id, known);
            } else if base.record_index.covers(fragment.id) || base.covered.contains(fragment.id) {
                covered.push(fragment);
            } else {
                loose.push(fragment);
            }
        }
        let fits = |fragments: &[&BaseFragment]| {
            rows(fragments).saturating_mul(bytes_a_row(snapshot))
                <= snapshot.base_cache.limit_bytes() as u64 / 2
        };
        if !covered.is_empty() && is_worth_memory(&covered, keys) && fits(&covered) {
            ways.load(snapshot, &covered).await?;
        } else {
            let ids = covered.iter().map(|fragment| fragment.id);
            (ways.recorded, ways.index) = ids.partition(|id| base.record_index.covers(*id));
        }
        let is_read = |it: &&BaseFragment| it.rows <= SMALL_ROWS || it.keys.add_cost(1) > SCANS;
        let (read, mut scanned): (Vec<_>, Vec<_>) = loose.into_iter().partition(is_read);
        if fits(&read) {
            ways.load(snapshot, &read).await?;
        } else {
            scanned.extend(read);
        }
        ways.scanned.extend(scanned.iter().map(|fragment| fragment.id));
        Ok(ways)
    }

    async fn load(&mut self, snapshot: &Snapshot, fragments: &[&BaseFragment]) -> Result<()> {
        let loads = fragments.iter().map(|fragment| keys_of(snapshot, fragment).boxed());
        let loaded: Vec<(u32, Arc<SsTableKeys>)> = all(loads.collect()).await?;
        for (id, keys) in loaded {
            self.add(id, keys);
        }
        Ok(())
    }

    /// A fragment with a duplicate key is scanned: its keys in memory do not tell a deleted row
    /// from a live one.
    fn add(&mut self, fragment: u32, keys: Arc<SsTableKeys>) {
        if keys.is_unique() {
            self.in_memory.push((fragment, keys));
        } else {
            self.scanned.push(fragment);
        }
    }
}

async fn keys_of(snapshot: &Snapshot, fragment: &BaseFragment) -> Result<(u32, Arc<SsTableKeys>)> {
    let file = fragment_of(&snapshot.base, fragment.id.into())?;
    Ok((fragment.id, fragment.keys.read(&file, &snapshot.key).await?))
}

fn rows(fragments: &[&BaseFragment]) -> u64 {
    fragments.iter().fold(0, |sum, fragment| sum.saturating_add(fragment.rows))
}

/// Lookups of many keys read most pages of the index. Once they have read about as many pages as
/// the index has, the keys themselves are worth their memory.
fn is_worth_memory(covered: &[&BaseFragment], keys: usize) -> bool {
    if keys <= FEW_KEYS {
        return false;
    }
    let costs = covered.iter().map(|fragment| fragment.keys.add_cost(keys as u64));
    costs.min().is_some_and(|cost| cost >= rows(covered).div_ceil(PAGE_ROWS))
}

/// Approximate bytes of a key in memory.
fn bytes_a_row(snapshot: &Snapshot) -> u64 {
    let in_table = 10;
    let of_key: u64 = snapshot
        .key
        .iter()
        .map(|name| match snapshot.schema.field_with_name(name) {
            Ok(field) if field.data_type().is_numeric() => 9,
            _ => 48,
        })
        .sum();
    of_key + in_table
}

fn in_memory(fragments: &[(u32, Arc<SsTableKeys>)], wanted: &Wanted, open: &[u32]) -> RowLocations {
    let mut places = Vec::new();
    for row in open {
        let key = wanted.key(*row);
        for (fragment, keys) in fragments {
            if let Some(offset) = keys.find(key) {
                places.push((*row, *fragment, offset));
            }
        }
    }
    places
}

/// Rows of `fragments` that the record index finds.
async fn in_record_index(
    base: &OpenBase,
    fragments: &HashSet<u32>,
    wanted: &Wanted,
    open: &[u32],
) -> Result<RowLocations> {
    if fragments.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = open.to_vec();
    rows.sort_unstable_by_key(|row| wanted.key(*row));
    let keys: Vec<&[u8]> = rows.iter().map(|row| wanted.key(*row)).collect();
    let found = base.record_index.search(&keys).await?;
    let found = found.into_iter().filter(|(_, fragment, _)| fragments.contains(fragment));
    Ok(found.map(|(key, fragment, offset)| (rows[key as usize], fragment, offset)).collect())
}

/// Rows that the scalar index finds in the fragments that it covers at this version. With many keys
/// the row of the call is not known, and 0 stands for it.
async fn in_index(
    base: &OpenBase,
    covered: &HashSet<u32>,
    wanted: &Wanted,
    open: &[u32],
) -> Result<RowLocations> {
    let values = open.iter().map(|row| wanted.value(*row)).collect::<Result<Vec<_>>>()?;
    let queries: Vec<(u32, SargableQuery)> = if open.len() <= FEW_KEYS {
        open.iter().copied().zip(values.into_iter().map(SargableQuery::Equals)).collect()
    } else {
        vec![(0, SargableQuery::IsIn(values))]
    };
    let mut searches = Vec::with_capacity(base.segments.len() * queries.len());
    for segment in &base.segments {
        searches.extend(queries.iter().map(|(row, query)| search(segment, *row, query).boxed()));
    }
    let mut places: RowLocations = all(searches).await?.into_iter().flatten().collect();
    places.retain(|(_, fragment, _)| covered.contains(fragment));
    Ok(places)
}

/// The rows of a segment of the index that meet `query`, for the row `row` of the call.
async fn search(
    segment: &Arc<dyn ScalarIndex>,
    row: u32,
    query: &SargableQuery,
) -> Result<RowLocations> {
    let found = segment.search(query, &NoOpMetricsCollector).await.in_base(ACTION)?;
    let SearchResult::Exact(rows) = found else {
        return Err(Error::internal("the index on the key gave an inexact answer"));
    };
    let rows = rows.true_rows();
    let addresses = rows
        .row_addrs()
        .ok_or_else(|| Error::internal("the index on the key gave whole fragments"))?;
    let places = addresses.map(|address| {
        let (fragment, offset) = split_address(u64::from(address));
        (row, fragment, offset)
    });
    Ok(places.collect())
}

/// Reads the key columns of fragments and caches nothing.
async fn by_scan(
    snapshot: &Snapshot,
    fragments: &[u32],
    wanted: &Wanted,
    open: &[u32],
) -> Result<RowLocations> {
    let Some(condition) = condition(wanted, open)? else { return Ok(Vec::new()) };
    let all = snapshot.base.manifest().fragments.iter();
    let ids: HashSet<u64> = fragments.iter().map(|id| u64::from(*id)).collect();
    let read = all.filter(|fragment| ids.contains(&fragment.id)).cloned().collect();
    let mut scanner = snapshot.base.scan();
    scanner.with_fragments(read).use_scalar_index(false).with_row_address().filter_expr(condition);
    scanner.project(&snapshot.key).context(ACTION)?;
    let mut stream = scanner.try_into_stream().await.in_base(ACTION)?;
    let mut places = Vec::new();
    while let Some(batch) = stream.try_next().await.in_base(ACTION)? {
        let keys = KeyEncoder::new(batch.schema_ref(), &snapshot.key)?.encode_block(&batch);
        let addresses = batch
            .column_by_name(ROW_ADDR)
            .ok_or_else(|| Error::internal(format!("{ACTION}: column {ROW_ADDR} was not read")))?
            .as_primitive::<UInt64Type>();
        for (key, address) in keys.iter().zip(addresses.values()) {
            if let Some(row) = wanted.row_of(key) {
                let (fragment, offset) = split_address(*address);
                places.push((row, fragment, offset));
            }
        }
    }
    // The condition is a superset: with one list for each key column it matches combinations that
    // are not in the call, or that another source has answered.
    let open: HashSet<u32> = open.iter().copied().collect();
    places.retain(|(row, _, _)| open.contains(row));
    Ok(places)
}

/// A condition that every open key meets: one list of values for each key column.
fn condition(wanted: &Wanted, open: &[u32]) -> Result<Option<Expr>> {
    let mut condition: Option<Expr> = None;
    let schema = wanted.batch.schema();
    for (field, column) in schema.fields().iter().zip(wanted.batch.columns()) {
        let values = open.iter().map(|row| ScalarValue::try_from_array(column, *row as usize));
        let values = values.collect::<Result<HashSet<_>, _>>().context("reading a key")?;
        let list = in_list(ident(field.name()), values.into_iter().map(lit).collect(), false);
        condition = Some(condition.map_or(list.clone(), |known| known.and(list)));
    }
    Ok(condition)
}
