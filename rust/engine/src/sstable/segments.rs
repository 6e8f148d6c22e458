//! An index of an SSTable as a segment of the base table's index, for the fragment that the
//! SSTable's data file became.
//!
//! Owns: whether the two indexes have one type and one model, and the new files: the entries of the
//! SSTable's index with the row addresses of the fragment, without dead rows. Nothing is encoded,
//! and no row is read.
//! Does not own: which fragment it is, the commit, or indexes that do not fit: Lance builds a
//! segment over the rows of the fragment then.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::runtime::SpawnedTask;
use lance::Dataset;
use lance::dataset::index::LanceIndexStoreExt;
use lance::index::vector::builder::IvfIndexBuilder;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_core::utils::row_addr_remap::{GroupInput, RowAddrRemap};
use lance_core::{Error, Result};
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::pbold::InvertedIndexDetails;
use lance_index::scalar::index_files_to_table;
use lance_index::scalar::lance_format::LanceIndexStore;
use lance_index::vector::VectorIndex;
use lance_index::vector::flat::index::FlatIndex;
use lance_index::vector::quantizer::{Quantization, Quantizer};
use lance_index::vector::v3::subindex::SubIndexType;
use lance_table::format::{IndexFile, IndexMetadata};
use prost::Message;
use roaring::{RoaringBitmap, RoaringTreemap};

use super::index_specs::{is_same_model, is_trained};
use super::indexes::random_uuid;

/// The only fragment of an SSTable.
const SSTABLE_FRAGMENT: u32 = 0;

/// The fragment of the base table that the data file of an SSTable became.
#[derive(Clone, Debug)]
pub struct LinkedRows {
    /// The id of the fragment.
    pub fragment: u32,
    /// Rows of the data file, dead ones included.
    pub physical_rows: u32,
    /// Positions of the rows that the segment leaves out.
    pub dead: RoaringBitmap,
}

/// What became of an SSTable's index.
#[derive(Debug)]
pub enum Segment {
    /// A segment whose files are written and that no version names yet.
    Written(Box<IndexMetadata>),
    /// The reason why the SSTable's index is not a segment of the base table's index.
    Unfit(String),
}

/// Writes the index of `sstable` with the name of `of` as a segment for the fragment `rows`. `of`
/// is the first segment of the index in `base`, which has the model of the index.
///
/// # Errors
/// An error of Lance, with the files of the segment removed where that is possible.
pub async fn segment_of(
    base: &Dataset,
    of: &IndexMetadata,
    sstable: &Dataset,
    rows: &LinkedRows,
) -> Result<Segment> {
    if base.manifest().uses_stable_row_ids() {
        return Ok(Segment::Unfit("the base table has stable row ids".to_owned()));
    }
    let (base, of, sstable, rows) = (base.clone(), of.clone(), sstable.clone(), rows.clone());
    // A task of its own, because Lance panics over some files of its first versions.
    let written = SpawnedTask::spawn(async move { written(base, of, &sstable, &rows).await }).await;
    written.map_err(Error::from).and_then(|segment| segment)
}

async fn written(
    base: Dataset,
    of: IndexMetadata,
    sstable: &Dataset,
    rows: &LinkedRows,
) -> Result<Segment> {
    if type_name(&of) != VECTOR && !SCALAR.contains(&type_name(&of)) {
        return Ok(Segment::Unfit("indexes of this type are built of rows".to_owned()));
    }
    let own = sstable.load_indices_by_name(&of.name).await?;
    let [own] = own.as_slice() else {
        return Ok(Segment::Unfit("the SSTable has no index of this name".to_owned()));
    };
    if let Some(reason) = difference(&of, own) {
        return Ok(Segment::Unfit(reason.to_owned()));
    }
    let Some(column) = of.fields.first().and_then(|id| base.schema().field_by_id(*id)) else {
        return Ok(Segment::Unfit("the base table has no column of this index".to_owned()));
    };
    let column = column.name.clone();
    let uuid = random_uuid()?;
    let made = if type_name(&of) == VECTOR {
        let of_base = base.open_vector_index(&column, &of.uuid, &NoOpMetricsCollector).await?;
        let index = sstable.open_vector_index(&column, &own.uuid, &NoOpMetricsCollector).await?;
        if let Some(reason) = other_model(of_base.as_ref(), index.as_ref()) {
            return Ok(Segment::Unfit(reason.to_owned()));
        }
        if own.index_version != of.index_version {
            return Ok(Segment::Unfit("the SSTable's index has another version".to_owned()));
        }
        let files = remapped_vectors(&base, column, index, &remap(rows)?, uuid).await;
        files.map(|files| (files, of.index_details.clone(), of.index_version))
    } else {
        let index = sstable.open_scalar_index(&column, &own.uuid, &NoOpMetricsCollector).await?;
        let store = LanceIndexStore::from_dataset_for_new(&base, &uuid)?;
        index.remap(&remap(rows)?, &store).await.and_then(|made| {
            let files = index_files_to_table(made.files);
            let version = i32::try_from(made.index_version).map_err(|_| {
                Error::internal(format!("an index has version {}", made.index_version))
            })?;
            Ok((files, Some(Arc::new(made.index_details)), version))
        })
    };
    let (files, index_details, index_version) = match made {
        Ok(made) => made,
        Err(error) => {
            remove_segment(&base, uuid).await;
            return Err(error);
        }
    };
    Ok(Segment::Written(Box::new(IndexMetadata {
        uuid,
        name: of.name,
        fields: of.fields,
        covering_fields: Vec::new(),
        dataset_version: base.version().version,
        fragment_bitmap: Some(RoaringBitmap::from([rows.fragment])),
        index_details,
        index_version,
        created_at: None,
        base_id: None,
        files: Some(files),
    })))
}

/// Removes the files of a segment that no version names. Best effort: Lance's clean-up removes the
/// rest.
pub async fn remove_segment(base: &Dataset, uuid: uuid::Uuid) {
    let Ok(store) = base.object_store(None).await else { return };
    let folder = base.indices_dir().join(uuid.to_string());
    if let Err(error) = store.remove_dir_all(folder.clone()).await {
        tracing::debug!(%folder, %error, "the files of a refused index segment were not removed");
    }
}

const VECTOR: &str = "VectorIndexDetails";
const INVERTED: &str = "InvertedIndexDetails";
/// The types whose entries are remapped, beside vector indexes: those that SSTables carry.
const SCALAR: [&str; 3] = ["BTreeIndexDetails", "BitmapIndexDetails", INVERTED];

/// The type of an index, without the package of its message.
fn type_name(index: &IndexMetadata) -> &str {
    let url = index.index_details.as_ref().map_or("", |details| details.type_url.as_str());
    url.rsplit(['.', '/']).next().unwrap_or_default()
}

/// Why `own`, of an SSTable, cannot be a segment of the index of `of`, as far as both entries show.
fn difference(of: &IndexMetadata, own: &IndexMetadata) -> Option<&'static str> {
    let of_type = type_name(of);
    if of_type != type_name(own) {
        return Some("the SSTable's index has another type");
    }
    if of.fields != own.fields || !of.covering_fields.is_empty() || own.fields.len() != 1 {
        return Some("the SSTable's index has other columns");
    }
    // The version of a vector index is that of its type, which its model is compared with.
    if of_type != VECTOR && own.index_version != of.index_version {
        return Some("the SSTable's index has another version");
    }
    if own.fragment_bitmap != Some(RoaringBitmap::from([SSTABLE_FRAGMENT])) {
        return Some("the SSTable's index does not cover the SSTable");
    }
    if of_type == VECTOR && !is_trained(of) {
        return Some("the base table's index has no model yet");
    }
    if of_type == INVERTED && !has_same_tokens(of, own) {
        return Some("the SSTable's index has another tokenizer");
    }
    None
}

/// Whether two full-text indexes make the same tokens, with the same information about them.
fn has_same_tokens(one: &IndexMetadata, other: &IndexMetadata) -> bool {
    let details = |index: &IndexMetadata| {
        let details = index.index_details.as_ref()?;
        InvertedIndexDetails::decode(details.value.as_slice()).ok()
    };
    matches!((details(one), details(other)), (Some(one), Some(other)) if one == other)
}

/// Why two vector indexes cannot be segments of one index: they would give one vector different
/// codes, or look for it in different partitions.
fn other_model(of: &dyn VectorIndex, own: &dyn VectorIndex) -> Option<&'static str> {
    let ((of_sub, _), (own_sub, _)) = (of.sub_index_type(), own.sub_index_type());
    let (SubIndexType::Flat, SubIndexType::Flat) = (of_sub, own_sub) else {
        return Some("graphs are built of rows");
    };
    if of.metric_type() != own.metric_type() {
        return Some("the SSTable's index has another metric");
    }
    let centroids = |index: &dyn VectorIndex| {
        index.ivf_model().centroids.as_ref().map(arrow_array::Array::to_data)
    };
    if centroids(of).is_none() || centroids(of) != centroids(own) {
        return Some("the SSTable's index has other partitions");
    }
    let is_same = is_same_model(&of.quantizer(), &own.quantizer());
    (!is_same).then_some("the SSTable's index has another model")
}

/// From positions in the SSTable to addresses in the fragment. Dead rows have none.
fn remap(rows: &LinkedRows) -> Result<RowAddrRemap> {
    let address = |position: u32| u64::from(SSTABLE_FRAGMENT) << 32 | u64::from(position);
    let mut all = RoaringTreemap::new();
    all.insert_range(address(0)..address(0) + u64::from(rows.physical_rows));
    let moved = RowAddrRemap::compact([GroupInput {
        rewritten_old_row_addrs: all,
        old_frag_ids: vec![SSTABLE_FRAGMENT],
        new_frags: vec![(rows.fragment, rows.physical_rows)],
    }])?;
    let dead: HashMap<u64, Option<u64>> =
        rows.dead.iter().map(|position| (address(position), None)).collect();
    Ok(RowAddrRemap::chained([RowAddrRemap::direct(dead), moved]))
}

async fn remapped_vectors(
    base: &Dataset,
    column: String,
    index: Arc<dyn VectorIndex>,
    remap: &RowAddrRemap,
    uuid: uuid::Uuid,
) -> Result<Vec<IndexFile>> {
    let (base, quantizer) = (base.clone(), index.quantizer());
    match quantizer {
        Quantizer::Flat(codes) => ivf_files(codes, base, column, index, remap, uuid).await,
        Quantizer::FlatBin(codes) => ivf_files(codes, base, column, index, remap, uuid).await,
        Quantizer::Product(codes) => ivf_files(codes, base, column, index, remap, uuid).await,
        Quantizer::Scalar(codes) => ivf_files(codes, base, column, index, remap, uuid).await,
        Quantizer::Rabit(codes) => ivf_files(codes, base, column, index, remap, uuid).await,
    }
}

async fn ivf_files<Q: Quantization + 'static>(
    _: Q,
    base: Dataset,
    column: String,
    index: Arc<dyn VectorIndex>,
    remap: &RowAddrRemap,
    uuid: uuid::Uuid,
) -> Result<Vec<IndexFile>> {
    let folder = base.indices_dir().join(uuid.to_string());
    let mut builder = IvfIndexBuilder::<FlatIndex, Q>::new_remapper(base, column, folder, index)?;
    Box::pin(builder.remap(remap)).await
}
