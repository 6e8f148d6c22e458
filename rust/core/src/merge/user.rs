//! Functions of users: two arrays in, one array out.
//!
//! Owns: the rounds in which the values of a key are combined in pairs, the checks of what a
//! function returns, and its trial before a table gets it.
//! Does not own: how a function is loaded, or on which thread it runs.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, UInt64Array, new_empty_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, FieldRef};
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

/// Calls the function `name` of `column` with two arrays of the type `of` that have no values, and
/// checks what it returns.
///
/// # Errors
/// What the function raised; an input error for a result of another type or length. Both name
/// function and column.
pub fn try_function(
    column: &str,
    name: &str,
    function: &dyn PairFunction,
    of: &DataType,
) -> Result<()> {
    let none = new_empty_array(of);
    called(column, name, function, &none, &none)
        .map(|_| ())
        .map_err(|error| error.input_at("a trial with two empty arrays"))
}

/// The combined values of each range, null where all are null. Neighbours are combined in each
/// round, so a key with many events takes few rounds.
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
    // Per range the places of its values, oldest first.
    let mut groups: Vec<Vec<usize>> = ranges
        .iter()
        .map(|range| range.clone().filter(|at| values.is_valid(*at)).collect())
        .collect();
    let mut values = values.clone();
    loop {
        let pairs = groups.iter().flat_map(|group| group.chunks_exact(2));
        let pairs: Vec<(usize, usize)> = pairs.map(|pair| (pair[0], pair[1])).collect();
        if pairs.is_empty() {
            break;
        }
        let mut made = Vec::with_capacity(pairs.len().div_ceil(PAIRS));
        for part in pairs.chunks(PAIRS) {
            let older = part.iter().map(|(older, _)| Some(*older));
            let newer = part.iter().map(|(_, newer)| Some(*newer));
            let older = taken(&values, older).map_err(internal)?;
            let newer = taken(&values, newer).map_err(internal)?;
            made.push(called(column, name, function, &older, &newer)?);
        }
        let made = concat(&made.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map_err(internal)?;
        let from = next_round(&mut groups);
        values = interleave(&[&values, &made], &from).map_err(internal)?;
    }
    taken(&values, groups.iter().map(|group| group.first().copied())).map_err(internal)
}

/// Gives `groups` the places of the next round, and returns where its values come from: (0, place)
/// for a value without a neighbour, (1, number) for the result of a pair.
fn next_round(groups: &mut [Vec<usize>]) -> Vec<(usize, usize)> {
    let (mut from, mut pairs) = (Vec::new(), 0);
    for group in groups {
        let first = from.len();
        for part in group.chunks(2) {
            if let [alone] = part {
                from.push((0, *alone));
            } else {
                from.push((1, pairs));
                pairs += 1;
            }
        }
        *group = (first..from.len()).collect();
    }
    from
}

/// The values at these places, null where there is no place.
fn taken(
    values: &ArrayRef,
    places: impl Iterator<Item = Option<usize>>,
) -> Result<ArrayRef, ArrowError> {
    let places = places.map(|place| place.map(position).transpose());
    let places: UInt64Array = places.collect::<Result<Vec<_>, _>>()?.into();
    take(values, &places, None)
}

/// What the function returns for these pairs: one value for each of them, in the type of the
/// column.
fn called(
    column: &str,
    name: &str,
    function: &dyn PairFunction,
    older: &ArrayRef,
    newer: &ArrayRef,
) -> Result<ArrayRef> {
    let place = format!("function '{name}' of column '{column}'");
    let result = function.combine(older, newer).map_err(|error| error.input_at(&place))?;
    let of = older.data_type();
    if !holds_values_of(result.data_type(), of) {
        let (found, expected) = (TypeName(result.data_type()), TypeName(of));
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
    // Nested fields of a table have ids as metadata, and an array that a function built has none.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&result, of, &options).map_err(|error| {
        Error::input(format!("{place} returned values that the column cannot store: {error}"))
            .with_source(error)
    })
}

/// Whether the types differ at most in nullability and metadata of nested fields, and in the names
/// that lists and maps give theirs.
fn holds_values_of(found: &DataType, of: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct};
    let fits = |found: &FieldRef, of: &FieldRef| holds_values_of(found.data_type(), of.data_type());
    match (found, of) {
        (List(found), List(of)) | (LargeList(found), LargeList(of)) => fits(found, of),
        (FixedSizeList(found, width), FixedSizeList(of, length)) => {
            width == length && fits(found, of)
        }
        (Map(found, is_sorted), Map(of, sorted)) => {
            is_sorted == sorted
                && match (found.data_type(), of.data_type()) {
                    (Struct(found), Struct(of)) => {
                        found.len() == of.len()
                            && found.iter().zip(of).all(|(found, of)| fits(found, of))
                    }
                    _ => false,
                }
        }
        (Struct(found), Struct(of)) => {
            let same =
                |(found, of): (&FieldRef, &FieldRef)| found.name() == of.name() && fits(found, of);
            found.len() == of.len() && found.iter().zip(of).all(same)
        }
        _ => found == of,
    }
}
