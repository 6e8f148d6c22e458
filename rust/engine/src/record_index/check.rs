//! The check of the record index against the base table, entry by entry.
//!
//! Owns: the invariants of an index: every page in key order and within its bounds, and for each
//! covered fragment exactly one entry for each row, with the row's key.
//! Does not own: repair: a damaged run is built again.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lancemem_core::format::KeyEncoder;
use lancemem_core::types::{KeyBlock, Result};

use super::RecordIndexReport;
use super::key_columns::{column_batches, fragment_of};
use super::open::{OpenRun, RecordIndex};
use super::pages::LOOKUP;
use crate::errors::{BaseContext, without_path};
use crate::row_address::split_address;
use crate::stages::{Stage, StageName};

const ACTION: &str = "checking the record index";
/// Pages that are read ahead.
const PAGES_AHEAD: usize = 8;

/// An order-independent fingerprint of the rows of a fragment: their number, and the wrapping sum
/// of a hash of key and offset. Index and fragment are read in different orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    rows: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], offset: u32) {
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        hasher.write_u32(offset);
        self.rows += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

/// Compares every entry of `runs` that serves a fragment of `base` with the fragment's rows.
///
/// # Errors
/// A storage error of the base table. Unreadable pages of the index are reported as damage.
pub async fn check(
    base: &Dataset,
    key: &[String],
    runs: &[Arc<OpenRun>],
) -> Result<RecordIndexReport> {
    let index = RecordIndex::new(base, key, runs);
    let mut report = RecordIndexReport {
        base_version: base.version().version,
        runs: index.serving().count(),
        stale_runs: runs.len() - index.serving().count(),
        fragments_covered: index.fragments(),
        fragments_uncovered: base.fragments().len() - index.fragments(),
        ..RecordIndexReport::default()
    };
    let mut found: BTreeMap<u32, Sum> = BTreeMap::new();
    let entries: u64 = index.serving().map(|run| run.run.entries).sum();
    let stage = Stage::begin(StageName::VerifyEntries, entries);
    for run in index.serving() {
        report.entries += run.run.entries;
        if let Err(why) = walk(&index, run, &mut found, &stage).await {
            report.damage.push(format!("run {}: {why}", run.name));
        }
    }
    let stage = Stage::begin(StageName::VerifyRows, rows_of(base, &index));
    for fragment in base.fragments().iter() {
        let Ok(id) = u32::try_from(fragment.id) else { continue };
        if !index.covers(id) {
            continue;
        }
        let wanted = of_base(base, key, fragment.id, &stage).await?;
        let found = found.get(&id).copied().unwrap_or_default();
        if found != wanted {
            report.damage.push(format!(
                "fragment {id}: its {} entries do not match the keys of its {} rows",
                found.rows, wanted.rows
            ));
        }
    }
    Ok(report)
}

/// Adds the entries of a run to the fingerprints of the fragments that it serves; else the damage
/// of its pages.
async fn walk(
    index: &RecordIndex,
    run: &OpenRun,
    found: &mut BTreeMap<u32, Sum>,
    stage: &Stage,
) -> std::result::Result<(), String> {
    run.compare().await.map_err(|error| without_path(&error))?;
    let pages = run.pages().await.map_err(|error| without_path(&error))?;
    let reads: Vec<_> = (0..pages.len()).map(|number| pages.page(number).boxed()).collect();
    let mut reads = stream::iter(reads).buffered(PAGES_AHEAD);
    let mut last: Option<(Vec<u8>, u64)> = None;
    let (mut number, mut entries) = (0, 0);
    while let Some((keys, addresses)) =
        reads.try_next().await.map_err(|error| without_path(&error))?
    {
        let bounds = (!keys.is_empty()).then(|| (keys.get(0), keys.get(keys.len() - 1)));
        if bounds != Some(pages.bounds(number)) || keys.len() != addresses.len() {
            return Err(format!("page {number} does not match its bounds in {LOOKUP}"));
        }
        if !ascends(&keys, &addresses, last.as_ref()) {
            return Err(format!("page {number} is not in key order"));
        }
        for (key, address) in keys.iter().zip(&addresses) {
            let (in_sstable, offset) = split_address(*address);
            if let Some(fragment) = index.fragment_of(&run.name, in_sstable) {
                found.entry(fragment).or_default().add(key, offset);
            }
        }
        last = addresses.last().map(|address| (keys.get(keys.len() - 1).to_vec(), *address));
        entries += keys.len() as u64;
        stage.add(keys.len());
        number += 1;
    }
    if entries != run.run.entries {
        return Err(format!("expected {} entries, found {entries}", run.run.entries));
    }
    Ok(())
}

fn ascends(keys: &KeyBlock, addresses: &[u64], last: Option<&(Vec<u8>, u64)>) -> bool {
    let entry = |row: usize| (keys.get(row), addresses[row]);
    let before = last.map(|(key, address)| (key.as_slice(), *address));
    before.is_none_or(|before| before < entry(0))
        && (1..keys.len()).all(|row| entry(row - 1) < entry(row))
}

/// The rows of the fragments that the index covers.
fn rows_of(base: &Dataset, index: &RecordIndex) -> usize {
    let fragments = base.fragments().iter();
    let covered = fragments.filter(|it| u32::try_from(it.id).is_ok_and(|id| index.covers(id)));
    covered.filter_map(|fragment| fragment.physical_rows).sum()
}

async fn of_base(base: &Dataset, key: &[String], fragment: u64, stage: &Stage) -> Result<Sum> {
    let fragment = fragment_of(base, fragment)?;
    let mut batches = column_batches(&fragment, key).await.in_base(ACTION)?;
    let mut sum = Sum::default();
    let mut offset = 0;
    while let Some(batch) = batches.next().await {
        let batch = batch.in_base(ACTION)?;
        stage.add(batch.num_rows());
        for key in KeyEncoder::new(batch.schema_ref(), key)?.encode_block(&batch).iter() {
            sum.add(key, offset);
            offset += 1;
        }
    }
    Ok(sum)
}
