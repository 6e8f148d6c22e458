//! The order of a result, and the end of every plan: sort, limit and computed columns.
//!
//! Owns: the keys of an order, the columns that they add to a read, and the nodes that sort.
//! Does not own: the rows below (`planner`), or the memory of a sort (`dialect`).
//!
//! A sort reads all rows before it returns the first. With a limit of few rows it keeps the first
//! rows alone. Without, it writes sorted runs to temporary files where its memory is full.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SortOptions};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::prelude::SessionContext;
use lancemem_core::types::{Error, Result};

use super::planner::{ScanRequest, no_column};
use super::steps::projected;
use crate::errors::Context;

const ACTION: &str = "planning the order of a scan";

/// Most rows that a sort keeps in memory instead of sorting all rows. DataFusion's top-k cannot
/// write to disk.
const MAX_TOP_ROWS: usize = 16_384;

/// One key of the order of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// A column of the table, or a computed column of the result.
    pub column: String,
    /// Whether the largest value comes first.
    pub descending: bool,
    /// Whether nulls come before all values. By default they come last, in both directions.
    pub nulls_first: bool,
}

impl OrderBy {
    /// The smallest value first, nulls last.
    #[must_use]
    pub fn asc(column: impl Into<String>) -> Self {
        Self { column: column.into(), descending: false, nulls_first: false }
    }

    /// The largest value first, nulls last.
    #[must_use]
    pub fn desc(column: impl Into<String>) -> Self {
        Self { column: column.into(), descending: true, nulls_first: false }
    }

    /// Sets [`Self::nulls_first`].
    #[must_use]
    pub fn with_nulls_first(self, nulls_first: bool) -> Self {
        Self { nulls_first, ..self }
    }
}

/// The order of one result, whose keys are known to be columns.
pub(super) struct Order {
    /// The keys that are columns of the table, each once.
    columns: Vec<String>,
    /// Whether a key is a computed column, so that the sort follows the computation.
    of_computed: bool,
}

impl Order {
    /// The order of `request` over a table with the columns `schema`.
    ///
    /// # Errors
    /// An input error for an unknown column, and for a part of the rows: the parts of a read are
    /// not ordered among each other.
    pub fn of(request: &ScanRequest, schema: &Schema) -> Result<Self> {
        if request.part.is_some() && !request.order_by.is_empty() {
            return Err(Error::input(
                "order_by does not go with part: parts are not ordered among each other; read all \
                 rows in order, or sort the rows of each part and merge them",
            ));
        }
        let mut order = Self { columns: Vec::new(), of_computed: false };
        for key in &request.order_by {
            let is_computed = request.expressions.as_ref().is_some_and(|computed| {
                computed.has(&key.column) && !computed.is_same_column(&key.column)
            });
            if is_computed {
                order.of_computed = true;
            } else if schema.column_with_name(&key.column).is_none() {
                return Err(no_column(&key.column, schema));
            } else if !order.columns.contains(&key.column) {
                order.columns.push(key.column.clone());
            }
        }
        Ok(order)
    }

    /// The columns to read: `shown`, then the keys that are not among them.
    pub fn with_keys(&self, shown: &[String]) -> Vec<String> {
        let hidden = self.columns.iter().filter(|column| !shown.contains(column));
        shown.iter().chain(hidden).cloned().collect()
    }

    /// The result of `request` from `rows`, which have the columns of [`Self::with_keys`] for
    /// `shown`.
    ///
    /// # Errors
    /// An input error for a key of a type that has no order, or an expression that has no plan.
    pub fn result(
        &self,
        session: &SessionContext,
        rows: Arc<dyn ExecutionPlan>,
        request: &ScanRequest,
        shown: &[String],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match &request.expressions {
            None => projected(sorted(rows, request)?, shown),
            Some(expressions) if self.of_computed => {
                let rows = expressions.with_columns(&self.columns).above(session, rows)?;
                projected(sorted(rows, request)?, &expressions.names())
            }
            Some(expressions) => expressions.above(session, sorted(rows, request)?),
        }
    }
}

/// `rows` in the order of `request`, and not more of them than it asks for.
fn sorted(rows: Arc<dyn ExecutionPlan>, request: &ScanRequest) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = rows.schema();
    let keys = request.order_by.iter().map(|key| {
        refuse_unordered(schema.field_with_name(&key.column).context(ACTION)?)?;
        let column = Column::new_with_schema(&key.column, &schema).context(ACTION)?;
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        Ok(PhysicalSortExpr::new(Arc::new(column), options))
    });
    let keys = LexOrdering::new(keys.collect::<Result<Vec<_>>>()?);
    let Some(keys) = keys.filter(|_| request.limit != Some(0)) else {
        return Ok(limited(rows, request));
    };
    let first = request.limit.map(|limit| limit.saturating_add(request.offset));
    let single = Arc::new(CoalescePartitionsExec::new(rows));
    let sort = SortExec::new(keys, single).with_fetch(first.filter(|rows| *rows <= MAX_TOP_ROWS));
    Ok(limited(Arc::new(sort), request))
}

fn limited(rows: Arc<dyn ExecutionPlan>, request: &ScanRequest) -> Arc<dyn ExecutionPlan> {
    if request.limit.is_none() && request.offset == 0 {
        return rows;
    }
    let single = Arc::new(CoalescePartitionsExec::new(rows));
    Arc::new(GlobalLimitExec::new(single, request.offset, request.limit))
}

/// Refuses types that have no order: nested ones, and null.
fn refuse_unordered(key: &Field) -> Result<()> {
    let of = key.data_type();
    if of.is_nested() || of.is_null() {
        return Err(Error::input(format!(
            "rows cannot be ordered by column '{}' of type {of}; order by a column of numbers, \
             text, binary, bool or times",
            key.name()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    use arrow_schema::DataType;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::{collect, displayable};

    use super::*;
    use crate::plan::{Expressions, ReadPart, bounded_session};

    fn schema() -> Schema {
        let list = DataType::new_list(DataType::Int64, true);
        Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8, true),
            Field::new("l", list, true),
        ])
    }

    fn request(keys: &[OrderBy]) -> ScanRequest {
        ScanRequest { order_by: keys.to_vec(), ..ScanRequest::default() }
    }

    fn plan_of(request: &ScanRequest) -> Result<String> {
        let rows = Arc::new(EmptyExec::new(Arc::new(schema())));
        let sorted = sorted(rows, request)?;
        Ok(displayable(sorted.as_ref()).indent(true).to_string())
    }

    #[test]
    fn a_key_that_is_not_shown_is_read_and_left_out_again() {
        let order = Order::of(&request(&[OrderBy::desc("b"), OrderBy::asc("a")]), &schema());
        let shown = ["a".to_owned()];
        assert_eq!(order.unwrap().with_keys(&shown), ["a", "b"]);
    }

    #[test]
    fn a_limit_of_few_rows_is_a_top_k_and_of_many_rows_a_sort() {
        let ordered = |limit, offset| {
            let request = ScanRequest { offset, limit, ..request(&[OrderBy::desc("a")]) };
            plan_of(&request).unwrap()
        };
        assert!(ordered(Some(3), 2).contains("TopK(fetch=5)"));
        assert!(!ordered(Some(MAX_TOP_ROWS), 1).contains("TopK"));
        assert!(!ordered(None, 7).contains("TopK"));
        assert!(!ordered(Some(0), 0).contains("SortExec"));
        assert!(ordered(None, 0).contains("a@0 DESC NULLS LAST"));
    }

    #[test]
    fn unknown_columns_nested_types_and_parts_are_refused() {
        let unknown = Order::of(&request(&[OrderBy::asc("c")]), &schema()).err().unwrap();
        assert!(unknown.to_string().contains("column 'c' is not in the table; it has a, b, l"));
        let nested = plan_of(&request(&[OrderBy::asc("l")])).unwrap_err();
        assert!(nested.to_string().contains("cannot be ordered by column 'l'"), "{nested}");
        let part = Some(ReadPart::new(0, 2).unwrap());
        let parted = ScanRequest { part, ..request(&[OrderBy::asc("a")]) };
        assert!(Order::of(&parted, &schema()).is_err());
    }

    #[test]
    fn a_computed_key_is_sorted_after_it_is_computed() {
        let session = bounded_session().unwrap();
        let named = [("x", "a * 2"), ("b", "b")];
        let named = named.map(|(name, sql)| (name.to_owned(), sql.to_owned()));
        let computed = Expressions::parse(&session, &Arc::new(schema()), &named).unwrap();
        let of = |keys: &[OrderBy]| {
            let computed = Some(computed.clone());
            Order::of(&ScanRequest { expressions: computed, ..request(keys) }, &schema()).unwrap()
        };
        assert!(of(&[OrderBy::asc("x")]).of_computed);
        assert!(!of(&[OrderBy::asc("b"), OrderBy::asc("a")]).of_computed);
    }

    #[tokio::test]
    async fn nulls_come_last_in_both_directions_unless_they_are_asked_for_first() {
        let session = bounded_session().unwrap();
        let ints = Schema::new(vec![Field::new("a", DataType::Int64, true)]);
        let rows: ArrayRef = Arc::new(Int64Array::from(vec![Some(2), None, Some(1)]));
        let batch = RecordBatch::try_new(Arc::new(ints), vec![rows]).unwrap();
        for (key, expected) in [
            (OrderBy::asc("a"), [Some(1), Some(2), None]),
            (OrderBy::desc("a"), [Some(2), Some(1), None]),
            (OrderBy::desc("a").with_nulls_first(true), [None, Some(2), Some(1)]),
        ] {
            let rows = session.read_batch(batch.clone()).unwrap();
            let rows = rows.create_physical_plan().await.unwrap();
            let plan = sorted(rows, &request(&[key])).unwrap();
            let batches = collect(plan, session.task_ctx()).await.unwrap();
            let values = batches[0].column(0).as_primitive::<Int64Type>();
            assert_eq!(values.iter().collect::<Vec<_>>(), expected);
        }
    }
}
