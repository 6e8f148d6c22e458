//! The functions `rbm32` and `rbm64`: unions of roaring bitmaps.
//!
//! Owns: the portable form in and out, one text of bytes for each set.
//! Does not own: the set itself (crate `roaring`).

use std::io::Result;
use std::ops::{BitOrAssign, Range};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, GenericBinaryArray, OffsetSizeTrait};
use arrow_schema::DataType;
use roaring::{RoaringBitmap, RoaringTreemap};

/// Bytes that are no bitmap: the position of the value, and why.
pub(super) type Damage = (usize, String);

/// The union of the bitmaps of each range, null where all are null.
///
/// # Errors
/// The first value that is no bitmap of the width.
pub(super) fn union(
    bitmaps: &ArrayRef,
    ranges: &[Range<usize>],
    is_wide: bool,
) -> std::result::Result<ArrayRef, Damage> {
    match (bitmaps.data_type(), is_wide) {
        (DataType::Binary, false) => union_of::<i32, RoaringBitmap>(bitmaps, ranges),
        (DataType::Binary, true) => union_of::<i32, RoaringTreemap>(bitmaps, ranges),
        (DataType::LargeBinary, false) => union_of::<i64, RoaringBitmap>(bitmaps, ranges),
        (DataType::LargeBinary, true) => union_of::<i64, RoaringTreemap>(bitmaps, ranges),
        (other, _) => Err((0, format!("a column of type {other} has no bitmaps"))),
    }
}

trait Bitmap: BitOrAssign + Sized {
    /// Reads the bitmap at the front of `bytes`, which then are those behind it.
    fn read(bytes: &mut &[u8]) -> Result<Self>;
    /// The bytes, which depend on the set alone, not on how it was made.
    fn canonical(self) -> Result<Vec<u8>>;
}

impl Bitmap for RoaringBitmap {
    fn read(bytes: &mut &[u8]) -> Result<Self> {
        Self::deserialize_from(bytes)
    }

    fn canonical(self) -> Result<Vec<u8>> {
        let bitmap = same_containers(self);
        let mut bytes = Vec::with_capacity(bitmap.serialized_size());
        bitmap.serialize_into(&mut bytes)?;
        Ok(bytes)
    }
}

impl Bitmap for RoaringTreemap {
    fn read(bytes: &mut &[u8]) -> Result<Self> {
        Self::deserialize_from(bytes)
    }

    fn canonical(self) -> Result<Vec<u8>> {
        let parts = self.bitmaps().filter(|(_, part)| !part.is_empty());
        let parts = parts.map(|(high, part)| (high, same_containers(part.clone())));
        let bitmap = Self::from_bitmaps(parts.collect::<Vec<_>>());
        let mut bytes = Vec::with_capacity(bitmap.serialized_size());
        bitmap.serialize_into(&mut bytes)?;
        Ok(bytes)
    }
}

/// The same set in the smallest containers. A container of runs stays one where another form has
/// the same size, so runs are undone first.
fn same_containers(mut bitmap: RoaringBitmap) -> RoaringBitmap {
    bitmap.remove_run_compression();
    bitmap.optimize();
    bitmap
}

fn union_of<O: OffsetSizeTrait, B: Bitmap>(
    bitmaps: &ArrayRef,
    ranges: &[Range<usize>],
) -> std::result::Result<ArrayRef, Damage> {
    let array = bitmaps.as_binary::<O>();
    let read = |at: usize| -> std::result::Result<B, Damage> {
        let mut bytes = array.value(at);
        let bitmap = B::read(&mut bytes).map_err(|error| (at, error.to_string()))?;
        if bytes.is_empty() {
            Ok(bitmap)
        } else {
            Err((at, format!("{} bytes too many", bytes.len())))
        }
    };
    let mut unions = Vec::with_capacity(ranges.len());
    for range in ranges {
        let mut union: Option<B> = None;
        for at in range.clone().filter(|at| array.is_valid(*at)) {
            let bitmap = read(at)?;
            match &mut union {
                Some(union) => *union |= bitmap,
                None => union = Some(bitmap),
            }
        }
        let bytes = union.map(B::canonical).transpose();
        unions.push(bytes.map_err(|error| (range.start, error.to_string()))?);
    }
    Ok(Arc::new(unions.into_iter().collect::<GenericBinaryArray<O>>()))
}
