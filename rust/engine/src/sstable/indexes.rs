//! The files of an SSTable's Lance indexes, made before the manifest that names them.
//!
//! ```text
//!   data file, deletion file          on storage already
//!     a dataset of the manifest to be that is on no storage yet
//!       _indices/{uuid}/...           one folder for each index, by Lance's own builders
//! ```
//!
//! Owns: which of the specs fit the SSTable's columns, the build, and the entries of the index
//! section. A failed build is a warning and leaves the index out: an index only saves time.
//! Does not own: models (`index_specs`), the index section's place in the manifest (`write`), or
//! searches.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::common::runtime::SpawnedTask;
use lance::Dataset;
use lance::index::CreateIndexBuilder;
use lance::index::vector::builder::IvfIndexBuilder;
use lance_core::datatypes::{Schema, format_field_path};
use lance_core::utils::tempfile::TempDir;
use lance_core::{Error, Result};
use lance_file::version::ConcreteFileVersion;
use lance_index::IndexType;
use lance_index::pb::VectorIndexDetails;
use lance_index::pb::vector_index_details::{Compression, FlatCompression};
use lance_index::scalar::{BuiltinIndexType, ScalarIndexParams};
use lance_index::vector::flat::index::FlatIndex;
use lance_index::vector::quantizer::{Quantization, Quantizer};
use lance_index::vector::v3::shuffler::create_ivf_shuffler;
use lance_table::format::{IndexFile, IndexMetadata, Manifest};
use object_store::path::Path;
use prost::Message;
use roaring::RoaringBitmap;
use uuid::Uuid;

use super::checksums::FileSum;
use super::data::random_number;
use super::index_specs::{Build, IndexSpec, Model};
use super::open::open_unwritten;
use super::write::VERSION;
use super::{SsTableContext, sync};

/// Lance's folder of indexes, each in a folder of its own.
pub(super) const INDICES: &str = "_indices";

/// The indexes of an SSTable whose files are on storage.
#[derive(Debug, Default)]
pub(super) struct WrittenIndexes {
    /// Their entries in the index section; empty where the SSTable has no index.
    pub entries: Vec<IndexMetadata>,
    /// The checksums of their files.
    pub sums: Vec<FileSum>,
    /// The files that are durable already.
    pub synced: Vec<PathBuf>,
}

/// Builds the indexes `specs` of the SSTable `name`, whose manifest will be `manifest`.
pub(super) async fn write_indexes(
    context: &SsTableContext,
    name: &str,
    manifest: &Manifest,
    specs: &[Arc<IndexSpec>],
) -> WrittenIndexes {
    let mut written = WrittenIndexes::default();
    let fits = |spec: &&Arc<IndexSpec>| column_of(&manifest.schema, spec).is_some();
    let specs: Vec<_> = specs.iter().filter(fits).collect();
    // Lance builds no index over rows in its first file version without special cases.
    if specs.is_empty() || context.storage_version == ConcreteFileVersion::V1 {
        return written;
    }
    let sstable = match open_unwritten(context, name, manifest).await {
        Ok(sstable) => sstable,
        Err(error) => {
            tracing::warn!(sstable = context.uri(name), %error, "an SSTable gets no indexes");
            return written;
        }
    };
    for spec in specs {
        let index = spec.index.name.as_str();
        match written_index(context, name, &sstable, spec).await {
            Ok(one) => {
                written.entries.extend(one.entries);
                written.sums.extend(one.sums);
                written.synced.extend(one.synced);
            }
            Err(error) => {
                let sstable = context.uri(name);
                tracing::warn!(sstable, index, %error, "an SSTable is written without this index");
            }
        }
    }
    written
}

/// Builds one index. After an error its files are removed, where that is possible.
async fn written_index(
    context: &SsTableContext,
    name: &str,
    sstable: &Dataset,
    spec: &Arc<IndexSpec>,
) -> Result<WrittenIndexes> {
    let uuid = random_uuid()?;
    let (of, build) = (sstable.clone(), spec.clone());
    // A task of its own, because Lance panics where it gets no folder for temporary files.
    let built = SpawnedTask::spawn(async move { build_index(of, &build, uuid).await }).await;
    let folder = context.folder(name);
    let all = folder.clone().join(INDICES);
    let finish = async {
        let entry = built.map_err(Error::from)??;
        let files = entry.files.iter().flatten();
        let of_index = all.clone().join(entry.uuid.to_string());
        let files: Vec<Path> = files.map(|it| of_index.clone().join(it.path.as_str())).collect();
        let sums = FileSum::of_all(&context.object_store, &folder, &files).await?;
        let synced = sync::sync_files(context, &files).await?;
        Ok::<_, Error>(WrittenIndexes { entries: vec![entry], sums, synced })
    };
    let finished = finish.await;
    if finished.is_err() {
        let _ = context.object_store.remove_dir_all(all.join(uuid.to_string())).await;
    }
    finished
}

/// A new id, which the operating system draws: a generator in this process would repeat its ids in
/// each child of a fork.
pub(super) fn random_uuid() -> Result<Uuid> {
    let words = [random_number()?, random_number()?, random_number()?, random_number()?];
    let bytes = words.iter().fold(0, |bits, word| bits << 32 | u128::from(*word));
    Ok(uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid())
}

/// The name of the column of `spec` in the SSTable; `None` where it is missing there or has another
/// type. The base table may have changed since the rows were put.
fn column_of<'a>(schema: &'a Schema, spec: &IndexSpec) -> Option<&'a str> {
    let field = schema.fields.iter().find(|field| field.id == spec.field)?;
    (field.data_type() == spec.data_type).then_some(field.name.as_str())
}

async fn build_index(mut sstable: Dataset, spec: &IndexSpec, uuid: Uuid) -> Result<IndexMetadata> {
    let name = column_of(sstable.schema(), spec).map(|name| format_field_path(&[name]));
    let Some(column) = name else {
        return Err(Error::internal(format!("an SSTable has no column of id {}", spec.field)));
    };
    match &spec.build {
        Build::Vector(model) => {
            let rows = sstable.count_rows(None).await? as u64;
            let model = model.for_rows(rows, bytes_of_vector(&spec.data_type));
            let (index_type, files) = build_vector(&sstable, column, &model, uuid).await?;
            entry(spec, &model, index_type, uuid, files)
        }
        Build::BTree => {
            let params = ScalarIndexParams::for_builtin(BuiltinIndexType::BTree);
            let builder = CreateIndexBuilder::new(
                &mut sstable,
                &[column.as_str()],
                IndexType::BTree,
                &params,
            );
            trained(builder, spec, uuid).await
        }
        Build::Bitmap => {
            let params = ScalarIndexParams::for_builtin(BuiltinIndexType::Bitmap);
            let builder = CreateIndexBuilder::new(
                &mut sstable,
                &[column.as_str()],
                IndexType::Bitmap,
                &params,
            );
            trained(builder, spec, uuid).await
        }
        Build::Inverted(params) => {
            let params = params.as_ref();
            let builder = CreateIndexBuilder::new(
                &mut sstable,
                &[column.as_str()],
                IndexType::Inverted,
                params,
            );
            trained(builder, spec, uuid).await
        }
    }
}

/// A scalar index by Lance's own trainer.
async fn trained(
    builder: CreateIndexBuilder<'_>,
    spec: &IndexSpec,
    uuid: Uuid,
) -> Result<IndexMetadata> {
    let mut builder = builder.name(spec.index.name.clone()).index_uuid(uuid);
    builder.execute_uncommitted().await
}

/// The vector index: its type, and its files in their folder.
async fn build_vector(
    sstable: &Dataset,
    column: String,
    model: &Model,
    uuid: Uuid,
) -> Result<(IndexType, Vec<IndexFile>)> {
    let (sstable, quantizer) = (sstable.clone(), model.quantizer.clone());
    Ok(match quantizer {
        Quantizer::Flat(codes) => {
            (IndexType::IvfFlat, ivf_files(sstable, column, model, codes, uuid).await?)
        }
        Quantizer::FlatBin(codes) => {
            (IndexType::IvfFlat, ivf_files(sstable, column, model, codes, uuid).await?)
        }
        Quantizer::Product(codes) => {
            (IndexType::IvfPq, ivf_files(sstable, column, model, codes, uuid).await?)
        }
        Quantizer::Scalar(codes) => {
            (IndexType::IvfSq, ivf_files(sstable, column, model, codes, uuid).await?)
        }
        Quantizer::Rabit(codes) => {
            (IndexType::IvfRq, ivf_files(sstable, column, model, codes, uuid).await?)
        }
    })
}

/// Assigns the vectors to the partitions of the model and encodes them. Nothing is trained. A graph
/// of the base table's index is left out: it takes ten times the time of codes.
async fn ivf_files<Q: Quantization + 'static>(
    sstable: Dataset,
    column: String,
    model: &Model,
    codes: Q,
    uuid: Uuid,
) -> Result<Vec<IndexFile>> {
    let temporary = TempDir::try_new()?;
    let shuffled = Path::from_filesystem_path(temporary.std_path())?;
    let version = sstable.manifest().data_storage_format.lance_file_format();
    let shuffler = create_ivf_shuffler(shuffled, model.ivf.num_partitions(), version, None);
    let folder = sstable.indices_dir().join(uuid.to_string());
    let mut builder = IvfIndexBuilder::<FlatIndex, Q>::new(
        sstable,
        column,
        folder,
        model.metric,
        shuffler,
        None,
        None,
        (),
        None,
    )?;
    builder.with_ivf(model.ivf.clone()).with_quantizer(codes);
    Ok(Box::pin(builder.build()).await?.files)
}

/// The entry of a vector index in the index section.
fn entry(
    spec: &IndexSpec,
    model: &Model,
    index_type: IndexType,
    uuid: Uuid,
    files: Vec<IndexFile>,
) -> Result<IndexMetadata> {
    let mut details = spec.index.index_details.as_deref().cloned().unwrap_or_default();
    // An index of Lance's first versions has no details, and a reader looks into its files.
    if !details.value.is_empty() {
        let mut described = VectorIndexDetails::decode(details.value.as_slice())?;
        described.hnsw_index_config = None;
        if matches!(model.quantizer, Quantizer::Flat(_) | Quantizer::FlatBin(_)) {
            described.compression = Some(Compression::Flat(FlatCompression {}));
        }
        details.value = described.encode_to_vec();
    }
    Ok(IndexMetadata {
        uuid,
        name: spec.index.name.clone(),
        fields: vec![spec.field],
        covering_fields: Vec::new(),
        dataset_version: VERSION,
        // The only fragment of an SSTable.
        fragment_bitmap: Some(RoaringBitmap::from([0])),
        index_details: Some(Arc::new(details)),
        index_version: index_type.version(),
        created_at: None,
        base_id: None,
        files: Some(files),
    })
}

/// Bytes of one vector.
fn bytes_of_vector(of: &DataType) -> u64 {
    let DataType::FixedSizeList(element, width) = of else { return 0 };
    let width = u64::try_from(*width).unwrap_or_default();
    width.saturating_mul(element.data_type().primitive_width().unwrap_or_default() as u64)
}
