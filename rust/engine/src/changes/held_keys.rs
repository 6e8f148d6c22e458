//! The keys of one side of a version, with which the other side is compared.
//!
//! Owns: the keys in memory, about 120 bytes for each row of that side, and what is recorded for
//! each of them.
//! Does not own: reading the keys, or the rows themselves.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use lancemem_core::types::{Error, KeyBytes, Result};

use super::selection::{Marks, Selection};

/// A row while it is compared.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub address: u64,
    pub key: &'a [u8],
    /// Whether it meets the condition of the feed.
    pub passes: bool,
    /// The hash of its values; `None` where values are not compared.
    pub hash: Option<u128>,
}

/// Which rows of a side are images of an update, and which rows the feed has.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub updated: Marks,
    pub kept: Marks,
}

/// Rows of one side by their keys.
#[derive(Debug, Default)]
pub struct HeldKeys {
    entries_by_key: HashMap<KeyBytes, u32, RandomState>,
    entries: Vec<Entry>,
    rows: Vec<HeldRow>,
}

#[derive(Debug)]
struct HeldRow {
    address: u64,
    entry: u32,
    passes: bool,
}

/// A key. A table may have several rows of one key: other programs append without looking.
#[derive(Debug, Default)]
struct Entry {
    held_rows: u32,
    other_rows: u32,
    /// Whether a row of the side passes, and of the other side.
    held_passes: bool,
    other_passes: bool,
    hash: Option<u128>,
    /// The row of the other side with the same values.
    equal: Option<u64>,
}

impl HeldKeys {
    /// Adds a row of the side.
    ///
    /// # Errors
    /// An input error for more than 2^32 - 1 keys.
    pub fn hold(&mut self, row: Row<'_>) -> Result<()> {
        let next = u32::try_from(self.entries.len()).map_err(|_| {
            Error::input(
                "the changes of one version are limited to 2^32 - 1 keys; read them in parts",
            )
        })?;
        let known = self.entries_by_key.get(row.key).copied();
        let entry = known.unwrap_or_else(|| {
            self.entries_by_key.insert(KeyBytes::new(row.key), next);
            self.entries.push(Entry { hash: row.hash, ..Entry::default() });
            next
        });
        if let Some(known) = self.entries.get_mut(entry as usize) {
            known.held_rows += 1;
            known.held_passes |= row.passes;
        }
        self.rows.push(HeldRow { address: row.address, entry, passes: row.passes });
        Ok(())
    }

    /// Compares a row of the other side, whose verdicts are `other`. Every row of the side is held.
    pub fn meet(&mut self, row: Row<'_>, other: &mut Verdict) {
        let entry = self.entries_by_key.get(row.key).copied();
        let Some(entry) = entry.and_then(|entry| self.entries.get_mut(entry as usize)) else {
            if row.passes {
                other.kept.insert(row.address);
            }
            return;
        };
        entry.other_rows += 1;
        entry.other_passes |= row.passes;
        if row.hash.is_some() && row.hash == entry.hash {
            entry.equal = Some(row.address);
        }
        other.updated.insert(row.address);
        if row.passes || entry.held_passes {
            other.kept.insert(row.address);
        }
    }

    /// The verdicts of the side, after all rows of the other side were compared. Takes rows without
    /// a change from the verdicts of both sides.
    pub fn finish(self, other: &mut Verdict) -> Verdict {
        let mut verdict = Verdict::default();
        for entry in &self.entries {
            if let Some(equal) = entry.unchanged() {
                other.kept.remove(equal);
                other.updated.remove(equal);
            }
        }
        for row in &self.rows {
            let Some(entry) = self.entries.get(row.entry as usize) else { continue };
            if entry.unchanged().is_some() {
                continue;
            }
            if entry.other_rows > 0 {
                verdict.updated.insert(row.address);
            }
            if row.passes || entry.other_passes {
                verdict.kept.insert(row.address);
            }
        }
        verdict
    }
}

impl Entry {
    /// The row of the other side, where each side has one row and both are equal.
    const fn unchanged(&self) -> Option<u64> {
        match (self.held_rows, self.other_rows) {
            (1, 1) => self.equal,
            _ => None,
        }
    }
}

/// Rows of a table without a key, of which equal ones of both sides cancel out.
#[derive(Debug, Default)]
pub struct HeldRows {
    /// By hash, how many rows of the side have no equal row of the other side yet.
    left: HashMap<u128, u64, RandomState>,
    rows: Vec<(u64, u128, bool)>,
}

impl HeldRows {
    /// Adds a row of the side.
    pub fn hold(&mut self, address: u64, hash: u128, passes: bool) {
        *self.left.entry(hash).or_default() += 1;
        self.rows.push((address, hash, passes));
    }

    /// Compares a row of the other side; true where an equal row of the side cancels it out.
    pub fn cancels(&mut self, hash: u128) -> bool {
        take_one(&mut self.left, hash)
    }

    /// The rows of the side that are left: of equal rows the first ones.
    pub fn finish(self) -> Selection {
        let Self { mut left, rows } = self;
        let mut kept = Marks::default();
        for (address, hash, passes) in rows {
            if take_one(&mut left, hash) && passes {
                kept.insert(address);
            }
        }
        kept.into_selection()
    }
}

/// Whether a row of this hash was left.
fn take_one(left: &mut HashMap<u128, u64, RandomState>, hash: u128) -> bool {
    match left.get_mut(&hash) {
        Some(left) if *left > 0 => {
            *left -= 1;
            true
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: u64, key: &[u8], passes: bool, hash: u128) -> Row<'_> {
        Row { address, key, passes, hash: Some(hash) }
    }

    fn pair(held: &[Row<'_>], others: &[Row<'_>]) -> (Verdict, Verdict) {
        let mut keys = HeldKeys::default();
        for row in held {
            keys.hold(*row).unwrap();
        }
        let mut other = Verdict::default();
        for row in others {
            keys.meet(*row, &mut other);
        }
        (keys.finish(&mut other), other)
    }

    fn has(marks: &Marks, addresses: &[u64]) -> Vec<bool> {
        addresses.iter().map(|address| marks.contains(*address)).collect()
    }

    #[test]
    fn a_key_of_both_sides_is_an_update_and_stays_where_one_image_passes() {
        let held = [
            row(0, b"a", true, 1),
            row(1, b"b", false, 1),
            row(2, b"c", false, 1),
            row(3, b"d", true, 1),
        ];
        let others = [row(10, b"a", false, 2), row(11, b"b", true, 2), row(12, b"c", false, 2)];
        let (held, other) = pair(&held, &others);
        assert_eq!(has(&held.updated, &[0, 1, 2, 3]), [true, true, true, false]);
        assert_eq!(has(&held.kept, &[0, 1, 2, 3]), [true, true, false, true]);
        assert_eq!(has(&other.updated, &[10, 11, 12]), [true, true, true]);
        assert_eq!(has(&other.kept, &[10, 11, 12]), [true, true, false]);
    }

    #[test]
    fn equal_images_are_left_out_but_not_where_a_key_has_several_rows() {
        let held = [row(0, b"a", true, 1), row(1, b"b", true, 1), row(2, b"b", true, 1)];
        let others = [row(10, b"a", true, 1), row(11, b"b", true, 1)];
        let (held, other) = pair(&held, &others);
        assert_eq!(has(&held.kept, &[0, 1, 2]), [false, true, true]);
        assert_eq!(has(&other.kept, &[10, 11]), [false, true]);
        assert!(!held.updated.contains(0) && !other.updated.contains(10));
    }

    #[test]
    fn rows_without_a_key_cancel_out_one_by_one() {
        let mut held = HeldRows::default();
        (0..3).for_each(|address| held.hold(address, 7, true));
        held.hold(3, 8, false);
        assert_eq!([held.cancels(7), held.cancels(9)], [true, false]);
        assert_eq!(held.finish().rows(), 2);
    }
}
