//! `bloom_filter.bin`: a split-block bloom filter over the keys of one run.
//!
//! Owns: its size and the hash of a key.
//! Does not own: where the file lies, or who skips a run because of it.
//!
//! The hash is lance's: the standard library's `SipHash` over each key column's null flag and
//! native value. lance 14.0.2's own writer hashes the value only for four column types and
//! leaves the filter at 8192 keys whatever the rows. Here every key type is hashed by the
//! function that lance's readers probe with, and the filter fits the keys.

use arrow_array::RecordBatch;
use lance::dataset::mem_wal::scanner::exec::compute_pk_hash;
use lance_core::utils::bloomfilter::sbbf::Sbbf;
use lance_core::{Error, Result};

/// Share of absent keys that the filter lets through, the default of lance's bloom filters.
const FALSE_POSITIVE_SHARE: f64 = 0.00057;

/// The filter's bytes over the rows of `keys`, batches of nothing but the key columns.
pub(super) fn key_filter(keys: &[RecordBatch], distinct_keys: u64) -> Result<Vec<u8>> {
    let mut filter =
        Sbbf::with_ndv_fpp(distinct_keys.max(1), FALSE_POSITIVE_SHARE).map_err(|error| {
            Error::internal(format!("bloom filter of {distinct_keys} keys: {error}"))
        })?;
    for batch in keys {
        let columns: Vec<usize> = (0..batch.num_columns()).collect();
        // Superseded rows as well: their keys are present, and a hash goes in any number of times.
        for row in 0..batch.num_rows() {
            filter.insert_hash(compute_pk_hash(batch, &columns, row));
        }
    }
    Ok(filter.to_bytes())
}
