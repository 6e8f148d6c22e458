//! A new index of one base version, checked before it is built.
//!
//! Owns: the checks that need the table: column, name, metric and rows. Then the call of Lance.
//! Does not own: the commit and its repetition (`indexes`), or Lance's parameters (`params`).

use arrow_schema::DataType;
use lance::Dataset;
use lance::index::DatasetIndexExt;
use lance::index::vector::{
    StageParams, VectorIndexParams, has_vectors_to_train, pq_quantizer_minimum_rows,
};
use lance_core::datatypes::Field;
use lance_index::frag_reuse::FRAG_REUSE_INDEX_NAME;
use lance_index::mem_wal::MEM_WAL_INDEX_NAME;
use lancemem_core::types::{Error, Result, TypeName};
use uuid::Uuid;

use super::listing::Listed;
use super::options::VectorIndexOptions;
use super::params::Params;
use super::{CREATING as ACTION, TableIndexOptions, TableIndexType};
use crate::compaction::committing;
use crate::errors::{BaseContext, Context};
use crate::holds::{Hold, pass};
use crate::metric::Metric;
use crate::sstable::random_number;

/// An index to build.
#[derive(Debug)]
pub(super) struct PlannedIndex {
    pub name: String,
    column: String,
    of: TableIndexType,
    params: Params,
    replace: bool,
    /// The id of its segment.
    pub id: Uuid,
}

impl PlannedIndex {
    /// The index of type `of` on `column` of `base`.
    ///
    /// # Errors
    /// An input error for an index that the table cannot have; those of a read of the base table.
    pub async fn new(
        base: &Dataset,
        column: &str,
        of: TableIndexType,
        options: &TableIndexOptions,
    ) -> Result<Self> {
        options.refuse_unused(of)?;
        let field = base.schema().field(column).ok_or_else(|| unknown(base, column))?;
        let found = field.data_type();
        if !of.fits(&found) {
            return Err(Error::input(format!(
                "column '{column}' of table {} holds {}; an index of type {of} takes {}",
                base.uri(),
                TypeName(&found),
                of.columns()
            )));
        }
        let params = match &found {
            DataType::FixedSizeList(element, width) if of.is_vector() => {
                let metric = metric(column, element.data_type(), &options.vectors)?;
                let width = usize::try_from(*width).unwrap_or_default();
                Params::of_vectors(of, metric, width, &options.vectors)?
            }
            _ => Params::of_values(of, &options.text)?,
        };
        let listed = Listed::of(base).await?;
        let name = free_name(base, &listed, column, field, of, options)?;
        let planned = Self {
            name,
            column: column.to_owned(),
            of,
            params,
            replace: options.replace,
            id: new_id()?,
        };
        planned.check_rows(base, &options.vectors).await?;
        Ok(planned)
    }

    /// Refuses an index of vectors that the rows of `base` cannot train. Lance would commit an
    /// index of no rows, or one of fewer partitions than were asked for.
    async fn check_rows(&self, base: &Dataset, options: &VectorIndexOptions) -> Result<()> {
        let Params::Vector(params) = &self.params else { return Ok(()) };
        let needed = rows_to_train(self.of, params).max(options.num_partitions.unwrap_or(1));
        if has_vectors_to_train(base, &self.column, needed).await.in_base(ACTION)? {
            return Ok(());
        }
        let rows = base.count_rows(None).await.in_base(ACTION)?;
        let found = if rows < needed {
            rows
        } else {
            let has_vector = format!("{} IS NOT NULL", quoted(&self.column));
            base.count_rows(Some(has_vector)).await.in_base(ACTION)?
        };
        let is_number = options.num_partitions == Some(needed);
        let why = if is_number { "partitions need" } else { "training needs" };
        Err(Error::input(format!(
            "index '{}' of type {}: its {why} at least {needed} rows with a vector in column \
             '{}', the base table {} has {found}; rows above the base table count after \
             compact(flush=True)",
            self.name,
            self.of,
            self.column,
            base.uri()
        )))
    }

    /// Builds the index of `base` and commits it. A later version may have been committed meanwhile.
    ///
    /// # Errors
    /// A storage error, of several kinds where another commit came first.
    pub async fn build(&self, base: &Dataset) -> Result<()> {
        let mut dataset = committing(base).await.context(ACTION)?;
        pass(Hold::Indexes, base.uri()).await;
        let columns = [self.column.as_str()];
        let builder =
            dataset.create_index_builder(&columns, self.of.of_lance(), self.params.as_lance());
        builder
            .name(self.name.clone())
            .replace(self.replace)
            .index_uuid(self.id)
            .await
            .map(|_| ())
            .context(ACTION)
    }
}

fn unknown(base: &Dataset, column: &str) -> Error {
    let known: Vec<&str> = base.schema().fields.iter().map(|it| it.name.as_str()).collect();
    Error::input(format!(
        "column '{column}' is not in table {}; it has {}",
        base.uri(),
        known.join(", ")
    ))
}

/// The metric of an index on vectors of `element`.
fn metric(column: &str, element: &DataType, options: &VectorIndexOptions) -> Result<Metric> {
    let usual = Metric::default_of(element);
    let metric = options.metric.unwrap_or(usual);
    if metric.fits(element) {
        return Ok(metric);
    }
    Err(Error::input(format!(
        "metric: column '{column}' of {} has no distance '{metric}'; use '{usual}'",
        TypeName(element)
    )))
}

/// Rows with a vector that a training needs: one for each code of a product quantizer.
fn rows_to_train(of: TableIndexType, params: &VectorIndexParams) -> usize {
    let codes = params.stages.iter().find_map(|stage| match stage {
        StageParams::PQ(codes) if of.has_product_codes() => {
            pq_quantizer_minimum_rows(codes.num_bits)
        }
        _ => None,
    });
    codes.unwrap_or(1)
}

/// The name of the index. Without one in `options`: that of the column and `_idx`, with a number
/// behind it where an index of another column or of another type has that name. So Lance does it.
fn free_name(
    base: &Dataset,
    listed: &[Listed],
    column: &str,
    field: &Field,
    of: TableIndexType,
    options: &TableIndexOptions,
) -> Result<String> {
    let named = |name: &str| listed.iter().find(|index| index.info.name == name);
    let name = match &options.name {
        Some(name) => name.clone(),
        None => (1..=listed.len() + 1)
            .map(|number| match number {
                1 => format!("{column}_idx"),
                number => format!("{column}_idx_{number}"),
            })
            .find(|name| named(name).is_none_or(|it| it.field == Some(field.id) && it.is_like(of)))
            .unwrap_or_default(),
    };
    if name.is_empty() || is_reserved(&name) {
        return Err(Error::input(format!("name: an index cannot have the name '{name}'")));
    }
    match named(&name) {
        Some(taken) if taken.field != Some(field.id) => Err(Error::input(format!(
            "index '{name}' of table {} is an index of column '{}'; drop it first, or pass another \
             name",
            base.uri(),
            taken.info.columns.join("', '")
        ))),
        Some(taken) if !options.replace => Err(Error::input(format!(
            "index '{name}' of table {} exists, of type {}; pass replace=True to build it anew, or \
             another name",
            base.uri(),
            taken.info.index_type
        ))),
        _ => Ok(name),
    }
}

/// Whether an index of the table format has this name.
pub(super) fn is_reserved(name: &str) -> bool {
    name == MEM_WAL_INDEX_NAME || name == FRAG_REUSE_INDEX_NAME
}

fn quoted(column: &str) -> String {
    format!("`{}`", column.replace('`', "``"))
}

fn new_id() -> Result<Uuid> {
    let mut bytes = [0; 16];
    for part in bytes.chunks_exact_mut(4) {
        part.copy_from_slice(&random_number().context(ACTION)?.to_be_bytes());
    }
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}
