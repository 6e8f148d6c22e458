//! Which way an SSTable comes to the base table, and why.
//!
//! Owns: the choice, as one function over numbers, and the words that explain it.
//! Does not own: how the numbers are found, or what the ways do.

use std::fmt;

/// How runs are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionMode {
    /// As [`decide`] finds best for each SSTable.
    #[default]
    Auto,
    /// Link every SSTable whose file fits the base table.
    Link,
    /// Write all rows anew.
    Rewrite,
}

/// Settings of one compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionSettings {
    /// How runs are moved.
    pub mode: CompactionMode,
    /// Only say what would be done.
    pub dry_run: bool,
    /// SSTables with fewer live rows than this are small: several of them are written together,
    /// because each fragment costs every scan something. In rows.
    pub small_rows: u64,
    /// The same in bytes of the SSTable's data file; an SSTable is small only where it is below both.
    pub small_bytes: u64,
    /// Share of dead rows, 0 to 1, from which an SSTable is rewritten rather than linked, and a base
    /// fragment is rewritten by lance's own compaction.
    pub max_dead_share: f64,
    /// Bytes a second that this compaction may read of the base, and of the SSTables to compare their
    /// checksums, and write; 0 for no limit.
    pub bytes_per_second: u64,
    /// Whether the table's own indexes take up the new rows afterwards.
    pub update_indexes: bool,
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
            update_indexes: false,
        }
    }
}

/// The way of one SSTable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Its data file becomes a fragment of the base table.
    Link,
    /// Its live rows are written into a new fragment, with those of other SSTables.
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

/// What the choice looks at.
#[derive(Clone, Debug, Default)]
pub struct SsTableFacts {
    /// Rows in the data file.
    pub physical_rows: u64,
    /// Rows that the base table gets.
    pub live_rows: u64,
    /// Size of the data file; 0 where it is not known.
    pub bytes: u64,
    /// Why the file cannot be a fragment of the base table, if it cannot.
    pub misfit: Option<String>,
}

/// A way and its reason, a phrase for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The way.
    pub treatment: Treatment,
    /// The reason.
    pub reason: String,
}

/// Chooses for all SSTables of one compaction at once, because small ones are better together.
///
/// 1. Nothing alive: nothing to move.
/// 2. A file that does not fit the base table: rewrite, there is no other way.
/// 3. Mostly dead rows: rewrite; linked, the file would be rewritten soon after.
/// 4. One of several small SSTables: rewrite them as one fragment. A single one is linked, because
///    rewritten it would be a fragment as small.
/// 5. Else link: nothing is read but keys, and nothing is written but positions.
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

    fn run(physical_rows: u64, live_rows: u64) -> SsTableFacts {
        SsTableFacts { physical_rows, live_rows, bytes: physical_rows * 50, misfit: None }
    }

    fn ways(sstables: &[SsTableFacts], mode: CompactionMode) -> Vec<Treatment> {
        let settings = CompactionSettings { mode, ..CompactionSettings::default() };
        decide(sstables, &settings).into_iter().map(|decision| decision.treatment).collect()
    }

    #[test]
    fn large_runs_are_adopted_and_several_small_ones_are_written_together() {
        use Treatment::{Drop, Link, Rewrite};
        let misfit = SsTableFacts { misfit: Some("another schema".to_owned()), ..run(100_000, 9) };
        let sstables =
            [run(100_000, 90_000), run(100, 100), run(90, 1), run(100_000, 0), misfit.clone()];
        assert_eq!(ways(&sstables, CompactionMode::Auto), [Link, Rewrite, Rewrite, Drop, Rewrite]);
        assert_eq!(ways(&sstables, CompactionMode::Link), [Link, Link, Link, Drop, Rewrite]);
        assert_eq!(
            ways(&sstables, CompactionMode::Rewrite),
            [Rewrite, Rewrite, Rewrite, Drop, Rewrite]
        );
    }

    #[test]
    fn a_single_small_run_is_adopted_and_one_of_dead_rows_is_not() {
        use Treatment::{Link, Rewrite};
        assert_eq!(ways(&[run(100, 100), run(100_000, 60_000)], CompactionMode::Auto), [Link; 2]);
        assert_eq!(ways(&[run(100_000, 40_000)], CompactionMode::Auto), [Rewrite]);
        // A few rows of many bytes are not small.
        let wide = SsTableFacts { bytes: 64 << 20, ..run(1_000, 1_000) };
        assert_eq!(ways(&[wide.clone(), wide], CompactionMode::Auto), [Link; 2]);
    }

    #[test]
    fn every_reason_says_something() {
        let sstables =
            [run(10, 10), run(10, 10), run(5, 0), run(100_000, 1), run(100_000, 100_000)];
        let decisions = decide(&sstables, &CompactionSettings::default());
        assert!(decisions.iter().all(|decision| !decision.reason.is_empty()));
        assert!(decisions[0].reason.contains("10 live rows"), "{}", decisions[0].reason);
        assert!(decisions[3].reason.contains("99999 of 100000"), "{}", decisions[3].reason);
    }
}
