//! The indexes of linked SSTables as segments of the base table's indexes.
//!
//! Owns: which linked fragments lack an index that their SSTable has, the segments of all of them,
//! and the one commit. Its order: the rows are committed before, so a process that ends in between
//! leaves fragments that no index covers, which searches read without one.
//! Does not own: the files of a segment, or whether an SSTable's index fits (`crate::sstable`);
//! retries; fragments that get no segment here, which Lance builds segments over.

use std::collections::BTreeMap;
use std::sync::Arc;

use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_index::is_system_index;
use lance_table::format::{Fragment, IndexMetadata};
use lancemem_core::types::Result;
use roaring::RoaringBitmap;

use super::commit::{Refused, commit_segments};
use super::throttle::Throttle;
use crate::errors::Context;
use crate::holds::{Hold, pass};
use crate::snapshot::SsTableHandle;
use crate::sstable::{LinkedRows, Segment, remove_segment, segment_of};

const ACTION: &str = "linking the indexes of SSTables";

/// An SSTable that a commit linked.
#[derive(Clone, Debug)]
pub struct LinkedSsTable {
    /// The open SSTable.
    pub handle: Arc<SsTableHandle>,
    /// The fragment that its data file became.
    pub fragment: Fragment,
    /// The positions of its rows that are dead in the base table.
    pub dead: RoaringBitmap,
}

/// What a link of indexes did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// The version with the segments; the version of the plan where there are none.
    pub base_version: u64,
    /// Live rows of the new segments, for each index.
    pub rows: BTreeMap<String, u64>,
    /// For each index the reason why an SSTable's index became no segment.
    pub unfit: BTreeMap<String, String>,
}

/// Commits the indexes of `linked` SSTables as segments of the indexes of `base`, in one commit.
/// Index files are read and written at `bytes_per_second`, 0 for no limit.
///
/// # Errors
/// A storage error, of kind retry where another commit came first. A damaged or unreadable index
/// of an SSTable is no error: it becomes no segment.
pub async fn link_indexes(
    base: &Arc<Dataset>,
    linked: &[LinkedSsTable],
    bytes_per_second: u64,
) -> Result<Segments> {
    let mut made = Segments { base_version: base.version().version, ..Segments::default() };
    let indices = base.load_indices().await.context(ACTION)?;
    // Deferred remappings of Lance change addresses behind the segments.
    if linked.is_empty() || indices.iter().any(|index| index.name == FRAG_REUSE_INDEX_NAME) {
        return Ok(made);
    }
    pass(Hold::Segments, base.uri()).await;
    let throttle = Throttle::new(bytes_per_second);
    let mut segments: Vec<IndexMetadata> = Vec::new();
    for (first, covered) in by_name(&indices) {
        for sstable in linked {
            let Some(rows) = rows_in(base, sstable).filter(|it| !covered.contains(it.fragment))
            else {
                continue;
            };
            match segment(base, first, sstable, &rows).await {
                Ok(segment) => {
                    throttle.take(bytes_of(&segment)).await;
                    let live = sstable.fragment.num_rows().unwrap_or_default() as u64;
                    *made.rows.entry(first.name.clone()).or_default() += live;
                    segments.push(segment);
                }
                Err(reason) => {
                    let (sstable, index) = (sstable.handle.name(), first.name.as_str());
                    tracing::debug!(sstable, index, reason, "an index of an SSTable is not linked");
                    made.unfit.entry(first.name.clone()).or_insert(reason);
                }
            }
        }
    }
    if segments.is_empty() {
        return Ok(made);
    }
    let ids: Vec<_> = segments.iter().map(|segment| segment.uuid).collect();
    match commit_segments(base, segments).await {
        Ok(version) => {
            made.base_version = version;
            Ok(made)
        }
        Err(Refused { error, is_certain }) => {
            if is_certain {
                for id in ids {
                    remove_segment(base, id).await;
                }
            }
            Err(error)
        }
    }
}

/// The first segment of each index that is not the table format's, and the fragments of all its
/// segments.
fn by_name(indices: &[IndexMetadata]) -> Vec<(&IndexMetadata, RoaringBitmap)> {
    let mut names: Vec<(&IndexMetadata, RoaringBitmap)> = Vec::new();
    for index in indices.iter().filter(|index| !is_system_index(index)) {
        let covers = index.fragment_bitmap.clone().unwrap_or_default();
        match names.iter_mut().find(|(first, _)| first.name == index.name) {
            Some((_, covered)) => *covered |= covers,
            None => names.push((index, covers)),
        }
    }
    names
}

/// The rows of a linked SSTable in `base`; `None` where a later commit replaced its file.
fn rows_in(base: &Dataset, linked: &LinkedSsTable) -> Option<LinkedRows> {
    let was = &linked.fragment;
    let is_there = |it: &Fragment| {
        let mut files = it.files.iter().zip(&was.files);
        it.id == was.id
            && it.files.len() == was.files.len()
            && it.overlays.is_empty()
            && files.all(|(it, was)| it.path == was.path && it.fields == was.fields)
    };
    if !base.fragments().iter().any(is_there) {
        return None;
    }
    Some(LinkedRows {
        fragment: u32::try_from(linked.fragment.id).ok()?,
        physical_rows: u32::try_from(linked.fragment.physical_rows?).ok()?,
        dead: linked.dead.clone(),
    })
}

/// The segment, or the reason why there is none.
async fn segment(
    base: &Dataset,
    of: &IndexMetadata,
    linked: &LinkedSsTable,
    rows: &LinkedRows,
) -> std::result::Result<IndexMetadata, String> {
    let whole = linked.handle.with_whole_indexes().await;
    let Some(dataset) = whole.map_err(|error| error.to_string())? else {
        return Err("the SSTable has no indexes that lancemem made".to_owned());
    };
    match segment_of(base, of, dataset, rows).await {
        Ok(Segment::Written(segment)) => Ok(*segment),
        Ok(Segment::Unfit(reason)) => Err(reason),
        Err(error) => Err(format!("the SSTable's index is unreadable: {error}")),
    }
}

fn bytes_of(segment: &IndexMetadata) -> usize {
    let files = segment.files.iter().flatten();
    let bytes: u64 = files.map(|file| file.size_bytes).sum();
    usize::try_from(bytes.saturating_mul(2)).unwrap_or(usize::MAX)
}
