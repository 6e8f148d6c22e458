//! Size limits of objects that a reader loads whole into memory.
//!
//! Owns: a limit for each kind of object, checked before the first byte is read. A process that can
//! write to a table must not be able to make its readers allocate without bound.
//! Does not own: what the bytes mean, or files that are read in parts.

use super::{Error, Result};

/// The largest payload of one put. A put stands whole in one WAL entry, an entry is one object, and
/// S3 accepts at most 5 GiB in one request.
pub const MAX_PUT_BYTES: usize = 4 << 30;

/// The most bytes that an object of a kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxBytes(u64);

impl MaxBytes {
    /// The kind of damage of an object above its limit.
    pub const TOO_LARGE: &'static str = "too large";

    /// A WAL entry, or the copy of one that was truncated.
    pub const LOG_ENTRY: Self = Self(5 << 30);
    /// The manifest of a shard or of an SSTable; the file that publishes a sorted run of the record
    /// index.
    pub const MANIFEST: Self = Self(256 << 20);
    /// The deletion vectors of one SSTable, or the description of stored changes: a bit for each of
    /// 2^32 rows is half of it.
    pub const VECTORS: Self = Self(1 << 30);
    /// A bloom filter; lance has the same limit.
    pub const FILTER: Self = Self(128 << 20);
    /// A version hint, the decision about a bulk write, or a publication of stored changes.
    pub const NOTE: Self = Self(64 << 10);

    /// The limit as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// What is wrong with an object of `found` bytes; `None` within the limit.
    #[must_use]
    pub fn excess(self, found: u64) -> Option<String> {
        let excess = || format!("it has {found} bytes, the limit is {}", self.0);
        (found > self.0).then(excess)
    }

    /// Refuses an object of `found` bytes above the limit.
    ///
    /// # Errors
    /// Damage of `what`.
    pub fn check(self, what: &str, found: u64) -> Result<()> {
        self.excess(found).map_or(Ok(()), |it| Err(Error::corrupt(what, Self::TOO_LARGE, it)))
    }
}
