//! A part of a scan, for readers that divide the work.
//!
//! Owns: which rows belong to which part. Together the parts of a snapshot have each row once.
//! Does not own: the snapshot that the parts share.
//!
//! Fragments of the base table stay whole, so that conditions run inside Lance. Each goes to the
//! part that has fewest rows. SSTables then fill the parts up to an equal share, in ranges of rows:
//! a table whose rows are still in SSTables is divided too. Rows in memory are one range, in the
//! last part. All of this depends on the snapshot alone, so each process divides it alike.

use std::ops::Range;

use lance::Dataset;
use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};

use crate::snapshot::{Snapshot, Source};

/// Most parts of a read. The rows of each part are counted, so their number is limited.
const MAX_PARTS: usize = 1 << 16;
/// Cuts of an SSTable are multiples of this many rows, or a part would read a sliver of a batch.
const CUT_ROWS: u64 = 8_192;

/// Part `index` of `of`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPart {
    index: usize,
    of: usize,
}

/// The rows of one part.
#[derive(Clone, Debug)]
pub(super) struct PartRows {
    /// Fragments of the base table.
    pub fragments: Vec<Fragment>,
    /// The rows of each source above the base table, by their order in it. `None`: none of them.
    sources: Vec<Option<Range<u64>>>,
}

/// How many rows a source above the base table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceRows {
    /// An SSTable with this many rows, which can be cut.
    Known(u64),
    /// A source that is read whole.
    Whole,
}

impl ReadPart {
    /// Part `index` of `of` parts.
    ///
    /// # Errors
    /// An input error where there is no such part, or where `of` is too large.
    pub fn new(index: usize, of: usize) -> Result<Self> {
        if index >= of {
            return Err(Error::input(format!("no part {index} of {of}; parts count from 0")));
        }
        if of > MAX_PARTS {
            return Err(Error::input(format!("a read is limited to {MAX_PARTS} parts, got {of}")));
        }
        Ok(Self { index, of })
    }

    /// Most parts of `snapshot` that have rows.
    #[must_use]
    pub fn most(snapshot: &Snapshot) -> usize {
        let ranges = snapshot.sources().map(|(_, source)| match source {
            Source::SsTable(sstable) => match rows_of(&sstable.dataset) {
                SourceRows::Known(rows) => rows.div_ceil(CUT_ROWS),
                SourceRows::Whole => 1,
            },
            Source::MemTable(_) => 1,
        });
        let ranges = usize::try_from(ranges.sum::<u64>()).unwrap_or(MAX_PARTS);
        ranges.saturating_add(snapshot.base.count_fragments()).min(MAX_PARTS)
    }

    /// The rows of this part in `snapshot`.
    pub(super) fn rows(self, snapshot: &Snapshot) -> PartRows {
        let sources: Vec<SourceRows> = snapshot
            .sources()
            .map(|(_, source)| match source {
                Source::SsTable(sstable) => rows_of(&sstable.dataset),
                Source::MemTable(_) => SourceRows::Whole,
            })
            .collect();
        self.divided(snapshot.base.fragments(), &sources)
    }

    fn divided(self, fragments: &[Fragment], sources: &[SourceRows]) -> PartRows {
        let mut loads = vec![0_u64; self.of];
        let mut taken = Vec::new();
        for fragment in fragments {
            let lightest = (0..self.of).min_by_key(|part| loads[*part]).unwrap_or_default();
            loads[lightest] += fragment.num_rows().unwrap_or(1) as u64;
            if lightest == self.index {
                taken.push(fragment.clone());
            }
        }
        let above = sources.iter().map(|rows| match rows {
            SourceRows::Known(rows) => *rows,
            SourceRows::Whole => 0,
        });
        let all = loads.iter().sum::<u64>() + above.sum::<u64>();
        let share = all.div_ceil(self.of as u64);
        let mut part = 0;
        let mut sources_taken = Vec::with_capacity(sources.len());
        for rows in sources {
            sources_taken.push(match rows {
                SourceRows::Known(rows) => self.cut(*rows, share, &mut part, &mut loads),
                SourceRows::Whole => (self.index + 1 == self.of).then_some(0..u64::MAX),
            });
        }
        PartRows { fragments: taken, sources: sources_taken }
    }

    /// Hands out the rows of one SSTable from `part` on, and returns the range of this part. A part
    /// takes rows until it has its share; the last part takes the rest.
    fn cut(self, rows: u64, share: u64, part: &mut usize, loads: &mut [u64]) -> Option<Range<u64>> {
        let mut taken = None;
        let mut from = 0;
        while from < rows {
            let free = share.saturating_sub(loads[*part]);
            let is_last = *part + 1 == self.of;
            if free == 0 && !is_last {
                *part += 1;
                continue;
            }
            let upto = from.saturating_add(free).next_multiple_of(CUT_ROWS);
            let end = if is_last { rows } else { upto.min(rows) };
            loads[*part] += end - from;
            if *part == self.index {
                taken = Some(from..end);
            }
            from = end;
        }
        taken
    }
}

impl PartRows {
    /// The rows of the source at `place`; `None` where the part has none of them.
    pub fn of_source(&self, place: usize) -> Option<Range<u64>> {
        self.sources.get(place).cloned().flatten()
    }
}

fn rows_of(sstable: &Dataset) -> SourceRows {
    let rows = sstable.fragments().iter().map(Fragment::num_rows).sum::<Option<usize>>();
    rows.map_or(SourceRows::Whole, |rows| SourceRows::Known(rows as u64))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn fragments(rows: &[usize]) -> Vec<Fragment> {
        let numbered = rows.iter().zip(0..);
        numbered.map(|(rows, id)| Fragment::new(id).with_physical_rows(*rows)).collect()
    }

    fn parts(of: usize, fragments: &[Fragment], sources: &[SourceRows]) -> Vec<PartRows> {
        let part = |index| ReadPart::new(index, of).unwrap().divided(fragments, sources);
        (0..of).map(part).collect()
    }

    proptest! {
        #[test]
        fn parts_have_each_fragment_and_row_once(
            of in 1_usize..9,
            base in vec(1_usize..100_000, 0..6),
            sstables in vec(0_u64..200_000, 0..6),
        ) {
            let base = fragments(&base);
            let sources: Vec<_> = sstables.iter().copied().map(SourceRows::Known).collect();
            let parts = parts(of, &base, &sources);
            let mut ids: Vec<_> =
                parts.iter().flat_map(|part| &part.fragments).map(|it| it.id).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..base.len() as u64).collect::<Vec<_>>());
            for (place, rows) in sstables.iter().enumerate() {
                let mut ranges: Vec<_> =
                    parts.iter().filter_map(|part| part.of_source(place)).collect();
                ranges.sort_by_key(|range| range.start);
                let mut end = 0;
                for range in ranges {
                    prop_assert_eq!(range.start, end);
                    prop_assert!(range.start < range.end);
                    end = range.end;
                }
                prop_assert_eq!(end, *rows);
            }
        }
    }

    #[test]
    fn one_large_sstable_is_cut_into_equal_ranges() {
        let parts = parts(4, &[], &[SourceRows::Known(4_000_000)]);
        let lengths: Vec<u64> =
            parts.iter().filter_map(|it| it.of_source(0)).map(|it| it.end - it.start).collect();
        assert_eq!(lengths.len(), 4);
        assert!(lengths.iter().all(|rows| rows.abs_diff(1_000_000) <= 4 * CUT_ROWS), "{lengths:?}");
    }

    #[test]
    fn sstables_fill_the_parts_that_have_fewer_rows_of_the_base() {
        let base = fragments(&[900_000]);
        let parts = parts(2, &base, &[SourceRows::Known(500_000), SourceRows::Known(500_000)]);
        assert_eq!(parts[0].fragments.len(), 1);
        assert_eq!(parts[0].of_source(0), Some(0..57_344));
        assert_eq!(parts[1].of_source(0), Some(57_344..500_000));
        assert_eq!(parts[1].of_source(1), Some(0..500_000));
    }

    #[test]
    fn rows_in_memory_are_in_the_last_part() {
        let parts = parts(3, &[], &[SourceRows::Whole, SourceRows::Known(0)]);
        let has: Vec<_> = parts.iter().map(|it| it.of_source(0).is_some()).collect();
        assert_eq!(has, [false, false, true]);
        assert!(parts.iter().all(|it| it.of_source(1).is_none()));
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        for (index, of) in [(0, 0), (2, 2), (5, 1), (0, 1 << 17), (0, usize::MAX)] {
            assert!(ReadPart::new(index, of).is_err());
        }
    }
}
