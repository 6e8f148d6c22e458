//! A part of a scan, for readers that divide the work.
//!
//! Owns: which sources belong to which part. Together the parts of a snapshot have each row once.
//! Does not own: the snapshot that the parts share.

use lance_table::format::Fragment;
use lancemem_core::types::{Error, Result};

/// Most parts of a read. The rows of each part are counted, so their number is limited.
const MOST_PARTS: usize = 1 << 16;

/// Part `index` of `of`, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPart {
    index: usize,
    of: usize,
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
        if of > MOST_PARTS {
            return Err(Error::input(format!("a read is limited to {MOST_PARTS} parts, got {of}")));
        }
        Ok(Self { index, of })
    }

    /// Whether the source at `place` is in this part. Sources above the base table are assigned
    /// from the last part on, because base fragments are assigned from the first part on.
    pub(super) const fn has_source(self, place: usize) -> bool {
        self.of - 1 - place % self.of == self.index
    }

    /// The base fragments of this part. Greedy: each fragment goes to the part with fewest rows.
    pub(super) fn fragments(self, fragments: &[Fragment]) -> Vec<Fragment> {
        let mut rows = vec![0; self.of];
        let mut taken = Vec::new();
        for fragment in fragments {
            let lightest = (0..self.of).min_by_key(|part| rows[*part]).unwrap_or_default();
            rows[lightest] += fragment.num_rows().unwrap_or(1);
            if lightest == self.index {
                taken.push(fragment.clone());
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragment(id: u64, rows: usize) -> Fragment {
        Fragment::new(id).with_physical_rows(rows)
    }

    #[test]
    fn parts_have_each_fragment_and_source_once() {
        let fragments: Vec<_> = [90, 10, 30, 30, 20]
            .into_iter()
            .zip(0..)
            .map(|(rows, id)| fragment(id, rows))
            .collect();
        for of in 1..8 {
            let parts: Vec<_> = (0..of).map(|index| ReadPart::new(index, of).unwrap()).collect();
            let mut ids: Vec<_> =
                parts.iter().flat_map(|part| part.fragments(&fragments)).map(|it| it.id).collect();
            ids.sort_unstable();
            assert_eq!(ids, [0, 1, 2, 3, 4]);
            for place in 0..20 {
                assert_eq!(parts.iter().filter(|part| part.has_source(place)).count(), 1);
            }
        }
        let ids = |index| -> Vec<u64> {
            let part = ReadPart::new(index, 2).unwrap();
            part.fragments(&fragments).iter().map(|fragment| fragment.id).collect()
        };
        assert_eq!((ids(0), ids(1)), (vec![0], vec![1, 2, 3, 4]));
    }

    #[test]
    fn a_part_that_is_not_there_is_refused() {
        for (index, of) in [(0, 0), (2, 2), (5, 1), (0, 1 << 17), (0, usize::MAX)] {
            assert!(ReadPart::new(index, of).is_err());
        }
    }
}
