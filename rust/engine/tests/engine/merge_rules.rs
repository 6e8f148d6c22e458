//! The merge rule of a table: where it is stored, what keeps it, and what is refused.
//!
//! Owns: the rule in the MemWAL index, its check against the columns, and the gate of engines.
//! Does not own: which rules fit which columns (the core's `merge`), or how rows are merged.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, RecordBatchIterator};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use lance::Dataset;
use lance::dataset::mem_wal::DatasetMemWalExt;
use lance::dataset::optimize::{CompactionOptions, compact_files};
use lance::dataset::transaction::{Operation, Transaction};
use lance::dataset::{ColumnAlteration, CommitBuilder, WriteMode, WriteParams};
use lance::index::DatasetIndexExt;
use lance_index::mem_wal::{MEM_WAL_INDEX_NAME, MemWalIndexDetails, ShardingSpec};
use lance_table::system_index::mem_wal::new_mem_wal_index_meta;
use lancemem::table::CreateOptions;
use lancemem::{
    Error, ErrorKind, MaintenanceConfig, MergeEngine, MergeFunction, RuleError, RuleOptions,
    Sharding, Table, WriterConfig,
};
use tempfile::TempDir;

use crate::fixture::within;

fn columns() -> SchemaRef {
    let column = |name: &str| Field::new(name, DataType::Int64, name != "id");
    Arc::new(Schema::new(vec![column("id"), column("ts"), column("v"), column("spare")]))
}

fn by_time() -> RuleOptions {
    RuleOptions { sequence_by: vec!["ts".to_owned()], ..RuleOptions::default() }
}

fn of_engine(merge_engine: MergeEngine) -> RuleOptions {
    RuleOptions { merge_engine, ..RuleOptions::default() }
}

fn options(rule: RuleOptions) -> CreateOptions {
    CreateOptions::new(columns()).with_primary_key(["id"]).with_rule(rule)
}

async fn created(folder: &TempDir, rule: RuleOptions) -> Arc<Table> {
    let sharding = Sharding::Bucket { column: "id".to_owned(), buckets: 2 };
    let options = options(rule).with_sharding(sharding);
    Table::create(path_of(folder), &options).await.unwrap()
}

fn path_of(folder: &TempDir) -> String {
    folder.path().join("t").to_str().unwrap().to_owned()
}

fn rule_error(error: &Error) -> &RuleError {
    error.source().and_then(|source| source.downcast_ref()).unwrap()
}

async fn details(uri: &str) -> MemWalIndexDetails {
    Dataset::open(uri).await.unwrap().mem_wal_index_details().await.unwrap().unwrap()
}

/// Replaces the MemWAL index as a program of another version would have written it.
async fn rewrite(uri: &str, change: impl FnOnce(&mut MemWalIndexDetails)) {
    let base = Dataset::open(uri).await.unwrap();
    let mut details = base.mem_wal_index_details().await.unwrap().unwrap();
    change(&mut details);
    let indices = base.load_indices().await.unwrap();
    let removed = indices.iter().filter(|index| index.name == MEM_WAL_INDEX_NAME).cloned();
    let operation = Operation::CreateIndex {
        removed_indices: removed.collect(),
        new_indices: vec![new_mem_wal_index_meta(base.version().version, details).unwrap()],
    };
    let transaction = Transaction::new(base.version().version, operation, None);
    CommitBuilder::new(Arc::new(base)).execute(transaction).await.unwrap();
}

fn text_of(spec: &mut ShardingSpec) -> &mut String {
    spec.fields[0].parameters.get_mut("rule").unwrap()
}

async fn append(base: &mut Dataset, ids: std::ops::Range<i64>) {
    let schema = Arc::new(Schema::from(base.schema()));
    let column = Arc::new(Int64Array::from_iter_values(ids));
    let rows = schema.fields().iter().map(|_| column.clone() as _).collect();
    let rows = RecordBatch::try_new(schema.clone(), rows).unwrap();
    let params = WriteParams { mode: WriteMode::Append, ..WriteParams::default() };
    base.append(RecordBatchIterator::new([Ok(rows)], schema), Some(params)).await.unwrap();
}

#[tokio::test]
async fn a_table_stores_its_rule_as_the_second_specification() {
    within(async {
        let folder = TempDir::new().unwrap();
        let table = created(&folder, by_time()).await;
        let specs = details(table.uri()).await.sharding_specs;
        let [sharding, rule] = specs.as_slice() else { panic!("{specs:?}") };
        assert_eq!((sharding.spec_id, rule.spec_id), (1, 2_147_483_647));
        assert_eq!(rule.fields[0].field_id, "lancemem:merge");
        assert_eq!(rule.fields[0].transform.as_deref(), Some("lancemem:merge"));
        let text = "{\"format\":1,\"engine\":\"deduplicate\",\"sequence\":[1],\"groups\":[],\
                    \"functions\":{},\"deletes\":\"remove\",\"nulls\":\"set\",\
                    \"delete_retention_ms\":604800000}";
        assert_eq!(rule.fields[0].parameters, HashMap::from([("rule".into(), text.into())]));
        let opened = Table::open(table.uri()).await.unwrap();
        assert_eq!(opened.merge_rule(), Some(by_time().with_defaults()));
        assert_eq!(opened.sharding(), table.sharding());
    })
    .await;
}

#[tokio::test]
async fn the_index_of_a_table_with_a_rule_is_else_that_of_a_plain_table() {
    within(async {
        for sharding in
            [Sharding::Unsharded, Sharding::Bucket { column: "id".to_owned(), buckets: 3 }]
        {
            let mut found = Vec::new();
            for rule in [RuleOptions::default(), by_time()] {
                let folder = TempDir::new().unwrap();
                let options = options(rule).with_sharding(sharding.clone());
                let table = Table::create(path_of(&folder), &options).await.unwrap();
                let mut details = details(table.uri()).await;
                details.sharding_specs.truncate(1);
                details.writer_config_defaults.remove("lancemem_table_id").unwrap();
                found.push(format!("{:?}", pairs_of(details)));
            }
            assert_eq!(found[0], found[1]);
        }
    })
    .await;
}

/// The details without the order of maps.
fn pairs_of(mut details: MemWalIndexDetails) -> (MemWalIndexDetails, Vec<(String, String)>) {
    let mut defaults: Vec<_> = details.writer_config_defaults.drain().collect();
    defaults.sort();
    (details, defaults)
}

#[tokio::test]
async fn a_table_without_a_rule_has_one_specification() {
    within(async {
        let folder = TempDir::new().unwrap();
        let table = created(&folder, RuleOptions::default()).await;
        assert_eq!(details(table.uri()).await.sharding_specs.len(), 1);
        assert_eq!(table.merge_rule(), None);
    })
    .await;
}

#[tokio::test]
async fn a_rule_outlives_renames_foreign_commits_and_a_restore() {
    within(Box::pin(async {
        let folder = TempDir::new().unwrap();
        let table = created(&folder, by_time()).await;
        let mut base = Dataset::open(table.uri()).await.unwrap();
        append(&mut base, 0..10).await;
        let before = base.version().version;
        append(&mut base, 10..20).await;
        base.alter_columns(&[ColumnAlteration::new("ts".into()).rename("happened".into())])
            .await
            .unwrap();
        compact_files(&mut base, CompactionOptions::default(), None).await.unwrap();
        let renamed = RuleOptions { sequence_by: vec!["happened".into()], ..by_time() };
        table.refresh().await.unwrap();
        assert_eq!(table.merge_rule(), Some(renamed.with_defaults()));
        let mut past = base.checkout_version(before).await.unwrap();
        past.restore().await.unwrap();
        table.refresh().await.unwrap();
        let opened = Table::open(table.uri()).await.unwrap();
        assert_eq!(opened.merge_rule(), Some(by_time().with_defaults()));
        assert_eq!(details(table.uri()).await.sharding_specs.len(), 2);
    }))
    .await;
}

#[tokio::test]
async fn a_widened_sequence_column_keeps_its_role() {
    within(async {
        let folder = TempDir::new().unwrap();
        let mut fields = columns().fields().to_vec();
        fields[1] = Arc::new(Field::new("ts", DataType::Int32, true));
        let options = CreateOptions::new(Arc::new(Schema::new(fields)));
        let options = options.with_primary_key(["id"]).with_rule(by_time());
        let table = Table::create(path_of(&folder), &options).await.unwrap();
        table.alter_column("ts", &DataType::Int64).await.unwrap();
        let opened = Table::open(table.uri()).await.unwrap();
        assert_eq!(opened.merge_rule(), Some(by_time().with_defaults()));
        let (config, maintenance) = (WriterConfig::default(), MaintenanceConfig::default());
        let again = Table::enable(table.uri(), None, Some(&by_time()), &config, &maintenance)
            .await
            .unwrap();
        assert_eq!(again.merge_rule(), opened.merge_rule());
    })
    .await;
}

#[tokio::test]
async fn a_dropped_sequence_column_is_an_error_that_names_the_table() {
    within(Box::pin(async {
        let folder = TempDir::new().unwrap();
        let table = created(&folder, by_time()).await;
        let mut base = Dataset::open(table.uri()).await.unwrap();
        base.drop_columns(&["spare"]).await.unwrap();
        table.refresh().await.unwrap();
        base.drop_columns(&["ts"]).await.unwrap();
        for error in
            [table.refresh().await.unwrap_err(), Table::open(table.uri()).await.unwrap_err()]
        {
            assert!(matches!(rule_error(&error), RuleError::DroppedColumn { id: 1, .. }));
            let text = error.to_string();
            assert!(text.starts_with(&format!("table {}: ", table.uri())), "{text}");
        }
    }))
    .await;
}

#[tokio::test]
async fn what_a_later_version_may_have_stored_is_refused_by_name() {
    within(async {
        for (from, to, found) in [
            ("\"format\":1", "\"format\":2", "has format 2"),
            ("deduplicate", "newest_of_all", "engine 'newest_of_all'"),
            ("\"groups\"", "\"more\":1,\"groups\"", "the member 'more'"),
        ] {
            let folder = TempDir::new().unwrap();
            let table = created(&folder, by_time()).await;
            rewrite(table.uri(), |details| {
                let text = text_of(&mut details.sharding_specs[1]);
                *text = text.replace(from, to);
            })
            .await;
            let error = Table::open(table.uri()).await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(rule_error(&error), RuleError::LaterVersion { .. }), "{text}");
            assert!(text.starts_with(&format!("table {}: ", table.uri())), "{text}");
            assert!(text.contains(found) && text.contains("or a later one"), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_damaged_rule_is_never_read_as_no_rule() {
    within(async {
        type Damage = fn(&mut Vec<ShardingSpec>);
        let damages: [(Damage, &str); 7] = [
            (|specs| *text_of(&mut specs[1]) = "{".to_owned(), "undecodable"),
            (|specs| specs[1].fields[0].parameters.clear(), "has no text"),
            (|specs| specs[1].fields.clear(), "has not one field"),
            (|specs| specs[1].spec_id = 2, "another id or transform"),
            (|specs| specs[1].fields[0].transform = None, "another id or transform"),
            (|specs| drop(specs.remove(0)), "1 merge rules and 0 sharding specifications"),
            (|specs| specs.push(specs[1].clone()), "2 merge rules and 1 sharding"),
        ];
        for (damage, found) in damages {
            let folder = TempDir::new().unwrap();
            let table = created(&folder, by_time()).await;
            rewrite(table.uri(), |details| damage(&mut details.sharding_specs)).await;
            let text = Table::open(table.uri()).await.unwrap_err().to_string();
            assert!(text.contains(found) && text.contains(table.uri()), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_handle_refuses_a_table_whose_rule_is_another_one() {
    within(async {
        let folder = TempDir::new().unwrap();
        let table = created(&folder, by_time()).await;
        rewrite(table.uri(), |details| {
            let text = text_of(&mut details.sharding_specs[1]);
            *text = text.replace("[1]", "[2]");
        })
        .await;
        let error = table.refresh().await.unwrap_err();
        assert!(error.to_string().contains("was replaced by another one"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_rule_that_cannot_be_is_refused_before_anything_is_written() {
    within(async {
        let folder = TempDir::new().unwrap();
        let no_key = CreateOptions::new(columns()).with_rule(by_time());
        let of = |name: &str| RuleOptions { sequence_by: vec![name.to_owned()], ..by_time() };
        let sum = [("v".to_owned(), MergeFunction::Sum.into())];
        let sum = RuleOptions { aggregates: sum.into(), ..by_time() };
        for (options, found) in [
            (no_key, "needs a table with a primary key"),
            (options(of("when")), "sequence_by names column 'when', which is not in the table"),
            (options(of("id")), "column 'id' is of the primary key"),
            (options(sum), "aggregates cannot be used with merge_engine 'deduplicate'"),
        ] {
            let error = Table::create(path_of(&folder), &options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            rule_error(&error);
            let text = error.to_string();
            assert!(text.contains(found) && text.contains(&path_of(&folder)), "{text}");
            assert!(!folder.path().join("t").exists(), "{text}");
        }
    })
    .await;
}

#[tokio::test]
async fn enable_gives_a_rule_once() {
    within(async {
        let folder = TempDir::new().unwrap();
        let first = created(&folder, RuleOptions::default()).await;
        let (config, maintenance) = (WriterConfig::default(), MaintenanceConfig::default());
        let mut base = Dataset::open(first.uri()).await.unwrap();
        base.drop_index(MEM_WAL_INDEX_NAME).await.unwrap();
        let enable = async |rule: Option<RuleOptions>| {
            Table::enable(first.uri(), None, rule.as_ref(), &config, &maintenance).await
        };
        let late = RuleOptions { sequence_by: vec!["late".into()], ..by_time() };
        let error = enable(Some(late)).await.unwrap_err();
        assert!(matches!(rule_error(&error), RuleError::UnknownColumn { .. }), "{error}");
        let ruled = enable(Some(by_time())).await.unwrap();
        assert_eq!(ruled.merge_rule(), Some(by_time().with_defaults()));
        for same in [None, Some(by_time()), Some(by_time().with_defaults())] {
            assert_eq!(enable(same).await.unwrap().merge_rule(), ruled.merge_rule());
        }
        for other in [RuleOptions::default(), of_engine(MergeEngine::FirstRow)] {
            let error = enable(Some(other)).await.unwrap_err();
            assert!(matches!(rule_error(&error), RuleError::OtherRule { .. }), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_past_version_without_the_index_is_read_without_its_rule() {
    within(Box::pin(async {
        let folder = TempDir::new().unwrap();
        let mut base = {
            let table = created(&folder, RuleOptions::default()).await;
            Dataset::open(table.uri()).await.unwrap()
        };
        base.drop_index(MEM_WAL_INDEX_NAME).await.unwrap();
        append(&mut base, 0..3).await;
        let before = base.version().version;
        let field = Arc::new(Schema::new(vec![Field::new("late", DataType::Int64, true)]));
        base.add_columns(lance::dataset::NewColumnTransform::AllNulls(field), None, None)
            .await
            .unwrap();
        let late = RuleOptions { sequence_by: vec!["late".into()], ..by_time() };
        let (config, maintenance) = (WriterConfig::default(), MaintenanceConfig::default());
        let uri = path_of(&folder);
        let table = Table::enable(uri, None, Some(&late), &config, &maintenance).await.unwrap();
        let past = table.snapshot_of_version(before).await.unwrap();
        assert_eq!(past.schema.fields().len(), 4);
    }))
    .await;
}
