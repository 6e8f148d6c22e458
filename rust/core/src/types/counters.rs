//! Newtypes for every counter; the comment of each states whether it starts at 0 or 1.
//!
//! Owns: the counters and their successor rule.
//! Does not own: where a counter is persisted or who may advance it.

use std::fmt;

pub use uuid::Uuid as ShardId;

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl $name {
            /// The value after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }

            /// The bare number, for bytes and messages.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// Age of a flushed SSTable in its shard. Starts at 1; generation 0 is the base table.
    Generation
}
counter! {
    /// Fencing token of a shard's writer. 0 before the first claim.
    WriterEpoch
}
counter! {
    /// Number of a WAL entry in its shard. Starts at 1; 0 means "before the first entry".
    WalPosition
}
counter! {
    /// Version of a shard manifest. Starts at 1 and has no gaps.
    ManifestVersion
}

/// Forward position of a row inside one MemTable or SSTable. Starts at 0.
///
/// 32 bits because a deletion file of Lance addresses rows of one fragment with 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowPosition(pub u32);
