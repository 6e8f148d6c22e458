//! Steps that scans and searches share.
//!
//! Owns: the columns of a dataset by name, and the nodes of a condition and of a projection.
//! Does not own: the plans that they are part of (`planner`).

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::prelude::SessionContext;
use lance::Dataset;
use lance_core::datatypes::{Field as LanceField, Schema as LanceSchema};
use lancemem_core::types::Result;

use super::Filter;
use crate::errors::Context;

/// The columns `names` of a dataset. Lance's own projection by name compares each with all before
/// it and takes seconds for thousands.
pub(crate) fn columns_of(dataset: &Dataset, names: &[String]) -> lance_core::Result<LanceSchema> {
    let schema = dataset.schema();
    let fields: HashMap<&str, &LanceField> =
        schema.fields.iter().map(|field| (field.name.as_str(), field)).collect();
    let field = |name: &String| {
        let found = fields.get(name.as_str()).copied().cloned();
        found.ok_or_else(|| lance_core::Error::invalid_input(format!("no column '{name}'")))
    };
    let fields = names.iter().map(field).collect::<lance_core::Result<_>>()?;
    Ok(LanceSchema { fields, metadata: schema.metadata.clone() })
}

/// The rows that meet `filter`.
///
/// # Errors
/// An input error where a column of the filter is missing.
pub(crate) fn filtered(
    session: &SessionContext,
    rows: Arc<dyn ExecutionPlan>,
    filter: Option<&Filter>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(filter) = filter else { return Ok(rows) };
    let condition = filter.physical(session, &rows.schema())?;
    Ok(Arc::new(FilterExec::try_new(condition, rows).context("planning the filter")?))
}

/// The columns `output` of `rows`, in this order.
///
/// # Errors
/// An input error where one of them is missing.
pub(crate) fn projected(
    rows: Arc<dyn ExecutionPlan>,
    output: &[String],
) -> Result<Arc<dyn ExecutionPlan>> {
    let schema = rows.schema();
    let names = schema.fields().iter().map(|field| field.name());
    if names.eq(output.iter()) {
        return Ok(rows);
    }
    let expressions = output
        .iter()
        .map(|name| {
            let column = Column::new_with_schema(name, &schema).context("planning a projection")?;
            Ok((Arc::new(column) as Arc<dyn PhysicalExpr>, name.clone()))
        })
        .collect::<Result<Vec<_>>>()?;
    let projection = ProjectionExec::try_new(expressions, rows).context("planning a projection")?;
    Ok(Arc::new(projection))
}

/// The wanted columns, in the order of `schema`.
pub(crate) fn in_order(schema: &Schema, wanted: impl Fn(&String) -> bool) -> Vec<String> {
    schema.fields().iter().map(|field| field.name()).filter(|name| wanted(name)).cloned().collect()
}

/// The schema of the columns `names`.
pub(crate) fn fields(schema: &Schema, names: &[String]) -> SchemaRef {
    let fields: Vec<_> =
        schema.fields().iter().filter(|field| names.contains(field.name())).cloned().collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
