//! The function `collect`: lists, one behind the other.
//!
//! Owns: which items of which lists remain. Does not own: the items, which are copied once.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericListArray, OffsetSizeTrait, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;

use super::function::KeepEnd;
use super::order::equality;

/// What of the joined lists remains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub distinct: bool,
    pub limit: Option<u32>,
    pub end: KeepEnd,
}

/// The joined lists of each range, null where all are null.
pub(super) fn collect(
    lists: &ArrayRef,
    ranges: &[Range<usize>],
    kept: Kept,
) -> Result<ArrayRef, ArrowError> {
    match lists.data_type() {
        DataType::List(_) => collect_of(lists.as_list::<i32>(), ranges, kept),
        DataType::LargeList(_) => collect_of(lists.as_list::<i64>(), ranges, kept),
        other => Err(ArrowError::NotYetImplemented(format!("collect of {other}"))),
    }
}

fn collect_of<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    ranges: &[Range<usize>],
    kept: Kept,
) -> Result<ArrayRef, ArrowError> {
    let (offsets, items) = (lists.value_offsets(), lists.values());
    let rows = if kept.distinct { Some(equality(items)?) } else { None };
    let limit = kept.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut taken: Vec<u64> = Vec::new();
    let mut ends = vec![O::zero()];
    let mut is_valid = Vec::with_capacity(ranges.len());
    let mut seen = HashSet::new();
    for range in ranges {
        let begin = taken.len();
        seen.clear();
        for at in range.clone().filter(|at| lists.is_valid(*at)) {
            for item in offsets[at].as_usize()..offsets[at + 1].as_usize() {
                if kept.end == KeepEnd::First && taken.len() - begin == limit {
                    break;
                }
                if rows.as_ref().is_none_or(|rows| seen.insert(rows.row(item))) {
                    taken.push(position(item)?);
                }
            }
        }
        let extra = (taken.len() - begin).saturating_sub(limit);
        taken.drain(begin..begin + extra);
        ends.push(O::from_usize(taken.len()).ok_or(ArrowError::OffsetOverflowError(taken.len()))?);
        is_valid.push(range.clone().any(|at| lists.is_valid(at)));
    }
    let (DataType::List(field) | DataType::LargeList(field)) = lists.data_type() else {
        return Err(ArrowError::InvalidArgumentError("a list of another type".into()));
    };
    let items = take(items, &UInt64Array::from(taken), None)?;
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    let nulls = NullBuffer::from(is_valid);
    Ok(Arc::new(GenericListArray::<O>::try_new(field.clone(), ends, items, Some(nulls))?))
}

/// A position for `take`.
pub(super) fn position(at: usize) -> Result<u64, ArrowError> {
    u64::try_from(at).map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))
}
