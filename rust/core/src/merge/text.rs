//! The function `listagg`: texts joined with a separator.
//!
//! Owns: the joined texts. Does not own: which separators are refused (`function`).

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayAccessor, ArrayRef, LargeStringArray, StringArray, StringViewArray};
use arrow_schema::{ArrowError, DataType};

/// How texts are joined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joined<'a> {
    pub separator: &'a str,
    pub distinct: bool,
    pub limit: Option<u32>,
}

/// The joined texts of each range, null where all are null.
pub(super) fn joined(
    texts: &ArrayRef,
    ranges: &[Range<usize>],
    how: Joined<'_>,
) -> Result<ArrayRef, ArrowError> {
    // Arrow's builders of small offsets panic on more.
    let refuse_large = |joined: &[Option<String>]| {
        let bytes: usize = joined.iter().flatten().map(String::len).sum();
        match i32::try_from(bytes) {
            Ok(_) => Ok(()),
            Err(_) => Err(ArrowError::OffsetOverflowError(bytes)),
        }
    };
    match texts.data_type() {
        DataType::Utf8 => {
            let joined = joined_of(&texts.as_string::<i32>(), ranges, how);
            refuse_large(&joined)?;
            Ok(Arc::new(StringArray::from(joined)))
        }
        DataType::LargeUtf8 => {
            let joined = joined_of(&texts.as_string::<i64>(), ranges, how);
            Ok(Arc::new(LargeStringArray::from(joined)))
        }
        DataType::Utf8View => {
            let joined = joined_of(&texts.as_string_view(), ranges, how);
            refuse_large(&joined)?;
            Ok(Arc::new(StringViewArray::from_iter(joined)))
        }
        other => Err(ArrowError::NotYetImplemented(format!("listagg of {other}"))),
    }
}

fn joined_of<'a>(
    texts: &impl ArrayAccessor<Item = &'a str>,
    ranges: &[Range<usize>],
    how: Joined<'_>,
) -> Vec<Option<String>> {
    let of_range = |range: &Range<usize>| {
        let texts: Vec<&str> =
            range.clone().filter(|at| texts.is_valid(*at)).map(|at| texts.value(at)).collect();
        if texts.is_empty() {
            return None;
        }
        if !how.distinct && how.limit.is_none() {
            return Some(texts.join(how.separator));
        }
        // A stored text is the join of several: they are told apart again.
        let parts = texts.iter().flat_map(|text| text.split(how.separator));
        let mut seen = HashSet::new();
        let parts = parts.filter(|part| !how.distinct || seen.insert(*part));
        let limit = how.limit.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
        Some(parts.take(limit).collect::<Vec<&str>>().join(how.separator))
    };
    ranges.iter().map(of_range).collect()
}
