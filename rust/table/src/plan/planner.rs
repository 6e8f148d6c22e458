//! The planner of scans: which columns each source reads and what runs where.
//!
//! ```text
//!   limit
//!     union, one arm a source:
//!       projection
//!         the rest of the condition
//!           NewestRows           by position, by key, or all rows
//!             Lance scan of the base or of an SSTable, or MemTableScan
//!                                with the part of the condition that cannot fail
//! ```
//!
//! A row is kept or not whatever the condition says, so a condition may run before that choice
//! as well as after it; only one that could fail on a superseded row has to wait. Where an
//! earlier scan of the same view left its dead rows, rows are told by position and keys are not
//! read; else they are told by key. A whole scan by key leaves the dead rows for the next one.
//! A source whose keys cannot meet the condition has no arm, and is not compared with (`prune`).
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
use super::prune::{Pruned, prune};
use crate::errors::Context;
use crate::merge::{LazyChoice, MaskRecorder, MergeCache, Newest, NewestRowsExec, ViewMask};
use crate::view::{ReadView, Source, SsTableHandle};

/// What a scan asks for, resolved.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Columns of the result, in order; all where absent, none to count rows.
    pub columns: Option<Vec<String>>,
    /// The condition.
    pub filter: Option<Filter>,
    /// Rows to leave out first.
    pub offset: usize,
    /// Most rows of the result.
    pub limit: Option<usize>,
}

/// How a scan runs.
#[derive(Clone, Debug)]
pub struct ScanPlan {
    /// The nodes.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The sources that it leaves out.
    pub pruned: Vec<Pruned>,
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
    view: &Arc<ReadView>,
    cache: &Arc<MergeCache>,
    request: &ScanRequest,
) -> Result<ScanPlan> {
    let output = output_columns(view, request)?;
    let pruned = prune(view, request.filter.as_ref()).await?;
    let planner = Planner::new(session, view, &pruned, cache, request, &output);
    let mut arms = vec![planner.base().await?];
    for (arm, (freshness, source)) in (1..).zip(view.sources()) {
        if pruned.iter().any(|it| it.source == arm - 1) {
            continue;
        }
        arms.push(match source {
            Source::SsTable(run) => planner.run(arm, freshness, run).await?,
            Source::MemTable(rows) => planner.memtable(arm, freshness, rows)?,
        });
    }
    let rows = match <[_; 1]>::try_from(arms) {
        Ok([base]) => base,
        Err(arms) => UnionExec::try_new(arms).context("planning a scan")?,
    };
    if request.limit.is_none() && request.offset == 0 {
        return Ok(ScanPlan { plan: rows, pruned });
    }
    let single = Arc::new(CoalescePartitionsExec::new(rows));
    let plan = Arc::new(GlobalLimitExec::new(single, request.offset, request.limit));
    Ok(ScanPlan { plan, pruned })
}

/// What all arms of one plan have in common.
struct Planner<'a> {
    session: &'a SessionContext,
    view: &'a ReadView,
    /// Whether any source above the base table is left.
    is_base_only: bool,
    /// The part of the condition that sources run themselves, and what is left of it.
    pushed: Option<Expr>,
    rest: Option<Filter>,
    whole: Option<Filter>,
    output: &'a [String],
    mask: Option<Arc<ViewMask>>,
    choice: Arc<LazyChoice>,
    recorder: Option<Arc<MaskRecorder>>,
}

impl<'a> Planner<'a> {
    fn new(
        session: &'a SessionContext,
        view: &'a Arc<ReadView>,
        pruned: &[Pruned],
        cache: &Arc<MergeCache>,
        request: &ScanRequest,
        output: &'a [String],
    ) -> Self {
        let left = if pruned.is_empty() {
            view.clone()
        } else {
            Arc::new(view.without(|place| pruned.iter().any(|it| it.source == place)))
        };
        let is_base_only = left.is_base_only();
        let chooses = !view.key.is_empty() && !is_base_only;
        let mask = if chooses { cache.mask(view) } else { None };
        let is_whole = request.filter.is_none() && request.limit.is_none() && request.offset == 0;
        let records = chooses && is_whole && mask.is_none();
        let arms = 1 + view.sources().count();
        let (pushed, rest) = request.filter.as_ref().map_or((None, None), Filter::split_fallible);
        Self {
            session,
            view,
            is_base_only,
            pushed,
            rest,
            whole: request.filter.clone(),
            output,
            mask,
            choice: Arc::new(if pruned.is_empty() {
                LazyChoice::new(left, cache.clone())
            } else {
                LazyChoice::of_part(view.clone(), left, cache.clone())
            }),
            recorder: records
                .then(|| Arc::new(MaskRecorder::new(view.clone(), cache.clone(), arms))),
        }
    }

    async fn base(&self) -> Result<Arc<dyn ExecutionPlan>> {
        let newest = match &self.mask {
            _ if self.view.key.is_empty() || self.is_base_only => Newest::All,
            Some(mask) => Newest::ByPosition(mask.arm(0)),
            None => self.by_key(Freshness::Base),
        };
        self.dataset(0, &self.view.base, newest, None).await
    }

    async fn run(
        &self,
        arm: usize,
        freshness: Freshness,
        run: &SsTableHandle,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let newest = match &self.mask {
            Some(mask) => Newest::ByPosition(mask.arm(arm)),
            None => self.above_base(arm, freshness),
        };
        self.dataset(arm, &run.dataset, newest, Some(run.name().into())).await
    }

    fn memtable(
        &self,
        arm: usize,
        freshness: Freshness,
        rows: &MemTableView,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let newest = self.above_base(arm, freshness);
        let kept = self.columns(self.whole.as_ref());
        let mut read = self.with_key(&kept, &newest);
        read.push(TOMBSTONE.to_owned());
        let scan = scan_memtable(rows, &read)?;
        let rows = self.newest(arm, scan, newest, None, &kept);
        projected(filtered(self.session, rows, self.whole.as_ref())?, self.output)
    }

    /// The newest source of its shard has only newest rows.
    fn above_base(&self, arm: usize, freshness: Freshness) -> Newest {
        if self.view.key.is_empty() || self.view.is_newest_source(arm - 1) {
            return Newest::All;
        }
        self.by_key(freshness)
    }

    fn by_key(&self, freshness: Freshness) -> Newest {
        Newest::ByKey { choice: self.choice.clone(), freshness, key: self.view.key.clone() }
    }

    async fn dataset(
        &self,
        arm: usize,
        dataset: &Dataset,
        newest: Newest,
        run: Option<Arc<str>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let action = "planning a scan";
        let kept = self.columns(self.rest.as_ref());
        let mut read = self.with_key(&kept, &newest);
        if run.is_some() && !matches!(newest, Newest::ByPosition(_)) {
            read.push(TOMBSTONE.to_owned());
        }
        let mut scanner = dataset.scan();
        scanner.project(&read).context(action)?;
        // Lance gives no rows to count where it reads no column.
        let is_empty = read.is_empty();
        if is_empty || self.recorder.is_some() || matches!(newest, Newest::ByPosition(_)) {
            scanner.with_row_address();
        }
        if let Some(pushed) = &self.pushed {
            scanner.filter_expr(pushed.clone());
        }
        let scan = scanner.create_plan().await.context(action)?;
        self.finished(arm, scan, newest, run, &kept)
    }

    /// The steps above the scan of a dataset; `kept` are the columns that survive the choice.
    fn finished(
        &self,
        arm: usize,
        scan: Arc<dyn ExecutionPlan>,
        newest: Newest,
        run: Option<Arc<str>>,
        kept: &[String],
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = self.newest(arm, scan, newest, run, kept);
        projected(filtered(self.session, rows, self.rest.as_ref())?, self.output)
    }

    fn newest(
        &self,
        arm: usize,
        scan: Arc<dyn ExecutionPlan>,
        newest: Newest,
        run: Option<Arc<str>>,
        kept: &[String],
    ) -> Arc<dyn ExecutionPlan> {
        let record = self.recorder.clone().map(|recorder| (recorder, arm));
        let node = NewestRowsExec::new(scan, newest, fields(&self.view.schema, kept));
        Arc::new(node.recording(record).of_run(run))
    }

    /// Columns of the result and of `filter`, in the order of the table.
    fn columns(&self, filter: Option<&Filter>) -> Vec<String> {
        let mut names: BTreeSet<String> = self.output.iter().cloned().collect();
        names.extend(filter.map(Filter::columns).unwrap_or_default());
        in_order(&self.view.schema, |name| names.contains(name))
    }

    fn with_key(&self, kept: &[String], newest: &Newest) -> Vec<String> {
        let by_key = matches!(newest, Newest::ByKey { .. });
        let is_key = |name: &String| by_key && self.view.key.contains(name);
        in_order(&self.view.schema, |name| kept.contains(name) || is_key(name))
    }
}

fn in_order(schema: &Schema, wanted: impl Fn(&String) -> bool) -> Vec<String> {
    schema.fields().iter().map(|field| field.name()).filter(|name| wanted(name)).cloned().collect()
}

fn fields(schema: &Schema, names: &[String]) -> SchemaRef {
    let fields: Vec<_> =
        schema.fields().iter().filter(|field| names.contains(field.name())).cloned().collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
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

fn scan_memtable(view: &MemTableView, columns: &[String]) -> Result<Arc<dyn ExecutionPlan>> {
    let indices = columns
        .iter()
        .map(|name| view.schema().index_of(name))
        .collect::<Result<Vec<_>, _>>()
        .context("planning a scan of a MemTable")?;
    let scan = MemTableScanExec::try_new(view.clone(), indices).context("planning a scan")?;
    Ok(Arc::new(scan))
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
