//! A damaged log: what is wrong with it, and the way to go on without the part that is lost.
//!
//! Owns: the report that an operator decides by; `check`, which writes nothing, `truncate`, which
//! drops the log from the given position on, and `retire`, which fences a shard without rows.
//! Does not own: the decision, or rows that a running job still has in memory.

mod check;
mod retire;
mod truncate;

pub use check::verify_wal;
pub use retire::{check_empty, retire, take_over};
pub use truncate::truncate_wal;

use crate::types::{Generation, ShardId, WalPosition, WriterEpoch};

/// What stands in a shard's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalReport {
    /// The shard.
    pub shard_id: ShardId,
    /// The manifest covers the entries up to this one; no replay reads them any more.
    pub replay_after_wal_position: WalPosition,
    /// The highest position, where the check ends.
    pub last_wal_position: WalPosition,
    /// The epoch of the shard: of its owner, or of the truncation.
    pub writer_epoch: WriterEpoch,
    /// By position: from the first damage on, or everything that a truncation dropped.
    pub findings: Vec<WalFinding>,
}

impl WalReport {
    /// The first damaged entry; `None` for a log that can be replayed.
    #[must_use]
    pub fn first_damage(&self) -> Option<&WalFinding> {
        self.findings.iter().find(|finding| finding.damage.is_some())
    }
}

/// One position of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalFinding {
    /// The position.
    pub position: WalPosition,
    /// What is wrong with it; `None` for an entry that is intact.
    pub damage: Option<WalDamage>,
    /// Size of the object; 0 where there is none.
    pub bytes: u64,
    /// Its rows, where it can be decoded; 0 in a fence sentinel. In a damaged entry this and the
    /// next two values are unverified.
    pub rows: Option<u64>,
    /// Generation of its rows, where it names one.
    pub generation: Option<Generation>,
    /// Epoch of its writer, where it can be decoded.
    pub writer_epoch: Option<WriterEpoch>,
    /// Where a truncation copied its bytes, relative to the table.
    pub copy: Option<String>,
    /// Whether it may have come late (`WalEntry::is_fence_of_lance`).
    is_fence_of_lance: bool,
}

impl WalFinding {
    /// Whether no row is lost without it: an intact entry without rows.
    fn is_sentinel(&self) -> bool {
        self.damage.is_none() && self.rows == Some(0)
    }
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalDamage {
    /// The kind in one to three words, such as "hole" or "checksum".
    pub kind: &'static str,
    /// What was expected and found.
    pub detail: String,
}
