//! Reads in an order, and SQL over one snapshot.
//!
//! Owns: `ScanOptions::order_by` with limit, offset and computed columns; `Table::sql` over rows on
//! every level.
//! Does not own: which rows a level shows (`model`), or the plans of a session (`provider`).

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use lancemem::{Consistency, ErrorKind, OrderBy, ReadPart, Scan, ScanOptions};
use lancemem_testkit::NULL;

use crate::fixture::{Fixture, within};

/// Rows on every level, of which the newest are 1: 15, 2: null, 4: 5 and 5: 15.
async fn board() -> Fixture {
    let fixture = Fixture::new().await;
    fixture.to_base(&[(1, 10), (2, NULL), (3, 30)]).await;
    fixture.to_sstable(&[(1, 15), (4, 5)], &[]).await;
    fixture.to_log(&[(5, 15)], &[3]).await;
    fixture
}

/// The values of a column of numbers, in the order of the rows.
async fn numbers(scan: &Scan, column: &str) -> Vec<Option<i64>> {
    let (_, batches) = scan.collect().await.unwrap();
    let of = |batch: &RecordBatch| {
        let values = batch.column_by_name(column).unwrap().as_primitive::<Int64Type>();
        values.iter().collect::<Vec<_>>()
    };
    batches.iter().flat_map(of).collect()
}

fn some(numbers: &[i64]) -> Vec<Option<i64>> {
    numbers.iter().copied().map(Some).collect()
}

#[tokio::test]
async fn rows_of_all_levels_come_in_one_order() {
    within(async {
        let fixture = board().await;
        let scan = |options| fixture.table.scan(options, Vec::new());
        let by = |keys: &[OrderBy]| ScanOptions::default().with_order_by(keys);
        let down = [OrderBy::desc("v"), OrderBy::asc("id")];
        assert_eq!(numbers(&scan(by(&down)), "id").await, some(&[1, 5, 4, 2]));
        let up = [OrderBy::asc("v"), OrderBy::desc("id")];
        assert_eq!(numbers(&scan(by(&up)), "id").await, some(&[4, 5, 1, 2]));
        let first = [OrderBy::asc("v").with_nulls_first(true), OrderBy::asc("id")];
        assert_eq!(numbers(&scan(by(&first)), "id").await, some(&[2, 4, 1, 5]));
        let snapshot = fixture.table.snapshot(Consistency::Durable, &[]).await.unwrap();
        fixture.to_log(&[(6, 100)], &[]).await;
        let scan = Scan::of_snapshot(fixture.table.clone(), snapshot, by(&down));
        assert_eq!(numbers(&scan, "v").await, [Some(15), Some(15), Some(5), None]);
    })
    .await;
}

#[tokio::test]
async fn a_limit_takes_the_first_rows_of_the_order() {
    within(async {
        let fixture = board().await;
        let ids = Some(vec!["id".to_owned()]);
        let options = ScanOptions::default()
            .with_columns(ids)
            .with_order_by([OrderBy::desc("v"), OrderBy::asc("id")]);
        for (offset, limit, expected) in [
            (0, Some(2_usize), vec![1, 5]),
            (1, Some(2), vec![5, 4]),
            (3, None, vec![2]),
            (9, Some(1), vec![]),
            (0, Some(0), vec![]),
            (0, Some(1_000_000), vec![1, 5, 4, 2]),
        ] {
            let options = options.clone().with_offset(offset).with_limit(limit);
            let scan = fixture.table.scan(options, Vec::new());
            assert_eq!(numbers(&scan, "id").await, some(&expected), "{offset} {limit:?}");
            assert_eq!(scan.count_rows().await.unwrap(), expected.len());
            assert_eq!(scan.schema().await.unwrap().fields().len(), 1);
        }
        let top = fixture.table.scan(options.with_limit(2), Vec::new());
        assert!(top.explain().await.unwrap().contains("TopK(fetch=2)"));
    })
    .await;
}

#[tokio::test]
async fn computed_columns_are_keys_too() {
    within(async {
        let fixture = board().await;
        let named = [("id", "id"), ("far", "(id - 3) * (id - 3)")];
        let named = named.map(|(name, sql)| (name.to_owned(), sql.to_owned())).to_vec();
        let scan = |keys: &[OrderBy]| {
            let options = ScanOptions::default().with_expressions(named.clone());
            fixture.table.scan(options.with_order_by(keys), Vec::new())
        };
        let far = scan(&[OrderBy::desc("far"), OrderBy::desc("id")]);
        assert_eq!(numbers(&far, "id").await, some(&[5, 1, 4, 2]));
        let by_column = scan(&[OrderBy::asc("v"), OrderBy::asc("far"), OrderBy::asc("id")]);
        assert_eq!(numbers(&by_column, "id").await, some(&[4, 1, 5, 2]));
        assert_eq!(by_column.schema().await.unwrap().fields().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn an_order_by_no_column_or_of_a_part_is_refused() {
    within(async {
        let fixture = board().await;
        let refused = |options| {
            let scan = fixture.table.scan(options, Vec::new());
            async move { scan.collect().await.unwrap_err() }
        };
        let unknown = refused(ScanOptions::default().with_order_by([OrderBy::asc("V")])).await;
        assert_eq!(unknown.kind(), ErrorKind::InvalidInput);
        assert!(unknown.to_string().contains("column 'V' is not in the table"), "{unknown}");
        let part = ReadPart::new(0, 2).unwrap();
        let options = ScanOptions::default().with_order_by([OrderBy::asc("v")]).with_part(part);
        assert!(refused(options).await.to_string().contains("does not go with part"));
    })
    .await;
}

#[tokio::test]
async fn a_query_reads_one_snapshot_under_both_names() {
    within(async {
        let fixture = board().await;
        let query = |sql: &str| fixture.table.sql(sql, Consistency::Durable, Vec::new()).unwrap();
        let joined = query(
            "SELECT a.id, a.v + b.v AS total FROM t a JOIN board b ON a.v = b.v WHERE a.id <= b.id \
             ORDER BY a.id, total",
        );
        assert_eq!(numbers(&joined, "id").await, some(&[1, 1, 4, 5]));
        assert_eq!(numbers(&joined, "total").await, some(&[30, 30, 10, 30]));
        assert_eq!(joined.count_rows().await.unwrap(), 4);
        let sums = query("SELECT sum(v) AS Total FROM t WHERE id < 5");
        assert_eq!(numbers(&sums, "Total").await, some(&[20]));
        fixture.to_log(&[(4, 6)], &[]).await;
        assert_eq!(numbers(&sums, "Total").await, some(&[21]));
        let snapshot = fixture.table.snapshot(Consistency::Durable, &[]).await.unwrap();
        let fixed = fixture.table.sql_of_snapshot("SELECT count(*) AS n FROM t", snapshot);
        let fixed = fixed.unwrap();
        fixture.to_log(&[(7, 1)], &[]).await;
        assert_eq!(numbers(&fixed, "n").await, some(&[4]));
    })
    .await;
}

#[tokio::test]
async fn a_query_that_writes_or_names_what_is_not_there_is_refused() {
    within(async {
        let fixture = board().await;
        let sql = |sql: &str| fixture.table.sql(sql, Consistency::Durable, Vec::new());
        for writes in ["DELETE FROM t", "COPY t TO 'x.csv'", "SET a.b = 1", "SELECT 1; SELECT 2"] {
            assert_eq!(sql(writes).unwrap_err().kind(), ErrorKind::InvalidInput, "{writes}");
        }
        for (query, text) in [
            ("SELECT ID FROM t", "ID"),
            ("SELECT id FROM T", "the table is called t or board"),
            ("SELECT * INTO other FROM t", "not valid"),
            ("SELECT id FROM 'other.parquet'", "not valid"),
        ] {
            let refused = sql(query).unwrap().collect().await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{query}: {refused}");
            assert!(refused.to_string().contains(text), "{query}: {refused}");
        }
    })
    .await;
}
