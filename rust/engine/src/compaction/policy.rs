//! The policy: whether an SSTable is linked, rewritten or dropped, and why.
//!
//! Owns: the choice, as one pure function over numbers, and the reason as text.
//! Does not own: how the numbers are found, or how an SSTable is linked or rewritten.

use std::fmt;

/// How SSTables are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionMode {
    /// [`decide`] chooses for each SSTable.
    #[default]
    Auto,
    /// Link every SSTable whose file fits the base table.
    Link,
    /// Rewrite the live rows of every SSTable.
    Rewrite,
}

/// What a compaction does about rows that are in logs alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogHandling {
    /// Nothing.
    #[default]
    Ignore,
    /// Count them afterwards. This reads every log entry that no flush has covered.
    Count,
    /// Flush every log first, as `Table::flush` does, and count what came since. A dry run counts.
    Flush,
}

/// Settings of one compaction.
///
/// ```
/// # use lancemem::{CompactionMode, CompactionSettings};
/// let settings = CompactionSettings::default().with_mode(CompactionMode::Link).with_dry_run(true);
/// assert_eq!(settings.mode, CompactionMode::Link);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompactionSettings {
    /// How SSTables are moved.
    pub mode: CompactionMode,
    /// Plan only, and write nothing.
    pub dry_run: bool,
    /// An SSTable with fewer live rows and fewer bytes than these limits is small. Several small
    /// SSTables are rewritten into one fragment, because each fragment adds a cost to every scan.
    pub small_rows: u64,
    /// The limit of a small SSTable in bytes of its data file.
    pub small_bytes: u64,
    /// Share of dead rows, 0 to 1, above which an SSTable is rewritten rather than linked, and a
    /// base fragment is rewritten by lance's own compaction.
    pub max_dead_share: f64,
    /// Bytes a second that this compaction may read and write; 0 for no limit. Reads count where
    /// they look up keys in the base or verify checksums of SSTables.
    pub bytes_per_second: u64,
    /// Whether the table's own indexes cover the new rows afterwards.
    pub update_indexes: bool,
    /// What a compaction does about the logs, whose rows it does not move.
    pub logs: LogHandling,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            mode: CompactionMode::Auto,
            dry_run: false,
            small_rows: 16_384,
            small_bytes: 4 << 20,
            max_dead_share: 0.5,
            bytes_per_second: 0,
            update_indexes: true,
            logs: LogHandling::Ignore,
        }
    }
}

impl CompactionSettings {
    /// Sets [`Self::mode`].
    #[must_use]
    pub const fn with_mode(self, mode: CompactionMode) -> Self {
        Self { mode, ..self }
    }

    /// Sets [`Self::dry_run`].
    #[must_use]
    pub const fn with_dry_run(self, dry_run: bool) -> Self {
        Self { dry_run, ..self }
    }

    /// Sets [`Self::logs`].
    #[must_use]
    pub const fn with_logs(self, logs: LogHandling) -> Self {
        Self { logs, ..self }
    }

    /// Sets [`Self::small_rows`].
    #[must_use]
    pub const fn with_small_rows(self, small_rows: u64) -> Self {
        Self { small_rows, ..self }
    }

    /// Sets [`Self::small_bytes`].
    #[must_use]
    pub const fn with_small_bytes(self, small_bytes: u64) -> Self {
        Self { small_bytes, ..self }
    }

    /// Sets [`Self::max_dead_share`].
    #[must_use]
    pub const fn with_max_dead_share(self, max_dead_share: f64) -> Self {
        Self { max_dead_share, ..self }
    }

    /// Sets [`Self::bytes_per_second`].
    #[must_use]
    pub const fn with_bytes_per_second(self, bytes_per_second: u64) -> Self {
        Self { bytes_per_second, ..self }
    }

    /// Sets [`Self::update_indexes`].
    #[must_use]
    pub const fn with_update_indexes(self, update_indexes: bool) -> Self {
        Self { update_indexes, ..self }
    }
}

/// The way of one SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Its data file becomes a fragment of the base table.
    Link,
    /// Its live rows are written into a new fragment, with the live rows of other SSTables.
    Rewrite,
    /// It has no live row: it only deletes.
    Drop,
}

impl fmt::Display for Treatment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "link",
            Self::Rewrite => "rewrite",
            Self::Drop => "drop",
        })
    }
}

/// The numbers of one SSTable that the choice depends on.
#[derive(Clone, Debug, Default)]
pub struct SsTableFacts {
    /// Rows in the data file.
    pub physical_rows: u64,
    /// Rows that the base table gets.
    pub live_rows: u64,
    /// Size of the data file; 0 where it is not recorded.
    pub bytes: u64,
    /// Why the file cannot be a fragment of the base table, if it cannot.
    pub misfit: Option<String>,
}

/// The way of an SSTable and its reason, as text for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The way.
    pub treatment: Treatment,
    /// The reason.
    pub reason: String,
}

/// Chooses for all SSTables of one compaction at once, because small SSTables are rewritten
/// together.
///
/// 1. No live row: drop.
/// 2. A file that does not fit the base table: rewrite, there is no other way.
/// 3. Mostly dead rows: rewrite; a linked file would be rewritten soon after.
/// 4. One of several small SSTables: rewrite them into one fragment. A single small SSTable is
///    linked, because a rewrite would yield a fragment of the same size.
/// 5. Else link: only keys are read, and only positions are written.
#[must_use]
pub fn decide(sstables: &[SsTableFacts], settings: &CompactionSettings) -> Vec<Decision> {
    let is_small = |sstable: &SsTableFacts| {
        sstable.live_rows > 0
            && sstable.misfit.is_none()
            && sstable.live_rows < settings.small_rows
            && sstable.bytes < settings.small_bytes
    };
    let small = sstables.iter().filter(|sstable| is_small(sstable)).count();
    let decide = |sstable: &SsTableFacts| {
        let (treatment, reason) = if sstable.live_rows == 0 {
            (Treatment::Drop, "no live row".to_owned())
        } else if let Some(misfit) = &sstable.misfit {
            (Treatment::Rewrite, misfit.clone())
        } else if settings.mode == CompactionMode::Rewrite {
            (Treatment::Rewrite, "the mode is rewrite".to_owned())
        } else if settings.mode == CompactionMode::Link {
            (Treatment::Link, "the mode is link".to_owned())
        } else if dead_share(sstable) > settings.max_dead_share {
            let dead = sstable.physical_rows - sstable.live_rows;
            (Treatment::Rewrite, format!("{dead} of {} rows are dead", sstable.physical_rows))
        } else if is_small(sstable) && small > 1 {
            (
                Treatment::Rewrite,
                format!("{} live rows, one of {small} small SSTables", sstable.live_rows),
            )
        } else {
            (Treatment::Link, "the file fits the base table".to_owned())
        };
        Decision { treatment, reason }
    };
    sstables.iter().map(decide).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a share is compared with a rough limit")]
fn dead_share(sstable: &SsTableFacts) -> f64 {
    (sstable.physical_rows - sstable.live_rows) as f64 / sstable.physical_rows.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sstable(physical_rows: u64, live_rows: u64) -> SsTableFacts {
        SsTableFacts { physical_rows, live_rows, bytes: physical_rows * 50, misfit: None }
    }

    fn ways(sstables: &[SsTableFacts], mode: CompactionMode) -> Vec<Treatment> {
        let settings = CompactionSettings::default().with_mode(mode);
        decide(sstables, &settings).into_iter().map(|decision| decision.treatment).collect()
    }

    #[test]
    fn large_sstables_are_linked_and_several_small_sstables_are_rewritten_together() {
        use Treatment::{Drop, Link, Rewrite};
        let misfit =
            SsTableFacts { misfit: Some("another schema".to_owned()), ..sstable(100_000, 9) };
        let sstables = [
            sstable(100_000, 90_000),
            sstable(100, 100),
            sstable(90, 1),
            sstable(100_000, 0),
            misfit.clone(),
        ];
        assert_eq!(ways(&sstables, CompactionMode::Auto), [Link, Rewrite, Rewrite, Drop, Rewrite]);
        assert_eq!(ways(&sstables, CompactionMode::Link), [Link, Link, Link, Drop, Rewrite]);
        assert_eq!(
            ways(&sstables, CompactionMode::Rewrite),
            [Rewrite, Rewrite, Rewrite, Drop, Rewrite]
        );
    }

    #[test]
    fn a_single_small_sstable_is_linked_and_an_sstable_of_dead_rows_is_rewritten() {
        use Treatment::{Link, Rewrite};
        let linked = [sstable(100, 100), sstable(100_000, 60_000)];
        assert_eq!(ways(&linked, CompactionMode::Auto), [Link; 2]);
        assert_eq!(ways(&[sstable(100_000, 40_000)], CompactionMode::Auto), [Rewrite]);
        // An SSTable of few rows but many bytes is not small.
        let wide = SsTableFacts { bytes: 64 << 20, ..sstable(1_000, 1_000) };
        assert_eq!(ways(&[wide.clone(), wide], CompactionMode::Auto), [Link; 2]);
    }

    #[test]
    fn every_decision_has_a_reason() {
        let sstables = [
            sstable(10, 10),
            sstable(10, 10),
            sstable(5, 0),
            sstable(100_000, 1),
            sstable(100_000, 100_000),
        ];
        let decisions = decide(&sstables, &CompactionSettings::default());
        assert!(decisions.iter().all(|decision| !decision.reason.is_empty()));
        assert!(decisions[0].reason.contains("10 live rows"), "{}", decisions[0].reason);
        assert!(decisions[3].reason.contains("99999 of 100000"), "{}", decisions[3].reason);
    }
}
