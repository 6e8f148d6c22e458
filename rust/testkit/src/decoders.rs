//! Decoders on bytes that no writer wrote.
//!
//! Owns: the invariants of each decoder of the core, and of the bitmaps of deletion vectors, for
//! any bytes; and real bytes to begin with.
//! Does not own: the generation of bytes (`rust/core/tests/fuzz.rs` at random, `rust/fuzz` by the
//! coverage of the decoder), or bounds on memory.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::{Arc, LazyLock};

use arrow_array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array,
    RecordBatch, StringArray, StringViewArray, StructArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use lancemem_core::format::reconcile::FIELD_ID;
use lancemem_core::format::{
    FragmentVector, IndexedFragment, LogAddress, OlderSsTableVector, PageFile, RecordIndexRun,
    RowSchema, ShardManifest, SsTable, SsTableVectors, TOMBSTONE, TRAILER_BYTES, paths,
    version_hint, wal_entry,
};

use lancemem_core::merge::MergeRule;
use lancemem_core::types::{Generation, ManifestVersion, ShardId, Txns, WalPosition, WriterEpoch};
use roaring::RoaringBitmap;

/// A bitmap of more rows is not counted row by row.
const COUNTED_ROWS: u64 = 1 << 20;

/// Silences panics of Arrow's decoder, which the core turns into errors. Every other panic is
/// printed.
pub fn quiet_arrow() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(Location::file).unwrap_or_default();
        if !place.contains("/arrow-") {
            usual(panic);
        }
    }));
}

/// A decoder, and how to try it.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    /// What it reads.
    pub name: &'static str,
    /// Real bytes.
    pub examples: fn() -> Vec<Vec<u8>>,
    /// Panics where a promise breaks; whether the bytes were read, and not refused.
    pub read: fn(&[u8]) -> bool,
}

/// The decoders with a target in `rust/fuzz`: of the core, and of the bitmaps in deletion vectors.
pub const DECODERS: [Decoder; 8] = [
    Decoder { name: "log_entry", examples: log_entries, read: log_entry },
    Decoder { name: "manifest", examples: manifests, read: manifest },
    Decoder { name: "record_index", examples: record_indexes, read: record_index },
    Decoder { name: "run_vectors", examples: vectors, read: run_vectors },
    Decoder { name: "bitmap", examples: bitmaps, read: bitmap },
    Decoder { name: "version_hint", examples: version_hints, read: version_hint },
    Decoder { name: "file_name", examples: file_names, read: file_name },
    Decoder { name: "merge_rule", examples: merge_rules, read: merge_rule },
];

/// The table whose rows log entries are taken for.
pub static ROWS: LazyLock<RowSchema> = LazyLock::new(|| {
    let of_point =
        vec![Field::new("x", DataType::Int64, true), Field::new("name", DataType::Utf8, true)];
    let columns = columns_of(of_point, DataType::Float64, DataType::Utf8);
    RowSchema::new(Arc::new(Schema::new(columns)), &["id".to_owned()]).expect("a key of integers")
});

/// The columns that merge rules are compared with, with field ids.
static RULED: LazyLock<Schema> = LazyLock::new(|| {
    let types = [DataType::Int64, DataType::Int64, DataType::Float64, DataType::Utf8];
    let fields = ["id", "ts", "n", "name"].into_iter().zip(types).enumerate();
    let fields = fields.map(|(id, (name, of))| {
        let id = BTreeMap::from([(FIELD_ID.to_owned(), id.to_string())]);
        Field::new(name, of, name != "id").with_metadata(id.into_iter().collect())
    });
    Schema::new(fields.collect::<Vec<_>>())
});

fn columns_of(point: Vec<Field>, number: DataType, text: DataType) -> Vec<Field> {
    let item = Arc::new(Field::new("item", number, true));
    vec![
        Field::new("id", DataType::Int64, false),
        Field::new("s", text, true),
        Field::new("point", DataType::Struct(point.into()), true),
        Field::new("vector", DataType::FixedSizeList(item, 2), true),
    ]
}

/// An entry that is read has the same rows, transaction ids and numbers after it is written again,
/// where it has rows and a generation. The table refuses its rows or accepts them.
#[must_use]
pub fn log_entry(bytes: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(bytes);
    let _ = wal_entry::decode_unchecked(&bytes, "e");
    let Ok(entry) = wal_entry::decode(&bytes, "e") else { return false };
    if let Some(generation) = entry.generation.filter(|_| !entry.batches.is_empty()) {
        let (place, epoch) = (entry.place.unwrap_or_default(), entry.writer_epoch);
        let again =
            wal_entry::encode_with_txns(&entry.batches, place, epoch, generation, &entry.txns);
        let again = wal_entry::decode_at(&again.unwrap(), place).unwrap();
        assert_eq!(
            (again.writer_epoch, again.generation, again.txns),
            (entry.writer_epoch, entry.generation, entry.txns)
        );
        assert_eq!(again.batches, entry.batches);
    }
    for batch in &entry.batches {
        let Ok(rows) = ROWS.conform(batch) else { continue };
        assert_eq!(rows.batch.schema(), *ROWS.storage());
        assert_eq!(rows.keys.map(|keys| keys.len()), Some(batch.num_rows()));
    }
    true
}

/// A manifest that is read names no path outside of its shard, and reads back the same.
#[must_use]
pub fn manifest(bytes: &[u8]) -> bool {
    let Ok(manifest) = ShardManifest::decode(bytes, "m") else { return false };
    assert!(manifest.sstables.iter().all(|it| paths::is_plain_component(&it.path)));
    assert_eq!(ShardManifest::decode(&manifest.encode(), "m").unwrap(), manifest);
    true
}

/// The bytes as they are, and with a valid checksum, so that the code behind the check is tried
/// too.
#[must_use]
pub fn record_index(bytes: &[u8]) -> bool {
    let _ = RecordIndexRun::decode(bytes, "r");
    let Ok(run) = RecordIndexRun::decode(&sealed(bytes), "r") else { return false };
    assert_eq!(RecordIndexRun::decode(&run.encode(), "r").unwrap(), run);
    true
}

/// As [`record_index`].
#[must_use]
pub fn run_vectors(bytes: &[u8]) -> bool {
    let _ = SsTableVectors::decode(bytes, "v");
    let Ok(vectors) = SsTableVectors::decode(&sealed(bytes), "v") else { return false };
    assert_eq!(SsTableVectors::decode(&vectors.encode(), "v").unwrap(), vectors);
    true
}

/// A bitmap of [`run_vectors`] that is read has as many rows as it declares, and reads back the
/// same.
#[must_use]
pub fn bitmap(bytes: &[u8]) -> bool {
    let Ok(bitmap) = RoaringBitmap::deserialize_from(bytes) else { return false };
    if bitmap.len() <= COUNTED_ROWS {
        assert_eq!(bitmap.iter().count() as u64, bitmap.len());
        assert_eq!(bitmap.iter().next_back(), bitmap.max());
    }
    let mut again = Vec::new();
    bitmap.serialize_into(&mut again).unwrap();
    assert_eq!(RoaringBitmap::deserialize_from(&again[..]).unwrap(), bitmap);
    true
}

/// A version hint that is read reads back the same.
#[must_use]
pub fn version_hint(bytes: &[u8]) -> bool {
    let Some(version) = version_hint::decode(bytes) else { return false };
    assert_eq!(version_hint::decode(version_hint::encode(version).as_bytes()), Some(version));
    true
}

/// A position or a version has exactly one name, and no name of another file leads out of its
/// folder.
#[must_use]
pub fn file_name(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let shard = ShardId::from_u128(7);
    let entry = paths::parse_wal_entry(text).map(|position| paths::wal_entry(shard, position));
    let manifest = paths::parse_manifest(text).map(|version| paths::manifest(shard, version));
    for path in entry.iter().chain(&manifest) {
        assert_eq!(last(path), text);
    }
    let others = [paths::parse_run_vectors(text), paths::parse_record_index_run(text)];
    assert!(others.iter().flatten().all(|name| paths::is_plain_component(name)), "{text}");
    entry.is_some() || manifest.is_some()
}

/// A merge rule that is read has one text, and fits the columns of a table or is refused.
#[must_use]
pub fn merge_rule(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Ok(rule) = MergeRule::from_json(text) else { return false };
    let again = MergeRule::from_json(&rule.to_json()).unwrap();
    assert_eq!((again.to_json(), &again), (rule.to_json(), &rule));
    let key = ["id".to_owned()];
    let fits = rule.check(&RULED, &key);
    let options = rule.options(&RULED);
    // Columns that are not there are left out of the options; without them the rule is the same.
    if fits.is_ok() && !rule.is_plain() {
        let same = MergeRule::new(&options, &RULED, &key);
        assert!(same.is_err() || same.unwrap().options(&RULED) == options);
    }
    true
}

/// The bytes with the checksum of four bytes that ends a framed file.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let checksum = crc32fast::hash(bytes);
    [bytes, &checksum.to_le_bytes()].concat()
}

fn unsealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 4);
    bytes
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

const PLACE: LogAddress = LogAddress { shard_id: ShardId::from_u128(7), position: WalPosition(9) };

/// Each with a trailer, and without one as lance writes it, so that all code behind the trailer is
/// reached.
fn log_entries() -> Vec<Vec<u8>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
    ]));
    let batch = |count: i64| {
        let names: StringArray =
            (0..count).map(|id| (id % 3 > 0).then(|| "x".repeat(20))).collect();
        let ids = Int64Array::from_iter_values(0..count);
        RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(names)]).unwrap()
    };
    let mut txns = Txns::default();
    txns.record("a stream", 7);
    let encode = |batches: &[RecordBatch], txns: &Txns| {
        let bytes =
            wal_entry::encode_with_txns(batches, PLACE, WriterEpoch(7), Generation(3), txns);
        bytes.unwrap().to_vec()
    };
    let sealed = [
        encode(&[batch(1)], &txns),
        encode(&[batch(40), batch(3), batch(17)], &Txns::default()),
        wal_entry::encode_sentinel(PLACE, WriterEpoch(2)).unwrap().to_vec(),
        encode(&[stored(ROWS.storage())], &Txns::default()),
        encode(&[stored(&narrower())], &Txns::default()),
    ];
    let bare = sealed.iter().map(|entry| entry[..entry.len() - TRAILER_BYTES].to_vec());
    bare.chain(sealed.clone()).collect()
}

/// The storage schema of [`ROWS`] before its columns became wider and the point had a name.
fn narrower() -> SchemaRef {
    let of_point = vec![Field::new("x", DataType::Int32, true)];
    let mut columns = columns_of(of_point, DataType::Float32, DataType::Utf8View);
    columns.insert(1, Field::new("gone", DataType::Int32, true));
    columns.push(Field::new(TOMBSTONE, DataType::Boolean, false));
    Arc::new(Schema::new(columns))
}

/// Three rows under `schema`.
fn stored(schema: &SchemaRef) -> RecordBatch {
    let columns = schema.fields().iter().map(|field| values(field.data_type(), 3)).collect();
    RecordBatch::try_new(schema.clone(), columns).unwrap()
}

fn values(of: &DataType, count: i32) -> ArrayRef {
    match of {
        DataType::Boolean => Arc::new((0..count).map(|n| Some(n == 1)).collect::<BooleanArray>()),
        DataType::Int32 => Arc::new(Int32Array::from_iter_values(0..count)),
        DataType::Int64 => Arc::new(Int64Array::from_iter_values((0..count).map(i64::from))),
        DataType::Utf8 => Arc::new(texts(count).collect::<StringArray>()),
        DataType::Utf8View => Arc::new(texts(count).collect::<StringViewArray>()),
        DataType::Float32 => Arc::new((0..count).map(|_| Some(0.5)).collect::<Float32Array>()),
        DataType::Float64 => Arc::new((0..count).map(|_| Some(0.5)).collect::<Float64Array>()),
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| values(field.data_type(), count)).collect();
            Arc::new(StructArray::new(fields.clone(), columns, None))
        }
        DataType::FixedSizeList(item, length) => {
            let items = values(item.data_type(), count * length);
            Arc::new(FixedSizeListArray::new(item.clone(), *length, items, None))
        }
        other => unreachable!("no example has a column of {other}"),
    }
}

fn texts(count: i32) -> impl Iterator<Item = Option<String>> {
    (0..count).map(|number| (number != 1).then(|| format!("text {number} of a view of its own")))
}

/// As [`log_entries`].
fn manifests() -> Vec<Vec<u8>> {
    let values = BTreeMap::from([("bucket".to_owned(), vec![1, 0, 0, 0])]);
    let first = ShardManifest::initial(ShardId::from_u128(7), 1, values);
    let mut full = first.clone();
    for generation in 1..20 {
        full.sstables.push(SsTable {
            generation: Generation(generation),
            path: paths::sstable_folder(9, Generation(generation)),
            in_memory_bytes: Some(1 << 40),
            physical_rows: None,
            primary_key_bytes: Some(3),
        });
    }
    full.replay_after_wal_entry_position = WalPosition(u64::MAX - 1);
    full.txns.record("a stream", 7);
    let sealed = [first.encode(), full.encode()];
    let bare = sealed.iter().map(|manifest| manifest[8..manifest.len() - 8].to_vec());
    bare.chain(sealed.clone()).collect()
}

fn record_indexes() -> Vec<Vec<u8>> {
    let fragment = |id: u64| IndexedFragment {
        in_sstable: 3,
        id,
        physical_rows: u64::MAX,
        key_files: vec!["a.lance".to_owned(), String::new()],
    };
    let full = RecordIndexRun {
        base_version: 9,
        key_fields: vec![0, -1, i32::MAX],
        entries: 1 << 40,
        fragments: (0..20).map(fragment).collect(),
        page_files: vec![PageFile {
            name: "page_data.lance".to_owned(),
            crc32: 7,
            bytes: 65_537,
            blocks: vec![8, 9],
        }],
    };
    vec![unsealed(full.encode()), unsealed(RecordIndexRun::default().encode())]
}

fn vectors() -> Vec<Vec<u8>> {
    let fragment = |id: u64| FragmentVector {
        id,
        physical_rows: 1_000,
        key_files: vec!["a.lance".to_owned()],
        dead: vec![7; 40],
        deletion_file: "8-9".to_owned(),
        beaten: vec![3; 8],
    };
    let older = |number: u64| OlderSsTableVector {
        path: paths::sstable_folder(9, Generation(number)),
        dead: Vec::new(),
        beaten: vec![2; 4],
    };
    let full = SsTableVectors {
        base_version: 9,
        key_fields: vec![0, 1],
        fragments: (0..10).map(fragment).collect(),
        sstables: (1..5).map(older).collect(),
        tombstones: Some(vec![1; 20]),
        rule: r#"{"format":1}"#.to_owned(),
    };
    vec![unsealed(full.encode()), unsealed(SsTableVectors::default().encode())]
}

fn merge_rules() -> Vec<Vec<u8>> {
    let deduplicate = concat!(
        r#"{"format":1,"engine":"deduplicate","sequence":[1],"groups":[],"functions":{},"#,
        r#""deletes":"remove","nulls":"set","delete_retention_ms":604800000}"#
    );
    let aggregation = concat!(
        r#"{"format":1,"engine":"aggregation","sequence":[],"groups":[],"functions":{"#,
        r#""1":{"name":"sum","ignore_retract":true},"#,
        r#""2":{"name":"collect","distinct":true,"limit":9},"#,
        r#""3":{"name":"listagg","separator":"; ","limit":3},"#,
        r#""4":{"name":"user","function":"pkg.merge:mean"}},"deletes":"refuse","nulls":"set"}"#
    );
    let partial_update = concat!(
        r#"{"format":1,"engine":"partial_update","sequence":[],"groups":["#,
        r#"{"sequence":[1],"columns":[3,2]}],"functions":{},"deletes":"ignore","nulls":"keep"}"#
    );
    let later = deduplicate.replace("\"format\":1", "\"format\":2");
    let texts = [deduplicate, aggregation, partial_update, later.as_str()];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// With containers of each kind: sorted rows, bits, and ranges.
fn bitmaps() -> Vec<Vec<u8>> {
    let bytes_of = |bitmap: RoaringBitmap| {
        let mut bytes = Vec::new();
        bitmap.serialize_into(&mut bytes).unwrap();
        bytes
    };
    let mut ranges: RoaringBitmap = (0..4_000).chain(70_000..70_500).collect();
    ranges.optimize();
    let few = RoaringBitmap::from_iter([1, 70_000, 900_000]);
    let bits = (0..9_000).map(|row| row * 3).collect();
    [RoaringBitmap::new(), few, bits, ranges].map(bytes_of).to_vec()
}

fn version_hints() -> Vec<Vec<u8>> {
    let versions = [ManifestVersion(1), ManifestVersion(u64::MAX)];
    versions.map(|version| version_hint::encode(version).into_bytes()).to_vec()
}

fn file_names() -> Vec<Vec<u8>> {
    let shard = ShardId::from_u128(7);
    let paths = [
        paths::wal_entry(shard, WalPosition(1)),
        paths::wal_entry(shard, WalPosition(u64::MAX - 1)),
        paths::manifest(shard, ManifestVersion(3)),
    ];
    let names = paths.iter().map(|path| last(path).as_bytes().to_vec());
    names.chain([b"version_hint.json".to_vec()]).collect()
}
