//! The function `merge_map`: the entries of all maps, the newest value of a key.
//!
//! Owns: which entries remain, and their order: that in which each key came first.
//! Does not own: the entries, which are copied once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, MapArray, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType};
use arrow_select::take::take;

use super::list::position;
use super::order::equality;

/// The merged map of each range, null where all maps are null.
pub(super) fn merged(maps: &ArrayRef, ranges: &[Range<usize>]) -> Result<ArrayRef, ArrowError> {
    let maps = maps.as_map();
    let offsets = maps.offsets();
    let keys = equality(maps.keys())?;
    let mut taken: Vec<u64> = Vec::new();
    let mut ends = vec![0_i32];
    let mut is_valid = Vec::with_capacity(ranges.len());
    let mut slots = HashMap::new();
    for range in ranges {
        slots.clear();
        for at in range.clone().filter(|at| maps.is_valid(*at)) {
            let (begin, end) = (usize_of(offsets[at])?, usize_of(offsets[at + 1])?);
            for entry in begin..end {
                let slot = *slots.entry(keys.row(entry)).or_insert(taken.len());
                match taken.get_mut(slot) {
                    Some(older) => *older = position(entry)?,
                    None => taken.push(position(entry)?),
                }
            }
        }
        let end = i32::try_from(taken.len());
        ends.push(end.map_err(|_| ArrowError::OffsetOverflowError(taken.len()))?);
        is_valid.push(range.clone().any(|at| maps.is_valid(at)));
    }
    let DataType::Map(field, is_sorted) = maps.data_type() else {
        return Err(ArrowError::InvalidArgumentError("a map of another type".into()));
    };
    let entries = take(maps.entries(), &UInt64Array::from(taken), None)?;
    let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
    let nulls = Some(NullBuffer::from(is_valid));
    let entries = entries.as_struct().clone();
    Ok(Arc::new(MapArray::try_new(field.clone(), ends, entries, nulls, *is_sorted)?))
}

fn usize_of(offset: i32) -> Result<usize, ArrowError> {
    usize::try_from(offset).map_err(|error| ArrowError::InvalidArgumentError(error.to_string()))
}
