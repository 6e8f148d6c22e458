//! How large what a reader takes into memory whole may be.
//!
//! Owns: a bound for each kind of object, which holds before the first byte is read: whoever can
//! write into a table must not be able to make its readers ask for memory without end.
//! Does not own: what the bytes mean, or files that are read a part at a time.

use super::{Error, Result};

/// The payload of one put at most. It stands whole in one log entry, which is one object, and S3
/// takes no more than 5 GiB in one request.
pub const MAX_PUT_BYTES: usize = 4 << 30;

/// The most bytes that an object of a kind may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxBytes(u64);

impl MaxBytes {
    /// The kind of damage of an object that has more.
    pub const TOO_LARGE: &'static str = "too large";

    /// A log entry, or the copy of one that was cut.
    pub const LOG_ENTRY: Self = Self(5 << 30);
    /// The manifest of a shard, or of a run; a publication of the record index.
    pub const MANIFEST: Self = Self(256 << 20);
    /// The deletion vectors of one SSTable: a bit for each of 2^32 rows is half of it.
    pub const VECTORS: Self = Self(1 << 30);
    /// A bloom filter, as lance bounds it.
    pub const FILTER: Self = Self(128 << 20);
    /// A hint, or a decision about a staged write.
    pub const NOTE: Self = Self(64 << 10);

    /// The bound as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// What is wrong with an object of `found` bytes, where it has more.
    #[must_use]
    pub fn excess(self, found: u64) -> Option<String> {
        let excess = || format!("it has {found} bytes, the limit is {}", self.0);
        (found > self.0).then(excess)
    }

    /// Refuses an object of `found` bytes.
    ///
    /// # Errors
    /// Damage of `what` where it has more.
    pub fn check(self, what: &str, found: u64) -> Result<()> {
        self.excess(found).map_or(Ok(()), |it| Err(Error::corrupt(what, Self::TOO_LARGE, it)))
    }
}
