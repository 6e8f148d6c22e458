//! The rows of a large MemTable that a vector search compares.
//!
//! ```text
//!   a filter wants some values of a column that is ordered in memory     rows that may meet it
//!   the base table has an IVF index of the vectors, and it may be used   rows of the nearest
//! lists,
//!                                                                        and rows without a list
//!   neither                                                              all rows
//! ```
//!
//! Owns: [`MemoryAccess`], the choice of one search, and the gathering of vectors of single rows.
//! Does not own: the indexes (`memory_indexes`), or liveness and filters, which are checked of the
//! nearest of the compared rows (`flat_source`).

use std::fmt;
use std::sync::Arc;

use arrow::array::ArrayData;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, make_array};
use arrow_buffer::MutableBuffer;
use arrow_schema::DataType;
use datafusion::common::{DataFusionError, Result as PlanResult};
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Error, Result, RowPosition};

use super::flat_source::{Block, Place};
use crate::memory_indexes::{MakeLists, MemoryLists, Probes, filled_so_far, has_vector};
use crate::plan::OrderedCandidates;

/// Rows that are gathered at a time, so that their vectors stay in the processor's cache.
const GATHERED_ROWS: usize = 256;

/// The indexes of one MemTable that a search may use.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryAccess {
    /// The lists by the base table's index, and how many are read.
    pub lists: Option<(Arc<MakeLists>, Probes)>,
    /// The rows that may meet the filter.
    pub ordered: Option<OrderedCandidates>,
}

/// The rows that indexes leave.
pub(super) struct LeftRows {
    pub blocks: Vec<Block>,
    /// Whether no other row can be in the result.
    pub are_all: bool,
}

impl fmt::Display for MemoryAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((lists, _)) = &self.lists {
            write!(f, ", in {} lists of the base's index", lists.partitions())?;
        }
        self.ordered.as_ref().map_or(Ok(()), |ordered| write!(f, ", {ordered}"))
    }
}

impl MemoryAccess {
    /// The rows of `view` to compare with `query`, whose batches have the vectors `columns`; `None`
    /// for all.
    ///
    /// # Errors
    /// An internal error for a batch with too many rows.
    pub fn blocks(
        &self,
        view: &MemTableView,
        columns: &Arc<[FixedSizeListArray]>,
        query: &ArrayRef,
    ) -> Result<Option<LeftRows>> {
        if let Some(rows) = self.ordered.as_ref().and_then(OrderedCandidates::rows) {
            let blocks = blocks_of(view, columns, &rows)?;
            return Ok(Some(LeftRows { blocks, are_all: true }));
        }
        let Some((maker, probes)) = &self.lists else { return Ok(None) };
        let Some(index) = filled_so_far(view, maker.as_ref()) else { return Ok(None) };
        let Some(lists) = index.as_any().downcast_ref::<MemoryLists>() else { return Ok(None) };
        let Some(probed) = lists.probe(query, *probes, view.rows()) else { return Ok(None) };
        let mut blocks = blocks_of(view, columns, &probed.rows)?;
        let rest = probed.assigned..view.rows();
        let rest: Vec<u32> = rest.filter_map(|row| u32::try_from(row).ok()).collect();
        blocks.extend(blocks_of(view, columns, &rest)?);
        Ok(Some(LeftRows { blocks, are_all: false }))
    }
}

/// The rows at `positions`, which ascend, that have a vector.
fn blocks_of(
    view: &MemTableView,
    columns: &Arc<[FixedSizeListArray]>,
    positions: &[u32],
) -> Result<Vec<Block>> {
    let mut places: Vec<Place> = Vec::with_capacity(positions.len());
    let mut left = positions;
    // One look for the place of each batch, instead of one a row.
    while let Some(first) = left.first() {
        let (batch, row) = view.place(RowPosition(*first));
        let start = *first as usize - row;
        let end = start + view.batch(batch).num_rows();
        let (here, others) = left.split_at(left.partition_point(|it| (*it as usize) < end));
        let has_vector = has_vector(&columns[batch]);
        let number = u32::try_from(batch).map_err(|_| too_many())?;
        for position in here {
            let row = *position as usize - start;
            if has_vector(row) {
                places.push((number, u32::try_from(row).map_err(|_| too_many())?));
            }
        }
        left = others;
    }
    let block =
        |places: &[Place]| Block::Rows { columns: columns.clone(), places: places.to_vec() };
    Ok(places.chunks(GATHERED_ROWS).map(block).collect())
}

fn too_many() -> Error {
    Error::internal("comparing vectors in memory: a MemTable has too many rows")
}

/// The vectors of the rows at `places`, none of which has a null.
pub(super) fn gathered(
    columns: &[FixedSizeListArray],
    places: &[Place],
) -> PlanResult<FixedSizeListArray> {
    let internal = |text: &str| DataFusionError::Internal(format!("gathering vectors: {text}"));
    let first = columns.first().ok_or_else(|| internal("there are none"))?;
    let DataType::FixedSizeList(field, width) = first.data_type() else {
        return Err(internal("the column holds no vectors"));
    };
    let number = first.value_type().primitive_width().ok_or_else(|| internal("not of numbers"))?;
    let row_bytes = number * usize::try_from(*width).map_err(|_| internal("a negative width"))?;
    let mut values = MutableBuffer::with_capacity(places.len() * row_bytes);
    let mut of_batch: Option<(u32, ArrayData)> = None;
    for (batch, row) in places {
        if of_batch.as_ref().is_none_or(|(known, _)| known != batch) {
            let column = columns.get(*batch as usize).ok_or_else(|| internal("no such batch"))?;
            of_batch = Some((*batch, column.values().to_data()));
        }
        let Some((_, data)) = &of_batch else { continue };
        let start = data.offset() * number + *row as usize * row_bytes;
        let bytes =
            data.buffers().first().and_then(|it| it.as_slice().get(start..start + row_bytes));
        values.extend_from_slice(bytes.ok_or_else(|| internal("a row is outside its batch"))?);
    }
    let data = ArrayData::builder(first.value_type())
        .len(values.len() / number.max(1))
        .add_buffer(values.into())
        .build()?;
    Ok(FixedSizeListArray::try_new(field.clone(), *width, make_array(data), None)?)
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
    use arrow_cast::cast;
    use arrow_schema::Field;

    use super::*;

    #[test]
    fn gathered_vectors_are_those_of_their_rows_in_any_order() {
        let column = |from: u8| {
            let mut rows = FixedSizeListBuilder::new(Float32Builder::new(), 2);
            for row in from..from + 4 {
                rows.values().append_slice(&[f32::from(row), 0.5]);
                rows.append(true);
            }
            rows.finish()
        };
        let columns = [column(0), column(10).slice(1, 3)];
        let found = gathered(&columns, &[(1, 2), (0, 3), (1, 0)]).unwrap();
        let expected = {
            let mut rows = FixedSizeListBuilder::new(Float32Builder::new(), 2);
            for at in [13.0, 3.0, 11.0] {
                rows.values().append_slice(&[at, 0.5]);
                rows.append(true);
            }
            rows.finish()
        };
        assert_eq!(found, expected);
        assert!(gathered(&columns, &[(1, 3)]).is_err(), "outside");
    }

    #[test]
    fn half_floats_are_gathered_too() {
        let numbers = arrow_array::Float32Array::from(vec![1.0, 2.0, 3.0, 4.0]);
        let numbers = cast(&numbers, &DataType::Float16).unwrap();
        let item = Arc::new(Field::new("item", DataType::Float16, true));
        let column = FixedSizeListArray::try_new(item, 2, numbers, None).unwrap();
        assert_eq!(gathered(std::slice::from_ref(&column), &[(0, 1)]).unwrap(), column.slice(1, 1));
    }
}
