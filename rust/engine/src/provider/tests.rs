//! SQL over a table: the rows, and what is pushed down to the scan.
//!
//! Owns: joins, projection, conditions and limits of DataFusion queries on live data.
//! Does not own: the path through Python, which the Python tests cover.

use arrow::util::pretty::pretty_format_batches;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use datafusion::common::DataFusionError;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlanProperties, displayable};
use futures::{StreamExt, TryStreamExt};
use tempfile::TempDir;

use super::*;
use crate::table::CreateOptions;

fn rows(from: i64, to: i64, prefix: &str) -> RecordBatch {
    let ids = Int64Array::from_iter_values(from..to);
    let names = StringArray::from_iter_values((from..to).map(|id| format!("{prefix}{id}")));
    RecordBatch::try_new(schema(), vec![Arc::new(ids), Arc::new(names)]).unwrap()
}

fn schema() -> SchemaRef {
    let id = Field::new("id", DataType::Int64, false);
    Arc::new(Schema::new(vec![id, Field::new("Name", DataType::Utf8, true)]))
}

/// Ten rows in the base table, 0 to 2 newer in an SSTable, 8 and 9 newer in the log.
async fn board() -> (TempDir, Arc<Table>) {
    let folder = tempfile::tempdir().unwrap();
    let options = CreateOptions::new(schema()).with_primary_key(["id"]);
    let uri = folder.path().join("board.lance");
    let table = Table::create(uri.to_str().unwrap(), &options).await.unwrap();
    let shard_id = table.shards().await.unwrap()[0].shard_id;
    for (part, flush) in [(rows(0, 10, "base"), true), (rows(0, 3, "run"), true)] {
        let job = table
            .start_job(
                shard_id,
                table.writer_defaults().clone(),
                table.maintenance_defaults().clone(),
            )
            .await
            .unwrap();
        job.put(&part).await.unwrap();
        job.close(flush).await.unwrap();
        if part.num_rows() == 10 {
            table.compact().await.unwrap();
        }
    }
    table.upsert(&rows(8, 10, "log")).await.unwrap();
    (folder, table)
}

fn registered(source: TableSource) -> SessionContext {
    let session = plan::session();
    session.register_table("board", Arc::new(source)).unwrap();
    session
}

async fn text(session: &SessionContext, sql: &str) -> String {
    let batches = session.sql(sql).await.unwrap().collect().await.unwrap();
    pretty_format_batches(&batches).unwrap().to_string()
}

async fn plan_text(session: &SessionContext, sql: &str) -> String {
    let plan = session.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
    displayable(plan.as_ref()).indent(true).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_sees_the_newest_row_of_every_key_wherever_it_is() {
    let (_folder, table) = board().await;
    let session = registered(TableSource::new(table, Consistency::Durable, Vec::new()));
    let sql = "SELECT b.id, b.Name FROM board b JOIN (VALUES (1), (5), (9)) AS w(id) \
               ON b.id = w.id ORDER BY b.id";
    let expected = "+----+-------+\n| id | Name  |\n+----+-------+\n| 1  | run1  |\n\
                    | 5  | base5 |\n| 9  | log9  |\n+----+-------+";
    assert_eq!(text(&session, sql).await, expected);
    let counted = text(&session, "SELECT count(*) AS rows FROM board").await;
    assert!(counted.contains("| 10 "), "{counted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn projection_condition_and_limit_reach_the_scan() {
    let (_folder, table) = board().await;
    let session = registered(TableSource::new(table, Consistency::Durable, Vec::new()));

    let sql = "SELECT id FROM board WHERE id >= 8";
    let plan = plan_text(&session, sql).await;
    assert!(!plan.contains("Name"), "only id is read:\n{plan}");
    // One of ours, in the arm that has rows in memory; none of the query's above the union.
    let above = plan.split("UnionExec").next().unwrap();
    assert!(!above.contains("FilterExec"), "{plan}");
    assert!(text(&session, sql).await.contains("| 8  |"));

    let limited = plan_text(&session, "SELECT id FROM board LIMIT 3").await;
    let below = limited.find("fetch=3");
    assert!(below.is_some_and(|at| at < limited.find("UnionExec").unwrap()), "{limited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_condition_on_a_superseded_value_finds_nothing() {
    let (_folder, table) = board().await;
    let session = registered(TableSource::new(table, Consistency::Durable, Vec::new()));
    let sql = "SELECT count(*) AS found FROM board WHERE Name = 'base1' OR upper(Name) = 'BASE9'";
    let found = text(&session, sql).await;
    assert!(found.contains("| 0 "), "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expression_that_is_not_a_condition_stays_with_the_query() {
    let (_folder, table) = board().await;
    let source = TableSource::new(table, Consistency::Durable, Vec::new());
    let plain = datafusion::prelude::col("id").gt(datafusion::prelude::lit(1_i64));
    let number = Expr::Literal(datafusion::common::ScalarValue::Int64(Some(1)), None);
    let answers = source.supports_filters_pushdown(&[&plain, &number]).unwrap();
    assert_eq!(
        answers,
        [TableProviderFilterPushDown::Exact, TableProviderFilterPushDown::Unsupported]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arm_that_ends_twice_does_not_stand_for_one_that_never_ends() {
    let (_folder, table) = board().await;
    let source = || TableSource::new(table.clone(), Consistency::Flushed, Vec::new());
    let session = registered(source());
    let mut plan = source().scan(&session.state(), None, &[], None).await.unwrap();
    assert_eq!(plan.output_partitioning().partition_count(), 2, "the base and an SSTable");
    // As under a limit in a recursive query, which runs the same plan in rounds.
    for _ in 0..2 {
        plan = reset_plan_states(plan).unwrap();
        let mut base = plan.execute(0, session.task_ctx()).unwrap();
        let sstable = plan.execute(1, session.task_ctx()).unwrap();
        let (first, sstable) = futures::join!(base.next(), sstable.try_collect::<Vec<_>>());
        assert!(first.unwrap().is_ok() && sstable.is_ok());
    }
    for _ in 0..2 {
        let sql = "SELECT count(*) AS rows, count(DISTINCT id) AS keys FROM board";
        let counted = text(&session, sql).await;
        assert!(counted.contains("| 10   | 10   |"), "{counted}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_scans_of_one_snapshot_agree() {
    let (_folder, table) = board().await;
    let snapshot = table.snapshot(Consistency::Durable, &[]).await.unwrap();
    let session = registered(TableSource::of_snapshot(table.clone(), snapshot));
    table.upsert(&rows(20, 40, "later")).await.unwrap();
    let counted = text(&session, "SELECT count(*) AS rows FROM board").await;
    assert!(counted.contains("| 10 "), "{counted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_table_keeps_its_kind() {
    let (folder, table) = board().await;
    let session = registered(TableSource::new(table, Consistency::Durable, Vec::new()));
    std::fs::remove_dir_all(folder.path()).unwrap();
    let error = session.sql("SELECT * FROM board").await.unwrap().collect().await.unwrap_err();
    assert!(matches!(error.find_root(), DataFusionError::External(own) if own.is::<Error>()));
}
