//! SSTables with the indexes of their base table: which they carry, their models and their files.
//! Owns these stories only; does not own searches, which `tests/test_sstable_indexes.py` has.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_schema::{DataType, Field, Schema};
use lance::Dataset;
use lance::index::vector::VectorIndexParams;
use lance::index::{DatasetIndexExt, DatasetIndexInternalExt};
use lance_core::utils::tempfile::TempStrDir;
use lance_index::metrics::NoOpMetricsCollector;
use lance_index::scalar::{BuiltinIndexType, InvertedIndexParams, ScalarIndexParams};
use lance_index::vector::hnsw::builder::HnswBuildParams;
use lance_index::vector::ivf::IvfBuildParams;
use lance_index::vector::quantizer::Quantizer;
use lance_index::vector::sq::builder::SQBuildParams;
use lance_index::vector::v3::subindex::SubIndexType;
use lance_index::{IndexParams, IndexType};
use lance_linalg::distance::DistanceType;
use lancemem_core::types::{ErrorKind, Generation};
use lancemem_testkit::damage::{damages, few_positions};

use super::damage::files;
use super::support::{KEY_MARKER, SHARD, input, write_table};
use crate::errors::SsTableErrors;
use crate::sstable::{
    Build, FlushedIndexes, IndexSpec, IndexSpecs, SsTableContext, SsTableFiles, SsTableInput,
    SsTableWritten, compare, open_sstable, storage_schema, write_sstable,
};

const WIDTH: i32 = 512;
/// Rows of the base table: enough for two partitions.
const BASE: Range<i64> = 0..600;
/// Rows of which an SSTable is not small: 2,200 vectors of 512 floats are more than 4 MiB.
const LARGE: Range<i64> = 10_000..12_200;
const SMALL: Range<i64> = 10_000..10_050;

/// Numbers between -0.5 and 0.5, the same for the same row.
fn vector(id: i64) -> Vec<f32> {
    let mut state = id.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let bits = u16::try_from(state >> 48).unwrap();
        f32::from(bits) / f32::from(u16::MAX) - 0.5
    };
    (0..WIDTH).map(|_| next()).collect()
}

fn columns(ids: &Range<i64>) -> Vec<ArrayRef> {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let values = Float32Array::from_iter_values(ids.clone().flat_map(vector));
    let words = ["alpha", "beta", "gamma"];
    let word = |id: i64| words[usize::try_from(id).unwrap() % 3];
    let texts = ids.clone().map(|id| format!("{} row{id}", word(id)));
    vec![
        Arc::new(Int64Array::from_iter_values(ids.clone())),
        Arc::new(FixedSizeListArray::new(item, WIDTH, Arc::new(values), None)),
        Arc::new(StringArray::from_iter_values(texts)),
        Arc::new(StringArray::from_iter_values(ids.clone().map(word))),
    ]
}

async fn base_table(uri: &str) -> Dataset {
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let marker = [(KEY_MARKER.to_owned(), "true".to_owned())].into();
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false).with_metadata(marker),
        Field::new("vec", DataType::FixedSizeList(item, WIDTH), true),
        Field::new("text", DataType::Utf8, true),
        Field::new("kind", DataType::Utf8, true),
    ]));
    write_table(uri, RecordBatch::try_new(schema, columns(&BASE)).unwrap(), None).await
}

async fn create(base: &mut Dataset, column: &str, of: IndexType, params: &dyn IndexParams) {
    let name = Some(format!("{column}_idx"));
    base.create_index(&[column], of, name, params, false).await.unwrap();
}

async fn create_scalars(base: &mut Dataset) {
    let btree = ScalarIndexParams::for_builtin(BuiltinIndexType::BTree);
    create(base, "id", IndexType::BTree, &btree).await;
    let bitmap = ScalarIndexParams::for_builtin(BuiltinIndexType::Bitmap);
    create(base, "kind", IndexType::Bitmap, &bitmap).await;
    create(base, "text", IndexType::Inverted, &InvertedIndexParams::default()).await;
}

/// The SSTable of the rows `ids`, above `base`.
async fn write(
    base: &Dataset,
    ids: &Range<i64>,
    indexes: IndexSpecs,
) -> (SsTableContext, SsTableWritten) {
    let key = ["id".to_owned()];
    let schema = storage_schema(base.schema(), &key);
    let mut columns = columns(ids);
    columns.push(Arc::new(BooleanArray::from(vec![false; columns[0].len()])));
    let rows = RecordBatch::try_new(schema.clone(), columns).unwrap();
    let order: Vec<u32> = (0..u32::try_from(rows.num_rows()).unwrap()).collect();
    let input = SsTableInput { indexes, ..input(schema, vec![rows], &key, &order) };
    let context = SsTableContext::new(base, SHARD).await.unwrap();
    let written = write_sstable(&context, Generation(1), input).await.unwrap();
    (context, written)
}

/// The ids of the nearest rows, by the index alone.
async fn nearest(sstable: &Dataset, id: i64, k: usize) -> Vec<i64> {
    let mut scanner = sstable.scan();
    let query = Float32Array::from(vector(id));
    scanner.project(&["id"]).unwrap().nearest("vec", &query, k).unwrap();
    scanner.refine(5).minimum_nprobes(2).fast_search();
    let found = scanner.try_into_batch().await.unwrap();
    found.column_by_name("id").unwrap().as_primitive::<Int64Type>().values().to_vec()
}

fn names(indexes: &[Arc<IndexSpec>]) -> Vec<&str> {
    indexes.iter().map(|spec| spec.index.name.as_str()).collect()
}

/// Parameters of every kind of vector index, with two partitions.
fn vector_indexes() -> Vec<(&'static str, VectorIndexParams)> {
    let metric = DistanceType::L2;
    let (ivf, hnsw) = (IvfBuildParams::new(2), HnswBuildParams::default());
    let graph =
        VectorIndexParams::with_ivf_hnsw_sq_params(metric, ivf, hnsw, SQBuildParams::default());
    vec![
        ("IVF_FLAT", VectorIndexParams::ivf_flat(2, metric)),
        ("IVF_PQ", VectorIndexParams::ivf_pq(2, 8, 16, metric, 10)),
        (
            "IVF_SQ",
            VectorIndexParams::with_ivf_sq_params(
                DistanceType::Cosine,
                IvfBuildParams::new(2),
                SQBuildParams::default(),
            ),
        ),
        ("IVF_RQ", VectorIndexParams::ivf_rq(2, 1, metric)),
        ("IVF_HNSW_SQ", graph),
    ]
}

#[tokio::test]
async fn a_large_sstable_has_the_model_of_every_kind_of_vector_index() {
    for (kind, params) in vector_indexes() {
        let directory = TempStrDir::default();
        let mut base = base_table(directory.as_str()).await;
        create(&mut base, "vec", IndexType::Vector, &params).await;
        let specs = FlushedIndexes::default().of(&base).await;
        let [spec] = specs.as_ref() else { panic!("{kind}: {specs:?}") };
        let Build::Vector(model) = &spec.build else { panic!("{kind}: {spec:?}") };

        let (context, written) = write(&base, &LARGE, specs.clone()).await;
        let sstable = open_sstable(&context, &written.path).await.unwrap();
        let indexes = sstable.load_indices().await.unwrap();
        let [index] = indexes.as_slice() else { panic!("{kind}: {indexes:?}") };
        assert_eq!((index.name.as_str(), index.fields.as_slice()), ("vec_idx", &[1][..]), "{kind}");
        let uuid = index.uuid;
        let opened = sstable.open_vector_index("vec", &uuid, &NoOpMetricsCollector).await;
        let opened = opened.unwrap();
        assert_eq!(opened.ivf_model().centroids, model.ivf.centroids, "{kind}");
        assert_eq!(opened.metric_type(), params.metric_type, "{kind}");
        assert!(matches!(opened.sub_index_type().0, SubIndexType::Flat), "{kind}: no graph");
        match (opened.quantizer(), &model.quantizer) {
            (Quantizer::Product(own), Quantizer::Product(of_base)) => {
                assert_eq!(own.codebook, of_base.codebook);
            }
            (Quantizer::Scalar(own), Quantizer::Scalar(of_base)) => {
                assert_eq!(own.bounds(), of_base.bounds(), "{kind}");
            }
            (Quantizer::Flat(_), Quantizer::Flat(_))
            | (Quantizer::Rabit(_), Quantizer::Rabit(_)) => {}
            (own, of_base) => panic!("{kind}: {own:?} for {of_base:?}"),
        }
        for id in [10_000, 11_111, 12_199] {
            assert_eq!(nearest(&sstable, id, 1).await, [id], "{kind}");
        }
    }
}

#[tokio::test]
async fn a_small_sstable_keeps_its_vectors_in_one_partition() {
    let directory = TempStrDir::default();
    let mut base = base_table(directory.as_str()).await;
    let params = VectorIndexParams::ivf_pq(2, 8, 16, DistanceType::Cosine, 10);
    create(&mut base, "vec", IndexType::Vector, &params).await;
    let specs = FlushedIndexes::default().of(&base).await;
    let (context, written) = write(&base, &SMALL, specs).await;
    let sstable = open_sstable(&context, &written.path).await.unwrap();
    let index = sstable.load_indices().await.unwrap()[0].clone();
    let opened = sstable.open_vector_index("vec", &index.uuid, &NoOpMetricsCollector).await;
    let opened = opened.unwrap();
    assert_eq!(opened.total_partitions(), 1);
    assert!(matches!(opened.quantizer(), Quantizer::Flat(_)));
    assert_eq!(opened.metric_type(), DistanceType::Cosine);
    for id in SMALL {
        assert_eq!(nearest(&sstable, id, 1).await, [id]);
    }
}

#[tokio::test]
async fn an_sstable_has_files_of_each_index_and_a_checksum_of_each_file() {
    let directory = TempStrDir::default();
    let mut base = base_table(directory.as_str()).await;
    let params = VectorIndexParams::ivf_pq(2, 8, 16, DistanceType::L2, 10);
    create(&mut base, "vec", IndexType::Vector, &params).await;
    create_scalars(&mut base).await;
    let specs = FlushedIndexes::default().of(&base).await;
    assert_eq!(names(&specs), ["vec_idx", "id_idx", "kind_idx", "text_idx"]);
    let (context, written) = write(&base, &SMALL, specs).await;
    let sstable = open_sstable(&context, &written.path).await.unwrap();

    let indexes = sstable.load_indices().await.unwrap();
    let recorded: BTreeSet<String> = indexes
        .iter()
        .flat_map(|index| {
            let files = index.files.iter().flatten();
            files.map(|file| format!("_indices/{}/{}", index.uuid, file.path))
        })
        .collect();
    let folder = format!("{}/{}", context.shard_uri, written.path);
    let found = files(Path::new(&folder)).into_iter().map(|(name, _)| name);
    let found: BTreeSet<String> = found.filter(|name| name.starts_with("_indices/")).collect();
    assert_eq!(found, recorded);
    let of_vectors = found.iter().filter(|name| name.contains(".idx")).count();
    assert_eq!(of_vectors, 2, "index.idx and auxiliary.idx: {found:?}");
    let all = compare(&sstable, SsTableFiles::All).await.unwrap();
    let rows = compare(&sstable, SsTableFiles::Moved).await.unwrap();
    assert_eq!((all.damaged, all.unchecked), (Vec::new(), Vec::new()));
    assert_eq!(all.files - rows.files, found.len() as u64);

    let mut scanner = sstable.scan();
    scanner.project(&["text"]).unwrap().filter("id = 10007").unwrap();
    let plan = scanner.explain_plan(true).await.unwrap();
    assert!(plan.contains("ScalarIndexQuery"), "{plan}");
    assert_eq!(scanner.try_into_batch().await.unwrap().num_rows(), 1);
}

#[tokio::test]
async fn damage_of_an_index_file_and_of_the_index_section_is_found_and_named() {
    let directory = TempStrDir::default();
    let mut base = base_table(directory.as_str()).await;
    create(&mut base, "vec", IndexType::Vector, &VectorIndexParams::ivf_flat(2, DistanceType::L2))
        .await;
    create_scalars(&mut base).await;
    let specs = FlushedIndexes::default().of(&base).await;
    let (context, written) = write(&base, &(10_000..10_004), specs).await;
    let folder = format!("{}/{}", context.shard_uri, written.path);
    let compared = async || {
        let context = context.clone().with_new_session();
        let sstable = open_sstable(&context, &written.path).await.in_sstable("the SSTable")?;
        compare(&sstable, SsTableFiles::All).await.in_sstable("the SSTable")
    };
    for (name, path) in files(Path::new(&folder)) {
        let is_manifest = name.starts_with("_versions/");
        if !is_manifest && !name.starts_with("_indices/") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        // No reader uses the version in the last bytes of a manifest file.
        let end = bytes.len() - if is_manifest { 8 } else { 0 };
        for (at, kind, damaged) in damages(&bytes, few_positions(end)) {
            fs::write(&path, damaged).unwrap();
            match compared().await {
                Ok(found) => {
                    let named: Vec<&str> =
                        found.damaged.iter().map(|it| it.file.as_str()).collect();
                    assert_eq!(named, [name.as_str()], "{kind:?} at {at}");
                }
                Err(error) => {
                    assert!(is_manifest, "{kind:?} at {at} of {name}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{kind:?} at {at}: {error}");
                }
            }
        }
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(compared().await.unwrap().damaged, Vec::new(), "healed");
}

#[tokio::test]
async fn an_index_that_cannot_be_built_is_left_out_of_the_sstable() {
    let directory = TempStrDir::default();
    let mut base = base_table(directory.as_str()).await;
    create(&mut base, "vec", IndexType::Vector, &VectorIndexParams::ivf_flat(2, DistanceType::L2))
        .await;
    create_scalars(&mut base).await;
    let specs = FlushedIndexes::default().of(&base).await;
    let spoiled = specs.iter().map(|spec| {
        let mut spec = IndexSpec::clone(spec);
        if let Build::Vector(model) = &mut spec.build {
            Arc::make_mut(model).ivf.centroids = None;
        }
        Arc::new(spec)
    });
    let (context, written) = write(&base, &SMALL, spoiled.collect()).await;
    let sstable = open_sstable(&context, &written.path).await.unwrap();
    let indexes = sstable.load_indices().await.unwrap();
    let left: Vec<&str> = indexes.iter().map(|index| index.name.as_str()).collect();
    assert_eq!(left, ["id_idx", "kind_idx", "text_idx"]);
    let folder = format!("{}/{}/_indices", context.shard_uri, written.path);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 3, "no files of it");
    assert_eq!(sstable.count_rows(None).await.unwrap(), 50);
}

#[tokio::test]
async fn an_index_whose_column_has_changed_is_left_out() {
    let directory = TempStrDir::default();
    let mut base = base_table(directory.as_str()).await;
    create_scalars(&mut base).await;
    let indexed = FlushedIndexes::default();
    let specs = indexed.of(&base).await;
    let again = indexed.of(&base).await;
    assert!(Arc::ptr_eq(&specs, &again), "resolved once for a version");
    base.drop_columns(&["kind"]).await.unwrap();
    let left = indexed.of(&base).await;
    assert_eq!(names(&left), ["id_idx", "text_idx"]);
    assert!(Arc::ptr_eq(&left[0], &specs[0]), "the same index is not read again");
}
