//! The merged rows of one shard, stored beside deletion vectors: one Arrow IPC stream and a checksum.
//!
//! Owns: the layout, its checks, and the name that follows from what was merged.
//! Does not own: which rows are merged, or when such a file is written, believed or removed.
//!
//! Layout: an IPC stream whose schema metadata says under `merged_from` what was merged, then the
//! CRC-32 of all bytes before it. The file never changes.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;

use super::wal_entry::{encode_stream, read_stream};
use crate::types::{Error, Result};

const MERGED_FROM: &str = "merged_from";
const CHECKSUM_BYTES: usize = 4;

/// The bytes of a file: `batches` of `schema`, made of the sources that `merged_from` describes.
///
/// # Errors
/// An internal error where the batches have another schema.
pub fn encode(schema: &SchemaRef, batches: &[RecordBatch], merged_from: &str) -> Result<Bytes> {
    let metadata = HashMap::from([(MERGED_FROM.to_owned(), merged_from.to_owned())]);
    let mut bytes = encode_stream(schema.fields().clone(), metadata, batches)?;
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(bytes.into())
}

/// The rows of the file at `path`; `None` where they were made of other sources.
///
/// # Errors
/// Damage.
pub fn decode(bytes: &Bytes, path: &str, merged_from: &str) -> Result<Option<Vec<RecordBatch>>> {
    let Some((stream, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Error::corrupt(path, "cut short", format!("{} bytes", bytes.len())));
    };
    let (expected, found) = (u32::from_le_bytes(*checksum), crc32fast::hash(stream));
    if found != expected {
        let detail = format!("expected {expected:08x}, found {found:08x}");
        return Err(Error::corrupt(path, "checksum", detail));
    }
    let (schema, batches) = read_stream(bytes.slice(..stream.len()), path)?;
    let is_same = schema.metadata().get(MERGED_FROM).is_some_and(|known| known == merged_from);
    Ok(is_same.then_some(batches))
}

/// A name for what was merged: the 64-bit FNV-1a hash of `merged_from` (Fowler, Noll, Vo), the same
/// on every machine. The file itself says whether it is the right one.
#[must_use]
pub fn name_of(merged_from: &str) -> String {
    let hash = merged_from.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{BooleanArray, Int64Array, StringArray};

    use super::*;

    fn rows() -> RecordBatch {
        RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from(vec![1, 2])) as _),
            ("v", Arc::new(StringArray::from(vec![Some("a"), None])) as _),
            ("_tombstone", Arc::new(BooleanArray::from(vec![false, true])) as _),
        ])
        .unwrap()
    }

    #[test]
    fn rows_come_back_where_they_were_made_of_the_same_sources() {
        let schema = rows().schema();
        for batches in [vec![], vec![rows()], vec![rows(), rows().slice(1, 1)]] {
            let bytes = encode(&schema, &batches, "two sources").unwrap();
            let read = decode(&bytes, "x", "two sources").unwrap().unwrap();
            assert_eq!(read.len(), batches.len());
            for (read, batch) in read.iter().zip(&batches) {
                assert_eq!(read.columns(), batch.columns());
            }
            assert!(decode(&bytes, "x", "other sources").unwrap().is_none());
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_golden_file() {
        let golden: &[u8] = include_bytes!("golden/merged_rows.arrow");
        let bytes = Bytes::from_static(golden);
        let read = decode(&bytes, "x", "two sources").unwrap().unwrap();
        assert_eq!(read[0].columns(), rows().columns());
        assert_eq!(encode(&rows().schema(), &[rows()], "two sources").unwrap(), golden);
        assert_eq!(name_of("two sources"), "f8eb473080349ee7");
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_damage() {
        let bytes = encode(&rows().schema(), &[rows()], "two sources").unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 1 << (at % 8);
            assert!(decode(&flipped.into(), "x", "two sources").is_err(), "byte {at}");
            let error = decode(&bytes.slice(..at), "x", "two sources").unwrap_err();
            assert!(error.to_string().contains('x'), "{error}");
        }
    }
}
