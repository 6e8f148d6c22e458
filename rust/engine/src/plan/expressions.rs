//! Columns that are computed from the columns of a row.
//!
//! Owns: the expressions of a projection, the columns that they read, and their evaluation over a
//! scan or over a batch in memory.
//! Does not own: what SQL means, which conditions and expressions share (`filter`), or where the
//! projection of a scan stands (`planner`).

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, FieldRef, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::prelude::SessionContext;
use lancemem_core::types::{Error, Result};

use super::dialect::session;
use super::filter::{columns_of, df_schema, invalid, parsed, physical, resolved};
use crate::errors::Context;

/// The name of a computed column and its SQL.
pub type NamedSql = (String, String);

/// Computed columns with their types resolved, in the order of the result.
#[derive(Clone, Debug)]
pub struct Expressions {
    outputs: Vec<(String, Expr)>,
}

impl Expressions {
    /// Parses SQL over the columns of `schema`, for example `price * 2`. Names keep their case.
    ///
    /// # Errors
    /// An input error for SQL that does not parse or names an unknown column.
    pub fn parse(
        session: &SessionContext,
        schema: &SchemaRef,
        columns: &[NamedSql],
    ) -> Result<Self> {
        Self::over(session, &Arc::new(df_schema(schema)?), columns)
    }

    fn over(
        session: &SessionContext,
        schema: &Arc<DFSchema>,
        columns: &[NamedSql],
    ) -> Result<Self> {
        let outputs = columns.iter().map(|(name, sql)| {
            if name.contains('\0') {
                // Arrow's C interface ends a name there, and arrow 58 panics on it.
                let shown = name.escape_default();
                return Err(Error::input(format!("the column name '{shown}' has a NUL byte")));
            }
            let action = format!("the expression '{sql}' of column '{name}' is not valid");
            let expression = parsed(session, schema, sql, &action)?;
            refuse_ambiguous(&expression, schema, &action)?;
            let expression = resolved(expression, schema, &action, |it, _| Ok(it))?;
            Ok((name.clone(), expression))
        });
        Ok(Self { outputs: outputs.collect::<Result<_>>()? })
    }

    /// Names of the columns that the expressions read, each once.
    #[must_use]
    pub fn columns(&self) -> Vec<String> {
        let names = self.outputs.iter().flat_map(|(_, expression)| columns_of(expression));
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Names of the computed columns, in the order of the result.
    pub(super) fn names(&self) -> Vec<String> {
        self.outputs.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether a computed column has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.outputs.iter().any(|(output, _)| output == name)
    }

    /// Whether the computed column of this name is the table's column of the same name, unchanged.
    pub(super) fn is_same_column(&self, name: &str) -> bool {
        let is_it = |of: &Expr| matches!(of, Expr::Column(column) if column.name == name);
        self.outputs.iter().any(|(output, expression)| output == name && is_it(expression))
    }

    /// The same, and behind them those of the table's `columns` whose names no computed column has.
    pub(super) fn with_columns(&self, columns: &[String]) -> Self {
        let others = columns.iter().filter(|name| !self.has(name)).map(|name| {
            let column = Column::new_unqualified(name.clone());
            (name.clone(), Expr::Column(column))
        });
        Self { outputs: self.outputs.iter().cloned().chain(others).collect() }
    }

    /// The computed columns of the rows of a plan.
    ///
    /// # Errors
    /// An input error where the rows lack a column.
    pub(super) fn above(
        &self,
        session: &SessionContext,
        rows: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let action = "planning computed columns";
        let schema = df_schema(&rows.schema())?;
        let columns = self.outputs.iter().map(|(name, expression)| {
            let value = physical(session, expression.clone(), &schema, action)?;
            Ok((value, name.clone()))
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(ProjectionExec::try_new(columns, rows).context(action)?))
    }
}

/// The computed columns of rows in memory. A column named `a.b` is the column `b` of `a` in SQL.
///
/// # Errors
/// An input error for SQL that does not parse, names an unknown column, or fails for a row.
pub fn evaluate(rows: &RecordBatch, columns: &[NamedSql]) -> Result<RecordBatch> {
    let action = "evaluating expressions";
    let session = session();
    let (qualifiers, fields): (Vec<_>, Vec<FieldRef>) =
        rows.schema_ref().fields().iter().map(qualified).unzip();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let of_rows = DFSchema::from_field_specific_qualified_schema(qualifiers, &schema);
    let of_rows = Arc::new(of_rows.context(action)?);
    let expressions = Expressions::over(&session, &of_rows, columns)?;
    let rows = batch(schema, rows.columns().to_vec(), rows.num_rows())?;
    let mut fields = Vec::with_capacity(columns.len());
    let mut values = Vec::with_capacity(columns.len());
    for (name, expression) in expressions.outputs {
        let action = format!("{action}: column '{name}'");
        let value = physical(&session, expression, &of_rows, &action)?;
        let value = value.evaluate(&rows).and_then(|value| value.into_array(rows.num_rows()));
        let value = value.map_err(|error| invalid(&action, error))?;
        fields.push(Field::new(name, value.data_type().clone(), true));
        values.push(value);
    }
    batch(Arc::new(Schema::new(fields)), values, rows.num_rows())
}

fn batch(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema, columns, &options);
    batch.context("evaluating expressions")
}

/// The field of a column, with the part of its name before the first point as its qualifier.
fn qualified(column: &FieldRef) -> (Option<TableReference>, FieldRef) {
    match column.name().split_once('.') {
        Some((table, name)) => {
            let field = column.as_ref().clone().with_name(name);
            (Some(TableReference::bare(table)), Arc::new(field))
        }
        None => (None, column.clone()),
    }
}

/// Refuses a name that several columns have under different qualifiers. DataFusion's planner takes
/// the first of them.
fn refuse_ambiguous(expression: &Expr, schema: &DFSchema, action: &str) -> Result<()> {
    for column in expression.column_refs() {
        let known = schema.qualified_fields_with_unqualified_name(&column.name);
        if column.relation.is_none() && known.len() > 1 {
            let of = known.iter().filter_map(|(table, _)| *table);
            let choices: Vec<String> = of.map(|table| format!("{table}.{}", column.name)).collect();
            return Err(Error::input(format!(
                "{action}: column '{}' is ambiguous; write {}",
                column.name,
                choices.join(" or ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringArray};

    use super::*;

    fn rows() -> RecordBatch {
        let columns: [(&str, ArrayRef); 3] = [
            ("source.n", Arc::new(Int64Array::from(vec![1, 2, 3]))),
            ("target.n", Arc::new(Int64Array::from(vec![Some(10), None, Some(30)]))),
            ("name", Arc::new(StringArray::from(vec!["a", "b", "c"]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn evaluated(sql: &str) -> Result<RecordBatch> {
        evaluate(&rows(), &[("out".to_owned(), sql.to_owned())])
    }

    #[test]
    fn expressions_name_the_columns_of_both_sides() {
        let sums = evaluated("coalesce(target.n, 0) + source.n").unwrap();
        assert_eq!(sums.schema_ref().field(0).name(), "out");
        assert_eq!(sums.column(0).as_primitive::<Int64Type>().values(), &[11, 2, 33]);
        let names = evaluated("CASE WHEN source.n > 2 THEN name ELSE 'x' END").unwrap();
        assert_eq!(names.column(0).as_string::<i32>().value(2), "c");
        assert_eq!(evaluated("7").unwrap().num_rows(), 3);
        assert_eq!(evaluate(&rows(), &[]).unwrap().num_rows(), 3);
        let named = ("a\0b".to_owned(), "1".to_owned());
        assert!(matches!(evaluate(&rows(), &[named]), Err(Error::InvalidInput { .. })));
    }

    #[test]
    fn a_name_that_is_unknown_or_ambiguous_is_an_input_error_and_so_is_an_overflow() {
        for (sql, text) in [
            ("source.m", "'source.m' of column 'out'"),
            ("m", "'m' of column 'out'"),
            ("n + 1", "write source.n or target.n"),
            ("source.n +", "is not valid"),
            ("sum(source.n)", "an aggregate"),
            ("source.n * 9223372036854775807", "column 'out'"),
        ] {
            match evaluated(sql).unwrap_err() {
                Error::InvalidInput { message: error, .. } => {
                    assert!(error.contains(text), "{sql}: {error}");
                }
                other => panic!("{sql}: {other}"),
            }
        }
    }

    #[test]
    fn a_projection_reads_the_columns_of_its_expressions() {
        let session = session();
        let fields =
            ["a", "b", "c"].map(|name| Field::new(name, arrow_schema::DataType::Int64, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let named = [("x", "c + a"), ("y", "1"), ("z", "a")];
        let named = named.map(|(name, sql)| (name.to_owned(), sql.to_owned()));
        let expressions = Expressions::parse(&session, &schema, &named).unwrap();
        assert_eq!(expressions.columns(), ["a", "c"]);
    }
}
