//! The choice of the runs of the record index that are merged: size-tiered compaction.
//!
//! Owns: the levels, each eight times as large as the one below, and the choice of the runs to
//! merge: a full level, or one run of which most entries are dead.
//! Does not own: the merge itself (`merge`), or when it is due (`table`).

use crate::sstable::PAGE_ROWS;

/// Runs that make a level full.
pub const FAN_IN: usize = 8;
/// Most runs that are merged at once: each has pages in memory.
pub const MAX_INPUTS: usize = 32;
/// Runs of this level, 2^31 entries and more, are not merged, which bounds the work of one merge.
const TOP_LEVEL: u32 = 7;
/// Runs with fewer entries are all on the lowest level: a search reads one page of them.
const PAGE_ENTRIES: u64 = PAGE_ROWS as u64;

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSize {
    /// Entries in its pages.
    pub entries: u64,
    /// Entries that it serves; the others belong to fragments that are gone, or that another run
    /// serves.
    pub live: u64,
}

/// The level of a run of `entries` entries: 0 below a page, then one for each factor of [`FAN_IN`].
const fn level(entries: u64) -> u32 {
    match (entries / PAGE_ENTRIES).checked_ilog(FAN_IN as u64) {
        Some(level) => level + 1,
        None => 0,
    }
}

/// The indexes of the runs to merge now; empty where no merge is due.
///
/// The lowest full level is merged first. Where the new run would fill the level that it comes to,
/// the runs of that level are merged as well, so that no entry is written twice in a row.
#[must_use]
pub fn due(runs: &[RunSize]) -> Vec<usize> {
    let of_level = |wanted: u32| -> Vec<usize> {
        let places = (0..runs.len()).filter(|place| level(runs[*place].live) == wanted);
        places.collect()
    };
    let full = (0..TOP_LEVEL).find(|wanted| of_level(*wanted).len() >= FAN_IN);
    let Some(mut top) = full else { return mostly_dead(runs) };
    let mut chosen = of_level(top);
    chosen.sort_by_key(|place| runs[*place].live);
    chosen.truncate(MAX_INPUTS);
    loop {
        let merged = level(chosen.iter().map(|place| runs[*place].live).sum());
        let above = of_level(merged);
        let goes_along =
            merged > top && above.len() + 1 >= FAN_IN && chosen.len() + above.len() <= MAX_INPUTS;
        if !goes_along {
            return chosen;
        }
        chosen.extend(above);
        top = merged;
    }
}

/// A run of more than a page that serves less than half of its entries.
fn mostly_dead(runs: &[RunSize]) -> Vec<usize> {
    let is_mostly_dead = |run: &RunSize| run.entries > PAGE_ENTRIES && run.live < run.entries / 2;
    runs.iter().position(is_mostly_dead).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(entries: &[u64]) -> Vec<RunSize> {
        entries.iter().map(|entries| RunSize { entries: *entries, live: *entries }).collect()
    }

    /// The cost of a series of compactions for the index.
    #[derive(Default)]
    struct Life {
        runs: Vec<RunSize>,
        added: u64,
        merged: u64,
        most_runs: usize,
        compactions_that_merged: u64,
    }

    impl Life {
        fn compact(&mut self, entries: &[u64]) {
            self.runs.extend(sizes(entries));
            self.added += entries.iter().sum::<u64>();
            let before = self.merged;
            loop {
                let mut places = due(&self.runs);
                if places.is_empty() {
                    break;
                }
                assert!(places.len() <= MAX_INPUTS);
                let sum: u64 = places.iter().map(|place| self.runs[*place].live).sum();
                places.sort_unstable();
                for place in places.into_iter().rev() {
                    self.runs.swap_remove(place);
                }
                self.runs.extend(sizes(&[sum]));
                self.merged += sum;
            }
            self.compactions_that_merged += u64::from(self.merged > before);
            self.most_runs = self.most_runs.max(self.runs.len());
        }
    }

    #[test]
    fn each_level_is_eight_times_as_large_as_the_one_below() {
        for (entries, expected) in [
            (0, 0),
            (1, 0),
            (8_191, 0),
            (8_192, 1),
            (65_535, 1),
            (65_536, 2),
            (524_288, 3),
            (4_194_304, 4),
            (8_388_608, 4),
            (33_554_432, 5),
            (u64::MAX, 17),
        ] {
            assert_eq!(level(entries), expected, "{entries}");
        }
    }

    #[test]
    fn large_runs_are_left_alone_until_there_are_eight_of_them() {
        let large = [8 << 20; 7];
        assert_eq!(due(&sizes(&large)), Vec::<usize>::new());
        let with_small: Vec<u64> = large.into_iter().chain([1; 7]).collect();
        assert_eq!(due(&sizes(&with_small)), Vec::<usize>::new());
        let one_more: Vec<u64> = with_small.iter().copied().chain([1]).collect();
        assert_eq!(due(&sizes(&one_more)), (7..15).collect::<Vec<_>>());
        assert_eq!(due(&sizes(&[8 << 20; 17])).len(), 17);
        assert_eq!(due(&sizes(&[8 << 20; 100])).len(), MAX_INPUTS);
        assert_eq!(due(&sizes(&[1 << 31; 100])), Vec::<usize>::new(), "of the highest level");
    }

    #[test]
    fn a_level_that_the_new_run_would_fill_goes_along() {
        let runs: Vec<u64> = [[10_000; 8].as_slice(), &[70_000; 7], &[600_000; 6]].concat();
        assert_eq!(
            due(&sizes(&runs)).len(),
            15,
            "80,000 entries would be the eighth of their level"
        );
        let runs: Vec<u64> = [[10_000; 8].as_slice(), &[100_000; 7], &[600_000; 7]].concat();
        assert_eq!(due(&sizes(&runs)).len(), 22, "and 780,000 of theirs");
    }

    #[test]
    fn a_run_of_which_most_entries_are_dead_is_written_anew_alone() {
        let run = |entries, live| RunSize { entries, live };
        let runs = [run(100_000, 50_000), run(8_000, 1), run(200_000, 99_999)];
        assert_eq!(due(&runs), [2]);
        assert_eq!(due(&runs[..2]), Vec::<usize>::new());
    }

    #[test]
    fn a_compaction_of_one_row_never_touches_large_runs() {
        let mut life = Life::default();
        life.compact(&[8 << 20; 7]);
        life.compact(&[600_000; 7]);
        let large = life.runs.len();
        for _ in 0..10_000 {
            life.compact(&[1]);
            let untouched = life.runs.iter().filter(|run| run.live >= 600_000).count();
            assert_eq!(untouched, large);
        }
        assert!(life.most_runs <= large + 2 * FAN_IN, "{}", life.most_runs);
        // The lowest level's merges write less than a page each.
        assert!(life.merged / 10_000 < 8_192, "{}", life.merged);
        assert!(life.compactions_that_merged <= 10_000 / 7 + 2);
    }

    #[test]
    fn entries_are_written_once_a_level_and_runs_stay_few() {
        for (compactions, entries) in [(40_000, 100_000), (5_000, 1_000_000), (4_000, 1_000)] {
            let mut life = Life::default();
            for _ in 0..compactions {
                life.compact(&[entries]);
            }
            let levels = u64::from(level(life.added) - level(entries)) + 1;
            let runs = (usize::try_from(levels).unwrap() + 1) * (FAN_IN - 1);
            assert!(life.most_runs <= runs, "{} of {runs}", life.most_runs);
            let rewritten = life.merged / life.added;
            assert!(rewritten <= levels + 1, "{rewritten} in {levels} levels");
        }
    }

    #[test]
    fn many_runs_of_one_commit_become_few() {
        let mut life = Life::default();
        for _ in 0..20 {
            life.compact(&[50_000; 256]);
        }
        assert!(life.runs.len() <= 4 * FAN_IN, "{}", life.runs.len());
        assert!(life.merged <= 5 * life.added, "{} of {}", life.merged, life.added);
    }
}
