//! The planner of scans: which columns each source reads and what runs where.
//!
//! ```text
//!   limit, projection
//!     condition                      after the choice: it must see only newest rows
//!       union
//!         NewestRows <- Lance scan of the base      key conjuncts pushed down
//!         NewestRows <- Lance scan of each SSTable  key conjuncts pushed down
//!         NewestRows <- MemTableScan of each MemTable
//! ```
//!
//! Owns: the shape above. With nothing above the base table it is a plain Lance scan.
//! Does not own: execution.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use datafusion::logical_expr::Expr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use datafusion::prelude::{SessionConfig, SessionContext};
use lance::Dataset;
use lancemem_core::format::TOMBSTONE;
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Error, Freshness, Result};

use super::Filter;
use super::memtable_scan::MemTableScanExec;
use crate::errors::Context;
use crate::merge::{KeyChoice, NewestRowsExec};
use crate::view::{ReadView, Source};

/// What a scan asks for, resolved.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Columns of the result, in order; all where absent, none to count rows.
    pub columns: Option<Vec<String>>,
    /// The condition.
    pub filter: Option<Filter>,
    /// Most rows of the result.
    pub limit: Option<usize>,
}

/// A session whose SQL keeps the case of names, as Arrow and Lance do.
pub fn session() -> SessionContext {
    let config =
        SessionConfig::new().set_bool("datafusion.sql_parser.enable_ident_normalization", false);
    SessionContext::new_with_config(config)
}

/// The plan of one scan over one cut.
///
/// # Errors
/// An input error for an unknown column.
pub async fn plan_scan(
    session: &SessionContext,
    view: &ReadView,
    request: &ScanRequest,
) -> Result<Arc<dyn ExecutionPlan>> {
    let output = output_columns(view, request)?;
    let needed = needed_columns(view, request, &output)?;
    let rows = if view.is_base_only() {
        let filter = request.filter.as_ref().map(|filter| filter.expression().clone());
        relabelled(scan_dataset(&view.base, &needed, None, filter).await?, &needed)
    } else {
        let chosen = choose_newest(view, request, &needed).await?;
        filtered(session, chosen, request.filter.as_ref())?
    };
    let limited: Arc<dyn ExecutionPlan> = match request.limit {
        None => rows,
        Some(limit) => {
            let single = Arc::new(CoalescePartitionsExec::new(rows));
            Arc::new(GlobalLimitExec::new(single, 0, Some(limit)))
        }
    };
    projected(limited, &output)
}

fn output_columns(view: &ReadView, request: &ScanRequest) -> Result<Vec<String>> {
    let Some(columns) = &request.columns else {
        return Ok(view.schema.fields().iter().map(|field| field.name().clone()).collect());
    };
    for column in columns {
        if view.schema.column_with_name(column).is_none() {
            let known: Vec<&str> =
                view.schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::input(format!(
                "column '{column}' is not in the table; it has {}",
                known.join(", ")
            )));
        }
    }
    Ok(columns.clone())
}

/// The columns that survive the choice: those of the result and of the condition. Never none,
/// because a Lance scan of no column gives no rows to count.
fn needed_columns(view: &ReadView, request: &ScanRequest, output: &[String]) -> Result<SchemaRef> {
    let mut names: BTreeSet<String> = output.iter().cloned().collect();
    if let Some(filter) = &request.filter {
        names.extend(filter.columns());
    }
    if names.is_empty() {
        let first = view.key.first().or_else(|| view.schema.fields().first().map(|f| f.name()));
        names.extend(first.cloned());
    }
    let fields: Vec<_> =
        view.schema.fields().iter().filter(|field| names.contains(field.name())).cloned().collect();
    if fields.is_empty() {
        return Err(Error::input("the table has no columns"));
    }
    Ok(Arc::new(Schema::new(fields)))
}

async fn choose_newest(
    view: &ReadView,
    request: &ScanRequest,
    needed: &SchemaRef,
) -> Result<Arc<dyn ExecutionPlan>> {
    let choice =
        if view.key.is_empty() { KeyChoice::default() } else { KeyChoice::of(view).await? };
    let choice = Arc::new(choice);
    let on_key = request.filter.as_ref().and_then(|filter| filter.key_part(&view.key));
    let newest = |input, freshness| {
        let key = view.key.clone();
        Arc::new(NewestRowsExec::new(input, choice.clone(), freshness, key, needed.clone()))
            as Arc<dyn ExecutionPlan>
    };
    let with_key = with_key_columns(view, needed);
    let base = scan_dataset(&view.base, &with_key, None, on_key.clone()).await?;
    let mut arms = vec![newest(base, Freshness::Base)];
    for (freshness, source) in view.sources() {
        let rows = match source {
            Source::SsTable(run) => {
                scan_dataset(&run.dataset, &with_key, Some(TOMBSTONE), on_key.clone()).await?
            }
            Source::MemTable(rows) => scan_memtable(rows, &with_key)?,
        };
        arms.push(newest(rows, freshness));
    }
    UnionExec::try_new(arms).context("planning a scan")
}

fn with_key_columns(view: &ReadView, needed: &SchemaRef) -> SchemaRef {
    let fields: Vec<_> = view
        .schema
        .fields()
        .iter()
        .filter(|field| {
            needed.column_with_name(field.name()).is_some() || view.key.contains(field.name())
        })
        .cloned()
        .collect();
    Arc::new(Schema::new(fields))
}

async fn scan_dataset(
    dataset: &Dataset,
    columns: &SchemaRef,
    extra: Option<&str>,
    filter: Option<Expr>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let action = "planning a scan";
    let mut names: Vec<&str> = columns.fields().iter().map(|field| field.name().as_str()).collect();
    names.extend(extra);
    let mut scanner = dataset.scan();
    scanner.project(&names).context(action)?;
    if let Some(filter) = filter {
        scanner.filter_expr(filter);
    }
    scanner.create_plan().await.context(action)
}

fn scan_memtable(view: &MemTableView, columns: &SchemaRef) -> Result<Arc<dyn ExecutionPlan>> {
    let indices = columns
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .chain(std::iter::once(TOMBSTONE))
        .map(|name| view.schema().index_of(name))
        .collect::<Result<Vec<_>, _>>()
        .context("planning a scan of a MemTable")?;
    let scan = MemTableScanExec::try_new(view.clone(), indices).context("planning a scan")?;
    Ok(Arc::new(scan))
}

/// A base scan under the fields that the result promises.
fn relabelled(base: Arc<dyn ExecutionPlan>, needed: &SchemaRef) -> Arc<dyn ExecutionPlan> {
    let no_key = Arc::from(Vec::new());
    let choice = Arc::new(KeyChoice::default());
    Arc::new(NewestRowsExec::new(base, choice, Freshness::Base, no_key, needed.clone()))
}

fn filtered(
    session: &SessionContext,
    rows: Arc<dyn ExecutionPlan>,
    filter: Option<&Filter>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(filter) = filter else { return Ok(rows) };
    let condition = filter.physical(session, &rows.schema())?;
    Ok(Arc::new(FilterExec::try_new(condition, rows).context("planning the filter")?))
}

fn projected(rows: Arc<dyn ExecutionPlan>, output: &[String]) -> Result<Arc<dyn ExecutionPlan>> {
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
