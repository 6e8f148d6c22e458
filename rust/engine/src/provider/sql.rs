//! SQL queries over one snapshot of a table.
//!
//! Owns: which statements are accepted, and the names of the table in a query.
//! Does not own: the forms of a result (`Scan` in `table`), or what is pushed down to the scans of
//! a query ([`TableSource`]).

use std::path::Path;
use std::sync::Arc;

use arrow_schema::Schema;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use datafusion::common::TableReference;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use lancemem_core::types::{Error, Result};

use super::TableSource;
use crate::errors::Context;
use crate::plan::{ScanPlan, invalid, query_session, refuse_long_text};
use crate::snapshot::{Consistency, Snapshot};
use crate::table::{LiveJob, Scan, SnapshotQuery, Table};

/// The name of the table in every query, beside its own.
const NAME: &str = "t";
/// Most SELECT and JOIN keywords of a query. Its plan is as deep as a chain of them is long, and
/// DataFusion's passes recurse through it: a stack overflow aborts the process.
const MAX_PARTS: usize = 100;

impl Table {
    /// A lazy SQL query, whose every execution reads one new snapshot. The table is called `t`, and
    /// as its folder without the extension. Names keep their case.
    ///
    /// ```no_run
    /// use lancemem::{Consistency, Table};
    ///
    /// # async fn example() -> lancemem::Result<()> {
    /// let table = Table::open("/data/board.lance").await?;
    /// let sql = "SELECT carrier, avg(delay) AS delay FROM t GROUP BY carrier ORDER BY delay";
    /// let (_, batches) = table.sql(sql, Consistency::Durable, Vec::new())?.collect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An input error for text that does not parse, or that is no single query.
    pub fn sql(
        self: &Arc<Self>,
        sql: &str,
        consistency: Consistency,
        jobs: Vec<Arc<dyn LiveJob>>,
    ) -> Result<Scan> {
        let query = Arc::new(SqlQuery::parse(sql)?);
        Ok(Scan::of_query(self.clone(), consistency, jobs, query))
    }

    /// The same over a snapshot of [`Table::snapshot`].
    ///
    /// # Errors
    /// As [`Table::sql`].
    pub fn sql_of_snapshot(self: &Arc<Self>, sql: &str, snapshot: Arc<Snapshot>) -> Result<Scan> {
        let query = Arc::new(SqlQuery::parse(sql)?);
        Ok(Scan::of_snapshot_query(self.clone(), snapshot, query))
    }
}

/// A query that reads.
#[derive(Debug)]
struct SqlQuery {
    sql: String,
}

impl SqlQuery {
    fn parse(sql: &str) -> Result<Self> {
        refuse_long_text(sql, "query")?;
        refuse_many_parts(sql)?;
        let parsed =
            DFParserBuilder::new(sql).build().and_then(|mut parser| parser.parse_statements());
        let mut statements = parsed.map_err(|error| invalid(&action(sql), error))?;
        let statement = statements.pop_front();
        if !statements.is_empty() {
            return Err(Error::input("sql takes one query; call it once for each statement"));
        }
        match statement {
            None => Err(Error::input("sql takes a query, got text without one")),
            Some(statement) if reads(&statement) => Ok(Self { sql: sql.to_owned() }),
            Some(_) => Err(Error::input(format!(
                "sql takes a query that reads, such as SELECT, got '{sql}'; rows are written by \
                 upsert, update, merge and delete of the table"
            ))),
        }
    }

    /// An error of DataFusion's planner, with the names of the table where it knows no table.
    fn invalid(&self, error: datafusion::error::DataFusionError, names: &[String]) -> Error {
        match invalid(&action(&self.sql), error) {
            Error::InvalidInput { mut message, source } => {
                if message.contains("table '") && message.contains("' not found") {
                    message.push_str("; the table is called ");
                    message.push_str(&names.join(" or "));
                }
                Error::InvalidInput { message, source }
            }
            other => other,
        }
    }
}

#[async_trait]
impl SnapshotQuery for SqlQuery {
    async fn plan(
        &self,
        table: &Arc<Table>,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(ScanPlan, SessionContext)> {
        let session = query_session(has_decimals(&snapshot.schema))?;
        let source = TableSource::of_snapshot(table.clone(), snapshot.clone());
        let source: Arc<dyn TableProvider> = Arc::new(source);
        let names = names_of(table.uri());
        for name in &names {
            let registered =
                session.register_table(TableReference::bare(name.as_str()), source.clone());
            registered.context("registering the table")?;
        }
        let reads = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        let query = session.sql_with_options(&self.sql, reads).await;
        let query = query.map_err(|error| self.invalid(error, &names))?;
        let plan = query.create_physical_plan().await.context("planning the query")?;
        Ok((ScanPlan { plan, pruned: Vec::new() }, session))
    }
}

fn action(sql: &str) -> String {
    format!("the query '{sql}' is not valid")
}

/// Whether a statement only reads. What it contains is checked again in its plan.
fn reads(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => reads_sql(statement),
        Statement::Explain(explain) => reads(&explain.statement),
        Statement::CreateExternalTable(_) | Statement::CopyTo(_) | Statement::Reset(_) => false,
    }
}

fn reads_sql(statement: &SqlStatement) -> bool {
    match statement {
        SqlStatement::Query(_) | SqlStatement::ExplainTable { .. } => true,
        SqlStatement::Explain { statement, .. } => reads_sql(statement),
        _ => false,
    }
}

fn refuse_many_parts(sql: &str) -> Result<()> {
    // Text that cannot be tokenized is left to the parser, which reports the error.
    let words = Tokenizer::new(&GenericDialect {}, sql).tokenize().unwrap_or_default();
    let is_part = |word: &&Token| match word {
        Token::Word(word) => matches!(word.keyword, Keyword::SELECT | Keyword::JOIN),
        _ => false,
    };
    let parts = words.iter().filter(is_part).count();
    if parts > MAX_PARTS {
        return Err(Error::input(format!(
            "a query is limited to {MAX_PARTS} SELECT and JOIN keywords, got {parts}"
        )));
    }
    Ok(())
}

/// The names of the table at `uri` in a query.
fn names_of(uri: &str) -> Vec<String> {
    let folder = uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let own = Path::new(folder).file_stem().and_then(|stem| stem.to_str());
    let own = own.filter(|own| *own != NAME && !own.is_empty());
    [NAME].into_iter().chain(own).map(str::to_owned).collect()
}

/// Whether a column holds decimals, beside which a number of a query keeps all of its digits.
fn has_decimals(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| field.data_type().is_decimal())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_query_that_reads_is_accepted() {
        for sql in [
            "SELECT 1",
            "select a from t;",
            "WITH x AS (SELECT a FROM t) SELECT * FROM x",
            "VALUES (1), (2)",
            "EXPLAIN ANALYZE SELECT a FROM t",
            "DESCRIBE t",
        ] {
            assert!(SqlQuery::parse(sql).is_ok(), "{sql}");
        }
        for sql in [
            "",
            ";",
            "SELECT",
            "SELECT 1; SELECT 2",
            "CREATE TABLE x AS SELECT 1",
            "CREATE EXTERNAL TABLE x STORED AS CSV LOCATION 'x.csv'",
            "DROP TABLE t",
            "INSERT INTO t VALUES (1)",
            "UPDATE t SET a = 1",
            "DELETE FROM t",
            "COPY t TO 'x.csv'",
            "SET datafusion.execution.batch_size = 1",
            "RESET datafusion.execution.batch_size",
            "EXPLAIN COPY t TO 'x.csv'",
            "EXPLAIN DELETE FROM t",
            "BEGIN",
            "PREPARE x AS SELECT 1",
        ] {
            let refused = SqlQuery::parse(sql).unwrap_err();
            assert!(matches!(refused, Error::InvalidInput { .. }), "{sql}: {refused}");
        }
    }

    #[test]
    fn a_query_that_would_overflow_the_stack_is_refused() {
        let chain = vec!["SELECT 1"; MAX_PARTS + 1].join(" UNION ALL ");
        let refused = SqlQuery::parse(&chain).unwrap_err().to_string();
        assert!(refused.contains("limited to 100 SELECT and JOIN keywords, got 101"), "{refused}");
        let chain = format!("SELECT a FROM t WHERE {}", vec!["a = 1"; 2_000].join(" OR "));
        let refused = SqlQuery::parse(&chain).unwrap_err().to_string();
        assert!(refused.contains("the query has more than"), "{refused}");
    }

    #[test]
    fn a_table_is_called_t_and_as_its_folder() {
        for (uri, names) in [
            ("/data/Board.lance", &["t", "Board"][..]),
            ("s3://bucket/a/flights.v2.lance/", &["t", "flights.v2"]),
            ("/data/plain", &["t", "plain"]),
            ("/data/t.lance", &["t"]),
        ] {
            assert_eq!(names_of(uri), names);
        }
    }
}
