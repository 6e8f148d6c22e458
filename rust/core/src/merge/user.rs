//! Functions of users: two arrays in, one array out.
//!
//! Owns: the rounds in which the values of a key are combined in pairs, and the checks of what a
//! function returns.
//! Does not own: how a function is loaded, or on which thread it runs.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt64Array};
use arrow_schema::ArrowError;
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use arrow_select::take::take;

use super::list::position;
use crate::types::{Error, Result, TypeName};

/// How many pairs a call gets.
const PAIRS: usize = 8_192;

/// A function of a user, declared to be associative.
pub trait PairFunction: fmt::Debug + Send + Sync {
    /// Combines each value of `older` with the value of `newer` in the same place. No value is null,
    /// and at most 8,192 pairs are in one call.
    ///
    /// # Errors
    /// What the function raised.
    fn combine(&self, older: &ArrayRef, newer: &ArrayRef) -> Result<ArrayRef>;
}

/// The functions of users that this process has loaded, by importable name.
pub type PairFunctions = HashMap<String, Arc<dyn PairFunction>>;

/// The combined values of each range, null where all are null.
pub(super) fn combined(
    column: &str,
    name: &str,
    function: &dyn PairFunction,
    values: &ArrayRef,
    ranges: &[Range<usize>],
) -> Result<ArrayRef> {
    let internal = |error: ArrowError| {
        Error::internal(format!("column '{column}': {error}")).with_source(error)
    };
    let counted: Vec<Vec<u64>> = ranges
        .iter()
        .map(|range| range.clone().filter(|at| values.is_valid(*at)).map(position).collect())
        .collect::<Result<_, _>>()
        .map_err(internal)?;
    let firsts: UInt64Array = counted.iter().map(|of| of.first().copied()).collect();
    let mut totals = take(values, &firsts, None).map_err(internal)?;
    for round in 1.. {
        let open = (0..counted.len()).filter(|group| counted[*group].len() > round);
        let open: Vec<usize> = open.collect();
        if open.is_empty() {
            break;
        }
        let mut made = Vec::with_capacity(open.len().div_ceil(PAIRS));
        for part in open.chunks(PAIRS) {
            let groups: Vec<u64> =
                part.iter().copied().map(position).collect::<Result<_, _>>().map_err(internal)?;
            let newer: UInt64Array =
                part.iter().map(|group| Some(counted[*group][round])).collect();
            let older = take(&totals, &UInt64Array::from(groups), None).map_err(internal)?;
            let newer = take(values, &newer, None).map_err(internal)?;
            let result = function.combine(&older, &newer).map_err(|error| {
                error.input_at(format!("function '{name}' of column '{column}'"))
            })?;
            check(column, name, &older, &result)?;
            made.push(result);
        }
        let made = concat(&made.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map_err(internal)?;
        let mut from: Vec<(usize, usize)> = (0..totals.len()).map(|group| (0, group)).collect();
        for (place, group) in open.into_iter().enumerate() {
            from[group] = (1, place);
        }
        totals = interleave(&[&totals, &made], &from).map_err(internal)?;
    }
    Ok(totals)
}

/// Refuses a result that is not one value for each pair.
fn check(column: &str, name: &str, older: &ArrayRef, result: &ArrayRef) -> Result<()> {
    let place = format!("function '{name}' of column '{column}'");
    if result.data_type() != older.data_type() {
        let (found, expected) = (TypeName(result.data_type()), TypeName(older.data_type()));
        return Err(Error::input(format!("{place} returned {found}, expected {expected}")));
    }
    if result.len() != older.len() {
        let (found, expected) = (result.len(), older.len());
        let message = format!("{place} returned {found} values for {expected} pairs");
        return Err(Error::input(message));
    }
    if result.logical_null_count() > 0 {
        return Err(Error::input(format!(
            "{place} returned a null; return the older or the newer value where there is no other"
        )));
    }
    Ok(())
}
