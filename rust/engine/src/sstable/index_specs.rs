//! Which indexes of the base table its SSTables carry, and the models of their vector indexes.
//!
//! Owns: [`IndexSpec`], the description of one index to build; [`Model`], the trained part of a
//! vector index; and [`FlushedIndexes`], both resolved once for each version of the base table.
//! Does not own: index files (`indexes`), or training: only Lance trains, in the base table.
//!
//! An SSTable has an index for each index of the base table that the MemWAL index maintains and
//! whose type is in [`Build`]: vector indexes, BTREE, BITMAP and INVERTED, over one column that is
//! not nested. A search never needs such an index, so a type that is left out costs time alone.

use std::sync::Arc;

use arrow_array::{Array, FixedSizeListArray};
use arrow_schema::DataType;
use datafusion::common::runtime::SpawnedTask;
use lance::Dataset;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_core::{Error, Result};
use lance_index::mem_wal::MemWalIndexDetails;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::pbold::InvertedIndexDetails;
use lance_index::scalar::InvertedIndexParams;
use lance_index::vector::flat::index::FlatQuantizer;
use lance_index::vector::ivf::storage::IvfModel;
use lance_index::vector::quantizer::{Quantization, Quantizer};
use lance_index::{INDEX_AUXILIARY_FILE_NAME, is_system_index};
use lance_linalg::distance::DistanceType;
use lance_table::format::IndexMetadata;
use parking_lot::Mutex;
use prost::Message;

/// Rows below which an SSTable may be small, as in the policy of compactions: small SSTables are
/// rewritten by a compaction, which makes their index useless.
const SMALL_ROWS: u64 = 16_384;
/// Bytes of vectors below which an SSTable may be small.
const SMALL_BYTES: u64 = 4 << 20;
/// Rows for each partition of the base table's index, below which centroids outweigh vectors.
const ROWS_PER_PARTITION: u64 = 4;

/// The trained part of a vector index: two indexes with one model can become one index.
#[derive(Clone, Debug)]
pub struct Model {
    /// The centroids.
    pub ivf: IvfModel,
    /// The codebook, bounds or rotation by which vectors become codes.
    pub quantizer: Quantizer,
    /// The metric.
    pub metric: DistanceType,
}

/// How an index is built.
#[derive(Clone, Debug)]
pub enum Build {
    /// A vector index, with the model of the base table's index.
    Vector(Arc<Model>),
    /// A B-tree.
    BTree,
    /// A bitmap for each value.
    Bitmap,
    /// A full-text index, with the tokenizer of the base table's index.
    Inverted(Box<InvertedIndexParams>),
}

/// An index of the base table that its SSTables carry.
#[derive(Clone, Debug)]
pub struct IndexSpec {
    /// The first segment of the base table's index.
    pub index: IndexMetadata,
    /// The id of its column.
    pub field: i32,
    /// The type of its column.
    pub data_type: DataType,
    /// How it is built.
    pub build: Build,
}

/// The indexes that an SSTable carries.
pub type IndexSpecs = Arc<[Arc<IndexSpec>]>;

/// The indexes of a table's SSTables, shared by its jobs and bulk writes.
#[derive(Debug, Default)]
pub struct FlushedIndexes {
    /// The base version that was read last, and its indexes.
    resolved: Mutex<Option<(u64, IndexSpecs)>>,
}

impl FlushedIndexes {
    /// The indexes of an SSTable above the version that `base` has open. Where the indexes of the
    /// base table cannot be read, there are none: a flush does not fail for them.
    pub async fn of(&self, base: &Dataset) -> IndexSpecs {
        let version = base.version().version;
        let known = self.resolved.lock().clone();
        let known = match known {
            Some((of, specs)) if of == version => return specs,
            known => known.map_or_else(IndexSpecs::default, |(_, specs)| specs),
        };
        match specs_of(base, &known).await {
            Ok(specs) => {
                let specs: IndexSpecs = specs.into();
                *self.resolved.lock() = Some((version, specs.clone()));
                specs
            }
            Err(error) => {
                let table = base.uri();
                tracing::warn!(table, %error, "SSTables get no indexes: the table's are unreadable");
                IndexSpecs::default()
            }
        }
    }
}

/// The indexes of `base`, one for each name; those in `known` are not read again.
async fn specs_of(base: &Dataset, known: &[Arc<IndexSpec>]) -> Result<Vec<Arc<IndexSpec>>> {
    let details = base.mem_wal_index_details().await?;
    let is_maintained =
        |name: &str| details.as_ref().is_none_or(|details| maintains(details, name));
    let mut specs: Vec<Arc<IndexSpec>> = Vec::new();
    for index in base.load_indices().await?.iter() {
        let is_there = specs.iter().any(|spec| spec.index.name == index.name);
        if is_there || is_system_index(index) || !is_maintained(&index.name) {
            continue;
        }
        if let Some(spec) = known.iter().find(|spec| spec.index.uuid == index.uuid) {
            specs.push(spec.clone());
            continue;
        }
        let (of, index) = (base.clone(), index.clone());
        let name = index.name.clone();
        // A task of its own, because Lance panics over some files of its first versions.
        let read = SpawnedTask::spawn(async move { spec_of(&of, index).await }).await;
        match read.map_err(Error::from).and_then(|spec| spec) {
            Ok(spec) => specs.extend(spec.map(Arc::new)),
            Err(error) => {
                let table = base.uri();
                tracing::warn!(table, name, %error, "SSTables get no index of this name");
            }
        }
    }
    Ok(specs)
}

fn maintains(details: &MemWalIndexDetails, name: &str) -> bool {
    details.maintain_all_indexes || details.maintained_indexes.iter().any(|it| it == name)
}

/// The spec of one index; `None` for one that SSTables do not carry.
async fn spec_of(base: &Dataset, index: IndexMetadata) -> Result<Option<IndexSpec>> {
    let (&[field], Some(details)) = (index.fields.as_slice(), index.index_details.clone()) else {
        return Ok(None);
    };
    let of_field = base.schema().fields.iter().find(|column| column.id == field);
    let Some(data_type) = of_field.map(lance_core::datatypes::Field::data_type) else {
        return Ok(None);
    };
    let type_name = details.type_url.rsplit(['.', '/']).next().unwrap_or_default();
    let build = match type_name {
        "VectorIndexDetails" if matches!(data_type, DataType::FixedSizeList(..)) => {
            model_of(base, &index).await?.map(|model| Build::Vector(Arc::new(model)))
        }
        "BTreeIndexDetails" => Some(Build::BTree),
        "BitmapIndexDetails" => Some(Build::Bitmap),
        "InvertedIndexDetails" => {
            let details = InvertedIndexDetails::decode(details.value.as_slice())?;
            Some(Build::Inverted(Box::new(InvertedIndexParams::try_from(&details)?)))
        }
        _ => None,
    };
    Ok(build.map(|build| IndexSpec { index, field, data_type, build }))
}

/// The model of `index`, a segment of a vector index of `base`. `None` for an index that is not
/// trained yet, and for one in the format of Lance's first versions, which no index is merged with.
///
/// # Errors
/// An error of Lance that opens the index.
pub async fn model_of(base: &Dataset, index: &IndexMetadata) -> Result<Option<Model>> {
    let of_field = |field: i32| base.schema().field_by_id(field);
    let Some(column) = index.fields.first().copied().and_then(of_field) else { return Ok(None) };
    if !is_trained(index) {
        return Ok(None);
    }
    let opened = base.open_vector_index(&column.name, &index.uuid, &NoOpMetricsCollector).await?;
    let Some(centroids) = opened.ivf_model().centroids.clone() else { return Ok(None) };
    let (quantizer, metric) = (opened.quantizer(), opened.metric_type());
    Ok(Some(Model { ivf: IvfModel::new(centroids, None), quantizer, metric }))
}

/// Whether a vector index has a model, and its format is not that of Lance's first versions.
pub(super) fn is_trained(index: &IndexMetadata) -> bool {
    let mut files = index.files.iter().flatten();
    let is_old = index.files.is_some() && !files.any(|it| it.path == INDEX_AUXILIARY_FILE_NAME);
    !is_old && !index.fragment_bitmap.as_ref().is_some_and(roaring::RoaringBitmap::is_empty)
}

/// Whether two quantizers give every vector the same code.
pub(super) fn is_same_model(one: &Quantizer, other: &Quantizer) -> bool {
    match (one, other) {
        (Quantizer::Flat(one), Quantizer::Flat(other)) => {
            one.metadata(None).dim == other.metadata(None).dim
        }
        (Quantizer::FlatBin(one), Quantizer::FlatBin(other)) => {
            one.metadata(None).dim == other.metadata(None).dim
        }
        (Quantizer::Product(one), Quantizer::Product(other)) => {
            one.num_sub_vectors == other.num_sub_vectors
                && one.num_bits == other.num_bits
                && one.dimension == other.dimension
                && one.distance_type == other.distance_type
                && one.codebook.to_data() == other.codebook.to_data()
        }
        (Quantizer::Scalar(one), Quantizer::Scalar(other)) => {
            one.metadata(None) == other.metadata(None)
        }
        (Quantizer::Rabit(one), Quantizer::Rabit(other)) => {
            let (one, other) = (one.metadata_ref(), other.metadata_ref());
            let data = |matrix: Option<&FixedSizeListArray>| matrix.map(Array::to_data);
            one.rotation_type == other.rotation_type
                && one.code_dim == other.code_dim
                && one.num_bits == other.num_bits
                && one.query_estimator == other.query_estimator
                && one.fast_rotation_signs == other.fast_rotation_signs
                && data(one.rotate_mat.as_ref()) == data(other.rotate_mat.as_ref())
        }
        _ => false,
    }
}

impl Model {
    /// The model for an SSTable of `rows` rows, with vectors of `vector_bytes` each: this
    /// one; for a small SSTable one partition with the vectors themselves, which takes fewer bytes,
    /// no training and no re-scoring.
    #[must_use]
    pub fn for_rows(&self, rows: u64, vector_bytes: u64) -> Self {
        let is_small = rows < SMALL_ROWS && rows.saturating_mul(vector_bytes) < SMALL_BYTES;
        let partitions = self.ivf.num_partitions() as u64;
        if !is_small && partitions.saturating_mul(ROWS_PER_PARTITION) <= rows {
            return self.clone();
        }
        let centroid = self.ivf.centroids.as_ref().map(|centroids| centroids.slice(0, 1));
        let ivf = centroid.map_or_else(IvfModel::empty, |one| IvfModel::new(one, None));
        let quantizer = match &self.quantizer {
            binary @ Quantizer::FlatBin(_) => binary.clone(),
            _ => Quantizer::Flat(FlatQuantizer::new(self.ivf.dimension(), self.metric)),
        };
        Self { ivf, quantizer, metric: self.metric }
    }
}
