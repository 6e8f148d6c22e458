//! `bloom_filter.bin`: a split-block bloom filter over the keys of one SSTable.
//!
//! Owns: its size, its checksum, the hash of a key, and the question whether a key may be in it.
//! Does not own: where the file lies, or the reads that skip an SSTable because of it.
//!
//! The hash is lance's: the standard library's `SipHash` over each key column's null flag and
//! native value. lance 14.0.2's own writer hashes the value only for four column types, and sizes
//! every filter for 8192 keys. Here every key type is hashed by the function that lance's readers
//! probe with, and the filter is sized for the keys of the SSTable.

use arrow_array::RecordBatch;
use lance::dataset::mem_wal::scanner::exec::compute_pk_hash;
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use lance_core::{Error, Result};

/// False positive rate: the share of absent keys that the filter lets through. The default of
/// lance's bloom filters.
const FALSE_POSITIVE_SHARE: f64 = 0.00057;

/// The filter's bytes over the rows of `keys`, batches of the key columns only.
pub(super) fn key_filter(keys: &[RecordBatch], distinct_keys: u64) -> Result<Vec<u8>> {
    let mut filter =
        Sbbf::with_ndv_fpp(distinct_keys.max(1), FALSE_POSITIVE_SHARE).map_err(|error| {
            Error::internal(format!("bloom filter of {distinct_keys} keys: {error}"))
        })?;
    for batch in keys {
        let columns: Vec<usize> = (0..batch.num_columns()).collect();
        // Superseded rows as well: their keys are present, and inserting a hash is idempotent.
        for row in 0..batch.num_rows() {
            filter.insert_hash(compute_pk_hash(batch, &columns, row));
        }
    }
    Ok(filter.to_bytes())
}

/// The key of the manifest configuration that stores the checksum of the filter. The file itself
/// has no checksum, and one cleared bit would hide a row.
pub(super) const CHECKSUM: &str = "lancemem.bloom_filter_crc32";

/// CRC-32 (IEEE) of the filter's bytes.
pub(super) fn checksum(filter: &[u8]) -> u32 {
    crc32fast::hash(filter)
}

/// A checksum as the manifest stores it.
pub(super) fn checksum_text(checksum: u32) -> String {
    format!("{checksum:08x}")
}

/// The bloom filter of an SSTable, opened for lookups.
#[derive(Debug)]
pub struct KeyFilter(Sbbf);

impl KeyFilter {
    /// The filter out of its file.
    ///
    /// # Errors
    /// Damage for bytes that are not a filter, and for a filter without a key. An SSTable has keys,
    /// and a filter that is empty or all zeros would hide them.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        let damaged = |what: String| Error::corrupt_file_named("bloom_filter.bin", what);
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(damaged(format!("no bit is set in its {} bytes", bytes.len())));
        }
        Sbbf::new(bytes).map(Self).map_err(|error| damaged(error.to_string()))
    }

    /// The filter out of its file, verified against the checksum that the manifest of the SSTable
    /// records.
    ///
    /// # Errors
    /// Damage where the checksum differs, and as [`Self::new`].
    pub(super) fn checked(bytes: &[u8], recorded: Option<&String>) -> Result<Self> {
        let found = checksum_text(checksum(bytes));
        if let Some(recorded) = recorded.filter(|recorded| **recorded != found) {
            let what = format!("checksum mismatch: expected {recorded}, found {found}");
            return Err(Error::corrupt_file_named("bloom_filter.bin", what));
        }
        Self::new(bytes)
    }

    /// False where no row of the SSTable has the key at `row` of `keys`. `keys` is a batch of the
    /// key columns only, in primary-key order and in the table's types.
    #[must_use]
    pub fn may_hold(&self, keys: &RecordBatch, row: usize) -> bool {
        let columns: Vec<usize> = (0..keys.num_columns()).collect();
        self.0.check_hash(compute_pk_hash(keys, &columns, row))
    }

    /// Bytes of the filter in memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.0.estimated_memory_size()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatch};

    use super::{KeyFilter, checksum, checksum_text, key_filter};

    fn keys() -> RecordBatch {
        let keys = Arc::new(Int64Array::from_iter_values(0..100));
        RecordBatch::try_from_iter([("id", keys as _)]).unwrap()
    }

    #[test]
    fn a_filter_without_a_key_is_damage() {
        for bytes in [&[][..], &[0; 32], &[0; 4096]] {
            let error = KeyFilter::new(bytes).unwrap_err().to_string();
            assert!(error.contains("no bit is set"), "{error}");
        }
    }

    #[test]
    fn a_filter_of_any_bytes_is_refused_or_can_be_probed() {
        let whole = key_filter(&[keys()], 100).unwrap();
        for length in 0..whole.len() {
            match KeyFilter::new(&whole[..length]) {
                Ok(filter) => {
                    let _ = filter.may_hold(&keys(), 7);
                }
                Err(error) => assert!(length % 32 > 0 || length == 0, "{length}: {error}"),
            }
        }
        assert!((0..100).all(|row| KeyFilter::new(&whole).unwrap().may_hold(&keys(), row)));
    }

    #[test]
    fn a_filter_that_does_not_match_the_recorded_checksum_is_damage() {
        let whole = key_filter(&[keys()], 100).unwrap();
        let recorded = checksum_text(checksum(&whole));
        let mut random = 7_u64;
        let mut below = |end: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((random >> 33) % end as u64).unwrap()
        };
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=below(4) {
                let at = below(bytes.len());
                bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)];
            }
            bytes.resize(bytes.len() + 32 * below(3) - below(2), 0);
            if let Ok(filter) = KeyFilter::new(&bytes) {
                assert_eq!(filter.heap_bytes() / bytes.len(), 1);
                let _ = filter.may_hold(&keys(), 7);
            }
            assert_eq!(KeyFilter::checked(&bytes, Some(&recorded)).is_ok(), bytes == whole);
        }
    }
}
