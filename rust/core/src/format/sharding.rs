//! Which shard a row belongs to: the sharding transforms of the specification.
//!
//! Owns: the transforms `bucket` and `unsharded`, bit for bit as lance 14.0.2 computes them.
//! Does not own: which shard UUID stands for a bucket; the shard manifests record that.
//!
//! The hash is Murmur3 (32 bits, seed 0) as Iceberg and Lance use it, except that the bytes of
//! an incomplete last word are mixed one by one as signed bytes, as Spark does. No published
//! crate computes exactly this.

use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};

use crate::types::{Error, Result, TypeName};

/// Most buckets that a specification may ask for.
pub const MAX_BUCKETS: u32 = 1024;

/// How rows are spread over shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharding {
    /// One shard takes every row.
    Unsharded,
    /// The hash of one column, modulo the number of buckets.
    Bucket {
        /// The column that is hashed.
        column: String,
        /// The number of shards, 1 to [`MAX_BUCKETS`].
        buckets: u32,
    },
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsharded => f.write_str("unsharded()"),
            Self::Bucket { column, buckets } => write!(f, "bucket({column:?}, {buckets})"),
        }
    }
}

impl Sharding {
    /// The number of shards.
    #[must_use]
    pub const fn shards(&self) -> u32 {
        match self {
            Self::Unsharded => 1,
            Self::Bucket { buckets, .. } => *buckets,
        }
    }

    /// What a shard manifest records about the sharding under which its rows were put: equal for
    /// shardings that route alike. `field_id` is the Lance field of the column, which a rename
    /// keeps.
    #[must_use]
    pub fn record(&self, field_id: Option<i32>) -> String {
        match (self.shards(), field_id) {
            (buckets @ 2.., Some(id)) => format!("bucket(field_id={id}, num_buckets={buckets})"),
            _ => "unsharded".to_owned(),
        }
    }

    /// The column that rows find their shard by.
    #[must_use]
    pub fn column(&self) -> Option<&str> {
        match self {
            Self::Unsharded => None,
            Self::Bucket { column, .. } => Some(column),
        }
    }

    /// Refuses a number of shards that a table cannot have.
    ///
    /// # Errors
    /// An input error that names the number.
    pub fn check_number(&self) -> Result<()> {
        match self {
            Self::Bucket { buckets, .. } if *buckets == 0 || *buckets > MAX_BUCKETS => {
                Err(Error::input(format!(
                    "the number of buckets must be 1 to {MAX_BUCKETS}, got {buckets}"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a specification that no row could be routed by.
    ///
    /// # Errors
    /// An input error that names the column or the number.
    pub fn validate(&self, schema: &arrow_schema::Schema, key: &[String]) -> Result<()> {
        let Self::Bucket { column, .. } = self else { return Ok(()) };
        self.check_number()?;
        let field = schema
            .field_with_name(column)
            .map_err(|_| Error::input(format!("sharding column '{column}' is missing")))?;
        if !is_bucket_type(field.data_type()) {
            return Err(Error::input(format!(
                "sharding column '{column}' of type {} cannot be hashed into buckets",
                TypeName(field.data_type())
            )));
        }
        if !key.is_empty() && !key.contains(column) {
            return Err(Error::input(format!(
                "sharding column '{column}' is not part of the primary key ({}), so two versions \
                 of a key could land in two shards; shard by a key column",
                key.join(", ")
            )));
        }
        Ok(())
    }

    /// The shard ordinal of every row of `batch`: its bucket, or 0.
    ///
    /// # Errors
    /// An input error where the column is missing or of a type that has no hash.
    pub fn ordinals(&self, batch: &RecordBatch) -> Result<Vec<i32>> {
        match self {
            Self::Unsharded => Ok(vec![0; batch.num_rows()]),
            Self::Bucket { column, buckets } => {
                let array = batch.column_by_name(column).ok_or_else(|| {
                    Error::input(format!("sharding column '{column}' is missing"))
                })?;
                let buckets = i32::try_from(*buckets).map_err(|_| {
                    Error::input(format!(
                        "the number of buckets must be 1 to {MAX_BUCKETS}, got {buckets}"
                    ))
                })?;
                let hashes = hashes(array, column)?;
                Ok(hashes.into_iter().map(|hash| (hash & i32::MAX) % buckets).collect())
            }
        }
    }
}

const fn is_bucket_type(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
            | DataType::UInt64
            | DataType::Date32
            | DataType::Timestamp(_, _)
            | DataType::Utf8
            | DataType::LargeUtf8
    )
}

/// The hash of every value; a null hashes to the seed, 0.
fn hashes(array: &ArrayRef, column: &str) -> Result<Vec<i32>> {
    macro_rules! as_int {
        ($type:ty) => {{
            let values = array.as_primitive::<$type>().values();
            Ok(each(array, |row| hash_int(i32::from(values[row]))))
        }};
    }
    macro_rules! as_long {
        ($type:ty) => {{
            let values = array.as_primitive::<$type>().values();
            Ok(each(array, |row| hash_long(values[row])))
        }};
    }
    match array.data_type() {
        DataType::Boolean => {
            Ok(each(array, |row| hash_int(i32::from(array.as_boolean().value(row)))))
        }
        DataType::Int8 => as_int!(Int8Type),
        DataType::Int16 => as_int!(Int16Type),
        DataType::Int32 => as_int!(Int32Type),
        DataType::Date32 => as_int!(Date32Type),
        DataType::UInt8 => as_int!(UInt8Type),
        DataType::UInt16 => as_int!(UInt16Type),
        DataType::UInt32 => {
            let values = array.as_primitive::<UInt32Type>().values();
            Ok(each(array, |row| hash_int(values[row].cast_signed())))
        }
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>().values();
            Ok(each(array, |row| hash_long(values[row].cast_signed())))
        }
        DataType::Int64 => as_long!(Int64Type),
        DataType::Timestamp(TimeUnit::Second, _) => as_long!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => as_long!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => as_long!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => as_long!(TimestampNanosecondType),
        DataType::Utf8 => {
            let strings = array.as_string::<i32>();
            Ok(each(array, |row| hash_bytes(strings.value(row).as_bytes())))
        }
        DataType::LargeUtf8 => {
            let strings = array.as_string::<i64>();
            Ok(each(array, |row| hash_bytes(strings.value(row).as_bytes())))
        }
        other => Err(Error::input(format!(
            "sharding column '{column}' of type {} cannot be hashed into buckets",
            TypeName(other)
        ))),
    }
}

fn each(array: &ArrayRef, hash: impl Fn(usize) -> i32) -> Vec<i32> {
    (0..array.len()).map(|row| if array.is_null(row) { 0 } else { hash(row) }).collect()
}

fn hash_int(value: i32) -> i32 {
    finish(mix_state(0, value), 4)
}

#[expect(clippy::cast_possible_truncation, reason = "the low and the high half are taken apart")]
fn hash_long(value: i64) -> i32 {
    let low = mix_state(0, value as i32);
    finish(mix_state(low, (value >> 32) as i32), 8)
}

fn hash_bytes(bytes: &[u8]) -> i32 {
    let mut words = bytes.chunks_exact(4);
    let mut state = 0;
    for word in &mut words {
        state = mix_state(state, i32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    }
    for byte in words.remainder() {
        state = mix_state(state, i32::from(byte.cast_signed()));
    }
    finish(state, i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}

fn mix_state(state: i32, word: i32) -> i32 {
    let word =
        word.wrapping_mul(0xcc9e_2d51_u32.cast_signed()).rotate_left(15).wrapping_mul(0x1b87_3593);
    (state ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64_u32.cast_signed())
}

fn finish(state: i32, length: i32) -> i32 {
    let mut hash = (state ^ length).cast_unsigned();
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(0xc2b2_ae35);
    (hash ^ (hash >> 16)).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_murmur_values_hold_where_the_last_word_is_complete() {
        // The examples of the Iceberg specification, appendix B.
        assert_eq!(hash_long(34), 2_017_239_379);
        assert_eq!(hash_bytes(b"iceberg!"), murmur_reference(b"iceberg!"));
        assert_eq!(hash_long(0), 1_669_671_676);
    }

    /// Murmur3 as published, for lengths that are a multiple of four.
    fn murmur_reference(bytes: &[u8]) -> i32 {
        let mut state = 0_u32;
        for word in bytes.chunks(4) {
            let word = u32::from_le_bytes(word.try_into().unwrap());
            let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
            state = (state ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
        }
        finish(state.cast_signed(), i32::try_from(bytes.len()).unwrap())
    }

    #[test]
    fn a_bucket_of_a_column_outside_the_key_is_refused() {
        let schema = arrow_schema::Schema::new(vec![
            arrow_schema::Field::new("id", DataType::Int64, false),
            arrow_schema::Field::new("v", DataType::Int64, true),
        ]);
        let sharding = Sharding::Bucket { column: "v".to_owned(), buckets: 4 };
        let error = sharding.validate(&schema, &["id".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("'v' is not part of the primary key"), "{error}");
    }
}
