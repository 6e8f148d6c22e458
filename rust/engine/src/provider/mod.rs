//! DataFusion's `TableProvider` of a table, and SQL over live data.
//!
//! Owns: [`TableSource`]: the snapshot that each query reads, and passing the query's projection
//! and conditions to the planner. `Table::sql`, which queries one table (`sql`).
//! Does not own: the plan, or which conditions it takes (`plan`).

mod own_errors;
mod sql;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use lancemem_core::types::Error;
use tokio::runtime::Handle;

use self::own_errors::OwnErrors;
use crate::errors::external;
use crate::plan::{self, ScanRequest, pushdown};
use crate::snapshot::{Consistency, Snapshot};
use crate::table::{LiveJob, Table};

/// A table, or one snapshot of it, as a source of rows for DataFusion.
pub struct TableSource {
    table: Arc<Table>,
    /// The columns of every scan: a planned query relies on them.
    schema: SchemaRef,
    read_at: ReadAt,
    session: SessionContext,
    runtime: Option<Handle>,
}

#[derive(Clone)]
enum ReadAt {
    /// A new snapshot for each scan.
    Newest(Consistency, Vec<Arc<dyn LiveJob>>),
    /// Always this snapshot, so that the scans of one query agree.
    Snapshot(Arc<Snapshot>),
}

impl TableSource {
    /// Reads a new snapshot for each scan of a query. `jobs` are running jobs of this process whose
    /// MemTables a live scan sees.
    #[must_use]
    pub fn new(table: Arc<Table>, consistency: Consistency, jobs: Vec<Arc<dyn LiveJob>>) -> Self {
        let schema = table.schema();
        Self::over(table, schema, ReadAt::Newest(consistency, jobs))
    }

    /// Reads one snapshot that [`Table::snapshot`] pinned.
    #[must_use]
    pub fn of_snapshot(table: Arc<Table>, snapshot: Arc<Snapshot>) -> Self {
        let schema = snapshot.schema.clone();
        Self::over(table, schema, ReadAt::Snapshot(snapshot))
    }

    fn over(table: Arc<Table>, schema: SchemaRef, read_at: ReadAt) -> Self {
        Self { table, schema, read_at, session: plan::session(), runtime: None }
    }

    /// Plans on `runtime`, for a caller whose own runtime belongs to another copy of Tokio than the
    /// one that this library is linked with.
    #[must_use]
    pub fn on(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    fn request(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
    ) -> Result<ScanRequest, Error> {
        let name = |index: &usize| -> Result<String, Error> {
            let field = self.schema.fields().get(*index);
            let field = field.ok_or_else(|| {
                let columns = self.schema.fields().len();
                Error::input(format!(
                    "table {} has {columns} columns, no {index}",
                    self.table.uri()
                ))
            })?;
            Ok(field.name().clone())
        };
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let columns = projection.unwrap_or(&all).iter().map(name);
        let columns = Some(columns.collect::<Result<Vec<_>, Error>>()?);
        let filter = pushdown::all_of(&self.schema, filters)?;
        Ok(ScanRequest { columns, filter, ..ScanRequest::default() })
    }
}

impl fmt::Debug for TableSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TableSource({})", self.table.uri())
    }
}

#[async_trait]
impl TableProvider for TableSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let answer = |filter: &&Expr| {
            if pushdown::takes(&self.session, &self.schema, filter) {
                TableProviderFilterPushDown::Exact
            } else {
                TableProviderFilterPushDown::Unsupported
            }
        };
        Ok(filters.iter().map(answer).collect())
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        // Not pushed down: the session applies the limit, and stops reading then.
        let _ = limit;
        let request = self.request(projection, filters).map_err(external)?;
        let (read_at, schema) = (self.read_at.clone(), self.schema.clone());
        let planned = plan_on(self.table.clone(), read_at, schema, self.session.clone(), request);
        let planned = match &self.runtime {
            Some(runtime) => runtime.spawn(planned).await.map_err(|error| {
                let ended = format!("planning a scan ended early: {error}");
                external(Error::internal(ended).with_source(error))
            })?,
            None => planned.await,
        };
        planned.map_err(external)
    }
}

/// `schema` has the columns of every scan: a planned query relies on them.
async fn plan_on(
    table: Arc<Table>,
    read_at: ReadAt,
    schema: SchemaRef,
    session: SessionContext,
    request: ScanRequest,
) -> Result<Arc<dyn ExecutionPlan>, Error> {
    let snapshot = match read_at {
        ReadAt::Newest(consistency, jobs) => table.snapshot(consistency, &jobs).await?,
        ReadAt::Snapshot(snapshot) => snapshot,
    };
    refuse_changed(&table, &schema, &snapshot, &request)?;
    let plan = table.plan(&session, &snapshot, &request).await?.plan;
    Ok(Arc::new(OwnErrors::of(plan, snapshot.base.clone())))
}

/// Refuses columns that have changed since the table was registered with a session: the plan of the
/// query contains their names and types.
fn refuse_changed(
    table: &Table,
    schema: &SchemaRef,
    snapshot: &Snapshot,
    request: &ScanRequest,
) -> Result<(), Error> {
    let mut used: BTreeSet<String> = request.columns.iter().flatten().cloned().collect();
    used.extend(request.filter.iter().flat_map(plan::Filter::columns));
    let is_same = |name: &String| {
        let of = |schema: &SchemaRef| Some(schema.field_with_name(name).ok()?.data_type().clone());
        of(schema) == of(&snapshot.schema)
    };
    used.iter().find(|name| !is_same(name)).map_or(Ok(()), |name| {
        Err(Error::input(format!(
            "column '{name}' of table {} has changed since the table was registered; register it \
             again",
            table.uri()
        )))
    })
}

#[cfg(test)]
mod tests;
